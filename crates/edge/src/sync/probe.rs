//! Whether the cloud would take batches from this site, without sending one.

use super::Error;
use super::cloud::Cloud;
use crate::config::Sync;

/// What the cloud thinks of the site's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It may send batches.
    Good,
    /// `401`: it is not known, was revoked or has expired.
    Unknown,
    /// `403`: it is known, and may not send batches.
    Forbidden,
    /// Something else was answered, which says nothing of the token.
    Unclear(u16),
    /// The cloud cannot be reached.
    Away(String),
}

/// Asks with an empty body, which no cloud stores: one that gets as far as refusing it has taken the token.
pub async fn probe(config: &Sync) -> Result<Standing, Error> {
    Ok(match Cloud::new(config)?.knock().await {
        Ok(400) => Standing::Good,
        Ok(401) => Standing::Unknown,
        Ok(403) => Standing::Forbidden,
        Ok(status) => Standing::Unclear(status),
        Err(why) => Standing::Away(why),
    })
}
