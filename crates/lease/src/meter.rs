//! The metrics of a queue: stable names, the queue as their label.
//!
//! They go to the recorder that is current where a worker is started; a role that has its own starts its workers
//! within `metrics::with_local_recorder`.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The handles, looked up once.
#[derive(Clone)]
pub(crate) struct Meter {
    pub(crate) claimed: Counter,
    pub(crate) reclaimed: Counter,
    pub(crate) done: Counter,
    pub(crate) retried: Counter,
    pub(crate) buried: Counter,
    pub(crate) released: Counter,
    pub(crate) fenced: Counter,
    pub(crate) disordered: Counter,
    pub(crate) renewals: Counter,
    pub(crate) database_errors: Counter,
    pub(crate) opened: Counter,
    pub(crate) lanes: Gauge,
    pub(crate) held: Gauge,
    breakers_open: Gauge,
    claim_seconds: Histogram,
    handle_seconds: Histogram,
}

impl Meter {
    /// To be called where the worker is started, so that the recorder is the one meant.
    pub(crate) fn new(queue: &'static str) -> Meter {
        Meter {
            claimed: counter!("holdfast_lease_claimed_total", "queue" => queue),
            reclaimed: counter!("holdfast_lease_reclaimed_total", "queue" => queue),
            done: counter!("holdfast_lease_done_total", "queue" => queue),
            retried: counter!("holdfast_lease_retried_total", "queue" => queue),
            buried: counter!("holdfast_lease_buried_total", "queue" => queue),
            released: counter!("holdfast_lease_released_total", "queue" => queue),
            fenced: counter!("holdfast_lease_fenced_total", "queue" => queue),
            disordered: counter!("holdfast_lease_disordered_total", "queue" => queue),
            renewals: counter!("holdfast_lease_renewals_total", "queue" => queue),
            database_errors: counter!("holdfast_lease_database_errors_total", "queue" => queue),
            opened: counter!("holdfast_lease_breaker_opened_total", "queue" => queue),
            lanes: gauge!("holdfast_lease_lanes", "queue" => queue),
            held: gauge!("holdfast_lease_held_rows", "queue" => queue),
            breakers_open: gauge!("holdfast_lease_breakers_open", "queue" => queue),
            claim_seconds: histogram!("holdfast_lease_claim_seconds", "queue" => queue),
            handle_seconds: histogram!("holdfast_lease_handle_seconds", "queue" => queue),
        }
    }

    pub(crate) fn claim_took(&self, took: Duration) {
        self.claim_seconds.record(took.as_secs_f64());
    }

    pub(crate) fn handle_took(&self, took: Duration) {
        self.handle_seconds.record(took.as_secs_f64());
    }

    /// How many breakers are not closed.
    pub(crate) fn open_breakers(&self, open: usize) {
        self.breakers_open.set(number(open as u64));
    }
}

/// A count as a gauge shows it; beyond 2^53 it is rounded, which no count reaches.
#[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
