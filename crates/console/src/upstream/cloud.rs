//! The cloud's answers, as far as the console reads them.

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::{Fault, QUICK, Remote};
use crate::picture::Breaker;

/// What a poll of the cloud finds.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CloudFacts {
    pub(crate) tenants: Vec<TenantFacts>,
    pub(crate) bus: String,
    /// Whether the consumers' dead letters are counted; those of a broker are after a first look.
    pub(crate) bus_dead_letters: bool,
    /// A cloud of the version before does not tell.
    #[serde(default)]
    pub(crate) consumers: Option<ConsumerFacts>,
}

/// What waits on the bus for the consumers.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct ConsumerFacts {
    pub(crate) queues: Vec<QueueFact>,
    /// Why what waits is not known.
    pub(crate) unknown: Option<String>,
    /// The relay's; none where the process that answers has no relay.
    pub(crate) breaker: Option<Breaker>,
}

/// One consumer queue.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct QueueFact {
    pub(crate) name: String,
    /// Of all tenants; none is said to a token that does not see all of them.
    pub(crate) waiting: Option<u64>,
    pub(crate) consumers: Option<u64>,
    /// Since when something waits and has not become less.
    pub(crate) still_since: Option<Timestamp>,
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
    /// Copies of images that were given up; a cloud of the version before does not tell.
    #[serde(default)]
    pub(crate) media_failed: u64,
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

/// Dead letters by cause.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Letters {
    pub(crate) groups: Vec<CauseFact>,
    /// Of how many letters that is, and how many there are, where they were looked at one by one.
    pub(crate) looked_at: Option<u64>,
    pub(crate) total: Option<u64>,
}

/// Dead letters of the relay.
pub(crate) async fn relay_dead_letters(cloud: &Remote) -> Result<Letters, Fault> {
    cloud.get("/api/v1/relay/dead-letters", &[], QUICK).await
}

/// Dead letters of the cloud's consumers, or of the historian.
pub(crate) async fn dead_letters(remote: &Remote) -> Result<Letters, Fault> {
    remote.get("/api/v1/dead-letters", &[], QUICK).await
}
