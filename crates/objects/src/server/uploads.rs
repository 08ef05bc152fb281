//! Uploads in parts, as folders of files. Everything here blocks.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::record::{self, Metadata};
use super::store::{Error, Staged, Store};

/// The file that tells of an upload.
const UPLOAD: &str = "upload";

/// Removes what is left of uploads that a crash met while they were opened or removed.
pub(super) fn clear_unnamed(buckets: &Path) -> io::Result<()> {
    for bucket in fs::read_dir(buckets)? {
        let uploads = match fs::read_dir(bucket?.path().join("uploads")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            uploads => uploads?,
        };
        for upload in uploads {
            let upload = upload?.path();
            if !upload.join(UPLOAD).exists() {
                fs::remove_dir_all(upload)?;
            }
        }
    }
    Ok(())
}

impl Store {
    /// The folder of an upload that is open, for this key.
    fn upload(&self, bucket: &str, key: &str, id: &str) -> Result<(PathBuf, Metadata), Error> {
        // An id is a UUID of ours; nothing else becomes a path.
        let id = Uuid::parse_str(id).map_err(|_| Error::NoObject)?;
        let folder = self.bucket(bucket)?.join("uploads").join(id.simple().to_string());
        let about = one(&folder.join(UPLOAD))?.map(|(_, metadata)| metadata);
        let about = about.filter(|metadata| metadata.key == key);
        about.map(|metadata| (folder, metadata)).ok_or(Error::NoObject)
    }

    /// Opens an upload.
    pub(super) fn open_upload(&self, bucket: &str, about: &Metadata) -> Result<String, Error> {
        crate::key::check(&about.key).map_err(|_| Error::Key)?;
        let uploads = self.bucket(bucket)?.join("uploads");
        let id = Uuid::new_v4().simple().to_string();
        let folder = uploads.join(&id);
        let (staged, mut file) = self.stage()?;
        record::finish(&mut file, about)?;
        file.sync_all()?;
        super::disk::make_folders(&uploads, &folder)?;
        self.publish_at(&staged, &folder.join(UPLOAD))?;
        Ok(id)
    }

    /// The media type that an upload was opened with.
    pub(super) fn upload_type(&self, bucket: &str, key: &str, id: &str) -> Result<String, Error> {
        Ok(self.upload(bucket, key, id)?.1.mime_type)
    }

    /// Publishes a staged and synced file as a part.
    pub(super) fn publish_part(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        number: u16,
        staged: &Staged,
    ) -> Result<(), Error> {
        let (folder, _) = self.upload(bucket, key, id)?;
        Ok(self.publish_at(staged, &folder.join(format!("{number:05}")))?)
    }

    /// The parts that are there, by number.
    pub(super) fn parts(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
    ) -> Result<Vec<(u16, u64, Metadata)>, Error> {
        let (folder, _) = self.upload(bucket, key, id)?;
        let mut parts = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            let (size, metadata) = record::read(&mut File::open(entry.path())?)?;
            parts.push((number, size, metadata));
        }
        parts.sort_by_key(|part| part.0);
        Ok(parts)
    }

    /// Opens the bytes of a part.
    pub(super) fn part(
        &self,
        bucket: &str,
        key: &str,
        id: &str,
        number: u16,
    ) -> Result<io::Take<File>, Error> {
        let (folder, _) = self.upload(bucket, key, id)?;
        let mut file = File::open(folder.join(format!("{number:05}")))?;
        let (size, _) = record::read(&mut file)?;
        Ok(file.take(size))
    }

    /// Removes an upload and its parts.
    pub(super) fn remove_upload(&self, bucket: &str, key: &str, id: &str) -> Result<(), Error> {
        let (folder, _) = self.upload(bucket, key, id)?;
        // Its name goes first: without it the rest is no upload any more, whatever a crash leaves.
        super::disk::remove(&folder.join(UPLOAD))?;
        Ok(fs::remove_dir_all(folder)?)
    }

    /// Open uploads whose keys begin so, in the order of their keys.
    pub(super) fn uploads(
        &self,
        bucket: &str,
        prefix: &str,
    ) -> Result<Vec<(String, Metadata)>, Error> {
        let mut uploads = Vec::new();
        for entry in fs::read_dir(self.bucket(bucket)?.join("uploads"))? {
            let entry = entry?;
            let Some((_, metadata)) = one(&entry.path().join(UPLOAD))? else { continue };
            if let Some(id) = entry.file_name().to_str()
                && metadata.key.starts_with(prefix)
            {
                uploads.push((id.to_owned(), metadata));
            }
        }
        uploads.sort_by(|a, b| (&a.1.key, &a.0).cmp(&(&b.1.key, &b.0)));
        Ok(uploads)
    }
}

fn one(path: &Path) -> Result<Option<(u64, Metadata)>, Error> {
    match File::open(path) {
        Ok(mut file) => Ok(Some(record::read(&mut file)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
