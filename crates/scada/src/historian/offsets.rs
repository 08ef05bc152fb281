//! `bus_offsets`: where each partition goes on, written in the transaction that stores what came before.
//!
//! Only messages that have a position (Kafka's) are counted. An offset never goes down here; a replay sets it back with [`set_back`], while
//! no replica of the group runs.

use std::collections::BTreeMap;

use bus::Position;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tokio_postgres::{Client, Transaction};

use super::audit::{self, Actor};
use super::presence;

/// A topic and one of its partitions.
pub type Partition = (String, i32);

const STORE: &str = "INSERT INTO bus_offsets AS o (consumer_group, topic, partition, next_offset)
    SELECT $1, topic, partition, next FROM unnest($2::text[], $3::int4[], $4::int8[])
        AS n (topic, partition, next) ORDER BY topic, partition
    ON CONFLICT (consumer_group, topic, partition)
        DO UPDATE SET next_offset = excluded.next_offset, updated_at = now()
        WHERE o.next_offset < excluded.next_offset";

const MARK: &str = "INSERT INTO bus_marks AS m (consumer_group, topic, partition, day, first_offset)
    SELECT $1, topic, partition, day, first FROM unnest($2::text[], $3::int4[], $4::date[], $5::int8[])
        AS n (topic, partition, day, first) ORDER BY topic, partition, day
    ON CONFLICT (consumer_group, topic, partition, day)
        DO UPDATE SET first_offset = excluded.first_offset
        WHERE m.first_offset > excluded.first_offset";

/// What a batch moves on: for each partition the offset after its last message, and the first offset of each day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Moved {
    next: BTreeMap<Partition, i64>,
    days: BTreeMap<(Partition, Date), i64>,
}

impl Moved {
    /// Notes a message; `at` is the event's time, where it is one.
    pub(super) fn note(&mut self, position: &Position, at: Option<Timestamp>) {
        let partition = (position.topic.to_string(), position.partition);
        if let Some(at) = at {
            let day = at.to_zoned(TimeZone::UTC).date();
            let first = self.days.entry((partition.clone(), day)).or_insert(position.offset);
            *first = (*first).min(position.offset);
        }
        let next = self.next.entry(partition).or_default();
        *next = (*next).max(position.offset.saturating_add(1));
    }

    /// Writes them.
    pub(super) async fn store(
        &self,
        client: &impl pg::GenericClient,
        group: &str,
    ) -> Result<(), pg::Error> {
        if !self.next.is_empty() {
            let statement = client.prepare_cached(STORE).await?;
            let topics: Vec<&str> = self.next.keys().map(|(topic, _)| topic.as_str()).collect();
            let partitions: Vec<i32> = self.next.keys().map(|(_, partition)| *partition).collect();
            let next: Vec<i64> = self.next.values().copied().collect();
            client.execute(&statement, &[&group, &topics, &partitions, &next]).await?;
        }
        if !self.days.is_empty() {
            let statement = client.prepare_cached(MARK).await?;
            let keys = || self.days.keys();
            let topics: Vec<&str> = keys().map(|((topic, _), _)| topic.as_str()).collect();
            let partitions: Vec<i32> = keys().map(|((_, partition), _)| *partition).collect();
            let days: Vec<Date> = keys().map(|(_, day)| *day).collect();
            let firsts: Vec<i64> = self.days.values().copied().collect();
            client.execute(&statement, &[&group, &topics, &partitions, &days, &firsts]).await?;
        }
        Ok(())
    }
}

/// Where these partitions go on, for a consumer that was given them. One that is not there starts at the earliest.
pub async fn load(
    pool: &pg::Pool,
    group: &str,
    partitions: &[Partition],
) -> Result<BTreeMap<Partition, i64>, pg::Error> {
    let client = pool.get().await?;
    let topics: Vec<&str> = partitions.iter().map(|(topic, _)| topic.as_str()).collect();
    let numbers: Vec<i32> = partitions.iter().map(|(_, partition)| *partition).collect();
    let rows = client
        .query(
            "SELECT o.topic, o.partition, o.next_offset FROM bus_offsets o
             JOIN unnest($2::text[], $3::int4[]) AS w (topic, partition) USING (topic, partition)
             WHERE o.consumer_group = $1",
            &[&group, &topics, &numbers],
        )
        .await?;
    Ok(rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect())
}

/// How far back a replay goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// To this offset, in every partition that is beyond it.
    Offset(i64),
    /// To the first offset of this time's day.
    Time(Timestamp),
}

/// A partition that was set back.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SetBack {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Where it would have gone on.
    pub from_offset: i64,
    /// Where it goes on now.
    pub to_offset: i64,
}

/// Why offsets were not set back.
#[derive(Debug, thiserror::Error)]
pub enum SetBackError {
    /// Replicas of the group run.
    #[error(
        "{} of the group {group} run, and the next batch of one would undo this: stop them all, run this again, then start them.\n  {}",
        running.len(), running.join("\n  ")
    )]
    Running {
        /// The group.
        group: String,
        /// Who they are, in words.
        running: Vec<String>,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

/// Sets the stored offsets of a topic back, so that what follows is delivered again when the historian is started. Refused while a
/// replica of the group runs. Audited, in the same transaction.
pub async fn set_back(
    client: &mut Client,
    actor: &Actor,
    group: &str,
    topic: &str,
    back: Back,
) -> Result<Vec<SetBack>, SetBackError> {
    let transaction = client.transaction().await.map_err(pg::Error::from)?;
    if let Err(running) = presence::none_running(&transaction, group).await? {
        return Err(SetBackError::Running { group: group.to_owned(), running });
    }
    let done = lower(&transaction, actor, group, topic, back).await?;
    transaction.commit().await.map_err(pg::Error::from)?;
    Ok(done)
}

async fn lower(
    transaction: &Transaction<'_>,
    actor: &Actor,
    group: &str,
    topic: &str,
    back: Back,
) -> Result<Vec<SetBack>, pg::Error> {
    let (offset, day) = match back {
        Back::Offset(offset) => (Some(offset), None),
        Back::Time(at) => (None, Some(at.to_zoned(TimeZone::UTC).date())),
    };
    let rows = transaction
        .query(
            "UPDATE bus_offsets AS o SET next_offset = w.target, updated_at = now()
             FROM (SELECT b.partition, b.next_offset AS before, coalesce($3::int8,
                       (SELECT min(first_offset) FROM bus_marks m
                        WHERE m.consumer_group = $1 AND m.topic = $2 AND m.partition = b.partition
                          AND m.day >= $4::date)) AS target
                   FROM bus_offsets b WHERE b.consumer_group = $1 AND b.topic = $2 FOR UPDATE) AS w
             WHERE o.consumer_group = $1 AND o.topic = $2 AND o.partition = w.partition
               AND w.target < w.before
             RETURNING o.topic, o.partition, w.before, o.next_offset",
            &[&group, &topic, &offset, &day],
        )
        .await?;
    let mut done: Vec<SetBack> = rows
        .iter()
        .map(|row| SetBack {
            topic: row.get(0),
            partition: row.get(1),
            from_offset: row.get(2),
            to_offset: row.get(3),
        })
        .collect();
    done.sort_by_key(|one| one.partition);
    let parameters = serde_json::json!({
        "group": group, "topic": topic, "offset": offset, "day": day.map(|day| day.to_string()),
    });
    let changed = i64::try_from(done.len()).unwrap_or(i64::MAX);
    audit::record(transaction, actor, "historian.replay", parameters, changed).await?;
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(partition: i32, offset: i64) -> Position {
        Position { topic: "scada.l2.events".into(), partition, offset }
    }

    #[test]
    fn a_batch_moves_each_partition_past_its_last_message() {
        let day = |text: &str| Some(format!("{text}T10:00:00Z").parse().unwrap());
        let mut moved = Moved::default();
        moved.note(&at(0, 7), day("2026-02-02"));
        moved.note(&at(0, 8), None);
        moved.note(&at(0, 9), day("2026-02-01"));
        moved.note(&at(3, 0), day("2026-02-01"));
        assert_eq!(moved.next.values().copied().collect::<Vec<_>>(), [10, 1]);
        assert_eq!(moved.days.values().copied().collect::<Vec<_>>(), [9, 7, 0]);
    }
}
