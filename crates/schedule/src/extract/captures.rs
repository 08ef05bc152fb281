//! A session's images, fetched from the object store for as long as they are read.
//!
//! Promises: images lie in a folder that nobody else may open and that goes with the extraction, however it ends; a file and
//! a session have a size limit. What a failure means for the session is said here, in the words of [`ExtractError`].
//!
//! It must not know tables or leases.

use std::path::Path;

use objects::Bucket;

use super::{Blame, Error, Extractor, ImageFile, Request};
use crate::observation::Observation;
use crate::worker::{Extract, ExtractError, Session};

/// The largest image.
pub const MAX_IMAGE_BYTES: u64 = 32 << 20;
/// All images of a session together.
pub const MAX_SESSION_BYTES: u64 = 256 << 20;

/// Reads captures whose images are in a bucket, under the keys of `capture_image.r2_key`.
#[derive(Debug, Clone)]
pub struct Captures {
    /// Where the images are.
    pub bucket: Bucket,
    /// What reads them.
    pub extractor: Extractor,
    /// Where the clock of the schedules stands: an IANA name, an offset, or nothing for UTC.
    pub timezone: String,
}

impl Extract for Captures {
    async fn extract(&self, session: &Session) -> Result<Observation, ExtractError> {
        let folder = tempfile::Builder::new()
            .prefix("holdfast-capture-")
            .permissions(super::private())
            .tempdir();
        let folder = folder.map_err(|error| {
            ExtractError::Unreachable(format!("there is no folder for the images: {error}"))
        })?;
        let request = Request {
            session_id: session.id,
            user_id: session.user_id,
            images: self.fetch(session, folder.path()).await?,
            timezone: self.timezone.clone(),
        };
        let observation = self.extractor.extract(&request).await;
        // Removing can fail only when somebody else removed it, or left something in it that is not ours.
        if let Err(error) = folder.close() {
            tracing::warn!(%error, session = %session.id, "the folder of a capture's images stays");
        }
        observation.map_err(|error| about(&error))
    }
}

impl Captures {
    /// The images as files, in order.
    async fn fetch(
        &self,
        session: &Session,
        folder: &Path,
    ) -> Result<Vec<ImageFile>, ExtractError> {
        let mut files = Vec::new();
        let mut left = MAX_SESSION_BYTES;
        for (sequence, key) in (1..).zip(&session.images) {
            let path = folder.join(sequence.to_string());
            let limit = left.min(MAX_IMAGE_BYTES);
            let fetched = self.bucket.get(key, limit).await;
            let image = fetched.map_err(|error| not_fetched(sequence, limit, &error))?;
            left -= image.len() as u64;
            tokio::fs::write(&path, image).await.map_err(|error| {
                ExtractError::Unreachable(format!("image {sequence} cannot be written: {error}"))
            })?;
            files.push(ImageFile { sequence, path });
        }
        Ok(files)
    }
}

fn not_fetched(image: i32, limit: u64, error: &objects::Error) -> ExtractError {
    match error {
        objects::Error::TooLarge { .. } if limit < MAX_IMAGE_BYTES => {
            ExtractError::Unreadable(format!(
                "the images have more than {} MiB together: send fewer or smaller pictures",
                MAX_SESSION_BYTES >> 20
            ))
        }
        objects::Error::TooLarge { .. } => ExtractError::Unreadable(format!(
            "image {image} has more than {} MiB: send it smaller, 12 million pixels are plenty",
            MAX_IMAGE_BYTES >> 20
        )),
        objects::Error::Key => ExtractError::Unreadable(format!(
            "image {image} has a key that no object can have: upload it again"
        )),
        // Its row may have come before its upload.
        objects::Error::NotFound => ExtractError::Failed(format!(
            "image {image} is not in the object store: upload it again"
        )),
        error => ExtractError::Unreachable(format!("image {image} cannot be fetched: {error}")),
    }
}

fn about(error: &Error) -> ExtractError {
    let words = error.to_string();
    match error.blame() {
        Blame::Images => ExtractError::Unreadable(words),
        Blame::Run => ExtractError::Failed(words),
        Blame::Setup => ExtractError::Unreachable(words),
    }
}
