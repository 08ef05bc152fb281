// Every request to the console goes through here: same origin, the session's cookie, the header that unsafe requests need, one kind of error.
// A path, what it takes and what it answers belong together as the console's OpenAPI document says: another pairing does not compile (`pairings.ts`).
import type { Answer, Body, Path, Readable, Values } from './document';

/** What the console refused, or that it could not be reached (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }

  /** What a person can do about it, in one sentence. */
  get next(): string {
    if (this.status === 0) return 'The console does not answer. Check that it runs; the page tries again by itself.';
    if (this.status === 401) return 'Sign in again.';
    if (this.status === 403) return 'Ask for an operator token if you need to act.';
    if (this.status === 404) return 'It may have been removed, or belong to another tenant.';
    if (this.status === 409) return 'Somebody else may have been quicker. Look at it again.';
    if (this.status === 429) return 'Too many requests. Wait a moment.';
    if (this.status === 502 || this.status === 503 || this.status === 504) return 'The part that knows this is away. The page tries again by itself.';
    return 'Try again; the console’s log says more.';
  }
}

/** The console gives its parts 30 s when a person waits. What takes longer than that has died on the way, and would be waited for without an end. */
const PATIENCE_MS = 45_000;

let onSignedOut: () => void = () => {};

/** Called when the console says that the session is over. */
export function whenSignedOut(call: () => void) {
  onSignedOut = call;
}

/** The address of a path: values whose name stands in braces go there, the others into the query. */
export function place<P extends Path<'get'>>(path: P, values: Values<P, 'get'>): string {
  return fill(path, values as Given);
}

type Given = Record<string, unknown>;

function fill(path: string, values: Given = {}): string {
  const search = new URLSearchParams();
  const used = new Set<string>();
  const made = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    used.add(name);
    return encodeURIComponent(String(values[name]));
  });
  for (const [name, value] of Object.entries(values)) {
    if (used.has(name) || value == null || value === '') continue;
    for (const one of Array.isArray(value) ? value : [value]) search.append(name, String(one));
  }
  return search.size ? `${made}?${search}` : made;
}

async function send<T>(method: string, to: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { accept: 'application/json' };
  if (method !== 'GET') headers['x-holdfast-csrf'] = '1';
  if (body !== undefined) headers['content-type'] = 'application/json';
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let reply: Response;
  let text: string;
  try {
    reply = await fetch(to, { method, headers, body: body === undefined ? null : JSON.stringify(body), signal: signal ? AbortSignal.any([signal, patience]) : patience, credentials: 'same-origin' });
    text = await reply.text();
  } catch (failure) {
    if (failure instanceof DOMException && failure.name === 'AbortError') throw failure;
    throw new ApiError(0, 'unreachable', 'The console does not answer.');
  }
  let answer: unknown = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    // Not JSON: something between us and the console answered, and the status says enough.
  }
  if (reply.ok) return answer as T;
  if (reply.status === 401 && !to.endsWith('/sign-in')) onSignedOut();
  throw refusal(reply.status, answer);
}

function refusal(status: number, answer: unknown): ApiError {
  const said = (answer && typeof answer === 'object' ? answer : {}) as Record<string, unknown>;
  const inner = (said.error && typeof said.error === 'object' ? said.error : said) as Record<string, unknown>;
  const code = typeof inner.code === 'string' ? inner.code : typeof said.error === 'string' ? said.error : `http_${status}`;
  const message = [inner.message, inner.detail, said.message].find((one) => typeof one === 'string') as string | undefined;
  return new ApiError(status, code, message ?? `The console answered ${status}.`);
}

/** Values that may all be left out may be left out together. */
type Rest<V> = object extends V ? [values?: V, signal?: AbortSignal] : [values: V, signal?: AbortSignal];

export function get<P extends Readable>(path: P, ...[values, signal]: Rest<Values<P, 'get'>>): Promise<Answer<P, 'get'>> {
  return send('GET', fill(path, values as Given), undefined, signal);
}

export function post<P extends Path<'post'>>(path: P, values: Values<P, 'post'>, body?: Body<P>): Promise<Answer<P, 'post'>> {
  return send('POST', fill(path, values as Given), body ?? {});
}
