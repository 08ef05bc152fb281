//! One Kafka for all test processes of a run, and names of topics and groups per test.
//!
//! It starts in some ten seconds, so it is shared as Postgres is (`shared.rs`), in the folder `kafka` of the run's folder. Topics are
//! not deleted with their test: they go with the broker.
//!
//! Its archives come from Maven Central. Where that cannot be reached, `./dev` says so in `HOLDFAST_NO_KAFKA`, and lists the tests as
//! not run; they end at once then.
//!
//! A test that stops brokers, or that needs passwords, has a Kafka of its own: [`private_kafka`].

use std::ops::{Deref, DerefMut};

use anyhow::{Context, Result};
use rig::{Kafka, KafkaOptions};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::run;
use crate::shared::{self, Ending, Shared, Started};

/// Set when Kafka cannot be had on this machine, to the reason.
const ABSENT_VARIABLE: &str = "HOLDFAST_NO_KAFKA";

fn is_absent() -> bool {
    std::env::var_os(ABSENT_VARIABLE).is_some()
}

/// The shared broker, with a prefix for the names of one test.
#[derive(Debug, Clone)]
pub struct KafkaSite {
    servers: String,
    prefix: String,
}

impl KafkaSite {
    /// Its address, `host:port`, without security.
    pub fn servers(&self) -> &str {
        &self.servers
    }

    /// A name for a topic or a group of this test.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// The shared broker; the first caller of the run starts it. Nothing where Kafka cannot be had.
pub async fn kafka() -> Result<Option<KafkaSite>> {
    if is_absent() {
        return Ok(None);
    }
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let join = async || shared::join(run::folder()?.join("kafka"), answers, start).await;
    let shared = SHARED.get_or_try_init(join).await?;
    let prefix = format!("test-{}.", Uuid::now_v7().simple());
    Ok(Some(KafkaSite { servers: shared.address.clone(), prefix }))
}

/// A Kafka of one test's own, in a temporary folder. Both go when this is dropped.
#[derive(Debug)]
pub struct PrivateKafka {
    // Dropped in this order: the brokers are gone before their folder is deleted.
    kafka: Kafka,
    _folder: TempDir,
}

/// Starts one. Nothing where Kafka cannot be had.
pub async fn private_kafka(options: KafkaOptions) -> Result<Option<PrivateKafka>> {
    if is_absent() {
        return Ok(None);
    }
    let folder = tempfile::Builder::new().prefix("holdfast-kafka-").tempdir()?;
    let kafka = Kafka::start(folder.path(), options).await.context("start a Kafka")?;
    Ok(Some(PrivateKafka { kafka, _folder: folder }))
}

impl Deref for PrivateKafka {
    type Target = Kafka;

    fn deref(&self) -> &Kafka {
        &self.kafka
    }
}

impl DerefMut for PrivateKafka {
    fn deref_mut(&mut self) -> &mut Kafka {
        &mut self.kafka
    }
}

async fn answers(servers: &str) -> bool {
    TcpStream::connect(servers).await.is_ok()
}

async fn start() -> Result<Started> {
    let folder = tempfile::Builder::new().prefix("holdfast-test-kafka-").tempdir()?;
    let kafka = Kafka::start(folder.path(), KafkaOptions::default()).await?;
    let address = kafka.servers();
    let ending = |(pid_file, word)| Ending { signal: "KILL", pid_file, word };
    let processes = kafka.detach().into_iter().map(ending).collect();
    Ok(Started { folder: folder.keep(), address, processes })
}
