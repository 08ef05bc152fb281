//! The `sync.*` keys: how events reach the cloud.

use std::time::Duration;

use settings::{LiveSecret, Section};

/// How the forwarder works; docs/spec/sync-forwarder.md says what each value does.
#[derive(Debug, Clone)]
pub struct Sync {
    /// The cloud, without a path.
    pub cloud_url: String,
    /// The site's token at the cloud.
    pub token: LiveSecret,
    /// Whom it trusts, and who it says it is.
    pub trust: api::client::Tls,
    /// The site's name.
    pub cluster_id: String,
    /// The most events in one request.
    pub batch_events: u32,
    /// Batches under way at once, for each part of the outbox.
    pub workers: usize,
    /// How long a claim holds rows.
    pub lease: Duration,
    /// How many lost leases bury a row.
    pub max_attempts: u32,
    /// What is doubled with every failure of the link.
    pub backoff_base: Duration,
    /// The longest pause after a failure, before the jitter.
    pub backoff_cap: Duration,
    /// How long a request may take.
    pub timeout: Duration,
    /// The share of the time that a backlog is sent.
    pub backlog_share: f64,
    /// Telemetry that has waited longer is backlog.
    pub backlog_after: Duration,
    /// A backlog that does not shrink for this long is an alarm.
    pub stall_after: Duration,
    /// How often the cloud is asked which images it has copied.
    pub media_every: Duration,
}

impl Sync {
    /// `None` when there is no cloud.
    pub(super) fn from_section(section: &Section) -> Result<Option<Sync>, settings::Error> {
        let Some(url) = section.find("sync.cloud_url")? else {
            return Ok(None);
        };
        let token =
            section.find("sync.token")?.map(|value| value.live_secret()).ok_or_else(|| {
                section.refuse("sync.token", "is missing: the cloud takes nothing without a token")
            })?;
        Ok(Some(Sync {
            cloud_url: url.text().trim_end_matches('/').to_owned(),
            token,
            trust: api::client::Tls::from_section(section, "sync.")?,
            cluster_id: section.get("sync.cluster_id")?.text(),
            batch_events: section.get("sync.batch_events")?.parse()?,
            workers: section.get("sync.workers")?.parse()?,
            lease: Duration::from_secs(section.get("sync.lease_seconds")?.parse()?),
            max_attempts: section.get("sync.max_attempts")?.parse()?,
            backoff_base: section.get("sync.backoff_base")?.duration()?,
            backoff_cap: section.get("sync.backoff_cap")?.duration()?,
            timeout: section.get("sync.timeout")?.duration()?,
            backlog_share: section.get("sync.backlog_share")?.parse()?,
            backlog_after: section.get("sync.backlog_after")?.duration()?,
            stall_after: section.get("sync.stall_after")?.duration()?,
            media_every: section.get("sync.media_every")?.duration()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        Config::load(None, |name| {
            let name = name.strip_prefix("HOLDFAST_EDGE_")?;
            let url = ("DATABASE_URL", "postgres:///farm?host=/run");
            let found = pairs.iter().chain([&url]).find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        })
    }

    const CLOUD: (&str, &str) = ("SYNC_CLOUD_URL", "https://cloud.example/");

    #[test]
    fn nothing_is_forwarded_unless_there_is_a_cloud() {
        assert!(load(&[]).unwrap().sync.is_none());
        assert!(load(&[("SYNC_TOKEN", "tulip")]).unwrap().sync.is_none());
    }

    #[test]
    fn the_defaults_are_the_sites_and_the_token_does_not_show() {
        let config = load(&[CLOUD, ("SYNC_TOKEN", "tulip")]).unwrap();
        assert!(!format!("{config:?}").contains("tulip"));
        let sync = config.sync.unwrap();
        assert_eq!(sync.cloud_url, "https://cloud.example");
        assert_eq!((sync.max_attempts, sync.batch_events), (10, 500));
        assert_eq!((sync.backoff_base.as_secs(), sync.backoff_cap.as_secs()), (1, 300));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (pairs, named) in [
            (vec![CLOUD], "sync.token"),
            (vec![("SYNC_CLOUD_URL", "ftp://cloud"), ("SYNC_TOKEN", "t")], "sync.cloud_url"),
            (vec![CLOUD, ("SYNC_TOKEN", "t"), ("SYNC_BACKLOG_SHARE", "0")], "sync.backlog_share"),
            (vec![CLOUD, ("SYNC_TOKEN", "t"), ("SYNC_CLUSTER_ID", "a b")], "sync.cluster_id"),
        ] {
            let error = load(&pairs).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
