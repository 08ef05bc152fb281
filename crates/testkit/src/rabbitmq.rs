//! One RabbitMQ for all test processes of a run, and a virtual host per test.
//!
//! It starts in some fifteen seconds, so it is shared as Postgres is (`shared.rs`), in the folder `rabbitmq` of
//! the run's folder. A virtual host is not deleted with its test: it goes with the broker, and deleting it would
//! take a process that outlives the test.
//!
//! A test that stops the broker, or that brings it to its limits, needs one of its own:
//! [`private_rabbitmq`].

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;

use anyhow::{Context, Result};
use rig::RabbitMq;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::run;
use crate::shared::{self, Ending, Shared, Started};

/// The virtual host that always exists.
const DEFAULT_VHOST: &str = "/";

/// A virtual host of one test on the shared broker.
#[derive(Debug)]
pub struct Vhost {
    url: String,
    name: String,
    folder: PathBuf,
}

impl Vhost {
    /// Its address, credentials included.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name on the broker.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `rabbitmqctl` on the shared broker. What it changes must be of this virtual host.
    pub async fn ctl(&self, arguments: &[&str]) -> Result<String> {
        Ok(rig::rabbitmq::ctl(&self.folder, arguments).await?)
    }
}

/// A virtual host on the shared broker; the first caller of the run starts the broker.
pub async fn rabbitmq() -> Result<Vhost> {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let join = async || shared::join(run::folder()?.join("rabbitmq"), answers, start).await;
    let shared = SHARED.get_or_try_init(join).await?;
    let name = format!("test-{}", Uuid::now_v7().simple());
    rig::rabbitmq::add_vhost(&shared.folder, &name).await?;
    let base = shared.address.strip_suffix("%2f").context("the default vhost's address")?;
    Ok(Vhost { url: format!("{base}{name}"), name, folder: shared.folder.clone() })
}

/// A RabbitMQ of one test's own, in a temporary folder. Both go when this is dropped.
#[derive(Debug)]
pub struct PrivateRabbitMq {
    // Dropped in this order: the server is gone before its folder is deleted.
    broker: RabbitMq,
    _folder: TempDir,
}

/// Starts one.
pub async fn private_rabbitmq() -> Result<PrivateRabbitMq> {
    private_rabbitmq_with("").await
}

/// Starts one with these lines added to its `rabbitmq.conf`.
pub async fn private_rabbitmq_with(settings: &str) -> Result<PrivateRabbitMq> {
    let folder = tempfile::Builder::new().prefix("holdfast-rabbitmq-").tempdir()?;
    let broker = RabbitMq::start_with(folder.path(), settings).await.context("start a RabbitMQ")?;
    Ok(PrivateRabbitMq { broker, _folder: folder })
}

impl Deref for PrivateRabbitMq {
    type Target = RabbitMq;

    fn deref(&self) -> &RabbitMq {
        &self.broker
    }
}

impl DerefMut for PrivateRabbitMq {
    fn deref_mut(&mut self) -> &mut RabbitMq {
        &mut self.broker
    }
}

async fn answers(url: &str) -> bool {
    let addr = url.split_once('@').and_then(|(_, rest)| rest.split_once('/')).map(|(addr, _)| addr);
    match addr {
        Some(addr) => TcpStream::connect(addr).await.is_ok(),
        None => false,
    }
}

async fn start() -> Result<Started> {
    let folder = tempfile::Builder::new().prefix("holdfast-test-rabbitmq-").tempdir()?;
    let broker = RabbitMq::start(folder.path()).await?;
    let address = broker.url(DEFAULT_VHOST);
    let epmd_port = broker.epmd_port();
    broker.detach();
    let folder = folder.keep();
    // The server before its name service, so that it does not start one of its own.
    let ending =
        |file: &str, word: String| Ending { signal: "KILL", pid_file: folder.join(file), word };
    let processes = vec![
        ending("pid", folder.display().to_string()),
        ending("epmd.pid", epmd_port.to_string()),
    ];
    Ok(Started { folder, address, processes })
}
