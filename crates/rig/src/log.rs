//! A server's log, read to know that it is ready or why it is not.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of a log goes into an error message.
const TAIL_BYTES: u64 = 2000;

/// How long a log is now.
pub(crate) fn length(log: &Path) -> u64 {
    std::fs::metadata(log).map_or(0, |metadata| metadata.len())
}

/// What was written to a log since it had the length given. A log that cannot be read is empty.
pub(crate) fn since(log: &Path, start: u64) -> String {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut bytes)
    });
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(_) => String::new(),
    }
}

/// The end of a log.
pub(crate) fn tail(log: &Path) -> String {
    since(log, length(log).saturating_sub(TAIL_BYTES))
}
