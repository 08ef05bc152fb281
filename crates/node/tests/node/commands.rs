//! The commands a person runs.

use crate::site::{BulkEdge, NODE, SECRET, Site, binary, run, text};
use serde_json::Value;
use std::process::Command;
use testkit::rig::Mode;

#[tokio::test(flavor = "multi_thread")]
async fn config_check_shows_values_and_origins_and_refuses_what_cannot_work() {
    let site = Site::new("mqtt.password = \"hunter2\"").await;
    let mut command = Command::new(binary());
    command.args(["config", "check", "--config"]).arg(site.config());
    command.env("HOLDFAST_NODE_FORWARD_STATUS_EVERY", "45s");
    let output = run(&mut command);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!shown.contains("hunter2"), "{shown}");
    for row in [
        ["node.node_id", NODE, "holdfast.toml:2"],
        ["node.forward.status_every", "45s", "env HOLDFAST_NODE_FORWARD_STATUS_EVERY"],
        ["node.spool.max_spool_bytes", "2GiB", "default"],
        ["node.mqtt.password", "•••", "holdfast.toml:"],
    ] {
        let found = shown.lines().any(|line| row.iter().all(|part| line.contains(part)));
        assert!(found, "{row:?} in\n{shown}");
    }
    site.configure(
        "mqtt.keepalife = \"5s\"\nspool.sync = \"sometimes\"\nspool.max_spool_bytes = \"1MiB\"",
    );
    let output = run(&mut command);
    let complaint = text(&output.stderr);
    assert!(!output.status.success());
    assert!(complaint.contains("did you mean node.mqtt.keepalive?"), "{complaint}");
    assert!(complaint.contains("\"sometimes\": expected batch, or interval:"), "{complaint}");
    site.configure("mqtt.ca_file = \"/nonexistent.pem\"\nmqtt.address = \"mqtts://localhost:1\"");
    let output = run(&mut command);
    assert!(text(&output.stderr).contains("/nonexistent.pem"), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn status_asks_the_node_and_falls_back_to_the_spool() {
    let mut site = Site::new("").await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(1_234);
    let output = site.command(&["status"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!shown.contains('\u{1b}'), "colours without a terminal");
    for words in [
        NODE,
        "running",
        "down",
        "1,234, the oldest waits for",
        "known after a minute",
        "ignored: 0 regressed",
    ] {
        assert!(shown.contains(words), "{words} in\n{shown}");
    }
    let json: Value = serde_json::from_slice(&site.command(&["status", "--json"]).stdout).unwrap();
    assert_eq!((&json["state"], &json["backlog"]), (&"online".into(), &1_234.into()));
    assert_eq!(json["local"]["link"]["state"], "down");
    let oldest_at = json["oldest_at"].clone();
    assert!(oldest_at.is_string(), "{json}");
    site.kill_node().await;
    let output = site.command(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["state"], &json["head"]), (&"offline".into(), &1_234.into()));
    assert_eq!(json["oldest_at"], oldest_at, "the spool says the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_and_verify_find_a_flipped_bit_and_change_nothing() {
    let mut site = Site::new("spool.segment_bytes = \"64KiB\"").await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    let mut sampler = site.sampler();
    for _ in 0..5 {
        sampler.samples(100);
    }
    site.stop_node().await;
    let whole = site.command(&["spool", "verify"]);
    assert!(whole.status.success(), "{}", text(&whole.stdout));
    assert!(text(&whole.stdout).contains("every frame is whole"));

    let first = std::fs::read_dir(site.spool()).unwrap().map(|entry| entry.unwrap().path());
    let first =
        first.filter(|path| path.extension().is_some_and(|ext| ext == "seg")).min().unwrap();
    let mut bytes = std::fs::read(&first).unwrap();
    bytes[20_000] ^= 1;
    std::fs::write(&first, &bytes).unwrap();
    let listing = || -> Vec<_> {
        let entries = std::fs::read_dir(site.spool()).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> =
            entries.map(|e| (e.path(), e.metadata().unwrap().modified().unwrap())).collect();
        files.sort();
        files
    };
    let before = listing();
    let damaged = site.command(&["spool", "verify", "--json"]);
    assert_eq!(damaged.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&damaged.stdout).unwrap();
    assert_eq!((&json["damaged_records"], &json["head"]), (&1.into(), &500.into()));
    let shown = site.command(&["spool", "inspect"]);
    assert!(shown.status.success() && text(&shown.stdout).contains("segments"));
    assert_eq!(listing(), before, "a look has changed the spool");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_is_carried_by_hand_and_the_ledger_recognises_it() {
    let mut site = Site::new("").await;
    site.link.set(Mode::Cut);
    site.start_node().await;
    site.sampler().samples(5_000);
    let file = |name: &str| site.folder.path().join(name).to_string_lossy().into_owned();
    let whole = file("all.jsonl.zst");
    // The node may be running.
    let output = site.command(&["spool", "export", "--out", &whole]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("5,000 records"), "{}", text(&output.stdout));
    let part = file("part.jsonl");
    let spool = site.spool().to_string_lossy().into_owned();
    let arguments = [
        "spool",
        "export",
        "--out",
        &part,
        "--from",
        "10",
        "--to",
        "19",
        "--dir",
        &spool,
        "--node-id",
        NODE,
    ];
    assert!(site.command(&arguments).status.success());
    let lines = std::fs::read_to_string(&part).unwrap();
    assert_eq!(lines.lines().count(), 1 + 10 + 1);
    assert!(!site.command(&arguments).status.success(), "an export was overwritten");

    let bulk = BulkEdge::start().await;
    let secret = file("secret");
    std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let import = |name: &str| {
        let mut command = Command::new(binary());
        command.args(["spool", "import", name, "--edge", &bulk.url(), "--secret-file", &secret]);
        run(&mut command)
    };
    for _ in 0..2 {
        let output = import(&whole);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(
            text(&output.stdout).contains("everything up to 5,000"),
            "{}",
            text(&output.stdout)
        );
    }
    {
        let served = bulk.served();
        let frontier = &served.memory.frontiers[&site.status().unwrap().epoch];
        assert_eq!(frontier.received().ranges(), [(1, 5_000)]);
        assert_eq!((served.memory.duplicates, served.memory.event_ids.len()), (5_000, 5_000));
    }
    // A file that was cut short is noticed, and what it had is sent all the same.
    let cut = file("cut.jsonl");
    std::fs::write(&cut, &lines[..lines.len() - 40]).unwrap();
    let output = import(&cut);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("cut short"), "{}", text(&output.stderr));
    std::fs::write(&cut, "{\"not\":\"an export\"}\n").unwrap();
    assert!(text(&import(&cut).stderr).contains("line 1"));
    // What asking again would not help fails at once.
    std::fs::write(&secret, "wrong").unwrap();
    assert!(text(&import(&whole).stderr).contains("refuses the node's secret"));
    // When its link comes back, the node hears that the edge has it all.
    let edge = site.edge().await;
    edge.seen().frontiers.clone_from(&bulk.served().memory.frontiers);
    let epoch = site.status().unwrap().epoch;
    let ack = event::wire::Ack { epoch, acked_seq: 5_000, ranges: vec![] };
    edge.publish_ack(ack.to_json()).await;
    site.link.set(Mode::Pass);
    site.drained().await;
    assert!(edge.seen().arrivals.is_empty(), "what the edge has was sent again");
}

#[test]
fn help_has_examples_and_the_reference_lists_every_key() {
    let help = run(Command::new(binary()).arg("--help"));
    assert!(text(&help.stdout).contains("Examples:"));
    let reference = run(Command::new(binary()).args(["config", "reference"]));
    let shown = text(&reference.stdout);
    for key in ["`spool.on_full`", "`HOLDFAST_NODE_MQTT_ADDRESS`", "`mqtt.password`"] {
        assert!(shown.contains(key), "{key} in\n{shown}");
    }
}
