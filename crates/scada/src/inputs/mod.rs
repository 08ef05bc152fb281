//! Real inputs: Modbus over TCP and OPC UA, by a mapping of registers and nodes to tags. docs/spec/scada-inputs.md is the contract.
//!
//! Entry points: [`Mapping::load`] reads the file, [`start`] reads the devices until it is stopped, [`Probe`] reads them once for a
//! person who sets a site up.
//!
//! Promises: a tag that cannot be read is `BAD` and not silent; a device that comes back is found again; what a dead band leaves out
//! is counted. Memory is bounded: when nobody takes the cycles, reading waits.
//!
//! It must not know outbox nor bus. It fails only for a mapping that cannot work; devices may come and go.

mod connection;
mod counts;
mod mapping;
mod modbus;
#[cfg(feature = "opcua")]
mod opcua;
mod probe;
mod series;

use std::time::Duration;

use event::scada::Envelope;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use mapping::{
    Connection, Endpoint, Framing, Mapping, Modbus, OpcUa, Point, Register, Security, Table,
    WordOrder, WordType,
};
pub use probe::{Probe, Probed};

use crate::analytics::Counts;

/// The most cycles that wait to be taken, over all connections.
const MAX_WAITING_CYCLES: usize = 64;

/// What one connection read in one cycle.
#[derive(Debug, Clone, Default)]
pub struct Cycle {
    /// What is to be sent.
    pub envelopes: Vec<Envelope>,
    /// Readings that the dead bands left out; [`crate::analytics::Reducer::apply_counted`] takes them.
    pub left_out: Counts,
}

/// Devices that are being read.
#[derive(Debug)]
pub struct Inputs {
    cycles: mpsc::Receiver<Cycle>,
    tasks: JoinSet<()>,
}

/// Starts to read every device of the mapping, until `stop`. It counts with the recorder that is the caller's at this moment.
pub fn start(mapping: Mapping, stop: &CancellationToken) -> Inputs {
    let (sender, cycles) = mpsc::channel(MAX_WAITING_CYCLES);
    let mut tasks = JoinSet::new();
    for connection in mapping.connections {
        let counts = counts::InputCounts::new(&connection);
        tasks.spawn(connection::run(connection, counts, sender.clone(), stop.clone()));
    }
    Inputs { cycles, tasks }
}

impl Inputs {
    /// The next cycle of any connection, as soon as one is read. `None` when all of them have stopped and everything was taken. Safe to
    /// drop while it waits.
    pub async fn next(&mut self) -> Option<Cycle> {
        self.cycles.recv().await
    }

    /// The cycles that wait, without waiting for one.
    pub fn waiting(&mut self) -> Vec<Cycle> {
        let waiting = std::iter::from_fn(|| self.cycles.try_recv().ok());
        waiting.take(MAX_WAITING_CYCLES).collect()
    }

    /// Waits for the end of every connection, after a stop. Cycles that were not taken are dropped.
    pub async fn ended(mut self) {
        self.cycles.close();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// What a device said of a tag.
#[derive(Debug, Clone, PartialEq)]
enum Raw {
    /// A number, before scaling.
    Number { number: f64, uncertain: bool, source_time: Option<Timestamp> },
    /// Why there is none.
    Unreadable(String),
}

impl Raw {
    fn number(number: f64) -> Raw {
        Raw::Number { number, uncertain: false, source_time: None }
    }
}

/// What a device said of the tag at this place of the mapping.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    tag: usize,
    raw: Raw,
    /// False for one that a subscription has not told of again: it is as it was.
    is_new: bool,
}

impl Seen {
    /// All tags, in the mapping's order.
    fn all(raws: Vec<Raw>) -> Vec<Seen> {
        let seen = |(tag, raw)| Seen { tag, raw, is_new: true };
        raws.into_iter().enumerate().map(seen).collect()
    }

    /// Every one of `count` tags, for one reason.
    fn lost(count: usize, trouble: &str) -> Vec<Seen> {
        Seen::all(vec![Raw::Unreadable(trouble.to_owned()); count])
    }
}

/// Why a certificate was not made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// One is there, and servers may trust it.
    #[error("{0} is there already, and servers may trust it: delete it, or choose another folder")]
    IsThere(std::path::PathBuf),
    /// This program cannot.
    #[error("this build has no OPC UA: build with the feature opcua")]
    NoOpcUa,
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// Makes the folder that `pki_folder` of an OPC UA input names, with a certificate of our own that signs itself and is valid for
/// `hosts`, and with no server that is trusted.
#[cfg(feature = "opcua")]
pub fn make_certificate(
    folder: &std::path::Path,
    hosts: &[String],
    days: u32,
) -> Result<(), CertificateError> {
    opcua::make(folder, hosts, days)
}

/// Cannot: OPC UA is not in this build.
#[cfg(not(feature = "opcua"))]
pub fn make_certificate(
    _folder: &std::path::Path,
    _hosts: &[String],
    _days: u32,
) -> Result<(), CertificateError> {
    Err(CertificateError::NoOpcUa)
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);

impl Lost {
    fn because(reason: impl std::fmt::Display) -> Lost {
        Lost(reason.to_string())
    }
}

/// A request, within the connection's timeout.
async fn within<T>(
    timeout: Duration,
    what: &str,
    request: impl Future<Output = T>,
) -> Result<T, Lost> {
    let late = |_| Lost(format!("{what}: no answer within {timeout:?}"));
    tokio::time::timeout(timeout, request).await.map_err(late)
}

/// One kind of device. It keeps the connection's timeout itself, request by request. After an error, and when a call is dropped
/// before its end, only `disconnect` follows.
trait Device: Send {
    fn connect(&mut self) -> impl Future<Output = Result<(), Lost>> + Send;

    /// What it says of every tag: once, several times where a subscription has told of several changes, or not at all while its first
    /// values are on their way.
    fn read(&mut self) -> impl Future<Output = Result<Vec<Seen>, Lost>> + Send;

    fn disconnect(&mut self) -> impl Future<Output = ()> + Send;
}
