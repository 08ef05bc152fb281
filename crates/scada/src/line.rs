//! Nodes and their historian in one process, on the inline bus: SCADA on one machine.
//!
//! Promise: the outbox is the durability. A message is `SENT` after the historian has stored it, so that a crash of either loses nothing. It
//! must not know how either works. It fails as either of them does at its start.

use std::sync::Arc;

use bus::inline;

use crate::historian::{self, DeadLetters, Historian, bindings};
use crate::producer::{self, Producer};

/// Why it cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The historian cannot.
    #[error(transparent)]
    Historian(#[from] historian::Error),
    /// The nodes cannot.
    #[error(transparent)]
    Producer(#[from] producer::Error),
    /// Dead letters have no place.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

/// Running nodes and their historian.
#[derive(Debug)]
pub struct Line {
    /// The nodes.
    pub producer: Producer,
    /// What keeps their events.
    pub historian: Historian,
}

impl Line {
    /// Starts both, the historian first; it waits for its database. Which bus they were configured with does not matter.
    pub async fn start(
        nodes: producer::Config,
        historian: historian::Config,
    ) -> Result<Line, Error> {
        let letters = DeadLetters::new(pg::Pool::new(&historian.database)?);
        let options = inline::Options { batch: historian.batch, ..Default::default() };
        let mut bus = inline::Bus::new(options, Arc::new(letters));
        let consumer = bus.group(historian.group.clone(), bindings());
        let historian = Historian::start_with(historian, vec![Box::new(consumer)]).await?;
        match Producer::start_with(nodes, Arc::new(bus)).await {
            Ok(producer) => Ok(Line { producer, historian }),
            Err(error) => {
                historian.stop().await;
                Err(error.into())
            }
        }
    }

    /// Stops the nodes, and the historian after them.
    pub async fn stop(self) {
        self.producer.stop().await;
        self.historian.stop().await;
    }
}
