//! The ledgers of the tiers, asked when somebody looks, and kept for a moment so that many who look ask once.

use std::sync::Arc;
use std::time::Duration;

use event::id::{NodeId, TenantId};
use event::ledger::{BlockState, MarkState, Place, StreamState};
use uuid::Uuid;

use crate::answers::Answers;
use crate::upstream::{Fault, PATIENT, Remote};
use crate::verify::Tier;

/// How old an answer may be.
const LIFE: Duration = Duration::from_secs(3);

/// A site's, or a tenant's in the cloud.
type Key = (Option<String>, Option<Uuid>);

/// See the module.
#[derive(Debug)]
pub(crate) struct Ledgers(Answers<Key, Vec<StreamState>>);

impl Default for Ledgers {
    fn default() -> Ledgers {
        Ledgers(Answers::new(LIFE))
    }
}

impl Ledgers {
    /// Every stream of a site.
    pub(super) async fn of_site(&self, site: &Remote) -> Result<Arc<Vec<StreamState>>, Fault> {
        let key = (Some(site.name.clone()), None);
        self.0.get(key, async || site.streams(None, None).await).await
    }

    /// Every stream of a tenant in the cloud.
    pub(super) async fn of_cloud(
        &self,
        cloud: &Remote,
        tenant: TenantId,
    ) -> Result<Arc<Vec<StreamState>>, Fault> {
        let key = (None, Some(tenant.uuid()));
        self.0.get(key, async || cloud.streams(Some(tenant), None).await).await
    }
}

fn place(of: &StreamState) -> Vec<(&'static str, String)> {
    vec![
        ("tenant_id", of.tenant_id.to_string()),
        ("stream", of.stream.to_string()),
        ("epoch", of.epoch.to_string()),
    ]
}

impl Tier for Remote {
    type Error = Fault;

    async fn streams(
        &self,
        tenant: Option<TenantId>,
        stream: Option<&NodeId>,
    ) -> Result<Vec<StreamState>, Fault> {
        let mut query: Vec<(&str, String)> = Vec::new();
        query.extend(tenant.map(|tenant| ("tenant_id", tenant.to_string())));
        query.extend(stream.map(|stream| ("stream", stream.to_string())));
        self.pages("/api/v1/ledger/streams", &query, "streams").await
    }

    async fn blocks(&self, of: &StreamState) -> Result<Vec<BlockState>, Fault> {
        self.pages("/api/v1/ledger/blocks", &place(of), "blocks").await
    }

    async fn marks(&self, of: &StreamState, blocks: &[u64]) -> Result<Vec<MarkState>, Fault> {
        let mut query = place(of);
        let list: Vec<String> = blocks.iter().map(u64::to_string).collect();
        query.push(("blocks", list.join(",")));
        self.member("/api/v1/ledger/marks", &query, "marks").await
    }

    async fn recount(&self, of: &StreamState) -> Result<Vec<BlockState>, Fault> {
        let mut query = place(of);
        query.push(("source", "rows".to_owned()));
        self.pages("/api/v1/ledger/blocks", &query, "blocks").await
    }

    async fn places(&self, of: &StreamState, range: (u64, u64)) -> Result<Vec<Place>, Fault> {
        let mut query = place(of);
        query.extend([("from", range.0.to_string()), ("to", range.1.to_string())]);
        self.member("/api/v1/ledger/places", &query, "places").await
    }
}

impl Remote {
    async fn member<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        member: &str,
    ) -> Result<Vec<T>, Fault> {
        let mut page: serde_json::Value = self.get(path, query, PATIENT).await?;
        let list = page[member].take();
        serde_json::from_value(list).map_err(|error| Fault::Odd(error.to_string()))
    }
}
