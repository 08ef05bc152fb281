//! How much one token may ask for: requests at once, requests a second, events a second.
//!
//! Bounded by the number of tokens that were found valid, and forgotten when idle.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::rate::Bucket;
use uuid::Uuid;

use crate::config::Limits;

/// Idle tokens are forgotten when there are this many.
const MANY: usize = 1_024;
/// Idle for this long, every bucket is full again.
const IDLE: Duration = Duration::from_secs(60);
/// Seconds' worth that a bucket holds.
const BURST_SECONDS: f64 = 2.0;

/// The quotas of every token.
#[derive(Debug)]
pub(super) struct Quotas {
    limits: Limits,
    tokens: Mutex<HashMap<Uuid, Quota>>,
}

#[derive(Debug)]
struct Quota {
    requests: Bucket,
    events: Bucket,
    under_way: usize,
    used: Instant,
}

/// Why a request must wait, and how long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Too many at once.
    AtOnce,
    /// Too many a second.
    Rate(Duration),
}

/// A request's place among those of its token; given back when dropped.
#[derive(Debug)]
pub(super) struct Turn {
    quotas: Arc<Quotas>,
    token: Uuid,
}

impl Quotas {
    pub(super) fn new(limits: Limits) -> Quotas {
        Quotas { limits, tokens: Mutex::new(HashMap::new()) }
    }

    /// Starts a request.
    pub(super) fn enter(self: &Arc<Quotas>, token: Uuid, now: Instant) -> Result<Turn, Over> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= MANY {
            let idle = |quota: &Quota| now.saturating_duration_since(quota.used) >= IDLE;
            tokens.retain(|_, quota| quota.under_way > 0 || !idle(quota));
        }
        let quota = tokens.entry(token).or_insert_with(|| Quota::new(&self.limits, now));
        if quota.under_way >= self.limits.requests_per_token {
            return Err(Over::AtOnce);
        }
        quota.requests.take(1.0, now).map_err(Over::Rate)?;
        quota.under_way += 1;
        quota.used = now;
        drop(tokens);
        Ok(Turn { quotas: Arc::clone(self), token })
    }
}

impl Quota {
    fn new(limits: &Limits, now: Instant) -> Quota {
        let bucket = |rate: u32| {
            let rate = f64::from(rate);
            Bucket::new(rate, rate * BURST_SECONDS, now)
        };
        Quota {
            requests: bucket(limits.request_rate),
            events: bucket(limits.event_rate),
            under_way: 0,
            used: now,
        }
    }
}

impl Turn {
    /// Takes so many events, or says how long to wait.
    pub(super) fn take(&self, events: usize, now: Instant) -> Result<(), Duration> {
        let mut tokens = self.quotas.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let cost = f64::from(u32::try_from(events).unwrap_or(u32::MAX));
        match tokens.get_mut(&self.token) {
            Some(quota) => quota.events.take(cost, now),
            None => Ok(()),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut tokens = self.quotas.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(quota) = tokens.get_mut(&self.token) {
            quota.under_way = quota.under_way.saturating_sub(1);
        }
    }
}
