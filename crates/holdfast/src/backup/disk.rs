//! The one place of backups that renames.

use std::fs::File;
use std::io;
use std::path::Path;

/// Renames, and syncs the folder of the new name: after it the rename holds through a power cut. What is renamed must be synced
/// before.
#[expect(clippy::disallowed_methods, reason = "this is the module that syncs the folder")]
pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    match to.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
