//! Where a cycle goes: to the outbox, or to the spool while that is behind.
//!
//! Invariant: a cycle goes to the outbox only while everything in the spool is acked, so that what was made first is written first. There
//! is one caller of [`Store::keep`], which waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spool::Spool;
use tokio::sync::{Notify, oneshot, watch};

use super::metrics::Metrics;
use super::record;
use super::vitals::Vitals;
use crate::analytics::Reduced;
use crate::outbox::Outbox;

/// Where a cycle went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum To {
    Outbox,
    Spool,
    /// Neither took it.
    Lost,
}

impl To {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            To::Outbox => "outbox",
            To::Spool => "spool",
            To::Lost => "lost",
        }
    }
}

/// A node's outbox with its spool before it.
pub(super) struct Store {
    pub(super) pool: pg::Pool,
    pub(super) outbox: Outbox,
    pub(super) spool: Spool,
    pub(super) metrics: Arc<Metrics>,
    pub(super) vitals: Arc<Vitals>,
    /// Said when the spool was added to.
    pub(super) added: Notify,
    /// Whether the schema is up to date.
    schema: watch::Sender<bool>,
    write_within: Duration,
}

impl Store {
    pub(super) fn new(
        pool: pg::Pool,
        spool: Spool,
        write_within: Duration,
        metrics: Arc<Metrics>,
        vitals: Arc<Vitals>,
    ) -> Store {
        Store {
            outbox: Outbox::new(pool.clone()),
            pool,
            spool,
            metrics,
            vitals,
            added: Notify::new(),
            schema: watch::Sender::new(false),
            write_within,
        }
    }

    /// The tables are there.
    pub(super) fn migrated(&self) {
        self.database(true);
        self.schema.send_replace(true);
    }

    /// Whether the tables are there.
    pub(super) fn is_migrated(&self) -> bool {
        *self.schema.borrow()
    }

    /// Waits until the tables are there.
    pub(super) async fn has_schema(&self) {
        // The sender lives as long as this does.
        let _ = self.schema.subscribe().wait_for(|there| *there).await;
    }

    /// Whether cycles must go behind others.
    pub(super) fn is_behind(&self) -> bool {
        !self.is_migrated() || self.spool.acked() < self.spool.synced()
    }

    /// Keeps a cycle: it is durable when this returns, unless it is lost.
    pub(super) async fn keep(&self, cycle: &Reduced) -> To {
        if cycle.is_empty() {
            return To::Outbox;
        }
        let to = if !self.is_behind() && self.write(cycle).await {
            To::Outbox
        } else {
            self.append(cycle).await
        };
        self.metrics.cycle(to);
        to
    }

    async fn write(&self, cycle: &Reduced) -> bool {
        let started = Instant::now();
        let written =
            tokio::time::timeout(self.write_within, self.outbox.write_reduced(cycle)).await;
        let why = match written {
            Ok(Ok(_)) => {
                self.metrics.wrote(started.elapsed());
                self.database(true);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "Postgres took too long".to_owned(),
        };
        if self.database(false) {
            tracing::warn!(why, "the outbox cannot be written; cycles go to the spool");
        }
        false
    }

    async fn append(&self, cycle: &Reduced) -> To {
        let (tell, told) = oneshot::channel();
        let done: spool::Done = Box::new(move |result| {
            // The receiver waits below.
            let _ = tell.send(result);
        });
        let appended = match self.spool.try_submit(vec![record::encode(cycle)], done) {
            Ok(()) => told.await.unwrap_or(Err(spool::Error::Closed)),
            Err(error) => Err(error),
        };
        self.metrics.spool(&self.spool.stats());
        match appended {
            Ok(_) => {
                self.vitals.spooled(Instant::now());
                self.added.notify_one();
                To::Spool
            }
            Err(error) => {
                let events = cycle.envelopes.len();
                tracing::error!(%error, events, "a cycle is lost: neither outbox nor spool took it");
                To::Lost
            }
        }
    }

    /// Notes whether Postgres takes writes. Returns whether that is new.
    pub(super) fn database(&self, up: bool) -> bool {
        self.metrics.database(up);
        self.vitals.database(up, Instant::now())
    }
}
