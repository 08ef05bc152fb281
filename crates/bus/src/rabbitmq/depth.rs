//! How much waits in queues, and who consumes them, by declaring them passively: that makes nothing and takes nothing.
//!
//! A connection of its own is kept between looks, so that a look costs one small request for each queue. The broker's count leaves out what consumers
//! have in hand and have not acknowledged.

use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

use super::address::{Address, words};
use super::answer::answer;
use super::declare::{TopologyError, soft};
use crate::Depth;

/// Looks at queues again and again.
#[derive(Debug)]
pub struct DepthProbe {
    address: Address,
    queues: Vec<String>,
    connection: Option<Connection>,
}

impl DepthProbe {
    /// For these queues. Nothing is asked yet.
    pub fn new(address: Address, queues: Vec<String>) -> DepthProbe {
        DepthProbe { address, queues, connection: None }
    }

    /// Looks at each queue, in the order given. After an error the next look connects anew.
    pub async fn look(&mut self) -> Result<Vec<Depth>, TopologyError> {
        let known = self.connection.take().filter(|known| known.status().connected());
        let connection = match known {
            Some(connection) => connection,
            None => {
                let made = self.address.connect("holdfast depths").await;
                made.map_err(TopologyError::Unreachable)?
            }
        };
        let mut depths = Vec::with_capacity(self.queues.len());
        for name in &self.queues {
            let looked = async {
                // On a channel of its own, because the broker closes a channel on which it refused something.
                let channel = connection.create_channel().await?;
                let options = QueueDeclareOptions { passive: true, ..Default::default() };
                let table = FieldTable::default();
                let found = channel.queue_declare(name.as_str().into(), options, table).await?;
                channel.close(200, "looked".into()).await?;
                Ok(found)
            };
            let found = answer(|| connection.status().connected(), looked).await;
            let found = found.map_err(|error| match soft(&error) {
                Some(_) => TopologyError::Refused { name: name.clone(), reason: words(&error) },
                None => TopologyError::Unreachable(words(&error)),
            })?;
            depths.push(Depth {
                name: name.clone(),
                waiting: found.message_count().into(),
                consumers: Some(found.consumer_count().into()),
            });
        }
        self.connection = Some(connection);
        Ok(depths)
    }
}
