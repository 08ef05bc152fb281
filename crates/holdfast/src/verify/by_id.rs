//! What the cloud says of events and images by their ids: in its database, or over HTTP.

use std::time::Duration;

use cloud::copies::{self, HeldCopy};
use cloud::dead_letters::audit::Actor;
use cloud::ledger::bare;
use cloud::ledger::stored::{self, StoredHour};
use event::id::{EventId, MediaId, TenantId};
use event::ledger::HourState;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::tier::Tier;

/// Hours, and ids, in one address: what the cloud takes in a parameter.
const HOURS_AT_ONCE: usize = 200;
const IDS_AT_ONCE: usize = 50;
/// Hours of stores in one question.
const STORED_AT_ONCE: usize = 24;

impl Tier {
    /// The cloud's count and hash of some hours, and how long it remembers ids.
    pub(super) async fn hours(
        &self,
        tenant: TenantId,
        hours: &[i64],
    ) -> anyhow::Result<(Vec<HourState>, Duration)> {
        let mut found = Vec::new();
        match self {
            Tier::Edge(_) => anyhow::bail!("only the cloud is asked for hours"),
            Tier::Cloud(pool, ttl) => {
                for part in hours.chunks(bare::MAX_HOURS) {
                    found.extend(bare::hours(pool, tenant, part).await?);
                }
                Ok((found, *ttl))
            }
            Tier::Http(remote) => {
                let mut remembers = 0;
                for part in hours.chunks(HOURS_AT_ONCE) {
                    let query = [("tenant_id", tenant.to_string()), ("hours", joined(part))];
                    let answer = remote.find("/api/v1/ledger/hours", &query).await?;
                    let mut answer = answer.unwrap_or_default();
                    let page: Vec<HourState> = serde_json::from_value(answer["hours"].take())?;
                    found.extend(page);
                    remembers = answer["remembers_for_seconds"].as_u64().unwrap_or(0);
                }
                Ok((found, Duration::from_secs(remembers)))
            }
        }
    }

    /// Events of weighings, images and results that the cloud stored since a time. `None`: this cloud is older than the
    /// question.
    pub(super) async fn told(
        &self,
        tenant: TenantId,
        since: Timestamp,
    ) -> anyhow::Result<Option<Vec<EventId>>> {
        match self {
            Tier::Edge(_) => anyhow::bail!("only the cloud is asked what it was told"),
            Tier::Cloud(pool, _) => Ok(Some(bare::told(pool, tenant, since).await?)),
            Tier::Http(remote) => {
                let query = [("tenant_id", tenant.to_string()), ("since", since.to_string())];
                let answer = remote.find("/api/v1/ledger/told", &query).await?;
                let Some(mut answer) = answer else { return Ok(None) };
                Ok(Some(serde_json::from_value(answer["told"].take())?))
            }
        }
    }

    /// Which of these events are nowhere in the cloud.
    pub(super) async fn lacking(
        &self,
        tenant: TenantId,
        events: &[EventId],
    ) -> anyhow::Result<Vec<EventId>> {
        let mut lacking = Vec::new();
        match self {
            Tier::Edge(_) => anyhow::bail!("only the cloud is asked what it lacks"),
            Tier::Cloud(pool, _) => {
                for part in events.chunks(bare::MAX_LOOKED_UP) {
                    lacking.extend(bare::lacking(pool, tenant, part).await?);
                }
            }
            Tier::Http(remote) => {
                for part in events.chunks(IDS_AT_ONCE) {
                    let query = [("tenant_id", tenant.to_string()), ("event_ids", joined(part))];
                    let held: Vec<EventId> =
                        remote.list("/api/v1/ledger/held", &query, "held").await?;
                    lacking.extend(part.iter().filter(|event| !held.contains(event)));
                }
            }
        }
        Ok(lacking)
    }

    /// What was accepted in the hours that ingestion remembers, at least `grace` ago, and what of it no store has. `None`: this cloud
    /// is older than the question.
    pub(super) async fn stored(
        &self,
        tenant: TenantId,
        grace: Duration,
    ) -> anyhow::Result<Option<Vec<StoredHour>>> {
        let mut found = Vec::new();
        match self {
            Tier::Edge(_) => anyhow::bail!("only the cloud is asked what it stored"),
            Tier::Cloud(pool, ttl) => {
                for hour in super::stored::hours(*ttl) {
                    found.extend(stored::unstored(pool, tenant, hour, grace).await?);
                }
            }
            Tier::Http(remote) => {
                let (_, ttl) = self.hours(tenant, &[0]).await?;
                let hours: Vec<i64> = super::stored::hours(ttl).collect();
                for part in hours.chunks(STORED_AT_ONCE) {
                    let query = [
                        ("tenant_id", tenant.to_string()),
                        ("hours", joined(part)),
                        ("grace_seconds", grace.as_secs().to_string()),
                    ];
                    let answer = remote.find("/api/v1/ledger/stored", &query).await?;
                    let Some(mut answer) = answer else { return Ok(None) };
                    let page: Vec<StoredHour> = serde_json::from_value(answer["hours"].take())?;
                    found.extend(page);
                }
            }
        }
        Ok(Some(found))
    }

    /// Has the cloud publish events again when they come again.
    pub(super) async fn ask_again(
        &self,
        tenant: TenantId,
        events: &[EventId],
        dry_run: bool,
    ) -> anyhow::Result<()> {
        for part in events.chunks(stored::MAX_ASKED) {
            match self {
                Tier::Edge(_) => anyhow::bail!("only the cloud publishes events"),
                Tier::Cloud(pool, _) => {
                    let actor = Actor::User(crate::user::this_user());
                    stored::ask_again(pool, &actor, tenant, part, dry_run).await?;
                }
                Tier::Http(remote) => {
                    let body = json!({"tenant_id": tenant, "ids": part, "dry_run": dry_run});
                    let _: Value = remote.post("/api/v1/ledger/again", &body).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the cloud copies objects, and what it has of some images. `None`: this cloud is older than the question.
    pub(super) async fn copies(
        &self,
        tenant: TenantId,
        images: &[MediaId],
    ) -> anyhow::Result<Option<(bool, Vec<HeldCopy>)>> {
        let (mut makes, mut held) = (false, Vec::new());
        match self {
            Tier::Edge(_) => anyhow::bail!("only the cloud is asked for its copies"),
            Tier::Cloud(pool, _) => {
                let pairs: Vec<_> =
                    images.iter().map(|image| (tenant.uuid(), image.uuid())).collect();
                for part in pairs.chunks(copies::MAX_ASKED) {
                    let answer = copies::held(pool, part, false).await?;
                    makes |= answer.copies;
                    held.extend(answer.media);
                }
            }
            Tier::Http(remote) => {
                for part in images.chunks(IDS_AT_ONCE) {
                    let query = [("tenant_id", tenant.to_string()), ("media_ids", joined(part))];
                    let answer = remote.find("/api/v1/ledger/media", &query).await?;
                    let Some(mut answer) = answer else { return Ok(None) };
                    makes |= answer["copies"].as_bool().unwrap_or(false);
                    let page: Vec<HeldCopy> = serde_json::from_value(answer["media"].take())?;
                    held.extend(page);
                }
            }
        }
        Ok(Some((makes, held)))
    }
}

fn joined(list: &[impl ToString]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
