//! Keys in the object store.

use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::Invalid;
use crate::id::{BarnId, DeviceId, FarmId, MediaId, TenantId};

/// The kind of an image, as its file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ext {
    /// JPEG. `jpeg` is read as well and written as `jpg`, so that one kind has one key.
    Jpg,
    /// PNG.
    Png,
    /// WebP.
    Webp,
}

impl Ext {
    /// Every kind.
    pub const ALL: [Ext; 3] = [Ext::Jpg, Ext::Png, Ext::Webp];

    /// The extension, without a dot.
    pub fn as_str(self) -> &'static str {
        match self {
            Ext::Jpg => "jpg",
            Ext::Png => "png",
            Ext::Webp => "webp",
        }
    }

    /// The media type.
    pub fn mime_type(self) -> &'static str {
        match self {
            Ext::Jpg => "image/jpeg",
            Ext::Png => "image/png",
            Ext::Webp => "image/webp",
        }
    }

    /// The kind with this media type, if images of it are taken.
    pub fn from_mime_type(mime_type: &str) -> Option<Ext> {
        Ext::ALL.into_iter().find(|ext| ext.mime_type() == mime_type)
    }
}

impl FromStr for Ext {
    type Err = Invalid;

    /// Reads an extension without its dot.
    fn from_str(text: &str) -> Result<Ext, Invalid> {
        match text {
            "jpg" | "jpeg" => Ok(Ext::Jpg),
            "png" => Ok(Ext::Png),
            "webp" => Ok(Ext::Webp),
            _ => Err(Invalid::value("ext", text, "one of jpg, jpeg, png, webp")),
        }
    }
}

/// The key of an image:
/// `tenants/{tenant_id}/farms/{farm_id}/barns/{barn_id}/devices/{device_id}/images/{year}/{month}/{day}/{media_id}.{ext}`,
/// with the date of `captured_at` in UTC.
///
/// Made of ids, digits and a fixed extension only: nothing from outside can climb out of its tenant.
pub fn object_key(
    tenant: TenantId,
    farm: FarmId,
    barn: BarnId,
    device: DeviceId,
    captured_at: Timestamp,
    media: MediaId,
    ext: Ext,
) -> String {
    let date = captured_at.to_zoned(TimeZone::UTC).date();
    format!(
        "tenants/{tenant}/farms/{farm}/barns/{barn}/devices/{device}/images/{:04}/{:02}/{:02}/{media}.{}",
        date.year(),
        date.month(),
        date.day(),
        ext.as_str(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_as_documented_with_the_date_in_utc() {
        let id = |n: u8| format!("018f1a84-bb0e-7d3f-b2e4-9e8b5f8e00{n:02}");
        let key = object_key(
            id(1).parse().unwrap(),
            id(2).parse().unwrap(),
            id(3).parse().unwrap(),
            id(4).parse().unwrap(),
            "2026-03-01T06:59:59+07:00".parse().unwrap(),
            id(5).parse().unwrap(),
            Ext::Webp,
        );
        assert_eq!(
            key,
            format!(
                "tenants/{}/farms/{}/barns/{}/devices/{}/images/2026/02/28/{}.webp",
                id(1),
                id(2),
                id(3),
                id(4),
                id(5)
            )
        );
    }

    #[test]
    fn extensions_and_media_types() {
        for ext in Ext::ALL {
            assert_eq!(ext.as_str().parse::<Ext>(), Ok(ext));
            assert_eq!(Ext::from_mime_type(ext.mime_type()), Some(ext));
        }
        assert_eq!("jpeg".parse::<Ext>(), Ok(Ext::Jpg));
        for text in ["", ".jpg", "JPG", "svg", "jpg/..", "jpg "] {
            assert!(text.parse::<Ext>().is_err(), "{text:?}");
        }
        assert_eq!(Ext::from_mime_type("image/svg+xml"), None);
    }
}
