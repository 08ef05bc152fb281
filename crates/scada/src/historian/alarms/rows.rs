//! `alarm_state` and `alarm_journal`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use event::scada::Severity;
use jiff::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::state::{Action, Alarm, Input, Rules, State, Step};
use crate::generate::ALARMS;
use crate::historian::record::Record;

/// Which alarm.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The site.
    pub plant: String,
    /// The area of the site.
    pub area: String,
    /// The work unit of the area.
    pub unit: String,
    /// The alarm.
    pub tag: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.plant, self.area, self.unit, self.tag)
    }
}

/// An alarm as it is stored.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) alarm: Alarm,
    pub(super) value: f64,
    pub(super) unit: String,
}

/// A line of the journal, and whose doing it is.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) key: Key,
    pub(super) severity: Severity,
    pub(super) step: Step,
    pub(super) actor: (&'static str, String),
    pub(super) acting_for: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) event_id: Option<Uuid>,
}

/// What operators are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) key: Key,
    pub(crate) severity: Severity,
    pub(crate) action: Action,
}

pub(super) const COLUMNS: &str = "plant, area, unit_name, tag, state, severity, value, unit, last_raised_at, \
    last_cleared_at, shelved_until, raises, chattering_until, occurrences";

const ENSURE: &str =
    "INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit)
    SELECT plant, area, unit_name, tag, 'normal', severity, 0, ''
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
        AS n (plant, area, unit_name, tag, severity)
    ON CONFLICT DO NOTHING";

const SAVE: &str = "UPDATE alarm_state AS s SET
        state = n.state, value = n.value, unit = n.unit, last_raised_at = n.raised,
        last_cleared_at = n.cleared, shelved_until = n.shelved,
        shelved_at = CASE WHEN n.shelved IS NOT NULL THEN s.shelved_at END,
        shelved_by = CASE WHEN n.shelved IS NOT NULL THEN s.shelved_by END,
        shelf_reason = CASE WHEN n.shelved IS NOT NULL THEN s.shelf_reason END,
        acknowledged_at = CASE WHEN n.state <> 'active_unacknowledged' THEN s.acknowledged_at END,
        acknowledged_by = CASE WHEN n.state <> 'active_unacknowledged' THEN s.acknowledged_by END,
        raises = n.raises::timestamptz[], chattering_until = n.chattering,
        occurrences = n.occurrences, updated_at = now()
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[],
            $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[],
            $12::timestamptz[], $13::int8[])
        AS n (plant, area, unit_name, tag, state, value, unit, raised, cleared, shelved, raises,
            chattering, occurrences)
    WHERE (s.plant, s.area, s.unit_name, s.tag) = (n.plant, n.area, n.unit_name, n.tag)";

/// Who listens is told with the same statement, once.
const JOURNAL: &str = "WITH added AS (
        INSERT INTO alarm_journal (plant, area, unit_name, tag, at, action, from_state, to_state,
            actor_kind, actor, reason, event_id, severity, late, announced, acting_for)
        SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[],
            $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::uuid[], $13::text[],
            $14::bool[], $15::bool[], $16::text[])
        RETURNING announced)
    SELECT pg_notify('alarm_announced', '') WHERE EXISTS (SELECT FROM added WHERE announced)";

/// Follows new messages of category alarm. Returns what operators are told once this is committed.
pub(crate) async fn follow(
    transaction: &pg::Transaction<'_>,
    records: &[&Record],
    now: Timestamp,
    rules: &Rules,
) -> Result<Vec<Told>, pg::Error> {
    let mut by_key: BTreeMap<Key, Vec<&Record>> = BTreeMap::new();
    for record in records {
        let asset = &record.envelope.asset;
        let key = Key {
            plant: asset.plant.to_string(),
            area: asset.area.to_string(),
            unit: asset.unit.to_string(),
            tag: record.envelope.tag.to_string(),
        };
        by_key.entry(key).or_default().push(record);
    }
    if by_key.is_empty() {
        return Ok(Vec::new());
    }
    let mut stored = lock(transaction, &by_key).await?;
    let mut lines = Vec::new();
    for one in &mut stored {
        let Some(records) = by_key.get_mut(&one.key) else { continue };
        records.sort_by_key(|record| (record.envelope.timestamp, record.envelope.event_id.uuid()));
        for record in records {
            let envelope = &record.envelope;
            let latest = one.alarm.last_raised_at.is_none_or(|at| at <= envelope.timestamp);
            if latest {
                (one.value, one.unit) = (envelope.value, envelope.unit.clone());
            }
            let input = match is_good(record) {
                true => Input::Clear(envelope.timestamp),
                false => Input::Raise(envelope.timestamp),
            };
            // Messages are never refused.
            for step in one.alarm.apply(input, now, rules).unwrap_or_default() {
                lines.push(Line {
                    key: one.key.clone(),
                    severity: one.alarm.severity,
                    step,
                    actor: ("process", format!("node {}", envelope.node_id)),
                    acting_for: None,
                    reason: None,
                    event_id: Some(envelope.event_id.uuid()),
                });
            }
        }
    }
    // Neither waits for the other's answer.
    let ((), told) = tokio::try_join!(save(transaction, &stored), journal(transaction, &lines))?;
    Ok(told)
}

/// Whether a documented alarm's value is on the good side of its threshold.
fn is_good(record: &Record) -> bool {
    let envelope = &record.envelope;
    let kind = ALARMS.iter().find(|kind| kind.tag == envelope.tag.as_str());
    kind.is_some_and(|kind| match kind.below {
        true => envelope.value > kind.threshold,
        false => envelope.value < kind.threshold,
    })
}

/// Locks all rows, and makes those that are not there; most are there. In the order of their keys.
async fn lock(
    transaction: &pg::Transaction<'_>,
    by_key: &BTreeMap<Key, Vec<&Record>>,
) -> Result<Vec<Stored>, pg::Error> {
    let query = format!(
        "SELECT {COLUMNS} FROM alarm_state WHERE (plant, area, unit_name, tag) IN
             (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]))
         ORDER BY plant, area, unit_name, tag FOR UPDATE"
    );
    let find = async || {
        let [plants, areas, units, tags] = columns(by_key.keys());
        let statement = transaction.prepare_cached(&query).await?;
        let rows = transaction.query(&statement, &[&plants, &areas, &units, &tags]).await?;
        Ok::<Vec<Stored>, pg::Error>(rows.iter().map(stored).collect())
    };
    let mut found = find().await?;
    let known: BTreeSet<&Key> = found.iter().map(|one| &one.key).collect();
    let missing = || by_key.iter().filter(|(key, _)| !known.contains(key));
    let wanted = missing().count();
    if wanted == 0 {
        return Ok(found);
    }
    let [plants, areas, units, tags] = columns(missing().map(|(key, _)| key));
    let severities: Vec<&str> = missing()
        .map(|(_, records)| records.first().map_or("MEDIUM", |one| one.severity().as_str()))
        .collect();
    let ensure = transaction.prepare_cached(&format!("{ENSURE} RETURNING {COLUMNS}")).await?;
    let made = transaction.query(&ensure, &[&plants, &areas, &units, &tags, &severities]).await?;
    if made.len() < wanted {
        // Another replica made some of them just now.
        return find().await;
    }
    found.extend(made.iter().map(stored));
    found.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(found)
}

/// Keys as columns, for a statement.
fn columns<'a>(keys: impl Iterator<Item = &'a Key>) -> [Vec<&'a str>; 4] {
    let mut columns = [const { Vec::new() }; 4];
    for key in keys {
        let [plants, areas, units, tags] = &mut columns;
        plants.push(key.plant.as_str());
        areas.push(&key.area);
        units.push(&key.unit);
        tags.push(&key.tag);
    }
    columns
}

/// Reads a row of [`COLUMNS`].
pub(super) fn stored(row: &Row) -> Stored {
    Stored {
        key: Key { plant: row.get(0), area: row.get(1), unit: row.get(2), tag: row.get(3) },
        alarm: Alarm {
            // The table CHECKs both words.
            state: State::from_stored(row.get(4)).unwrap_or(State::Normal),
            severity: row.get::<_, &str>(5).parse().unwrap_or(Severity::Medium),
            last_raised_at: row.get(8),
            last_cleared_at: row.get(9),
            shelved_until: row.get(10),
            raises: row.get(11),
            chattering_until: row.get(12),
            occurrences: row.get::<_, i64>(13).unsigned_abs(),
        },
        value: row.get(6),
        unit: row.get(7),
    }
}

/// Writes what has changed of alarms that are locked.
pub(super) async fn save(
    transaction: &pg::Transaction<'_>,
    all: &[Stored],
) -> Result<(), pg::Error> {
    let text = |get: fn(&Stored) -> &str| all.iter().map(get).collect::<Vec<_>>();
    let time = |get: fn(&Alarm) -> Option<Timestamp>| {
        all.iter().map(|one| get(&one.alarm)).collect::<Vec<_>>()
    };
    let values: Vec<f64> = all.iter().map(|one| one.value).collect();
    let raises: Vec<String> = all
        .iter()
        .map(|one| {
            let times: Vec<String> =
                one.alarm.raises.iter().map(|at| format!("\"{at}\"")).collect();
            format!("{{{}}}", times.join(","))
        })
        .collect();
    let occurrences: Vec<i64> =
        all.iter().map(|one| i64::try_from(one.alarm.occurrences).unwrap_or(i64::MAX)).collect();
    let statement = transaction.prepare_cached(SAVE).await?;
    transaction
        .execute(
            &statement,
            &[
                &text(|one| &one.key.plant),
                &text(|one| &one.key.area),
                &text(|one| &one.key.unit),
                &text(|one| &one.key.tag),
                &text(|one| one.alarm.state.as_str()),
                &values,
                &text(|one| &one.unit),
                &time(|alarm| alarm.last_raised_at),
                &time(|alarm| alarm.last_cleared_at),
                &time(|alarm| alarm.shelved_until),
                &raises,
                &time(|alarm| alarm.chattering_until),
                &occurrences,
            ],
        )
        .await?;
    Ok(())
}

/// Writes the journal. Returns what operators are told.
pub(super) async fn journal(
    transaction: &pg::Transaction<'_>,
    lines: &[Line],
) -> Result<Vec<Told>, pg::Error> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let text = |get: fn(&Line) -> &str| lines.iter().map(get).collect::<Vec<_>>();
    let times: Vec<Timestamp> = lines.iter().map(|line| line.step.at).collect();
    let reasons: Vec<Option<&str>> = lines.iter().map(|line| line.reason.as_deref()).collect();
    let persons: Vec<Option<&str>> = lines.iter().map(|line| line.acting_for.as_deref()).collect();
    let ids: Vec<Option<Uuid>> = lines.iter().map(|line| line.event_id).collect();
    let late: Vec<bool> = lines.iter().map(|line| line.step.late).collect();
    let announced: Vec<bool> = lines.iter().map(|line| line.step.announced).collect();
    let statement = transaction.prepare_cached(JOURNAL).await?;
    transaction
        .execute(
            &statement,
            &[
                &text(|line| &line.key.plant),
                &text(|line| &line.key.area),
                &text(|line| &line.key.unit),
                &text(|line| &line.key.tag),
                &times,
                &text(|line| line.step.action.as_str()),
                &text(|line| line.step.from.as_str()),
                &text(|line| line.step.to.as_str()),
                &text(|line| line.actor.0),
                &text(|line| &line.actor.1),
                &reasons,
                &ids,
                &text(|line| line.severity.as_str()),
                &late,
                &announced,
                &persons,
            ],
        )
        .await?;
    let told = lines
        .iter()
        .filter(|line| line.step.announced)
        .map(|line| Told {
            key: line.key.clone(),
            severity: line.severity,
            action: line.step.action,
        })
        .collect();
    Ok(told)
}
