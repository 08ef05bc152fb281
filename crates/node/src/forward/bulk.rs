//! When backfill goes over HTTP, and how large a post may be. Pure.

use super::limits::{BatchId, HttpLimits};
use std::time::Instant;

/// Whether the bulk route may take the next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Backfill goes over MQTT.
    Closed,
    /// One post is under way; the next one waits for it.
    Busy,
    /// It takes a batch of at most this many records.
    Open(u64),
}

/// The state of the bulk route.
#[derive(Debug)]
pub(super) struct Bulk {
    limits: Option<HttpLimits>,
    under_way: Option<BatchId>,
    active: bool,
    records: u64,
    after: Instant,
}

impl Bulk {
    pub(super) fn new(limits: Option<HttpLimits>, now: Instant) -> Bulk {
        let records = limits.map_or(0, |http| http.batch_records);
        Bulk { limits, under_way: None, active: false, records, after: now }
    }

    pub(super) fn is_active(&self) -> bool {
        self.active
    }

    pub(super) fn opening(&mut self, backlog: u64, now: Instant) -> Opening {
        let Some(http) = self.limits else {
            return Opening::Closed;
        };
        // It stays on until the backlog is half of what switched it on, so that it does not flap.
        self.active = backlog >= http.threshold || (self.active && backlog > http.threshold / 2);
        if !self.active || now < self.after {
            return Opening::Closed;
        }
        match self.under_way {
            Some(_) => Opening::Busy,
            None => Opening::Open(self.records),
        }
    }

    /// There is no backlog.
    pub(super) fn rest(&mut self) {
        self.active = false;
    }

    pub(super) fn started(&mut self, id: BatchId) {
        self.under_way = Some(id);
    }

    pub(super) fn done(&mut self) {
        self.under_way = None;
        let most = self.limits.map_or(0, |http| http.batch_records);
        self.records = self.records.saturating_mul(2).min(most);
    }

    pub(super) fn failed(&mut self, our_fault: bool, retry_at: Instant) {
        self.under_way = None;
        self.after = retry_at;
        if our_fault {
            self.records = (self.records / 2).max(1);
        }
    }
}
