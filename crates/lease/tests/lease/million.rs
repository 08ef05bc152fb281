//! Two days without a destination, a million rows.
//!
//! The breakers' clock runs fast: two days of it pass while the worker probes. The rows' own times are
//! two days back. Everything else is as it is in production.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease::backoff::Backoff;
use lease::{Clock, Options, Verdict};
use testkit::eventually;

use crate::site::{Mode, Site, script};

const ROWS: i64 = 1_000_000;
const DEVICES: i64 = 500;
const TWO_DAYS: Duration = Duration::from_secs(48 * 3600);
/// On this clock two days are six seconds.
const FASTER: u32 = 28_800;
/// More than the attempts of a row, so that one attempt a probe would bury it.
const PROBES: u32 = 12;
/// Draining takes most of a minute on two cores; this is for a machine that has other things to do.
const VERY_LONG: Duration = Duration::from_secs(600);

/// One row every 172.8 ms, over two days, from devices in turn.
const FILL: &str = "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at,
      payload_json, next_attempt_at, created_at, seq)
    SELECT md5('row' || n)::uuid, md5('t' || n % 5)::uuid, md5('d' || n % $2)::uuid, 'telemetry.reading', at, '{}', at,
      at, n / $2
    FROM generate_series(0, $1::int8 - 1) n,
      LATERAL (SELECT now() - interval '48 h' * (1 - n::float8 / $1) AS at) t";

/// How far each device has come, and what came out of turn or twice.
#[derive(Default)]
struct Received {
    next: HashMap<uuid::Uuid, i64>,
    wrong: Option<String>,
}

async fn a_million_rows_of_two_days_arrive_in_order_and_unharmed(mode: Mode) {
    let site = Site::new(mode, "million").await;
    // What is counted here is what the engine does to a row, not what inserting costs.
    site.client
        .batch_execute(
            "DROP TRIGGER sync_outbox_added ON sync_outbox;
             ALTER TABLE sync_outbox SET UNLOGGED",
        )
        .await
        .unwrap();
    site.client.execute(FILL, &[&ROWS, &DEVICES]).await.unwrap();
    site.client.batch_execute("ANALYZE sync_outbox").await.unwrap();

    let (up, received) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Received>>::default());
    let (switch, sink) = (up.clone(), received.clone());
    let mut options = Options::new("w");
    options.batch = 2000;
    options.breaker = Backoff::site();
    options.clock = Clock::faster(FASTER);
    let clock = options.clock;
    let worker = site.start(
        script(move |batch| {
            let verdict = if switch.load(Ordering::Relaxed) {
                let mut received = sink.lock().unwrap();
                for item in &batch.items {
                    let (device, seq) = (item.row.device.unwrap(), item.row.seq);
                    let next = received.next.entry(device).or_default();
                    let wanted = std::mem::replace(next, seq + 1);
                    if seq != wanted {
                        received.wrong.get_or_insert(format!("{device}: {seq}, not {wanted}"));
                    }
                }
                Verdict::all_done(&batch)
            } else {
                Verdict::down("connection refused", None)
            };
            async move { verdict }
        }),
        options,
    );
    eventually(VERY_LONG, "two days with probes", async || {
        let failures = worker.breakers().first().map_or(0, |breaker| breaker.failures);
        clock.now() > TWO_DAYS && failures >= PROBES
    })
    .await
    .unwrap();
    let counts = worker.counts();
    assert_eq!((counts.done, counts.retried, counts.buried, counts.fenced), (0, 0, 0, 0));

    up.store(true, Ordering::Relaxed);
    let drained = async || match worker.counts().done {
        done if done == ROWS.unsigned_abs() => Ok(()),
        done => Err(format!("{done} of {ROWS}")),
    };
    eventually(VERY_LONG, "the backlog to drain", drained).await.unwrap();
    worker.stop().await;
    let untouched = "SELECT count(*) FROM sync_outbox WHERE status = 'acked' AND attempt_count = 0
        AND last_attempt_at IS NULL AND last_error_code IS NULL AND failed_at IS NULL";
    assert_eq!(site.number(untouched).await, ROWS);
    let received = received.lock().unwrap();
    assert_eq!(received.wrong, None);
    assert_eq!(received.next.len(), usize::try_from(DEVICES).unwrap());
    assert!(received.next.values().all(|next| *next == ROWS / DEVICES));
}

crate::both! {
    a_million_rows_of_two_days_arrive_in_order_and_unharmed,
}
