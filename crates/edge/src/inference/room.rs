//! Where an image lies while the model looks at it: a directory that goes with its job.
//!
//! A worker that is killed leaves its directories behind, with the images in them. Each has a file that its worker holds
//! locked; the system lets go of it when the worker is dead. So whoever starts next, on the same machine, can tell what is
//! left over from what another worker is at.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

const PREFIX: &str = "holdfast-inference-";
const LOCK: &str = "lock";
const INSIDE: &str = "work";

/// A directory for one image. Dropping it removes it.
pub(super) struct Room {
    directory: TempDir,
    _lock: File,
}

impl Room {
    pub(super) fn new() -> io::Result<Room> {
        Room::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> io::Result<Room> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create_new(directory.path().join(LOCK))?;
        lock.try_lock()?;
        std::fs::create_dir(directory.path().join(INSIDE))?;
        Ok(Room { directory, _lock: lock })
    }

    /// The empty directory in it.
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join(INSIDE)
    }
}

/// Removes what killed workers left. What cannot be looked at or removed is another user's, and stays.
pub(super) fn clear() {
    clear_within(&std::env::temp_dir());
}

fn clear_within(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        // A link is not a directory here, and is not followed.
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // One without its file is being made.
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if lock.try_lock().is_ok() && std::fs::remove_dir_all(entry.path()).is_ok() {
            tracing::info!("the directory of an inference worker that was killed is removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_worker_left_goes_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let (left, used) =
            (Room::within(parent.path()).unwrap(), Room::within(parent.path()).unwrap());
        std::fs::write(left.path().join("image.jpg"), b"a").unwrap();
        // As a kill does: the lock goes, the directory stays.
        let Room { directory, _lock: lock } = left;
        let left = directory.keep();
        drop(lock);
        for other in ["holdfast-inference-new", "holdfast-other", "inference"] {
            std::fs::create_dir(parent.path().join(other)).unwrap();
        }
        std::fs::write(parent.path().join("holdfast-other").join(LOCK), b"").unwrap();
        clear_within(parent.path());
        assert!(!left.exists());
        assert!(used.path().is_dir());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 4);
        drop(used);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 3);
    }
}
