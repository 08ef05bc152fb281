//! Asking a running node how it is.

use crate::status::NodeStatus;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A node answers at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// No node listens there.
    #[error("no node answers at the socket: {0}")]
    NotRunning(io::Error),
    /// It listens, but its answer is not a status.
    #[error("the answer is not a status: {0}")]
    Answer(String),
}

/// The status of the node that listens at `socket`. Blocks for at most some seconds.
pub fn query_status(socket: &Path) -> Result<NodeStatus, QueryError> {
    let stream = UnixStream::connect(socket).map_err(QueryError::NotRunning)?;
    let broken = |error: io::Error| QueryError::Answer(error.to_string());
    stream.set_read_timeout(Some(TIMEOUT)).map_err(broken)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(broken)?;
    (&stream).write_all(b"{\"cmd\":\"status\"}\n").map_err(broken)?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_ANSWER_BYTES)).read_line(&mut line).map_err(broken)?;
    serde_json::from_str(&line).map_err(|error| QueryError::Answer(error.to_string()))
}
