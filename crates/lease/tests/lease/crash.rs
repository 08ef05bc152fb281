//! Zombies, crashes, poison, and a stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lease::{Outcome, Verdict};
use testkit::eventually;
use tokio::sync::{Notify, Semaphore};

use crate::site::{Delivered, LONG, Mode, Site, deliver, retry, script};

/// A handler that says when it has a batch and goes on only when it is let.
fn held_up(entered: &Arc<Notify>, gate: &Arc<Semaphore>) -> crate::site::Script {
    let (entered, gate) = (entered.clone(), gate.clone());
    script(move |batch| {
        let (entered, gate) = (entered.clone(), gate.clone());
        async move {
            entered.notify_one();
            let _passed = gate.acquire().await;
            Verdict::all_done(&batch)
        }
    })
}

async fn a_zombie_changes_nothing_and_is_counted(mode: Mode) {
    let site = Site::new(mode, "zombie").await;
    site.add("t", "d", 0..5).await;
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut options = site.options("zombie");
    options.slots = 1;
    let zombie = site.start(held_up(&entered, &gate), options);
    entered.notified().await;
    // As if it had been stopped past its lease.
    site.expire().await;
    let delivered = Delivered::default();
    let other = site.start(deliver(&delivered), site.options("other"));
    site.until_acked(5).await;
    let before: String = site
        .client
        .query_one("SELECT jsonb_agg(o ORDER BY id)::text FROM sync_outbox o", &[])
        .await
        .unwrap()
        .get(0);
    gate.add_permits(100);
    eventually(LONG, "the fence", async || zombie.counts().fenced == 5).await.unwrap();
    let after: String = site
        .client
        .query_one("SELECT jsonb_agg(o ORDER BY id)::text FROM sync_outbox o", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(before, after);
    assert_eq!((zombie.counts().done, other.counts().done), (0, 5));
    assert_eq!(other.counts().reclaimed, 5, "a lost lease is an attempt");
    assert_eq!(site.number("SELECT sum(attempt_count) FROM sync_outbox").await, 5);
    zombie.stop().await;
    other.stop().await;
}

async fn a_zombie_cannot_finish_what_another_holds(mode: Mode) {
    let site = Site::new(mode, "zombie_two").await;
    site.add("t", "d", 0..5).await;
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut options = site.options("zombie");
    options.slots = 1;
    let zombie = site.start(held_up(&entered, &gate), options);
    entered.notified().await;
    site.expire().await;
    let (taken, other_gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut options = site.options("other");
    options.slots = 1;
    let other = site.start(held_up(&taken, &other_gate), options);
    taken.notified().await;
    gate.add_permits(100);
    eventually(LONG, "the fence", async || zombie.counts().fenced == 5).await.unwrap();
    assert_eq!(site.held_by("other").await, 5);
    other_gate.add_permits(100);
    site.until_acked(5).await;
    eventually(LONG, "the other one's count", async || other.counts().done == 5).await.unwrap();
    assert_eq!((zombie.counts().done, other.counts().fenced), (0, 0));
    zombie.stop().await;
    other.stop().await;
}

async fn a_slow_handler_keeps_its_rows_by_its_heartbeat(mode: Mode) {
    let site = Site::new(mode, "heartbeat").await;
    site.add("t", "d", 0..3).await;
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut options = site.options("slow");
    options.lease = Duration::from_secs(2);
    let slow = site.start(held_up(&entered, &gate), options);
    entered.notified().await;
    let table = mode.leases();
    let expiry =
        format!("SELECT (extract(epoch FROM max(lease_expires_at)) * 1000)::int8 FROM {table}");
    let first = site.number(&expiry).await;
    let greedy = site.start(deliver(&Delivered::default()), site.options("greedy"));
    // Two renewals later the first lease is long over.
    eventually(LONG, "renewals", async || site.number(&expiry).await > first + 2_000)
        .await
        .unwrap();
    assert_eq!(greedy.counts().claimed, 0);
    gate.add_permits(100);
    site.until_acked(3).await;
    assert_eq!(slow.counts().fenced, 0);
    slow.stop().await;
    greedy.stop().await;
}

async fn a_stop_gives_back_what_is_held(mode: Mode) {
    let site = Site::new(mode, "stop").await;
    site.add("t", "d", 0..30).await;
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let worker = site.start(held_up(&entered, &gate), site.options("stopped"));
    entered.notified().await;
    worker.stop().await;
    let pending = "SELECT count(*) FROM sync_outbox WHERE status = 'pending' AND attempt_count = 0
        AND next_attempt_at <= now()";
    assert_eq!((site.number(pending).await, site.held_by("stopped").await), (30, 0));
}

async fn a_batch_under_way_at_a_stop_is_finished(mode: Mode) {
    let site = Site::new(mode, "finish").await;
    site.add("t", "d", 0..5).await;
    let (entered, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let mut options = site.options("finisher");
    options.stop_grace = LONG;
    let worker = site.start(held_up(&entered, &gate), options);
    entered.notified().await;
    let stopping = tokio::spawn(worker.stop());
    gate.add_permits(1);
    stopping.await.unwrap();
    site.until_acked(5).await;
}

async fn poison_reaches_the_dead_letters_and_its_key_goes_on(mode: Mode) {
    let site = Site::new(mode, "poison").await;
    site.add("t", "d", 0..40).await;
    let delivered = Delivered::default();
    let to = delivered.clone();
    let worker = site.start(
        script(move |batch| {
            let mut outcomes = Vec::new();
            let mut failed = false;
            for item in &batch.items {
                failed |= item.row.seq == 7;
                outcomes.push(match (item.row.seq, failed) {
                    (7, _) => retry(),
                    (_, true) => Outcome::NotTried,
                    (_, false) => Outcome::Done,
                });
            }
            let done = outcomes.iter().filter(|outcome| **outcome == Outcome::Done).count();
            let mut sent = batch;
            sent.items.truncate(done);
            to.add(&sent);
            async move { Verdict::each(outcomes) }
        }),
        site.options("w"),
    );
    site.until_acked(39).await;
    let dead = site.client.query_one("SELECT seq, attempt_count, dlq_reason, last_error_code, failed_at IS NOT NULL FROM sync_outbox WHERE status = 'dlq'", &[]).await.unwrap();
    assert_eq!((dead.get(0), dead.get(1), dead.get(4)), (7i64, 10i32, true));
    assert_eq!((dead.get(2), dead.get(3)), (lease::MAX_ATTEMPTS, "HTTP_422"));
    let order: Vec<i64> = delivered.list().iter().map(|(_, event)| event.seq).collect();
    let wanted: Vec<i64> = (0..40).filter(|n| *n != 7).collect();
    assert_eq!(order, wanted);
    assert_eq!(
        site.number("SELECT sum(attempt_count) FROM sync_outbox").await,
        10,
        "no neighbour paid"
    );
    worker.stop().await;
}

/// A payload that kills its worker: the worker is dropped in mid-batch, as a crash would.
async fn a_row_that_kills_its_worker_is_buried_and_its_neighbours_live(mode: Mode) {
    let site = Site::new(mode, "killer").await;
    for device in 0..10 {
        site.add("t", &format!("d{device}"), 0..10).await;
    }
    site.add("t", "bad", 666..667).await;
    let crashes = AtomicUsize::new(0);
    loop {
        let killed = Arc::new(Notify::new());
        let dead = killed.clone();
        let mut options = site.options("victim");
        (options.batch, options.slots) = (64, 1);
        let worker = site.start(
            script(move |batch| {
                let bad = batch.items.iter().any(|item| item.row.seq == 666);
                let dead = dead.clone();
                async move {
                    if bad {
                        dead.notify_one();
                        std::future::pending::<()>().await;
                    }
                    Verdict::all_done(&batch)
                }
            }),
            options,
        );
        let settled = "SELECT count(*) FROM sync_outbox WHERE status IN ('acked', 'dlq')";
        tokio::select! {
            () = killed.notified() => {
                drop(worker);
                assert!(crashes.fetch_add(1, Ordering::Relaxed) < 20, "it is never buried");
                site.expire().await;
            }
            () = site.until(settled, 101) => break worker.stop().await,
        }
    }
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE status = 'acked'").await, 100);
    let reason: String = site
        .client
        .query_one("SELECT dlq_reason FROM sync_outbox WHERE seq = 666", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(reason, lease::MAX_ATTEMPTS);
    assert_eq!(crashes.load(Ordering::Relaxed), 10, "each crash is one attempt");
}

async fn a_panic_is_an_attempt_and_the_worker_lives(mode: Mode) {
    let site = Site::new(mode, "panic").await;
    site.add("t", "d", 0..3).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let worker = site.start(
        script(move |batch| {
            let call = counted.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(call > 0, "the first one fails on purpose");
                Verdict::all_done(&batch)
            }
        }),
        site.options("w"),
    );
    site.until_acked(3).await;
    assert_eq!(site.number("SELECT max(attempt_count)::int8 FROM sync_outbox").await, 1);
    worker.stop().await;
}

crate::both! {
    a_zombie_changes_nothing_and_is_counted,
    a_zombie_cannot_finish_what_another_holds,
    a_slow_handler_keeps_its_rows_by_its_heartbeat,
    a_stop_gives_back_what_is_held,
    a_batch_under_way_at_a_stop_is_finished,
    poison_reaches_the_dead_letters_and_its_key_goes_on,
    a_row_that_kills_its_worker_is_buried_and_its_neighbours_live,
    a_panic_is_an_attempt_and_the_worker_lives,
}
