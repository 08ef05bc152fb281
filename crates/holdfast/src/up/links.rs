//! The links in front of the simulated nodes, and the socket by which a second terminal cuts them.
//!
//! Each node has two: to the broker and to the edge's HTTP. They change together, as one cable would. The site has one to the cloud.
//! The ports are chosen once and kept in the data folder, because they stand in the configurations.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use event::id::NodeId;
use rig::{Link, Mode};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::site::Site;

/// Where `up` keeps its data unless told otherwise.
pub(crate) const DEFAULT_DATA: &str = ".holdfast";

/// The control socket's name in the data folder.
pub(crate) const CONTROL_SOCKET: &str = "up.sock";

/// What the site's cable to the cloud is called, among the nodes.
const UPLINK: &str = "cloud";

/// Longest request on the control socket.
const MAX_REQUEST_BYTES: u64 = 4096;

/// What a link can be set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cable {
    /// Carry everything again.
    Restore,
    /// Close every connection and refuse new ones.
    Cut,
    /// Keep connections open and carry nothing.
    Stall,
    /// Carry everything half a second later.
    Slow,
    /// Lose what the node sends: acknowledgements arrive, data does not.
    DeafUp,
    /// Lose what the node should hear: data arrives, acknowledgements do not.
    DeafDown,
}

impl Cable {
    fn mode(self) -> Mode {
        match self {
            Cable::Restore => Mode::Pass,
            Cable::Cut => Mode::Cut,
            Cable::Stall => Mode::Stall,
            Cable::Slow => Mode::Delay(Duration::from_millis(500)),
            Cable::DeafUp => Mode::DropUp,
            Cable::DeafDown => Mode::DropDown,
        }
    }
}

/// One request on the control socket, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Request {
    Set {
        set: Cable,
        /// The nodes, or `cloud` for the site's uplink; none means all of them.
        nodes: Vec<NodeId>,
    },
    /// How each of them is.
    States { states: bool },
}

/// The answer, one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Changed(Vec<NodeId>),
    States(BTreeMap<NodeId, String>),
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize, Clone, Copy)]
struct Ports {
    mqtt: u16,
    http: u16,
}

#[derive(Debug)]
struct Cables {
    mqtt: Link,
    http: Link,
}

/// All links of a site.
#[derive(Debug)]
pub(crate) struct Links {
    cables: BTreeMap<NodeId, Cables>,
    order: Vec<NodeId>,
    uplink: Link,
    uplink_name: NodeId,
}

impl Links {
    /// Opens the links of nodes `barn-1` to `barn-N`; the site's own, to the cloud, is given.
    pub(super) async fn open(
        site: &Site,
        uplink: Link,
        broker: SocketAddr,
        http: SocketAddr,
        count: u16,
    ) -> anyhow::Result<Links> {
        let file = site.folder().join("links.json");
        let mut ports: BTreeMap<NodeId, Ports> = match std::fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text)
                .with_context(|| format!("{} is damaged", file.display()))?,
            Err(_) => BTreeMap::new(),
        };
        let uplink_name = UPLINK.parse()?;
        let mut links = Links { cables: BTreeMap::new(), order: Vec::new(), uplink, uplink_name };
        for number in 1..=count {
            let node: NodeId = format!("barn-{number}").parse()?;
            let known = match ports.get(&node) {
                Some(known) => *known,
                None => Ports { mqtt: rig::free_port()?, http: rig::free_port()? },
            };
            let cables = Cables {
                mqtt: Link::start_on(known.mqtt, broker).await?,
                http: Link::start_on(known.http, http).await?,
            };
            ports.insert(node.clone(), known);
            links.cables.insert(node.clone(), cables);
            links.order.push(node);
        }
        std::fs::write(&file, serde_json::to_vec_pretty(&ports)?)?;
        Ok(links)
    }

    /// The nodes, in order of their numbers.
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.order
    }

    /// Where the node's cable to the broker begins.
    pub(super) fn broker_address(&self, node: &NodeId) -> Option<SocketAddr> {
        Some(self.cables.get(node)?.mqtt.addr())
    }

    /// Where the node's cable to the edge's HTTP begins.
    pub(super) fn http_address(&self, node: &NodeId) -> Option<SocketAddr> {
        Some(self.cables.get(node)?.http.addr())
    }

    /// A word for the state of a node's cable.
    pub(super) fn state(&self, node: &NodeId) -> &'static str {
        self.cables.get(node).map_or("none", |cables| word(cables.mqtt.mode()))
    }

    /// A word for the state of the site's cable to the cloud.
    pub(super) fn uplink_state(&self) -> &'static str {
        word(self.uplink.mode())
    }

    fn states(&self) -> Reply {
        let nodes = self.order.iter().map(|node| (node.clone(), self.state(node).to_owned()));
        let uplink = (self.uplink_name.clone(), self.uplink_state().to_owned());
        Reply::States(nodes.chain([uplink]).collect())
    }

    fn set(&self, set: Cable, nodes: &[NodeId]) -> Reply {
        let all: Vec<_> = self.order.iter().chain([&self.uplink_name]).cloned().collect();
        if let Some(node) = nodes.iter().find(|node| !all.contains(node)) {
            let known: Vec<_> = all.iter().map(NodeId::as_str).collect();
            return Reply::Refused(format!(
                "there is no link {node} here; there are {}",
                known.join(", ")
            ));
        }
        let chosen = if nodes.is_empty() { &all[..] } else { nodes };
        for name in chosen {
            match self.cables.get(name) {
                Some(cables) => {
                    cables.mqtt.set(set.mode());
                    cables.http.set(set.mode());
                }
                None => self.uplink.set(set.mode()),
            }
        }
        Reply::Changed(chosen.to_vec())
    }
}

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Pass => "ok",
        Mode::Cut => "CUT",
        Mode::Stall => "STALLED",
        Mode::Delay(_) => "SLOW",
        Mode::DropUp => "DEAF UP",
        Mode::DropDown => "DEAF DOWN",
    }
}

/// Answers on the control socket for ever.
pub(super) fn serve(
    socket: &Path,
    links: Arc<Links>,
) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + use<>> {
    // Only one `up` holds the data folder's lock, so a socket that is there is a leftover.
    let _ = std::fs::remove_file(socket);
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    Ok(async move {
        loop {
            let (stream, _) = listener.accept().await?;
            if let Err(error) = answer(stream, &links).await {
                tracing::debug!(%error, "control connection broke");
            }
        }
    })
}

async fn answer(stream: UnixStream, links: &Links) -> anyhow::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    BufReader::new(reader.take(MAX_REQUEST_BYTES)).read_line(&mut line).await?;
    let reply = match serde_json::from_str::<Request>(&line) {
        Ok(Request::Set { set, nodes }) => links.set(set, &nodes),
        Ok(Request::States { .. }) => links.states(),
        Err(error) => Reply::Refused(error.to_string()),
    };
    writer.write_all(format!("{}\n", serde_json::to_string(&reply)?).as_bytes()).await?;
    Ok(())
}
