//! The rules for Prometheus that we ship: every name is one that a node shows, every threshold is the one that the node applies.

use std::collections::BTreeSet;

use metrics_exporter_prometheus::PrometheusBuilder;
use scada::inputs::{self, Mapping};
use scada::outbox::{IN_PROGRESS, STUCK_AFTER, THRESHOLDS};
use scada::producer::{GAUGES, Metrics};
use tokio_util::sync::CancellationToken;

/// A rule's expression, how long it must hold, and its severity.
struct Rule {
    expr: String,
    holds: Option<String>,
    severity: String,
}

fn rules() -> Vec<Rule> {
    let page =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/prometheus/holdfast-scada.rules.yml");
    let text = std::fs::read_to_string(page).unwrap();
    let mut rules: Vec<Rule> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("- alert:") {
            rules.push(Rule { expr: String::new(), holds: None, severity: String::new() });
        }
        let Some(rule) = rules.last_mut() else { continue };
        if let Some(expr) = line.strip_prefix("expr: ") {
            rule.expr = expr.to_owned();
        } else if let Some(holds) = line.strip_prefix("for: ") {
            rule.holds = Some(holds.to_owned());
        } else if let Some(labels) = line.strip_prefix("labels: { severity: ") {
            rule.severity = labels.split([',', ' ']).next().unwrap().to_owned();
        }
    }
    rules
}

/// What a node shows of an input that does not answer.
fn shown_of_inputs() -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mapping.toml");
    let text = "[node]\nid = 7\nplant = \"PLANT01\"\narea = \"AREA01\"\nunit = \"UNIT_07\"\n[[modbus]]\nname = \"skid\"\naddress = \"127.0.0.1:1\"\n[[modbus.tag]]\ntag = \"LEVEL\"\nregister = 1\ntype = \"u16\"\n";
    std::fs::write(&file, text).unwrap();
    let recorder = PrometheusBuilder::new().build_recorder();
    let start = || inputs::start(Mapping::load(&file).unwrap(), &CancellationToken::new());
    let _inputs = metrics::with_local_recorder(&recorder, start);
    recorder.handle().render()
}

#[tokio::test]
async fn every_name_in_the_rules_is_one_that_a_node_shows() {
    let shown = Metrics::new(50).render() + &shown_of_inputs();
    let shown: BTreeSet<&str> = shown
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    let mut named = 0;
    for rule in rules() {
        let words = rule.expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("holdfast_")) {
            assert!(shown.contains(name), "{name} of {:?} is not shown", rule.expr);
            named += 1;
        }
    }
    assert!(named >= 12, "{named}");
}

#[test]
fn the_thresholds_of_the_rules_are_those_that_a_node_applies() {
    let rules = rules();
    let has = |expr: &str, severity: &str, holds: Option<&str>| {
        let found = rules.iter().filter(|rule| rule.expr == expr && rule.severity == severity);
        let found: Vec<_> = found.map(|rule| rule.holds.as_deref()).collect();
        assert_eq!(found, [holds], "{expr} {severity}");
    };
    let gauge = |metric| GAUGES.into_iter().find(|(name, ..)| *name == metric).unwrap();
    for threshold in THRESHOLDS {
        let (_, name, per) = gauge(threshold.metric);
        has(&format!("{name} > {}", threshold.warning / per), "warning", None);
        has(&format!("{name} > {}", threshold.critical / per), "critical", None);
    }
    let (_, name, _) = gauge(IN_PROGRESS);
    let many = format!("{name} > holdfast_producer_outbox_batch_size");
    let (after, lock) = (STUCK_AFTER.as_secs(), "holdfast_producer_outbox_oldest_lock_seconds");
    // By the age of the oldest lock, as the node itself judges; or by the count for as long.
    let by_age = format!("{many} and on (instance) {lock} > {after}");
    match rules.iter().any(|rule| rule.expr == by_age) {
        true => has(&by_age, "warning", None),
        false => has(&many, "warning", Some(&format!("{after}s"))),
    }
    let of_the_outbox =
        rules.iter().filter(|rule| rule.expr.starts_with("holdfast_producer_outbox"));
    assert_eq!(of_the_outbox.count(), 2 * THRESHOLDS.len() + 1, "and no other");
}
