//! Whether those that the console asks let it in: what a check of the installation wants to know.

use futures_util::future::join_all;

use crate::config::Config;
use crate::upstream::{Fault, QUICK, Remote, Upstreams};

/// One upstream, and what it says to our token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// What it says.
    pub standing: Standing,
}

/// What an upstream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A site.
    Site,
    /// The cloud.
    Cloud,
    /// The historian.
    Historian,
    /// A SCADA node.
    Producer,
    /// Schedules.
    Schedule,
    /// The control socket of `up`.
    Up,
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

/// Asks each upstream for what the console polls, once, side by side.
pub async fn probe(config: &Config) -> Result<Vec<Probed>, crate::Error> {
    let upstreams = Upstreams::new(config)?;
    let of = |kind| move |remote| (kind, remote);
    let all = upstreams.sites.iter().map(of(Kind::Site));
    let all = all.chain(upstreams.cloud.iter().map(of(Kind::Cloud)));
    let all = all.chain(upstreams.historian.iter().map(of(Kind::Historian)));
    let all = all.chain(upstreams.producers.iter().map(of(Kind::Producer)));
    let all = all.chain(upstreams.schedule.iter().map(of(Kind::Schedule)));
    let asked = all.map(async |(kind, remote): (Kind, &Remote)| Probed {
        name: remote.name.clone(),
        kind,
        standing: ask(kind, remote).await,
    });
    let mut probed = join_all(asked).await;
    if let Some(control) = &upstreams.control {
        let standing = match control.states().await {
            Ok(_) => Standing::Good,
            Err(fault) => Standing::Unclear(fault.to_string()),
        };
        probed.push(Probed {
            name: "the control socket of up".to_owned(),
            kind: Kind::Up,
            standing,
        });
    }
    Ok(probed)
}

async fn ask(kind: Kind, remote: &Remote) -> Standing {
    let path = match kind {
        Kind::Site => "/api/v1/nodes",
        Kind::Cloud | Kind::Historian | Kind::Schedule | Kind::Up => "/api/v1/summary",
        Kind::Producer => "/metrics",
    };
    match remote.text(path, QUICK).await {
        Ok(_) => Standing::Good,
        Err(Fault::Refused { status: 401, .. }) => Standing::Unknown,
        Err(Fault::Refused { status: 403, .. }) => Standing::Forbidden,
        Err(other) => Standing::Unclear(other.to_string()),
    }
}
