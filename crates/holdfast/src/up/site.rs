//! The data folder of `up`: what is where, and how it is made the first time.
//!
//! ```text
//! .holdfast/
//!   lock                one `up` at a time
//!   up.sock             `holdfast link` speaks here
//!   postgres/           the private cluster
//!   broker/             Mosquitto's data, with the `passwords` and `acl` files the edge writes
//!   edge/edge.toml      the edge's configuration; edge/log, edge/pid
//!   cloud/cloud.toml    the cloud's configuration; cloud/log, cloud/pid
//!   schedule/           schedule.toml, and the logs and pids of intake and the worker
//!   scada/scada.toml    the plant's nodes and historian; scada/spool/, the logs and pids of their processes
//!   console/            the page's console.toml, log and pid; operator.token and viewer.token to sign in with
//!   rabbitmq/           the private RabbitMQ, once `--bus rabbitmq` was asked for
//!   kafka/              the private Kafka, likewise
//!   objects/            the object store of images
//!   nodes/barn-1/       node.toml, spool/, sampler.sock, log, pid
//!   links.json          the ports of the nodes' links
//!   minted.json         the tenant, the farm, the edge's password at the broker, its token at the cloud, the keys of the object store
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use edge::registry::Enrolment;
use event::id::{BarnId, FarmId, NodeId, TenantId};
use rig::{Mosquitto, MosquittoOptions, Postgres, PostgresOptions};
use serde::{Deserialize, Serialize};

use super::children::Role;
use super::links::{CONTROL_SOCKET, Links};

const DATABASE: &str = "edge";
const MINTED: &str = "minted.json";

/// What is chosen once for a data folder.
#[derive(Debug, Serialize, Deserialize)]
struct Minted {
    tenant_id: TenantId,
    farm_id: FarmId,
    broker_password: String,
    http_port: u16,
    /// Absent in a folder that was made before there was a cloud.
    #[serde(default)]
    cloud: Option<super::cloud::Minted>,
    /// Absent in a folder that was made before there was an object store.
    #[serde(default)]
    objects: Option<super::objects::Minted>,
    /// Absent in a folder that was made before there was a plant.
    #[serde(default)]
    scada: Option<super::scada::Minted>,
    /// Absent in a folder that was made before there were schedules.
    #[serde(default)]
    schedule: Option<super::schedule::Minted>,
    /// Absent in a folder that was made before there was a console.
    #[serde(default)]
    console: Option<super::console::Minted>,
}

/// A data folder that is ours alone.
#[derive(Debug)]
pub(super) struct Site {
    folder: PathBuf,
    _lock: File,
}

impl Site {
    /// Makes the folder if need be, and locks it.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Site> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let lock = File::create(folder.join("lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
            |_| {
                anyhow::anyhow!(
                    "another `up` runs on {}: stop it, or give --data another folder",
                    folder.display()
                )
            },
        )?;
        for part in ["edge", "cloud", "nodes", "broker", "scada", "schedule"] {
            std::fs::create_dir_all(folder.join(part))?;
        }
        Ok(Site { folder, _lock: lock })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn control_socket(&self) -> PathBuf {
        self.folder.join(CONTROL_SOCKET)
    }

    pub(super) fn sampler_socket(&self, node: &NodeId) -> PathBuf {
        self.node_folder(node).join("sampler.sock")
    }

    fn node_folder(&self, node: &NodeId) -> PathBuf {
        self.folder.join("nodes").join(node.as_str())
    }

    pub(super) fn edge_config(&self) -> PathBuf {
        self.folder.join("edge/edge.toml")
    }

    pub(super) async fn start_postgres(&self) -> anyhow::Result<Postgres> {
        Ok(Postgres::start(&self.folder.join("postgres"), PostgresOptions::default()).await?)
    }

    /// Makes the database and its tables, and the files by which the broker will know who is who. The broker's own
    /// address comes with [`Site::start_broker`].
    pub(super) async fn prepare_edge(&self, postgres: &Postgres) -> anyhow::Result<edge::Config> {
        self.make_database(postgres, DATABASE).await?;
        let database = pg::Options::new(postgres.url(DATABASE));
        edge::migrate(&database).await?;
        self.mint_objects(&database).await?;
        let config = self.configure_edge(&postgres.url(DATABASE), "mqtt://127.0.0.1:1883")?;
        let client = pg::connect(&config.database).await?;
        edge::registry::write_broker_files(&config, &client).await?;
        Ok(config)
    }

    /// Makes a database unless it is there. The name is ours, not input.
    pub(super) async fn make_database(
        &self,
        postgres: &Postgres,
        name: &'static str,
    ) -> anyhow::Result<()> {
        let admin = pg::connect(&pg::Options::new(postgres.url("postgres"))).await?;
        let there =
            admin.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).await?;
        if there.is_none() {
            admin.batch_execute(&format!("CREATE DATABASE {name}")).await?;
        }
        Ok(())
    }

    /// Writes the edge's configuration for this run and reads it back.
    fn configure_edge(&self, database: &str, broker: &str) -> anyhow::Result<edge::Config> {
        let Minted { broker_password, http_port, cloud, objects, .. } = self.minted()?;
        let cloud = cloud.context("the cloud is prepared before the edge")?;
        let objects = objects.context("the object store is prepared before the edge")?;
        let files = self.folder.join("broker");
        let text = format!(
            "[edge]\ndatabase.url = {database:?}\nmqtt.address = {broker:?}\nmqtt.password = {broker_password:?}\n\
             http.listen = \"127.0.0.1:{http_port}\"\n\
             broker.password_file = {:?}\nbroker.acl_file = {:?}\n\
             liveness.late_after = \"10s\"\nliveness.offline_after = \"60s\"\n\
             sync.cloud_url = \"http://127.0.0.1:{}\"\nsync.token = {:?}\n\
             sync.cluster_id = \"up\"\n{}",
            files.join("passwords"),
            files.join("acl"),
            cloud.link_port,
            cloud.token,
            objects.edge_keys()?,
        );
        write_private(&self.edge_config(), &text)?;
        Ok(edge::Config::load(Some(&self.edge_config()), |_| None)?)
    }

    /// Starts the broker with the files the edge wrote, and tells the edge its address.
    pub(super) async fn start_broker(
        &self,
        config: &mut edge::Config,
        postgres: &Postgres,
    ) -> anyhow::Result<Mosquitto> {
        let folder = self.folder.join("broker");
        let options = MosquittoOptions {
            password_file: Some(folder.join("passwords")),
            acl_file: Some(folder.join("acl")),
            ..MosquittoOptions::default()
        };
        let broker = Mosquitto::start(&folder, options).await?;
        *config = self.configure_edge(&postgres.url(DATABASE), &broker.url())?;
        Ok(broker)
    }

    /// Enrols the nodes that have no configuration yet.
    pub(super) async fn enroll(&self, config: &edge::Config, links: &Links) -> anyhow::Result<()> {
        let minted = self.minted()?;
        for node in links.nodes() {
            let folder = self.node_folder(node);
            let file = folder.join("node.toml");
            if file.exists() {
                continue;
            }
            std::fs::create_dir_all(&folder)?;
            let mut config = config.clone();
            if let (Some(broker), Some(http)) =
                (links.broker_address(node), links.http_address(node))
            {
                config.public_mqtt_address = format!("mqtt://{broker}").parse()?;
                config.public_http_address = Some(format!("http://{http}"));
            }
            let request = Enrolment {
                node_id: node.clone(),
                tenant_id: minted.tenant_id,
                farm_id: Some(minted.farm_id),
                barn_id: Some(BarnId::mint()),
                device_id: None,
                label: format!("simulated {}", node.as_str().replace('-', " ")),
                // A node without its file was interrupted while it was enrolled: its secret is gone.
                rotate: true,
            };
            let enrolled = edge::registry::enroll(&config, &request).await?;
            let text = format!(
                "{}socket = {:?}\nspool.dir = {:?}\nclock.mode = \"assume-set\"\n",
                enrolled.node_config,
                self.sampler_socket(node),
                folder.join("spool"),
            );
            write_private(&file, &text)?;
        }
        Ok(())
    }

    /// What was minted at the first start, and is minted then.
    fn minted(&self) -> anyhow::Result<Minted> {
        let file = self.folder.join(MINTED);
        if let Ok(text) = std::fs::read(&file) {
            return serde_json::from_slice(&text)
                .with_context(|| format!("{} is damaged", file.display()));
        }
        let minted = Minted {
            tenant_id: TenantId::mint(),
            farm_id: FarmId::mint(),
            broker_password: uuid::Uuid::new_v4().simple().to_string(),
            http_port: rig::free_port()?,
            cloud: None,
            objects: None,
            scada: None,
            schedule: None,
            console: None,
        };
        write_private(&file, &serde_json::to_string_pretty(&minted)?)?;
        Ok(minted)
    }

    pub(super) fn tenant(&self) -> anyhow::Result<TenantId> {
        Ok(self.minted()?.tenant_id)
    }

    pub(super) fn farm(&self) -> anyhow::Result<FarmId> {
        Ok(self.minted()?.farm_id)
    }

    pub(super) fn minted_objects(&self) -> anyhow::Result<Option<super::objects::Minted>> {
        Ok(self.minted()?.objects)
    }

    pub(super) fn remember_objects(&self, objects: &super::objects::Minted) -> anyhow::Result<()> {
        let minted = Minted { objects: Some(objects.clone()), ..self.minted()? };
        write_private(&self.folder.join(MINTED), &serde_json::to_string_pretty(&minted)?)
    }

    pub(super) fn minted_scada(&self) -> anyhow::Result<Option<super::scada::Minted>> {
        Ok(self.minted()?.scada)
    }

    pub(super) fn remember_scada(&self, scada: &super::scada::Minted) -> anyhow::Result<()> {
        let minted = Minted { scada: Some(scada.clone()), ..self.minted()? };
        write_private(&self.folder.join(MINTED), &serde_json::to_string_pretty(&minted)?)
    }

    pub(super) fn minted_schedule(&self) -> anyhow::Result<Option<super::schedule::Minted>> {
        Ok(self.minted()?.schedule)
    }

    pub(super) fn remember_schedule(
        &self,
        schedule: &super::schedule::Minted,
    ) -> anyhow::Result<()> {
        let minted = Minted { schedule: Some(schedule.clone()), ..self.minted()? };
        write_private(&self.folder.join(MINTED), &serde_json::to_string_pretty(&minted)?)
    }

    pub(super) fn minted_console(&self) -> anyhow::Result<Option<super::console::Minted>> {
        Ok(self.minted()?.console)
    }

    pub(super) fn remember_console(&self, console: &super::console::Minted) -> anyhow::Result<()> {
        let minted = Minted { console: Some(console.clone()), ..self.minted()? };
        write_private(&self.folder.join(MINTED), &serde_json::to_string_pretty(&minted)?)
    }

    pub(super) fn minted_cloud(&self) -> anyhow::Result<Option<super::cloud::Minted>> {
        Ok(self.minted()?.cloud)
    }

    pub(super) fn remember_cloud(&self, cloud: &super::cloud::Minted) -> anyhow::Result<()> {
        let minted = Minted { cloud: Some(cloud.clone()), ..self.minted()? };
        write_private(&self.folder.join(MINTED), &serde_json::to_string_pretty(&minted)?)
    }

    pub(super) fn edge_role(&self) -> anyhow::Result<Role> {
        let config = self.edge_config();
        Ok(Role {
            name: "edge".to_owned(),
            program: std::env::current_exe()?,
            arguments: vec!["edge".into(), "run".into(), "--config".into(), config.clone().into()],
            log: self.folder.join("edge/log"),
            pid_file: self.folder.join("edge/pid"),
            mark: config,
        })
    }

    pub(super) fn node_role(&self, node: &NodeId) -> anyhow::Result<Role> {
        let folder = self.node_folder(node);
        let config = folder.join("node.toml");
        let program = std::env::current_exe()?.with_file_name("holdfast-node");
        anyhow::ensure!(
            program.exists(),
            "{} is missing: build it with `cargo build -p node`",
            program.display()
        );
        Ok(Role {
            name: node.to_string(),
            program,
            arguments: vec!["run".into(), "--config".into(), config.clone().into()],
            log: folder.join("log"),
            pid_file: folder.join("pid"),
            mark: config,
        })
    }
}

/// Writes a file that holds a secret: readable by its owner alone.
pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let failed = || format!("cannot write {}", path.display());
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(failed)?;
    file.write_all(text.as_bytes()).with_context(failed)?;
    file.sync_all().with_context(failed)
}
