//! The one place where the console writes a file: what was told of alerts.
//!
//! Promise: after a power cut the file is the one before or the new one, never a part. The sequence is: temporary file in the same folder, fsync of it,
//! rename, fsync of the folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::told::Told;

/// The largest file; what is kept is bounded far below.
const MAX_BYTES: u64 = 64 << 20;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It is not ours, or is damaged.
    #[error("it is no state of ours: move it away, and what holds is told again ({0})")]
    Odd(String),
}

/// What the file has; nothing when there is none.
pub(super) fn load(file: &Path) -> Result<Told, StateError> {
    let size = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Told::default()),
        Err(error) => return Err(error.into()),
    };
    if size > MAX_BYTES {
        return Err(StateError::Odd(format!("{size} bytes")));
    }
    let bytes = std::fs::read(file)?;
    serde_json::from_slice(&bytes).map_err(|error| StateError::Odd(error.to_string()))
}

/// Replaces the file.
#[expect(clippy::disallowed_methods, reason = "this is the crate's one disk module")]
pub(super) fn save(file: &Path, told: &Told) -> io::Result<()> {
    let beside = file.with_extension("new");
    let mut open = OpenOptions::new();
    let mut new = open.write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    new.write_all(&serde_json::to_vec(told)?)?;
    new.sync_all()?;
    std::fs::rename(&beside, file)?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_kept_whole_and_what_is_not_ours_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("alerts.json");
        assert_eq!(load(&file).unwrap(), Told::default());
        save(&file, &Told::default()).unwrap();
        assert_eq!(load(&file).unwrap(), Told::default());
        std::fs::write(&file, "no state").unwrap();
        assert!(matches!(load(&file), Err(StateError::Odd(_))));
        assert!(save(Path::new("/nowhere/at/all/x"), &Told::default()).is_err());
    }
}
