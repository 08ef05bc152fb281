//! Telling the cloud what was given up: requests that hold tombstones and no events.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::cloud::{Answer, Body, Reply, Tombstone};
use super::line::{Line, Met};
use crate::signal::Signal;

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// A tombstone that the cloud has no room for is offered again after this long.
const ROOM_LOOK: Duration = Duration::from_secs(60);
/// The cloud's code for a tombstone that it has no room for at the moment.
const LEDGER_FULL: &str = "ledger_full";

/// Runs until told to stop.
pub(super) async fn run(line: Arc<Line>, mut stop: Signal) {
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            () = stop.heard() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = match line.store.unsent_tombstones().await {
            Ok(unsent) if unsent.is_empty() => LOOK_EVERY,
            Ok(unsent) => {
                tokio::select! {
                    () = stop.heard() => return,
                    wait = tell(&line, &unsent) => wait,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "tombstones could not be read");
                LOOK_EVERY
            }
        };
    }
}

/// Sends some tombstones; returns how long to wait before the next.
async fn tell(line: &Line, unsent: &[Tombstone]) -> Duration {
    let mut tenants: Vec<Uuid> = unsent.iter().map(|one| one.tenant_id).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let body = Body::new(&line.cluster_id, &[], unsent);
    let told: Vec<(&Tombstone, Option<String>)> = match line.request(&body, &tenants).await {
        Met::Down(down) => return down.pause.max(LOOK_EVERY),
        Met::Answer(Answer::Reply(reply), ..) => judged(unsent, &reply),
        Met::Answer(Answer::Malformed(message) | Answer::TooLarge(Some(message)), ..)
            if unsent.len() == 1 =>
        {
            unsent.iter().map(|one| (one, Some(message.clone()))).collect()
        }
        Met::Answer(..) => {
            // In halves, until the one is alone that the cloud cannot read.
            let (first, second) = unsent.split_at(unsent.len() / 2);
            for half in [first, second] {
                if !half.is_empty() && half.len() < unsent.len() {
                    Box::pin(tell(line, half)).await;
                }
            }
            return LOOK_EVERY;
        }
    };
    let refused = told.iter().filter(|(_, error)| error.is_some()).count();
    let meter = &line.metrics.sync;
    meter.tombstone("accepted", (told.len() - refused) as u64);
    meter.tombstone("rejected", refused as u64);
    if refused > 0 {
        tracing::warn!(refused, "the cloud rejects tombstones; send_error says why");
    }
    if let Err(error) = line.store.told(&told).await {
        tracing::warn!(%error, "tombstones could not be marked as sent");
        return LOOK_EVERY;
    }
    if told.len() < unsent.len() { ROOM_LOOK } else { Duration::ZERO }
}

/// Those that need not be sent again, each with what is wrong with it.
fn judged<'a>(unsent: &'a [Tombstone], reply: &Reply) -> Vec<(&'a Tombstone, Option<String>)> {
    let each = unsent.iter().enumerate().filter_map(|(index, one)| {
        let refusal = reply.tombstones_rejected.iter().find(|refusal| refusal.index == index);
        match refusal {
            None => Some((one, None)),
            Some(refusal) if refusal.code == LEDGER_FULL => None,
            Some(refusal) => Some((one, Some(format!("{}: {}", refusal.code, refusal.message)))),
        }
    });
    each.collect()
}
