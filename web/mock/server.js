// The console without a system behind it: follows docs/spec/console.md with a small farm that lives in this process, so that the page can be made
// and tested alone. `node mock/server.js [--port 7710] [--nodes 24] [--sites 3] [--flood] [--no-schedules] [--not-up]`
// Tokens: `mock-operator`, `mock-viewer`. Serves ../dist when it is there.
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { randomBytes } from 'node:crypto';
import { extname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { System, iso } from './system.js';
import { Records } from './records.js';
import { route, picture } from './routes.js';
import { alerts } from './alerts.js';

const option = (name, fallback) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : Number(process.argv[at + 1]);
};
const flag = (name) => process.argv.includes(`--${name}`);

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const HEADERS = {
  'content-security-policy': "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
};
const BODY_LIMIT = 65_536;

const system = new System({ nodes: option('nodes', 24), sites: option('sites', 3) });
const world = { system, records: new Records(system, { flood: flag('flood') }), memory: new Map(), inUp: !flag('not-up'), schedules: !flag('no-schedules'), sessions: new Map(), streams: new Set() };
alerts(system, world.records, world.memory);

setInterval(() => {
  // A suspended computer must not be caught up with thousands of steps at once.
  const behind = Math.min(5, Math.floor((Date.now() - system.now) / 1000));
  for (let i = 0; i < behind; i++) system.step();
  if (Date.now() - system.now > 5000) system.now = Date.now();
  if (!behind) return;
  const whole = `id: ${system.ticks}\nevent: picture\ndata: ${JSON.stringify(picture(world))}\n\n`;
  const changed = [...system.changed].slice(0, 200).map((node) => system.row(node));
  const more = Math.max(0, system.changed.size - 200);
  system.changed.clear();
  const nodes = changed.length ? `event: nodes\ndata: ${JSON.stringify({ at: iso(system.now), changed, removed: [], more })}\n\n` : '';
  for (const stream of world.streams) stream.write(whole + nodes);
}, 250);

function reply(response, status, body, headers = {}) {
  if (body === null) return response.writeHead(status, { ...HEADERS, ...headers }).end();
  const bytes = Buffer.isBuffer(body) || typeof body === 'string' ? body : JSON.stringify(body);
  response.writeHead(status, { ...HEADERS, 'content-type': 'application/json', 'cache-control': 'no-store', ...headers }).end(bytes);
}
const refuse = (response, status, code, message) => reply(response, status, { error: { code, message, field: null } });

async function file(request, response, path) {
  const name = path === '/' || !extname(path) ? 'index.html' : normalize(path).replace(/^[/\\]+/, '');
  try {
    let bytes = await readFile(join(DIST, name));
    const headers = { ...HEADERS, 'content-type': TYPES[extname(name)] ?? 'application/octet-stream', 'cache-control': name.startsWith('assets/') ? 'public, max-age=31536000, immutable' : 'no-cache' };
    if (/\bgzip\b/.test(request.headers['accept-encoding'] ?? '')) {
      bytes = gzipSync(bytes);
      headers['content-encoding'] = 'gzip';
    }
    response.writeHead(200, headers).end(bytes);
  } catch {
    refuse(response, 404, 'not_found', 'There is no such file. Run npm run build first, or use the address of vite.');
  }
}

function sessionOf(request) {
  const cookie = /(?:^|;\s*)holdfast_console=([0-9a-f]+)/.exec(request.headers.cookie ?? '');
  return cookie ? (world.sessions.get(cookie[1]) ?? null) : null;
}

async function read(request) {
  let text = '';
  for await (const part of request) {
    text += part;
    if (text.length > BODY_LIMIT) throw new Error('too large');
  }
  return text ? JSON.parse(text) : {};
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, 'http://console');
  // For tests: dead letters to be acted upon.
  if (url.pathname === '/mock/give-up') {
    world.records.giveUp();
    return reply(response, 204, null);
  }
  if (!url.pathname.startsWith('/api/')) return file(request, response, url.pathname);
  try {
    if (request.method !== 'GET') {
      const same = request.headers['sec-fetch-site'] === 'same-origin' || request.headers.origin === `http://${request.headers.host}`;
      if (request.headers['x-holdfast-csrf'] !== '1' || !same) return refuse(response, 403, 'csrf', 'This request did not come from the page.');
    }
    const body = request.method === 'GET' ? {} : await read(request);
    if (url.pathname === '/api/v1/sign-in') {
      const role = { 'mock-operator': 'operator', 'mock-viewer': 'viewer' }[body.token];
      if (!role) return refuse(response, 401, 'unauthorized', 'This token is not known.');
      const id = randomBytes(32).toString('hex');
      const session = { id, name: `mock-${role}`, role };
      world.sessions.set(id, session);
      response.setHeader('set-cookie', `holdfast_console=${id}; HttpOnly; SameSite=Strict; Path=/`);
      return reply(response, 200, route(world, session, 'GET', '/api/v1/me', new URLSearchParams(), {}).body);
    }
    const session = sessionOf(request);
    if (!session) return refuse(response, 401, 'unauthorized', 'Sign in first.');
    if (url.pathname === '/api/v1/sign-out') {
      world.sessions.delete(session.id);
      return reply(response, 204, null);
    }
    if (url.pathname === '/api/v1/stream') {
      response.writeHead(200, { ...HEADERS, 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
      response.write(`id: ${system.ticks}\nevent: picture\ndata: ${JSON.stringify(picture(world))}\n\n`);
      world.streams.add(response);
      response.on('close', () => world.streams.delete(response));
      return;
    }
    if (request.method !== 'GET' && session.role === 'viewer') return refuse(response, 403, 'forbidden', 'A viewer looks and does not act.');
    const answer = route(world, session, request.method, url.pathname, url.searchParams, body);
    if (!answer) return refuse(response, 404, 'not_found', 'There is no such thing.');
    if (answer.refused) return refuse(response, answer.status, answer.code, answer.refused);
    reply(response, answer.status ?? 200, answer.body, answer.headers);
  } catch (failure) {
    refuse(response, 400, 'malformed', String(failure.message ?? failure));
  }
});

server.listen(option('port', 7710), '127.0.0.1', () => console.log(`mock console on http://127.0.0.1:${server.address().port}  tokens: mock-operator, mock-viewer`));
