//! A private Apache Kafka on loopback ports: one broker, or three.
//!
//! Layout of its folder: `broker-N` for each broker, with `server.properties` written at every start, `data`, `pid` and
//! `kafka.log`; `ports` holds the ports chosen at the first start. Each broker is a controller of the quorum, too (KRaft).
//!
//! The programs come from Maven Central ([`jars()`]) and run on the machine's Java.

mod jars;
mod settings;

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use jars::{VERSION, jars};
use settings::{KEYSTORE, Ports, TRUSTSTORE, properties};
pub use settings::{KafkaOptions, KafkaSecurity};

use crate::{Error, Process, installed, log, port, ready};

const PACKAGE: &str = "openjdk-17-jre-headless";
/// A busy machine of two cores takes 10 seconds for one broker.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// A broker that cannot reach its controller takes long to give up.
const STOP_WITHIN: Duration = Duration::from_secs(15);
const TOOL_WITHIN: Duration = Duration::from_secs(120);
const TOOL_HEAP: &str = "-Xmx128m";
/// The line a broker writes when it is a member of its cluster and its listeners are open.
const RUNNING: &str = "Kafka Server started";
/// The same in every private cluster: it tells clusters of one folder apart, and there is one.
const CLUSTER_ID: &str = "aG9sZGZhc3Qta2Fma2EtMQ";
const LOGGING: &str = "rootLogger.level=info\n\
    rootLogger.appenderRef.stdout.ref=STDOUT\n\
    appender.stdout.type=Console\n\
    appender.stdout.name=STDOUT\n\
    appender.stdout.layout.type=PatternLayout\n\
    appender.stdout.layout.pattern=%d %p %m (%c)%n\n";
/// How many sets of ports a first start tries; another process may take one between choice and use.
const PORTS_TRIED: usize = 3;

/// A private Kafka that was started, and that is killed when this is dropped.
#[derive(Debug)]
pub struct Kafka {
    folder: PathBuf,
    java: PathBuf,
    jars: PathBuf,
    options: KafkaOptions,
    ports: Vec<Ports>,
    brokers: Vec<Option<Process>>,
}

impl Kafka {
    /// Starts the cluster of `folder`. Its ports are chosen at the first start and stay. Brokers that still run on that
    /// folder are ended before.
    pub async fn start(folder: &Path, options: KafkaOptions) -> Result<Kafka, Error> {
        let java = installed::program("java", PACKAGE)?;
        let jars = jars().await?;
        std::fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let folder = folder.canonicalize().map_err(Error::file("find", folder))?;
        let count = options.brokers.max(1);
        let note = folder.join("ports");
        let known = std::fs::read_to_string(&note).ok().and_then(|text| parse_ports(&text));
        let known = known.filter(|ports| ports.len() == count);
        let mut kafka = Kafka {
            folder,
            java,
            jars,
            options,
            ports: known.clone().map_or_else(|| choose_ports(count), Ok)?,
            brokers: (0..count).map(|_| None).collect(),
        };
        for at in 0..count {
            let broker = kafka.broker_folder(at);
            std::fs::create_dir_all(&broker).map_err(Error::file("make", &broker))?;
            Process::end_orphan(&broker.join("pid"), broker.join(PROPERTIES).as_os_str()).await?;
        }
        let mut tries = 1;
        while let Err(error) = kafka.launch_all().await {
            if known.is_some() || tries == PORTS_TRIED {
                return Err(error);
            }
            tries += 1;
            kafka.kill_all().await?;
            kafka.ports = choose_ports(count)?;
        }
        let text: String = kafka.ports.iter().map(note_line).collect();
        std::fs::write(&note, text).map_err(Error::file("write", &note))?;
        Ok(kafka)
    }

    /// The plain listeners, as clients are told them: `host:port,host:port`.
    pub fn servers(&self) -> String {
        self.listeners(|ports| ports.plain)
    }

    /// The listeners by TLS and password; they are there when security was asked for.
    pub fn secure_servers(&self) -> String {
        self.listeners(|ports| ports.secure)
    }

    /// The plain listener of one broker, counted from 0.
    pub fn addr(&self, broker: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[broker].plain))
    }

    /// The log of a broker, counted from 0.
    pub fn log(&self, broker: usize) -> PathBuf {
        self.broker_folder(broker).join("kafka.log")
    }

    /// The process of a broker, to halt it or look at it; `None` when it was stopped or killed.
    pub fn process(&mut self, broker: usize) -> Option<&mut Process> {
        self.brokers[broker].as_mut()
    }

    /// Kills a broker, as a crash would.
    pub async fn kill(&mut self, broker: usize) -> Result<(), Error> {
        if let Some(mut process) = self.brokers[broker].take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Starts a broker again on the same ports and data; one that still runs is stopped first.
    pub async fn restart(&mut self, broker: usize) -> Result<(), Error> {
        if let Some(mut process) = self.brokers[broker].take() {
            process.term(STOP_WITHIN).await?;
        }
        let log_start = self.spawn(broker)?;
        self.wait_ready(broker, log_start).await
    }

    /// Asks every broker to end.
    pub async fn stop(&mut self) -> Result<(), Error> {
        for broker in &mut self.brokers {
            if let Some(mut process) = broker.take() {
                process.term(STOP_WITHIN).await?;
            }
        }
        Ok(())
    }

    /// Runs one of Kafka's own tools, by its class, and returns what it wrote. `--bootstrap-server` is the caller's to give.
    pub async fn tool(&self, class: &str, arguments: &[&str]) -> Result<String, Error> {
        let mut command = tokio::process::Command::new(&self.java);
        command.args([TOOL_HEAP, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.arg("-cp").arg(self.jars.join("*")).arg(class).args(arguments);
        command.current_dir(&self.folder).stdin(std::process::Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(TOOL_WITHIN, command.output()).await;
        let output = output
            .map_err(|_| Error::TooLate {
                what: format!("the end of {class}"),
                within: TOOL_WITHIN,
                detail: "it still runs".to_owned(),
            })?
            .map_err(Error::file("run", &self.java))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let output_text = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        Err(Error::Failed {
            program: class.to_owned(),
            status: output.status.to_string(),
            output: output_text.trim().to_owned(),
        })
    }

    /// Where Java and the archives are, for a tool that the caller runs itself.
    pub fn java(&self) -> (&Path, &Path) {
        (&self.java, &self.jars)
    }

    /// Leaves the brokers running when this is dropped: someone else ends them. For each: the file with its id, and the
    /// word of its command line by which it is known.
    pub fn detach(mut self) -> Vec<(PathBuf, String)> {
        for broker in &mut self.brokers {
            // A process is killed when its handle is dropped; these handles are not.
            std::mem::forget(broker.take());
        }
        let known = |at| {
            let broker = self.broker_folder(at);
            (broker.join("pid"), broker.join(PROPERTIES).display().to_string())
        };
        (0..self.ports.len()).map(known).collect()
    }

    fn listeners(&self, port: impl Fn(&Ports) -> u16) -> String {
        let all: Vec<String> =
            self.ports.iter().map(|ports| format!("127.0.0.1:{}", port(ports))).collect();
        all.join(",")
    }

    fn broker_folder(&self, broker: usize) -> PathBuf {
        self.folder.join(format!("broker-{}", broker + 1))
    }

    async fn launch_all(&mut self) -> Result<(), Error> {
        let mut log_starts = Vec::new();
        for at in 0..self.ports.len() {
            self.write_settings(at)?;
            if !self.broker_folder(at).join("data").join("meta.properties").is_file() {
                self.format(at).await?;
            }
        }
        // One alone would wait for the others' votes.
        for at in 0..self.ports.len() {
            log_starts.push(self.spawn(at)?);
        }
        for (at, log_start) in log_starts.into_iter().enumerate() {
            self.wait_ready(at, log_start).await?;
        }
        Ok(())
    }

    async fn kill_all(&mut self) -> Result<(), Error> {
        for at in 0..self.brokers.len() {
            self.kill(at).await?;
        }
        Ok(())
    }

    fn write_settings(&self, at: usize) -> Result<(), Error> {
        let broker = self.broker_folder(at);
        let text = properties(&self.options, &self.ports, at, &broker);
        write_private(&broker.join(PROPERTIES), text.as_bytes())?;
        write_private(&broker.join("log4j2.properties"), LOGGING.as_bytes())?;
        if let Some(security) = &self.options.security {
            let read = |path: &Path| std::fs::read(path).map_err(Error::file("read", path));
            let mut keystore = read(&security.key)?;
            keystore.extend(read(&security.certificate)?);
            write_private(&broker.join(KEYSTORE), &keystore)?;
            write_private(&broker.join(TRUSTSTORE), &read(&security.authority)?)?;
        }
        Ok(())
    }

    /// Prepares the data of a broker that has none. Passwords go by a file, not by the command line, which anybody on the
    /// machine may read.
    async fn format(&self, at: usize) -> Result<(), Error> {
        let broker = self.broker_folder(at);
        let settings = broker.join(PROPERTIES).display().to_string();
        let mut words = ["format", "--cluster-id", CLUSTER_ID, "--config", &settings]
            .map(str::to_owned)
            .to_vec();
        for (name, password) in self.options.security.iter().flat_map(|security| &security.users) {
            words.push("--add-scram".to_owned());
            words.push(format!("SCRAM-SHA-512=[name={name},password={password}]"));
        }
        let file = broker.join("format");
        write_private(&file, words.join("\n").as_bytes())?;
        let formatted =
            self.tool("kafka.tools.StorageTool", &[&format!("@{}", file.display())]).await;
        std::fs::remove_file(&file).map_err(Error::file("remove", &file))?;
        formatted.map(drop)
    }

    /// Starts a broker's process and returns how long its log was before.
    fn spawn(&mut self, at: usize) -> Result<u64, Error> {
        let broker = self.broker_folder(at);
        let mut command = std::process::Command::new(&self.java);
        command.arg(format!("-Xmx{}m", self.options.heap_mb)).args(&self.options.java);
        let logging = broker.join("log4j2.properties");
        command.arg(format!("-Dlog4j2.configurationFile={}", logging.display()));
        command.arg("-cp").arg(self.jars.join("*")).arg("kafka.Kafka");
        command.arg(broker.join(PROPERTIES)).current_dir(&broker);
        let log_start = log::length(&self.log(at));
        let process = Process::spawn(command, Some(&self.log(at)))?;
        let pid = broker.join("pid");
        std::fs::write(&pid, process.pid().to_string()).map_err(Error::file("write", &pid))?;
        self.brokers[at] = Some(process);
        Ok(log_start)
    }

    async fn wait_ready(&mut self, at: usize, log_start: u64) -> Result<(), Error> {
        let (log, addr) = (self.log(at), self.addr(at));
        let Some(process) = &mut self.brokers[at] else { return Ok(()) };
        ready::wait(process, "kafka", &log, READY_WITHIN, async || {
            if log::since(&log, log_start).contains(RUNNING) {
                ready::answers(addr).await
            } else {
                Err("it has not said that it runs".to_owned())
            }
        })
        .await
    }
}

const PROPERTIES: &str = "server.properties";

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, b"")
        .and_then(|()| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)))
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(Error::file("write", path))
}

fn choose_ports(count: usize) -> Result<Vec<Ports>, Error> {
    let one = |_| {
        Ok(Ports {
            plain: port::free_port()?,
            secure: port::free_port()?,
            controller: port::free_port()?,
        })
    };
    (0..count).map(one).collect()
}

fn note_line(ports: &Ports) -> String {
    format!("{} {} {}\n", ports.plain, ports.secure, ports.controller)
}

fn parse_ports(text: &str) -> Option<Vec<Ports>> {
    let line = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Ports { plain: next()?, secure: next()?, controller: next()? })
    };
    text.lines().map(line).collect()
}
