//! The `[backup]` section: the bucket that takes backups in place of a folder.

use std::path::{Path, PathBuf};

use objects::{Address, Bucket, Style};
use settings::{Key, Kind, Section};

/// The section's name.
pub(crate) const SECTION: &str = "backup";

/// The keys.
pub(crate) const KEYS: &[Key] = &[
    Key::new("s3_endpoint", Kind::Text, "The S3 address that `--to s3` and `--from s3` mean."),
    Key::new("s3_region", Kind::Text, "The region.").default("us-east-1"),
    Key::new("s3_bucket", Kind::Text, "The bucket; it must be there.").default("backups"),
    Key::new("s3_prefix", Kind::Checked(check_prefix), "What keys begin with, before a slash.")
        .default("holdfast"),
    Key::new("s3_access_key", Kind::Text, "The access key.").secret(),
    Key::new("s3_secret_key", Kind::Text, "The secret key.").secret(),
    Key::new(
        "s3_style",
        Kind::Checked(check_style),
        "How the bucket is named in an address: path, or host as AWS prefers.",
    )
    .default("path"),
    Key::new(
        "scratch",
        Kind::Text,
        "A folder of ours with room for one dump, while it goes to or comes from the bucket.",
    )
    .default("/var/lib/holdfast/scratch"),
];

fn check_prefix(text: &str) -> Result<(), String> {
    objects::key::check(text).map_err(|_| "expected parts with slashes between them".to_owned())
}

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

/// Where the bucket is.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(super) bucket: Bucket,
    pub(super) prefix: String,
    pub(super) scratch: PathBuf,
}

impl Config {
    /// Reads the section and the environment.
    pub(super) fn load(file: Option<&Path>) -> Result<Config, settings::Error> {
        Config::from_section(&Section::load(file, SECTION, KEYS, crate::config::environment)?)
    }

    /// Reads the values.
    pub(crate) fn from_section(section: &Section) -> Result<Config, settings::Error> {
        let missing = |key: &str| section.refuse(key, "is missing: backups in S3 need it");
        let secret = |key: &str| match section.find(key)? {
            Some(value) => Ok(value.secret().expose().to_owned()),
            None => Err(missing(key)),
        };
        let endpoint = section.find("s3_endpoint")?.ok_or_else(|| missing("s3_endpoint"))?;
        let address = Address {
            url: endpoint.parse()?,
            bucket: section.get("s3_bucket")?.text(),
            region: section.get("s3_region")?.text(),
            access_key: secret("s3_access_key")?,
            secret_key: secret("s3_secret_key")?,
            style: style(&section.get("s3_style")?.text()).unwrap_or_default(),
        };
        let bucket = Bucket::new(&address);
        Ok(Config {
            bucket: bucket.map_err(|why| section.refuse("s3_endpoint", why.to_string()))?,
            prefix: section.get("s3_prefix")?.text(),
            scratch: section.get("scratch")?.path(),
        })
    }
}
