//! Whether a worker goes on, for those who watch processes: it opens no port, so it touches a file after each look for work, and who wants to know looks at the
//! file's age.
//!
//! A look that failed counts as well: a database that is away is no reason to start the worker again. A look that never ends is one.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What a look at the database may take on top of the pauses between looks: a connection that is waited for, and a link that turns out to be dead.
const LOOK_WITHIN: Duration = Duration::from_secs(30);
/// So many looks may be missed.
const LOOKS: u32 = 3;

/// Why a worker is taken for dead.
#[derive(Debug, thiserror::Error)]
pub enum NotAlive {
    /// No worker has touched the file.
    #[error("{}: {source}; is a worker started with this file?", path.display())]
    Unseen {
        /// The file.
        path: PathBuf,
        /// Why it cannot be looked at.
        source: std::io::Error,
    },
    /// The last touch was long ago.
    #[error(
        "the worker last looked for work {} seconds ago, and should at least every {}",
        age.as_secs(),
        limit.as_secs()
    )]
    Late {
        /// How long ago.
        age: Duration,
        /// How long ago it may be.
        limit: Duration,
    },
}

/// Says that the worker goes on.
pub(super) async fn beat(file: &Path, name: &str) {
    if let Err(error) = tokio::fs::write(file, format!("{name}\n")).await {
        tracing::warn!(%error, file = %file.display(), "the heartbeat file cannot be written");
    }
}

/// Whether the worker that touches `file` and looks for work every `poll` goes on.
pub fn alive(file: &Path, poll: Duration) -> Result<(), NotAlive> {
    let touched = std::fs::metadata(file).and_then(|found| found.modified());
    let touched = touched.map_err(|source| NotAlive::Unseen { path: file.to_owned(), source })?;
    // A file of the future is of before the clock was set back; the next touch mends it.
    let age = SystemTime::now().duration_since(touched).unwrap_or_default();
    let limit = poll * LOOKS + LOOK_WITHIN;
    if age > limit { Err(NotAlive::Late { age, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_touched_is_alive_and_one_that_is_old_or_missing_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (file, poll) = (folder.path().join("alive"), Duration::from_secs(5));
        assert!(matches!(alive(&file, poll), Err(NotAlive::Unseen { .. })));
        beat(&file, "one").await;
        alive(&file, poll).unwrap();
        let touched = |ago: u64| {
            let at = SystemTime::now() - Duration::from_secs(ago);
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(at).unwrap();
        };
        touched(40);
        alive(&file, poll).unwrap();
        touched(50);
        let late = alive(&file, poll).unwrap_err();
        assert!(late.to_string().contains("should at least every 45"), "{late}");
        alive(&file, Duration::from_secs(60)).unwrap();
        beat(&file, "one").await;
        alive(&file, poll).unwrap();
    }
}
