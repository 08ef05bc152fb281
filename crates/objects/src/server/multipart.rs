//! The S3 operations on uploads in parts, over the store.

use std::io::Read as _;
use std::sync::Arc;

use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3Result, s3_error};
use sha2::{Digest as _, Sha256};

use super::fault::blocking;
use super::receive::{Announced, hex, receive, unhex};
use super::record::{self, Metadata};
use super::service::{Answer, UNKNOWN_TYPE, answer, etag, modified, only_new};
use super::store::{Error, Store};
use crate::multipart::{MAX_PARTS, MIN_PART_BYTES};

/// The most uploads or parts told at once.
const MAX_PAGE: usize = 1000;
/// Bytes copied at once when parts are put together.
const COPY_BYTES: usize = 256 << 10;

/// An upload that is not there has a word of its own.
fn no_upload(error: S3Error) -> S3Error {
    if error.code() == &s3s::S3ErrorCode::NoSuchKey { s3_error!(NoSuchUpload) } else { error }
}

pub(super) async fn create(
    store: &Arc<Store>,
    input: CreateMultipartUploadInput,
) -> Answer<CreateMultipartUploadOutput> {
    let about = Metadata {
        key: input.key.clone(),
        mime_type: input.content_type.unwrap_or_else(|| UNKNOWN_TYPE.to_owned()),
        etag: String::new(),
        sha256: String::new(),
        modified: jiff::Timestamp::now().as_millisecond(),
    };
    let (store, bucket) = (Arc::clone(store), input.bucket.clone());
    let id = blocking(move || store.open_upload(&bucket, &about)).await?;
    answer(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(id),
        ..CreateMultipartUploadOutput::default()
    })
}

fn number(number: i32) -> S3Result<u16> {
    let number = u16::try_from(number).ok().filter(|number| (1..=MAX_PARTS).contains(number));
    number.ok_or_else(|| s3_error!(InvalidArgument, "a part has a number from 1 to 10000"))
}

pub(super) async fn upload_part(
    store: &Arc<Store>,
    input: UploadPartInput,
) -> Answer<UploadPartOutput> {
    let part = number(input.part_number)?;
    let (bucket, key, id) = (input.bucket, input.key, input.upload_id);
    {
        // Before the body is taken in.
        let (store, bucket, key, id) = (Arc::clone(store), bucket.clone(), key.clone(), id.clone());
        blocking(move || store.upload_type(&bucket, &key, &id)).await.map_err(no_upload)?;
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
    let about = (key.clone(), UNKNOWN_TYPE.to_owned());
    let received = receive(store, input.body, announced, about).await?;
    let e_tag = etag(&received.metadata);
    let store = Arc::clone(store);
    blocking(move || store.publish_part(&bucket, &key, &id, part, &received.staged))
        .await
        .map_err(no_upload)?;
    answer(UploadPartOutput { e_tag, ..UploadPartOutput::default() })
}

pub(super) async fn list_parts(
    store: &Arc<Store>,
    input: ListPartsInput,
) -> Answer<ListPartsOutput> {
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let store = Arc::clone(store);
    let parts = blocking(move || store.parts(&bucket, &key, &id)).await.map_err(no_upload)?;
    let after = input.part_number_marker.unwrap_or_default();
    let most = usize::try_from(input.max_parts.unwrap_or(1000)).unwrap_or_default().min(MAX_PAGE);
    let mut parts: Vec<_> =
        parts.into_iter().filter(|(number, _, _)| i32::from(*number) > after).collect();
    let more = parts.len() > most;
    parts.truncate(most);
    let last = parts.last().map(|part| i32::from(part.0));
    let part = |(number, size, metadata): (u16, u64, Metadata)| Part {
        e_tag: etag(&metadata),
        last_modified: modified(&metadata),
        part_number: Some(i32::from(number)),
        size: i64::try_from(size).ok(),
        ..Part::default()
    };
    answer(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        is_truncated: Some(more),
        next_part_number_marker: last.filter(|_| more),
        parts: Some(parts.into_iter().map(part).collect()),
        ..ListPartsOutput::default()
    })
}

pub(super) async fn list(
    store: &Arc<Store>,
    input: ListMultipartUploadsInput,
) -> Answer<ListMultipartUploadsOutput> {
    let (bucket, prefix) = (input.bucket.clone(), input.prefix.clone().unwrap_or_default());
    let store = Arc::clone(store);
    let mut uploads = blocking(move || store.uploads(&bucket, &prefix)).await?;
    let more = uploads.len() > MAX_PAGE;
    uploads.truncate(MAX_PAGE);
    let upload = |(id, metadata): (String, Metadata)| MultipartUpload {
        initiated: modified(&metadata),
        key: Some(metadata.key),
        upload_id: Some(id),
        ..MultipartUpload::default()
    };
    answer(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: input.prefix,
        is_truncated: Some(more),
        uploads: Some(uploads.into_iter().map(upload).collect()),
        ..ListMultipartUploadsOutput::default()
    })
}

pub(super) async fn complete(
    store: &Arc<Store>,
    input: CompleteMultipartUploadInput,
) -> Answer<CompleteMultipartUploadOutput> {
    let new = only_new(input.if_none_match.as_ref(), input.if_match.is_some())?;
    let mut named: Vec<(u16, String)> = Vec::new();
    for part in input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default() {
        let next = number(part.part_number.unwrap_or_default())?;
        if named.last().is_some_and(|(before, _)| *before >= next) {
            return Err(s3_error!(InvalidPartOrder));
        }
        named.push((next, part.e_tag.map(ETag::into_value).unwrap_or_default()));
    }
    let (bucket, key, id) = (input.bucket.clone(), input.key.clone(), input.upload_id);
    let store = Arc::clone(store);
    let found = {
        let (store, bucket, key, id) =
            (Arc::clone(&store), bucket.clone(), key.clone(), id.clone());
        blocking(move || store.parts(&bucket, &key, &id)).await.map_err(no_upload)?
    };
    let mut parts = Vec::new();
    for (at, (number, tag)) in named.iter().enumerate() {
        let part = found.iter().find(|(there, _, part)| there == number && part.etag == *tag);
        let (_, size, _) = part.ok_or_else(|| s3_error!(InvalidPart))?;
        if *size < MIN_PART_BYTES && at + 1 < named.len() {
            return Err(s3_error!(EntityTooSmall));
        }
        parts.push((*number, tag.clone()));
    }
    if parts.is_empty() {
        return Err(s3_error!(InvalidPart, "an upload has at least one part"));
    }
    let metadata =
        blocking(move || put_together(&store, (&bucket, &key, &id), &parts, new)).await?;
    answer(CompleteMultipartUploadOutput {
        bucket: Some(input.bucket),
        e_tag: etag(&metadata),
        key: Some(input.key),
        ..CompleteMultipartUploadOutput::default()
    })
}

fn put_together(
    store: &Store,
    (bucket, key, id): (&str, &str, &str),
    parts: &[(u16, String)],
    new: bool,
) -> Result<Metadata, Error> {
    use std::io::Write as _;
    let (staged, mut file) = store.stage()?;
    let (mut md5, mut sha256) = (Md5::new(), Sha256::new());
    let mut buffer = vec![0; COPY_BYTES];
    for (number, tag) in parts {
        md5.update(&unhex(tag).unwrap_or_default());
        let mut part = store.part(bucket, key, id, *number)?;
        loop {
            let read = part.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            sha256.update(&buffer[..read]);
            file.write_all(&buffer[..read])?;
        }
    }
    let metadata = Metadata {
        key: key.to_owned(),
        mime_type: store.upload_type(bucket, key, id)?,
        etag: format!("{}-{}", hex(&md5.finalize()), parts.len()),
        sha256: hex(&sha256.finalize()),
        modified: jiff::Timestamp::now().as_millisecond(),
    };
    record::finish(&mut file, &metadata)?;
    file.sync_all()?;
    store.publish(bucket, key, &staged, new)?;
    store.remove_upload(bucket, key, id)?;
    Ok(metadata)
}

pub(super) async fn abort(
    store: &Arc<Store>,
    input: AbortMultipartUploadInput,
) -> Answer<AbortMultipartUploadOutput> {
    let store = Arc::clone(store);
    blocking(move || store.remove_upload(&input.bucket, &input.key, &input.upload_id))
        .await
        .map_err(no_upload)?;
    answer(AbortMultipartUploadOutput::default())
}
