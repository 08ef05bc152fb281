//! Wake-up by NOTIFY, with polls that never come.

use std::sync::Arc;
use std::time::Duration;

use lease::Verdict;
use testkit::eventually;
use tokio::sync::Semaphore;

use crate::site::{Delivered, LONG, Mode, Site, deliver, script};

const NEVER: Duration = Duration::from_secs(3600);

const LISTENING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND query ILIKE 'listen%'";

async fn no_wake_up_is_lost(mode: Mode) {
    let site = Site::new(mode, "wake").await;
    let mut options = site.options("w");
    (options.poll, options.sweep) = (NEVER, NEVER);
    let delivered = Delivered::default();
    let worker = site.start(deliver(&delivered), options);
    site.until(LISTENING, 1).await;
    // Each row comes at another moment of the loop: while it looks, rests, claims or settles.
    for row in 0..60 {
        site.add("t", &format!("d{}", row % 3), row..row + 1).await;
        if row % 4 == 0 {
            site.until_acked(row + 1).await;
        }
    }
    site.until_acked(60).await;
    worker.stop().await;
}

async fn rows_added_while_the_only_slot_is_busy_are_not_forgotten(mode: Mode) {
    let site = Site::new(mode, "busy").await;
    let gate = Arc::new(Semaphore::new(0));
    let passing = gate.clone();
    let mut options = site.options("w");
    (options.poll, options.sweep, options.slots) = (NEVER, NEVER, 1);
    let worker = site.start(
        script(move |batch| {
            let gate = passing.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Verdict::all_done(&batch)
            }
        }),
        options,
    );
    site.until(LISTENING, 1).await;
    site.add("t", "d", 0..1).await;
    eventually(LONG, "a claim", async || worker.counts().claimed == 1).await.unwrap();
    // The lane that is being worked on, and another.
    site.add("t", "d", 1..2).await;
    site.add("t", "e", 0..1).await;
    gate.add_permits(1000);
    site.until_acked(3).await;
    worker.stop().await;
}

async fn what_was_notified_while_nobody_listened_is_found(mode: Mode) {
    let site = Site::new(mode, "deaf").await;
    let mut options = site.options("w");
    (options.poll, options.sweep) = (NEVER, NEVER);
    let worker = site.start(deliver(&Delivered::default()), options);
    site.until(LISTENING, 1).await;
    let cut = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
        WHERE datname = current_database() AND query ILIKE 'listen%' AND pid <> pg_backend_pid()";
    assert_eq!(site.number(cut).await, 1);
    site.add("t", "d", 0..5).await;
    site.until_acked(5).await;
    worker.stop().await;
}

async fn without_notifications_the_poll_finds_it(mode: Mode) {
    let site = Site::new(mode, "poll").await;
    site.client.batch_execute("DROP TRIGGER sync_outbox_added ON sync_outbox").await.unwrap();
    let worker = site.start(deliver(&Delivered::default()), site.options("w"));
    for row in 0..5 {
        site.add("t", "d", row..row + 1).await;
        site.until_acked(row + 1).await;
    }
    worker.stop().await;
}

/// A row of a transaction that was open for long: its place is behind the mark and its time before
/// the last look. Only the sweep can find it, though its lane is known.
async fn a_row_that_came_too_late_for_every_look_is_swept_up(mode: Mode) {
    let site = Site::new(mode, "late").await;
    site.add("t", "d", 0..10).await;
    site.add("t", "d", 100..101).await;
    let later = "UPDATE sync_outbox SET next_attempt_at = now() + interval '1 h' WHERE seq = 100";
    site.client.batch_execute(later).await.unwrap();
    let worker = site.start(deliver(&Delivered::default()), site.options("w"));
    site.until_acked(10).await;
    let late = "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at,
          payload_json, next_attempt_at)
        SELECT gen_random_uuid(), tenant_id, device_id, 'e', occurred_at, '{}', now() - interval '1 h'
        FROM sync_outbox WHERE seq = 5";
    site.client.batch_execute(late).await.unwrap();
    site.until_acked(11).await;
    worker.stop().await;
}

crate::both! {
    no_wake_up_is_lost,
    rows_added_while_the_only_slot_is_busy_are_not_forgotten,
    what_was_notified_while_nobody_listened_is_found,
    without_notifications_the_poll_finds_it,
    a_row_that_came_too_late_for_every_look_is_swept_up,
}
