//! `ingress_quarantine`.

use std::collections::{BTreeMap, HashMap, HashSet};

use event::id::{Epoch, EventId, NodeId};
use jiff::Timestamp;
use pg::{Error, Transaction};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::bigint;
use crate::ingress::plan::Quarantined;

/// Rows of refused messages per node; beyond it they share one row per reason. Records are not
/// limited: each is the edge's copy.
const MESSAGE_ROWS_PER_NODE: i64 = 1_000;

/// Of these places, those whose record is in quarantine, or was adopted from the cloud without its event.
pub(crate) async fn find_quarantined(
    transaction: &Transaction<'_>,
    places: &[(&NodeId, Epoch, u64)],
) -> Result<HashSet<(NodeId, Epoch, u64)>, Error> {
    if places.is_empty() {
        return Ok(HashSet::new());
    }
    let statement = transaction
        .prepare_cached(
            "SELECT DISTINCT (u.place - 1)::int
             FROM unnest($1::text[], $2::uuid[], $3::bigint[]) WITH ORDINALITY
                 AS u (node_id, epoch, seq, place)
             WHERE EXISTS (SELECT FROM ingress_quarantine q WHERE q.node_id = u.node_id
                           AND q.epoch = u.epoch AND q.seq = u.seq)
                 OR EXISTS (SELECT FROM ledger_tombstone t WHERE t.stream = u.node_id
                            AND t.epoch = u.epoch AND t.reason = 'held_by_cloud'
                            AND u.seq BETWEEN t.from_seq AND t.to_seq)",
        )
        .await?;
    let nodes: Vec<&str> = places.iter().map(|(node, _, _)| node.as_str()).collect();
    let epochs: Vec<Uuid> = places.iter().map(|(_, epoch, _)| epoch.uuid()).collect();
    let seqs: Vec<i64> = places.iter().map(|(_, _, seq)| bigint(*seq)).collect();
    let rows = transaction.query(&statement, &[&nodes, &epochs, &seqs]).await?;
    let found = rows.iter().filter_map(|row| {
        let place = usize::try_from(row.get::<_, i32>(0)).ok()?;
        places.get(place).map(|(node, epoch, seq)| ((*node).clone(), *epoch, *seq))
    });
    Ok(found.collect())
}

/// Writes what was refused. A record that is there already stays as it is; a message is counted
/// again.
pub(crate) async fn write_quarantine(
    transaction: &Transaction<'_>,
    rows: &BTreeMap<[u8; 32], Quarantined<'_>>,
) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let full = full_nodes(transaction, rows).await?;
    let rows = with_overflow(rows, &full);
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ingress_quarantine (key, received_at, last_at, times, source, topic,
                 node_id, tenant_id, epoch, seq, event_id, accounted, reason, detail, body,
                 body_bytes)
             SELECT * FROM unnest($1::bytea[], $2::timestamptz[], $3::timestamptz[], $4::bigint[],
                 $5::text[], $6::text[], $7::text[], $8::uuid[], $9::uuid[], $10::bigint[],
                 $11::uuid[], $12::bool[], $13::text[], $14::text[], $15::bytea[], $16::bigint[])
             ON CONFLICT (key) DO UPDATE SET
                 times = ingress_quarantine.times + excluded.times,
                 last_at = greatest(ingress_quarantine.last_at, excluded.last_at)
             WHERE NOT ingress_quarantine.accounted",
        )
        .await?;
    let each = || rows.values().map(|(_, row)| *row);
    let keys: Vec<&[u8]> = rows.keys().map(<[u8; 32]>::as_slice).collect();
    let received: Vec<Timestamp> = each().map(|row| row.message.received_at).collect();
    let last: Vec<Timestamp> = each().map(|row| row.last_at).collect();
    let times: Vec<i64> = rows.values().map(|(times, _)| *times).collect();
    let sources: Vec<&str> = each().map(|row| row.message.source.as_str()).collect();
    let topics: Vec<&str> = each().map(|row| row.message.topic.as_str()).collect();
    let nodes: Vec<Option<&str>> =
        each().map(|row| row.message.node_id.as_ref().map(NodeId::as_str)).collect();
    let tenants: Vec<Option<Uuid>> =
        each().map(|row| row.message.entry.as_ref().map(|e| e.tenant_id.uuid())).collect();
    let epochs: Vec<Option<Uuid>> =
        each().map(|r| r.place.map(|(epoch, _)| epoch.uuid())).collect();
    let seqs: Vec<Option<i64>> = each().map(|row| row.place.map(|(_, seq)| bigint(seq))).collect();
    let events: Vec<Option<Uuid>> = each().map(|row| row.event_id.map(EventId::uuid)).collect();
    let accounted: Vec<bool> = each().map(|row| row.accounted).collect();
    let reasons: Vec<&str> = each().map(|row| row.refusal.reason.as_str()).collect();
    let details: Vec<String> = each().map(|row| printable(&row.refusal.detail)).collect();
    let bodies: Vec<&[u8]> = each().map(|row| row.body.as_ref()).collect();
    let sizes: Vec<i64> = each().map(|row| bigint(row.body_bytes as u64)).collect();
    transaction
        .execute(
            &statement,
            &[
                &keys, &received, &last, &times, &sources, &topics, &nodes, &tenants, &epochs,
                &seqs, &events, &accounted, &reasons, &details, &bodies, &sizes,
            ],
        )
        .await?;
    Ok(())
}

/// The nodes, or the empty name for none, that have their share of message rows.
async fn full_nodes(
    transaction: &Transaction<'_>,
    rows: &BTreeMap<[u8; 32], Quarantined<'_>>,
) -> Result<HashSet<String>, Error> {
    let mut nodes: Vec<&str> = rows.values().filter(|r| !r.accounted).map(|r| node(r)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        return Ok(HashSet::new());
    }
    let statement = transaction
        .prepare_cached(
            "SELECT coalesce(node_id, '') FROM ingress_quarantine
             WHERE NOT accounted AND coalesce(node_id, '') = ANY($1::text[])
             GROUP BY 1 HAVING count(*) >= $2",
        )
        .await?;
    let rows = transaction.query(&statement, &[&nodes, &MESSAGE_ROWS_PER_NODE]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

type Counted<'a, 'b> = BTreeMap<[u8; 32], (i64, &'a Quarantined<'b>)>;

/// The rows to write, with those that have no place of their own added up under their shared key.
fn with_overflow<'a, 'b>(
    rows: &'a BTreeMap<[u8; 32], Quarantined<'b>>,
    full: &HashSet<String>,
) -> Counted<'a, 'b> {
    let mut counted = Counted::new();
    let mut shared: HashMap<(&str, &str), [u8; 32]> = HashMap::new();
    for (key, row) in rows {
        let key = match !row.accounted && full.contains(node(row)) {
            false => *key,
            true => *shared.entry((node(row), row.refusal.reason.as_str())).or_insert_with(|| {
                let text = format!("overflow/{}/{}", node(row), row.refusal.reason.as_str());
                Sha256::digest(text.as_bytes()).into()
            }),
        };
        counted.entry(key).or_insert((0, row)).0 += row.times;
    }
    counted
}

fn node<'a>(row: &'a Quarantined<'_>) -> &'a str {
    row.message.node_id.as_ref().map_or("", NodeId::as_str)
}

/// A text column takes no U+0000, and a person no control characters.
fn printable(detail: &str) -> String {
    detail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
