//! Reading everything once, for a person who sets a site up: each tag with its value, or with why there is none.

use std::time::Duration;

use event::QualityCode;
use jiff::Timestamp;
use serde::Serialize;

use super::modbus::ModbusDevice;
use super::series::Series;
use super::{Connection, Device, Endpoint, Lost, Mapping, Raw, Seen};

/// What a tag was just now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Probed {
    /// The connection's name.
    pub connection: String,
    /// `{plant}.{area}.{unit}.{tag}`.
    pub series: String,
    /// The register or the node that was read.
    pub place: String,
    /// As it was read.
    pub raw: Option<f64>,
    /// Scaled.
    pub value: Option<f64>,
    /// The engineering unit.
    pub unit: String,
    /// As it would be sent.
    pub quality: QualityCode,
    /// The time that the source gave.
    pub source_time: Option<Timestamp>,
    /// Why there is no value.
    pub trouble: Option<String>,
}

/// Reads the devices of a mapping when asked. Connections stay from one reading to the next.
pub struct Probe {
    connections: Vec<(Connection, Probing)>,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("connections", &self.connections.len()).finish()
    }
}

enum Probing {
    Modbus(Open<ModbusDevice>),
    #[cfg(feature = "opcua")]
    OpcUa(Box<Open<super::opcua::OpcUaDevice>>),
}

/// A device, and whether it was connected to.
struct Open<D> {
    device: D,
    is_connected: bool,
}

impl<D: Device> Open<D> {
    fn new(device: D) -> Open<D> {
        Open { device, is_connected: false }
    }

    async fn read(&mut self) -> Result<Vec<Seen>, Lost> {
        let read = async {
            if !self.is_connected {
                self.device.connect().await?;
            }
            self.device.read().await
        };
        let read = read.await;
        self.is_connected = read.is_ok();
        if read.is_err() {
            self.device.disconnect().await;
        }
        read
    }
}

impl Probe {
    /// Connects to nothing yet.
    pub fn new(mapping: Mapping) -> Probe {
        let probing = |connection: Connection| {
            let timeout: Duration = connection.timeout;
            let probing = match connection.endpoint.clone() {
                Endpoint::Modbus(modbus) => {
                    Some(Probing::Modbus(Open::new(ModbusDevice::new(modbus, timeout))))
                }
                #[cfg(feature = "opcua")]
                Endpoint::OpcUa(server) => {
                    // A person wants to see what is there now, and not what changes.
                    let server = super::OpcUa { subscribe: None, ..server };
                    let device = super::opcua::OpcUaDevice::new(server, timeout, connection.every);
                    Some(Probing::OpcUa(Box::new(Open::new(device))))
                }
                // The mapping was refused.
                #[cfg(not(feature = "opcua"))]
                Endpoint::OpcUa(_) => None,
            };
            probing.map(|probing| (connection, probing))
        };
        Probe { connections: mapping.connections.into_iter().filter_map(probing).collect() }
    }

    /// Reads every device, one after the other, each request within its connection's timeout.
    pub async fn read(&mut self) -> Vec<Probed> {
        let mut all = Vec::new();
        for (connection, probing) in &mut self.connections {
            let read = match probing {
                Probing::Modbus(open) => open.read().await,
                #[cfg(feature = "opcua")]
                Probing::OpcUa(open) => open.read().await,
            };
            let seen =
                read.unwrap_or_else(|Lost(trouble)| Seen::lost(connection.points.len(), &trouble));
            all.extend(seen.into_iter().filter_map(|one| probed(connection, one.tag, one.raw)));
        }
        all
    }

    /// Ends the connections.
    pub async fn close(mut self) {
        for (_, probing) in &mut self.connections {
            match probing {
                Probing::Modbus(open) => open.device.disconnect().await,
                #[cfg(feature = "opcua")]
                Probing::OpcUa(open) => open.device.disconnect().await,
            }
        }
    }
}

fn probed(connection: &Connection, index: usize, raw: Raw) -> Option<Probed> {
    let point = connection.points.get(index)?;
    let reading =
        Series::new(point.clone(), connection.max_silence).reading(&raw, Timestamp::now());
    let (raw, source_time, trouble) = match raw {
        Raw::Number { number, source_time, .. } => (Some(number), source_time, None),
        Raw::Unreadable(trouble) => (None, None, Some(trouble)),
    };
    let value = (reading.quality != QualityCode::Bad).then_some(reading.value);
    Some(Probed {
        connection: connection.name.clone(),
        series: reading.partition_key(),
        place: connection.place(index),
        raw: raw.filter(|raw| raw.is_finite()),
        value,
        unit: point.unit.clone(),
        quality: reading.quality,
        source_time,
        trouble: trouble.or_else(|| value.is_none().then(|| "is not a finite number".to_owned())),
    })
}
