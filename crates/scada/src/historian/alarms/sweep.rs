//! What time does to alarms: what is quiet is cleared, what was shelved comes off the shelf, floods begin and end.

use std::time::Duration;

use jiff::Timestamp;

use super::flood::{self, Position};
use super::rows::{COLUMNS, Line, Told, journal, save, stored};
use super::state::{Input, Rules};

/// The most alarms of one transaction.
const STEP: i64 = 500;
/// One replica at a time.
const LOCK: i64 = 0x6869_7374;

const DUE: &str = "WHERE (state IN ('active_unacknowledged', 'active_acknowledged')
        AND last_raised_at <= $1)
    OR (shelved_until IS NOT NULL AND shelved_until <= $2)";

/// Looks at every alarm that is due, and at floods. Returns what operators are told, or `None` when another replica is at it.
pub(crate) async fn sweep(
    client: &mut pg::Client,
    now: Timestamp,
    rules: &Rules,
    position: Position,
) -> Result<Option<Vec<Told>>, pg::Error> {
    let quiet_since = now.checked_sub(rules.quiet).unwrap_or(Timestamp::MIN);
    let mut told = Vec::new();
    loop {
        let transaction = client.transaction().await?;
        let lock = "SELECT pg_try_advisory_xact_lock($1)";
        if !transaction.query_one(lock, &[&LOCK]).await?.get::<_, bool>(0) {
            return Ok(None);
        }
        let query = format!(
            "SELECT {COLUMNS} FROM alarm_state {DUE}
             ORDER BY plant, area, unit_name, tag LIMIT $3 FOR UPDATE"
        );
        let rows = transaction.query(&query, &[&quiet_since, &now, &STEP]).await?;
        let mut all: Vec<_> = rows.iter().map(stored).collect();
        let mut lines = Vec::new();
        for one in &mut all {
            let steps = one.alarm.apply(Input::Look, now, rules).unwrap_or_default();
            lines.extend(steps.into_iter().map(|step| Line {
                key: one.key.clone(),
                severity: one.alarm.severity,
                step,
                actor: ("system", "historian".to_owned()),
                acting_for: None,
                reason: None,
                event_id: None,
            }));
        }
        if !all.is_empty() {
            save(&transaction, &all).await?;
        }
        told.extend(journal(&transaction, &lines).await?);
        let last = rows.len() < usize::try_from(STEP).unwrap_or(usize::MAX);
        if last {
            flood::watch(&transaction, position).await?;
        }
        transaction.commit().await?;
        if last {
            return Ok(Some(told));
        }
        // A long sweep leaves room for others between its steps.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
