//! What the edge says of events without a sequence and of images: in its database, or over HTTP.

use std::collections::BTreeMap;

use api::tokens::Tenants;
use edge::ledger::media::{ImageEvent, MAX_IMAGES, StoredImage};
use edge::ledger::{bare, media};
use edge::sync::admin::Actor;
use event::id::{EventId, MediaId, TenantId};
use event::ledger::HourState;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::remote::MAX_PAGES;
use super::tier::Tier;

/// Ids in one address.
const IDS_AT_ONCE: usize = 50;

#[derive(Debug, Deserialize)]
struct Acked {
    event_id: EventId,
    acked_at: Timestamp,
}

fn scope(tenant: Option<TenantId>) -> Tenants {
    tenant.map_or(Tenants::All, |tenant| Tenants::Only(vec![tenant]))
}

fn named(tenant: Option<TenantId>) -> Vec<(&'static str, String)> {
    tenant.map(|tenant| ("tenant_id", tenant.to_string())).into_iter().collect()
}

fn me() -> Actor {
    Actor::user(&crate::user::this_user())
}

impl Tier {
    /// Which of these events the site has never told of.
    pub(super) async fn unknown(
        &self,
        tenant: TenantId,
        events: &[EventId],
    ) -> anyhow::Result<Vec<EventId>> {
        match self {
            Tier::Cloud(..) => anyhow::bail!("only an edge has an outbox"),
            Tier::Edge(pool) => Ok(bare::unknown(pool, tenant, events).await?),
            Tier::Http(remote) => {
                let mut unknown = Vec::new();
                for event in events {
                    let path = format!("/api/v1/ledger/events/{event}");
                    if remote.find(&path, &[]).await?.is_none() {
                        unknown.push(*event);
                    }
                }
                Ok(unknown)
            }
        }
    }

    /// Hours with events that have no sequence, by tenant. `None`: this edge is older than the question.
    pub(super) async fn bare_hours(
        &self,
        tenant: Option<TenantId>,
    ) -> anyhow::Result<Option<BTreeMap<TenantId, Vec<HourState>>>> {
        let mut all: Vec<HourState> = Vec::new();
        match self {
            Tier::Cloud(..) => anyhow::bail!("only an edge has an outbox"),
            Tier::Edge(pool) => {
                for _ in 0..MAX_PAGES {
                    let after = all.last().map(|last| (last.tenant_id, last.hour));
                    let page = bare::hours(pool, &scope(tenant), after).await?;
                    if page.is_empty() {
                        break;
                    }
                    all.extend(page);
                }
            }
            Tier::Http(remote) => {
                let (path, query) = ("/api/v1/ledger/hours", named(tenant));
                if remote.find(path, &query).await?.is_none() {
                    return Ok(None);
                }
                all = remote.pages(path, &query, "hours").await?;
            }
        }
        let mut found: BTreeMap<TenantId, Vec<HourState>> = BTreeMap::new();
        for one in all {
            found.entry(one.tenant_id).or_default().push(one);
        }
        Ok(Some(found))
    }

    /// Events of an hour without a sequence that the cloud acknowledged, after one, and when.
    pub(super) async fn acked(
        &self,
        (tenant, hour): (TenantId, i64),
        after: Option<EventId>,
    ) -> anyhow::Result<Vec<(EventId, Timestamp)>> {
        match self {
            Tier::Cloud(..) => anyhow::bail!("only an edge has an outbox"),
            Tier::Edge(pool) => Ok(bare::acked(pool, tenant, hour, after).await?),
            Tier::Http(remote) => {
                let mut query = named(Some(tenant));
                query.push(("hour", hour.to_string()));
                query.extend(after.map(|event| ("after", event.to_string())));
                let page: Vec<Acked> =
                    remote.list("/api/v1/ledger/acked", &query, "events").await?;
                Ok(page.into_iter().map(|one| (one.event_id, one.acked_at)).collect())
            }
        }
    }

    /// Sends events again; returns how many.
    pub(super) async fn put_back(
        &self,
        tenant: TenantId,
        events: &[EventId],
        dry_run: bool,
    ) -> anyhow::Result<u64> {
        let mut sent = 0;
        for part in events.chunks(usize::try_from(bare::MAX_ACKED)?) {
            sent += match self {
                Tier::Cloud(..) => anyhow::bail!("only an edge is repaired"),
                Tier::Edge(pool) => bare::put_back(pool, &me(), tenant, part, dry_run).await?,
                Tier::Http(remote) => {
                    let body = json!({"tenant_id": tenant, "ids": part, "dry_run": dry_run});
                    let answer: Value = remote.post("/api/v1/ledger/resend", &body).await?;
                    answer["sent"].as_u64().unwrap_or(0)
                }
            };
        }
        Ok(sent)
    }

    /// A page of images whose object the site has. `None`: this edge is older than the question.
    pub(super) async fn images(
        &self,
        tenant: Option<TenantId>,
        after: Option<MediaId>,
    ) -> anyhow::Result<Option<Vec<StoredImage>>> {
        match self {
            Tier::Cloud(..) => anyhow::bail!("only an edge is asked for its images"),
            Tier::Edge(pool) => Ok(Some(media::stored(pool, &scope(tenant), after).await?)),
            Tier::Http(remote) => {
                let mut query = named(tenant);
                query.extend(after.map(|image| ("after", image.to_string())));
                let page = remote.find("/api/v1/ledger/media", &query).await?;
                let list = page.map(|mut page| serde_json::from_value(page["media"].take()));
                Ok(list.transpose()?)
            }
        }
    }

    /// The events that told of some images.
    pub(super) async fn image_events(
        &self,
        tenant: TenantId,
        images: &[MediaId],
    ) -> anyhow::Result<Vec<ImageEvent>> {
        match self {
            Tier::Cloud(..) => anyhow::bail!("only an edge is asked for its images"),
            Tier::Edge(pool) => Ok(media::events(pool, tenant, images).await?),
            Tier::Http(remote) => {
                let mut found = Vec::new();
                for part in images.chunks(IDS_AT_ONCE) {
                    let mut query = named(Some(tenant));
                    let ids: Vec<String> = part.iter().map(ToString::to_string).collect();
                    query.push(("media_ids", ids.join(",")));
                    let page: Vec<ImageEvent> =
                        remote.list("/api/v1/ledger/media/events", &query, "events").await?;
                    found.extend(page);
                }
                Ok(found)
            }
        }
    }

    /// Tells the cloud of images again; returns of how many.
    pub(super) async fn tell_again(
        &self,
        tenant: TenantId,
        images: &[MediaId],
        dry_run: bool,
    ) -> anyhow::Result<u64> {
        let mut told = 0;
        for part in images.chunks(usize::try_from(MAX_IMAGES)?) {
            told += match self {
                Tier::Cloud(..) => anyhow::bail!("only an edge is repaired"),
                Tier::Edge(pool) => media::tell_again(pool, &me(), tenant, part, dry_run).await?,
                Tier::Http(remote) => {
                    let body = json!({"tenant_id": tenant, "ids": part, "dry_run": dry_run});
                    let answer: Value = remote.post("/api/v1/ledger/media/tell", &body).await?;
                    answer["sent"].as_u64().unwrap_or(0)
                }
            };
        }
        Ok(told)
    }
}
