//! What a node tells Prometheus: docs/reference/metrics.md.

use crate::site::{LONG, Site};
use std::collections::BTreeMap;
use testkit::eventually;
use testkit::rig::{Mode, free_port};

/// The values by name.
async fn scrape(port: u16) -> Result<BTreeMap<String, f64>, String> {
    let answer = reqwest::get(format!("http://127.0.0.1:{port}/metrics")).await;
    let text = answer.map_err(|e| e.to_string())?.text().await.map_err(|e| e.to_string())?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| {
        let (name, value) = line.split_once(' ').ok_or(line)?;
        Ok((name.to_owned(), value.parse().map_err(|_| line)?))
    });
    pairs.collect::<Result<_, &str>>().map_err(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_seen_to_wait_and_to_go() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let port = free_port().unwrap();
    let mut site = Site::new(&format!("metrics.listen = \"127.0.0.1:{port}\"")).await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(300);
    let held = scrape(port).await.unwrap();
    assert_eq!(held["holdfast_node_spool_records"], 300.0);
    assert_eq!(
        (held["holdfast_node_records_total"], held["holdfast_node_acked_total"]),
        (300.0, 0.0)
    );
    assert_eq!((held["holdfast_node_connected"], held["holdfast_node_clock_set"]), (0.0, 1.0));
    assert!(held["holdfast_node_spool_bytes"] > 0.0 && held["holdfast_node_oldest_seconds"] >= 0.0);
    eventually(LONG, "the oldest record to age", async || {
        scrape(port).await.is_ok_and(|now| {
            now["holdfast_node_oldest_seconds"] > held["holdfast_node_oldest_seconds"]
        })
    })
    .await
    .unwrap();
    let edge = site.edge().await;
    site.link.set(Mode::Pass);
    edge.has_all(300).await;
    site.drained().await;
    let gone = scrape(port).await.unwrap();
    assert_eq!(
        (gone["holdfast_node_spool_records"], gone["holdfast_node_acked_total"]),
        (0.0, 300.0)
    );
    assert_eq!((gone["holdfast_node_connected"], gone["holdfast_node_oldest_seconds"]), (1.0, 0.0));
    assert!(gone["holdfast_node_sent_total"] >= 300.0, "{gone:?}");
    assert_eq!(gone["holdfast_node_dropped_total"], 0.0);
    let elsewhere = reqwest::get(format!("http://127.0.0.1:{port}/")).await.unwrap();
    assert_eq!(elsewhere.status(), 404);
    // A head that never ends is cut off, and hurts nobody.
    let long = reqwest::Client::new().get(format!("http://127.0.0.1:{port}/metrics"));
    let long = long.header("x-long", "a".repeat(8_000)).send().await;
    assert!(long.is_err() || long.is_ok_and(|answer| answer.status() == 400));
    assert!(scrape(port).await.is_ok());
    site.stop_node().await;
    assert!(scrape(port).await.is_err(), "the port closes with the node");
}

#[test]
fn there_is_no_port_unless_it_is_asked_for_and_none_for_other_machines() {
    let load = |listen: Option<&str>| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut text =
            "[node]\nnode_id = \"barn-7\"\nmqtt.address = \"mqtt://127.0.0.1:1\"\n".to_owned();
        if let Some(listen) = listen {
            text.push_str(&format!("metrics.listen = \"{listen}\"\n"));
        }
        std::fs::write(file.path(), text).unwrap();
        node::Config::load(Some(file.path()), |_| None).map(|(config, _)| config.metrics)
    };
    assert_eq!(load(None).unwrap(), None);
    assert!(load(Some("127.0.0.1:9480")).unwrap().is_some());
    let refused = load(Some("0.0.0.0:9480")).unwrap_err().to_string();
    assert!(refused.contains("metrics.listen") && refused.contains("other machines"), "{refused}");
}
