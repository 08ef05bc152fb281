//! From the spool to the outbox: in order, and acked after the commit. Several cycles share a transaction, so that a node that has much to
//! catch up is faster than its loop.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use pg::About;
use spool::{Gap, GapReason, Item, Reader};
use tokio_util::sync::CancellationToken;

use super::record;
use super::store::Store;
use crate::analytics::Reduced;

const RETRY_BASE: Duration = Duration::from_millis(200);
const RETRY_CAP: Duration = Duration::from_secs(10);
/// An answer that takes longer does not come any more: the link is dead and nobody has said so.
const WRITE_WITHIN: Duration = Duration::from_secs(20);
/// What is read ahead of the outbox.
const READ_RECORDS: usize = 64;
const READ_BYTES: usize = 4 << 20;
/// A transaction takes no further cycle that would bring it above this many events.
const WRITE_EVENTS: usize = 1_000;
/// The reason of a gap that is a record of ours which cannot be read.
const UNREADABLE: &str = "unreadable";

const DECLARE: &str =
    "INSERT INTO spool_gaps (epoch, from_seq, to_seq, cycles, reason, first_at, last_at)
VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";

/// Drains until told to stop.
pub(super) async fn run(store: &Store, stop: &CancellationToken) {
    tokio::select! {
        () = store.has_schema() => {}
        () = stop.cancelled() => return,
    }
    let mut reader = store.spool.reader(store.spool.acked() + 1);
    loop {
        let (back, read) = read(reader).await;
        let Some(back) = back else { return };
        reader = back;
        let items = match read {
            Ok(items) => items,
            Err(error) => {
                tracing::error!(%error, "the spool cannot be read");
                Vec::new()
            }
        };
        let found = !items.is_empty();
        for part in parts(items) {
            if !settle(store, &part, stop).await {
                return;
            }
        }
        if !found {
            tokio::select! {
                () = store.added.notified() => {}
                // An error of the disk is met again after a pause.
                () = tokio::time::sleep(RETRY_CAP) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

/// Reads ahead, on a thread that may wait for the disk. No reader comes back when the process is ending.
async fn read(mut reader: Reader) -> (Option<Reader>, Result<Vec<Item>, spool::Error>) {
    let reading = tokio::task::spawn_blocking(move || {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < READ_RECORDS && bytes < READ_BYTES {
            match reader.next() {
                Ok(Some(item)) => {
                    if let Item::Record { bytes: record, .. } = &item {
                        bytes += record.len();
                    }
                    items.push(item);
                }
                Ok(None) => break,
                // What was read before it is settled first; then the error comes again.
                Err(_) if !items.is_empty() => break,
                Err(error) => return (reader, Err(error)),
            }
        }
        (reader, Ok(items))
    });
    match reading.await {
        Ok((reader, items)) => (Some(reader), items),
        Err(_) => (None, Err(spool::Error::Closed)),
    }
}

/// What is settled at once.
enum Part {
    Cycles { last: u64, events: usize, cycles: Vec<Reduced> },
    Gap(Gap, &'static str),
}

fn parts(items: Vec<Item>) -> Vec<Part> {
    let mut parts = Vec::new();
    for item in items {
        let (seq, bytes) = match item {
            Item::Record { seq, bytes, .. } => (seq, bytes),
            Item::Gap(gap) => {
                parts.push(Part::Gap(gap, gap.reason.as_str()));
                continue;
            }
        };
        let Ok(cycle) = record::decode(&bytes) else {
            let reason = GapReason::Corrupt;
            let (from_seq, to_seq) = (seq, seq);
            let gap = Gap { from_seq, to_seq, first_at_ms: None, last_at_ms: None, reason };
            parts.push(Part::Gap(gap, UNREADABLE));
            continue;
        };
        match parts.last_mut() {
            Some(Part::Cycles { last, events, cycles })
                if *events + cycle.envelopes.len() <= WRITE_EVENTS =>
            {
                *last = seq;
                *events += cycle.envelopes.len();
                cycles.push(cycle);
            }
            _ => parts.push(Part::Cycles {
                last: seq,
                events: cycle.envelopes.len(),
                cycles: vec![cycle],
            }),
        }
    }
    parts
}

/// Writes one part, however long the database is away, and acks it. False: told to stop before.
async fn settle(store: &Store, part: &Part, stop: &CancellationToken) -> bool {
    let mut pause = RETRY_BASE;
    loop {
        let writing = async {
            match part {
                Part::Cycles { cycles, .. } => write(store, cycles).await,
                Part::Gap(gap, reason) => declare(store, gap, reason).await,
            }
        };
        let written = tokio::time::timeout(WRITE_WITHIN, writing).await;
        let Err(error) = written.unwrap_or(Err(pg::Error::Timeout(WRITE_WITHIN))) else { break };
        if store.database(false) || error.about() == About::Us {
            tracing::warn!(%error, ?pause, "the spool waits for the outbox");
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return false,
        }
        pause = (pause * 2).min(RETRY_CAP);
    }
    if store.database(true) {
        tracing::info!("the outbox can be written; the spool drains");
    }
    let last = match part {
        Part::Cycles { last, .. } => *last,
        Part::Gap(gap, _) => gap.to_seq,
    };
    if let Err(error) = store.spool.ack(last) {
        tracing::error!(%error, "the spool's cursor did not move");
    }
    store.vitals.drained(store.spool.acked() < store.spool.synced(), Instant::now());
    store.metrics.spool(&store.spool.stats());
    true
}

async fn write(store: &Store, cycles: &[Reduced]) -> Result<(), pg::Error> {
    let started = Instant::now();
    let borrowed: Vec<&Reduced> = cycles.iter().collect();
    match store.outbox.write_all_reduced(&borrowed).await {
        Ok(_) => store.metrics.wrote(started.elapsed()),
        // One event that the tables refuse must not hold back the rest for ever.
        Err(error) if error.about() == About::Data => {
            for event in cycles.iter().flat_map(|cycle| &cycle.envelopes) {
                match store.outbox.write_cycle(std::slice::from_ref(event)).await {
                    Err(error) if error.about() == About::Data => {
                        let (id, tag) = (event.event_id, event.tag.as_str());
                        tracing::error!(%error, %id, tag, "an event was refused and is left out");
                        store.metrics.refused(1);
                    }
                    written => drop(written?),
                }
            }
            for cycle in cycles {
                let counts = cycle.counts.clone();
                let alone = Reduced { envelopes: Vec::new(), counts };
                store.outbox.write_reduced(&alone).await?;
            }
        }
        Err(error) => return Err(error),
    }
    store.metrics.drained(u64::try_from(cycles.len()).unwrap_or_default());
    Ok(())
}

async fn declare(store: &Store, gap: &Gap, reason: &str) -> Result<(), pg::Error> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let time = |ms: Option<i64>| ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let client = store.pool.get().await?;
    let new = client
        .execute(
            DECLARE,
            &[
                &store.spool.epoch(),
                &number(gap.from_seq),
                &number(gap.to_seq),
                &number(gap.count()),
                &reason,
                &time(gap.first_at_ms),
                &time(gap.last_at_ms),
            ],
        )
        .await?;
    if new > 0 {
        let (from, to) = (gap.from_seq, gap.to_seq);
        tracing::error!(from, to, reason, "cycles were given up by the spool");
        store.metrics.gap(gap.count());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Node;

    #[test]
    fn cycles_share_a_transaction_up_to_its_limit_and_gaps_stay_in_their_place() {
        let mut node = Node::new("PLANT01".parse().unwrap(), 3, 5).unwrap();
        let mut item = |seq| {
            let envelopes = node.cycle(Timestamp::UNIX_EPOCH).unwrap();
            let cycle = Reduced { envelopes, ..Reduced::default() };
            Item::Record { seq, written_at_ms: 0, class: 0, bytes: record::encode(&cycle).1 }
        };
        let mut items: Vec<Item> = (1..=400).map(&mut item).collect();
        let bytes = b"no cycle".to_vec();
        items.push(Item::Record { seq: 401, written_at_ms: 0, class: 0, bytes });
        items.push(item(402));
        let parts = parts(items);
        let mut order = Vec::new();
        for part in &parts {
            match part {
                Part::Cycles { last, events, cycles } => {
                    assert!(*events <= WRITE_EVENTS);
                    assert_eq!(
                        *events,
                        cycles.iter().map(|cycle| cycle.envelopes.len()).sum::<usize>()
                    );
                    order.push(*last);
                }
                Part::Gap(gap, reason) => {
                    assert_eq!((gap.from_seq, gap.to_seq, *reason), (401, 401, UNREADABLE));
                    order.push(401);
                }
            }
        }
        assert_eq!(order[order.len() - 3..], [400, 401, 402]);
        assert!(order.is_sorted() && (4..=6).contains(&order.len()), "{order:?}");
    }
}
