//! The one place where the edge writes files.
//!
//! Promise: a reader sees the old file or the new one, never a part, also after a power cut. The
//! sequence is: temporary file in the same folder, mode set before content, fsync of the file,
//! rename, fsync of the folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

/// Replaces `path` with `content`, readable by its owner alone.
///
/// The owner is the folder's owner: Mosquitto reads its files as its own user, and the folder says
/// which one that is. Only root can give files away; anyone else keeps their own.
pub(crate) fn replace(path: &Path, content: &str) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(temporary);
    let written = write(&temporary, folder, content).and_then(|()| rename(&temporary, path));
    if written.is_err() {
        // What went wrong is worth more than a failure to tidy up after it.
        let _ = std::fs::remove_file(&temporary);
        return written;
    }
    File::open(folder)?.sync_all()
}

fn write(temporary: &Path, folder: &Path, content: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    let owner = std::fs::metadata(folder)?;
    if file.metadata()?.uid() != owner.uid() {
        fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
    }
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

#[expect(clippy::disallowed_methods, reason = "this is the crate's one disk module")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        for content in ["a\n", "b\nc\n"] {
            replace(&path, content).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        assert!(replace(&path, "x").is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
