//! Where a bucket is, and who asks.

use reqwest::Url;

/// How the bucket is named in a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// In the path: every store can.
    #[default]
    Path,
    /// In the host's name, as AWS prefers.
    VirtualHost,
}

/// Where a bucket is, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The store.
    pub url: Url,
    /// The bucket.
    pub bucket: String,
    /// The region it says it is in.
    pub region: String,
    /// The access key.
    pub access_key: String,
    /// The secret key.
    pub secret_key: String,
    /// How the bucket is named in a URL.
    pub style: Style,
}

impl std::fmt::Debug for Address {
    /// Without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let host = self.url.host_str().unwrap_or_default();
        f.debug_struct("Address").field("host", &host).field("bucket", &self.bucket).finish()
    }
}
