//! The replay core's promises, one by one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests stand outside #[test] functions"
)]

use crate::world::limits;
use event::id::Epoch;
use event::ledger::Frontier;
use event::wire::{Ack, Command};
use node::forward::{HttpLimits, Ignored, Lane, Limits, Plan, Replay, Route, Step};
use std::time::{Duration, Instant};

/// A node with a backlog and a link that takes nothing: every slot that backfill may have is taken.
fn congested(head: u64) -> (Replay, Instant) {
    let now = Instant::now();
    let mut node = Replay::new(limits(), head, 0, now);
    node.connected(now);
    let now = now + Duration::from_secs(1);
    while let Step::Send(plan) = node.step(now) {
        assert_eq!(plan.lane, Lane::Backfill);
        node.sent(plan, plan.to, now);
    }
    (node, now)
}

fn live_plan(node: &mut Replay, now: Instant) -> Option<Plan> {
    match node.step(now) {
        Step::Send(plan) if plan.lane == Lane::Live => Some(plan),
        _ => None,
    }
}

#[test]
fn a_backlog_of_any_size_never_delays_a_live_record_beyond_its_linger() {
    let (mut node, now) = congested(1_000_000);
    assert_eq!(node.in_flight(), limits().window - 1, "backfill leaves one slot");
    node.advance_head(1_000_001, now);
    assert!(live_plan(&mut node, now).is_none(), "live lingers");
    let due = now + limits().live_linger;
    assert_eq!(node.step(now), Step::Wait(Some(due)));
    let plan = live_plan(&mut node, due).unwrap();
    assert_eq!((plan.from, plan.to), (1_000_001, 1_000_001));
    // A full batch does not linger.
    let (mut node, now) = congested(1_000_000);
    node.advance_head(1_000_010, now);
    assert_eq!(live_plan(&mut node, now).unwrap().to, 1_000_010);
}

#[test]
fn what_is_asked_for_again_is_sent_once_whatever_waits_for_acks() {
    let now = Instant::now();
    let mut node = Replay::new(limits(), 1_000, 100, now);
    node.connected(now);
    let now = now + Duration::from_secs(1);
    // The edge acknowledges nothing: as many batches as allowed wait.
    while let Step::Send(plan) = node.step(now) {
        let id = node.sent(plan, plan.to, now);
        node.delivered(id, now);
    }
    let epoch = Epoch::mint();
    let command = Command { epoch, resend: vec![(11, 25), (990, 1_000)] };
    assert_eq!(node.command(&command, true), Ok(26));
    let mut sent = Vec::new();
    while let Step::Send(plan) = node.step(now) {
        let id = node.sent(plan, plan.to, now);
        node.delivered(id, now);
        sent.push((plan.from, plan.to));
    }
    assert_eq!(sent, [(11, 20), (21, 25)], "above acked it is backlog like any other");
    assert_eq!(node.acked(), 100);
    assert_eq!(node.command(&command, false), Err(Ignored::ForeignEpoch));
    let beyond = Command { epoch, resend: vec![(1, 1_001)] };
    assert_eq!(node.command(&beyond, true), Err(Ignored::BeyondHead));
}

#[test]
fn an_island_that_the_edge_lost_is_sent_again_when_it_asks() {
    let now = Instant::now();
    let mut node = Replay::new(limits(), 30, 0, now);
    node.connected(now);
    let now = now + Duration::from_secs(1);
    while let Step::Send(plan) = node.step(now) {
        let id = node.sent(plan, plan.to, now);
        node.delivered(id, now);
    }
    let epoch = Epoch::mint();
    // The edge had everything but the first batch, then lost it all but the last one.
    let ack = Ack { epoch, acked_seq: 0, ranges: vec![(11, 30)] };
    assert_eq!(node.ack(&ack, true, false, now), Ok(None));
    let ack = Ack { epoch, acked_seq: 10, ranges: vec![(21, 30)] };
    assert_eq!(node.ack(&ack, true, false, now), Ok(Some(10)));
    assert!(matches!(node.step(now + Duration::from_secs(60)), Step::Wait(_)), "it believes so");
    let command = Command { epoch, resend: vec![(11, 20)] };
    assert_eq!(node.command(&command, true), Ok(10));
    match node.step(now + Duration::from_secs(60)) {
        Step::Send(plan) => assert_eq!((plan.from, plan.to), (11, 20)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_busy_node_still_drains() {
    let now = Instant::now();
    let mut node = Replay::new(limits(), 1_000, 0, now);
    node.connected(now);
    let now = now + Duration::from_secs(1);
    // Live has more than it can send, in every moment.
    let mut head = 1_000;
    let mut lanes = Vec::new();
    for _ in 0..20 {
        head += 100;
        node.advance_head(head, now);
        while let Step::Send(plan) = node.step(now) {
            node.sent(plan, plan.to, now);
            lanes.push(plan.lane);
        }
    }
    assert_eq!(lanes.iter().filter(|lane| **lane == Lane::Live).count(), 3);
    assert_eq!(lanes.iter().filter(|lane| **lane == Lane::Backfill).count(), 1);
}

#[test]
fn what_the_edge_holds_is_not_sent_again() {
    let now = Instant::now();
    let mut node = Replay::new(Limits { batch_records: 1_000, ..limits() }, 100, 10, now);
    node.connected(now);
    let epoch = Epoch::mint();
    let ack = Ack { epoch, acked_seq: 20, ranges: vec![(30, 40), (60, 100)] };
    assert_eq!(node.ack(&ack, true, true, now), Ok(Some(20)));
    let mut sent = Vec::new();
    while let Step::Send(plan) = node.step(now) {
        sent.push((plan.from, plan.to));
        node.sent(plan, plan.to, now);
    }
    assert_eq!(sent, [(21, 29), (41, 59)]);
    assert_eq!(node.backlog(), 100 - 20 - 11 - 41);
}

#[test]
fn a_silent_edge_is_probed_ever_more_rarely_and_not_flooded() {
    let start = Instant::now();
    let mut node = Replay::new(limits(), 10_000, 0, start);
    node.connected(start);
    let mut now = start;
    let mut batches = Vec::new();
    while now < start + Duration::from_secs(3600) {
        match node.step(now) {
            Step::Send(plan) => {
                let id = node.sent(plan, plan.to, now);
                node.delivered(id, now);
                batches.push((plan.from, plan.to));
            }
            Step::Wait(until) => now = until.unwrap().max(now + Duration::from_millis(1)),
            Step::Reconnect => unreachable!("every batch has its PUBACK"),
        }
    }
    // The bound on unacked batches, then a probe every 32 s at most.
    let count = batches.len();
    assert!(count < 12 + 130, "{count} batches for an edge that is away");
    assert!(count > 100, "{count} probes in an hour");
    // The last probe gets through: what is older and overdue is sent again at once.
    let probe = *batches.last().unwrap();
    let ack = match probe.0 {
        1 => Ack { epoch: Epoch::mint(), acked_seq: probe.1, ranges: vec![] },
        _ => Ack { epoch: Epoch::mint(), acked_seq: 0, ranges: vec![probe] },
    };
    node.ack(&ack, true, false, now).unwrap();
    let mut again = 0;
    while let Step::Send(plan) = node.step(now) {
        let id = node.sent(plan, plan.to, now);
        node.delivered(id, now);
        assert_ne!((plan.from, plan.to), probe);
        again += u32::from(batches.contains(&(plan.from, plan.to)));
    }
    assert!(again >= 7, "{again} batches after the edge came back");
}

/// An edge that takes a second for a batch, behind a broker that takes everything at once.
#[test]
fn a_slow_edge_is_not_sent_everything_again() {
    let start = Instant::now();
    let mut node = Replay::new(limits(), 2_000, 0, start);
    node.connected(start);
    let mut edge = Frontier::new();
    let (mut queue, mut sent) = (std::collections::VecDeque::new(), 0);
    for second in 1..=400 {
        let now = start + Duration::from_secs(second);
        while let Step::Send(plan) = node.step(now) {
            let id = node.sent(plan, plan.to, now);
            node.delivered(id, now);
            queue.push_back(plan);
            sent += 1;
        }
        if let Some(plan) = queue.pop_front() {
            for seq in plan.from..=plan.to {
                edge.observe(seq).unwrap();
            }
            node.ack(&Ack::of(Epoch::mint(), &edge), true, false, now).unwrap();
        }
    }
    assert_eq!(node.acked(), 2_000);
    // Acks take eight seconds and two is the patience at the start.
    assert!(sent <= 200 + 10, "{sent} batches were sent where 200 are enough");
}

#[test]
fn http_carries_large_backlogs_and_steps_back_when_it_fails() {
    let now = Instant::now();
    let http = Some(HttpLimits { threshold: 500, batch_records: 50 });
    let mut node = Replay::new(Limits { http, ..limits() }, 1_000, 0, now);
    // It needs no broker.
    let Step::Send(plan) = node.step(now) else { unreachable!("nothing to send") };
    assert_eq!((plan.route, plan.to), (Route::Http, 50));
    let id = node.sent(plan, plan.to, now);
    assert!(matches!(node.step(now), Step::Wait(_)), "one post at a time");
    node.http_failed(id, true, now, now);
    let Step::Send(plan) = node.step(now) else { unreachable!("nothing to send") };
    assert_eq!((plan.route, plan.from, plan.to), (Route::Http, 1, 25), "half as large");
    let id = node.sent(plan, plan.to, now);
    node.http_failed(id, false, now + Duration::from_secs(60), now);
    node.connected(now);
    let later = now + Duration::from_secs(1);
    let Step::Send(plan) = node.step(later) else { unreachable!("nothing to send") };
    assert_eq!((plan.route, plan.from, plan.to), (Route::Mqtt, 1, 10));
    // Below half of the threshold it is over.
    let ack = Ack { epoch: Epoch::mint(), acked_seq: 760, ranges: vec![] };
    let later = now + Duration::from_secs(120);
    node.ack(&ack, true, false, later).unwrap();
    let Step::Send(plan) = node.step(later) else { unreachable!("nothing to send") };
    assert_eq!(plan.route, Route::Mqtt);
}

#[test]
fn a_broker_that_takes_nothing_is_left_for_a_new_connection() {
    let (mut node, now) = congested(1_000);
    let patience = limits().puback_after;
    assert!(matches!(node.step(now + patience / 2), Step::Wait(_)));
    assert_eq!(node.step(now + patience), Step::Reconnect);
    // Asked once: the new connection gets the whole time again.
    node.disconnected();
    let later = now + patience * 10;
    assert!(!matches!(node.step(later), Step::Reconnect), "there is no connection to break");
    node.connected(later);
    assert!(!matches!(node.step(later + patience / 2), Step::Reconnect));
    assert_eq!(node.step(later + patience), Step::Reconnect);
}

#[test]
fn a_batch_that_was_overtaken_is_sent_again_long_before_the_edge_counts_as_silent() {
    let start = Instant::now();
    let limits = Limits { resend_after: Duration::from_secs(60), ..limits() };
    let mut node = Replay::new(limits, 20, 0, start);
    node.connected(start);
    let mut now = start + Duration::from_secs(1);
    // The edge was not there for the first batch, and is for the second.
    for _ in 0..2 {
        let Step::Send(plan) = node.step(now) else { unreachable!("two batches are due") };
        let id = node.sent(plan, plan.to, now);
        node.delivered(id, now);
    }
    let ack = Ack { epoch: Epoch::mint(), acked_seq: 0, ranges: vec![(11, 20)] };
    node.ack(&ack, true, false, now).unwrap();
    assert!(matches!(node.step(now), Step::Wait(_)), "another replica may have it");
    now += Duration::from_secs(2);
    let Step::Send(plan) = node.step(now) else { unreachable!("the first batch is lost") };
    assert_eq!((plan.from, plan.to), (1, 10));
}
