//! Where backups are: one folder each, and how one comes to be and goes.
//!
//! A folder named `….partial` is not a backup. Whoever works on it holds a lock on the file `lock` in it; so does `pg_dump`,
//! which may outlive a killed `create` for a moment. A partial folder that nobody holds is a leftover.

use std::fs::{File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use rustix::io::FdFlags;
use serde::Serialize;

use super::Role;
use super::disk;
use super::manifest::{MANIFEST, Manifest};

/// The file that whoever works on a folder holds.
pub(super) const LOCK: &str = "lock";
const PARTIAL: &str = ".partial";

/// The folder with all backups.
#[derive(Debug, Clone)]
pub(super) struct Store {
    pub(super) path: PathBuf,
}

/// What a store holds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Found {
    /// Whole backups, the newest first.
    pub(super) backups: Vec<Summary>,
    /// What is not a backup: work under way, or what a crash left.
    pub(super) unfinished: Vec<Unfinished>,
    /// Folders whose manifest cannot be read.
    pub(super) damaged: Vec<String>,
}

/// A backup in a list.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Summary {
    pub(super) id: String,
    pub(super) role: Role,
    pub(super) finished_at: Timestamp,
    pub(super) bytes: u64,
    pub(super) database_bytes: i64,
    pub(super) streams: usize,
    pub(super) objects: u64,
}

/// A folder that is no backup.
#[derive(Debug, Serialize)]
pub(super) struct Unfinished {
    pub(super) name: String,
    /// Whether someone works on it now.
    pub(super) under_way: bool,
}

impl Found {
    /// The newest backup first.
    pub(super) fn sort(&mut self) {
        self.backups.sort_by_key(|one| std::cmp::Reverse((one.finished_at, one.id.clone())));
        self.unfinished.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// A backup, or the newest one of a role.
    pub(super) fn pick(&self, id: Option<&str>, role: Option<Role>) -> anyhow::Result<&Summary> {
        let backup = self.backups.iter().find(|one| match id {
            Some(id) => one.id == id,
            None => role.is_none_or(|role| one.role == role),
        });
        backup.with_context(|| match id {
            Some(id) => format!("there is no backup {id}: see holdfast backup list"),
            None => "there is no backup yet: make one with holdfast backup create".to_owned(),
        })
    }

    /// The backups of a role that are older, and never the newest.
    pub(super) fn expired(&self, role: Role, older_than: Timestamp) -> Vec<String> {
        let of_role = self.backups.iter().filter(|one| one.role == role).skip(1);
        of_role.filter(|one| one.finished_at < older_than).map(|one| one.id.clone()).collect()
    }
}

impl Store {
    /// A store that must be there.
    pub(super) fn existing(path: &Path) -> anyhow::Result<Store> {
        anyhow::ensure!(
            path.is_dir(),
            "{} is no folder: make a backup with --to first",
            path.display()
        );
        Ok(Store { path: path.to_owned() })
    }

    /// A store, made if need be and closed to other users.
    pub(super) fn open(path: &Path) -> anyhow::Result<Store> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .with_context(|| format!("make {}", path.display()))?;
        Ok(Store { path: path.canonicalize()? })
    }

    /// Everything in it.
    pub(super) fn list(&self) -> anyhow::Result<Found> {
        let mut found = Found::default();
        let entries = std::fs::read_dir(&self.path)
            .with_context(|| format!("read {}", self.path.display()))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(PARTIAL) {
                let under_way = hold(&entry.path())?.is_none();
                found.unfinished.push(Unfinished { name, under_way });
            } else if entry.path().join(MANIFEST).is_file() {
                match Manifest::read(&entry.path()) {
                    Ok(manifest) => found.backups.push(summary(&manifest)),
                    Err(error) => found.damaged.push(format!("{error:#}")),
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes what crashes left; returns their names.
    pub(super) fn clean(&self) -> anyhow::Result<Vec<String>> {
        let mut removed = Vec::new();
        for one in self.list()?.unfinished {
            let path = self.path.join(&one.name);
            if let Some(_lock) = hold(&path)? {
                std::fs::remove_dir_all(&path)
                    .with_context(|| format!("remove {}", path.display()))?;
                removed.push(one.name);
            }
        }
        Ok(removed)
    }

    /// Begins a backup.
    pub(super) fn begin(&self, id: &str) -> anyhow::Result<Partial> {
        let path = self.path.join(format!("{id}{PARTIAL}"));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("make {}", path.display()))?;
        let lock = hold(&path)?.context("another process took the new folder")?;
        Ok(Partial { store: self.clone(), id: id.to_owned(), path, lock, finished: false })
    }

    /// Removes whole backups of a role that are older, and never the newest.
    pub(super) fn prune(&self, role: Role, older_than: Timestamp) -> anyhow::Result<Vec<String>> {
        let expired = self.list()?.expired(role, older_than);
        for id in &expired {
            // It stops being a backup before the first file goes.
            let gone = self.path.join(format!("{id}{PARTIAL}"));
            disk::rename(&self.path.join(id), &gone)?;
            // Another create may be removing it as a leftover by now.
            if let Some(_lock) = hold(&gone)? {
                std::fs::remove_dir_all(&gone)?;
            }
        }
        Ok(expired)
    }
}

pub(super) fn summary(manifest: &Manifest) -> Summary {
    Summary {
        id: manifest.id.clone(),
        role: manifest.role,
        finished_at: manifest.finished_at,
        bytes: manifest.bytes(),
        database_bytes: manifest.database_bytes,
        streams: manifest.ledger.streams.len(),
        objects: manifest.objects.count,
    }
}

/// Takes the lock of a folder; `None` if someone else holds it.
fn hold(folder: &Path) -> anyhow::Result<Option<File>> {
    let path = folder.join(LOCK);
    let file = File::options().create(true).write(true).truncate(false).mode(0o600).open(&path);
    let file = match file {
        Ok(file) => file,
        // It has just become whole, or was removed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("open {}", path.display())),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

/// A backup in the making. Dropped before it is finished, it is removed.
#[derive(Debug)]
pub(super) struct Partial {
    store: Store,
    id: String,
    pub(super) path: PathBuf,
    lock: File,
    finished: bool,
}

impl Partial {
    /// Lets the programs that are started from now on hold the lock too.
    pub(super) fn share_lock(&self) -> anyhow::Result<()> {
        rustix::io::fcntl_setfd(&self.lock, FdFlags::empty())?;
        Ok(())
    }

    /// Writes the manifest and makes it a backup.
    pub(super) fn finish(mut self, manifest: &Manifest) -> anyhow::Result<PathBuf> {
        manifest.write(&self.path)?;
        let whole = self.store.path.join(&self.id);
        // The lock goes after the rename: before it, another create would take the folder for a leftover.
        disk::rename(&self.path, &whole)?;
        self.finished = true;
        std::fs::remove_file(whole.join(LOCK))?;
        Ok(whole)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            // The next create removes what this leaves.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// So many days ago.
pub(super) fn days_ago(days: u32) -> Timestamp {
    let age = SignedDuration::from_hours(24 * i64::from(days));
    Timestamp::now().checked_sub(age).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn manifest(id: &str, age_days: u32) -> Manifest {
        Manifest {
            format: super::super::manifest::FORMAT,
            id: id.to_owned(),
            role: Role::Edge,
            started_at: days_ago(age_days),
            finished_at: days_ago(age_days),
            holdfast_version: String::new(),
            postgres_version: String::new(),
            pg_dump_version: String::new(),
            database_bytes: 0,
            tables: BTreeMap::new(),
            ledger: Default::default(),
            objects: Default::default(),
            files: Vec::new(),
        }
    }

    #[test]
    fn a_folder_is_a_backup_once_it_is_finished_and_a_leftover_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("backups")).unwrap();
        let partial = store.begin("edge-1").unwrap();
        let found = store.list().unwrap();
        assert!(found.backups.is_empty());
        assert!(found.unfinished[0].under_way);
        assert!(store.clean().unwrap().is_empty(), "work under way is left alone");
        partial.finish(&manifest("edge-1", 0)).unwrap();
        let found = store.list().unwrap();
        assert_eq!((found.backups.len(), found.unfinished.len()), (1, 0));
        // What a kill leaves: a folder, perhaps with a manifest, whose lock nobody holds.
        let left = store.path.join("edge-2.partial");
        std::fs::create_dir(&left).unwrap();
        manifest("edge-2", 0).write(&left).unwrap();
        let found = store.list().unwrap();
        assert_eq!((found.backups.len(), found.unfinished[0].under_way), (1, false));
        assert_eq!(store.clean().unwrap(), ["edge-2.partial"]);
        drop(store.begin("edge-3").unwrap());
        assert!(store.list().unwrap().unfinished.is_empty(), "a failure cleans up after itself");
    }

    #[test]
    fn old_backups_go_and_the_newest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        for (id, age) in [("edge-a", 50), ("edge-b", 40), ("edge-c", 20)] {
            store.begin(id).unwrap().finish(&manifest(id, age)).unwrap();
        }
        assert!(store.prune(Role::Cloud, days_ago(1)).unwrap().is_empty());
        assert_eq!(store.prune(Role::Edge, days_ago(30)).unwrap(), ["edge-b", "edge-a"]);
        assert!(store.prune(Role::Edge, days_ago(1)).unwrap().is_empty());
        let found = store.list().unwrap();
        assert_eq!(found.pick(None, None).unwrap().id, "edge-c");
        assert!(found.pick(Some("edge-a"), None).is_err());
    }
}
