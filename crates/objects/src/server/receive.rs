//! A body becomes a staged file: hashed on the way, compared with what was announced, synced.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1};
use s3s::dto::{Checksum, StreamingBlob};
use s3s::{S3Result, s3_error};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncWriteExt as _;

use super::fault::{blocking, fault};
use super::record::{self, Metadata};
use super::store::{Staged, Store};

/// The largest body.
const MAX_BODY_BYTES: u64 = 5 << 30;
/// A sender that is silent for this long has gone.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// What the sender said of the body before it came.
#[derive(Debug, Default)]
pub(super) struct Announced {
    pub(super) length: Option<i64>,
    pub(super) md5: Option<String>,
    pub(super) sums: Checksum,
}

/// A body that has come, whole and on the disk.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) staged: Staged,
    pub(super) metadata: Metadata,
}

/// Takes a body in. `key` and `mime_type` become its metadata.
pub(super) async fn receive(
    store: &Arc<Store>,
    body: Option<StreamingBlob>,
    announced: Announced,
    (key, mime_type): (String, String),
) -> S3Result<Received> {
    let staging = Arc::clone(store);
    let (staged, file) = blocking(move || Ok(staging.stage()?)).await?;
    let mut file = tokio::fs::File::from_std(file);
    let (mut size, mut md5, mut sha256) = (0_u64, Md5::new(), Sha256::new());
    let asked = &announced.sums;
    let mut others = ChecksumHasher {
        crc32: asked.checksum_crc32.as_ref().map(|_| Crc32::new()),
        crc32c: asked.checksum_crc32c.as_ref().map(|_| Crc32c::new()),
        crc64nvme: asked.checksum_crc64nvme.as_ref().map(|_| Crc64Nvme::new()),
        sha1: asked.checksum_sha1.as_ref().map(|_| Sha1::new()),
        sha256: None,
    };
    if let Some(mut body) = body {
        loop {
            let next = tokio::time::timeout(SILENT_FOR, body.next()).await;
            let Some(part) = next.map_err(|_| s3_error!(RequestTimeout))? else { break };
            let part = part.map_err(|_| s3_error!(IncompleteBody, "the body ended early"))?;
            size += part.len() as u64;
            if size > MAX_BODY_BYTES {
                return Err(s3_error!(EntityTooLarge));
            }
            md5.update(&part);
            sha256.update(&part);
            others.update(&part);
            file.write_all(&part).await.map_err(fault)?;
        }
    }
    file.flush().await.map_err(fault)?;
    if announced.length.is_some_and(|length| u64::try_from(length) != Ok(size)) {
        return Err(s3_error!(IncompleteBody, "the body is not as long as was announced"));
    }
    let (md5, sha256) = (md5.finalize(), sha256.finalize());
    let mut found = others.finalize();
    found.checksum_sha256 = asked.checksum_sha256.as_ref().map(|_| STANDARD.encode(sha256));
    let same = found.checksum_crc32 == asked.checksum_crc32
        && found.checksum_crc32c == asked.checksum_crc32c
        && found.checksum_crc64nvme == asked.checksum_crc64nvme
        && found.checksum_sha1 == asked.checksum_sha1
        && found.checksum_sha256 == asked.checksum_sha256
        && announced.md5.is_none_or(|announced| announced == STANDARD.encode(md5));
    if !same {
        return Err(s3_error!(BadDigest, "the body has another checksum than was announced"));
    }
    let metadata = Metadata {
        key,
        mime_type,
        etag: hex(&md5),
        sha256: hex(&sha256),
        modified: jiff::Timestamp::now().as_millisecond(),
    };
    let mut file = file.into_std().await;
    let about = metadata.clone();
    blocking(move || {
        record::finish(&mut file, &about)?;
        file.flush()?;
        Ok(file.sync_all()?)
    })
    .await?;
    Ok(Received { staged, metadata })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes from hex.
pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}
