//! What tells the cloud of dropped events that had no sequence: an alarm takes the place of a tombstone.
//!
//! Promises: a notice is there if and only if what it tells of is gone, for both are one transaction. No limit takes a notice, and it is
//! never about another notice. Notices do not pile up: one that no forwarder has taken yet becomes one with the next of its reason.
//! docs/spec/retention.md has the payload.

use std::collections::BTreeMap;

use event::id::EventId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;
use tokio_postgres::types::Json;
use uuid::Uuid;

use super::{Error, bytes};
use crate::outbox::NOTICE;

/// The type of a notice.
pub(super) const KIND: &str = "alarm.outbox.dropped";
/// The most events that a notice names; it counts all of them.
const MAX_IDS: usize = 100;
/// The most types that a notice counts apart.
const MAX_TYPES: usize = 50;
/// What the types beyond that are counted under: no type of an event, for those have a dot.
const OTHER: &str = "other";

/// An event without a sequence that went.
#[derive(Debug)]
pub(super) struct Gone {
    pub(super) id: Uuid,
    pub(super) tenant: Uuid,
    pub(super) event_type: String,
    pub(super) at: Timestamp,
}

/// The payload of a notice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Told {
    reason: String,
    count: u64,
    by_type: BTreeMap<String, u64>,
    first_at: Timestamp,
    last_at: Timestamp,
    /// The first of them.
    event_ids: Vec<Uuid>,
    /// How many are counted and not named.
    ids_left_out: u64,
}

impl Told {
    fn new(reason: &str, at: Timestamp) -> Told {
        Told {
            reason: reason.to_owned(),
            count: 0,
            by_type: BTreeMap::new(),
            first_at: at,
            last_at: at,
            event_ids: Vec::new(),
            ids_left_out: 0,
        }
    }

    fn add(&mut self, gone: &Gone) {
        self.count += 1;
        self.add_type(&gone.event_type, 1);
        self.first_at = self.first_at.min(gone.at);
        self.last_at = self.last_at.max(gone.at);
        if self.event_ids.len() < MAX_IDS {
            self.event_ids.push(gone.id);
        } else {
            self.ids_left_out += 1;
        }
    }

    fn add_type(&mut self, event_type: &str, count: u64) {
        let known = self.by_type.contains_key(event_type) || self.by_type.len() < MAX_TYPES;
        let name = if known { event_type } else { OTHER };
        *self.by_type.entry(name.to_owned()).or_default() += count;
    }

    /// Takes over what an earlier notice says; what is older is named first.
    fn follow(&mut self, mut earlier: Told) {
        self.count += earlier.count;
        for (event_type, count) in earlier.by_type {
            self.add_type(&event_type, count);
        }
        self.first_at = self.first_at.min(earlier.first_at);
        self.last_at = self.last_at.max(earlier.last_at);
        earlier.event_ids.append(&mut self.event_ids);
        self.event_ids = earlier.event_ids;
        self.event_ids.truncate(MAX_IDS);
        self.ids_left_out = self.count.saturating_sub(self.event_ids.len() as u64);
    }
}

// A claim writes updated_at, and nobody takes that back: a row where both are the same has never left, so the cloud cannot know it.
const WAITING: &str = "DELETE FROM sync_outbox WHERE id = ANY(ARRAY(
    SELECT id FROM sync_outbox WHERE NOT finished AND priority > 0 AND (-priority) = $1 AND tenant_id = ANY($2)
        AND payload_json->>'reason' = $3 AND status = 'pending' AND updated_at = created_at FOR UPDATE SKIP LOCKED))
RETURNING tenant_id, payload_json::text";

const ADD: &str = "INSERT INTO sync_outbox
    (id, tenant_id, event_type, occurred_at, payload_json, payload_size_bytes, priority)
VALUES ($1, $2, $3, $4, $5, $6, $7)";

/// Tells of these, a notice for each tenant; returns about how many bytes the notices take.
pub(super) async fn tell(
    transaction: &Transaction<'_>,
    gone: &[Gone],
    reason: &str,
) -> Result<u64, Error> {
    let mut notices: BTreeMap<Uuid, Told> = BTreeMap::new();
    for one in gone {
        notices.entry(one.tenant).or_insert_with(|| Told::new(reason, one.at)).add(one);
    }
    if notices.is_empty() {
        return Ok(0);
    }
    let tenants: Vec<Uuid> = notices.keys().copied().collect();
    for row in transaction.query(WAITING, &[&-NOTICE, &tenants, &reason]).await? {
        let (tenant, text): (Uuid, String) = (row.try_get(0)?, row.try_get(1)?);
        // Only this module writes this priority. Should it not be understood, the transaction ends, and nothing has gone.
        let earlier: Told = serde_json::from_str(&text).map_err(|_| Error::Notice(tenant))?;
        if let Some(notice) = notices.get_mut(&tenant) {
            notice.follow(earlier);
        }
    }
    let (now, mut taken) = (Timestamp::now(), 0);
    for (tenant, notice) in &notices {
        let text = serde_json::to_string(notice).map_err(|_| Error::Notice(*tenant))?;
        let payload = serde_json::value::RawValue::from_string(text);
        let payload = payload.map_err(|_| Error::Notice(*tenant))?;
        let size = payload.get().len();
        transaction
            .execute(
                ADD,
                &[
                    &EventId::mint().uuid(),
                    tenant,
                    &KIND,
                    &now,
                    &Json(&*payload),
                    &i32::try_from(size).unwrap_or(i32::MAX),
                    &NOTICE,
                ],
            )
            .await?;
        taken += bytes::outbox_row(size as u64);
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(event_type: &str) -> Gone {
        Gone {
            id: EventId::mint().uuid(),
            tenant: Uuid::nil(),
            event_type: event_type.to_owned(),
            at: Timestamp::now(),
        }
    }

    #[test]
    fn a_notice_counts_all_and_names_and_tells_apart_so_many() {
        let mut told = Told::new("drop_oldest", Timestamp::now());
        for n in 0..150 {
            told.add(&gone(&format!("test.type_{}", n % 75)));
        }
        assert_eq!((told.count, told.event_ids.len(), told.ids_left_out), (150, 100, 50));
        assert_eq!((told.by_type.len(), told.by_type[OTHER]), (MAX_TYPES + 1, 50));
        assert_eq!(told.by_type.values().sum::<u64>(), 150);
        assert!(serde_json::to_string(&told).unwrap().len() < event::MAX_EVENT_BYTES / 2);
    }

    #[test]
    fn what_follows_an_earlier_notice_says_the_sum_of_both() {
        let (mut first, mut second) = (
            Told::new("drop_oldest", Timestamp::now()),
            Told::new("drop_oldest", Timestamp::now()),
        );
        let ids: Vec<Uuid> = (0..130)
            .map(|n| {
                let one = gone(["media.stored", "test.done"][n % 2]);
                if n < 60 {
                    first.add(&one)
                } else {
                    second.add(&one)
                }
                one.id
            })
            .collect();
        let began = first.first_at;
        second.follow(first);
        assert_eq!((second.count, second.ids_left_out), (130, 30));
        assert_eq!(second.event_ids, ids[..MAX_IDS]);
        assert_eq!(
            second.by_type,
            BTreeMap::from([("media.stored".into(), 65), ("test.done".into(), 65)])
        );
        assert_eq!(second.first_at, began);
    }
}
