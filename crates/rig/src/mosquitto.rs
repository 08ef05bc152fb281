//! A private Mosquitto on a loopback port.
//!
//! Layout of its folder: `mosquitto.conf` is written at every start, `port` holds the port chosen at
//! the first one, `pid` the id of the broker, `mosquitto.db` what it persists, `mosquitto.log` its
//! log.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::{Error, Process, installed, log, port};

const READY_WITHIN: Duration = Duration::from_secs(20);
const STOP_WITHIN: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// In the line the broker writes when its port is open.
const RUNNING: &str = " running";
/// How many ports a first start tries; another process may take one between choice and use.
const PORTS_TRIED: usize = 5;

/// The server's side of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain, PEM.
    pub cert_file: PathBuf,
    /// The private key, PEM.
    pub key_file: PathBuf,
    /// When set, clients must show a certificate signed by one of these.
    pub client_ca_file: Option<PathBuf>,
}

/// How a private Mosquitto runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MosquittoOptions {
    /// Who may connect; without it, anybody.
    pub password_file: Option<PathBuf>,
    /// Who may use which topics; without it, all of them.
    pub acl_file: Option<PathBuf>,
    /// When set, the port speaks TLS only.
    pub tls: Option<Tls>,
    /// The state is written to disk each time this many seconds have passed or, with
    /// `autosave_on_changes`, this many messages. What came since is lost when the broker is killed.
    pub autosave_interval: u32,
    /// Counts messages instead of seconds.
    pub autosave_on_changes: bool,
    /// The most messages sent to one client and not acknowledged by it.
    pub max_inflight_messages: u32,
    /// The most messages kept for one client beyond those; more are dropped by the broker.
    pub max_queued_messages: u32,
}

impl Default for MosquittoOptions {
    fn default() -> Self {
        MosquittoOptions {
            password_file: None,
            acl_file: None,
            tls: None,
            autosave_interval: 1800,
            autosave_on_changes: false,
            max_inflight_messages: 100,
            max_queued_messages: 100_000,
        }
    }
}

/// A private Mosquitto that was started, and that is killed when this is dropped.
#[derive(Debug)]
pub struct Mosquitto {
    program: PathBuf,
    folder: PathBuf,
    options: MosquittoOptions,
    port: u16,
    process: Option<Process>,
}

impl Mosquitto {
    /// Starts the broker of `folder`. Its port is chosen at the first start and stays. A broker that
    /// still runs on that folder is stopped before.
    pub async fn start(folder: &Path, options: MosquittoOptions) -> Result<Mosquitto, Error> {
        let program = installed::program("mosquitto", "mosquitto")?;
        std::fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let folder = folder.canonicalize().map_err(Error::file("find", folder))?;
        let mut broker = Mosquitto { program, folder, options, port: 0, process: None };
        // A broker left by a process of ours that was killed holds the port.
        Process::end_orphan(&broker.folder.join("pid"), broker.configuration().as_os_str()).await?;
        let note = broker.folder.join("port");
        let known = std::fs::read_to_string(&note).ok().and_then(|text| text.trim().parse().ok());
        if let Some(port) = known {
            broker.port = port;
            broker.launch().await?;
            return Ok(broker);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            broker.port = port::free_port()?;
            match broker.launch().await {
                Ok(()) => break,
                Err(error) if tries == PORTS_TRIED => return Err(error),
                Err(_) => {}
            }
        }
        std::fs::write(&note, broker.port.to_string()).map_err(Error::file("write", &note))?;
        Ok(broker)
    }

    /// Starts the broker again on the same port and data, after [`Mosquitto::stop`],
    /// [`Mosquitto::kill`] or a crash; one that still runs is stopped first.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.launch().await
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its address: `mqtt://…`, or `mqtts://…` with TLS. A certificate is made out to a name, so
    /// that one says `localhost`.
    pub fn url(&self) -> String {
        match self.options.tls {
            Some(_) => format!("mqtts://localhost:{}", self.port),
            None => format!("mqtt://127.0.0.1:{}", self.port),
        }
    }

    /// The broker's log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("mosquitto.log")
    }

    /// The broker's process, to halt it or look at it; `None` when it was stopped or killed.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Asks the broker to write its state and end.
    pub async fn stop(&mut self) -> Result<(), Error> {
        if let Some(mut process) = self.process.take() {
            process.term(STOP_WITHIN).await?;
        }
        Ok(())
    }

    /// Kills the broker, as a crash would.
    pub async fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut process) = self.process.take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Makes the broker read the password and ACL files again. It does so a moment later.
    pub fn reload(&mut self) {
        if let Some(process) = &mut self.process {
            process.hang_up();
        }
    }

    fn configuration(&self) -> PathBuf {
        self.folder.join("mosquitto.conf")
    }

    async fn launch(&mut self) -> Result<(), Error> {
        let configuration = self.configuration();
        std::fs::write(&configuration, self.settings())
            .map_err(Error::file("write", &configuration))?;
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let mut command = std::process::Command::new(&self.program);
            command.arg("-c").arg(&configuration);
            let log_start = log::length(&self.log());
            let mut process = Process::spawn(command, Some(&self.log()))?;
            let note = self.folder.join("pid");
            std::fs::write(&note, process.pid().to_string())
                .map_err(Error::file("write", &note))?;
            match self.wait_ready(&mut process, log_start, deadline).await {
                Ok(()) => {
                    self.process = Some(process);
                    return Ok(());
                }
                // The port may be held for a moment by what the broker before it left behind.
                Err(error) => {
                    let taken =
                        log::since(&self.log(), log_start).contains("Address already in use");
                    if !taken || Instant::now() >= deadline {
                        return Err(error);
                    }
                    tokio::time::sleep(POLL * 20).await;
                }
            }
        }
    }

    /// Waits until the broker says that it runs, and its port answers. The port alone could be
    /// answered by a stranger while ours is still on its way to finding it taken.
    async fn wait_ready(
        &self,
        process: &mut Process,
        log_start: u64,
        deadline: Instant,
    ) -> Result<(), Error> {
        loop {
            let answered = if log::since(&self.log(), log_start).contains(RUNNING) {
                TcpStream::connect(self.addr()).await.map_err(|error| error.to_string())
            } else {
                Err("it has not said that it runs".to_owned())
            };
            if !process.is_running() {
                let status = process.wait().await?.to_string();
                let output = log::tail(&self.log());
                return Err(Error::Failed { program: "mosquitto".to_owned(), status, output });
            }
            match answered {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(Error::TooLate {
                        what: "the start of Mosquitto".to_owned(),
                        within: READY_WITHIN,
                        detail: format!("{error}\n{}", log::tail(&self.log())),
                    });
                }
                Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    fn settings(&self) -> String {
        let options = &self.options;
        let mut text = String::new();
        let mut set = |key: &str, value: &dyn std::fmt::Display| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{key} {value}");
        };
        if rustix::process::geteuid().is_root() {
            // As root it would change to a user of its own, which cannot enter the folder.
            set("user", &"root");
        }
        set("per_listener_settings", &false);
        set("log_dest", &"stderr");
        set("log_timestamp_format", &"%Y-%m-%dT%H:%M:%S");
        set("persistence", &true);
        set("persistence_location", &format_args!("{}/", self.folder.display()));
        set("autosave_interval", &options.autosave_interval);
        set("autosave_on_changes", &options.autosave_on_changes);
        set("max_inflight_messages", &options.max_inflight_messages);
        set("max_queued_messages", &options.max_queued_messages);
        set("set_tcp_nodelay", &true);
        set("allow_anonymous", &options.password_file.is_none());
        if let Some(path) = &options.password_file {
            set("password_file", &path.display());
        }
        if let Some(path) = &options.acl_file {
            set("acl_file", &path.display());
        }
        set("listener", &format_args!("{} 127.0.0.1", self.port));
        if let Some(tls) = &options.tls {
            set("certfile", &tls.cert_file.display());
            set("keyfile", &tls.key_file.display());
            if let Some(path) = &tls.client_ca_file {
                set("cafile", &path.display());
                set("require_certificate", &true);
            }
        }
        text
    }
}
