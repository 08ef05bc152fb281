//! How fast a backlog of `sync_outbox` is drained, against a bare DELETE loop beside it.
//!
//! `cargo run -p lease --example drain -- ROWS DEVICES SLOTS BATCH [snapshot]`

#![expect(clippy::print_stdout, reason = "it is a tool that prints its numbers")]
#![expect(clippy::unwrap_used, reason = "it ends at the first error")]

#[path = "../tests/lease/outbox.rs"]
mod outbox;

use std::time::{Duration, Instant};

use lease::{Batch, Handler, Options, Verdict, Worker};

struct Accept;

impl Handler<outbox::Event> for Accept {
    async fn handle(&self, batch: Batch<outbox::Event>) -> Verdict {
        // What a delivery would look at.
        let read = batch.items.iter().map(|item| (item.row.tenant, item.row.device, item.row.seq));
        std::hint::black_box(read.count());
        Verdict::all_done(&batch)
    }
}

fn argument(n: usize, default: i64) -> i64 {
    std::env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::main]
async fn main() {
    let (rows, devices) = (argument(1, 20_000), argument(2, 100));
    let (slots, batch) = (argument(3, 2), argument(4, 500));
    let snapshot = std::env::args().nth(5).is_some_and(|word| word == "snapshot");
    let database = testkit::Database::empty("drain").await.unwrap();
    let client = database.connect().await.unwrap();
    client.batch_execute(outbox::SITE_TABLES).await.unwrap();
    client.batch_execute(outbox::LEASED_WORK).await.unwrap();
    let fill = "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at, payload_json, seq)
        SELECT gen_random_uuid(), md5('t' || n % 5)::uuid,
          CASE WHEN $2::int8 > 0 THEN md5('d' || n % greatest($2, 1))::uuid END,
          'telemetry.reading', now() - ($1 - n) * interval '10 ms', '{\"v\": 1}', n
        FROM generate_series(1, $1::int8) n";
    client.execute(fill, &[&rows, &devices]).await.unwrap();
    client.batch_execute("ANALYZE sync_outbox").await.unwrap();

    let holder = database.connect().await.unwrap();
    if snapshot {
        holder
            .batch_execute(
                "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM sync_outbox",
            )
            .await
            .unwrap();
    }
    let mut address = pg::Options::new(database.url());
    address.max_connections = 16;
    let pool = pg::Pool::new(&address).unwrap();
    let mut options = Options::new("drain");
    options.batch = u32::try_from(batch).unwrap();
    options.slots = usize::try_from(slots).unwrap();
    let began = Instant::now();
    let worker = Worker::start(&address, pool, outbox::queue("drain"), Accept, options).unwrap();
    let (mut last, mut at) = (0, Instant::now());
    while worker.counts().done < u64::try_from(rows).unwrap() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if at.elapsed() >= Duration::from_secs(2) {
            let done = worker.counts().done;
            println!(
                "  {done} done, {:.0}/s",
                f64::from(u32::try_from(done - last).unwrap()) / at.elapsed().as_secs_f64()
            );
            (last, at) = (done, Instant::now());
        }
    }
    let took = began.elapsed().as_secs_f64();
    worker.stop().await;
    println!(
        "{rows} rows, {devices} devices, {slots} slots of {batch}, snapshot {snapshot}: {:.0} rows/s",
        f64::from(i32::try_from(rows).unwrap()) / took
    );
    drop(holder);
    client.batch_execute("TRUNCATE sync_outbox").await.unwrap();
    client.execute(fill, &[&rows.min(100_000), &devices]).await.unwrap();
    let began = Instant::now();
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..slots {
        let client = database.connect().await.unwrap();
        loops.spawn(async move {
            let text = "DELETE FROM sync_outbox WHERE id = ANY (ARRAY(SELECT id FROM sync_outbox
                LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING *";
            while !client.query(text, &[&batch]).await.unwrap().is_empty() {}
        });
    }
    loops.join_all().await;
    let rate = f64::from(i32::try_from(rows.min(100_000)).unwrap()) / began.elapsed().as_secs_f64();
    println!("bare DELETE loop: {rate:.0} rows/s");
}
