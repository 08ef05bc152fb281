//! The `media.*` keys: the object store, and what cameras may put there.

use std::time::Duration;

use objects::{Address, Bucket, Style};
use settings::{Key, Kind, Section};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// The keys.
pub(super) const KEYS: [Key; 15] = [
    Key::new(
        "media.s3_endpoint",
        Kind::Text,
        "The object store's S3 address; without it there is no media.",
    ),
    Key::new(
        "media.s3_public_endpoint",
        Kind::Text,
        "The store as cameras reach it, for presigned addresses; the same when absent.",
    ),
    Key::new("media.s3_region", Kind::Text, "The region.").default("us-east-1"),
    Key::new("media.s3_bucket", Kind::Text, "The bucket.").default("media"),
    Key::new("media.s3_access_key", Kind::Text, "The access key.").secret(),
    Key::new("media.s3_secret_key", Kind::Text, "The secret key.").secret(),
    Key::new(
        "media.s3_style",
        Kind::Checked(check_style),
        "How the bucket is named in an address: path, or host as AWS prefers.",
    )
    .default("path"),
    Key::new(
        "media.presign_ttl",
        Kind::Duration { min_ms: SECOND, max_ms: 7 * DAY },
        "How long a presigned address works.",
    )
    .default("15m"),
    Key::new(
        "media.upload_grace",
        Kind::Duration { min_ms: 0, max_ms: 7 * DAY },
        "How long an upload that began in time may take after its address has expired.",
    )
    .default("1h"),
    Key::new(
        "media.max_size",
        Kind::Size { min: 1 << 10, max: 5 << 30 },
        "The largest image. The cloud copies images of up to 64 MiB.",
    )
    .default("64MiB"),
    Key::new(
        "media.multipart_above",
        Kind::Size { min: 5 << 20, max: 5 << 30 },
        "Larger images are uploaded in parts.",
    )
    .default("16MiB"),
    Key::new(
        "media.max_reads",
        Kind::Integer { min: 1, max: 64 },
        "Objects read at once for their hash; further completions are told to come back.",
    )
    .default("4"),
    Key::new(
        "media.sweep_every",
        Kind::Duration { min_ms: 100, max_ms: 7 * DAY },
        "How often rows and objects are compared.",
    )
    .default("10m"),
    Key::new(
        "media.orphan_grace",
        Kind::Duration { min_ms: 0, max_ms: 365 * DAY },
        "An object without a row, and an upload that nobody knows, are left alone for this long.",
    )
    .default("24h"),
    Key::new(
        "media.orphans",
        Kind::Checked(check_orphans),
        "What becomes of an object without a row: adopt, delete or report.",
    )
    .default("adopt"),
];

fn check_style(text: &str) -> Result<(), String> {
    style(text).map(drop).ok_or_else(|| "expected path or host".to_owned())
}

fn style(text: &str) -> Option<Style> {
    match text {
        "path" => Some(Style::Path),
        "host" => Some(Style::VirtualHost),
        _ => None,
    }
}

fn check_orphans(text: &str) -> Result<(), String> {
    Orphans::read(text).map(drop).ok_or_else(|| "expected adopt, delete or report".to_owned())
}

/// What becomes of an object without a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// It gets a row.
    Adopt,
    /// It is removed.
    Delete,
    /// It is counted.
    Report,
}

impl Orphans {
    fn read(text: &str) -> Option<Orphans> {
        match text {
            "adopt" => Some(Orphans::Adopt),
            "delete" => Some(Orphans::Delete),
            "report" => Some(Orphans::Report),
            _ => None,
        }
    }
}

/// How media are kept; docs/spec/media.md says what each value does.
#[derive(Debug, Clone)]
pub struct Media {
    /// The bucket, as the edge reaches it.
    pub store: Address,
    /// The same bucket, as cameras reach it.
    pub public: Address,
    /// How long a presigned address works.
    pub presign_ttl: Duration,
    /// How long after that an upload may still be under way.
    pub upload_grace: Duration,
    /// The largest image.
    pub max_size: u64,
    /// Larger ones go in parts.
    pub multipart_above: u64,
    /// Objects read at once.
    pub max_reads: usize,
    /// How often rows and objects are compared.
    pub sweep_every: Duration,
    /// How long what nobody knows is left alone.
    pub orphan_grace: Duration,
    /// What becomes of an object without a row.
    pub orphans: Orphans,
}

impl Media {
    /// `None` when there is no object store.
    pub(super) fn from_section(section: &Section) -> Result<Option<Media>, settings::Error> {
        let Some(endpoint) = section.find("media.s3_endpoint")? else {
            return Ok(None);
        };
        let secret = |key: &str| match section.find(key)? {
            Some(value) => Ok(value.secret().expose().to_owned()),
            None => Err(section.refuse(key, "is missing: the store wants signed requests")),
        };
        let store = Address {
            url: endpoint.parse()?,
            bucket: section.get("media.s3_bucket")?.text(),
            region: section.get("media.s3_region")?.text(),
            access_key: secret("media.s3_access_key")?,
            secret_key: secret("media.s3_secret_key")?,
            style: style(&section.get("media.s3_style")?.text()).unwrap_or_default(),
        };
        let public = match section.find("media.s3_public_endpoint")? {
            Some(url) => Address { url: url.parse()?, ..store.clone() },
            None => store.clone(),
        };
        for (key, address) in [("media.s3_endpoint", &store), ("media.s3_public_endpoint", &public)]
        {
            Bucket::new(address).map_err(|why| section.refuse(key, why.to_string()))?;
        }
        Ok(Some(Media {
            store,
            public,
            presign_ttl: section.get("media.presign_ttl")?.duration()?,
            upload_grace: section.get("media.upload_grace")?.duration()?,
            max_size: section.get("media.max_size")?.size()?,
            multipart_above: section.get("media.multipart_above")?.size()?,
            max_reads: section.get("media.max_reads")?.parse()?,
            sweep_every: section.get("media.sweep_every")?.duration()?,
            orphan_grace: section.get("media.orphan_grace")?.duration()?,
            orphans: Orphans::read(&section.get("media.orphans")?.text())
                .unwrap_or(Orphans::Report),
        }))
    }
}
