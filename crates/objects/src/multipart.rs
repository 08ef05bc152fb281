//! Uploads in parts: opened, completed, aborted, and found again when whoever opened them has died.

use instant_xml::FromXml;
use jiff::Timestamp;
use reqwest::Method;
use rusty_s3::S3Action as _;
use rusty_s3::actions::{
    AbortMultipartUpload, CompleteMultipartUpload, CompleteMultipartUploadResponse,
    CreateMultipartUpload, ListParts,
};

use crate::bucket::Place;
use crate::request::{Request, SIGNED_FOR, code, text};
use crate::{Bucket, Error, key};

/// The most parts of an upload.
pub const MAX_PARTS: u16 = 10_000;
/// The smallest part, but for the last.
pub const MIN_PART_BYTES: u64 = 5 << 20;
const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";
/// The most open uploads told at once.
const MAX_OPEN: u16 = 1000;

/// An upload that was neither completed nor aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenUpload {
    /// Where it goes.
    pub key: String,
    /// The store's name for it.
    pub upload_id: String,
    /// When it was opened, where the store tells.
    pub opened: Option<Timestamp>,
}

#[derive(FromXml)]
#[xml(rename = "ListMultipartUploadsResult", ns(NAMESPACE))]
struct Uploads {
    uploads: Vec<OneUpload>,
}

#[derive(FromXml)]
#[xml(rename = "Upload", ns(NAMESPACE))]
struct OneUpload {
    #[xml(rename = "Key")]
    key: String,
    #[xml(rename = "UploadId")]
    upload_id: String,
    #[xml(rename = "Initiated")]
    initiated: Option<String>,
}

#[derive(FromXml)]
#[xml(rename = "ListPartsResult", ns(NAMESPACE))]
struct PartsPage {
    #[xml(rename = "IsTruncated")]
    more: Option<bool>,
    #[xml(rename = "NextPartNumberMarker")]
    next: Option<u16>,
    parts: Vec<OnePart>,
}

#[derive(FromXml)]
#[xml(rename = "Part", ns(NAMESPACE))]
struct OnePart {
    #[xml(rename = "PartNumber")]
    number: u16,
    #[xml(rename = "ETag")]
    etag: String,
    #[xml(rename = "Size")]
    size: u64,
}

impl Bucket {
    /// Opens an upload in parts, and returns the store's name for it.
    pub async fn create_upload(&self, key: &str, mime_type: &str) -> Result<String, Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let address = || {
            let mut action = CreateMultipartUpload::new(bucket, Some(credentials), key);
            action.headers_mut().insert("content-type", mime_type);
            action.sign(SIGNED_FOR)
        };
        let headers = vec![("content-type", mime_type.to_owned())];
        let request = Request { method: Method::POST, headers, ..Request::default() };
        let said = text(self.send(request, address).await?).await?;
        let answer = CreateMultipartUpload::parse_response(&said)
            .map_err(|error| Error::Answer(error.to_string()))?;
        Ok(answer.upload_id().to_owned())
    }

    /// The entity tags of the parts that have arrived, by number, with their sizes.
    pub async fn parts(
        &self,
        key: &str,
        upload_id: &str,
    ) -> Result<Vec<(u16, String, u64)>, Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let mut parts = Vec::new();
        let mut after = None;
        loop {
            let address = || {
                let mut action = ListParts::new(bucket, Some(credentials), key, upload_id);
                if let Some(after) = after {
                    action.set_part_number_marker(after);
                }
                action.sign(SIGNED_FOR)
            };
            let said = text(self.send(Request::default(), address).await?).await?;
            // Read here, because the library wants fields that not every store sends.
            let page: PartsPage =
                instant_xml::from_str(&said).map_err(|error| Error::Answer(error.to_string()))?;
            let next = page.next.filter(|_| page.more == Some(true));
            parts.extend(page.parts.into_iter().map(|part| (part.number, part.etag, part.size)));
            match next {
                Some(next) if Some(next) > after && parts.len() < usize::from(MAX_PARTS) => {
                    after = Some(next);
                }
                _ => return Ok(parts),
            }
        }
    }

    /// Puts the parts together, in the order of their entity tags. An object that is there is not
    /// overwritten by a store that knows how.
    pub async fn complete_upload(
        &self,
        key: &str,
        upload_id: &str,
        etags: &[String],
    ) -> Result<(), Error> {
        key::check(key)?;
        if !(1..=usize::from(MAX_PARTS)).contains(&etags.len()) {
            return Err(Error::Damaged { code: "InvalidPart".to_owned() });
        }
        let Place { bucket, credentials } = &*self.place;
        let action = || {
            let tags = etags.iter().map(String::as_str);
            CompleteMultipartUpload::new(bucket, Some(credentials), key, upload_id, tags)
        };
        let address = || {
            let mut action = action();
            action.headers_mut().insert("if-none-match", "*");
            action.sign(SIGNED_FOR)
        };
        let headers = vec![("if-none-match", "*".to_owned())];
        let body = action().body().into();
        let request = Request { method: Method::POST, headers, body };
        let answer = self.send(request, address).await?;
        let status = answer.status();
        let said = text(answer).await?;
        // A store may say 200 before it knows, and then that it failed.
        if CompleteMultipartUploadResponse::parse(&said).is_ok() {
            return Ok(());
        }
        Err(match code(&said).as_str() {
            "" => Error::Answer("it tells of no object".to_owned()),
            "InternalError" | "SlowDown" => {
                Error::Away("the parts were not put together".to_owned())
            }
            code => Error::from_answer(status, code),
        })
    }

    /// Gives an upload up; its parts are removed. One that is not there is given up already.
    pub async fn abort_upload(&self, key: &str, upload_id: &str) -> Result<(), Error> {
        key::check(key)?;
        let Place { bucket, credentials } = &*self.place;
        let address = || {
            AbortMultipartUpload::new(bucket, Some(credentials), key, upload_id).sign(SIGNED_FOR)
        };
        let request = Request { method: Method::DELETE, ..Request::default() };
        match self.send(request, address).await {
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Uploads that are open, a thousand at the most: whoever aborts some and asks again sees the rest.
    pub async fn open_uploads(&self, prefix: &str) -> Result<Vec<OpenUpload>, Error> {
        let Place { bucket, credentials } = &*self.place;
        let most = MAX_OPEN.to_string();
        // The client library has no action for this one, but lets anything be signed.
        let query = [("max-uploads", most.as_str()), ("prefix", prefix), ("uploads", "")];
        let address = || {
            rusty_s3::signing::sign(
                &Timestamp::now(),
                rusty_s3::Method::Get,
                bucket.base_url().clone(),
                credentials.key(),
                credentials.secret(),
                credentials.token(),
                bucket.region(),
                SIGNED_FOR.as_secs(),
                query.into_iter(),
                std::iter::empty(),
            )
        };
        let said = text(self.send(Request::default(), address).await?).await?;
        let found: Uploads =
            instant_xml::from_str(&said).map_err(|error| Error::Answer(error.to_string()))?;
        let one = |upload: OneUpload| OpenUpload {
            key: upload.key,
            upload_id: upload.upload_id,
            opened: upload.initiated.and_then(|when| when.parse().ok()),
        };
        Ok(found.uploads.into_iter().map(one).collect())
    }
}
