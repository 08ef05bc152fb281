//! What a caller hears of a fault.

use std::io;

use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

use super::store::Error;

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> S3Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(S3Error::from),
        Err(error) => Err(s3_error!(error, InternalError)),
    }
}

impl From<Error> for S3Error {
    fn from(error: Error) -> S3Error {
        match error {
            Error::NoBucket => s3_error!(NoSuchBucket),
            Error::NoObject => s3_error!(NoSuchKey),
            Error::Exists => s3_error!(PreconditionFailed, "an object is there already"),
            Error::Key => s3_error!(InvalidArgument, "the key is not one that is taken here"),
            Error::Io(error) => fault(error),
        }
    }
}

/// A disk that is full is the store's state and not an accident: it has an answer of its own.
pub(super) fn fault(error: io::Error) -> S3Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
        let code = S3ErrorCode::Custom("StorageFull".into());
        let mut full = S3Error::with_message(code, "the disk of the store is full");
        full.set_status_code(reqwest::StatusCode::INSUFFICIENT_STORAGE);
        return full;
    }
    tracing::error!(%error, "the object store's disk failed");
    s3_error!(InternalError, "the disk failed")
}
