//! Objects as files: staged, published, read, removed. Everything here blocks.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::record::{self, Metadata};
use super::{disk, uploads};
use crate::bucket::is_name;
use crate::key;

/// A folder of buckets, which this process alone writes.
#[derive(Debug)]
pub(super) struct Store {
    root: PathBuf,
    /// Folders are made and removed by one at a time: one that is emptied is not removed under a writer.
    folders: Mutex<()>,
    _lock: File,
}

/// A file that is being written, or is written and has no name yet. It goes unless it is published.
#[derive(Debug)]
pub(super) struct Staged {
    path: PathBuf,
}

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Why something is not there to be worked on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("no such bucket")]
    NoBucket,
    #[error("no such object")]
    NoObject,
    #[error("an object is there")]
    Exists,
    #[error("the key is not sound")]
    Key,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Store {
    /// Opens a folder, and clears what a crash left in staging.
    pub(super) fn open(root: &Path) -> io::Result<Store> {
        fs::create_dir_all(root)?;
        let lock = File::options().create(true).append(true).open(root.join("lock"))?;
        lock.try_lock().map_err(|_| io::Error::other("another process serves this folder"))?;
        for name in ["staging", "buckets"] {
            disk::make_folders(root, &root.join(name))?;
        }
        for entry in fs::read_dir(root.join("staging"))? {
            fs::remove_file(entry?.path())?;
        }
        uploads::clear_unnamed(&root.join("buckets"))?;
        Ok(Store { root: root.to_owned(), folders: Mutex::new(()), _lock: lock })
    }

    fn folders(&self) -> MutexGuard<'_, ()> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of the buckets.
    pub(super) fn buckets(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join("buckets"))? {
            names.extend(
                entry?.file_name().to_str().filter(|name| is_name(name)).map(str::to_owned),
            );
        }
        names.sort();
        Ok(names)
    }

    /// Makes a bucket; one that is there stays as it is.
    pub(super) fn make_bucket(&self, bucket: &str) -> Result<(), Error> {
        if !is_name(bucket) {
            return Err(Error::NoBucket);
        }
        let folder = self.root.join("buckets").join(bucket);
        let _alone = self.folders();
        for name in ["objects", "uploads"] {
            disk::make_folders(&self.root, &folder.join(name))?;
        }
        Ok(())
    }

    /// The folder of a bucket that is there.
    pub(super) fn bucket(&self, bucket: &str) -> Result<PathBuf, Error> {
        let folder = self.root.join("buckets").join(bucket);
        if is_name(bucket) && folder.is_dir() { Ok(folder) } else { Err(Error::NoBucket) }
    }

    /// The file of an object, and the folder that all objects of its bucket are in.
    fn object(&self, bucket: &str, key: &str) -> Result<(PathBuf, PathBuf), Error> {
        key::check(key).map_err(|_| Error::Key)?;
        let root = self.bucket(bucket)?.join("objects");
        let mut path = root.clone();
        let (folders, name) = key.rsplit_once('/').map_or((None, key), |(a, b)| (Some(a), b));
        for part in folders.into_iter().flat_map(|folders| folders.split('/')) {
            path.push(format!("{part}.d"));
        }
        path.push(format!("{name}.o"));
        Ok((path, root))
    }

    /// A new file to write to.
    pub(super) fn stage(&self) -> io::Result<(Staged, File)> {
        let path = self.root.join("staging").join(Uuid::new_v4().simple().to_string());
        let file = File::options().create_new(true).read(true).write(true).open(&path)?;
        Ok((Staged { path }, file))
    }

    /// Publishes a staged and synced file as an object.
    pub(super) fn publish(
        &self,
        bucket: &str,
        key: &str,
        staged: &Staged,
        new: bool,
    ) -> Result<(), Error> {
        let (path, root) = self.object(bucket, key)?;
        if new && path.exists() {
            return Err(Error::Exists);
        }
        let _alone = self.folders();
        if let Some(folder) = path.parent() {
            disk::make_folders(&root, folder)?;
        }
        let published = if new {
            disk::publish_new(&staged.path, &path)
        } else {
            disk::publish(&staged.path, &path)
        };
        published.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists,
            _ => Error::Io(error),
        })
    }

    /// Publishes a staged and synced file under a path of an upload, in place of what is there.
    pub(super) fn publish_at(&self, staged: &Staged, path: &Path) -> io::Result<()> {
        disk::publish(&staged.path, path)
    }

    /// Opens an object: its file, at the beginning, its size and metadata.
    pub(super) fn read(&self, bucket: &str, key: &str) -> Result<(File, u64, Metadata), Error> {
        let (path, _) = self.object(bucket, key)?;
        let mut file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NoObject,
            _ => Error::Io(error),
        })?;
        let (size, metadata) = record::read(&mut file)?;
        Ok((file, size, metadata))
    }

    /// Removes an object, if it is there.
    pub(super) fn remove(&self, bucket: &str, key: &str) -> Result<(), Error> {
        let (path, root) = self.object(bucket, key)?;
        let _alone = self.folders();
        disk::remove(&path)?;
        if let Some(folder) = path.parent() {
            disk::prune(&root, folder);
        }
        Ok(())
    }
}
