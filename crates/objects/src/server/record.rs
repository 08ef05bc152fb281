//! A file of the store: bytes, metadata, 16 bytes. docs/spec/object-store.md has the form.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};

use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"HFOBJ001";
const FOOTER_BYTES: u64 = 16;
/// The longest metadata: a key and a media type, with room.
const MAX_METADATA_BYTES: u32 = 16 << 10;

/// What is known of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Metadata {
    pub(super) key: String,
    pub(super) mime_type: String,
    pub(super) etag: String,
    pub(super) sha256: String,
    /// Milliseconds since 1970.
    pub(super) modified: i64,
}

/// Adds the metadata behind the bytes.
pub(super) fn finish(file: &mut impl Write, metadata: &Metadata) -> io::Result<()> {
    let text = serde_json::to_vec(metadata)?;
    let length = u32::try_from(text.len()).ok().filter(|length| *length <= MAX_METADATA_BYTES);
    let length = length.ok_or_else(|| io::Error::other("the metadata is too long"))?;
    let crc = crc32c::crc32c(&text);
    file.write_all(&text)?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(&crc.to_le_bytes())?;
    file.write_all(&MAGIC)
}

/// Reads the size of the bytes and the metadata. The file is then at its beginning.
pub(super) fn read(file: &mut File) -> io::Result<(u64, Metadata)> {
    let whole = file.metadata()?.len();
    let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let before = whole.checked_sub(FOOTER_BYTES).ok_or_else(|| damaged("the file is too short"))?;
    let mut footer = [0; 16];
    file.seek(SeekFrom::Start(before))?;
    file.read_exact(&mut footer)?;
    let [l0, l1, l2, l3, c0, c1, c2, c3, magic @ ..] = footer;
    let (length, crc) =
        (u32::from_le_bytes([l0, l1, l2, l3]), u32::from_le_bytes([c0, c1, c2, c3]));
    let size = before.checked_sub(u64::from(length));
    let size = size.filter(|_| magic == MAGIC && length <= MAX_METADATA_BYTES);
    let size = size.ok_or_else(|| damaged("the file does not end as one of the store does"))?;
    let mut text = vec![0; length as usize];
    file.seek(SeekFrom::Start(size))?;
    file.read_exact(&mut text)?;
    if crc32c::crc32c(&text) != crc {
        return Err(damaged("the metadata has a wrong checksum"));
    }
    let metadata = serde_json::from_slice(&text)?;
    file.seek(SeekFrom::Start(0))?;
    Ok((size, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_damage_is_seen() {
        let metadata = Metadata {
            key: "a/b.jpg".to_owned(),
            mime_type: "image/jpeg".to_owned(),
            etag: "00".repeat(16),
            sha256: "11".repeat(32),
            modified: 1,
        };
        let mut bytes = b"image".to_vec();
        finish(&mut bytes, &metadata).unwrap();
        let read_back = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            read(&mut file)
        };
        assert_eq!(read_back(&bytes).unwrap(), (5, metadata));
        // A flipped byte of the image is for its hash to find.
        for at in 5..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            assert!(read_back(&wrong).is_err(), "byte {at}");
        }
        for length in 0..bytes.len() {
            assert!(read_back(&bytes[..length]).is_err(), "cut at {length}");
        }
    }
}
