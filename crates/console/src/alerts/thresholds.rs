//! Every number that an alert is judged by, once for each role, and which alert of docs/prometheus has the same. A test reads those files.

use super::Severity;

/// From which value on something is worth a warning, and from which it is critical. Above it, unless the name says below.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) rule: &'static str,
    /// The role or the thing it is about.
    #[cfg_attr(not(test), expect(dead_code, reason = "for whoever reads the table, and its test"))]
    pub(super) of: &'static str,
    pub(super) warning: Option<f64>,
    pub(super) critical: Option<f64>,
    /// For how many seconds it must hold before it is a warning, and before it is critical: `for` of Prometheus.
    pub(super) holds: [u32; 2],
    /// The alerts of Prometheus for the warning and for the critical one.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the test that compares them"))]
    pub(super) prometheus: [Option<&'static str>; 2],
}

impl Limit {
    const fn new(rule: &'static str, of: &'static str, warning: f64, critical: f64) -> Limit {
        Limit {
            rule,
            of,
            warning: Some(warning),
            critical: Some(critical),
            holds: [0, 0],
            prometheus: [None, None],
        }
    }

    const fn warning(rule: &'static str, of: &'static str, warning: f64) -> Limit {
        Limit { critical: None, ..Limit::new(rule, of, warning, 0.0) }
    }

    const fn critical(rule: &'static str, of: &'static str, critical: f64) -> Limit {
        Limit { warning: None, ..Limit::new(rule, of, 0.0, critical) }
    }

    /// It is one only after so many seconds.
    const fn after(self, warning: u32, critical: u32) -> Limit {
        Limit { holds: [warning, critical], ..self }
    }

    const fn like(self, warning: &'static str, critical: &'static str) -> Limit {
        Limit { prometheus: [Some(warning), Some(critical)], ..self }
    }

    const fn warning_like(self, alert: &'static str) -> Limit {
        Limit { prometheus: [Some(alert), None], ..self }
    }

    const fn critical_like(self, alert: &'static str) -> Limit {
        Limit { prometheus: [None, Some(alert)], ..self }
    }

    /// Which of the two a value is above.
    pub(super) fn above(&self, value: f64) -> Option<(Severity, f64)> {
        let over = |limit: &f64| value > *limit;
        self.worst(over)
    }

    /// Which of the two a value is below.
    pub(super) fn below(&self, value: f64) -> Option<(Severity, f64)> {
        let under = |limit: &f64| value < *limit;
        self.worst(under)
    }

    fn worst(&self, passed: impl Fn(&f64) -> bool) -> Option<(Severity, f64)> {
        let critical = self.critical.filter(&passed).map(|limit| (Severity::Critical, limit));
        critical.or_else(|| self.warning.filter(&passed).map(|limit| (Severity::Warning, limit)))
    }
}

/// Seconds without an answer.
pub(super) const AWAY: Limit =
    Limit::new("upstream_away", "upstream", 10.0, 120.0).critical_like("HoldfastDown");

/// Seconds that the oldest may wait.
pub(super) const OUTBOX_OLDEST: Limit = Limit::new("oldest_pending", "outbox", 900.0, 86_400.0)
    .like("EdgeOldestPendingWarning", "EdgeOldestPendingCritical");
pub(super) const RELAY_OLDEST: Limit = Limit::new("oldest_pending", "relay", 60.0, 900.0)
    .like("CloudRelayOldestWarning", "CloudRelayOldestCritical");
pub(super) const PRODUCER_OLDEST: Limit = Limit::new("oldest_pending", "producer", 30.0, 300.0)
    .like("ScadaOutboxOldestWarning", "ScadaOutboxOldestCritical");

/// Events that may wait; a site's outbox may hold days.
pub(super) const OUTBOX_PENDING: Limit = Limit::new("pending", "outbox", 10_000.0, 100_000.0);
pub(super) const RELAY_PENDING: Limit = Limit::new("pending", "relay", 100.0, 1_000.0)
    .after(60, 60)
    .like("CloudRelayPendingWarning", "CloudRelayPendingCritical");
pub(super) const PRODUCER_PENDING: Limit = Limit::new("pending", "producer", 100.0, 1_000.0)
    .like("ScadaOutboxPendingWarning", "ScadaOutboxPendingCritical");

/// Dead letters.
pub(super) const OUTBOX_DEAD: Limit =
    Limit::new("dead_letters", "outbox", 0.0, 10.0).warning_like("EdgeDeadLetters");
pub(super) const RELAY_DEAD: Limit =
    Limit::new("dead_letters", "relay", 0.0, 10.0).warning_like("CloudRelayDeadLetters");
pub(super) const BUS_DEAD: Limit =
    Limit::new("dead_letters", "bus", 0.0, 10.0).warning_like("BusDeadLetters");
pub(super) const HISTORIAN_DEAD: Limit =
    Limit::new("dead_letters", "historian", 0.0, 10.0).warning_like("HistorianDeadLetters");
pub(super) const PRODUCER_DEAD: Limit = Limit::new("dead_letters", "producer", 0.0, 10.0)
    .like("ScadaOutboxFailedWarning", "ScadaOutboxFailedCritical");

/// Seconds in which something is due and nothing leaves; each role decides it by itself for Prometheus.
pub(super) const OUTBOX_STILL: Limit =
    Limit::critical("not_draining", "outbox", 300.0).critical_like("EdgeNotDraining");
pub(super) const RELAY_STILL: Limit =
    Limit::critical("not_draining", "relay", 60.0).critical_like("CloudRelayNotDraining");
/// Problems that the historian names.
pub(super) const HISTORIAN_STILL: Limit =
    Limit::critical("not_draining", "historian", 0.0).critical_like("HistorianNotDraining");
/// Seconds in which something waits for a consumer and does not become less: where one is there, and where none is.
pub(super) const CONSUMERS_BEHIND: Limit = Limit::new("consumers_behind", "bus", 60.0, 300.0)
    .like("BusConsumersBehindWarning", "BusConsumersBehindCritical");
pub(super) const NOT_CONSUMED: Limit =
    Limit::critical("not_consumed", "bus", 60.0).critical_like("BusNotConsumed");
/// Breakers that are open. Each opens for seconds when a connection breaks; that nothing is lost meanwhile makes it no more than a warning.
pub(super) const BREAKER: Limit =
    Limit::warning("breaker_open", "outbox", 0.0).after(10, 0).warning_like("EdgeBreakerOpen");
pub(super) const RELAY_BREAKER: Limit =
    Limit::warning("breaker_open", "relay", 0.0).after(10, 0).warning_like("CloudRelayBreakerOpen");
/// Rows that are held by one who is gone, or more than a batch has.
pub(super) const OUTBOX_STUCK: Limit = Limit::warning("stuck", "outbox", 0.0).after(120, 0);
pub(super) const PRODUCER_STUCK: Limit =
    Limit::warning("stuck", "producer", 0.0).after(120, 0).warning_like("ScadaDispatcherStuck");

/// Images that could not be copied.
pub(super) const COPIES_FAILED: Limit =
    Limit::warning("copies_failed", "cloud", 0.0).warning_like("CloudMediaCopiesFailed");
/// Events that were declared lost, and records that were quarantined, since the console looks.
pub(super) const GAP: Limit =
    Limit::critical("gap_declared", "node", 0.0).critical_like("EdgeGapDeclared");
pub(super) const QUARANTINE: Limit =
    Limit::warning("quarantine_grows", "node", 0.0).warning_like("EdgeQuarantine");
/// Bytes above a site's own limit.
pub(super) const SITE_DISK: Limit =
    Limit::critical("site_disk", "site", 0.0).after(0, 300).critical_like("EdgeDiskLimitPassed");
/// Seconds between a site's clock and ours.
pub(super) const SITE_CLOCK: Limit = Limit::new("site_clock", "site", 5.0, 60.0);
/// Bytes free on a node's disk: below.
pub(super) const NODE_DISK: Limit = Limit::new("node_disk", "node", 500_000_000.0, 100_000_000.0)
    .after(600, 120)
    .like("NodeDiskWarning", "NodeDiskCritical");
pub(super) const NODE_CLOCK: Limit =
    Limit::warning("node_clock", "node", 0.0).after(900, 0).warning_like("NodeClockNotSet");
pub(super) const NODE_DROPS: Limit =
    Limit::warning("node_drops", "node", 0.0).warning_like("NodeDropsRecords");
pub(super) const NODE_FLAGGED: Limit =
    Limit::critical("node_flagged", "node", 0.0).critical_like("EdgeClonedCard");
/// Seconds since the newest reading of the historian.
pub(super) const HISTORIAN_SILENT: Limit =
    Limit::warning("historian_silent", "historian", 900.0).warning_like("HistorianSilent");
/// Seconds that the oldest complete capture, and the oldest message, of schedules has waited.
pub(super) const CAPTURES_OLDEST: Limit = Limit::warning("oldest_pending", "captures", 600.0)
    .after(300, 0)
    .warning_like("ScheduleCapturesStuck");
pub(super) const MESSAGES_OLDEST: Limit = Limit::warning("oldest_pending", "messages", 900.0)
    .after(300, 0)
    .warning_like("ScheduleDeliveriesStuck");
/// Alarms in ten minutes.
pub(super) const FLOOD: Limit =
    Limit::critical("alarm_flood", "plant", 10.0).critical_like("HistorianAlarmFlood");

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;

    const ALL: [&Limit; 35] = [
        &AWAY,
        &OUTBOX_OLDEST,
        &RELAY_OLDEST,
        &PRODUCER_OLDEST,
        &OUTBOX_PENDING,
        &RELAY_PENDING,
        &PRODUCER_PENDING,
        &OUTBOX_DEAD,
        &RELAY_DEAD,
        &BUS_DEAD,
        &HISTORIAN_DEAD,
        &PRODUCER_DEAD,
        &OUTBOX_STILL,
        &RELAY_STILL,
        &HISTORIAN_STILL,
        &CONSUMERS_BEHIND,
        &NOT_CONSUMED,
        &BREAKER,
        &RELAY_BREAKER,
        &OUTBOX_STUCK,
        &PRODUCER_STUCK,
        &COPIES_FAILED,
        &GAP,
        &QUARANTINE,
        &SITE_DISK,
        &SITE_CLOCK,
        &NODE_DISK,
        &NODE_CLOCK,
        &NODE_DROPS,
        &NODE_FLAGGED,
        &HISTORIAN_SILENT,
        &CAPTURES_OLDEST,
        &MESSAGES_OLDEST,
        &FLOOD,
        &NODE_SILENT_HAS_NO_NUMBER,
    ];
    /// Late and offline are the site's words.
    const NODE_SILENT_HAS_NO_NUMBER: Limit = Limit {
        rule: "node_silent",
        of: "node",
        warning: None,
        critical: None,
        holds: [0, 0],
        prometheus: [None, None],
    };

    /// What only Prometheus sees: counters that no upstream of the console tells, and the machines themselves.
    const ONLY_PROMETHEUS: &[&str] = &[
        "BusBlocked",
        "BusConnectionFlaps",
        "BusRedeliversAll",
        "BusRefusesMessages",
        "CloudClonedStream",
        "CloudDatabaseRetries",
        "CloudGapDeclared",
        "CloudMediaCopiesWait",
        "CloudRefusesCallers",
        "CloudRejects",
        "CloudTurnsSitesAway",
        "EdgeAggregatesLate",
        "EdgeBacklogNotShrinking",
        "EdgeBrokerFlaps",
        "EdgeCloudRefusesToken",
        "EdgeDatabaseRetries",
        "EdgeDiskDropsEvents",
        "EdgeFenced",
        "EdgeIngressStuck",
        "EdgeMediaSweepFails",
        "EdgeRetentionHeldBack",
        "HistorianLate",
        "HoldfastCertificateCritical",
        "HoldfastCertificateRefused",
        "HoldfastCertificateWarning",
        "HoldfastClockNotSynchronised",
        "HoldfastClockOff",
        "HoldfastDiskCritical",
        "HoldfastDiskWarning",
        "HoldfastNotReady",
        "NodeBacklog",
        "NodeDisconnected",
        "NodeGivesUpGaps",
        "ScadaInputSilent",
        "ScadaNodeDatabaseAway",
        "ScadaNodeLosesCycles",
        "ScadaNodeMissesCycles",
        "ScadaNodeSpools",
        "ScheduleCapturesFail",
        "ScheduleDatabaseAway",
        "ScheduleDeliveriesFail",
        "ConsoleAlertsNotTold",
        "ConsoleUpstreamAway",
    ];

    /// Alerts of what has no number of its own there: how long it has been so is what Prometheus measures, by `for` and the window that it looks at.
    const MEASURED_BY_PROMETHEUS: &[&str] = &["HoldfastDown", "HistorianSilent"];

    /// An alert's severity, its expression, and how long it must hold.
    type Rule = (String, String, Option<String>);

    /// A time as Prometheus writes it, in seconds.
    fn seconds(time: &str) -> u32 {
        let (number, unit) = time.split_at(time.len() - 1);
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => panic!("what is {time}?"),
        };
        number.parse::<u32>().unwrap() * unit
    }

    /// The window that an expression looks at; none when it looks at a moment.
    fn window(expression: &str) -> u32 {
        let window = expression.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        window.map_or(0, |(time, _)| seconds(time))
    }

    /// The alerts of every rules file by name.
    fn prometheus() -> BTreeMap<String, Rule> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/prometheus");
        let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.to_string_lossy().ends_with(".rules.yml") {
                continue;
            }
            let text = std::fs::read_to_string(path).unwrap();
            let mut name = String::new();
            let mut in_expression = false;
            for line in text.lines() {
                let word = line.trim();
                if let Some(found) = word.strip_prefix("- alert: ") {
                    name = found.to_owned();
                    assert!(rules.insert(name.clone(), Rule::default()).is_none(), "{name} twice");
                }
                let Some(rule) = rules.get_mut(&name) else { continue };
                if let Some(expression) = word.strip_prefix("expr: ") {
                    rule.1 = expression.trim_start_matches(">-").trim().to_owned();
                    in_expression = true;
                    continue;
                }
                if in_expression && line.starts_with("          ") {
                    rule.1 = format!("{} {word}", rule.1);
                    continue;
                }
                in_expression = false;
                if let Some(time) = word.strip_prefix("for: ") {
                    rule.2 = Some(time.to_owned());
                } else if let Some(labels) = word.strip_prefix("labels: { severity: ") {
                    rule.0 = labels.split([',', ' ']).next().unwrap().to_owned();
                }
            }
        }
        rules
    }

    /// The number that an expression compares with; none where a role decides by itself and shows 1 or 0.
    fn compared(expression: &str) -> Option<f64> {
        let words: Vec<&str> = expression.split_whitespace().collect();
        let at = words.iter().rposition(|word| matches!(*word, ">" | "<"))?;
        words.get(at + 1)?.parse().ok()
    }

    #[test]
    fn the_console_and_prometheus_judge_by_the_same_numbers() {
        let rules = prometheus();
        let mut known = BTreeSet::new();
        for limit in ALL {
            let levels = [(limit.warning, "warning"), (limit.critical, "critical")];
            for ((alert, (number, severity)), after) in
                limit.prometheus.into_iter().zip(levels).zip(limit.holds)
            {
                let Some(alert) = alert else { continue };
                known.insert(alert);
                let (is, expression, holds) =
                    rules.get(alert).unwrap_or_else(|| panic!("there is no alert {alert}"));
                let of = format!("{} of {} and {alert}", limit.rule, limit.of);
                assert_eq!(is, severity, "{of}");
                if let Some(other) = compared(expression) {
                    assert_eq!(number, Some(other), "{of}: {expression}");
                }
                let holds = holds.as_deref().map_or(0, seconds);
                if MEASURED_BY_PROMETHEUS.contains(&alert) {
                    let all = f64::from(holds + window(expression));
                    assert_eq!(number, Some(all), "{of}: how long, with the window");
                } else {
                    assert_eq!(holds, after, "{of}: how long it must hold");
                }
            }
        }
        let all: BTreeSet<&str> = rules.keys().map(String::as_str).collect();
        known.extend(ONLY_PROMETHEUS);
        let forgotten: Vec<_> = all.difference(&known).collect();
        assert!(forgotten.is_empty(), "say what the console makes of {forgotten:?}");
        let gone: Vec<_> = known.difference(&all).collect();
        assert!(gone.is_empty(), "there is no alert {gone:?}");
    }

    #[test]
    fn a_value_at_its_limit_has_not_passed_it() {
        assert_eq!(RELAY_OLDEST.above(60.0), None);
        assert_eq!(RELAY_OLDEST.above(61.0), Some((Severity::Warning, 60.0)));
        assert_eq!(RELAY_OLDEST.above(901.0), Some((Severity::Critical, 900.0)));
        assert_eq!(NODE_DISK.below(500_000_000.0), None);
        assert_eq!(NODE_DISK.below(1.0), Some((Severity::Critical, 100_000_000.0)));
        assert_eq!(COPIES_FAILED.above(1e9), Some((Severity::Warning, 0.0)));
    }

    #[test]
    fn the_specification_names_every_rule() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec/console.md");
        let page = std::fs::read_to_string(page).unwrap();
        for limit in ALL {
            assert!(page.contains(&format!("| `{}` |", limit.rule)), "{}", limit.rule);
        }
    }
}
