//! The two tiers that can be asked: in their database, or over HTTP with a token.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use api::tokens::Tenants;
use edge::ledger::StreamName;
use edge::sync::admin::Actor;
use event::id::{EventId, NodeId, TenantId};
use event::ledger::{BlockState, MarkState, Place, Repair, Repaired, StreamState};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::remote::Remote;
use crate::scada::whereabouts::has_section;

/// The most pages of one list; a loop beyond it would be a server's fault.
const MAX_PAGES: usize = 100_000;

/// How to reach the tiers.
#[derive(Debug, clap::Args)]
pub(crate) struct TierArgs {
    /// Ask the edge here, with the token in HOLDFAST_EDGE_TOKEN, rather than its database.
    #[arg(long)]
    edge_url: Option<String>,
    /// Ask the cloud here, with the token in HOLDFAST_CLOUD_TOKEN, rather than its database.
    #[arg(long)]
    cloud_url: Option<String>,
    /// PEM certificates to trust for --edge-url and --cloud-url, beside those the system trusts.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The configuration; its [edge] and [cloud] sections say where the databases are. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
    /// Another file with the [cloud] section.
    #[arg(long)]
    cloud_config: Option<PathBuf>,
}

/// What was reached, and why the cloud was not.
pub(crate) struct Tiers {
    pub(crate) edge: Tier,
    pub(crate) cloud: Option<Tier>,
    pub(crate) note: Option<String>,
    /// The site's configuration, where its database is asked.
    pub(crate) site: Option<edge::Config>,
}

impl TierArgs {
    /// The file with the configuration.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// True when the edge was named in so many words.
    pub(crate) fn names_the_edge(&self) -> bool {
        self.edge_url.is_some() || has_section(self.file(), edge::config::SECTION)
    }

    pub(crate) fn open(&self) -> anyhow::Result<Tiers> {
        let (edge, site) = match &self.edge_url {
            Some(url) => {
                (Tier::Http(Remote::new(url, "HOLDFAST_EDGE_TOKEN", self.ca.as_deref())?), None)
            }
            None => {
                let file = self.config.as_deref();
                let config = edge::Config::load(file, crate::config::environment).context(
                    "where the edge is: give --config with an [edge] section, or --edge-url",
                )?;
                (Tier::Edge(pool(config.database.clone())?), Some(config))
            }
        };
        let (cloud, note) = match &self.cloud_url {
            Some(url) => (
                Some(Tier::Http(Remote::new(url, "HOLDFAST_CLOUD_TOKEN", self.ca.as_deref())?)),
                None,
            ),
            None => match self.cloud_database() {
                Ok(tier) => (Some(tier), None),
                Err(error) if self.cloud_config.is_some() => return Err(error),
                Err(_) => {
                    let note = "the cloud was not asked: give --cloud-url with HOLDFAST_CLOUD_TOKEN, \
                                or --cloud-config";
                    (None, Some(note.to_owned()))
                }
            },
        };
        Ok(Tiers { edge, cloud, note, site })
    }

    fn cloud_database(&self) -> anyhow::Result<Tier> {
        let file: Option<&Path> = self.cloud_config.as_deref().or(self.config.as_deref());
        let config = cloud::Config::load(file, crate::config::environment)?;
        Ok(Tier::Cloud(pool(config.database)?, config.dedupe_ttl))
    }
}

/// Reading a large table is no slow statement to be cut off.
fn pool(options: pg::Options) -> anyhow::Result<pg::Pool> {
    let options = pg::Options { max_connections: 1, statement_timeout: None, ..options };
    Ok(pg::Pool::new(&options)?)
}

/// One tier.
pub(crate) enum Tier {
    Edge(pg::Pool),
    /// The database, and how long ingestion remembers event ids.
    Cloud(pg::Pool, Duration),
    Http(Remote),
}

impl console::verify::Tier for Tier {
    type Error = anyhow::Error;

    async fn streams(
        &self,
        tenant: Option<TenantId>,
        stream: Option<&NodeId>,
    ) -> anyhow::Result<Vec<StreamState>> {
        let mut found = Vec::new();
        let tenants = tenant.map_or(Tenants::All, |tenant| Tenants::Only(vec![tenant]));
        match self {
            Tier::Edge(pool) => {
                use edge::ledger::states::{Wanted, streams};
                let mut wanted = Wanted { stream: stream.cloned(), ..Wanted::default() };
                for _ in 0..MAX_PAGES {
                    let page = streams(pool, &tenants, &wanted).await?;
                    found.extend(page.streams);
                    let Some((stream, epoch)) =
                        page.next_after.as_deref().and_then(|key| key.split_once(','))
                    else {
                        break;
                    };
                    wanted.after = Some((stream.to_owned(), epoch.parse()?));
                }
            }
            Tier::Cloud(pool, _) => {
                use cloud::ledger::states::{Wanted, streams};
                let mut wanted = Wanted { stream: stream.cloned(), ..Wanted::default() };
                for _ in 0..MAX_PAGES {
                    let page = streams(pool, &tenants, &wanted).await?;
                    found.extend(page.streams);
                    let Some(key) = page.next_after else { break };
                    let parts: Vec<&str> = key.split(',').collect();
                    let [tenant, stream, epoch] = parts[..] else { break };
                    wanted.after = Some((tenant.parse()?, stream.to_owned(), epoch.parse()?));
                }
            }
            Tier::Http(remote) => {
                let mut query: Vec<(&str, String)> = Vec::new();
                query.extend(tenant.map(|tenant| ("tenant_id", tenant.to_string())));
                query.extend(stream.map(|stream| ("stream", stream.to_string())));
                found = remote.pages("/api/v1/ledger/streams", &query, "streams").await?;
            }
        }
        Ok(found)
    }

    async fn blocks(&self, of: &StreamState) -> anyhow::Result<Vec<BlockState>> {
        let mut found: Vec<BlockState> = Vec::new();
        if let Tier::Http(remote) = self {
            return remote.pages("/api/v1/ledger/blocks", &place(of), "blocks").await;
        }
        for _ in 0..MAX_PAGES {
            let after = found.last().map(|one| one.block);
            let page = match self {
                Tier::Edge(pool) => {
                    edge::ledger::states::blocks(pool, &Tenants::All, &edge_name(of), after).await?
                }
                Tier::Cloud(pool, _) => {
                    cloud::ledger::states::blocks(pool, &cloud_name(of), after).await?
                }
                Tier::Http(_) => Vec::new(),
            };
            if page.is_empty() {
                break;
            }
            found.extend(page);
        }
        Ok(found)
    }

    async fn marks(&self, of: &StreamState, blocks: &[u64]) -> anyhow::Result<Vec<MarkState>> {
        match self {
            Tier::Edge(pool) => {
                let name = edge_name(of);
                Ok(edge::ledger::states::marks(pool, &Tenants::All, &name, blocks).await?)
            }
            Tier::Cloud(pool, _) => {
                Ok(cloud::ledger::states::marks(pool, &cloud_name(of), blocks).await?)
            }
            Tier::Http(remote) => {
                let mut query = place(of);
                let list: Vec<String> = blocks.iter().map(u64::to_string).collect();
                query.push(("blocks", list.join(",")));
                remote.list("/api/v1/ledger/marks", &query, "marks").await
            }
        }
    }

    async fn recount(&self, of: &StreamState) -> anyhow::Result<Vec<BlockState>> {
        match self {
            Tier::Edge(pool) => {
                Ok(edge::ledger::states::recount(pool, &Tenants::All, &edge_name(of)).await?)
            }
            Tier::Cloud(..) => Ok(Vec::new()),
            Tier::Http(remote) => {
                let mut query = place(of);
                query.push(("source", "rows".to_owned()));
                remote.pages("/api/v1/ledger/blocks", &query, "blocks").await
            }
        }
    }

    async fn places(&self, of: &StreamState, range: (u64, u64)) -> anyhow::Result<Vec<Place>> {
        match self {
            Tier::Edge(pool) => {
                let name = edge_name(of);
                Ok(edge::ledger::states::places(pool, &Tenants::All, &name, range).await?)
            }
            Tier::Cloud(..) => Ok(Vec::new()),
            Tier::Http(remote) => {
                let mut query = place(of);
                query.extend([("from", range.0.to_string()), ("to", range.1.to_string())]);
                remote.list("/api/v1/ledger/places", &query, "places").await
            }
        }
    }
}

impl Tier {
    /// Repairs the edge.
    pub(crate) async fn repair(&self, what: &Repair) -> anyhow::Result<Repaired> {
        match self {
            Tier::Edge(pool) => {
                let actor = Actor::user(&crate::user::this_user());
                Ok(edge::ledger::repair(pool, &Tenants::All, &actor, what).await?)
            }
            Tier::Cloud(..) => anyhow::bail!("only an edge is repaired"),
            Tier::Http(remote) => remote.post("/api/v1/ledger/repair", &json!(what)).await,
        }
    }

    /// Where an event is at this tier.
    pub(crate) async fn trace(
        &self,
        event: EventId,
        tenant: Option<TenantId>,
        occurred_at: Option<Timestamp>,
    ) -> anyhow::Result<Option<Value>> {
        let tenants = tenant.map_or(Tenants::All, |tenant| Tenants::Only(vec![tenant]));
        match self {
            Tier::Edge(pool) => {
                Ok(edge::ledger::trace(pool, &tenants, event).await?.map(|found| json!(found)))
            }
            Tier::Cloud(pool, _) => {
                let found = cloud::ledger::trace(pool, &tenants, event, occurred_at).await?;
                Ok(found.map(|found| json!(found)))
            }
            Tier::Http(remote) => {
                let mut query = Vec::new();
                query.extend(tenant.map(|tenant| ("tenant_id", tenant.to_string())));
                query.extend(occurred_at.map(|at| ("occurred_at", at.to_string())));
                remote.find(&format!("/api/v1/ledger/events/{event}"), &query).await
            }
        }
    }
}

fn edge_name(of: &StreamState) -> StreamName {
    StreamName { stream: of.stream.clone(), epoch: of.epoch }
}

fn cloud_name(of: &StreamState) -> cloud::ledger::StreamName {
    let (tenant_id, stream, epoch) = (of.tenant_id, of.stream.clone(), of.epoch);
    cloud::ledger::StreamName { tenant_id, stream, epoch }
}

fn place(of: &StreamState) -> Vec<(&'static str, String)> {
    vec![
        ("tenant_id", of.tenant_id.to_string()),
        ("stream", of.stream.to_string()),
        ("epoch", of.epoch.to_string()),
    ]
}
