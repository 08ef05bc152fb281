// The tests of the page on the real system: starts `holdfast up` in a folder of its own, runs Playwright against its console, stops it.
// `node tests/on-up.mjs PROGRAM [arguments of playwright]`
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

const START_WITHIN_MS = 180_000;
const [program, ...rest] = process.argv.slice(2);
if (!program) throw new Error('which program? usually ../target/debug/holdfast');
const data = mkdtempSync(join(tmpdir(), 'holdfast-page-'));
chmodSync(data, 0o755);
const log = join(data, 'up.log');
const up = spawn(resolve(program), ['up', '--data', join(data, 'data'), '--for', '30m'], { stdio: ['ignore', openSync(log, 'w'), openSync(log, 'a')] });
const ended = new Promise((done) => up.on('exit', done));
const read = (name) => readFileSync(join(data, 'data/console', name), 'utf8').trim();

async function address() {
  const until = Date.now() + START_WITHIN_MS;
  while (Date.now() < until && up.exitCode === null) {
    if (existsSync(join(data, 'data/console/console.toml'))) {
      const listen = /http\.listen = "([^"]+)"/.exec(read('console.toml'))?.[1];
      const well = await fetch(`http://${listen}/readyz`).then((reply) => reply.ok, () => false);
      if (well) return `http://${listen}`;
    }
    await new Promise((done) => setTimeout(done, 250));
  }
  throw new Error(`up did not bring its console:\n${readFileSync(log, 'utf8').slice(-4000)}`);
}

const SITE = `UPDATE sync_outbox SET status = 'dlq', failed_at = now(), dlq_reason = 'invalid_unit'
    WHERE id IN (SELECT id FROM sync_outbox WHERE stream IS NOT NULL AND status = 'acked' ORDER BY id LIMIT 5)`;
/** Of several tags, so that one cause has several lines; five at once or none. */
const PLANT = `INSERT INTO historian_dead_letters (consumer_group, message_id, topic, routing_key, headers, body, cause_code, cause_message, attempts, dead_lettered_at)
    SELECT 'scada-historian', event_id::text, 'scada.l2.telemetry', tag, '{}', convert_to(json_build_object(
        'eventId', event_id, 'timestamp', to_char(timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'asset', json_build_object('plant', plant, 'area', area, 'unit', unit_name), 'tag', tag, 'value', value, 'unit', unit, 'quality', quality,
        'category', 'telemetry', 'nodeId', node_id)::text, 'UTF8'), 'incompatible_schema', 'the schema has major version 2, this historian reads 1', 1, now()
    FROM telemetry WHERE (SELECT count(*) FROM telemetry) >= 5 ORDER BY created_at LIMIT 5`;

/** A reading that the cloud has acknowledged and that is given up by nobody: the page is asked where it has been. */
const DELIVERED = `SELECT id FROM sync_outbox WHERE stream IS NOT NULL AND status = 'acked' AND event_type = 'telemetry.ingested' ORDER BY id LIMIT 1`;

/** What a statement answers, once that is `enough`. */
async function answer(database, sql, enough) {
  const until = Date.now() + START_WITHIN_MS;
  while (Date.now() < until) {
    const said = execFileSync('psql', ['-qAt', '-h', join(data, 'data/postgres/run'), '-U', 'postgres', '-d', database, '-c', sql], { encoding: 'utf8' }).trim();
    if (enough(said)) return said;
    await new Promise((done) => setTimeout(done, 500));
  }
  throw new Error(`nothing was delivered in ${database}`);
}

/** Some events that were delivered are given up by hand: a system that works has no dead letters of its own. */
const giveUp = (database, sql) => answer(database, `WITH given AS (${sql} RETURNING 1) SELECT count(*) FROM given`, (said) => Number(said) === 5);

let status = 1;
try {
  const at = await address();
  await giveUp('edge', SITE);
  await giveUp('scada_historian', PLANT);
  const delivered = await answer('edge', DELIVERED, Boolean);
  const env = { ...process.env, HOLDFAST_DELIVERED_EVENT: delivered, HOLDFAST_CONSOLE: at, HOLDFAST_OPERATOR_TOKEN: read('operator.token'), HOLDFAST_VIEWER_TOKEN: read('viewer.token') };
  const tests = spawn('npx', ['playwright', 'test', ...rest], { stdio: 'inherit', env });
  status = await new Promise((done) => tests.on('exit', (code) => done(code ?? 1)));
} finally {
  if (up.exitCode === null) up.kill('SIGINT');
  await ended;
  if (status === 0) rmSync(data, { recursive: true, force: true });
  else console.error(`what up said is in ${log}`);
}
process.exit(status);
