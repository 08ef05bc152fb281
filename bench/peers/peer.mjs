// One peer drains JOBS jobs that were enqueued before, with a handler that does nothing, and prints jobs a second.
// usage: node peer.mjs graphile-worker|pg-boss JOBS   (the database comes from PGHOST, PGUSER and PGDATABASE)

import pg from "pg";

const BATCH = 500;
const CONNECTIONS = 2;
const payload = { body: "e".repeat(450) };

// As its performance page recommends: a local queue, batched completion, 24 jobs at once. Jobs have no queue name, so
// that none waits for another.
async function graphileWorker(jobs) {
  const { makeWorkerUtils, run, Logger } = await import("graphile-worker");
  const logger = new Logger(() => () => {});
  const pgPool = new pg.Pool({ max: 25 });
  const utils = await makeWorkerUtils({ pgPool, logger });
  await utils.migrate();
  await pgPool.query(
    `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
       SELECT json_populate_record(NULL::graphile_worker.job_spec, json_build_object('identifier', 'noop', 'payload', $2::json))
       FROM generate_series(1, $1::int)))`,
    [jobs, JSON.stringify(payload)],
  );
  await pgPool.query("CHECKPOINT");
  let done = 0;
  const start = performance.now();
  const finished = new Promise((resolve) => {
    const noop = async () => {
      done += 1;
      if (done === jobs) resolve();
    };
    const preset = {
      worker: { concurrentJobs: 24, localQueue: { size: BATCH }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
    };
    globalThis.runner = run({ pgPool, logger, preset, taskList: { noop }, noHandleSignals: true });
  });
  const runner = await globalThis.runner;
  await finished;
  // The stop writes the completions that are left.
  await runner.stop();
  const rate = jobs / ((performance.now() - start) / 1000);
  const left = await pgPool.query("SELECT count(*)::int AS left FROM graphile_worker.jobs");
  if (left.rows[0].left !== 0) throw new Error(`${left.rows[0].left} jobs are left`);
  await utils.release();
  await pgPool.end();
  return rate;
}

// Its polling workers rest between batches; fetch and complete in a loop do not.
async function pgBoss(jobs) {
  const { default: PgBoss } = await import("pg-boss");
  const { PGHOST: host, PGUSER: user, PGDATABASE: database } = process.env;
  const boss = new PgBoss({ host, user, database, max: CONNECTIONS + 1, supervise: false, schedule: false });
  await boss.start();
  await boss.createQueue("noop");
  for (let at = 0; at < jobs; at += 5000) {
    const some = Math.min(5000, jobs - at);
    await boss.insert(Array.from({ length: some }, () => ({ name: "noop", data: payload })));
  }
  let done = 0;
  const start = performance.now();
  const drain = async () => {
    for (;;) {
      const batch = await boss.fetch("noop", { batchSize: BATCH });
      if (batch.length === 0) return;
      await boss.complete("noop", batch.map((job) => job.id));
      done += batch.length;
    }
  };
  await Promise.all(Array.from({ length: CONNECTIONS }, drain));
  const rate = jobs / ((performance.now() - start) / 1000);
  if (done !== jobs) throw new Error(`${done} of ${jobs} jobs were done`);
  await boss.stop({ graceful: false });
  return rate;
}

const [name, jobs] = process.argv.slice(2);
const peers = { "graphile-worker": graphileWorker, "pg-boss": pgBoss };
console.log(await peers[name](Number(jobs)));
process.exit(0);
