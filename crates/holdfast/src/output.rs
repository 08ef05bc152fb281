//! What a command prints.

use std::io::Write;

/// Prints to standard output. A reader that has gone, like `head`, is no error.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
