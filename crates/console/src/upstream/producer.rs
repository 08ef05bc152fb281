//! A SCADA node's metrics, as far as the console reads them: how its outbox stands. docs/reference/metrics.md names them.

use super::exposition::count;
use super::{Fault, QUICK, Remote, exposition};

/// What a poll of a SCADA node finds.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProducerFacts {
    pub(crate) pending: u64,
    pub(crate) oldest_s: f64,
    pub(crate) failed: u64,
    pub(crate) in_progress: u64,
    pub(crate) batch_size: u64,
    /// Breakers that are not closed; none where it is not told.
    pub(crate) breakers_open: Option<f64>,
    /// Events that the bus confirmed since the node started.
    pub(crate) published: u64,
}

/// Polls a SCADA node.
pub(crate) async fn poll(producer: &Remote) -> Result<ProducerFacts, Fault> {
    let text = producer.text("/metrics", QUICK).await?;
    read(&text).ok_or_else(|| Fault::Odd("the metrics of an outbox are missing".to_owned()))
}

fn read(text: &str) -> Option<ProducerFacts> {
    let oldest = "holdfast_producer_outbox_oldest_pending_seconds";
    Some(ProducerFacts {
        pending: count(text, "holdfast_producer_outbox_pending")?,
        oldest_s: exposition::value(text, oldest)?,
        failed: count(text, "holdfast_producer_outbox_failed")?,
        in_progress: count(text, "holdfast_producer_outbox_in_progress")?,
        batch_size: count(text, "holdfast_producer_outbox_batch_size")?,
        breakers_open: exposition::sum(text, "holdfast_lease_breakers_open"),
        published: count(text, "holdfast_producer_published_total").unwrap_or(0),
    })
}
