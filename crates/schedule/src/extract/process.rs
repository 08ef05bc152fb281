//! Runs one child process to its end: no shell, few of our variables, its own process group.
//!
//! Promises: its time, its output, its memory and what is kept of its errors are bounded; whatever way this
//! ends, dropped half-way included, nothing of its process group goes on.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};

use super::Error;

/// What is kept of the standard error, from its end.
const MAX_STDERR_CHARS: usize = 1_000;
/// How much of it is held while the program runs; a character has up to four bytes.
const HELD_STDERR_BYTES: usize = 4 * MAX_STDERR_CHARS;
/// What every program gets of the environment.
const PASSED_ON: [&str; 8] = [
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES",
];

/// What to run, and how far it may go.
pub(super) struct Run<'a> {
    /// How errors call it.
    pub(super) name: &'a str,
    pub(super) program: &'a str,
    pub(super) arguments: &'a [String],
    pub(super) directory: &'a Path,
    /// Variables that begin so are passed on as well.
    pub(super) prefix: &'a str,
    /// Variables that are set.
    pub(super) set: &'a [(&'a str, &'a str)],
    pub(super) limit: Duration,
    pub(super) max_output: u64,
    /// The most address space, if that is limited.
    pub(super) max_memory: Option<u64>,
    /// What to do when it cannot be started.
    pub(super) advice: &'a str,
}

/// Kills what is left of the group.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // An error says that nobody of it is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Run<'_> {
    /// Runs it with this on its standard input; gives its standard output.
    pub(super) async fn run(&self, input: &[u8]) -> Result<Vec<u8>, Error> {
        let mut child = self.start().map_err(|error| {
            Error::Setup(format!("{} cannot be started: {error}. {}", self.name, self.advice))
        })?;
        let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        // Dropped before the child, so that the group's id still stands for it.
        let group = Group(id);
        if let (Some(id), Some(bytes)) = (id, self.max_memory) {
            // It has read nothing yet. An error says that it has ended already, and its status will tell.
            let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
            let _ = prlimit(Some(id), Resource::As, limit);
        }
        let talked = tokio::time::timeout(self.limit, self.talk(&mut child, input)).await;
        drop(group);
        talked.unwrap_or_else(|_| {
            Err(Error::Timeout { program: self.name.to_owned(), limit: self.limit })
        })
    }

    fn start(&self) -> io::Result<Child> {
        let passed_on = std::env::vars_os().filter(|(name, _): &(OsString, OsString)| {
            name.to_str().is_some_and(|name| {
                PASSED_ON.contains(&name)
                    || (!self.prefix.is_empty() && name.starts_with(self.prefix))
            })
        });
        Command::new(self.program)
            .args(self.arguments)
            .current_dir(self.directory)
            .env_clear()
            .envs(passed_on)
            .envs(self.set.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Says the input, hears the answer, waits for the end.
    async fn talk(&self, child: &mut Child, input: &[u8]) -> Result<Vec<u8>, Error> {
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            return Err(Error::Setup(format!("{} has no pipes", self.name)));
        };
        let say = async {
            // One that answers without reading has its reasons.
            let _ = stdin.write_all(input).await;
            drop(stdin);
            Ok(())
        };
        let hear = async {
            let mut answer = Vec::new();
            match stdout.take(self.max_output + 1).read_to_end(&mut answer).await {
                Ok(read) if read as u64 > self.max_output => {
                    Err(Error::Flood { program: self.name.to_owned(), limit: self.max_output })
                }
                Ok(_) => Ok(answer),
                Err(error) => Err(self.failed(format!("its output cannot be read: {error}"), "")),
            }
        };
        let note = async { Ok(keep_end(stderr).await) };
        let ((), answer, stderr) = tokio::try_join!(say, hear, note)?;
        let status = child.wait().await.map_err(|error| self.failed(error.to_string(), ""))?;
        if !status.success() {
            return Err(self.failed(format!("it ended with {status}"), &stderr));
        }
        Ok(answer)
    }

    fn failed(&self, status: String, stderr: &str) -> Error {
        Error::Failed { program: self.name.to_owned(), status, stderr: stderr.to_owned() }
    }
}

/// Reads to the end and keeps the last of it.
async fn keep_end(mut from: impl AsyncRead + Unpin) -> String {
    let mut held: Vec<u8> = Vec::new();
    let mut part = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut part).await {
        held.extend_from_slice(&part[..read]);
        let beyond = held.len().saturating_sub(HELD_STDERR_BYTES);
        held.drain(..beyond);
    }
    let text = String::from_utf8_lossy(&held);
    let text: Vec<char> = text.chars().filter(|c| !c.is_control() || *c == '\n').collect();
    text[text.len().saturating_sub(MAX_STDERR_CHARS)..].iter().collect()
}
