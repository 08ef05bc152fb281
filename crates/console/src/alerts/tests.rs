use std::sync::Arc;

use super::*;
use crate::picture::{
    Breaker, CloudTenant, CloudTick, ConsumerQueue, Consumers, Liveness, NodeRow, Outbox,
    PlantTick, Presence, ProducerOutbox, ProducerTick, ScheduleTick, SiteTenant, SiteTick,
    Upstream, UpstreamKind,
};
use crate::upstream::historian::Flood;
use crate::upstream::site::NodeFact;

fn start() -> Timestamp {
    "2026-02-01T10:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn tick(seconds: i64, tenant: Uuid, outbox: Outbox) -> Tick {
    let part = SiteTenant { outbox: Some(outbox), ..SiteTenant::default() };
    let site = SiteTick {
        name: "north".to_owned(),
        here: true,
        forwards: true,
        tenants: [(tenant, part)].into(),
        ..SiteTick::default()
    };
    Tick { at: at(seconds), sites: vec![site], ..Tick::default() }
}

fn node(name: &str, tenant: Uuid, liveness: Liveness) -> NodeEntry {
    let fact: NodeFact = serde_json::from_value(serde_json::json!({
        "node_id": name, "tenant_id": tenant, "farm_id": null, "barn_id": null, "device_id": tenant, "label": "",
        "state": "online", "last_rx_at": null, "last_sample_ts": null, "enrolled_at": start(), "disabled_at": null,
        "flagged_at": null, "flag_reason": null, "status": null, "status_at": null, "stored": 0, "recovered": 0,
        "cloned": 0, "quarantined": 0, "epochs": 1, "epoch": null, "acked": 0, "received": 0, "lost": 0
    }))
    .unwrap();
    let row = NodeRow {
        site: "north".to_owned(),
        node_id: name.to_owned(),
        label: String::new(),
        tenant_id: tenant,
        farm_id: None,
        barn_id: None,
        device_id: tenant,
        liveness,
        last_rx_at: None,
        rx_age_s: Some(70.0),
        last_sample_at: None,
        sample_age_s: None,
        backlog: None,
        spool_bytes: None,
        disk_free_bytes: None,
        clock: None,
        drops: Some(0),
        oldest_age_s: None,
        stored: 0,
        lost: 0,
        quarantined: 0,
        rate_per_s: None,
        version: None,
        disabled: false,
        flagged: None,
        cuttable: false,
        cut: false,
    };
    NodeEntry { row, fact: Arc::new(fact) }
}

fn names(alerts: &[Alert]) -> Vec<(&str, Severity)> {
    alerts.iter().map(|alert| (alert.rule, alert.severity)).collect()
}

#[test]
fn a_quiet_system_has_no_alert() {
    let tenant = Uuid::now_v7();
    let nodes = [node("barn-1", tenant, Liveness::Online)];
    let outbox = Outbox { waiting: 50, breaker: Some(Breaker::Closed), ..Outbox::default() };
    assert!(Watch::default().look(&tick(0, tenant, outbox), &nodes).is_empty());
}

#[test]
fn thresholds_are_those_of_the_table_and_an_alert_keeps_its_beginning() {
    let (tenant, mut watch) = (Uuid::now_v7(), Watch::default());
    let slow = |oldest: f64| Outbox {
        waiting: 20,
        oldest_age_s: Some(oldest),
        breaker: Some(Breaker::Closed),
        ..Outbox::default()
    };
    assert!(watch.look(&tick(0, tenant, slow(900.0)), &[]).is_empty(), "not over it yet");
    let found = watch.look(&tick(1, tenant, slow(901.0)), &[]);
    assert_eq!(names(&found), [("oldest_pending", Severity::Warning)]);
    let found = watch.look(&tick(2, tenant, slow(86_401.0)), &[]);
    assert_eq!(names(&found), [("oldest_pending", Severity::Critical)]);
    assert_eq!(found[0].since, at(1), "it is the same alert");
    assert!(watch.look(&tick(3, tenant, slow(0.0)), &[]).is_empty());
    let found = watch.look(&tick(6, tenant, slow(1_000.0)), &[]);
    assert_eq!(found[0].since, at(1), "it only flickered");
    assert!(watch.look(&tick(7, tenant, slow(0.0)), &[]).is_empty());
    assert!(watch.look(&tick(13, tenant, slow(0.0)), &[]).is_empty());
    let found = watch.look(&tick(14, tenant, slow(1_000.0)), &[]);
    assert_eq!(found[0].since, at(14), "it is a new one");
}

#[test]
fn a_broken_link_explains_why_nothing_moves_and_a_whole_one_does_not() {
    let (tenant, mut watch) = (Uuid::now_v7(), Watch::default());
    let still = |breaker| Outbox {
        waiting: 5,
        still_s: 301.0,
        oldest_age_s: Some(20.0),
        breaker: Some(breaker),
        ..Outbox::default()
    };
    let found = watch.look(&tick(0, tenant, still(Breaker::Closed)), &[]);
    assert_eq!(names(&found), [("not_draining", Severity::Critical)]);
    for second in (10..20).step_by(5) {
        let found = watch.look(&tick(second, tenant, still(Breaker::Open)), &[]);
        assert!(found.is_empty(), "it opens for seconds when a connection breaks");
    }
    for second in (20..=390).step_by(5) {
        // Every now and then it tries, for longer than what only flickers.
        let breaker = if second % 60 < 15 { Breaker::HalfOpen } else { Breaker::Open };
        let found = watch.look(&tick(second, tenant, still(breaker)), &[]);
        assert_eq!(names(&found), [("breaker_open", Severity::Warning)], "nothing is lost by it");
        assert_eq!(found[0].since, at(10), "it says since when all the same");
    }
    let stuck = Outbox { stuck: 3, ..Outbox::default() };
    assert!(watch.look(&tick(400, tenant, stuck.clone()), &[]).is_empty(), "for a while it may be");
    for second in (405..520).step_by(5) {
        watch.look(&tick(second, tenant, stuck.clone()), &[]);
    }
    assert_eq!(names(&watch.look(&tick(521, tenant, stuck), &[])), [("stuck", Severity::Warning)]);
}

#[test]
fn captures_and_messages_of_schedules_that_wait_are_told_to_those_who_see_everything() {
    let of = |seconds, here, captures_oldest_s, messages_oldest_s| {
        let schedule = ScheduleTick { here, captures_oldest_s, messages_oldest_s };
        look_after(seconds, |seconds| Tick {
            at: at(seconds),
            schedule: Some(schedule.clone()),
            ..Tick::default()
        })
    };
    assert!(of(300, true, 600.0, 900.0).is_empty(), "not over it");
    assert!(of(299, true, 601.0, 901.0).is_empty(), "not for long enough");
    assert!(of(300, false, 601.0, 901.0).is_empty(), "that it is away is another alert");
    let found = of(300, true, 601.0, 901.0);
    let told: Vec<_> = found.iter().map(|one| (one.id.as_str(), one.severity)).collect();
    let ids = ["oldest_pending:schedule:captures", "oldest_pending:schedule:messages"];
    assert_eq!(told, ids.map(|id| (id, Severity::Warning)));
    assert!(found[0].is_for(&Scope::All));
    assert!(!found[0].is_for(&Scope::Only([Uuid::now_v7()].into())));
}

/// What holds after so many seconds in which nothing changed.
fn look_after(seconds: i64, tick: impl Fn(i64) -> Tick) -> Vec<Alert> {
    let mut watch = Watch::default();
    for second in (0..seconds).step_by(5) {
        watch.look(&tick(second), &[]);
    }
    watch.look(&tick(seconds), &[])
}

#[test]
fn a_relay_that_leaves_the_bus_alone_is_told_and_explains_why_nothing_moves() {
    let tenant = Uuid::now_v7();
    let cloud = |breaker| {
        let part = CloudTenant { waiting: 5, still_s: 61.0, ..CloudTenant::default() };
        let tenants = [(tenant, part)].into();
        CloudTick { here: true, breaker: Some(breaker), tenants, ..CloudTick::default() }
    };
    let of = |seconds, breaker| {
        look_after(seconds, |seconds| Tick {
            at: at(seconds),
            cloud: Some(cloud(breaker)),
            ..Tick::default()
        })
    };
    assert_eq!(names(&of(0, Breaker::Closed)), [("not_draining", Severity::Critical)]);
    assert!(of(9, Breaker::Open).is_empty(), "not for long enough");
    for breaker in [Breaker::Open, Breaker::HalfOpen] {
        let found = of(10, breaker);
        assert_eq!(names(&found), [("breaker_open", Severity::Warning)]);
        assert_eq!(found[0].id, "breaker_open:relay");
        assert!(found[0].is_for(&Scope::Only([tenant].into())));
    }
}

#[test]
fn what_is_not_critical_for_long_enough_is_a_warning_and_no_more() {
    let cloud = |waiting| {
        let part = CloudTenant { waiting, ..CloudTenant::default() };
        let tenants = [(Uuid::from_u128(7), part)].into();
        CloudTick { here: true, tenants, ..CloudTick::default() }
    };
    let mut watch = Watch::default();
    let mut look = |seconds, waiting| {
        let cloud = Some(cloud(waiting));
        watch.look(&Tick { at: at(seconds), cloud, ..Tick::default() }, &[])
    };
    for second in (0..60).step_by(5) {
        assert!(look(second, 101).is_empty(), "a batch is not a backlog");
    }
    for second in (60..120).step_by(5) {
        let found = look(second, 1_001);
        assert_eq!(names(&found), [("pending", Severity::Warning)], "{second}");
        assert_eq!(found[0].threshold, Some(100.0));
    }
    let found = look(120, 1_001);
    assert_eq!(names(&found), [("pending", Severity::Critical)]);
    assert_eq!((found[0].threshold, found[0].since), (Some(1_000.0), at(0)));
}

#[test]
fn the_relay_has_the_documented_numbers() {
    let tenant = Uuid::now_v7();
    let of = |part: CloudTenant| {
        let cloud = CloudTick {
            here: true,
            bus: "inline".to_owned(),
            bus_dead_letters: true,
            tenants: [(tenant, part)].into(),
            ..CloudTick::default()
        };
        look_after(60, |seconds| Tick {
            at: at(seconds),
            cloud: Some(cloud.clone()),
            ..Tick::default()
        })
    };
    let cloud = |waiting, relay_dead, bus_dead| {
        of(CloudTenant { waiting, relay_dead, bus_dead, ..CloudTenant::default() })
    };
    assert!(cloud(100, 0, 0).is_empty());
    assert_eq!(names(&cloud(101, 0, 0)), [("pending", Severity::Warning)]);
    assert_eq!(names(&cloud(1_001, 0, 0)), [("pending", Severity::Critical)]);
    assert_eq!(names(&cloud(0, 1, 0)), [("dead_letters", Severity::Warning)]);
    assert_eq!(names(&cloud(0, 0, 11)), [("dead_letters", Severity::Critical)]);
    let copies = of(CloudTenant { media_failed: 1, ..CloudTenant::default() });
    assert_eq!(names(&copies), [("copies_failed", Severity::Warning)]);
    assert!(copies[0].tenants.contains(&tenant), "only who sees the tenant sees it");
}

#[test]
fn nodes_are_watched_one_by_one_until_they_are_many() {
    let (tenant, mut watch) = (Uuid::now_v7(), Watch::default());
    let mut sick = node("barn-1", tenant, Liveness::Late);
    sick.row.disk_free_bytes = Some(90_000_000);
    sick.row.clock = Some("unset".to_owned());
    sick.row.flagged = Some("cloned".to_owned());
    let shut_out = {
        let mut entry = node("barn-2", tenant, Liveness::Offline);
        entry.row.disabled = true;
        entry
    };
    let empty = |seconds| Tick { at: at(seconds), ..Tick::default() };
    let both = [sick.clone(), shut_out];
    let mut found = watch.look(&empty(0), &both);
    let at_once = [("node_flagged", Severity::Critical), ("node_silent", Severity::Warning)];
    assert_eq!(names(&found), at_once, "a disk may be full, and a clock not set, for minutes");
    for second in (5..=120).step_by(5) {
        found = watch.look(&empty(second), &both);
    }
    assert_eq!(names(&found)[0], ("node_disk", Severity::Critical));
    for second in (125..=900).step_by(5) {
        found = watch.look(&empty(second), &both);
    }
    let expected = [
        ("node_disk", Severity::Critical),
        ("node_flagged", Severity::Critical),
        ("node_clock", Severity::Warning),
        ("node_silent", Severity::Warning),
    ];
    assert_eq!(names(&found), expected, "the worst first, and nothing of whom was shut out");
    assert!(found.iter().all(|alert| !alert.what_to_do.is_empty() && !alert.text.is_empty()));
    let mut lossy = node("barn-1", tenant, Liveness::Online);
    (lossy.row.drops, lossy.row.lost) = (Some(7), 7);
    let mut odd = lossy.clone();
    odd.row.quarantined = 2;
    let found = watch.look(&empty(901), &[lossy.clone()]);
    let grew = [("gap_declared", Severity::Critical), ("node_drops", Severity::Warning)];
    assert_eq!(names(&found), grew, "they grew");
    let found = watch.look(&empty(1_810), &[lossy.clone()]);
    assert_eq!(names(&found), [("gap_declared", Severity::Critical)], "drops are no news any more");
    assert!(watch.look(&empty(90_000), &[lossy]).is_empty(), "nor are gaps");
    let found = watch.look(&empty(90_000), &[odd]);
    assert_eq!(names(&found), [("quarantine_grows", Severity::Warning)], "that is news");
    let many: Vec<NodeEntry> =
        (0..21).map(|n| node(&format!("n-{n}"), tenant, Liveness::Offline)).collect();
    let found = watch.look(&empty(90_001), &many);
    assert_eq!(names(&found), [("node_silent", Severity::Critical)], "one for all of them");
}

#[test]
fn alerts_are_for_those_who_see_what_they_are_about() {
    let (mine, theirs) = (Uuid::now_v7(), Uuid::now_v7());
    let dead = Outbox { dead: 3, ..Outbox::default() };
    let mut tick = tick(60, mine, dead);
    tick.upstreams.push(Upstream {
        id: "cloud".to_owned(),
        kind: UpstreamKind::Cloud,
        name: "cloud".to_owned(),
        state: Presence::Away,
        since: start(),
        error: Some("no connection".to_owned()),
        took_ms: None,
    });
    let flood = Flood { position: "PLANT01".to_owned(), started_at: start(), peak: 14 };
    tick.plant = Some(PlantTick { here: true, floods: vec![flood], ..PlantTick::default() });
    let found = Watch::default().look(&tick, &[]);
    let seen = |scope: &Scope| -> Vec<&str> {
        found.iter().filter(|alert| alert.is_for(scope)).map(|alert| alert.rule).collect()
    };
    assert_eq!(seen(&Scope::All), ["alarm_flood", "dead_letters", "upstream_away"]);
    assert_eq!(seen(&Scope::Only([mine].into())), ["dead_letters"]);
    assert!(seen(&Scope::Only([theirs].into())).is_empty());
}

#[test]
fn what_nobody_consumes_and_what_does_not_become_less_are_told_apart() {
    let tenant = Uuid::now_v7();
    let of = |consumers: Option<u64>, still_s: Option<f64>, unknown: Option<&str>| {
        let name = "farmiq.store.queue".to_owned();
        let queue = ConsumerQueue { name, waiting: Some(5), consumers, still_s };
        let unknown = unknown.map(str::to_owned);
        let consumers = Consumers { queues: vec![queue], unknown, ..Consumers::default() };
        let tenants = [(tenant, CloudTenant::default())].into();
        let cloud = CloudTick { here: true, tenants, consumers, ..CloudTick::default() };
        let tick = Tick { at: start(), cloud: Some(cloud), ..Tick::default() };
        Watch::default().look(&tick, &[])
    };
    assert!(of(Some(0), Some(59.0), None).is_empty(), "a restart takes a while");
    let found = of(Some(0), Some(61.0), None);
    assert_eq!(names(&found), [("not_consumed", Severity::Critical)]);
    assert!(found[0].text.contains("farmiq.store.queue"));
    assert!(found[0].is_for(&Scope::Only([tenant].into())));
    assert_eq!(
        names(&of(Some(1), Some(61.0), None)),
        [("consumers_behind", Severity::Warning)],
        "somebody is there"
    );
    assert_eq!(names(&of(None, Some(301.0), None)), [("consumers_behind", Severity::Critical)]);
    assert!(of(Some(1), None, None).is_empty(), "nothing waits");
}

#[test]
fn sites_and_the_plant_are_judged_by_their_own_numbers() {
    let mut tick = tick(0, Uuid::now_v7(), Outbox::default());
    (tick.sites[0].disk_over_bytes, tick.sites[0].clock_off_s) = (Some(5e6), Some(-61.0));
    let problems = vec!["bus: no message since 400 s".to_owned()];
    let plant = PlantTick {
        here: true,
        newest_age_s: Some(901.0),
        problems: problems.clone(),
        ..PlantTick::default()
    };
    tick.plant = Some(plant.clone());
    let outbox = ProducerOutbox {
        pending: 101,
        oldest_s: 301.0,
        failed: 1,
        in_progress: 51,
        batch_size: 50,
        breaker: None,
    };
    let producer =
        ProducerTick { name: "press".to_owned(), here: true, outbox, ..ProducerTick::default() };
    tick.producers = vec![producer];
    let mut watch = Watch::default();
    let found = watch.look(&tick, &[]);
    let expected = [
        ("oldest_pending", Severity::Critical),
        ("site_clock", Severity::Critical),
        ("dead_letters", Severity::Warning),
        ("historian_silent", Severity::Warning),
        ("pending", Severity::Warning),
    ];
    assert_eq!(names(&found), expected, "{found:?}");
    let subject = |rule: &str| &found.iter().find(|alert| alert.rule == rule).unwrap().subject;
    assert_eq!(subject("pending"), "producer:press");
    for second in (5..125).step_by(5) {
        tick.at = at(second);
        watch.look(&tick, &[]);
    }
    tick.at = at(126);
    let found = watch.look(&tick, &[]);
    assert!(found.iter().any(|alert| alert.rule == "stuck"), "held for more than two minutes");
    let advice = found.iter().find(|alert| alert.rule == "dead_letters").unwrap().what_to_do;
    assert!(advice.contains("holdfast scada producer redrive"), "{advice}");
    for second in (130..=300).step_by(5) {
        tick.at = at(second);
        watch.look(&tick, &[]);
    }
    let found = watch.look(&tick, &[]);
    assert!(found.iter().any(|alert| alert.rule == "site_disk"), "after five minutes");
    let problems = [problems, vec!["store: a batch waits since 70 s".to_owned()]].concat();
    tick.plant = Some(PlantTick { problems, ..plant });
    let found = watch.look(&tick, &[]);
    let still = found.iter().find(|alert| alert.rule == "not_draining").unwrap();
    assert!(still.text.contains("a batch waits"), "{still:?}");
}
