//! The objects of a bucket, a page at a time.

use jiff::Timestamp;
use rusty_s3::S3Action as _;
use rusty_s3::actions::ListObjectsV2;

use crate::bucket::Place;
use crate::request::{Request, SIGNED_FOR, text};
use crate::{Bucket, Error};

/// The largest page that S3 gives.
pub(crate) const MAX_PAGE: usize = 1000;

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// When it was written, where the store tells.
    pub modified: Option<Timestamp>,
}

/// Some objects, in the order of their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The objects.
    pub objects: Vec<Listed>,
    /// The key after which the next page begins; `None` when this is the last one.
    pub next: Option<String>,
}

impl Bucket {
    /// Objects whose keys begin with `prefix` and come after the key `after`, a thousand at the most.
    pub async fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page, Error> {
        let Place { bucket, credentials } = &*self.place;
        let address = || {
            let mut action = ListObjectsV2::new(bucket, Some(credentials));
            if !prefix.is_empty() {
                action.with_prefix(prefix);
            }
            if let Some(after) = after {
                action.with_start_after(after);
            }
            action.with_max_keys(limit.clamp(1, MAX_PAGE));
            action.sign(SIGNED_FOR)
        };
        let said = text(self.send(Request::default(), address).await?).await?;
        let answer = ListObjectsV2::parse_response(&said)
            .map_err(|error| Error::Answer(error.to_string()))?;
        let more = answer.next_continuation_token.is_some();
        let objects: Vec<Listed> = answer
            .contents
            .into_iter()
            .map(|object| Listed {
                key: object.key,
                size: object.size.unwrap_or_default(),
                modified: object.last_modified.and_then(|when| when.parse().ok()),
            })
            .collect();
        let next = objects.last().filter(|_| more).map(|last| last.key.clone());
        // A store whose page does not move forward would be asked for ever.
        if more && next.as_deref() <= after {
            return Err(Error::Answer("a page of the list does not go on".to_owned()));
        }
        Ok(Page { objects, next })
    }
}
