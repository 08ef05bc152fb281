//! The mapping file: the checks that its form does not make.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use event::scada::{Asset, AssetName, MAX_NODE_ID};
use settings::Error;
use toml::Spanned;

use super::form::{File, Meaning, ModbusEntry, NodeEntry, OpcUaEntry, RegisterEntry};
use super::{
    Connection, Endpoint, Framing, MAX_CONNECTIONS, MAX_TAGS, Mapping, Modbus, OpcUa, Point,
    Register, Security, Table, WordOrder, WordType,
};
use crate::tables::Source;

/// It is a label of metrics.
const MAX_NAME_CHARS: usize = 64;
const EVERY: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(3_600);
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(60);
const SILENCE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

macro_rules! meaning {
    ($entry:expr) => {{
        let entry = $entry;
        Meaning {
            tag: entry.tag.clone(),
            unit: entry.unit.clone(),
            scale: entry.scale,
            offset: entry.offset,
            low: entry.low,
            high: entry.high,
            dead_band: entry.dead_band,
        }
    }};
}

/// Checks a file that was read.
pub(super) fn read(source: Source) -> Result<Mapping, Error> {
    let file: File = source.parse()?;
    let mut checking = Checking::new(source);
    let node = checking.node(&file.node);
    let Some((node_id, asset)) = node else {
        return checking.source.finish(Mapping { connections: Vec::new() });
    };
    let mut connections = Vec::new();
    for entry in &file.modbus {
        checking.at = entry.span().start;
        connections.extend(checking.modbus(entry.get_ref(), node_id, &asset));
    }
    for entry in &file.opcua {
        checking.at = entry.span().start;
        connections.extend(checking.opcua(entry.get_ref(), node_id, &asset));
    }
    let entries = file.modbus.len() + file.opcua.len();
    if !(1..=MAX_CONNECTIONS).contains(&entries) {
        let right = format!("expected 1 to {MAX_CONNECTIONS} of [[modbus]] and [[opcua]]");
        checking.source.refuse(0, "connections".to_owned(), format!("are {entries}: {right}"));
    }
    checking.source.finish(Mapping { connections })
}

struct Checking {
    source: Source,
    at: usize,
    /// The entry that is being checked, for its name in a refusal.
    entry: String,
    names: HashSet<String>,
    tags: HashSet<String>,
}

impl Checking {
    fn new(source: Source) -> Checking {
        let (names, tags) = (HashSet::new(), HashSet::new());
        Checking { source, at: 0, entry: String::new(), names, tags }
    }

    fn refuse(&mut self, key: &str, reason: impl Into<String>) {
        self.source.refuse(self.at, format!("{} {key}", self.entry), reason);
    }

    fn word(&mut self, key: &str, text: &str) -> Option<AssetName> {
        let word = text.parse().map_err(|invalid: event::Invalid| invalid.problem);
        word.map_err(|problem| self.refuse(key, problem)).ok()
    }

    fn whole<T: TryFrom<i64>>(
        &mut self,
        key: &str,
        number: i64,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        let fits = T::try_from(number).ok().filter(|_| range.contains(&number));
        if fits.is_none() {
            let right =
                format!("expected a whole number from {} to {}", range.start(), range.end());
            self.refuse(key, format!("is {number}: {right}"));
        }
        fits
    }

    fn one_of<T: Copy>(&mut self, key: &str, text: &str, words: &[(&str, T)]) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let right: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.refuse(key, format!("is {text:?}: expected one of {}", right.join(", ")));
        }
        found
    }

    fn span(
        &mut self,
        key: &str,
        text: Option<&str>,
        default: &str,
        range: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let name = || format!("{} {key}", self.entry);
        self.source.span(self.at, name, text.unwrap_or(default), range)
    }

    fn node(&mut self, spanned: &Spanned<NodeEntry>) -> Option<(u16, Asset)> {
        self.at = spanned.span().start;
        self.entry = "[node]".to_owned();
        let entry = spanned.get_ref();
        let id = self.whole("id", entry.id, 1..=i64::from(MAX_NODE_ID));
        let plant = self.word("plant", &entry.plant);
        let (area, unit) = (self.word("area", &entry.area), self.word("unit", &entry.unit));
        Some((id?, Asset { plant: plant?, area: area?, unit: unit? }))
    }

    fn modbus(&mut self, entry: &ModbusEntry, node_id: u16, asset: &Asset) -> Option<Connection> {
        self.connection_name("modbus", &entry.name, entry.tag.len());
        let connection = self.entry.clone();
        let host_port = entry.address.rsplit_once(':');
        if !host_port.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            let right = "expected host:port, like 192.168.1.20:502";
            self.refuse("address", format!("is {:?}: {right}", entry.address));
        }
        let framings = [("tcp", Framing::Tcp), ("rtu_over_tcp", Framing::RtuOverTcp)];
        let framing = self.one_of("framing", entry.framing.as_deref().unwrap_or("tcp"), &framings);
        let unit_id = self.whole("unit_id", entry.unit_id.unwrap_or(1), 0..=255);
        let spans = self.spans(&entry.every, &entry.timeout, &entry.max_silence);
        let asset = self.place(asset, &entry.area, &entry.unit);
        let (mut registers, mut points) = (Vec::new(), Vec::new());
        for spanned in &entry.tag {
            self.at = spanned.span().start;
            let entry = spanned.get_ref();
            self.entry = format!("{connection} tag {:?}", entry.tag);
            let register = self.register(entry);
            let point = self.point(&meaning!(entry), node_id, asset.as_ref());
            registers.extend(register);
            points.extend(point);
        }
        let (every, timeout, max_silence) = spans?;
        let (address, framing) = (entry.address.clone(), framing?);
        let modbus = Modbus { address, framing, unit_id: unit_id?, registers };
        let endpoint = Endpoint::Modbus(modbus);
        let name = entry.name.clone();
        Some(Connection { name, every, timeout, max_silence, endpoint, points })
    }

    fn register(&mut self, entry: &RegisterEntry) -> Option<Register> {
        let tables = [
            ("holding", Table::Holding),
            ("input", Table::Input),
            ("coil", Table::Coil),
            ("discrete", Table::Discrete),
        ];
        let table = self.one_of("table", entry.table.as_deref().unwrap_or("holding"), &tables);
        let is_bit = matches!(table, Some(Table::Coil | Table::Discrete));
        let types: &[(&str, WordType)] = if is_bit {
            &[("bit", WordType::Bit)]
        } else {
            &[
                ("u16", WordType::U16),
                ("i16", WordType::I16),
                ("u32", WordType::U32),
                ("i32", WordType::I32),
                ("f32", WordType::F32),
                ("f64", WordType::F64),
            ]
        };
        let word_type = match entry.word_type.as_deref() {
            None if is_bit => Some(WordType::Bit),
            None => {
                self.refuse("type", "is missing: expected u16, i16, u32, i32, f32 or f64");
                None
            }
            Some(text) => self.one_of("type", text, types),
        };
        let orders = [("high_first", WordOrder::HighFirst), ("low_first", WordOrder::LowFirst)];
        let order = entry.word_order.as_deref().unwrap_or("high_first");
        let word_order = self.one_of("word_order", order, &orders);
        // The last register that a value of this type can begin at.
        let last = i64::from(u16::MAX) + 1 - word_type.map_or(1, |kind| i64::from(kind.words()));
        let first = self.whole("register", entry.register, 0..=last);
        Some(Register {
            table: table?,
            first: first?,
            word_type: word_type?,
            word_order: word_order?,
        })
    }

    fn opcua(&mut self, entry: &OpcUaEntry, node_id: u16, asset: &Asset) -> Option<Connection> {
        self.connection_name("opcua", &entry.name, entry.tag.len());
        let connection = self.entry.clone();
        if cfg!(not(feature = "opcua")) {
            self.refuse("endpoint", "is OPC UA: this build has none, build with the feature opcua");
        }
        if entry.endpoint.strip_prefix("opc.tcp://").is_none_or(str::is_empty) {
            let right = "expected opc.tcp://host:port/, like opc.tcp://192.168.1.30:4840/";
            self.refuse("endpoint", format!("is {:?}: {right}", entry.endpoint));
        }
        let user = match (&entry.user, &entry.password_file) {
            (Some(user), Some(file)) => Some((user.clone(), file.clone())),
            (None, None) => None,
            (Some(_), None) => {
                self.refuse("password_file", "is missing: expected a file, for there is a user");
                None
            }
            (None, Some(_)) => {
                self.refuse("user", "is missing: expected one, for there is a password_file");
                None
            }
        };
        let security = self.security(entry);
        let spans = self.spans(&entry.every, &entry.timeout, &entry.max_silence);
        let most = spans.map_or(*EVERY.end(), |(every, ..)| every);
        let subscribe = entry
            .subscribe
            .as_deref()
            .and_then(|text| self.span("subscribe", Some(text), "", *EVERY.start()..=most));
        let asset = self.place(asset, &entry.area, &entry.unit);
        let (mut nodes, mut points) = (Vec::new(), Vec::new());
        for spanned in &entry.tag {
            self.at = spanned.span().start;
            let entry = spanned.get_ref();
            self.entry = format!("{connection} tag {:?}", entry.tag);
            #[cfg(feature = "opcua")]
            if entry.node.parse::<::opcua::types::NodeId>().is_err() {
                let right = "expected a node id, like ns=2;s=Kiln.Temperature or ns=2;i=1001";
                self.refuse("node", format!("is {:?}: {right}", entry.node));
            }
            nodes.push(entry.node.clone());
            let point = self.point(&meaning!(entry), node_id, asset.as_ref());
            points.extend(point);
        }
        let (every, timeout, max_silence) = spans?;
        let url = entry.endpoint.clone();
        let endpoint = Endpoint::OpcUa(OpcUa { url, security, user, subscribe, nodes });
        let name = entry.name.clone();
        Some(Connection { name, every, timeout, max_silence, endpoint, points })
    }

    fn security(&mut self, entry: &OpcUaEntry) -> Option<Security> {
        let modes = [("none", None), ("sign", Some(false)), ("sign_and_encrypt", Some(true))];
        let mode = entry.security.as_deref().unwrap_or("none");
        let encrypt = self.one_of("security", mode, &modes).flatten();
        match (encrypt, &entry.pki_folder) {
            (Some(encrypt), Some(folder)) => Some(Security { encrypt, pki_folder: folder.clone() }),
            (Some(_), None) => {
                let right = "expected a folder with certificates; `holdfast scada inputs certificate` makes one";
                self.refuse("pki_folder", format!("is missing: {right}"));
                None
            }
            (None, Some(_)) if mode == "none" => {
                self.refuse(
                    "security",
                    "is none: expected sign or sign_and_encrypt, for there is a pki_folder",
                );
                None
            }
            (None, _) => None,
        }
    }

    fn connection_name(&mut self, kind: &str, name: &str, tags: usize) {
        self.entry = format!("{kind} {name:?}");
        if !(1..=MAX_NAME_CHARS).contains(&name.chars().count())
            || name.chars().any(char::is_control)
        {
            let right = format!("expected 1 to {MAX_NAME_CHARS} characters, none of control");
            self.refuse("name", format!("is no name: {right}"));
        }
        if !self.names.insert(name.to_owned()) {
            self.refuse("name", "is there twice: expected another one");
        }
        if !(1..=MAX_TAGS).contains(&tags) {
            self.refuse("tag", format!("are {tags}: expected 1 to {MAX_TAGS} of [[{kind}.tag]]"));
        }
    }

    fn spans(
        &mut self,
        every: &Option<String>,
        timeout: &Option<String>,
        max_silence: &Option<String>,
    ) -> Option<(Duration, Duration, Duration)> {
        let every = self.span("every", every.as_deref(), "1s", EVERY);
        let timeout = self.span("timeout", timeout.as_deref(), "2s", TIMEOUT);
        let max_silence = self.span("max_silence", max_silence.as_deref(), "60s", SILENCE);
        Some((every?, timeout?, max_silence?))
    }

    fn place(
        &mut self,
        asset: &Asset,
        area: &Option<String>,
        unit: &Option<String>,
    ) -> Option<Asset> {
        let area = area.as_ref().map_or(Some(asset.area.clone()), |text| self.word("area", text));
        let unit = unit.as_ref().map_or(Some(asset.unit.clone()), |text| self.word("unit", text));
        Some(Asset { plant: asset.plant.clone(), area: area?, unit: unit? })
    }

    fn point(&mut self, entry: &Meaning, node_id: u16, asset: Option<&Asset>) -> Option<Point> {
        let tag = entry.tag.parse();
        let tag = tag.map_err(|invalid: event::Invalid| self.refuse("tag", invalid.problem)).ok();
        let unit = entry.unit.clone().unwrap_or_default();
        if unit.chars().count() > 32 || unit.chars().any(char::is_control) {
            self.refuse("unit", "is not one: expected at most 32 characters, none of control");
        }
        let scale = entry.scale.unwrap_or(1.0);
        if scale == 0.0 || !scale.is_finite() {
            self.refuse("scale", format!("is {scale}: expected a finite number that is not 0"));
        }
        let offset = entry.offset.unwrap_or(0.0);
        if !offset.is_finite() {
            self.refuse("offset", format!("is {offset}: expected a finite number"));
        }
        let dead_band = entry.dead_band.unwrap_or(0.0);
        if !(dead_band.is_finite() && dead_band >= 0.0) {
            let right = "expected a finite number that is not negative";
            self.refuse("dead_band", format!("is {dead_band}: {right}"));
        }
        let (low, high) = (entry.low, entry.high);
        if [low, high].into_iter().flatten().any(|limit| !limit.is_finite())
            || low.zip(high).is_some_and(|(low, high)| low >= high)
        {
            self.refuse("low", "and high are no range: expected finite numbers, low below high");
        }
        let (tag, asset) = (tag?, asset?.clone());
        let series = format!("{}.{}.{}.{tag}", asset.plant, asset.area, asset.unit);
        if !self.tags.insert(series.clone()) {
            self.refuse("tag", format!("is there twice as {series}: expected it once"));
        }
        Some(Point { node_id, asset, tag, unit, scale, offset, low, high, dead_band })
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
