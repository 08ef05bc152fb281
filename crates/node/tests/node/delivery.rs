//! The whole path with a real broker: every record arrives, whatever breaks.

use crate::site::{self, LONG, Site};
use event::wire::State;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeSet;
use testkit::eventually;
use testkit::rig::Mode;

#[tokio::test(flavor = "multi_thread")]
async fn every_record_arrives_once_and_leaves_the_spool() {
    let mut site = Site::new("spool.segment_bytes = \"64KiB\"\nspool.idle_seal = \"100ms\"\nspool.cursor_every = \"100ms\"").await;
    let edge = site.edge().await;
    site.start_node().await;
    site.status_where("the link", |s| s.local.link.state == node::LinkState::Up).await;
    let seqs = site.sampler().samples(2_000);
    assert_eq!(seqs, (1..=2_000).collect::<Vec<u64>>());
    edge.has_all(2_000).await;
    let status = site.drained().await;
    assert_eq!((status.report.head, status.report.acked), (2_000, 2_000));
    assert_eq!(edge.seen().duplicates, 0);
    assert_eq!(edge.seen().event_ids.len(), 2_000);
    assert!(edge.seen().live_batches > 0, "nothing went live");
    site.status_where("acked segments to go", |s| s.report.oldest > 1_500).await;
    // The status is retained, and a stop on purpose says so.
    site.stop_node().await;
    let said = eventually(LONG, "the farewell", async || {
        edge.seen().statuses.last().map(|status| status.state) == Some(State::Offline)
    });
    said.await.unwrap();
    let online = edge.seen().statuses.iter().filter(|s| s.state == State::Online).count();
    assert!(online > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_from_before_the_link_is_backfilled() {
    let mut site = Site::new("forward.resend_after = \"1h\"").await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(3_000);
    site.kill_node().await;
    let edge = site.edge().await;
    site.link.set(Mode::Pass);
    site.start_node().await;
    edge.has_all(3_000).await;
    site.drained().await;
    let seen = edge.seen();
    assert!(seen.backfill_batches >= 3, "{} batches", seen.backfill_batches);
    assert_eq!((seen.live_batches, seen.duplicates), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_killed_loses_nothing() {
    let mut site = Site::new("").await;
    let edge = site.edge().await;
    site.start_node().await;
    let mut sampler = site.sampler();
    for _ in 0..3 {
        sampler.samples(300);
        site.broker.kill().await.unwrap();
        sampler.samples(300);
        site.broker.restart().await.unwrap();
    }
    edge.has_all(1_800).await;
    site.drained().await;
    assert_eq!(edge.seen().event_ids.len(), 1_800);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_cut_or_half_open_loses_nothing() {
    let mut site = Site::new("").await;
    let edge = site.edge().await;
    site.start_node().await;
    let mut sampler = site.sampler();
    let mut written = 0;
    for mode in [Mode::Cut, Mode::DropDown, Mode::DropUp, Mode::Stall, Mode::Cut] {
        site.status_where("the link", |s| s.local.link.state == node::LinkState::Up).await;
        sampler.samples(100);
        site.link.set(mode);
        sampler.samples(200);
        site.status_where("the link to be found dead", |s| {
            s.local.link.state == node::LinkState::Down
        })
        .await;
        sampler.samples(100);
        site.link.set(Mode::Pass);
        written += 400;
    }
    edge.has_all(written).await;
    site.drained().await;
    assert_eq!(edge.seen().event_ids.len() as u64, written);
    // Its last will told of every break that the broker noticed.
    let offline = edge.seen().statuses.iter().filter(|s| s.state == State::Offline).count();
    assert!(offline > 0, "no last will");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_at_random_keeps_every_promise() {
    let mut rng = SmallRng::seed_from_u64(testkit::seed().unwrap());
    let mut site = Site::new("spool.segment_bytes = \"64KiB\"").await;
    let edge = site.edge().await;
    let mut promised = BTreeSet::new();
    for _ in 0..8 {
        site.start_node().await;
        let mut sampler = site.sampler();
        let lines = rng.random_range(1..400);
        let replies = rng.random_range(0..lines);
        for _ in 0..lines {
            sampler.send(&site::sample());
        }
        for _ in 0..replies {
            promised.insert(sampler.reply()["event_id"].as_str().unwrap().to_owned());
        }
        site.kill_node().await;
        // What was answered before the kill was seen counts, too.
        while let Some(reply) = sampler.try_reply() {
            promised.insert(reply["event_id"].as_str().unwrap().to_owned());
        }
    }
    site.start_node().await;
    let status = site.drained().await;
    edge.has_all(status.report.head).await;
    let seen = edge.seen();
    let missing = promised.iter().filter(|id| !seen.event_ids.contains(*id)).count();
    assert_eq!(missing, 0, "of {} promised records", promised.len());
    assert_eq!(seen.gaps.len(), 0);
    assert_eq!(seen.events.len() as u64, status.report.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_is_away_is_waited_for() {
    let mut site = Site::new("").await;
    let edge = site.edge().await;
    edge.set_acking(false);
    site.start_node().await;
    site.sampler().samples(500);
    edge.has_all(500).await;
    let status = site.status_where("a re-send", |s| s.local.resent_batches > 0).await;
    assert_eq!(status.report.acked, 0, "a PUBACK is not an ack");
    edge.set_acking(true);
    site.drained().await;
}
