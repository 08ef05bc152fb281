//! Which acks a node believes.

use crate::site::{LONG, Site};
use event::id::Epoch;
use event::wire::{Ack, IgnoredAcks};
use jiff::Timestamp;
use node::LinkState;
use testkit::eventually;
use testkit::rig::Mode;

fn ack(epoch: Epoch, acked_seq: u64, ranges: &[(u64, u64)]) -> String {
    Ack { epoch, acked_seq, ranges: ranges.to_vec() }.to_json()
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_stale_foreign_and_beyond_head_acks_are_counted_and_lose_nothing() {
    let mut site = Site::new("forward.resend_after = \"1h\"").await;
    let edge = site.edge().await;
    edge.set_acking(false);
    site.start_node().await;
    site.sampler().samples(100);
    edge.has_all(100).await;
    let epoch = site.status().unwrap().epoch;

    edge.publish_ack(ack(Epoch::mint(), 100, &[])).await;
    edge.publish_ack(ack(epoch, 101, &[])).await;
    edge.publish_ack(ack(epoch, 10, &[(50, 4_000_000_000)])).await;
    edge.publish_ack(ack(epoch, 50, &[])).await;
    edge.publish_ack(ack(epoch, 20, &[])).await;
    edge.publish_ack("{\"v\":1}".to_owned()).await;
    edge.publish_ack("\u{0}garbage".to_owned()).await;
    edge.publish_ack(ack(epoch, 50, &[(40, 60)])).await;
    let ignored = IgnoredAcks { regressed: 1, foreign_epoch: 1, beyond_head: 2, malformed: 3 };
    let status = site.status_where("the acks", |s| s.report.ignored_acks == ignored).await;
    assert_eq!((status.report.acked, status.report.head), (50, 100));

    // What was not believed was not deleted either: after a restart all of it is there to be sent.
    site.kill_node().await;
    edge.set_acking(true);
    site.start_node().await;
    site.drained().await;
    assert_eq!(edge.frontier().acked(), 100);
    for seq in 51..=100 {
        assert!(edge.seen().arrivals[&seq] >= 2, "{seq} was not sent again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_says_since_when_the_oldest_record_waits() {
    let mut site = Site::new("forward.resend_after = \"1h\"").await;
    let edge = site.edge().await;
    edge.set_acking(false);
    site.start_node().await;
    let mut sampler = site.sampler();
    let before = Timestamp::now();
    sampler.samples(10);
    let between = Timestamp::now();
    sampler.samples(10);
    edge.has_all(20).await;
    // What the edge was told last, over the broker.
    let told = async |what: &str, acked: u64| {
        let report = eventually(LONG, what, async || {
            let last = edge.seen().statuses.last().and_then(|status| status.report.clone());
            last.filter(|report| (report.head, report.acked) == (20, acked))
        });
        report.await.unwrap()
    };
    let first = told("a status with all of it", 0).await;
    let oldest = first.oldest_at.unwrap();
    // The spool keeps milliseconds.
    let near = |at: Timestamp| at.as_millisecond();
    assert!((near(before)..=near(between)).contains(&near(oldest)), "{oldest}");
    assert!(first.at >= oldest);
    let epoch = site.status().unwrap().epoch;
    edge.publish_ack(ack(epoch, 10, &[])).await;
    let later = told("a status with half of it", 10).await.oldest_at.unwrap();
    assert!(near(later) >= near(between), "{later}: the next that waits");
    edge.publish_ack(ack(epoch, 20, &[])).await;
    assert_eq!(told("a status with none of it", 20).await.oldest_at, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_ranges_of_an_ack_name_is_not_sent_again() {
    let mut site = Site::new("forward.batch_records = 10").await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(300);
    let epoch = site.status().unwrap().epoch;
    site.kill_node().await;
    let edge = site.edge().await;
    {
        let mut seen = edge.seen();
        let frontier = seen.frontiers.entry(epoch).or_default();
        for seq in (1..=20).chain(101..=200) {
            frontier.observe(seq).unwrap();
        }
    }
    edge.publish_ack(ack(epoch, 20, &[(101, 200)])).await;
    site.link.set(Mode::Pass);
    site.start_node().await;
    edge.has_all(300).await;
    site.drained().await;
    let arrived: Vec<u64> = edge.seen().arrivals.keys().copied().collect();
    assert_eq!(arrived, (21..=100).chain(201..=300).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_refuses_the_node_is_named_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let passwords = folder.path().join("passwords");
    let acl = folder.path().join("acl");
    // No user is in the file, so nobody is let in.
    std::fs::write(&passwords, "").unwrap();
    std::fs::write(&acl, "").unwrap();
    let options = testkit::rig::MosquittoOptions {
        password_file: Some(passwords),
        acl_file: Some(acl),
        ..Default::default()
    };
    let strict = testkit::Broker::start(options).await.unwrap();
    let secret = "hunter2-is-never-shown";
    let mut site = Site::new(&format!("mqtt.password = \"{secret}\"")).await;
    site.link.set_target(strict.addr());
    site.start_node().await;
    let status = site.status_where("a refusal", |s| s.local.link.state == LinkState::Refused).await;
    let detail = status.local.link.detail.unwrap();
    assert!(detail.contains("user name or password"), "{detail}");
    site.sampler().samples(50);
    // The broker changes its mind.
    let edge = site.edge().await;
    site.link.set_target(site.broker.addr());
    edge.has_all(50).await;
    site.drained().await;
    assert!(!site.log().contains(secret), "the log shows the password");
    assert_eq!(site.log().matches("refused").count(), 1, "{}", site.log());
}
