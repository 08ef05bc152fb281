//! Reads what Postgres has of a stream, and checks it against the samplers' receipts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use event::id::EventId;
use event::ledger::RangeSet;
use tokio_postgres::Client;
use uuid::Uuid;

use super::sampler::Receipts;

/// What the edge has of one stream.
pub(crate) struct Account {
    received: RangeSet,
    lost: RangeSet,
    /// What the tombstones name.
    declared: RangeSet,
    acked: u64,
    /// How often each event id is stored.
    stored: BTreeMap<Uuid, usize>,
}

pub(crate) async fn read(client: &Client, stream: &str) -> Account {
    let row = client
        .query_one(
            "SELECT acked, received, lost, epoch FROM ledger_frontier WHERE stream = $1",
            &[&stream],
        )
        .await
        .expect("one epoch: no card was re-imaged");
    let mut stored = BTreeMap::new();
    for row in
        client.query("SELECT id FROM telemetry_raw WHERE stream = $1", &[&stream]).await.unwrap()
    {
        *stored.entry(row.get(0)).or_default() += 1;
    }
    let mut declared = RangeSet::new();
    let tombstones = "SELECT from_seq, to_seq FROM ledger_tombstone WHERE stream = $1";
    for row in client.query(tombstones, &[&stream]).await.unwrap() {
        declared.insert(
            u64::try_from(row.get::<_, i64>(0)).unwrap(),
            u64::try_from(row.get::<_, i64>(1)).unwrap(),
        );
    }
    Account {
        declared,
        acked: u64::try_from(row.get::<_, i64>(0)).unwrap(),
        received: RangeSet::from_flat(&row.get::<_, Vec<i64>>(1)).unwrap(),
        lost: RangeSet::from_flat(&row.get::<_, Vec<i64>>(2)).unwrap(),
        stored,
    }
}

impl Account {
    pub(crate) fn check(&self, receipts: &Receipts, small_disk: bool) {
        let head = receipts.values().max().copied().unwrap_or(0);
        assert!(head > 0, "nothing was produced");
        assert!(self.acked >= head, "acked {} is behind the last receipt {head}", self.acked);
        assert_eq!(
            self.received.count() + self.lost.count(),
            self.acked,
            "received and lost add up, and are disjoint"
        );
        assert_eq!(
            self.lost.is_empty(),
            !small_disk,
            "something is lost where a disk was full, and only there: {:?}",
            self.lost
        );

        assert_eq!(
            self.lost.intersection(&self.declared),
            self.lost,
            "a tombstone names whatever is lost"
        );

        for (id, times) in &self.stored {
            assert_eq!(*times, 1, "{id} is stored {times} times");
        }
        for (id, seq) in receipts {
            let stored = self.stored.contains_key(&id.uuid());
            assert!(
                stored || self.lost.contains(*seq),
                "{id} (seq {seq}) is neither stored nor declared lost"
            );
        }
        // A reading whose receipt was lost is sent again until there is one, so nothing else can be there.
        let known: BTreeSet<Uuid> = receipts.keys().map(|id: &EventId| id.uuid()).collect();
        for id in self.stored.keys() {
            assert!(known.contains(id), "{id} is stored and was never produced");
        }
    }
}

/// What must hold over all streams: the outbox has exactly what the store has, nothing was refused, nobody is suspected.
pub(crate) async fn check_whole(client: &Client) {
    let number = async |sql: &str| client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    let unmatched = "SELECT count(*) FROM telemetry_raw t
                     FULL JOIN (SELECT * FROM sync_outbox WHERE event_type NOT LIKE 'sync.batch.%') o ON o.id = t.id AND o.tenant_id = t.tenant_id
                     WHERE t.id IS NULL OR o.id IS NULL";
    assert_eq!(number(unmatched).await, 0, "the outbox has exactly the stored events");
    assert_eq!(number("SELECT count(*) FROM ingress_quarantine").await, 0, "quarantined");
    assert_eq!(
        number("SELECT count(*) FROM nodes WHERE flagged_at IS NOT NULL").await,
        0,
        "flagged"
    );
    let blocks = number("SELECT coalesce(sum(count), 0)::bigint FROM ledger_block").await;
    let received =
        number("SELECT coalesce(sum(received_count), 0)::bigint FROM ledger_frontier").await;
    assert_eq!(blocks, received, "the digests cover what was received");
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, lost) = (self.stored.len(), self.lost.count());
        write!(
            f,
            "acked {}, stored {stored}, lost {lost} in {} gaps",
            self.acked,
            self.lost.ranges().len()
        )
    }
}
