//! The roles that `up` runs as processes of their own, so that they can be killed like the real ones.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rig::Process;

/// A role that dies sooner than this after its start waits before the next one.
const TOO_SOON: Duration = Duration::from_secs(5);

/// How long a role may take to end when asked.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// What is needed to start a role.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<std::ffi::OsString>,
    pub(super) log: PathBuf,
    /// Holds the process id, so that the next `up` can end a role that outlived this one.
    pub(super) pid_file: PathBuf,
    /// The argument that tells this role from every other process.
    pub(super) mark: PathBuf,
}

/// A running role.
#[derive(Debug)]
pub(super) struct Child {
    role: Role,
    process: Process,
    started: Instant,
    dead_since: Option<Instant>,
}

impl Child {
    pub(super) async fn start(role: Role) -> anyhow::Result<Child> {
        Process::end_orphan(&role.pid_file, role.mark.as_os_str()).await?;
        let process = launch(&role)?;
        Ok(Child { role, process, started: Instant::now(), dead_since: None })
    }

    /// Starts the role again if it has died, after a pause if it dies at once each time.
    pub(super) async fn restart_if_dead(&mut self) -> anyhow::Result<()> {
        if self.process.is_running() {
            self.dead_since = None;
            return Ok(());
        }
        let dead_since = *self.dead_since.get_or_insert_with(Instant::now);
        let quick_death = dead_since.duration_since(self.started) < TOO_SOON;
        if quick_death && dead_since.elapsed() < TOO_SOON {
            return Ok(());
        }
        let ended = self.process.wait().await?;
        tracing::warn!(role = self.role.name, %ended, log = %self.role.log.display(), "died; starting it again");
        self.process = launch(&self.role)?;
        (self.started, self.dead_since) = (Instant::now(), None);
        Ok(())
    }

    /// Asks the role to end.
    pub(super) async fn stop(&mut self) {
        if let Err(error) = self.process.term(STOP_WITHIN).await {
            tracing::warn!(role = self.role.name, %error, "did not stop");
        }
    }
}

fn launch(role: &Role) -> anyhow::Result<Process> {
    let mut command = Command::new(&role.program);
    command.args(&role.arguments);
    let process = Process::spawn(command, Some(&role.log))?;
    std::fs::write(&role.pid_file, process.pid().to_string())?;
    Ok(process)
}
