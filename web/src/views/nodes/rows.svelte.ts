// The rows of the table of nodes: asked in pages by what is looked at, and kept current by what the stream says has changed.
import { ApiError, get } from '../../api/client';
import type { Values } from '../../api/document';
import type { NodeChanges, NodeRow } from '../../api/types';

export const PAGE = 500;
/** The stream may say every second that more has changed than it names: rows are not asked for more often than this. */
const AGAIN_AFTER_MS = 2_000;
const nameOf = (row: NodeRow) => `${row.site}/${row.node_id}`;
type Query = Values<'/api/v1/nodes', 'get'>;

export class NodeRows {
  total = $state<number | null>(null);
  /** How many there were when it was asked. */
  found = $state<number | null>(null);
  failure = $state.raw<ApiError | null>(null);
  /** By place in the sorted list; not there: not asked yet. */
  rows = $state.raw<(NodeRow | undefined)[]>([]);
  #query: Query = {};
  #stop = new AbortController();
  #asking = new Set<number>();
  /** What is looked at. */
  #from = 0;
  #to = 0;
  /** Where pages begin that have changed in a way nobody named: asked again when they are looked at. */
  #old = new Set<number>();
  #again: ReturnType<typeof setTimeout> | undefined;

  /** Another question: what was there goes as soon as the answer is here. */
  ask(query: Query) {
    this.#stop.abort();
    this.#stop = new AbortController();
    this.#asking.clear();
    this.#old.clear();
    this.#query = query;
    void this.#page(0, true);
  }

  /** Makes sure that these rows are there or on their way. */
  need(from: number, to: number) {
    [this.#from, this.#to] = [from, to];
    if (this.total === null) return;
    for (let page = Math.floor(from / PAGE); page <= Math.floor(Math.min(to, this.total - 1) / PAGE); page++) {
      if (this.rows[page * PAGE] === undefined || (!this.#again && this.#old.has(page * PAGE))) void this.#page(page * PAGE, false);
    }
  }

  /** The same question again, for the order that changes as values do. */
  refresh(from: number, to: number) {
    for (let page = Math.floor(from / PAGE); page <= Math.floor(to / PAGE); page++) void this.#page(page * PAGE, false);
  }

  /** What the stream names is put in its place. Of what it does not name it says how much there is, and that is asked for again. */
  take(changes: NodeChanges) {
    const changed = new Map(changes.changed.map((row) => [nameOf(row), row]));
    if (changed.size) this.rows = this.rows.map((row) => (row && changed.get(nameOf(row))) || row);
    if (!changes.more && !changes.removed.length) return;
    const gone = new Set(changes.removed);
    // Array.from also passes the places that were not asked for yet, which stay.
    const left = Array.from(this.rows).filter((row) => !row || !gone.has(nameOf(row)));
    if (left.length < this.rows.length) {
      this.total = left.length;
      this.rows = left;
    }
    for (let offset = 0; offset < this.rows.length; offset += PAGE) this.#old.add(offset);
    this.#again ??= setTimeout(() => {
      this.#again = undefined;
      this.need(this.#from, this.#to);
    }, AGAIN_AFTER_MS);
  }

  stop() {
    clearTimeout(this.#again);
    this.#stop.abort();
  }

  async #page(offset: number, whole: boolean) {
    if (this.#asking.has(offset)) return;
    this.#asking.add(offset);
    // Before the answer: what changes while it is on its way may not be in it.
    this.#old.delete(offset);
    const stop = this.#stop;
    try {
      const answer = await get('/api/v1/nodes', { ...this.#query, offset, limit: PAGE }, stop.signal);
      if (stop.signal.aborted) return;
      const next = whole || answer.total !== this.total ? new Array<NodeRow | undefined>(answer.total) : [...this.rows];
      answer.items.forEach((row, i) => (next[offset + i] = row));
      this.total = answer.total;
      if (whole) this.found = answer.total;
      this.rows = next;
      this.failure = null;
    } catch (failure) {
      if (stop.signal.aborted) return;
      this.#old.add(offset);
      this.failure = failure instanceof ApiError ? failure : new ApiError(0, 'unexpected', String(failure));
    } finally {
      if (!stop.signal.aborted) this.#asking.delete(offset);
    }
  }
}
