//! What the cloud says of events and images by their ids: in its database, or over HTTP.

use std::time::Duration;

use cloud::copies::{self, HeldCopy};
use cloud::ledger::bare;
use event::id::{EventId, MediaId, TenantId};
use event::ledger::HourState;

use super::tier::Tier;

/// Hours, and ids, in one address: what the cloud takes in a parameter.
const HOURS_AT_ONCE: usize = 200;
const IDS_AT_ONCE: usize = 50;

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
