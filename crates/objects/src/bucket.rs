//! A bucket that can be asked: small objects whole, and what is known of an object.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, LAST_MODIFIED};
use reqwest::redirect::Policy;
use reqwest::{Client, Method};
use rusty_s3::actions::{CreateBucket, DeleteObject, GetObject, HeadBucket, HeadObject, PutObject};
use rusty_s3::{Credentials, S3Action as _, UrlStyle};

use crate::request::{Request, SIGNED_FOR, body};
use crate::{Address, Error, Style, key};

/// How long a connection may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// A store that sends nothing for this long has gone.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// The header that carries the SHA-256 of an object, in base64.
pub(crate) const SHA256_HEADER: &str = "x-amz-checksum-sha256";

/// A bucket of a store. Clones share its connections.
#[derive(Clone)]
pub struct Bucket {
    client: Client,
    pub(crate) place: Arc<Place>,
}

/// Where requests go and how they are signed.
pub(crate) struct Place {
    pub(crate) bucket: rusty_s3::Bucket,
    pub(crate) credentials: Credentials,
}

impl std::fmt::Debug for Bucket {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bucket").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// What a store says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its size in bytes.
    pub size: u64,
    /// Its media type, where the store tells.
    pub mime_type: Option<String>,
    /// Its entity tag, as the store writes it.
    pub etag: Option<String>,
    /// Its SHA-256, where it was uploaded with one and the store kept it.
    pub sha256: Option<[u8; 32]>,
    /// When it was written.
    pub modified: Option<Timestamp>,
}

impl Bucket {
    /// A bucket at an address. Nothing is asked yet.
    pub fn new(address: &Address) -> Result<Bucket, Error> {
        // An error only says that a provider is installed already, which is what we want.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A redirect would carry a signature to another host.
        let client = Client::builder()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(SILENT_FOR)
            .build()
            .map_err(|error| Error::Address(error.without_url().to_string()))?;
        let style = match address.style {
            Style::Path => UrlStyle::Path,
            Style::VirtualHost => UrlStyle::VirtualHost,
        };
        if !is_name(&address.bucket) {
            let why = "a bucket's name has 3 to 63 of a-z, 0-9, dots and hyphens";
            return Err(Error::Address(why.to_owned()));
        }
        let bucket = rusty_s3::Bucket::new(
            address.url.clone(),
            style,
            address.bucket.clone(),
            address.region.clone(),
        )
        .map_err(|error| Error::Address(error.to_string()))?;
        let credentials = Credentials::new(address.access_key.clone(), address.secret_key.clone());
        Ok(Bucket { client, place: Arc::new(Place { bucket, credentials }) })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.place.bucket.name()
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Makes the bucket if it is not there.
    pub async fn ensure(&self) -> Result<(), Error> {
        let Place { bucket, credentials } = &*self.place;
        let head = Request { method: Method::HEAD, ..Request::default() };
        let found =
            self.send(head, || HeadBucket::new(bucket, Some(credentials)).sign(SIGNED_FOR)).await;
        match found {
            Ok(_) => return Ok(()),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
        let make = Request { method: Method::PUT, ..Request::default() };
        let made =
            self.send(make, || CreateBucket::new(bucket, credentials).sign(SIGNED_FOR)).await;
        made.map(drop)
    }

    /// Writes an object that must not be there yet.
    ///
    /// When the answer to a first attempt was lost, the second one meets its own object:
    /// [`Error::AlreadyThere`] then means that [`Bucket::head`] decides.
    pub async fn put(&self, key: &str, mime_type: &str, body: Bytes) -> Result<(), Error> {
        self.write(key, mime_type, body, true).await
    }

    /// Writes an object, in place of one that is there.
    pub async fn replace(&self, key: &str, mime_type: &str, body: Bytes) -> Result<(), Error> {
        self.write(key, mime_type, body, false).await
    }

    async fn write(&self, key: &str, mime: &str, body: Bytes, new: bool) -> Result<(), Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let mut headers = vec![("content-type", mime.to_owned())];
        if new {
            headers.push(("if-none-match", "*".to_owned()));
        }
        let address = || {
            let mut action = PutObject::new(bucket, Some(credentials), key);
            for (name, value) in &headers {
                action.headers_mut().insert(*name, value.clone());
            }
            action.sign(SIGNED_FOR)
        };
        let request = Request { method: Method::PUT, headers: headers.clone(), body };
        self.send(request, address).await.map(drop)
    }

    /// Reads a small object into memory; one of more than `limit` bytes is refused.
    pub async fn get(&self, key: &str, limit: u64) -> Result<Vec<u8>, Error> {
        body(self.open(key).await?, limit).await
    }

    /// An object's answer, with its body still to be read.
    pub(crate) async fn open(&self, key: &str) -> Result<reqwest::Response, Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let address = || GetObject::new(bucket, Some(credentials), key).sign(SIGNED_FOR);
        self.send(Request::default(), address).await
    }

    /// What the store says of an object.
    pub async fn head(&self, key: &str) -> Result<Head, Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let mode = ("x-amz-checksum-mode", "ENABLED");
        let address = || {
            let mut action = HeadObject::new(bucket, Some(credentials), key);
            action.headers_mut().insert(mode.0, mode.1);
            action.sign(SIGNED_FOR)
        };
        let headers = vec![(mode.0, mode.1.to_owned())];
        let request = Request { method: Method::HEAD, headers, ..Request::default() };
        head(self.send(request, address).await?.headers())
    }

    /// Removes an object. One that is not there is removed already.
    pub async fn delete(&self, key: &str) -> Result<(), Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let address = || DeleteObject::new(bucket, Some(credentials), key).sign(SIGNED_FOR);
        let request = Request { method: Method::DELETE, ..Request::default() };
        match self.send(request, address).await {
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// 3 to 63 of a-z, 0-9, dots and hyphens; a letter or digit at both ends, no two dots together.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (3..=63).contains(&name.len())
        && name.bytes().all(|b| plain(b) || b == b'-' || b == b'.')
        && name.bytes().next().is_some_and(plain)
        && name.bytes().last().is_some_and(plain)
        && !name.contains("..")
}

fn head(headers: &HeaderMap) -> Result<Head, Error> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let size = text(CONTENT_LENGTH.as_str()).and_then(|size| size.parse().ok());
    let sha256 = text(SHA256_HEADER).and_then(|hash| STANDARD.decode(hash).ok());
    let modified = text(LAST_MODIFIED.as_str());
    Ok(Head {
        size: size.ok_or_else(|| Error::Answer("it has no content-length".to_owned()))?,
        mime_type: text(CONTENT_TYPE.as_str()).map(str::to_owned),
        etag: text(ETAG.as_str()).map(str::to_owned),
        // An object in parts has a hash of hashes, with a suffix: that is none of the object.
        sha256: sha256.and_then(|hash| hash.try_into().ok()),
        modified: modified
            .and_then(|when| jiff::fmt::rfc2822::parse(when).ok())
            .map(|when| when.timestamp()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_buckets() {
        for name in ["media", "a-b.c1", "abc", &"a".repeat(63)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "ab", "Media", "a_b", "-ab", "ab.", "a..b", "../x", &"a".repeat(64)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
