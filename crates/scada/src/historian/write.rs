//! One batch, one transaction: rows, alarm states, the rows for a second historian, offsets.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use event::scada::{Category, Severity};
use jiff::Timestamp;
use uuid::Uuid;

use super::alarms::state::Rules;
use super::alarms::{self, Told};
use super::config::Config;
use super::federation::{self, Plants};
use super::metrics::Metrics;
use super::offsets::Moved;
use super::record::Record;
use super::rollup;
use super::rows::Inserter;

/// What a batch came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stored {
    /// The events that were not there before.
    pub new: HashSet<Uuid>,
    /// How many were.
    pub duplicates: u64,
}

/// How a batch came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Some of it may be stored already.
    pub(super) redelivered: bool,
    /// It came from another historian and is not sent on.
    pub(super) federated: bool,
}

/// Stores batches.
#[derive(Debug)]
pub struct Writer {
    pool: pg::Pool,
    group: String,
    rules: Rules,
    federate: Option<Plants>,
    inserter: Inserter,
    metrics: Arc<Metrics>,
}

impl Writer {
    /// A writer for a consumer group. `federate` says what a second historian is to get. The pool's sessions have the settings [`super::SESSION`].
    pub fn new(
        pool: pg::Pool,
        group: impl Into<String>,
        rules: Rules,
        federate: Option<Plants>,
        metrics: Arc<Metrics>,
    ) -> Writer {
        let inserter = Inserter::default();
        Writer { pool, group: group.into(), rules, federate, inserter, metrics }
    }

    /// The writer of a historian with this configuration.
    pub(super) fn of(config: &Config, pool: pg::Pool, metrics: Arc<Metrics>) -> Writer {
        let plants = config.federation.as_ref().map(|second| second.plants.clone());
        Writer::new(pool, config.group.clone(), config.rules, plants, metrics)
    }

    #[cfg(feature = "kafka")]
    pub(super) fn pool(&self) -> &pg::Pool {
        &self.pool
    }

    /// Stores events, all or none; those that are there already stay as they are.
    pub async fn store(&self, records: &[Record]) -> Result<Stored, pg::Error> {
        self.store_moving(records, &Moved::default(), Way::default()).await
    }

    /// The same, and the offsets that go with them.
    pub(super) async fn store_moving(
        &self,
        records: &[Record],
        moved: &Moved,
        way: Way,
    ) -> Result<Stored, pg::Error> {
        let started = Instant::now();
        let mut client = self.pool.get().await?;
        let mut transaction = client.transaction().await?;
        let new = match self.inserter.copy(&transaction, records, way.redelivered).await? {
            Some(new) => new,
            None => {
                // Refused or not even tried: nothing of it is there.
                transaction.rollback().await?;
                transaction = client.transaction().await?;
                self.inserter.insert(&transaction, records).await?
            }
        };
        let of_alarms: Vec<&Record> =
            new.iter().copied().filter(|record| record.is(Category::Alarm)).collect();
        // What is noted goes out with the first statement about alarms, and is not waited for on its own.
        let (told, ()) = tokio::try_join!(
            alarms::follow(&transaction, &of_alarms, Timestamp::now(), &self.rules),
            rollup::note(&transaction, &new),
        )?;
        if let Some(plants) = self.federate.as_ref().filter(|_| !way.federated) {
            federation::put(&transaction, &new, plants).await?;
        }
        moved.store(&transaction, &self.group).await?;
        transaction.commit().await?;
        self.metrics.stored(&new, records.len() - new.len(), started.elapsed());
        announce(&self.metrics, &told);
        let duplicates = u64::try_from(records.len() - new.len()).unwrap_or(u64::MAX);
        let new = new.iter().map(|record| record.envelope.event_id.uuid()).collect();
        Ok(Stored { new, duplicates })
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}

/// Says what operators are to hear. The journal and the NOTIFY are what programs go by.
pub(super) fn announce(metrics: &Metrics, told: &[Told]) {
    for Told { key, severity, action } in told {
        metrics.announced(*severity);
        let (alarm, action) = (key.to_string(), action.as_str());
        if *severity >= Severity::High {
            tracing::warn!(alarm, severity = severity.as_str(), action, "alarm");
        } else {
            tracing::info!(alarm, severity = severity.as_str(), action, "alarm");
        }
    }
}

#[cfg(test)]
mod tests {
    use bus::{Message, Position};

    use super::*;
    use crate::historian::offsets::load;

    #[tokio::test]
    async fn offsets_move_with_the_rows_and_with_nothing_else() {
        let migrate =
            |url: String| async move { crate::migrate_historian(&pg::Options::new(url)).await };
        let database = testkit::database("hist_moves", "historian_unit", migrate).await.unwrap();
        let pool = pg::Pool::new(&pg::Options::new(database.url())).unwrap();
        let metrics = Arc::new(Metrics::new());
        let writer = Writer::new(pool.clone(), "g", Rules::default(), None, metrics);
        let mut node = crate::generate::Node::new("PLANT01".parse().unwrap(), 1, 1).unwrap();
        let made = node.cycle(Timestamp::now()).unwrap();
        let read = |event: &event::scada::Envelope| {
            Record::read(&Message::json("t", "k", "id", event.to_json())).unwrap()
        };
        let records: Vec<Record> = made.iter().map(read).collect();
        let moves = |offset| {
            let mut moved = Moved::default();
            moved.note(&Position { topic: "t".into(), partition: 4, offset }, None);
            moved
        };
        let partition = ("t".to_owned(), 4);
        let stored = async || {
            load(&pool, "g", std::slice::from_ref(&partition)).await.unwrap().remove(&partition)
        };
        // Refused by the database: neither the rows nor the offset.
        let mut body: serde_json::Value = serde_json::from_str(&made[1].to_json()).unwrap();
        body["note"] = "\0".into();
        let mut newer = Message::json("t", "k", "id", body.to_string());
        newer.headers.insert("schema_version".to_owned(), "1.1.0".to_owned());
        let mut bad = records.clone();
        bad[1] = Record::read(&newer).unwrap();
        let refused = writer.store_moving(&bad, &moves(9), Way::default()).await.unwrap_err();
        assert_eq!((refused.about(), stored().await), (pg::About::Data, None));
        let done = writer.store_moving(&records, &moves(9), Way::default()).await.unwrap();
        assert_eq!((done.new.len(), stored().await), (records.len(), Some(10)));
        // Delivered again to a replica that is behind: nothing goes back.
        let again = writer.store_moving(&records, &moves(5), Way::default()).await.unwrap();
        assert_eq!((again.new.len(), stored().await), (0, Some(10)));
    }
}
