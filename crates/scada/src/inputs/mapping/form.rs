//! The form of the mapping file: which keys there are, and of what kind. What they mean is checked in `file`.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) node: Spanned<NodeEntry>,
    #[serde(default)]
    pub(super) modbus: Vec<Spanned<ModbusEntry>>,
    #[serde(default)]
    pub(super) opcua: Vec<Spanned<OpcUaEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeEntry {
    pub(super) id: i64,
    pub(super) plant: String,
    pub(super) area: String,
    pub(super) unit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModbusEntry {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) framing: Option<String>,
    pub(super) unit_id: Option<i64>,
    pub(super) every: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) max_silence: Option<String>,
    pub(super) area: Option<String>,
    pub(super) unit: Option<String>,
    #[serde(default)]
    pub(super) tag: Vec<Spanned<RegisterEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpcUaEntry {
    pub(super) name: String,
    pub(super) endpoint: String,
    pub(super) security: Option<String>,
    pub(super) pki_folder: Option<PathBuf>,
    pub(super) user: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) subscribe: Option<String>,
    pub(super) every: Option<String>,
    pub(super) timeout: Option<String>,
    pub(super) max_silence: Option<String>,
    pub(super) area: Option<String>,
    pub(super) unit: Option<String>,
    #[serde(default)]
    pub(super) tag: Vec<Spanned<NodeIdEntry>>,
}

/// What every tag has; the form cannot share it and still refuse keys that are not known.
pub(super) struct Meaning {
    pub(super) tag: String,
    pub(super) unit: Option<String>,
    pub(super) scale: Option<f64>,
    pub(super) offset: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) dead_band: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterEntry {
    pub(super) tag: String,
    pub(super) table: Option<String>,
    pub(super) register: i64,
    #[serde(rename = "type")]
    pub(super) word_type: Option<String>,
    pub(super) word_order: Option<String>,
    pub(super) unit: Option<String>,
    pub(super) scale: Option<f64>,
    pub(super) offset: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) dead_band: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeIdEntry {
    pub(super) tag: String,
    pub(super) node: String,
    pub(super) unit: Option<String>,
    pub(super) scale: Option<f64>,
    pub(super) offset: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) dead_band: Option<f64>,
}
