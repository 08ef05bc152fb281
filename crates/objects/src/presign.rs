//! Addresses that others may use for one thing, for a short time, without our credentials.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use rusty_s3::S3Action as _;
use rusty_s3::actions::{GetObject, PutObject, UploadPart};

use crate::bucket::{Place, SHA256_HEADER};
use crate::multipart::MAX_PARTS;
use crate::{Bucket, Error, key};

/// The longest that S3 lets a signed address work.
const MAX_SIGNED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// A signed address, and the headers that must be sent with it exactly so.
#[derive(Clone, PartialEq, Eq)]
pub struct Signed {
    /// The address; whoever has it may use it.
    pub url: Url,
    /// Headers by name.
    pub headers: Vec<(&'static str, String)>,
}

impl std::fmt::Debug for Signed {
    /// Without the signature.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signed").field("path", &self.url.path()).finish_non_exhaustive()
    }
}

/// What may be uploaded: exactly this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upload<'a> {
    /// Where to.
    pub key: &'a str,
    /// The media type.
    pub mime_type: &'a str,
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 of the bytes, if it is known before.
    pub sha256: Option<[u8; 32]>,
}

impl Bucket {
    /// An address for one PUT of exactly this: another key, length or type breaks the signature, other
    /// bytes are refused by a store that knows checksums, and an object that is there is not overwritten.
    pub fn presign_put(&self, upload: &Upload<'_>, ttl: Duration) -> Result<Signed, Error> {
        key::check(upload.key)?;
        let mut headers = vec![
            ("content-length", upload.size.to_string()),
            ("content-type", upload.mime_type.to_owned()),
            ("if-none-match", "*".to_owned()),
        ];
        if let Some(hash) = upload.sha256 {
            headers.push((SHA256_HEADER, STANDARD.encode(hash)));
        }
        let Place { bucket, credentials } = &*self.place;
        let mut action = PutObject::new(bucket, Some(credentials), upload.key);
        for (name, value) in &headers {
            action.headers_mut().insert(*name, value.clone());
        }
        Ok(Signed { url: action.sign(seconds(ttl)), headers })
    }

    /// An address for one part of an upload, of exactly `size` bytes.
    pub fn presign_part(
        &self,
        key: &str,
        upload_id: &str,
        number: u16,
        size: u64,
        ttl: Duration,
    ) -> Result<Signed, Error> {
        key::check(key)?;
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(Error::Damaged { code: "InvalidPart".to_owned() });
        }
        let headers = vec![("content-length", size.to_string())];
        let Place { bucket, credentials } = &*self.place;
        let mut action = UploadPart::new(bucket, Some(credentials), key, number, upload_id);
        action.headers_mut().insert("content-length", size.to_string());
        Ok(Signed { url: action.sign(seconds(ttl)), headers })
    }

    /// An address for reading an object.
    pub fn presign_get(&self, key: &str, ttl: Duration) -> Result<Signed, Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let url = GetObject::new(bucket, Some(credentials), key).sign(seconds(ttl));
        Ok(Signed { url, headers: Vec::new() })
    }
}

/// Within what S3 takes.
fn seconds(ttl: Duration) -> Duration {
    ttl.clamp(Duration::from_secs(1), MAX_SIGNED_FOR)
}
