//! Making the topology, and comparing it with what is there.

use std::sync::Arc;

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::FieldTable;
use lapin::{Connection, ErrorKind, ExchangeKind};

use super::address::{Address, words};
use super::answer::answer;
use super::topology::{Topology, WorkQueue};

/// Why the topology could not be made or compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No connection, or it was lost.
    #[error("the broker cannot be reached: {0}")]
    Unreachable(Arc<str>),
    /// The broker refuses one of its parts.
    #[error("{name}: {reason}")]
    Refused {
        /// The exchange or queue.
        name: String,
        /// What the broker says.
        reason: Arc<str>,
    },
}

/// What is wrong with an exchange or a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// It is not there.
    Missing,
    /// It is there, of another type or with other arguments; the broker says which.
    Different(Arc<str>),
}

/// An exchange or queue that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Its name.
    pub name: String,
    /// What is wrong.
    pub trouble: Trouble,
}

/// Makes every exchange, queue and binding. Doing it again changes nothing; what is there with other
/// arguments is an error that names it, and stays as it is.
pub async fn declare(address: &Address, topology: &Topology) -> Result<(), TopologyError> {
    let connection = connect(address).await?;
    for name in topology.exchange_names() {
        exchange(&connection, name, false).await.map_err(|error| refused(name, &error))?;
    }
    for (name, arguments) in topology.queues() {
        queue(&connection, &name, arguments, false)
            .await
            .map_err(|error| refused(&name, &error))?;
    }
    for work in &topology.queues {
        bind(&connection, work).await.map_err(|error| refused(&work.name, &error))?;
    }
    Ok(())
}

/// Compares exchanges and queues with what is there, and changes nothing. Bindings cannot be read
/// over AMQP.
pub async fn check(address: &Address, topology: &Topology) -> Result<Vec<Drift>, TopologyError> {
    let connection = connect(address).await?;
    let mut drifts = Vec::new();
    for name in topology.exchange_names() {
        let found = exchange(&connection, name, true).await;
        let same = match found {
            // It is there, so declaring it makes nothing: the broker compares and answers.
            Ok(()) => exchange(&connection, name, false).await,
            Err(error) => Err(error),
        };
        drifts.extend(drift(name, same)?);
    }
    for (name, arguments) in topology.queues() {
        let found = queue(&connection, &name, FieldTable::default(), true).await;
        let same = match found {
            Ok(()) => queue(&connection, &name, arguments, false).await,
            Err(error) => Err(error),
        };
        drifts.extend(drift(&name, same)?);
    }
    Ok(drifts)
}

async fn connect(address: &Address) -> Result<Connection, TopologyError> {
    address.connect("holdfast topology").await.map_err(TopologyError::Unreachable)
}

async fn bind(connection: &Connection, work: &WorkQueue) -> Result<(), lapin::Error> {
    let bound = async {
        let channel = connection.create_channel().await?;
        for binding in &work.bindings {
            channel
                .queue_bind(
                    work.name.as_str().into(),
                    binding.exchange.as_str().into(),
                    binding.pattern.as_str().into(),
                    QueueBindOptions::default(),
                    FieldTable::default(),
                )
                .await?;
        }
        Ok(())
    };
    answer(|| connection.status().connected(), bound).await
}

/// On a channel of its own, because the broker closes a channel on which it refused something.
async fn exchange(connection: &Connection, name: &str, passive: bool) -> Result<(), lapin::Error> {
    let options = ExchangeDeclareOptions { passive, durable: true, ..Default::default() };
    let declared = async {
        let channel = connection.create_channel().await?;
        let table = FieldTable::default();
        channel.exchange_declare(name.into(), ExchangeKind::Topic, options, table).await
    };
    answer(|| connection.status().connected(), declared).await
}

async fn queue(
    connection: &Connection,
    name: &str,
    arguments: FieldTable,
    passive: bool,
) -> Result<(), lapin::Error> {
    let options = QueueDeclareOptions { passive, durable: true, ..Default::default() };
    let declared = async {
        let channel = connection.create_channel().await?;
        channel.queue_declare(name.into(), options, arguments).await.map(drop)
    };
    answer(|| connection.status().connected(), declared).await
}

fn drift(name: &str, same: Result<(), lapin::Error>) -> Result<Option<Drift>, TopologyError> {
    let Err(error) = same else {
        return Ok(None);
    };
    let trouble = match soft(&error) {
        Some(AMQPSoftError::NOTFOUND) => Trouble::Missing,
        Some(AMQPSoftError::PRECONDITIONFAILED) => Trouble::Different(words(&error)),
        _ => return Err(refused(name, &error)),
    };
    Ok(Some(Drift { name: name.to_owned(), trouble }))
}

fn refused(name: &str, error: &lapin::Error) -> TopologyError {
    match soft(error) {
        Some(_) => TopologyError::Refused { name: name.to_owned(), reason: words(error) },
        None => TopologyError::Unreachable(words(error)),
    }
}

/// The broker's verdict on what was asked, if it is one.
pub(crate) fn soft(error: &lapin::Error) -> Option<AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(soft) => Some(soft.clone()),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}
