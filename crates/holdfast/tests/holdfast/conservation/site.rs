//! A site of real processes, each of which can be killed and started again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use edge::registry::Enrolment;
use event::id::{FarmId, NodeId, TenantId};
use rig::{Link, Mode, Mosquitto, MosquittoOptions, Postgres, PostgresOptions, Process};
use testkit::{Tmpfs, eventually};
use tokio_postgres::Client;

use super::cloud::Cloud;

const NODES: usize = 3;
const EDGES: usize = 2;

/// The last node's spool is on a disk of this size.
const SMALL_DISK_KIB: u32 = 2048;

/// Timings short enough for many faults a minute.
const NODE_TUNING: &str = "
mqtt.keepalive = \"2s\"
mqtt.retry_cap = \"500ms\"
forward.resend_after = \"1500ms\"
forward.status_every = \"1s\"
spool.segment_bytes = \"64KiB\"
spool.idle_seal = \"1s\"
spool.free_space_reserve = \"64KiB\"
clock.mode = \"assume-set\"
http.threshold = 300
";

/// A process of ours, with how to start it.
pub(crate) struct Role {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

impl Role {
    pub(crate) fn new(
        program: PathBuf,
        arguments: impl IntoIterator<Item = String>,
        log: PathBuf,
    ) -> Role {
        Role { program, arguments: arguments.into_iter().collect(), log, process: None }
    }

    pub(crate) fn launch(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        self.process = Some(Process::spawn(command, Some(&self.log))?);
        Ok(())
    }

    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().expect("it runs between faults");
        anyhow::ensure!(process.is_running(), "it died by itself:\n{}", self.log_tail());
        process.kill().await?;
        Ok(())
    }

    pub(crate) fn halt(&mut self) {
        self.process.as_mut().unwrap().stop();
    }

    pub(crate) fn go_on(&mut self) {
        self.process.as_mut().unwrap().cont();
    }

    pub(crate) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) role: Role,
    pub(crate) link: Link,
    pub(crate) socket: PathBuf,
    pub(crate) tmpfs: Option<Tmpfs>,
}

impl Node {
    pub(crate) async fn wait_for_status(
        &self,
        what: &str,
        holds: impl Fn(&node::NodeStatus) -> bool,
    ) -> anyhow::Result<()> {
        let waited = eventually(Duration::from_secs(180), what, async || {
            let status = status_of(&self.socket).await.map_err(|error| error.to_string())?;
            if holds(&status) { Ok(true) } else { Err(format!("{}: {status:?}", self.id)) }
        });
        waited.await.map_err(|error| error.context(self.role.log_tail()))?;
        Ok(())
    }
}

pub(crate) struct Site {
    pub(crate) nodes: Vec<Node>,
    pub(crate) edges: Vec<Role>,
    pub(crate) cloud: Cloud,
    pub(crate) broker: Mosquitto,
    pub(crate) postgres: Postgres,
    config: edge::Config,
    // Last, so that the folder outlives whoever writes into it.
    _folder: tempfile::TempDir,
}

impl Site {
    pub(crate) async fn start() -> anyhow::Result<Site> {
        let temporary = folder()?;
        let folder = temporary.path().to_owned();
        let options = PostgresOptions { durable: false, ..PostgresOptions::default() };
        let postgres = Postgres::start(&folder.join("postgres"), options).await?;
        let tenant = TenantId::mint();
        let cloud = Cloud::prepare(&folder, &postgres, tenant, EDGES).await?;
        let database = postgres.url("postgres");
        let config = configure(&folder, 0, &database, "mqtt://127.0.0.1:1883", &cloud)?;
        edge::migrate(&config.database).await?;
        let client = pg::connect(&config.database).await?;
        edge::registry::write_broker_files(&config, &client).await?;
        let options = MosquittoOptions {
            password_file: Some(folder.join("passwords")),
            acl_file: Some(folder.join("acl")),
            ..MosquittoOptions::default()
        };
        let mut broker = Mosquitto::start(&folder.join("broker"), options).await?;

        let mut nodes = Vec::new();
        for number in 0..NODES {
            nodes.push(enroll(&folder, &config, &broker, tenant, number).await?);
        }
        broker.reload();
        let mut edges = Vec::new();
        for number in 0..EDGES {
            configure(&folder, number, &config.database.url, &broker.url(), &cloud)?;
            let file = folder.join(format!("edge-{number}.toml"));
            edges.push(Role::new(
                testkit::bin("holdfast")?,
                ["edge", "run", "--config"].map(str::to_owned).into_iter().chain([text(&file)]),
                folder.join(format!("edge-{number}.log")),
            ));
        }
        let mut site = Site { nodes, edges, cloud, broker, postgres, config, _folder: temporary };
        let clouds = site.cloud.uplinks.iter_mut().map(|uplink| &mut uplink.cloud);
        let nodes = site.nodes.iter_mut().map(|node| &mut node.role);
        for role in clouds.chain(&mut site.edges).chain(nodes) {
            role.launch()?;
        }
        Ok(site)
    }

    pub(crate) async fn database(&self) -> anyhow::Result<Client> {
        Ok(pg::connect(&self.config.database).await?)
    }

    pub(crate) async fn wait_until_data_flows(&self) -> anyhow::Result<()> {
        let client = self.database().await?;
        eventually(Duration::from_secs(60), "every node's readings are stored", async || {
            let row =
                client.query_one("SELECT count(DISTINCT stream) FROM telemetry_raw", &[]).await;
            row.map_or(0, |row| row.get::<_, i64>(0)) == NODES as i64
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn put_right(&mut self) -> anyhow::Result<()> {
        for node in &self.nodes {
            node.link.set(Mode::Pass);
        }
        for uplink in &self.cloud.uplinks {
            uplink.link.set(Mode::Pass);
        }
        Ok(())
    }

    /// Waits until every node's spool is empty of what is not acked, as the node and as the edge see it, and then until the edge's
    /// outbox and the cloud's are empty of what has not arrived.
    pub(crate) async fn wait_until_settled(&self) -> anyhow::Result<()> {
        for node in &self.nodes {
            let drained = |status: &node::NodeStatus| status.report.head == status.report.acked;
            node.wait_for_status("the backlog drains", drained).await?;
        }
        self.cloud.wait_until_settled(&self.database().await?).await
    }
}

async fn status_of(socket: &Path) -> anyhow::Result<node::NodeStatus> {
    let socket = socket.to_owned();
    Ok(tokio::task::spawn_blocking(move || node::socket::query_status(&socket)).await??)
}

/// A temporary folder that the server's own user may enter.
fn folder() -> anyhow::Result<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

fn configure(
    folder: &Path,
    number: usize,
    database: &str,
    broker: &str,
    cloud: &Cloud,
) -> anyhow::Result<edge::Config> {
    let name = format!("edge-{number}");
    let file = folder.join(format!("{name}.toml"));
    // The same over both calls for one name: it stands in a node's configuration.
    let port = match edge::Config::load(Some(&file), |_| None) {
        Ok(before) => before.listen.port(),
        Err(_) => rig::free_port()?,
    };
    let text = format!(
        "[edge]\nreplica = {name:?}\ndatabase.url = {database:?}\nmqtt.address = {broker:?}\nmqtt.password = \"at-the-edge\"\n\
         mqtt.keepalive = \"2s\"\nhttp.listen = \"127.0.0.1:{port}\"\nbroker.password_file = {:?}\nbroker.acl_file = {:?}\n\
         sync.cloud_url = \"http://{}\"\nsync.token = {:?}\nsync.lease_seconds = 3\nsync.timeout = \"2s\"\n\
         sync.backoff_base = \"100ms\"\nsync.backoff_cap = \"500ms\"\n",
        folder.join("passwords"),
        folder.join("acl"),
        cloud.uplinks[number].link.addr(),
        cloud.token,
    );
    std::fs::write(&file, text)?;
    Ok(edge::Config::load(Some(&file), |_| None)?)
}

async fn enroll(
    folder: &Path,
    config: &edge::Config,
    broker: &Mosquitto,
    tenant: TenantId,
    number: usize,
) -> anyhow::Result<Node> {
    let id: NodeId = format!("node-{number}").parse()?;
    let link = Link::start(broker.addr()).await?;
    let tmpfs = if number == NODES - 1 {
        Tmpfs::mount(SMALL_DISK_KIB)
            .inspect_err(|why| println!("no small disk in this run: {why}"))
            .ok()
    } else {
        None
    };
    let mut config = config.clone();
    config.public_mqtt_address = format!("mqtt://{}", link.addr()).parse()?;
    // One node uses HTTP for large backlogs; its first edge is killed as often as any.
    config.public_http_address = (number == 0).then(|| format!("http://{}", config.listen));
    let request = Enrolment {
        node_id: id.clone(),
        tenant_id: tenant,
        farm_id: Some(FarmId::mint()),
        barn_id: None,
        device_id: None,
        label: String::new(),
        rotate: false,
    };
    let enrolled = edge::registry::enroll(&config, &request).await?;
    let socket = folder.join(format!("{id}.sock"));
    let spool = tmpfs
        .as_ref()
        .map_or_else(|| folder.join(format!("{id}.spool")), |disk| disk.path().join("spool"));
    let file = folder.join(format!("{id}.toml"));
    std::fs::write(
        &file,
        format!(
            "{}socket = {socket:?}\nspool.dir = {spool:?}\n{NODE_TUNING}",
            enrolled.node_config
        ),
    )?;
    let role = Role::new(
        testkit::bin("holdfast-node")?,
        ["run".to_owned(), "--config".to_owned(), text(&file)],
        folder.join(format!("{id}.log")),
    );
    Ok(Node { id, role, link, socket, tmpfs })
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
