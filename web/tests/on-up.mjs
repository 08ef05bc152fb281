// The tests of the page on the real system: starts `holdfast up` in a folder of its own, runs Playwright against its console, stops it.
// `node tests/on-up.mjs PROGRAM [arguments of playwright]`
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const START_WITHIN_MS = 180_000;
const [program, ...rest] = process.argv.slice(2);
if (!program) throw new Error('which program? usually ../target/debug/holdfast');
const data = mkdtempSync(join(tmpdir(), 'holdfast-page-'));
chmodSync(data, 0o755);
const log = join(data, 'up.log');
const postgres = join(data, 'data/postgres/run');
const up = spawn(resolve(program), ['up', '--data', join(data, 'data')], { stdio: ['ignore', openSync(log, 'w'), openSync(log, 'a')] });
const ended = new Promise((done) => up.on('exit', done));
const runs = () => up.exitCode === null && up.signalCode === null;
const read = (name) => readFileSync(join(data, 'data/console', name), 'utf8').trim();

let tests = null;
// Who is stopped stops what it started; the rest follows from that, below.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    tests?.kill('SIGTERM');
    up.kill('SIGINT');
  });
}

/** What `look` finds, once it finds something. */
async function wait(what, look) {
  const until = Date.now() + START_WITHIN_MS;
  while (Date.now() < until && runs()) {
    const found = await look();
    if (found) return found;
    await new Promise((done) => setTimeout(done, 250));
  }
  throw new Error(`${what}:\n${readFileSync(log, 'utf8').slice(-4000)}`);
}

async function address() {
  if (!existsSync(join(data, 'data/console/console.toml'))) return null;
  const listen = /http\.listen = "([^"]+)"/.exec(read('console.toml'))?.[1];
  const well = await fetch(`http://${listen}/readyz`).then((reply) => reply.ok, () => false);
  return well ? `http://${listen}` : null;
}

/** A reading that the cloud has acknowledged: the page is asked where it has been. */
const DELIVERED = `SELECT id FROM sync_outbox WHERE stream IS NOT NULL AND status = 'acked' AND event_type = 'telemetry.ingested' ORDER BY id LIMIT 1`;
const delivered = () => execFileSync('psql', ['-qAt', '-h', postgres, '-U', 'postgres', '-d', 'edge', '-c', DELIVERED], { encoding: 'utf8' }).trim();

let status = 1;
try {
  const at = await wait('up did not bring its console', address);
  const event = await wait('nothing was delivered', delivered);
  const env = { ...process.env, HOLDFAST_DELIVERED_EVENT: event, HOLDFAST_CONSOLE: at, HOLDFAST_OPERATOR_TOKEN: read('operator.token'), HOLDFAST_VIEWER_TOKEN: read('viewer.token'), HOLDFAST_POSTGRES: postgres };
  const web = fileURLToPath(new URL('..', import.meta.url));
  tests = spawn(process.execPath, [join(web, 'node_modules/@playwright/test/cli.js'), 'test', ...rest], { cwd: web, stdio: 'inherit', env });
  status = await new Promise((done) => tests.on('exit', (code) => done(code ?? 1)));
} finally {
  if (runs()) up.kill('SIGINT');
  await ended;
  if (status === 0) rmSync(data, { recursive: true, force: true });
  else console.error(`what up said is in ${log}`);
}
process.exit(status);
