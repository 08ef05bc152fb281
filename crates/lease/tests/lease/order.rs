//! Order per key, and one holder per row, with many workers.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lease::{Outcome, Verdict, Worker};
use uuid::Uuid;

use crate::outbox::Event;
use crate::site::{Delivered, Mode, Site, retry, script};

/// The first delivery of each row comes after those of all earlier rows of its device.
pub(crate) fn assert_in_order(delivered: &[(Uuid, Event)]) {
    let mut seen = HashSet::new();
    let mut last: HashMap<(Uuid, Option<Uuid>), i64> = HashMap::new();
    for (id, event) in delivered {
        if seen.insert(*id) {
            let before = last.insert((event.tenant, event.device), event.seq);
            assert!(before.is_none_or(|before| before < event.seq), "{before:?} before {event:?}");
        }
    }
}

/// Numbers that depend on the seed alone, whichever task asks.
#[derive(Clone)]
struct Dice(Arc<AtomicU64>);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let mut x = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides
    }
}

async fn many_workers_hold_no_row_together_and_deliver_it_once(mode: Mode) {
    let site = Site::new(mode, "many").await;
    for device in 0..13 {
        site.add("t", &format!("d{device}"), 0..70).await;
    }
    site.add_with("t", None, 0, 0..200).await;
    let holding: Arc<Mutex<HashSet<lease::RowId>>> = Arc::default();
    let delivered = Delivered::default();
    let workers: Vec<Worker> = (0..5)
        .map(|n| {
            let (holding, to) = (holding.clone(), delivered.clone());
            let handler = script(move |batch| {
                let (holding, to) = (holding.clone(), to.clone());
                async move {
                    let ids: Vec<lease::RowId> =
                        batch.items.iter().map(|item| item.id.clone()).collect();
                    for id in &ids {
                        assert!(holding.lock().unwrap().insert(id.clone()), "held by two");
                    }
                    tokio::task::yield_now().await;
                    to.add(&batch);
                    holding.lock().unwrap().retain(|id| !ids.contains(id));
                    Verdict::all_done(&batch)
                }
            });
            site.start(handler, site.options(&format!("w{n}")))
        })
        .collect();
    site.until_acked(13 * 70 + 200).await;
    assert_eq!(delivered.len(), 13 * 70 + 200, "each row once");
    let ordered: Vec<_> =
        delivered.list().into_iter().filter(|(_, event)| event.device.is_some()).collect();
    assert_in_order(&ordered);
    assert_eq!(site.number("SELECT sum(attempt_count) FROM sync_outbox").await, 0);
    for worker in workers {
        assert_eq!(worker.counts().fenced, 0);
        worker.stop().await;
    }
}

fn chaotic(dice: &Dice, delivered: &Delivered) -> crate::site::Script {
    let (dice, to) = (dice.clone(), delivered.clone());
    script(move |mut batch| {
        let (dice, to) = (dice.clone(), to.clone());
        async move {
            for _ in 0..dice.roll(3) {
                tokio::task::yield_now().await;
            }
            if dice.roll(12) == 0 {
                return Verdict::down("reset", None);
            }
            let mut failed: HashSet<Option<Uuid>> = HashSet::new();
            let mut outcomes = Vec::new();
            for item in &batch.items {
                outcomes.push(if failed.contains(&item.row.device) {
                    Outcome::NotTried
                } else if dice.roll(15) == 0 {
                    failed.insert(item.row.device);
                    retry()
                } else {
                    Outcome::Done
                });
            }
            let mut kept = outcomes.iter();
            batch.items.retain(|_| kept.next() == Some(&Outcome::Done));
            to.add(&batch);
            Verdict::each(outcomes)
        }
    })
}

async fn order_is_kept_through_retries_outages_and_crashes(mode: Mode) {
    let dice = Dice(Arc::new(AtomicU64::new(testkit::seed().unwrap())));
    let site = Site::new(mode, "order").await;
    let (devices, rows) = (7, 80);
    let delivered = Delivered::default();
    let start = |n: usize| {
        let mut options = site.options(&format!("w{n}"));
        options.max_attempts = 1000;
        // A claim that was on its way when its worker crashed may come in after all; nobody will
        // finish it.
        options.lease = std::time::Duration::from_secs(1);
        options.batch = 15;
        site.start(chaotic(&dice, &delivered), options)
    };
    let mut workers: Vec<Worker> = (0..4).map(&start).collect();
    for part in 0..4 {
        for device in 0..devices {
            site.add("t", &format!("d{device}"), part * rows / 4..(part + 1) * rows / 4).await;
        }
        // One crashes with whatever it holds; then its leases run out, and those of the living too.
        let n = usize::try_from(dice.roll(4)).unwrap();
        drop(std::mem::replace(&mut workers[n], start(10 + n)));
        site.expire().await;
    }
    site.until_acked(devices * rows).await;
    assert_in_order(&delivered.list());
    let distinct: HashSet<Uuid> = delivered.list().iter().map(|(id, _)| *id).collect();
    assert_eq!(distinct.len(), usize::try_from(devices * rows).unwrap());
    for worker in workers {
        worker.stop().await;
    }
}

/// Its index entries and row versions stay while the snapshot is open, and every claim walks among
/// them.
async fn an_old_snapshot_in_another_session_changes_nothing(mode: Mode) {
    let site = Site::new(mode, "old_snapshot").await;
    for device in 0..10 {
        site.add("t", &format!("d{device}"), 0..200).await;
    }
    let old = pg::connect(&site.address).await.unwrap();
    let waiting = "SELECT count(*) FROM sync_outbox WHERE status = 'pending'";
    old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    let before: i64 = old.query_one(waiting, &[]).await.unwrap().get(0);
    let delivered = Delivered::default();
    let workers: Vec<Worker> = (0..2)
        .map(|n| site.start(crate::site::deliver(&delivered), site.options(&format!("w{n}"))))
        .collect();
    site.until_acked(2_000).await;
    assert_in_order(&delivered.list());
    assert_eq!(delivered.len(), 2_000, "each row once");
    let still: i64 = old.query_one(waiting, &[]).await.unwrap().get(0);
    assert_eq!((before, still), (2_000, 2_000), "the snapshot was open all the while");
    for worker in workers {
        assert_eq!((worker.counts().fenced, worker.counts().reclaimed), (0, 0));
        worker.stop().await;
    }
}

async fn a_row_that_is_not_due_keeps_those_behind_it(mode: Mode) {
    let site = Site::new(mode, "bar").await;
    site.add("t", "d", 0..3).await;
    let due = |when: &str| {
        format!(
            "UPDATE sync_outbox SET next_attempt_at = {when} WHERE id =
             (SELECT id FROM sync_outbox ORDER BY occurred_at LIMIT 1 OFFSET 1)"
        )
    };
    site.client.batch_execute(&due("now() + interval '1 h'")).await.unwrap();
    let delivered = Delivered::default();
    let worker = site.start(crate::site::deliver(&delivered), site.options("w"));
    site.until_acked(1).await;
    assert_eq!(delivered.len(), 1, "nothing from behind it");
    site.client.batch_execute(&due("now()")).await.unwrap();
    worker.nudge();
    site.until_acked(3).await;
    assert_in_order(&delivered.list());
    worker.stop().await;
}

crate::both! {
    a_row_that_is_not_due_keeps_those_behind_it,
    many_workers_hold_no_row_together_and_deliver_it_once,
    order_is_kept_through_retries_outages_and_crashes,
    an_old_snapshot_in_another_session_changes_nothing,
}
