//! Compressed bodies: whole, damaged, and meant to harm.

use proptest::prelude::*;

use super::{EVENT, epoch};
use crate::wire::{Limits, ZSTD_MAGIC, compress, decode, encode};

#[test]
fn compressed_and_plain_bodies_decode_to_the_same() {
    let body = encode(epoch(), (1..=200).map(|seq| (seq, EVENT.lines().next().unwrap())), &[]);
    assert_eq!(&*decode(&body, &Limits::MQTT).unwrap(), &body[..]);
    for level in [1, 3, 19] {
        let packed = compress(&body, level).unwrap();
        assert!(packed.starts_with(&ZSTD_MAGIC) && packed.len() < body.len() / 5);
        assert_eq!(&*decode(&packed, &Limits::MQTT).unwrap(), &body[..]);
    }
    // A streaming compressor that does not know the size in advance.
    let streamed = zstd::stream::encode_all(&body[..], 3).unwrap();
    assert_eq!(zstd::zstd_safe::get_frame_content_size(&streamed).unwrap(), None);
    assert_eq!(&*decode(&streamed, &Limits::MQTT).unwrap(), &body[..]);
}

#[test]
fn bombs_are_refused_by_size() {
    let limits = Limits { decompressed_bytes: 1024 * 1024, ..Limits::MQTT };
    let zeros = vec![0u8; 64 * 1024 * 1024];
    let stated = compress(&zeros, 3).unwrap();
    let unstated = zstd::stream::encode_all(&zeros[..], 3).unwrap();
    for bomb in [stated, unstated] {
        assert!(bomb.len() < limits.wire_bytes);
        let err = decode(&bomb, &limits).unwrap_err();
        assert_eq!((err.code(), err.field()), ("too_large", None), "{err}");
    }
    let exact = compress(&zeros[..limits.decompressed_bytes], 3).unwrap();
    assert_eq!(decode(&exact, &limits).unwrap().len(), limits.decompressed_bytes);
    let over = compress(&zeros[..limits.decompressed_bytes + 1], 3).unwrap();
    assert_eq!(decode(&over, &limits).unwrap_err().code(), "too_large");
    // Too large as it travels, compressed or not.
    for first in [ZSTD_MAGIC[0], b'{'] {
        let body = vec![first; limits.wire_bytes + 1];
        assert_eq!(decode(&body, &limits).unwrap_err().code(), "too_large");
    }
    let plain = vec![b' '; limits.decompressed_bytes + 1];
    let roomy = Limits { wire_bytes: 2 * 1024 * 1024, ..limits };
    assert_eq!(decode(&plain, &roomy).unwrap_err().code(), "too_large");
}

#[test]
fn a_frame_that_lies_about_its_size_is_refused() {
    // One byte of content size in the header (single segment): make it say less than there is.
    let mut frame = compress(&[b'x'; 200], 3).unwrap();
    let at = frame.iter().position(|byte| *byte == 200).unwrap();
    frame[at] = 100;
    assert_eq!(decode(&frame, &Limits::MQTT).unwrap_err().code(), "compression");
    frame[at] = 255;
    assert_eq!(decode(&frame, &Limits::MQTT).unwrap_err().code(), "compression");
}

#[test]
fn only_one_whole_frame_is_a_body() {
    let body = encode(epoch(), (1..=50).map(|seq| (seq, EVENT.lines().next().unwrap())), &[]);
    let frame = compress(&body, 3).unwrap();
    for cut in 4..frame.len() {
        assert_eq!(decode(&frame[..cut], &Limits::MQTT).unwrap_err().code(), "compression");
    }
    let twice = [&frame[..], &frame].concat();
    let trailed = [&frame[..], b"x"].concat();
    // A frame that decoders skip, empty, after the real one.
    let skipped = [&frame[..], &[0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0]].concat();
    for body in [twice, trailed, skipped] {
        let err = decode(&body, &Limits::MQTT).unwrap_err();
        assert_eq!(err.code(), "compression");
        assert!(err.to_string().contains("follow the frame"), "{err}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_frame_is_refused_or_bounded(at in 0..400usize, flip in 1..=255u8) {
        let body = encode(epoch(), (1..=20).map(|seq| (seq, EVENT.lines().next().unwrap())), &[]);
        let mut frame = compress(&body, 3).unwrap();
        let at = at % frame.len();
        frame[at] ^= flip;
        if let Ok(json) = decode(&frame, &Limits::MQTT) {
            prop_assert!(json.len() <= Limits::MQTT.decompressed_bytes);
        }
    }
}
