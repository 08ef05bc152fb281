//! A private RabbitMQ on a loopback port.
//!
//! Layout of its folder: `rabbitmq.conf` and `enabled_plugins` are written at every start, `ports` holds
//! the ports chosen at the first one, `password` the password of its one user, `pid` and `epmd.pid` the
//! ids of its two processes, `mnesia` what it persists, `rabbitmq.log` its log. Its home is the folder too, so
//! that its cookie is its own.
//!
//! The server runs as the user that we are: its programs are called where the package keeps them, past
//! the wrapper that would change to user `rabbitmq`. The name service of Erlang (`epmd`) is a process of
//! our own on a loopback port, so that nothing is shared with another RabbitMQ of the machine and nothing is
//! left behind.

use std::ffi::OsStr;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, Process, installed, log, port, ready};

/// Where the package keeps the programs that run as any user.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
const PACKAGE: &str = "rabbitmq-server";
const NODE: &str = "holdfast@localhost";
const USER: &str = "holdfast";
/// A busy machine of two cores takes 15 seconds.
const READY_WITHIN: Duration = Duration::from_secs(120);
const STOP_WITHIN: Duration = Duration::from_secs(30);
/// The line the server writes when its port is open and its queues are recovered.
const RUNNING: &str = "Server startup complete";
/// How many sets of ports a first start tries; another process may take one between choice and use.
const PORTS_TRIED: usize = 3;

/// The three ports a node needs.
#[derive(Debug, Clone, Copy)]
struct Ports {
    amqp: u16,
    distribution: u16,
    epmd: u16,
}

impl Ports {
    fn choose() -> Result<Ports, Error> {
        Ok(Ports {
            amqp: port::free_port()?,
            distribution: port::free_port()?,
            epmd: port::free_port()?,
        })
    }

    fn parse(text: &str) -> Option<Ports> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Ports { amqp: next()?, distribution: next()?, epmd: next()? })
    }
}

/// A private RabbitMQ that was started, and that is killed when this is dropped.
#[derive(Debug)]
pub struct RabbitMq {
    folder: PathBuf,
    password: String,
    ports: Ports,
    /// Lines of its configuration beside our own.
    settings: String,
    server: Option<Process>,
    epmd: Option<Process>,
}

impl RabbitMq {
    /// Starts the broker of `folder`. Its ports are chosen at the first start and stay. A broker that
    /// still runs on that folder is stopped before.
    pub async fn start(folder: &Path) -> Result<RabbitMq, Error> {
        RabbitMq::start_with(folder, "").await
    }

    /// The same, with these lines added to its `rabbitmq.conf`.
    pub async fn start_with(folder: &Path, settings: &str) -> Result<RabbitMq, Error> {
        if !Path::new(PROGRAMS).join("rabbitmq-server").is_file() {
            return Err(Error::NotInstalled { program: "rabbitmq-server", package: PACKAGE });
        }
        std::fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let folder = folder.canonicalize().map_err(Error::file("find", folder))?;
        let password = password(&folder)?;
        let note = folder.join("ports");
        let known = std::fs::read_to_string(&note).ok().and_then(|text| Ports::parse(&text));
        let ports = match known {
            Some(ports) => ports,
            None => Ports::choose()?,
        };
        let settings = settings.to_owned();
        let mut broker = RabbitMq { folder, password, ports, settings, server: None, epmd: None };
        broker.end_orphans().await?;
        let mut tries = 1;
        while let Err(error) = broker.launch().await {
            if known.is_some() || tries == PORTS_TRIED {
                return Err(error);
            }
            tries += 1;
            broker.ports = Ports::choose()?;
        }
        let Ports { amqp, distribution, epmd } = broker.ports;
        std::fs::write(&note, format!("{amqp} {distribution} {epmd}\n"))
            .map_err(Error::file("write", &note))?;
        Ok(broker)
    }

    /// Starts the broker again on the same port and data, after [`RabbitMq::stop`],
    /// [`RabbitMq::kill`] or a crash; one that still runs is stopped first.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.launch().await
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// The port of its name service, on 127.0.0.1 and its own.
    pub fn epmd_port(&self) -> u16 {
        self.ports.epmd
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.amqp))
    }

    /// The address of a virtual host, credentials included. `/` is the one that always exists.
    pub fn url(&self, vhost: &str) -> String {
        self.url_at(self.addr(), vhost)
    }

    /// The address of a virtual host by way of another listener, a [`crate::Link`] for instance.
    pub fn url_at(&self, addr: SocketAddr, vhost: &str) -> String {
        let vhost = vhost.replace('%', "%25").replace('/', "%2f");
        format!("amqp://{USER}:{}@{addr}/{vhost}", self.password)
    }

    /// The broker's log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("rabbitmq.log")
    }

    /// The broker's process, to halt it or look at it; `None` when it was stopped or killed.
    pub fn process(&mut self) -> Option<&mut Process> {
        self.server.as_mut()
    }

    /// Makes a virtual host that its user may use.
    pub async fn add_vhost(&self, name: &str) -> Result<(), Error> {
        add_vhost(&self.folder, name).await
    }

    /// Runs `rabbitmqctl` on this broker and returns what it wrote.
    pub async fn ctl(&self, arguments: &[&str]) -> Result<String, Error> {
        ctl(&self.folder, arguments).await
    }

    /// Asks the broker to write everything down and end.
    pub async fn stop(&mut self) -> Result<(), Error> {
        if let Some(mut server) = self.server.take() {
            server.term(STOP_WITHIN).await?;
        }
        self.end_epmd().await
    }

    /// Kills the broker, as a crash would.
    pub async fn kill(&mut self) -> Result<(), Error> {
        if let Some(mut server) = self.server.take() {
            server.kill().await?;
        }
        self.end_epmd().await
    }

    /// Leaves the broker running when this is dropped: it outlives us, and someone else stops it.
    pub fn detach(mut self) -> PathBuf {
        // A process is killed when its handle is dropped; these handles are not.
        std::mem::forget(self.server.take());
        std::mem::forget(self.epmd.take());
        self.folder.clone()
    }

    async fn end_epmd(&mut self) -> Result<(), Error> {
        if let Some(mut epmd) = self.epmd.take() {
            epmd.kill().await?;
        }
        Ok(())
    }

    /// Ends what a process of ours that was killed left on this folder.
    async fn end_orphans(&self) -> Result<(), Error> {
        Process::end_orphan(&self.folder.join("pid"), self.folder.as_os_str()).await?;
        let port = self.ports.epmd.to_string();
        Process::end_orphan(&self.folder.join("epmd.pid"), OsStr::new(&port)).await
    }

    async fn launch(&mut self) -> Result<(), Error> {
        self.write_settings()?;
        let epmd = installed::program("epmd", "erlang-base")?;
        let mut command = std::process::Command::new(epmd);
        command.args(["-address", "127.0.0.1", "-port", &self.ports.epmd.to_string()]);
        let mut epmd = Process::spawn(command, Some(&self.log()))?;
        note_pid(&self.folder.join("epmd.pid"), &epmd)?;
        let epmd_addr = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.epmd));
        // Without it the server would start one of its own, which nobody ends.
        ready::wait(&mut epmd, "epmd", &self.log(), READY_WITHIN, async || {
            ready::answers(epmd_addr).await
        })
        .await?;

        let mut command = std::process::Command::new(Path::new(PROGRAMS).join("rabbitmq-server"));
        // Should it crash, it leaves what it knew where it was started.
        command.current_dir(&self.folder);
        command.envs(environment(&self.folder, self.ports));
        let log_start = log::length(&self.log());
        let mut server = Process::spawn(command, Some(&self.log()))?;
        note_pid(&self.folder.join("pid"), &server)?;
        let log_path = self.log();
        let addr = self.addr();
        ready::wait(&mut server, "rabbitmq-server", &log_path, READY_WITHIN, async || {
            if log::since(&log_path, log_start).contains(RUNNING) {
                ready::answers(addr).await
            } else {
                Err("it has not said that it runs".to_owned())
            }
        })
        .await?;
        self.epmd = Some(epmd);
        self.server = Some(server);
        Ok(())
    }

    fn write_settings(&self) -> Result<(), Error> {
        let settings = format!(
            "listeners.tcp.default = 127.0.0.1:{}\n\
             default_user = {USER}\n\
             default_pass = {}\n\
             loopback_users.{USER} = true\n\
             {}",
            self.ports.amqp, self.password, self.settings
        );
        for (name, text) in
            [("rabbitmq.conf", settings.as_str()), ("enabled_plugins", "[].\n"), ("env.conf", "")]
        {
            let path = self.folder.join(name);
            std::fs::write(&path, text).map_err(Error::file("write", &path))?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
                .map_err(Error::file("close", &path))?;
        }
        Ok(())
    }
}

/// Makes a virtual host on the broker that runs in `folder`, whoever started it.
pub async fn add_vhost(folder: &Path, name: &str) -> Result<(), Error> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(sound) {
        return Err(Error::Failed {
            program: "rabbitmqctl add_vhost".to_owned(),
            status: "not run".to_owned(),
            output: format!("the name {name:?} must be of letters, digits, - and _"),
        });
    }
    // One call for both steps: starting the tool takes longer than what it does.
    let add = format!(
        "ok = rabbit_vhost:add(<<\"{name}\">>, <<\"{USER}\">>), \
         ok = rabbit_auth_backend_internal:set_permissions(<<\"{USER}\">>, <<\"{name}\">>, \
         <<\".*\">>, <<\".*\">>, <<\".*\">>, <<\"{USER}\">>)."
    );
    ctl(folder, &["eval", &add]).await.map(drop)
}

/// Runs `rabbitmqctl` on the broker that runs in `folder`, whoever started it.
pub async fn ctl(folder: &Path, arguments: &[&str]) -> Result<String, Error> {
    let note = folder.join("ports");
    let text = std::fs::read_to_string(&note).map_err(Error::file("read", &note))?;
    let ports = Ports::parse(&text)
        .ok_or_else(|| Error::file("read", &note)(std::io::Error::other("three ports expected")))?;
    let program = Path::new(PROGRAMS).join("rabbitmqctl");
    let mut command = tokio::process::Command::new(&program);
    command.envs(environment(folder, ports)).arg("--quiet").args(arguments);
    command.stdin(std::process::Stdio::null()).kill_on_drop(true);
    let output = command.output().await.map_err(Error::file("run", &program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Failed {
        program: format!("rabbitmqctl {}", arguments.first().unwrap_or(&"")),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// What the server and its tools are told by environment.
fn environment(folder: &Path, ports: Ports) -> Vec<(&'static str, std::ffi::OsString)> {
    let under = |name: &str| folder.join(name).into_os_string();
    vec![
        ("HOME", folder.as_os_str().to_owned()),
        ("RABBITMQ_NODENAME", NODE.into()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_NODE_PORT", ports.amqp.to_string().into()),
        ("RABBITMQ_DIST_PORT", ports.distribution.to_string().into()),
        ("RABBITMQ_MNESIA_BASE", under("mnesia")),
        ("RABBITMQ_LOG_BASE", under("log")),
        // To the process's own output, which goes to our log.
        ("RABBITMQ_LOGS", "-".into()),
        ("RABBITMQ_CONFIG_FILE", under("rabbitmq.conf")),
        ("RABBITMQ_CONF_ENV_FILE", under("env.conf")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", under("enabled_plugins")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", under("generated")),
        ("RABBITMQ_PID_FILE", under("server.pid")),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("ERL_EPMD_PORT", ports.epmd.to_string().into()),
        // The name service is ours to start: one that a tool starts, because the broker has just gone,
        // would be left behind.
        ("ERL_AFLAGS", "-start_epmd false".into()),
        (
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-kernel inet_dist_use_interface {127,0,0,1}".into(),
        ),
        // Makes the script become the server instead of watching over it, so that the id we know is
        // the server's and a kill reaches it.
        ("RUNNING_UNDER_SYSTEMD", "true".into()),
    ]
}

/// The password of the broker's user: made at the first start, readable by us alone.
fn password(folder: &Path) -> Result<String, Error> {
    let path = folder.join("password");
    if let Ok(text) = std::fs::read_to_string(&path)
        && !text.trim().is_empty()
    {
        return Ok(text.trim().to_owned());
    }
    let source = Path::new("/dev/urandom");
    let mut random = [0; 16];
    std::fs::File::open(source)
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(Error::file("read", source))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(&path, "").map_err(Error::file("write", &path))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
        .and_then(|()| std::fs::write(&path, &text))
        .map_err(Error::file("write", &path))?;
    Ok(text)
}

fn note_pid(path: &Path, process: &Process) -> Result<(), Error> {
    std::fs::write(path, process.pid().to_string()).map_err(Error::file("write", path))
}
