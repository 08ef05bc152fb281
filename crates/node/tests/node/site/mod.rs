//! A small site for tests: a real broker, a link to it, the real node, a sampler, and an edge made of a frontier.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "this is test code outside #[test] functions"
)]

mod bulk;
mod edge;
mod sampler;

pub(crate) use bulk::{BulkEdge, SECRET};
pub(crate) use edge::FakeEdge;
pub(crate) use sampler::{Sampler, sample};

use event::id::NodeId;
use node::NodeStatus;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tempfile::TempDir;
use testkit::rig::{Link, Process};
use testkit::{Broker, eventually};

pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const NODE: &str = "barn-7";
pub(crate) const DEVICE: &str = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001";

pub(crate) fn node_id() -> NodeId {
    NODE.parse().unwrap()
}

/// A node with its folder and its link to a broker.
pub(crate) struct Site {
    pub(crate) broker: Broker,
    pub(crate) link: Link,
    pub(crate) folder: TempDir,
    node: Option<Process>,
}

impl Site {
    /// A broker, a link, and a configuration with `extra` keys of `[node]`. The node does not run yet.
    pub(crate) async fn new(extra: &str) -> Site {
        let broker = testkit::mosquitto().await.unwrap();
        let link = Link::start(broker.addr()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let site = Site { broker, link, folder, node: None };
        site.configure(extra);
        site
    }

    /// Writes the configuration again with other `extra` keys.
    pub(crate) fn configure(&self, extra: &str) {
        let address = format!("mqtt.address = \"mqtt://{}\"", self.link.addr());
        let mut text = format!(
            "[node]\nnode_id = \"{NODE}\"\ndevice_id = \"{DEVICE}\"\nsocket = {:?}\nspool.dir = {:?}\n\
             spool.free_space_reserve = 0\nclock.mode = \"assume-set\"\nmqtt.keepalive = \"1s\"\n\
             mqtt.retry_cap = \"500ms\"\nforward.live_linger = \"5ms\"\nforward.resend_after = \"1s\"\n\
             forward.status_every = \"500ms\"\nforward.backfill_rate = 0\n",
            self.socket(),
            self.spool()
        );
        let mut lines: Vec<&str> = text.lines().collect();
        // A key in `extra` replaces the one above.
        let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
        lines.retain(|line| !extra.lines().any(|other| key(other) == key(line)));
        text = lines.join("\n");
        if !extra.contains("mqtt.address") {
            text = format!("{text}\n{address}");
        }
        std::fs::write(self.config(), format!("{text}\n{extra}\n")).unwrap();
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("holdfast.toml")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("sampler.sock")
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.folder.path().join("spool")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the node and waits until it answers.
    pub(crate) async fn start_node(&mut self) {
        let mut command = Command::new(binary());
        command.args(["run", "--config"]).arg(self.config());
        self.node = Some(Process::spawn(command, Some(&self.folder.path().join("log"))).unwrap());
        let started =
            eventually(LONG, "the node to answer", async || self.status().map(Some)).await;
        started.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    pub(crate) fn node(&mut self) -> &mut Process {
        self.node.as_mut().unwrap()
    }

    pub(crate) async fn kill_node(&mut self) {
        self.node.take().unwrap().kill().await.unwrap();
    }

    /// SIGTERM; the node must end by itself, with success.
    pub(crate) async fn stop_node(&mut self) {
        let ended = self.node.take().unwrap().term(LONG).await.unwrap();
        assert!(ended.success(), "{ended}\n{}", self.log());
    }

    pub(crate) fn status(&self) -> Result<NodeStatus, String> {
        node::socket::query_status(&self.socket()).map_err(|error| error.to_string())
    }

    pub(crate) fn sampler(&self) -> Sampler {
        Sampler::connect(&self.socket())
    }

    pub(crate) async fn edge(&self) -> FakeEdge {
        FakeEdge::start(self.broker.addr()).await
    }

    /// Waits until the node knows that everything it has is at the edge.
    pub(crate) async fn drained(&self) -> NodeStatus {
        let drained = eventually(LONG, "the backlog to drain", async || {
            let status = self.status()?;
            match status.report.backlog {
                0 => Ok(Some(status)),
                _ => Err(format!("{status:?}")),
            }
        });
        drained.await.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Waits until a status is as wanted.
    pub(crate) async fn status_where(
        &self,
        what: &str,
        wanted: impl Fn(&NodeStatus) -> bool,
    ) -> NodeStatus {
        let found = eventually(LONG, what, async || {
            let status = self.status()?;
            match wanted(&status) {
                true => Ok(Some(status)),
                false => Err(format!("{status:?}")),
            }
        });
        found.await.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Runs a command of the binary with this site's configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Output {
        run(Command::new(binary()).args(arguments).env("HOLDFAST_CONFIG", self.config()))
    }
}

pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holdfast-node"))
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
