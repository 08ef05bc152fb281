//! Memory is bounded by configuration, not by the backlog.

#![allow(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use crate::site::{self, Site};
use spool::Spool;

const RECORDS: u64 = 300_000;

/// The most memory a process has had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A spool with a large backlog, filled without a node.
fn fill(site: &Site) {
    let spool = Spool::open(spool::Config::new(site.spool())).unwrap();
    let event = |n: u64| {
        let payload =
            r#"{"metric_type":"temperature","metric_value":21.5,"unit":"C","quality":"GOOD"}"#;
        format!(
            "{{\"event_id\":\"{}\",\"event_type\":\"telemetry.ingested\",\"farm_id\":null,\"barn_id\":null,\
             \"device_id\":\"{}\",\"session_id\":null,\"occurred_at\":\"2026-02-01T10:00:00Z\",\
             \"trace_id\":\"{n:032x}\",\"payload\":{payload}}}",
            event::id::EventId::mint(),
            site::DEVICE
        )
        .into_bytes()
    };
    for start in (0..RECORDS).step_by(1_000) {
        let records = (start..start + 1_000).map(|n| (0, event(n))).collect();
        spool.submit(records, Box::new(|outcome| assert!(outcome.is_ok()))).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_backlog_does_not_make_a_large_process() {
    let mut site = Site::new("").await;
    fill(&site);
    let edge = site.edge().await;
    // First an edge that takes everything and acknowledges nothing, which holds the most; then a drain.
    edge.set_acking(false);
    site.start_node().await;
    site.status_where("a re-send", |s| s.local.resent_batches > 0).await;
    edge.set_acking(true);
    // A part of the drain is enough: what is held does not depend on how much is left.
    let far = |status: &node::NodeStatus| status.report.acked > 50_000;
    let status = site.status_where("a part of the backlog to drain", far).await;
    assert_eq!(status.report.head, RECORDS);
    let peak = peak_kib(site.node().pid());
    println!("peak resident memory: {peak} KiB");
    assert!(peak < 20 * 1024, "{peak} KiB");
}
