//! The S3 operations on objects and buckets, over the store.

use std::io::{Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use tokio_util::io::ReaderStream;

use super::fault::blocking;
use super::multipart;
use super::receive::{Announced, receive, unhex};
use super::record::Metadata;
use super::store::Store;
use super::walk::{Asked, walk};

/// What an object without a media type has.
pub(super) const UNKNOWN_TYPE: &str = "application/octet-stream";
/// The largest page of a list.
const MAX_PAGE: i32 = 1000;
/// Bytes read at once for an answer.
const READ_BYTES: usize = 64 << 10;

/// The operations, over a store.
#[derive(Debug, Clone)]
pub(super) struct Service {
    pub(super) store: Arc<Store>,
}

pub(super) type Answer<T> = S3Result<S3Response<T>>;

pub(super) fn answer<T>(output: T) -> Answer<T> {
    Ok(S3Response::new(output))
}

pub(super) fn etag(metadata: &Metadata) -> Option<ETag> {
    Some(ETag::Strong(metadata.etag.clone()))
}

pub(super) fn modified(metadata: &Metadata) -> Option<Timestamp> {
    let since = Duration::from_millis(u64::try_from(metadata.modified).unwrap_or_default());
    Some((SystemTime::UNIX_EPOCH + since).into())
}

fn sha256(metadata: &Metadata) -> Option<String> {
    Some(STANDARD.encode(unhex(&metadata.sha256)?))
}

fn signed(size: u64) -> Option<i64> {
    i64::try_from(size).ok()
}

/// Only `*` is known; anything else would be a promise that is not kept.
pub(super) fn only_new(condition: Option<&ETagCondition>, other: bool) -> S3Result<bool> {
    match condition {
        None if !other => Ok(false),
        Some(condition) if condition.is_any() && !other => Ok(true),
        _ => Err(s3_error!(NotImplemented, "of conditions only if-none-match: * is known")),
    }
}

#[async_trait::async_trait]
impl S3 for Service {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> Answer<CreateBucketOutput> {
        let store = Arc::clone(&self.store);
        let bucket = request.input.bucket;
        let location = Some(format!("/{bucket}"));
        blocking(move || store.make_bucket(&bucket)).await?;
        answer(CreateBucketOutput { location })
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        let store = Arc::clone(&self.store);
        blocking(move || store.bucket(&request.input.bucket)).await?;
        answer(HeadBucketOutput::default())
    }

    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        let store = Arc::clone(&self.store);
        let names = blocking(move || Ok(store.buckets()?)).await?;
        let bucket = |name| Bucket { name: Some(name), ..Bucket::default() };
        let buckets = Some(names.into_iter().map(bucket).collect());
        answer(ListBucketsOutput { buckets, ..ListBucketsOutput::default() })
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let input = request.input;
        let new = only_new(input.if_none_match.as_ref(), input.if_match.is_some())?;
        let (store, bucket) = (Arc::clone(&self.store), input.bucket);
        {
            // Before the body is taken in: a key that cannot be, and an object that is there.
            let (store, bucket, key) = (Arc::clone(&store), bucket.clone(), input.key.clone());
            blocking(move || match store.read(&bucket, &key) {
                Ok(_) if new => Err(super::store::Error::Exists),
                Ok(_) | Err(super::store::Error::NoObject) => Ok(()),
                Err(error) => Err(error),
            })
            .await?;
        }
        let announced = Announced {
            length: input.content_length,
            md5: input.content_md5,
            sums: Checksum {
                checksum_crc32: input.checksum_crc32,
                checksum_crc32c: input.checksum_crc32c,
                checksum_crc64nvme: input.checksum_crc64nvme,
                checksum_sha1: input.checksum_sha1,
                checksum_sha256: input.checksum_sha256,
                ..Checksum::default()
            },
        };
        let key = input.key;
        let mime = input.content_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned());
        let received = receive(&store, input.body, announced, (key.clone(), mime)).await?;
        let (e_tag, checksum_sha256) = (etag(&received.metadata), sha256(&received.metadata));
        blocking(move || store.publish(&bucket, &key, &received.staged, new)).await?;
        answer(PutObjectOutput { e_tag, checksum_sha256, ..PutObjectOutput::default() })
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = request.input;
        let store = Arc::clone(&self.store);
        let opened = blocking(move || store.read(&input.bucket, &input.key)).await?;
        let (mut file, size, metadata) = opened;
        let (mut from, mut length, mut content_range) = (0, size, None);
        if let Some(range) = input.range {
            let range = range.check(size).map_err(|_| s3_error!(InvalidRange))?;
            (from, length) = (range.start, range.end - range.start);
            content_range = Some(format!("bytes {from}-{}/{size}", range.end.saturating_sub(1)));
        }
        let file = blocking(move || {
            file.seek(SeekFrom::Start(from))?;
            Ok(file)
        })
        .await?;
        // The metadata lies behind the bytes and is no part of them.
        let bytes = tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), length);
        let body = StreamingBlob::wrap(ReaderStream::with_capacity(bytes, READ_BYTES));
        let partial = content_range.is_some();
        answer(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(body),
            checksum_sha256: sha256(&metadata).filter(|_| !partial),
            content_length: signed(length),
            content_range,
            content_type: Some(metadata.mime_type.clone()),
            e_tag: etag(&metadata),
            last_modified: modified(&metadata),
            ..GetObjectOutput::default()
        })
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = request.input;
        let store = Arc::clone(&self.store);
        let (_, size, metadata) = blocking(move || store.read(&input.bucket, &input.key)).await?;
        answer(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            checksum_sha256: sha256(&metadata),
            content_length: signed(size),
            content_type: Some(metadata.mime_type.clone()),
            e_tag: etag(&metadata),
            last_modified: modified(&metadata),
            ..HeadObjectOutput::default()
        })
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> Answer<DeleteObjectOutput> {
        let input = request.input;
        let store = Arc::clone(&self.store);
        blocking(move || store.remove(&input.bucket, &input.key)).await?;
        answer(DeleteObjectOutput::default())
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        let input = request.input;
        if input.delimiter.as_deref().is_some_and(|delimiter| delimiter != "/") {
            return Err(s3_error!(NotImplemented, "the delimiter is a slash or none"));
        }
        let limit = input.max_keys.unwrap_or(MAX_PAGE).clamp(0, MAX_PAGE);
        // A token is the key that a page ended with, encoded so that nobody takes it for one.
        let token = input.continuation_token.as_deref().map(|token| {
            let key = STANDARD.decode(token).ok().and_then(|key| String::from_utf8(key).ok());
            key.ok_or_else(|| s3_error!(InvalidArgument, "the continuation token is none of ours"))
        });
        let after = token.transpose()?.or_else(|| input.start_after.clone());
        let asked = Asked {
            prefix: input.prefix.clone().unwrap_or_default(),
            after,
            folded: input.delimiter.is_some(),
            limit: usize::try_from(limit).unwrap_or_default(),
        };
        let (store, bucket) = (Arc::clone(&self.store), input.bucket.clone());
        let found =
            blocking(move || Ok(walk(&store.bucket(&bucket)?.join("objects"), &asked)?)).await?;
        let key_count = i32::try_from(found.objects.len() + found.folded.len()).ok();
        let object = |(size, metadata): (u64, Metadata)| Object {
            e_tag: etag(&metadata),
            last_modified: modified(&metadata),
            size: signed(size),
            key: Some(metadata.key),
            ..Object::default()
        };
        let folded = |prefix| CommonPrefix { prefix: Some(prefix) };
        let common_prefixes: Vec<_> = found.folded.into_iter().map(folded).collect();
        answer(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            delimiter: input.delimiter,
            start_after: input.start_after,
            max_keys: Some(limit),
            key_count,
            is_truncated: Some(found.next.is_some()),
            next_continuation_token: found.next.map(|key| STANDARD.encode(key)),
            contents: Some(found.objects.into_iter().map(object).collect()),
            common_prefixes: (!common_prefixes.is_empty()).then_some(common_prefixes),
            ..ListObjectsV2Output::default()
        })
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        multipart::create(&self.store, request.input).await
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        multipart::upload_part(&self.store, request.input).await
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        multipart::list_parts(&self.store, request.input).await
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        multipart::list(&self.store, request.input).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        multipart::complete(&self.store, request.input).await
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        multipart::abort(&self.store, request.input).await
    }
}
