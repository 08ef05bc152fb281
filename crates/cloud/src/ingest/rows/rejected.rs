//! `ingest_rejected`.

use std::collections::BTreeMap;

use event::id::{EventId, TenantId};
use pg::Transaction;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::bigint;
use crate::ingest::request::BadEvent;
use crate::ingest::write::Error;

/// Rows of one token; beyond it they share one row per code.
const ROWS_PER_TOKEN: i64 = 1_000;

/// Takes note of rejected events. The same one again is counted.
pub(crate) async fn write_rejected(
    transaction: &Transaction<'_>,
    token: Uuid,
    batch_id: &str,
    bad: &[&BadEvent],
) -> Result<(), Error> {
    if bad.is_empty() {
        return Ok(());
    }
    // A bounded look: how many there are beyond the limit does not matter.
    let count = transaction
        .prepare_cached(
            "SELECT count(*) FROM (SELECT FROM ingest_rejected WHERE token_id = $1 LIMIT $2) t",
        )
        .await?;
    let rows: i64 = transaction.query_one(&count, &[&token, &ROWS_PER_TOKEN]).await?.get(0);
    let mut room = ROWS_PER_TOKEN - rows;
    let mut keyed: BTreeMap<[u8; 32], (i64, &BadEvent, bool)> = BTreeMap::new();
    for bad in bad {
        let own = key(token, bad, Some(&bad.body));
        let shared = room <= 0 && !keyed.contains_key(&own);
        let key = if shared { key(token, bad, None) } else { own };
        let entry = keyed.entry(key).or_insert_with(|| {
            room -= 1;
            (0, bad, shared)
        });
        entry.0 += 1;
    }
    let statement = transaction
        .prepare_cached(
            "INSERT INTO ingest_rejected (key, times, token_id, batch_id, tenant_id, event_id,
                 stream, epoch, seq, code, field, detail, body, body_bytes)
             SELECT u.key, u.times, $1, $2, u.tenant_id, u.event_id, u.stream, u.epoch, u.seq,
                    u.code, u.field, u.detail, u.body, u.body_bytes
             FROM unnest($3::bytea[], $4::bigint[], $5::uuid[], $6::uuid[], $7::text[], $8::uuid[],
                 $9::bigint[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bigint[])
                 AS u (key, times, tenant_id, event_id, stream, epoch, seq, code, field, detail,
                       body, body_bytes)
             ON CONFLICT (key) DO UPDATE SET
                 times = ingest_rejected.times + excluded.times, last_at = now()",
        )
        .await?;
    let own = |shared: bool| !shared;
    let each = || keyed.values().map(|(_, bad, shared)| (*bad, own(*shared)));
    let keys: Vec<&[u8]> = keyed.keys().map(<[u8; 32]>::as_slice).collect();
    let times: Vec<i64> = keyed.values().map(|(times, _, _)| *times).collect();
    let tenants: Vec<Option<Uuid>> =
        each().map(|(bad, own)| bad.tenant_id.filter(|_| own).map(TenantId::uuid)).collect();
    let events: Vec<Option<Uuid>> =
        each().map(|(bad, own)| bad.event_id.filter(|_| own).map(EventId::uuid)).collect();
    let places: Vec<_> = each().map(|(bad, own)| bad.place.as_ref().filter(|_| own)).collect();
    let streams: Vec<Option<&str>> = places.iter().map(|p| p.map(|p| p.stream.as_str())).collect();
    let epochs: Vec<Option<Uuid>> = places.iter().map(|p| p.map(|p| p.epoch.uuid())).collect();
    let seqs: Vec<Option<i64>> = places.iter().map(|p| p.map(|p| bigint(p.seq))).collect();
    let codes: Vec<&str> = each().map(|(bad, _)| bad.refusal.code.as_str()).collect();
    let fields: Vec<Option<String>> = each()
        .map(|(bad, own)| bad.refusal.field.as_deref().filter(|_| own).map(printable))
        .collect();
    let details: Vec<String> = each()
        .map(|(bad, own)| match own {
            true => printable(&bad.refusal.message),
            false => "further rejected events of this token".to_owned(),
        })
        .collect();
    let bodies: Vec<&[u8]> =
        each().map(|(bad, own)| if own { bad.body.as_slice() } else { &[] }).collect();
    let sizes: Vec<i64> =
        each().map(|(bad, own)| if own { bigint(bad.body_bytes as u64) } else { 0 }).collect();
    transaction
        .execute(
            &statement,
            &[
                &token, &batch_id, &keys, &times, &tenants, &events, &streams, &epochs, &seqs,
                &codes, &fields, &details, &bodies, &sizes,
            ],
        )
        .await?;
    Ok(())
}

/// Each part's length is in the key, so that no two lists of parts look the same.
fn key(token: Uuid, bad: &BadEvent, body: Option<&[u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [token.as_bytes().as_slice(), bad.refusal.code.as_str().as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    match body {
        Some(body) => {
            hash.update((body.len() as u64).to_be_bytes());
            hash.update(body);
        }
        None => hash.update(b"further"),
    }
    hash.finalize().into()
}

/// A text column takes no U+0000, and a person no control characters.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
