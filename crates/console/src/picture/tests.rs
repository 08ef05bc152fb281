use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use uuid::Uuid;

use super::board::{HISTORY, show};
use super::poll::SiteMeters;
use super::serve::changes;
use super::{Board, Liveness, StageState};
use crate::access::Scope;
use crate::config::Config;
use crate::upstream::site::{NodeFact, OutboxFacts, SiteFacts};
use crate::upstream::{Fault, Upstreams};

fn board() -> Board {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "hf_x").unwrap();
    let sites = format!("north=http://127.0.0.1:9={}", file.display());
    let config = Config::load(None, |name| match name {
        "HOLDFAST_CONSOLE_DATABASE_URL" => Some("postgres:///x".to_owned()),
        "HOLDFAST_CONSOLE_SITES" => Some(sites.clone()),
        _ => None,
    });
    let _ = rustls::crypto::ring::default_provider().install_default();
    Board::new(&Upstreams::new(&config.unwrap()).unwrap())
}

fn node(number: usize, tenant: Uuid, stored: u64) -> NodeFact {
    let now = Timestamp::now();
    serde_json::from_value(json!({
        "node_id": format!("barn-{number}"), "tenant_id": tenant, "farm_id": null, "barn_id": null,
        "device_id": Uuid::now_v7(), "label": format!("barn {number}"), "state": "online", "last_rx_at": now,
        "last_sample_ts": now, "enrolled_at": now, "disabled_at": null, "flagged_at": null, "flag_reason": null,
        "status": {"head": stored, "backlog": 0, "bytes": 4096, "drops": 0, "clock": "set", "version": "0.1.0"},
        "status_at": now, "stored": stored, "recovered": 0, "cloned": 0, "quarantined": 0, "epochs": 1, "epoch": null,
        "acked": stored, "received": stored, "lost": 0
    }))
    .unwrap()
}

fn outbox(tenants: &[Uuid], paused: bool) -> OutboxFacts {
    let until = (Timestamp::now() + SignedDuration::from_mins(1)).to_string();
    let each = tenants.iter().map(|tenant| {
        json!({
            "tenant_id": tenant, "rows": {"pending": 40, "dlq": 2}, "stuck": 0, "oldest_at": Timestamp::now(),
            "acked_per_second": 30.0, "arriving_per_second": 10.0, "last_acked_at": Timestamp::now(),
            "consecutive_failures": u8::from(paused), "paused_until": paused.then_some(&until), "last_failure": null
        })
    });
    let stats = json!({"at": Timestamp::now(), "tenants": each.collect::<Vec<_>>()});
    serde_json::from_value(stats).unwrap()
}

/// A site of so many nodes, every tenth of another tenant.
fn facts(count: usize, tenants: &[Uuid; 2], stored: u64, paused: bool) -> SiteFacts {
    let tenant = |number: usize| tenants[usize::from(number.is_multiple_of(10))];
    let nodes = (1..=count).map(|number| node(number, tenant(number), stored)).collect();
    SiteFacts { nodes, outbox: Some(outbox(tenants, paused)), clock_off_s: Some(0.0) }
}

#[test]
fn a_thousand_nodes_are_counted_and_everyone_sees_their_own() {
    let (board, tenants) = (board(), [Uuid::now_v7(), Uuid::now_v7()]);
    let (mut meters, start) = (SiteMeters::default(), Instant::now());
    let slot = &board.slots().sites[0].1;
    let took = Duration::from_millis(3);
    slot.put(Ok(meters.look(facts(1_000, &tenants, 100, false), start)), took);
    let later = start + Duration::from_secs(10);
    slot.put(Ok(meters.look(facts(1_000, &tenants, 200, false), later)), took);
    board.draw(Timestamp::now());
    let all = show(&board.now(), &Scope::All);
    assert_eq!((all.nodes.total, all.nodes.online), (1_000, 1_000));
    assert_eq!(all.totals.produced, Some(200_000));
    let edge = all.flow.stages.iter().find(|stage| stage.id == "edge:north").unwrap();
    assert_eq!((edge.state, edge.held), (StageState::Ok, Some(80)));
    assert!((edge.rate_per_s.unwrap() - 10_000.0).abs() < 1e-6, "{edge:?}");
    let one = show(&board.now(), &Scope::Only([tenants[1]].into()));
    assert_eq!(one.nodes.total, 100);
    assert_eq!(one.totals.at_edges, Some(40));
    let nobody = show(&board.now(), &Scope::Only([Uuid::now_v7()].into()));
    assert!(nobody.flow.stages.is_empty() && nobody.upstreams.is_empty());
    let (first, second) = (board.words(&Scope::All), board.words(&Scope::All));
    assert_eq!(first.1.as_ptr(), second.1.as_ptr(), "put into words once a tick");
    assert_eq!(board.now().changed.len(), 1_000, "all are new");
    board.draw(Timestamp::now());
    assert!(board.now().changed.is_empty());
    slot.put(Err(Fault::Away("no connection".to_owned())), took);
    board.draw(Timestamp::now());
    let away = show(&board.now(), &Scope::All);
    assert_eq!((away.nodes.unknown, away.totals.produced), (1_000, None));
    assert!(board.now().nodes.iter().all(|entry| entry.row.liveness == Liveness::Unknown));
    let busy = Fault::Refused { status: 503, code: "busy".to_owned(), message: String::new() };
    slot.put(Ok(meters.look(facts(3, &tenants, 300, false), later)), took);
    slot.put(Err(busy), took);
    board.draw(Timestamp::now());
    assert_eq!(show(&board.now(), &Scope::All).nodes.online, 3, "busy is not away");
    assert_eq!(board.now().removed.len(), 997);
}

#[test]
fn who_left_a_tick_out_is_told_to_ask_again() {
    let (board, tenants) = (board(), [Uuid::now_v7(), Uuid::now_v7()]);
    let mut meters = SiteMeters::default();
    let slot = &board.slots().sites[0].1;
    let mut put = |count| {
        let seen = meters.look(facts(count, &tenants, 1, false), Instant::now());
        slot.put(Ok(seen), Duration::ZERO);
        board.draw(Timestamp::now());
        board.now()
    };
    let scope = Scope::All;
    let first = put(2);
    let told = first.tick.number;
    assert_eq!(changes(&first, &scope, told - 1).unwrap().changed.len(), 2);
    assert!(changes(&first, &scope, told).is_none(), "it was told that already");
    let second = put(3);
    let next = changes(&second, &scope, told).unwrap();
    assert_eq!((next.changed.len(), next.more), (1, 0), "every change was told");
    let third = put(3);
    assert!(changes(&third, &scope, told + 1).is_none(), "nothing changed");
    let late = changes(&third, &scope, told).unwrap();
    assert_eq!((late.changed.len(), late.more), (0, 1), "something may have: it is to ask");
}

#[test]
fn a_link_that_goes_down_says_since_when_and_the_past_is_bounded() {
    let (board, tenants) = (board(), [Uuid::now_v7(), Uuid::now_v7()]);
    let (mut meters, start) = (SiteMeters::default(), Timestamp::now());
    let at = |seconds: i64| start + SignedDuration::from_secs(seconds);
    let slot = &board.slots().sites[0].1;
    let mut draw = |second: i64, paused: bool| {
        let seen = meters.look(facts(2, &tenants, 1, paused), Instant::now());
        slot.put(Ok(seen), Duration::ZERO);
        board.draw(at(second));
        let picture = show(&board.now(), &Scope::All);
        let stage =
            picture.flow.stages.iter().find(|stage| stage.id == "edge:north").unwrap().state;
        let nodes = picture.flow.links.iter().find(|link| link.id == "nodes:north").unwrap();
        (stage, nodes.since)
    };
    assert_eq!(draw(1, false), (StageState::Ok, Some(at(1))));
    assert_eq!(draw(2, true), (StageState::Broken, Some(at(1))), "the other link stays as it was");
    for second in 3..=700 {
        draw(second, second % 2 == 0);
    }
    assert_eq!(board.ring().len(), HISTORY);
    let history = board.node_history("north", "barn-1");
    assert!(history.at.len() <= 120 && history.backlog.len() == history.at.len());
    assert!(board.node_history("north", "nobody").at.is_empty());
}
