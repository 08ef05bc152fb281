//! The cloud's answers, as far as the console reads them.

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::{Fault, QUICK, Remote};

/// What a poll of the cloud finds.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CloudFacts {
    pub(crate) tenants: Vec<TenantFacts>,
    pub(crate) bus: String,
    /// Whether the consumers' dead letters can be counted and replayed over HTTP.
    pub(crate) bus_dead_letters: bool,
}

/// The same of one tenant.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct TenantFacts {
    pub(crate) tenant_id: Uuid,
    /// Sequences received, declared lost, and events accepted, over all streams.
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) accepted: u64,
    pub(crate) relay: RelayFacts,
    pub(crate) bus_dead: u64,
}

/// What waits for the bus.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct RelayFacts {
    pub(crate) waiting: u64,
    pub(crate) oldest_at: Option<Timestamp>,
    pub(crate) dead: u64,
}

/// Dead letters of one cause.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CauseFact {
    pub(crate) tenant_id: Option<Uuid>,
    pub(crate) queue: Option<String>,
    pub(crate) cause: String,
    pub(crate) event_type: Option<String>,
    pub(crate) count: u64,
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) last_at: Option<Timestamp>,
    pub(crate) sample_id: Option<String>,
    pub(crate) sample_message: Option<String>,
}

/// Polls the cloud.
pub(crate) async fn poll(cloud: &Remote) -> Result<CloudFacts, Fault> {
    cloud.get("/api/v1/summary", &[], QUICK).await
}

/// Dead letters: of the consumers, or of the relay.
pub(crate) async fn dead_letters(cloud: &Remote, relay: bool) -> Result<Vec<CauseFact>, Fault> {
    #[derive(Deserialize)]
    struct Groups {
        groups: Vec<CauseFact>,
    }
    let path = if relay { "/api/v1/relay/dead-letters" } else { "/api/v1/dead-letters" };
    let found: Groups = cloud.get(path, &[], QUICK).await?;
    Ok(found.groups)
}
