//! Whether those that the console asks let it in: what a check of the installation wants to know.

use crate::config::Config;
use crate::upstream::{Fault, QUICK, Remote, Upstreams};

/// One upstream, and what it says to our token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// What it is called.
    pub name: String,
    /// What it says.
    pub standing: Standing,
}

/// What an upstream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// We are let in.
    Good,
    /// `401`: the token is not known, was revoked or has expired.
    Unknown,
    /// `403`: the token is known, and may not look.
    Forbidden,
    /// It is away, or says what tells nothing of the token.
    Unclear(String),
}

/// Asks each upstream for what the console polls, once.
pub async fn probe(config: &Config) -> Result<Vec<Probed>, crate::Error> {
    let upstreams = Upstreams::new(config)?;
    let sites = upstreams.sites.iter().map(|site| (site, "/api/v1/nodes"));
    let others = upstreams.cloud.iter().chain(&upstreams.historian);
    let mut probed = Vec::new();
    for (remote, path) in sites.chain(others.map(|one| (one, "/api/v1/summary"))) {
        probed.push(Probed { name: remote.name.clone(), standing: ask(remote, path).await });
    }
    Ok(probed)
}

async fn ask(remote: &Remote, path: &str) -> Standing {
    match remote.get::<serde_json::Value>(path, &[], QUICK).await {
        Ok(_) => Standing::Good,
        Err(Fault::Refused { status: 401, .. }) => Standing::Unknown,
        Err(Fault::Refused { status: 403, .. }) => Standing::Forbidden,
        Err(other) => Standing::Unclear(other.to_string()),
    }
}
