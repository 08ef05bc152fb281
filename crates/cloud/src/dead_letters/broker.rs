//! Dead letters that a broker keeps: where they are, and the record of a replay that the cloud does itself.
//!
//! Promises: one replay at a time, over all replicas and commands, by a lock of the database that goes with the process that has it. What is known of a
//! replay is in `operator_audit`, so that every replica says the same of it; one that is `started` and that nobody has the lock for was cut off.

use std::collections::BTreeSet;
use std::sync::Arc;

use bus::letterbox::{BrokerLetterbox, Desk};
use bus::rabbitmq::Topology;
use bus::{DeadLetter, Progress};
use futures_util::future::BoxFuture;
use pg::Turn;
use tokio_postgres::Client;
use uuid::Uuid;

use super::audit::{self, Deed, Outcome};
use super::tenant_of;
use crate::config::Bus;

/// The kind of [`Turn`] that replays have.
pub const REPLAYS: i32 = 0x6264_6c72;

/// The queues or topics of dead letters.
pub fn names(topology: &Topology) -> BTreeSet<String> {
    topology.queues.iter().map(|queue| queue.dead_letter_queue.clone()).collect()
}

/// Where a broker keeps the dead letters; `None` where they are rows of the database.
pub fn letterbox(bus: &Bus, topology: &Topology) -> Option<BrokerLetterbox> {
    match bus {
        Bus::Inline => None,
        Bus::RabbitMq { address, .. } => {
            Some(BrokerLetterbox::rabbitmq(address.clone(), names(topology)))
        }
        #[cfg(feature = "kafka")]
        Bus::Kafka(kafka) => Some(BrokerLetterbox::kafka(kafka.cluster.clone(), names(topology))),
    }
}

/// The same for those who ask over HTTP, by tenant.
pub(crate) fn desk(bus: &Bus, topology: &Topology) -> Option<Desk<Option<Uuid>>> {
    let whose = |letter: &DeadLetter| tenant_of(&letter.message.body);
    letterbox(bus, topology).map(|letterbox| Desk::new(Arc::new(letterbox), whose))
}

/// A replay that has its turn and its record.
#[derive(Debug)]
pub struct Replay(Turn);

impl Replay {
    /// Takes the turn and records that the deed begins; `None` when another replay runs.
    pub async fn begin(
        database: &pg::Options,
        deed: &Deed<'_>,
    ) -> Result<Option<Replay>, pg::Error> {
        let Some(turn) = Turn::take(database, REPLAYS).await? else { return Ok(None) };
        let id = audit::begin(turn.client(), deed).await?;
        Ok(Some(Replay(turn.now_for(id).await?)))
    }

    /// The number of the record.
    pub fn id(&self) -> i64 {
        self.0.deed()
    }

    /// Records how it ended, and gives the turn back.
    async fn end(self, outcome: &Outcome) -> Result<(), pg::Error> {
        audit::finish(self.0.client(), self.id(), outcome).await
    }

    /// Whether the replay of this record still runs, somewhere.
    pub async fn runs(client: &Client, id: i64) -> Result<bool, pg::Error> {
        Turn::is_for(client, REPLAYS, id).await
    }
}

impl bus::letterbox::Record for Replay {
    fn note(&self, progress: Progress) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Err(error) = audit::note(self.0.client(), self.id(), progress).await {
                tracing::warn!(%error, id = self.id(), "how far a replay is could not be recorded");
            }
        })
    }

    fn finish(
        self: Box<Self>,
        progress: Progress,
        failed: Option<String>,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            self.note(progress).await;
            let Progress { matched, changed, .. } = progress;
            let outcome = match failed {
                None => Outcome::Done { matched, changed },
                Some(error) => Outcome::Failed { changed, error },
            };
            let id = self.id();
            if let Err(error) = self.end(&outcome).await {
                tracing::error!(%error, id, "the end of a replay could not be recorded");
            }
        })
    }
}
