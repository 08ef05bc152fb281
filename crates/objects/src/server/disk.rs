//! All links, renames, removals and syncs of the store, so that it can be read in one place which are made.
//!
//! A name is there after a power cut only when its folder was synced; a file's bytes only when the file was.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Syncs the names in a folder.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Makes the folders from `root` down to `folder`, each durable in its parent.
pub(super) fn make_folders(root: &Path, folder: &Path) -> io::Result<()> {
    if folder == root || folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        make_folders(root, parent)?;
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => sync_folder(parent)?,
        }
    }
    Ok(())
}

/// Gives a synced file its name, if nothing has that name. The old name goes.
pub(super) fn publish_new(from: &Path, to: &Path) -> io::Result<()> {
    // A link fails where a rename would replace.
    fs::hard_link(from, to)?;
    let _ = fs::remove_file(from);
    sync_parent(to)
}

/// Gives a synced file its name, in place of what has it.
#[expect(clippy::disallowed_methods, reason = "this is the crate's one disk module")]
pub(super) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_parent(to)
}

/// Removes a file; returns whether it was there.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => sync_parent(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes folders that are empty, from `folder` up to but without `root`.
pub(super) fn prune(root: &Path, folder: &Path) {
    let mut folder = folder;
    // An emptied folder that survives a power cut is harmless, so nothing is synced.
    while folder != root && fs::remove_dir(folder).is_ok() {
        match folder.parent() {
            Some(parent) => folder = parent,
            None => return,
        }
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}
