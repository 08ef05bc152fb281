//! The metrics of a queue: stable names, the queue as their label.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::store::Stats;

/// The handles, looked up once.
#[derive(Clone)]
pub(crate) struct Meter {
    queue: &'static str,
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
    claim_seconds: Histogram,
    handle_seconds: Histogram,
}

impl Meter {
    pub(crate) fn new(queue: &'static str) -> Meter {
        Meter {
            queue,
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
        gauge!("holdfast_lease_breakers_open", "queue" => self.queue).set(number(open as u64));
    }

    pub(crate) fn stats(&self, stats: &Stats) {
        let set = |state: &'static str, rows: u64| {
            gauge!("holdfast_lease_rows", "queue" => self.queue, "state" => state)
                .set(number(rows));
        };
        set("pending", stats.pending);
        set("due", stats.due);
        set("held", stats.held);
        gauge!("holdfast_lease_oldest_due_seconds", "queue" => self.queue)
            .set(stats.oldest_due_seconds);
    }
}

/// A count as a gauge shows it; beyond 2^53 it is rounded, which no count reaches.
#[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
