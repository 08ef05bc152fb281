//! What a node does when an edge that lost its memory asks for records again.

use crate::site::{self, Site};
use event::id::Epoch;
use event::wire::{Command, GapReason, IgnoredCommands};

/// Segments go soon after they are acked.
const SMALL: &str = "spool.segment_bytes = \"64KiB\"\nspool.cursor_every = \"1s\"";

fn command(epoch: Epoch, resend: &[(u64, u64)]) -> String {
    Command { epoch, resend: resend.to_vec() }.to_json()
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_foreign_and_beyond_head_commands_are_counted_and_send_nothing() {
    let mut site = Site::new("").await;
    let edge = site.edge().await;
    site.start_node().await;
    site.sampler().samples(100);
    edge.has_all(100).await;
    let epoch = site.drained().await.epoch;
    let arrived = edge.seen().arrivals.clone();

    edge.publish_command(command(Epoch::mint(), &[(1, 50)])).await;
    edge.publish_command(command(epoch, &[(1, 50), (90, 101)])).await;
    edge.publish_command(format!("{{\"v\":1,\"epoch\":\"{epoch}\",\"resend\":[[5,1]]}}")).await;
    edge.publish_command("garbage".to_owned()).await;
    let ignored = IgnoredCommands { foreign_epoch: 1, beyond_head: 1, malformed: 2 };
    let status = site.status_where("the commands", |s| s.report.ignored_commands == ignored).await;
    assert_eq!((status.report.acked, status.report.head), (100, 100));

    // One that holds, as a mark: when its records are there, those of the others would be too.
    edge.publish_command(command(epoch, &[(100, 100)])).await;
    testkit::eventually(site::LONG, "the last record again", async || {
        edge.seen().arrivals[&100] > arrived[&100]
    })
    .await
    .unwrap();
    for seq in 1..100 {
        assert_eq!(edge.seen().arrivals[&seq], arrived[&seq], "{seq} was sent again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_that_lost_its_memory_gets_what_is_there_and_hears_what_is_gone() {
    let mut site = Site::new(SMALL).await;
    let edge = site.edge().await;
    site.start_node().await;
    site.sampler().samples(3_000);
    edge.has_all(3_000).await;
    let gone = site.status_where("a deleted segment", |s| s.report.oldest > 500).await;
    let epoch = gone.epoch;

    // The edge comes back with an old backup: it has the first hundred.
    {
        let mut seen = edge.seen();
        let frontier = seen.frontiers.entry(epoch).or_default();
        *frontier = Default::default();
        frontier.observe_range(1, 100).unwrap();
        seen.events.retain(|seq, _| *seq <= 100);
    }
    // Its acks regress, so the node does not believe them; what is new arrives all the same.
    site.sampler().samples(50);
    testkit::eventually(site::LONG, "what is new", async || {
        edge.frontier().received().contains(3_050)
    })
    .await
    .unwrap();
    assert_eq!(edge.frontier().acked(), 100);

    edge.publish_command(command(epoch, &[(101, 3_000)])).await;
    edge.has_all(3_050).await;
    let frontier = edge.frontier();
    let (received, lost) = (frontier.received().clone(), frontier.lost().clone());
    assert_eq!(received.count() + lost.count(), 3_050, "produced = received + declared lost");
    assert_eq!(received.count() - 100, edge.seen().events.len() as u64 - 100);
    assert!(lost.count() >= 400 && !lost.contains(100), "{lost:?}");
    assert!(lost.last().unwrap() < gone.report.head, "{lost:?}");
    for gap in &edge.seen().gaps {
        assert_eq!(gap.reason, GapReason::DeletedAfterAck, "{gap:?}");
    }
    // The edge has caught up, so its acks are believed again.
    assert_eq!(site.drained().await.report.acked, 3_050);
}
