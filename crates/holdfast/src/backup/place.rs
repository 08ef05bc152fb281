//! Where a command's backups are: a folder, or the bucket of the `[backup]` section.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::Role;
use super::config::Config;
use super::folder::{Found, Partial, Store};
use super::manifest::Manifest;
use super::objects::Copies;
use super::remote::Remote;

/// The word for the bucket; a folder of this name is `./s3`.
const S3: &str = "s3";

/// A folder or a bucket with backups.
pub(super) enum Place {
    Folder(Store),
    Bucket(Remote),
}

impl Place {
    /// For making backups: a folder is made if need be.
    pub(super) fn open(name: &Path, config: Option<&Path>) -> anyhow::Result<Place> {
        match name.as_os_str() == S3 {
            true => Ok(Place::Bucket(Remote::new(&Config::load(config)?)?)),
            false => Ok(Place::Folder(Store::open(name)?)),
        }
    }

    /// For using them: a folder must be there.
    pub(super) fn existing(name: &Path, config: Option<&Path>) -> anyhow::Result<Place> {
        match name.as_os_str() == S3 {
            true => Place::open(name, config),
            false => Ok(Place::Folder(Store::existing(name)?)),
        }
    }

    pub(super) async fn list(&self) -> anyhow::Result<Found> {
        match self {
            Place::Folder(store) => store.list(),
            Place::Bucket(remote) => remote.list().await,
        }
    }

    /// Removes what crashes left; returns their names.
    pub(super) async fn clean(&self) -> anyhow::Result<Vec<String>> {
        match self {
            Place::Folder(store) => store.clean(),
            Place::Bucket(remote) => remote.clean().await,
        }
    }

    /// Removes whole backups of a role that are older, and never the newest.
    pub(super) async fn prune(
        &self,
        role: Role,
        older_than: Timestamp,
    ) -> anyhow::Result<Vec<String>> {
        match self {
            Place::Folder(store) => store.prune(role, older_than),
            Place::Bucket(remote) => remote.prune(role, older_than).await,
        }
    }

    /// The folder in which a new backup is made.
    pub(super) fn begin(&self, id: &str) -> anyhow::Result<Partial> {
        match self {
            Place::Folder(store) => store.begin(id),
            Place::Bucket(remote) => remote.scratch.begin(id),
        }
    }

    /// Where a new backup's objects go.
    pub(super) fn copies<'a>(&'a self, id: &'a str, folder: &'a Path) -> Copies<'a> {
        match self {
            Place::Folder(_) => Copies::Folder(folder),
            Place::Bucket(remote) => Copies::Bucket { remote, id, scratch: folder },
        }
    }

    /// Makes what was begun a backup, by its manifest.
    pub(super) async fn finish(&self, partial: Partial, manifest: &Manifest) -> anyhow::Result<()> {
        match self {
            Place::Folder(_) => partial.finish(manifest).map(drop),
            Place::Bucket(remote) => remote.upload(&partial.path, manifest).await,
        }
    }

    /// A backup, or the newest one of a role, with its files at hand.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        role: Option<Role>,
    ) -> anyhow::Result<Fetched> {
        let found = self.list().await?;
        let id = &found.pick(id, role)?.id;
        match self {
            Place::Folder(store) => {
                let folder = store.path.join(id);
                Ok(Fetched { manifest: Manifest::read(&folder)?, folder, remote: None })
            }
            Place::Bucket(remote) => {
                let (manifest, partial) = remote.fetch(id).await?;
                let folder = partial.path.clone();
                Ok(Fetched { manifest, folder, remote: Some((remote.clone(), partial)) })
            }
        }
    }

    /// Leaves a report beside the backups; returns where it is.
    pub(super) async fn leave(&self, name: &str, text: Vec<u8>) -> anyhow::Result<String> {
        match self {
            Place::Folder(store) => {
                let folder = store.path.join("reports");
                std::fs::create_dir_all(&folder)?;
                let file = folder.join(name);
                std::fs::write(&file, text)?;
                Ok(file.display().to_string())
            }
            Place::Bucket(remote) => {
                let key = remote.key("reports", name);
                remote.bucket.replace(&key, "text/plain", text.into()).await?;
                Ok(format!("{key} in {}", remote.bucket.name()))
            }
        }
    }
}

/// A backup with its files in a folder; its copied objects may be in the bucket.
pub(super) struct Fetched {
    pub(super) manifest: Manifest,
    pub(super) folder: PathBuf,
    /// The bucket it came from, and the scratch folder, which goes with this.
    remote: Option<(Remote, Partial)>,
}

impl Fetched {
    /// Where its copied objects are.
    pub(super) fn copies(&self) -> Copies<'_> {
        match &self.remote {
            None => Copies::Folder(&self.folder),
            Some((remote, partial)) => {
                Copies::Bucket { remote, id: &self.manifest.id, scratch: &partial.path }
            }
        }
    }
}
