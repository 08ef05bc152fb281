//! Rows of images against the objects of the site's store, both ways: the media sweep looks, and mends.

use std::time::Duration;

use edge::media::sweep::{self, Named, Swept};
use serde::Serialize;

use super::LOOK_EVERY;

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MediaReport {
    /// Rows that were looked at.
    pub(super) rows: u64,
    /// Objects that were looked at.
    pub(super) objects: u64,
    /// What does not agree: the first thousand faults that are still there, and as many others.
    pub(super) findings: Vec<Named>,
}

impl MediaReport {
    /// Findings that are still open.
    pub(super) fn wrong(&self) -> impl Iterator<Item = &Named> {
        self.findings.iter().filter(|one| one.is_open())
    }
}

/// Looks, or with `mend` mends. An edge that sweeps at the moment is waited for.
pub(super) async fn check(
    site: &edge::Config,
    mend: bool,
    wait: Duration,
) -> anyhow::Result<MediaReport> {
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        if let Some(Swept { report, named }) = sweep::named(site, !mend).await? {
            let (rows, objects) = (report.rows, report.objects);
            return Ok(MediaReport { rows, objects, findings: named });
        }
        anyhow::ensure!(
            tokio::time::Instant::now() < deadline,
            "a sweep of the site's media does not end: try again later"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
