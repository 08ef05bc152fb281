//! A child process that can be killed, halted and waited for.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

use crate::{Error, pid};

const ORPHAN_ENDS_WITHIN: Duration = Duration::from_secs(10);

/// A child process in a process group of its own, so that an interrupt typed at the terminal reaches
/// only us. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: Pid,
}

impl Process {
    /// Starts a command. Its input is empty; its output is appended to `log`, or dropped.
    pub fn spawn(command: std::process::Command, log: Option<&Path>) -> Result<Process, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let path = Path::new(&name).to_owned();
        let (out, err) = match log {
            Some(log) => {
                let file = std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(log)
                    .map_err(Error::file("open", log))?;
                let again = file.try_clone().map_err(Error::file("open", log))?;
                (Stdio::from(file), Stdio::from(again))
            }
            None => (Stdio::null(), Stdio::null()),
        };
        let mut command = Command::from(command);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(Error::file("run", &path))?;
        let pid = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
            .ok_or_else(|| Error::file("run", &path)(std::io::Error::other("it has no id")))?;
        Ok(Process { name, child, pid })
    }

    /// Ends a process left by one of ours that was killed before it could: the one whose id is in `pid_file`, if it still runs
    /// and was started with `argument`. Anything else is left alone.
    pub async fn end_orphan(pid_file: &Path, argument: &OsStr) -> Result<(), Error> {
        let Some(orphan) = pid::read(pid_file) else {
            return Ok(());
        };
        if !pid::is_running(orphan) || !pid::command_has(orphan, argument) {
            return Ok(());
        }
        let what = argument.to_string_lossy();
        // A halted one does not hear the request to end.
        pid::signal(orphan, Signal::CONT);
        pid::signal(orphan, Signal::TERM);
        if pid::wait_gone(&[orphan], ORPHAN_ENDS_WITHIN, &what).await.is_err() {
            pid::signal(orphan, Signal::KILL);
            pid::wait_gone(&[orphan], ORPHAN_ENDS_WITHIN, &what).await?;
        }
        Ok(())
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// True until the process has ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub async fn kill(&mut self) -> Result<ExitStatus, Error> {
        self.send(Signal::KILL);
        self.wait().await
    }

    /// Asks the process to end (SIGTERM), and kills it when it has not within the time given.
    pub async fn term(&mut self, within: Duration) -> Result<ExitStatus, Error> {
        self.send(Signal::TERM);
        match tokio::time::timeout(within, self.wait()).await {
            Ok(ended) => ended,
            Err(_) => self.kill().await,
        }
    }

    /// Halts the process (SIGSTOP) until [`Process::cont`].
    pub fn stop(&mut self) {
        self.send(Signal::STOP);
    }

    /// Lets a halted process go on (SIGCONT).
    pub fn cont(&mut self) {
        self.send(Signal::CONT);
    }

    /// Sends SIGHUP, by which servers read their configuration again.
    pub fn hang_up(&mut self) {
        self.send(Signal::HUP);
    }

    /// Waits for the end of the process.
    pub async fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.child.wait().await.map_err(Error::file("wait for", Path::new(&self.name)))
    }

    /// Until a child is waited for, its id stands for it, running or not; afterwards it may be
    /// somebody else's, and nothing is sent.
    fn send(&mut self, signal: Signal) {
        if self.is_running() {
            pid::signal(self.pid, signal);
        }
    }
}
