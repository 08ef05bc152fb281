//! zstd, bounded on the way in.

use std::borrow::Cow;

use zstd::zstd_safe;

use super::{Limits, WireError};

/// How a compressed body starts. JSON never does: its first byte is ASCII.
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The JSON of a body, decompressed if it is compressed.
///
/// The body must be exactly one frame: what follows it is refused, and so is a frame that stops short.
/// The output is taken at the size the frame states, or at the limit if it states none, never
/// beyond; the frame is decoded straight into it, so that no window is allocated beside it, however
/// large a window the frame asks for.
pub fn decode<'a>(body: &'a [u8], limits: &Limits) -> Result<Cow<'a, [u8]>, WireError> {
    let limit = limits.wire_bytes;
    if body.len() > limit {
        return Err(WireError::TooLarge { what: "the body in bytes", limit });
    }
    let limit = limits.decompressed_bytes;
    let too_large = WireError::TooLarge { what: "the decompressed body in bytes", limit };
    if !body.starts_with(&ZSTD_MAGIC) {
        return if body.len() > limit { Err(too_large) } else { Ok(Cow::Borrowed(body)) };
    }
    let frame_len = zstd_safe::find_frame_compressed_size(body).map_err(fault)?;
    if frame_len != body.len() {
        let rest = body.len() - frame_len;
        return Err(WireError::Compression(format!("{rest} bytes follow the frame")));
    }
    let stated = zstd_safe::get_frame_content_size(body)
        .map_err(|_| WireError::Compression("its header is damaged".to_owned()))?;
    let capacity = match stated.map(usize::try_from) {
        Some(Ok(stated)) if stated <= limit => stated,
        Some(_) => return Err(too_large),
        None => limit,
    };
    let mut json = Vec::with_capacity(capacity);
    match zstd_safe::decompress(&mut json, body) {
        Ok(_) => Ok(Cow::Owned(json)),
        // A frame that states no size and has more than fits is a bomb, not damage.
        Err(code) if stated.is_none() && is_out_of_room(code) => Err(too_large),
        Err(code) => Err(fault(code)),
    }
}

/// Compresses a body into one frame that states its size.
pub fn compress(body: &[u8], level: i32) -> Result<Vec<u8>, WireError> {
    zstd::bulk::compress(body, level).map_err(|error| refused(&error))
}

/// Compresses one body after another with the same memory, which spares each of them the setting up.
pub struct Compressor(zstd::bulk::Compressor<'static>);

impl Compressor {
    /// A compressor of a level.
    pub fn new(level: i32) -> Result<Compressor, WireError> {
        zstd::bulk::Compressor::new(level).map(Compressor).map_err(|error| refused(&error))
    }

    /// As [`compress`] does.
    pub fn compress(&mut self, body: &[u8]) -> Result<Vec<u8>, WireError> {
        self.0.compress(body).map_err(|error| refused(&error))
    }
}

fn refused(error: &std::io::Error) -> WireError {
    WireError::Compression(error.to_string())
}

fn fault(code: zstd_safe::ErrorCode) -> WireError {
    WireError::Compression(zstd_safe::get_error_name(code).to_owned())
}

fn is_out_of_room(code: zstd_safe::ErrorCode) -> bool {
    // The library gives its error codes a number and this stable text.
    zstd_safe::get_error_name(code) == "Destination buffer is too small"
}
