//! Objects from and to files, of any size, in bounded memory.

use std::path::Path;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::multipart::MAX_PARTS;
use crate::request::Request;
use crate::{Bucket, Error};

/// Above this, a file goes in parts of this size, one at a time in memory.
const PART_BYTES: u64 = 16 << 20;
/// How long a part's address works.
const PART_TTL: std::time::Duration = crate::request::SIGNED_FOR;

impl Bucket {
    /// Reads an object into a new file of at most `limit` bytes, and returns its size and SHA-256. The
    /// file is synced; a file that could not be finished is removed.
    pub async fn get_to_file(
        &self,
        key: &str,
        path: &Path,
        limit: u64,
    ) -> Result<(u64, [u8; 32]), Error> {
        let mut file = File::options().write(true).create_new(true).open(path).await?;
        let done = async {
            let found = self.read(key, limit, async |part| Ok(file.write_all(part).await?)).await?;
            file.flush().await?;
            file.sync_all().await?;
            Ok(found)
        };
        let done = done.await;
        if done.is_err() {
            let _ = tokio::fs::remove_file(path).await;
        }
        done
    }

    /// Reads an object to its end, and returns its size and SHA-256.
    pub async fn hash(&self, key: &str, limit: u64) -> Result<(u64, [u8; 32]), Error> {
        self.read(key, limit, async |_| Ok(())).await
    }

    async fn read(
        &self,
        key: &str,
        limit: u64,
        mut take: impl AsyncFnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(u64, [u8; 32]), Error> {
        let mut answer = self.open(key).await?;
        let announced = answer.content_length();
        let (mut size, mut hash) = (0_u64, Sha256::new());
        while let Some(part) = answer.chunk().await? {
            size += part.len() as u64;
            if size > limit {
                return Err(Error::TooLarge { limit });
            }
            hash.update(&part);
            take(&part).await?;
        }
        match announced {
            Some(announced) if announced != size => {
                Err(Error::Away("the object ended before its end".to_owned()))
            }
            _ => Ok((size, hash.finalize().into())),
        }
    }

    /// Writes a file as an object that must not be there yet, in parts if it is large. Returns its size
    /// and SHA-256.
    pub async fn put_file(
        &self,
        key: &str,
        mime_type: &str,
        path: &Path,
    ) -> Result<(u64, [u8; 32]), Error> {
        let mut file = File::open(path).await?;
        let size = file.metadata().await?.len();
        let part_bytes = PART_BYTES.max(size.div_ceil(u64::from(MAX_PARTS)));
        if size <= part_bytes {
            let body = part(&mut file, part_bytes).await?;
            let found = (body.len() as u64, Sha256::digest(&body).into());
            self.put(key, mime_type, body).await?;
            return Ok(found);
        }
        let upload_id = self.create_upload(key, mime_type).await?;
        let done = self.put_parts(key, &upload_id, &mut file, part_bytes).await;
        if done.is_err() {
            // Should this fail too, the upload stays open, and whoever sweeps the bucket aborts it.
            let _ = self.abort_upload(key, &upload_id).await;
        }
        done
    }

    async fn put_parts(
        &self,
        key: &str,
        upload_id: &str,
        file: &mut File,
        part_bytes: u64,
    ) -> Result<(u64, [u8; 32]), Error> {
        let (mut etags, mut size, mut hash) = (Vec::new(), 0_u64, Sha256::new());
        for number in 1..=MAX_PARTS {
            let body = part(file, part_bytes).await?;
            if body.is_empty() {
                break;
            }
            size += body.len() as u64;
            hash.update(&body);
            etags.push(self.put_part(key, upload_id, number, body).await?);
        }
        self.complete_upload(key, upload_id, &etags).await?;
        Ok((size, hash.finalize().into()))
    }

    /// Writes one part, and returns its entity tag.
    pub async fn put_part(
        &self,
        key: &str,
        upload_id: &str,
        number: u16,
        body: Bytes,
    ) -> Result<String, Error> {
        let size = body.len() as u64;
        let sign = || self.presign_part(key, upload_id, number, size, PART_TTL);
        let first = sign()?;
        let request = Request { method: reqwest::Method::PUT, headers: Vec::new(), body };
        let address = || sign().map_or_else(|_| first.url.clone(), |signed| signed.url);
        let answer = self.send(request, address).await?;
        let etag = answer.headers().get(reqwest::header::ETAG);
        let etag = etag.and_then(|tag| tag.to_str().ok());
        etag.map(str::to_owned).ok_or_else(|| Error::Answer("a part has no etag".to_owned()))
    }
}

/// The next bytes of a file, fewer at its end.
async fn part(file: &mut File, most: u64) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    file.take(most).read_to_end(&mut body).await?;
    Ok(body.into())
}
