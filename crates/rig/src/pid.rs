//! Processes by their id, as the kernel lists them.
//!
//! An id alone does not name a process: it may have been given to another one since. Whoever ends a
//! process that is not its own child first checks with [`command_has`] what the id stands for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// How often the kernel is asked whether a process is gone.
const POLL: Duration = Duration::from_millis(5);

/// True while the process runs. One that has ended and waits to be collected by its parent is gone:
/// it holds no file, lock or port any more.
pub(crate) fn is_running(pid: Pid) -> bool {
    matches!(stat(pid), Some((state, _)) if state != 'Z' && state != 'X')
}

/// The state letter and the parent of a process.
fn stat(pid: Pid) -> Option<(char, i32)> {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name stands in brackets and may itself hold brackets and blanks.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// True when `argument` is one of the words the process was started with.
pub(crate) fn command_has(pid: Pid, argument: &OsStr) -> bool {
    std::fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
        .is_ok_and(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

/// The running children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| {
            matches!(stat(*pid), Some((state, of)) if of == parent.as_raw_nonzero().get() && state != 'Z')
        })
        .collect()
}

/// Reads an id from the first line of a file.
pub(crate) fn read(path: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(path).ok()?;
    Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
}

/// Sends a signal. A process that is gone already is no error.
pub(crate) fn signal(pid: Pid, signal: Signal) {
    // The only other answer is "not permitted", and then the wait that follows says so.
    let _ = kill_process(pid, signal);
}

/// Waits until none of the processes runs.
pub(crate) async fn wait_gone(pids: &[Pid], within: Duration, what: &str) -> Result<(), Error> {
    let deadline = Instant::now() + within;
    while pids.iter().any(|pid| is_running(*pid)) {
        if Instant::now() >= deadline {
            return Err(Error::TooLate {
                what: format!("the end of {what}"),
                within,
                detail: format!("still running: {pids:?}"),
            });
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
