//! What is read from where, and what it means.

mod file;
mod form;

use std::path::{Path, PathBuf};
use std::time::Duration;

use event::scada::{Asset, Tag};

use crate::tables::Source;

/// The most connections of a mapping.
pub(super) const MAX_CONNECTIONS: usize = 200;
/// The most tags of a connection.
pub(super) const MAX_TAGS: usize = 2_000;

/// A mapping that can work as far as its values alone can tell.
#[derive(Debug, Clone, PartialEq)]
pub struct Mapping {
    /// The devices.
    pub connections: Vec<Connection>,
}

/// One device, and the tags that are read from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// What people call it.
    pub name: String,
    /// How often it is read.
    pub every: Duration,
    /// For connecting and for each request.
    pub timeout: Duration,
    /// A reading is sent at least this often.
    pub max_silence: Duration,
    /// Where it is, and what is read there.
    pub endpoint: Endpoint,
    /// What that means: one for each register or node of the endpoint, in the same order.
    pub points: Vec<Point>,
}

/// Where a device is, and what is read there.
#[derive(Debug, Clone, PartialEq)]
pub enum Endpoint {
    /// Modbus over TCP.
    Modbus(Modbus),
    /// OPC UA.
    OpcUa(OpcUa),
}

/// A Modbus device that is reached over TCP.
#[derive(Debug, Clone, PartialEq)]
pub struct Modbus {
    /// `host:port`.
    pub address: String,
    /// In which frames.
    pub framing: Framing,
    /// Which device behind that address.
    pub unit_id: u8,
    /// What is read.
    pub registers: Vec<Register>,
}

/// How requests are framed on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Modbus TCP.
    Tcp,
    /// The frames of a serial line, with their checksum: what a plain serial-to-Ethernet converter passes on.
    RtuOverTcp,
}

/// Where a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// In which table.
    pub table: Table,
    /// The first register or the bit, as in the protocol's frames.
    pub first: u16,
    /// What is written there.
    pub word_type: WordType,
    /// Which register is the first of several.
    pub word_order: WordOrder,
}

/// A table of registers or bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Holding registers.
    Holding,
    /// Input registers.
    Input,
    /// Coils: bits that can be written.
    Coil,
    /// Discrete inputs: bits that can only be read.
    Discrete,
}

/// The type of a value in registers; `Bit` is that of coils and discrete inputs, 1 or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of Rust")]
pub enum WordType {
    Bit,
    U16,
    I16,
    U32,
    I32,
    F32,
    F64,
}

impl WordType {
    /// How many registers or bits it takes.
    pub fn words(self) -> u16 {
        match self {
            WordType::Bit | WordType::U16 | WordType::I16 => 1,
            WordType::U32 | WordType::I32 | WordType::F32 => 2,
            WordType::F64 => 4,
        }
    }
}

/// The order of the registers of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordOrder {
    /// The most significant first.
    HighFirst,
    /// The least significant first.
    LowFirst,
}

/// An OPC UA server.
#[derive(Debug, Clone, PartialEq)]
pub struct OpcUa {
    /// `opc.tcp://host:port/…`.
    pub url: String,
    /// Signatures and encryption; none without.
    pub security: Option<Security>,
    /// A user and the file of the password; anonymous without.
    pub user: Option<(String, PathBuf)>,
    /// How often the server looks for changes of the nodes, and tells of them; without it they are read.
    pub subscribe: Option<Duration>,
    /// The ids of the nodes that are read.
    pub nodes: Vec<String>,
}

/// The security policy Basic256Sha256, with our certificate and those that are trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Security {
    /// Whether messages are encrypted as well as signed.
    pub encrypt: bool,
    /// The folder with `own/cert.der`, `private/private.pem`, `trusted/` and `rejected/`.
    pub pki_folder: PathBuf,
}

/// What a value means.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The node it is read by.
    pub node_id: u16,
    /// Where in the plant.
    pub asset: Asset,
    /// The process variable.
    pub tag: Tag,
    /// The engineering unit.
    pub unit: String,
    /// `value = raw · scale + offset`.
    pub scale: f64,
    /// See `scale`.
    pub offset: f64,
    /// The lowest value the sensor can measure.
    pub low: Option<f64>,
    /// The highest one.
    pub high: Option<f64>,
    /// A reading within so much of the last one sent is left out.
    pub dead_band: f64,
}

impl Mapping {
    /// Reads a mapping file; everything that is wrong with it comes back together.
    pub fn load(path: &Path) -> Result<Mapping, settings::Error> {
        file::read(Source::read(path)?)
    }
}

impl Connection {
    /// Where the value of the point at this place is read, for people.
    pub fn place(&self, index: usize) -> String {
        match &self.endpoint {
            Endpoint::Modbus(modbus) => modbus.registers.get(index).map(Register::to_string),
            Endpoint::OpcUa(server) => server.nodes.get(index).cloned(),
        }
        .unwrap_or_default()
    }
}

impl std::fmt::Display for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = match self.table {
            Table::Holding => "holding",
            Table::Input => "input",
            Table::Coil => "coil",
            Table::Discrete => "discrete",
        };
        write!(f, "{table} {}", self.first)?;
        match self.word_type.words() {
            1 => Ok(()),
            words => write!(f, "-{}", u32::from(self.first) + u32::from(words) - 1),
        }
    }
}
