//! What operators do with alarms.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::rows::{COLUMNS, Key, Line, journal, save, stored};
use super::state::{Input, NotAllowed, Rules};
use crate::historian::audit::{self, Actor};

/// The longest reason that is kept, in characters.
const MAX_REASON_CHARS: usize = 500;

/// What an operator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Has seen it.
    Acknowledge,
    /// Does not want to hear of it for a time.
    Shelve {
        /// For how long.
        during: Duration,
        /// Why; 1 to 500 characters, none of them a control character.
        reason: String,
    },
    /// Wants to hear of it again.
    Unshelve,
}

impl Deed {
    fn word(&self) -> &'static str {
        match self {
            Deed::Acknowledge => "alarm.acknowledge",
            Deed::Shelve { .. } => "alarm.shelve",
            Deed::Unshelve => "alarm.unshelve",
        }
    }
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum NotDone {
    /// The state does not allow it.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// There is no such alarm.
    #[error("there is no alarm {0}")]
    Unknown(Key),
    /// The reason is missing or cannot be kept.
    #[error("a reason has 1 to 500 characters, none of them a control character")]
    Reason,
    /// The database.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

impl From<tokio_postgres::Error> for NotDone {
    fn from(error: tokio_postgres::Error) -> NotDone {
        NotDone::Database(error.into())
    }
}

/// Does it: the state, the journal and the audit in one transaction.
pub async fn act(
    client: &mut pg::Client,
    actor: &Actor,
    key: &Key,
    deed: &Deed,
    now: Timestamp,
    rules: &Rules,
) -> Result<(), NotDone> {
    let (input, reason) = match deed {
        Deed::Acknowledge => (Input::Acknowledge, None),
        Deed::Unshelve => (Input::Unshelve, None),
        Deed::Shelve { during, reason } => {
            let sound = (1..=MAX_REASON_CHARS).contains(&reason.chars().count())
                && !reason.chars().any(char::is_control);
            if !sound {
                return Err(NotDone::Reason);
            }
            let until = now.checked_add(*during).unwrap_or(Timestamp::MAX);
            (Input::Shelve(until), Some(reason.clone()))
        }
    };
    let transaction = client.transaction().await?;
    let place: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
        [&key.plant, &key.area, &key.unit, &key.tag];
    let query = format!(
        "SELECT {COLUMNS} FROM alarm_state
         WHERE plant = $1 AND area = $2 AND unit_name = $3 AND tag = $4 FOR UPDATE"
    );
    let row = transaction.query_opt(&query, &place).await?;
    let mut one = stored(&row.ok_or_else(|| NotDone::Unknown(key.clone()))?);
    let steps = one.alarm.apply(input, now, rules)?;
    let ((kind, name), person) = (actor.columns(), actor.person());
    let [plant, area, unit, tag] = place;
    match input {
        // The four columns of a shelf are set together, which the table CHECKs.
        Input::Shelve(until) => {
            transaction
                .execute(
                    "UPDATE alarm_state SET shelved_until = $5, shelved_at = $6, shelved_by = $7,
                         shelf_reason = $8, updated_at = now()
                     WHERE plant = $1 AND area = $2 AND unit_name = $3 AND tag = $4",
                    &[plant, area, unit, tag, &until, &now, &person, &reason],
                )
                .await?;
        }
        Input::Acknowledge => {
            save(&transaction, &[one.clone()]).await?;
            transaction
                .execute(
                    "UPDATE alarm_state SET acknowledged_at = $5, acknowledged_by = $6
                     WHERE plant = $1 AND area = $2 AND unit_name = $3 AND tag = $4",
                    &[plant, area, unit, tag, &now, &person],
                )
                .await?;
        }
        _ => save(&transaction, &[one.clone()]).await?,
    }
    let lines: Vec<Line> = steps
        .into_iter()
        .map(|step| Line {
            key: key.clone(),
            severity: one.alarm.severity,
            step,
            actor: (kind, name.clone()),
            acting_for: actor.acting_for().map(str::to_owned),
            reason: reason.clone(),
            event_id: None,
        })
        .collect();
    journal(&transaction, &lines).await?;
    let parameters = json!({"alarm": key.to_string(), "reason": reason});
    audit::record(&*transaction, actor, deed.word(), parameters, 1).await?;
    transaction.commit().await?;
    Ok(())
}
