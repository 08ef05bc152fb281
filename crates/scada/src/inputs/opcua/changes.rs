//! What a subscription tells: a monitored item a node, sampled by the server.
//!
//! Promise: every change that the server reports between two cycles is handed over, in its order, up to [`MAX_WAITING`]; what does not
//! fit is the oldest, and that is logged. A node that has not changed is handed over again as it was, marked as no news. One of which
//! nothing was told is left out for a while, for the first values are on their way, and is unreadable after that.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::opcua::client::{MonitoredItem, OnSubscriptionNotification, Session};
use ::opcua::types::{
    DataValue, ExtensionObject, MonitoredItemCreateRequest, MonitoringMode, MonitoringParameters,
    ReadValueId, StatusChangeNotification, TimestampsToReturn,
};

use tokio::time::Instant;

use super::super::{Lost, Raw, Seen};
use super::{MAX_NODES, raw};

/// The most changes that wait for a cycle, over all nodes of a connection.
const MAX_WAITING: usize = 100_000;
/// The most changes of a node that the server keeps between two publishes.
const MAX_QUEUED: u32 = 1_000;
/// So many publishing intervals without a word from us, and the server ends the subscription.
const LIFETIME: u32 = 600;
/// So many of them without a change, and the server says that it is there.
const KEEP_ALIVE: u32 = 20;

/// What was told and not taken.
pub(super) struct Changes {
    told: Arc<Mutex<Told>>,
    /// When the first values should be there.
    due: Instant,
}

struct Told {
    /// What each node was last.
    latest: Vec<Option<Raw>>,
    waiting: VecDeque<(usize, Raw)>,
    lost: u64,
    /// Why no more will come.
    ended: Option<String>,
}

struct Listener(Arc<Mutex<Told>>);

impl Listener {
    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OnSubscriptionNotification for Listener {
    fn on_subscription_status_change(&mut self, change: StatusChangeNotification) {
        if change.status.is_bad() {
            let why = format!("the server ended the subscription: {}", change.status);
            self.told().ended = Some(why);
        }
    }

    fn on_data_value(&mut self, value: DataValue, item: &MonitoredItem) {
        let mut told = self.told();
        let Some(at) = place(item.client_handle()).filter(|at| *at < told.latest.len()) else {
            return;
        };
        if told.waiting.len() >= MAX_WAITING {
            told.waiting.pop_front();
            told.lost += 1;
        }
        told.waiting.push_back((at, raw(&value)));
    }
}

/// Handles are places counted from 1: with 0 the library would choose one.
fn handle(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX).saturating_add(1)
}

fn place(handle: u32) -> Option<usize> {
    usize::try_from(handle.checked_sub(1)?).ok()
}

/// Has the server sample the nodes every `sampling`, and tell of changes every `every`.
pub(super) async fn subscribe(
    session: &Session,
    nodes: &[ReadValueId],
    sampling: Duration,
    every: Duration,
    timeout: Duration,
) -> Result<Changes, Lost> {
    let latest = vec![None; nodes.len()];
    let told = Told { latest, waiting: VecDeque::new(), lost: 0, ended: None };
    let told = Arc::new(Mutex::new(told));
    let listener = Listener(Arc::clone(&told));
    let id = session.create_subscription(every, LIFETIME, KEEP_ALIVE, 0, 0, true, listener);
    let id = id.await.map_err(Lost::because)?;
    let queued = every.as_millis().div_ceil(sampling.as_millis().max(1)) + 1;
    let queue_size = u32::try_from(queued).unwrap_or(MAX_QUEUED).min(MAX_QUEUED);
    let item = |(at, node): (usize, &ReadValueId)| {
        let parameters = MonitoringParameters {
            client_handle: handle(at),
            sampling_interval: sampling.as_secs_f64() * 1_000.0,
            filter: ExtensionObject::null(),
            queue_size,
            discard_oldest: true,
        };
        MonitoredItemCreateRequest::new(node.clone(), MonitoringMode::Reporting, parameters)
    };
    let items: Vec<_> = nodes.iter().enumerate().map(item).collect();
    for (chunk, items) in items.chunks(MAX_NODES).enumerate() {
        let made = session.create_monitored_items(id, TimestampsToReturn::Source, items.to_vec());
        for (at, one) in made.await.map_err(Lost::because)?.iter().enumerate() {
            let status = one.result.status_code;
            if status.is_bad() {
                let trouble = Raw::Unreadable(format!("the server says: {status}"));
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.waiting.push_back((chunk * MAX_NODES + at, trouble));
            }
        }
    }
    Ok(Changes { told, due: Instant::now() + every * 2 + timeout })
}

impl Changes {
    /// What has come since the last time, and the rest as it was.
    pub(super) fn take(&self) -> Result<Vec<Seen>, Lost> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = &told.ended {
            return Err(Lost(why.clone()));
        }
        if told.lost > 0 {
            tracing::warn!(lost = told.lost, "changes came faster than they were taken");
            told.lost = 0;
        }
        let mut is_told = vec![false; told.latest.len()];
        let mut seen = Vec::with_capacity(told.latest.len());
        for (tag, raw) in std::mem::take(&mut told.waiting) {
            is_told[tag] = true;
            told.latest[tag] = Some(raw.clone());
            seen.push(Seen { tag, raw, is_new: true });
        }
        let is_due = Instant::now() >= self.due;
        for (tag, raw) in told.latest.iter().enumerate().filter(|(tag, _)| !is_told[*tag]) {
            let nothing = || Raw::Unreadable("the server has told no value".to_owned());
            let raw = raw.clone().or_else(|| is_due.then(nothing));
            seen.extend(raw.map(|raw| Seen { tag, raw, is_new: false }));
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_taken_once_and_the_rest_is_no_news() {
        let told = Told {
            latest: vec![None; 3],
            waiting: [(0, 0.0), (1, 1.0), (1, 2.0)].map(|(at, n)| (at, Raw::number(n))).into(),
            lost: 0,
            ended: None,
        };
        let due = Instant::now() + Duration::from_secs(3_600);
        let mut changes = Changes { told: Arc::new(Mutex::new(told)), due };
        let shown = |changes: &Changes| -> Vec<(usize, Raw, bool)> {
            let seen = changes.take().unwrap();
            seen.into_iter().map(|one| (one.tag, one.raw, one.is_new)).collect()
        };
        let first = [(0, 0.0), (1, 1.0), (1, 2.0)].map(|(at, n)| (at, Raw::number(n), true));
        assert_eq!(shown(&changes), first);
        let second = [(0, 0.0), (1, 2.0)].map(|(at, n)| (at, Raw::number(n), false));
        assert_eq!(shown(&changes), second, "the third is still on its way");
        changes.due = Instant::now();
        let nothing = Raw::Unreadable("the server has told no value".to_owned());
        assert_eq!(shown(&changes)[2], (2, nothing, false));
        changes.told.lock().unwrap().ended = Some("over".to_owned());
        assert_eq!(changes.take().unwrap_err().to_string(), "over");
    }
}
