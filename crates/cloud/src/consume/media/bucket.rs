//! A bucket of an S3 store: objects are read and written whole, by signed addresses.

use std::time::Duration;

use reqwest::{Client, StatusCode, Url};
use rusty_s3::actions::{GetObject, PutObject};
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use settings::Section;

/// How long a signed address works: longer than any one copy takes.
const SIGNED_FOR: Duration = Duration::from_secs(600);
/// How long one object may take.
const OBJECT_WITHIN: Duration = Duration::from_secs(120);
/// The largest object that is copied; it is held in memory.
pub(super) const MAX_OBJECT_BYTES: u64 = 64 << 20;

/// From where to where objects are copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stores {
    /// The sites' store.
    pub source: Address,
    /// The cloud's store.
    pub store: Address,
}

/// Where a bucket is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The store.
    pub url: Url,
    /// The bucket.
    pub bucket: String,
    /// The region it says it is in.
    pub region: String,
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
}

impl std::fmt::Debug for Address {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        f.debug_struct("Address").field("host", &host).field("bucket", &self.bucket).finish()
    }
}

impl Stores {
    /// Both, neither, or a refusal that says which key is missing.
    pub(crate) fn from_section(section: &Section) -> Result<Option<Stores>, settings::Error> {
        let there = |side: &str| section.find(&format!("media.{side}.url"));
        let (source, store) = match (there("source")?, there("store")?) {
            (None, None) => return Ok(None),
            (Some(_), None) => {
                let why = "is missing: media.source.url is set, and a copy needs both stores";
                return Err(section.refuse("media.store.url", why));
            }
            (None, Some(_)) => {
                let why = "is missing: media.store.url is set, and a copy needs both stores";
                return Err(section.refuse("media.source.url", why));
            }
            (Some(_), Some(_)) => (read(section, "source")?, read(section, "store")?),
        };
        Ok(Some(Stores { source, store }))
    }
}

fn read(section: &Section, side: &str) -> Result<Address, settings::Error> {
    let key = |name: &str| format!("media.{side}.{name}");
    let secret = |name: &str| match section.find(&key(name))? {
        Some(value) => Ok(value.secret().expose().to_owned()),
        None => Err(section.refuse(&key(name), "is missing: the store wants signed requests")),
    };
    let url: Url = section.get(&key("url"))?.parse()?;
    let address = Address {
        url,
        bucket: section.get(&key("bucket"))?.text(),
        region: section.get(&key("region"))?.text(),
        access_key: secret("access_key")?,
        secret_key: secret("secret_key")?,
    };
    match address.bucket() {
        Ok(_) => Ok(address),
        Err(why) => Err(section.refuse(&key("url"), why)),
    }
}

impl Address {
    fn bucket(&self) -> Result<Bucket, String> {
        let (name, region) = (self.bucket.clone(), self.region.clone());
        Bucket::new(self.url.clone(), UrlStyle::Path, name, region).map_err(|why| why.to_string())
    }
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// About the store or the way to it: the object is not to blame.
    #[error("{0}")]
    Away(String),
    /// About the object.
    #[error("{message}")]
    Object {
        /// A short word.
        code: &'static str,
        /// In words, without the signed address.
        message: String,
    },
}

impl Error {
    pub(super) fn object(code: &'static str, message: impl Into<String>) -> Error {
        Error::Object { code, message: message.into() }
    }
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Error {
        // An address holds a signature: it stays out of logs.
        Error::Away(error.without_url().to_string())
    }
}

/// A bucket that can be asked.
pub(super) struct Objects {
    client: Client,
    bucket: Bucket,
    credentials: Credentials,
}

impl Objects {
    pub(super) fn new(client: &Client, address: &Address) -> Result<Objects, String> {
        Ok(Objects {
            client: client.clone(),
            bucket: address.bucket()?,
            credentials: Credentials::new(address.access_key.clone(), address.secret_key.clone()),
        })
    }

    /// Reads an object that has `size` bytes.
    pub(super) async fn get(&self, key: &str, size: u64) -> Result<Vec<u8>, Error> {
        let url = GetObject::new(&self.bucket, Some(&self.credentials), key).sign(SIGNED_FOR);
        let mut answer = self.client.get(url).timeout(OBJECT_WITHIN).send().await?;
        check(answer.status(), "read")?;
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await? {
            body.extend_from_slice(&part);
            if body.len() as u64 > size {
                break;
            }
        }
        if body.len() as u64 != size {
            let message = format!("the object does not have the {size} bytes its event tells of");
            return Err(Error::object("size_differs", message));
        }
        Ok(body)
    }

    /// Writes an object.
    pub(super) async fn put(&self, key: &str, mime: &str, body: Vec<u8>) -> Result<(), Error> {
        let mut action = PutObject::new(&self.bucket, Some(&self.credentials), key);
        action.headers_mut().insert("content-type", mime.to_owned());
        let request = self.client.put(action.sign(SIGNED_FOR)).header("content-type", mime);
        let answer = request.timeout(OBJECT_WITHIN).body(body).send().await?;
        check(answer.status(), "written")
    }
}

/// Only an object that is not there is about the object; keys that are refused are an outage, like a
/// store that is down: waiting costs nothing, and an operator mends it.
fn check(status: StatusCode, what: &str) -> Result<(), Error> {
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::NOT_FOUND => Err(Error::object("not_found", "the store has no such object")),
        status => Err(Error::Away(format!("an object could not be {what}: {status}"))),
    }
}
