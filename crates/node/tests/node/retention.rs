//! What a node gives up is named, in-band, and survives restarts.

use crate::site::{self, Site};
use event::wire::GapReason;
use spool::Spool;
use testkit::rig::Mode;

const SMALL: &str = "spool.segment_bytes = \"64KiB\"\nspool.max_spool_bytes = \"256KiB\"";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_spool_drops_arrives_as_a_gap_even_after_a_restart() {
    let mut site = Site::new(SMALL).await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(3_000);
    let before = site.status_where("a drop", |s| s.report.drops > 0).await;
    assert!(before.report.gaps > 0 && before.report.oldest > 1);
    site.kill_node().await;

    let edge = site.edge().await;
    site.link.set(Mode::Pass);
    site.start_node().await;
    edge.has_all(3_000).await;
    let status = site.drained().await;
    let frontier = edge.frontier();
    let (received, lost) = (frontier.received().count(), frontier.lost().count());
    assert_eq!(received + lost, 3_000);
    assert!(lost > 0 && lost >= before.report.drops, "{lost} lost");
    assert_eq!(received, edge.seen().events.len() as u64);
    let gap = edge.seen().gaps[0].clone();
    assert_eq!((gap.from_seq, gap.reason), (1, GapReason::DropOldest));
    assert!(gap.first_at.is_some() && gap.last_at >= gap.first_at);
    // An acked gap is done with.
    assert_eq!(status.report.gaps, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn back_pressure_refuses_with_full_and_the_next_start_goes_on() {
    // No disk has this much left, so the spool counts as full.
    let full = "spool.on_full = \"backpressure\"\nspool.free_space_reserve = \"15TiB\"";
    let mut site = Site::new(full).await;
    site.start_node().await;
    let mut sampler = site.sampler();
    for _ in 0..3 {
        let reply = sampler.ask(&site::sample());
        assert_eq!(reply["error"]["code"], "full", "{reply}");
    }
    assert_eq!(sampler.ask("{\"cmd\":\"ping\"}")["ok"], true);
    assert_eq!(site.status().unwrap().report.head, 0);
    site.stop_node().await;
    site.configure("");
    site.start_node().await;
    assert_eq!(site.sampler().samples(3), [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_no_batch_can_carry_is_declared_and_holds_nobody_up() {
    let mut site = Site::new("").await;
    let spool = Spool::open(spool::Config::new(site.spool())).unwrap();
    spool.append(0, b"{\"cut off").unwrap();
    spool.append(0, b"\xff\xfe").unwrap();
    drop(spool);
    let edge = site.edge().await;
    site.start_node().await;
    site.sampler().samples(20);
    edge.has_all(22).await;
    let status = site.drained().await;
    assert_eq!(status.local.unsendable, 2);
    let frontier = edge.frontier();
    assert_eq!(frontier.lost().ranges(), [(1, 2)]);
    assert_eq!(frontier.received().ranges(), [(3, 22)]);
    assert!(edge.seen().gaps.iter().all(|gap| gap.reason == GapReason::Unsendable));
}
