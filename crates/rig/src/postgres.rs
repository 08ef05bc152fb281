//! A private Postgres: trust on a unix socket, no port.
//!
//! Layout of its folder: `data` is the cluster, `run` holds the socket and the log. Postgres refuses
//! to run as root; then the server and its folders belong to user `postgres`.
//!
//! The socket's folder is closed to other users, because whoever reaches the socket is trusted.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::Command;

use crate::{Error, installed, log, pid};

/// The user that runs the server when we are root.
const USER: &str = "postgres";
const SOCKET_NAME: &str = ".s.PGSQL.5432";
/// The kernel's limit to the path of a unix socket, without its closing zero.
const MAX_SOCKET_PATH: usize = 107;
/// Room for crash recovery after a kill.
const START_SECONDS: u64 = 60;
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// How a private Postgres runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// True syncs to disk as a real installation does. False leaves that to the operating system:
    /// what was committed survives a kill of the server, and not a loss of power.
    pub durable: bool,
    /// The most connections the server takes.
    pub max_connections: u16,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions { durable: true, max_connections: 100 }
    }
}

/// A private Postgres that was started, and that ends when this is dropped.
#[derive(Debug)]
pub struct Postgres {
    data: PathBuf,
    log: PathBuf,
    sockets: PathBuf,
    programs: PathBuf,
    /// The uid to give folders to, when the server runs as another user.
    owner: Option<u32>,
    options: PostgresOptions,
    detached: bool,
}

impl Postgres {
    /// Starts the server of `folder`, making its cluster first if there is none. A server that
    /// still runs on that folder is stopped before.
    pub async fn start(folder: &Path, options: PostgresOptions) -> Result<Postgres, Error> {
        let programs = installed::postgres_folder()?;
        std::fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let folder = folder.canonicalize().map_err(Error::file("find", folder))?;
        let owner =
            if rustix::process::geteuid().is_root() { Some(user_id().await?) } else { None };
        let run = folder.join("run");
        let mut server = Postgres {
            data: folder.join("data"),
            log: run.join("postgres.log"),
            sockets: socket_folder(&run),
            programs,
            owner,
            options,
            detached: false,
        };
        server.own(&run)?;
        server.own(&server.sockets)?;
        server.check_open(&run).await?;
        if !server.data.join("PG_VERSION").is_file() {
            server.make_cluster(&folder).await?;
        }
        server.restart().await?;
        Ok(server)
    }

    /// Starts the server again on the same data, after [`Postgres::stop`], [`Postgres::kill`] or a
    /// crash; one that still runs is stopped first.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.remove_stale_locks();
        self.write_settings()?;
        let mut command = self.command("pg_ctl");
        command.args(["-w", "-t", &START_SECONDS.to_string(), "-D"]).arg(&self.data);
        command.arg("-l").arg(&self.log).arg("start");
        self.run("pg_ctl start", command).await
    }

    /// The address of a database of this server.
    pub fn url(&self, database: &str) -> String {
        let mut host = String::new();
        for byte in self.sockets.as_os_str().as_encoded_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                    host.push(char::from(*byte));
                }
                _ => host.push_str(&format!("%{byte:02X}")),
            }
        }
        format!("postgres:///{database}?host={host}&user={USER}")
    }

    /// The server's log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The ids of the server and its children; empty when it does not run.
    pub fn pids(&self) -> Vec<u32> {
        let Some(server) = self.server() else {
            return Vec::new();
        };
        let children = pid::children(server);
        std::iter::once(server)
            .chain(children)
            .map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
            .collect()
    }

    /// Stops the server: sessions are broken off, everything is written down. Nothing to do when it
    /// does not run.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let Some(server) = self.server() else {
            return Ok(());
        };
        pid::signal(server, Signal::INT);
        pid::wait_gone(&[server], STOP_WITHIN, "Postgres").await
    }

    /// Kills the server and all its children at once, as a crash would.
    pub async fn kill(&mut self) -> Result<(), Error> {
        let Some(server) = self.server() else {
            return Ok(());
        };
        // Halted first, so that it makes no child after the list was taken.
        pid::signal(server, Signal::STOP);
        let mut pids = pid::children(server);
        pids.push(server);
        for pid in &pids {
            pid::signal(*pid, Signal::KILL);
        }
        // A child that lives on keeps the shared memory, and then the next start is refused.
        pid::wait_gone(&pids, STOP_WITHIN, "Postgres").await
    }

    /// Leaves the server running when this is dropped: it outlives us, and someone else stops it.
    pub fn detach(mut self) -> PathBuf {
        self.detached = true;
        self.data.clone()
    }

    /// The server's id, if the id in its file still stands for it.
    fn server(&self) -> Option<Pid> {
        pid::read(&self.data.join("postmaster.pid"))
            .filter(|server| pid::is_running(*server))
            .filter(|server| pid::command_has(*server, self.data.as_os_str()))
    }

    /// Called when no server runs: a lock file left by a killed one may name an id that belongs to
    /// another process by now, and Postgres would then refuse to start.
    fn remove_stale_locks(&self) {
        let socket = self.sockets.join(SOCKET_NAME);
        let lock = self.sockets.join(format!("{SOCKET_NAME}.lock"));
        for path in [self.data.join("postmaster.pid"), socket, lock] {
            // Usually there is none. One that cannot be removed shows in the server's log.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Makes a cluster aside and moves it into place when it is whole, so that an interrupted start
    /// leaves nothing that looks like a cluster.
    async fn make_cluster(&self, folder: &Path) -> Result<(), Error> {
        let unfinished = folder.join("data.new");
        if unfinished.exists() {
            std::fs::remove_dir_all(&unfinished).map_err(Error::file("remove", &unfinished))?;
        }
        self.own(&unfinished)?;
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "-U", USER]);
        if !self.options.durable {
            command.arg("--no-sync");
        }
        command.arg("-D").arg(&unfinished);
        self.run("initdb", command).await?;
        let settings = unfinished.join("postgresql.conf");
        let mut text =
            std::fs::read_to_string(&settings).map_err(Error::file("read", &settings))?;
        text.push_str("\ninclude = 'holdfast.conf'\n");
        std::fs::write(&settings, text).map_err(Error::file("write", &settings))?;
        rustix::fs::rename(&unfinished, &self.data)
            .map_err(std::io::Error::from)
            .and_then(|()| std::fs::File::open(folder)?.sync_all())
            .map_err(Error::file("make", &self.data))
    }

    fn write_settings(&self) -> Result<(), Error> {
        let sockets = self.sockets.to_string_lossy().replace('\'', "''");
        let mut text = format!(
            "listen_addresses = ''\n\
             unix_socket_directories = '{sockets}'\n\
             unix_socket_permissions = 0700\n\
             max_connections = {}\n\
             timezone = 'UTC'\n\
             log_timezone = 'UTC'\n\
             jit = off\n",
            self.options.max_connections
        );
        if !self.options.durable {
            // A commit still waits until its log is with the operating system, which survives the
            // kill of the server.
            text.push_str(
                "fsync = off\nfull_page_writes = off\nwal_level = minimal\nmax_wal_senders = 0\n",
            );
        }
        let path = self.data.join("holdfast.conf");
        std::fs::write(&path, text).map_err(Error::file("write", &path))
    }

    /// Makes a folder that belongs to the server's user and is closed to others.
    fn own(&self, folder: &Path) -> Result<(), Error> {
        std::fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let found = std::fs::metadata(folder).map_err(Error::file("read", folder))?;
        let us = rustix::process::geteuid().as_raw();
        if found.uid() != us && Some(found.uid()) != self.owner {
            // Someone else made it, to catch the socket in.
            let problem = std::io::Error::other("it belongs to another user");
            return Err(Error::file("use", folder)(problem));
        }
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))
            .and_then(|()| match self.owner {
                Some(owner) => std::os::unix::fs::chown(folder, Some(owner), Some(owner)),
                None => Ok(()),
            })
            .map_err(Error::file("own", folder))
    }

    /// Checks that the server's user can reach the folder, and else names what stops it.
    async fn check_open(&self, folder: &Path) -> Result<(), Error> {
        if self.owner.is_none() {
            return Ok(());
        }
        let mut command = as_user("test");
        command.arg("-w").arg(folder);
        let answer = command.status().await.map_err(Error::file("run", Path::new("runuser")))?;
        if answer.success() {
            return Ok(());
        }
        let closed = folder
            .ancestors()
            .skip(1)
            .filter(|above| above.metadata().is_ok_and(|m| m.mode() & 0o001 == 0))
            .last()
            .unwrap_or(folder);
        Err(Error::Closed { folder: folder.to_owned(), closed: closed.to_owned(), user: USER })
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match self.owner {
            Some(_) => as_user(&program),
            None => Command::new(&program),
        };
        // The folder we are in may be closed to the server's user.
        command.current_dir("/").env("LC_ALL", "C.UTF-8").stdin(std::process::Stdio::null());
        command
    }

    async fn run(&self, name: &str, mut command: Command) -> Result<(), Error> {
        let output = command.output().await.map_err(Error::file("run", &self.programs))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::Failed {
            program: name.to_owned(),
            status: output.status.to_string(),
            output: format!("{}\n{}", said.trim(), log::tail(&self.log)).trim().to_owned(),
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if !self.detached
            && let Some(server) = self.server()
        {
            pid::signal(server, Signal::INT);
        }
    }
}

fn as_user(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("runuser");
    command.args(["-u", USER, "--"]).arg(program);
    command
}

async fn user_id() -> Result<u32, Error> {
    let output = Command::new("id").args(["-u", USER]).output().await;
    output
        .ok()
        .and_then(|output| String::from_utf8_lossy(&output.stdout).trim().parse().ok())
        .ok_or(Error::NotInstalled { program: "user postgres", package: "postgresql" })
}

/// The folder itself, or one with a short name when the socket's path would be too long.
fn socket_folder(run: &Path) -> PathBuf {
    if run.join(SOCKET_NAME).as_os_str().len() <= MAX_SOCKET_PATH {
        return run.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    run.hash(&mut hasher);
    PathBuf::from(format!("/tmp/holdfast-{:016x}", hasher.finish()))
}
