//! The historian's answers, as far as the console reads them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Fault, QUICK, Remote};

/// How the historian begins to say that nothing comes, which is no fault of its own.
pub(crate) const SILENCE: &str = "bus: no message since";

/// What a poll of the historian finds.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct HistorianFacts {
    /// Readings of the last seconds, a second.
    pub(crate) stored_per_second: f64,
    pub(crate) newest_at: Option<Timestamp>,
    pub(crate) dead_letters: u64,
    pub(crate) problems: Vec<String>,
    pub(crate) alarms: AlarmsByState,
    /// Those that go on.
    pub(crate) floods: Vec<Flood>,
}

/// How many alarms are in which state.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct AlarmsByState {
    pub(crate) active_unacknowledged: u64,
    pub(crate) active_acknowledged: u64,
    pub(crate) cleared_unacknowledged: u64,
    pub(crate) shelved: u64,
}

/// More alarms than an operator can follow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Flood {
    /// The plant, or the area of it.
    pub(crate) position: String,
    pub(crate) started_at: Timestamp,
    /// The most alarms in ten minutes.
    pub(crate) peak: i64,
}

/// Polls the historian.
pub(crate) async fn poll(historian: &Remote) -> Result<HistorianFacts, Fault> {
    historian.get("/api/v1/summary", &[], QUICK).await
}
