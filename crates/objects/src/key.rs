//! Which keys are used.
//!
//! S3 allows nearly any text, but a URL folds `.` and `..`, a file store has folders, and an empty key
//! is the bucket itself. A key that could mean something else on the way is refused before it is used.

use crate::Error;

/// The longest key that S3 allows, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;
/// The longest part of a key between slashes: what a file name may have, with room for a suffix.
pub const MAX_PART_BYTES: usize = 200;

/// Checks a key: parts of 1 to 200 bytes with slashes between them, 1024 bytes in all, none of them `.`
/// or `..`, without control characters and backslashes.
pub fn check(key: &str) -> Result<(), Error> {
    let part =
        |part: &str| (1..=MAX_PART_BYTES).contains(&part.len()) && part != "." && part != "..";
    let sound = key.len() <= MAX_KEY_BYTES
        && key.split('/').all(part)
        && !key.contains(|c: char| c.is_control() || c == '\\');
    if sound { Ok(()) } else { Err(Error::Key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_means_one_object() {
        let long = ["a"; 512].join("/");
        for key in
            ["a", "a/b.jpg", ".a", "a..b", "...", "tenants/é 1/+%2f", &"p".repeat(200), &long]
        {
            assert!(check(key).is_ok(), "{key}");
        }
        for key in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "../a",
            "a/.",
            "a\\b",
            "a\0",
            "a\n",
            &"p".repeat(201),
            &format!("{long}/aa"),
        ] {
            assert!(check(key).is_err(), "{key:?}");
        }
    }
}
