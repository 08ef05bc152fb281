//! Leases on lanes, as docs/spec/leased-work.md has them: every state against every statement, and what a claim does when the lane
//! changes after it has looked.

use jiff::Timestamp;
use lease::{HoldStatements, LaneStatements};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::outbox;
use crate::site::{LONG, Mode, Site, name};

const OURS: Uuid = Uuid::from_u128(7);
const OTHERS: Uuid = Uuid::from_u128(8);
const TURN: i64 = 4;

/// Name; the row's status, attempts and due time; the lane's expiry, `free` or `none`.
const STATES: [(&str, &str, &str); 10] = [
    ("none", "'pending', 3, now()", "none"),
    ("free", "'pending', 3, now()", "free"),
    ("free later", "'pending', 3, now() + interval '1 h'", "free"),
    ("free dead", "'dlq', 3, now()", "free"),
    ("leased", "'pending', 3, now()", "now() + interval '1 h'"),
    ("leased expired", "'pending', 3, now()", "now() - interval '1 s'"),
    ("leased spent", "'pending', 9, now()", "now() - interval '1 s'"),
    ("leased later", "'pending', 3, now() + interval '1 h'", "now() + interval '1 h'"),
    ("leased dead", "'dlq', 3, now()", "now() + interval '1 h'"),
    ("leased given up", "'failed', 3, now()", "now() - interval '1 s'"),
];

/// What a statement makes of a state: status, attempts, and the lane's lease (`None`: it is free).
/// Without an answer nothing changes.
fn expected(state: &str, action: &str) -> Option<(&'static str, i32, Option<Uuid>)> {
    let leased = state.starts_with("leased");
    let attempts = if state.ends_with("spent") { 9 } else { 3 };
    let (status, waits) = match state {
        "free dead" | "leased dead" => ("dlq", false),
        "leased given up" => ("failed", false),
        _ => ("pending", true),
    };
    match action {
        "claim" => match state {
            "free" => Some(("pending", 3, Some(OTHERS))),
            "leased expired" => Some(("pending", 4, Some(OTHERS))),
            "leased spent" => Some(("dlq", 10, None)),
            _ => None,
        },
        _ if !leased || action.ends_with("others") || action.ends_with("turn") => None,
        "renew" => Some((status, attempts, Some(OURS))),
        "complete" | "settle" if waits => Some(("acked", attempts, None)),
        "retry" if waits => Some(("pending", attempts + 1, None)),
        "bury" if waits => Some(("dlq", attempts + 1, None)),
        _ => Some((status, attempts, None)),
    }
}

struct Lane {
    tenant: Vec<String>,
    rank: Vec<i32>,
    key: Vec<String>,
}

impl Lane {
    fn new() -> Lane {
        Lane {
            tenant: vec![name("t").to_string()],
            rank: vec![0],
            key: vec![name("d").to_string()],
        }
    }
}

fn texts() -> LaneStatements {
    match outbox::table(Mode::Lane).statements().hold {
        HoldStatements::Lane(texts) => *texts,
        HoldStatements::Row(_) => panic!("no lane has a lease"),
    }
}

async fn claim(client: &Client, text: &str, worker: &str, token: Uuid) -> Vec<Uuid> {
    let Lane { tenant, rank, key } = Lane::new();
    let (lease, limit, takes) = (60_000i64, 10i32, vec![5i32]);
    let (at, mark): (Vec<Option<Timestamp>>, Vec<Option<Uuid>>) = (vec![None], vec![None]);
    let parameters: [&(dyn ToSql + Sync); 10] =
        [&worker, &token, &lease, &limit, &tenant, &rank, &key, &at, &mark, &takes];
    let mut rows = client.query(text, &parameters).await.unwrap();
    rows.sort_by_key(|row| row.get::<_, Timestamp>("run_at"));
    let taken = rows.iter().filter(|row| {
        row.get::<_, Option<bool>>("run_due") == Some(true)
            && row.get::<_, Option<i64>>("mine_turn").is_some()
            && !row.get::<_, bool>("run_spent")
    });
    taken.map(|row| row.get("run_id")).collect()
}

async fn enter(client: &Client) -> u64 {
    let Lane { tenant, rank, key } = Lane::new();
    client.execute(&texts().enter, &[&tenant, &rank, &key]).await.unwrap()
}

/// Writes one outcome for each id; `kept` stay held.
async fn settle(
    client: &Client,
    how: &str,
    token: Uuid,
    turn: i64,
    ids: &[Uuid],
    kept: &[Uuid],
) -> i64 {
    let Lane { tenant, rank, key } = Lane::new();
    let (turns, over) = (vec![turn], vec![false]);
    let of = |hows: &[&str]| if hows.contains(&how) { ids } else { &[] };
    let (done, failed, untried) =
        (of(&["complete", "settle"]), of(&["retry", "bury"]), of(&["release"]));
    let lanes = |of: &[Uuid]| vec![1i32; of.len()];
    let (kept_lanes, done_lanes, failed_lanes, untried) =
        (lanes(kept), lanes(done), lanes(failed), lanes(untried));
    if how == "complete" && kept.is_empty() {
        let parameters: [&(dyn ToSql + Sync); 8] =
            [&token, &tenant, &rank, &key, &turns, &over, &done, &done_lanes];
        let ended = client.execute(&texts().complete, &parameters).await.unwrap();
        return i64::try_from(ended).unwrap();
    }
    let delays = vec![(how == "retry").then_some(5_000i64); failed.len()];
    let words = vec!["word"; failed.len()];
    let parameters: [&(dyn ToSql + Sync); 17] = [
        &token,
        &tenant,
        &rank,
        &key,
        &turns,
        &over,
        &kept,
        &kept_lanes,
        &done,
        &done_lanes,
        &failed,
        &failed_lanes,
        &delays,
        &words,
        &words,
        &words,
        &untried,
    ];
    client.query_one(&texts().settle, &parameters).await.unwrap().get(0)
}

async fn act(site: &Site, action: &str, id: Uuid) {
    let Lane { tenant, rank, key } = Lane::new();
    let token = if action.ends_with("others") { OTHERS } else { OURS };
    let turn = if action.ends_with("turn") { TURN - 1 } else { TURN };
    let ids = vec![id];
    let (lease, turns, takes) = (90_000i64, vec![turn], vec![5i32]);
    let (at, mark): (Vec<Option<Timestamp>>, Vec<Option<Uuid>>) = (vec![None], vec![None]);
    let statements = outbox::table(Mode::Lane).statements();
    match action.split(' ').next().unwrap() {
        "claim" => {
            claim(&site.client, &statements.claim, "new", OTHERS).await;
        }
        "renew" => {
            let parameters: [&(dyn ToSql + Sync); 6] =
                [&token, &lease, &tenant, &rank, &key, &turns];
            site.client.execute(&texts().renew, &parameters).await.unwrap();
        }
        "abandon" => {
            let parameters: [&(dyn ToSql + Sync); 8] =
                [&"w", &token, &tenant, &rank, &key, &at, &mark, &takes];
            site.client.query_one(&statements.abandon, &parameters).await.unwrap();
        }
        how => {
            settle(&site.client, how, token, turn, &ids, &[]).await;
        }
    }
}

async fn text(site: &Site, query: &str) -> String {
    site.client.query_one(query, &[]).await.unwrap().get(0)
}

const ALL: &str = "SELECT concat((SELECT jsonb_agg(to_jsonb(o) - 'updated_at') FROM sync_outbox o),
    (SELECT jsonb_agg(l) FROM sync_lane l))";

/// Status, attempts, the lane's token, code, reason, due later, rows of the lane.
const SEEN: &str = "SELECT concat_ws(' ', status, attempt_count, coalesce(lease_token::text, 'free'),
    coalesce(last_error_code, '-'), coalesce(dlq_reason, '-'), next_attempt_at > now() + interval '3 s')
    FROM sync_outbox LEFT JOIN sync_lane ON true";

#[tokio::test]
async fn every_transition_allowed_and_refused() {
    let site = Site::new(Mode::Lane, "lane_states").await;
    let mut actions = vec!["claim".to_owned()];
    for action in ["renew", "complete", "settle", "retry", "bury", "release", "abandon"] {
        actions.push(action.to_owned());
        actions.push(format!("{action} others"));
        if action != "abandon" {
            actions.push(format!("{action} turn"));
        }
    }
    for (state, row, lane) in STATES {
        for action in &actions {
            let id = Uuid::new_v4();
            site.client
                .batch_execute("DELETE FROM sync_outbox; DELETE FROM sync_lane")
                .await
                .unwrap();
            let insert = format!(
                "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, payload_json, status,
                   attempt_count, next_attempt_at, failed_at, dlq_reason)
                 SELECT $1, $2, $3, 'e', '{{}}', s.*, CASE s.status WHEN 'dlq' THEN now() END,
                   CASE s.status WHEN 'dlq' THEN 'bad' END
                 FROM (SELECT {row}) AS s(status, attempts, due)"
            );
            let (t, d) = (name("t"), name("d"));
            site.client.execute(&insert, &[&id, &t, &d]).await.unwrap();
            let lease = match lane {
                "none" => None,
                "free" => Some("NULL, NULL, NULL, NULL".to_owned()),
                expires => Some(format!("'{OURS}', 'w', {expires}, ARRAY['{id}']::uuid[]")),
            };
            if let Some(lease) = lease {
                let insert = format!(
                    "INSERT INTO sync_lane (tenant_id, rank, key, turn, lease_token, claimed_by,
                       lease_expires_at, taken) SELECT '{t}', 0, '{d}', {TURN}, {lease}"
                );
                site.client.batch_execute(&insert).await.unwrap();
            }
            let before = text(&site, ALL).await;
            act(&site, action, id).await;
            let (told, after) = (format!("{action} of {state}"), text(&site, ALL).await);
            let Some((status, attempts, lease)) = expected(state, action) else {
                assert_eq!(before, after, "{told} must change nothing");
                continue;
            };
            let held = lease.map_or("free".to_owned(), |token| token.to_string());
            let failed = matches!(action.as_str(), "retry" | "bury")
                && status != "failed"
                && !state.ends_with("dead");
            let code = match attempts {
                4 | 10 if action == "claim" => lease::LEASE_EXPIRED,
                _ if failed => "word",
                _ => "-",
            };
            let reason = match (status, action.as_str()) {
                ("dlq", "claim") => lease::MAX_ATTEMPTS,
                ("dlq", _) if state.ends_with("dead") => "bad",
                ("dlq", _) => "word",
                _ => "-",
            };
            let later =
                if state.ends_with("later") || action == "retry" && failed { "t" } else { "f" };
            assert_eq!(
                text(&site, SEEN).await,
                format!("{status} {attempts} {held} {code} {reason} {later}"),
                "{told}"
            );
        }
    }
}

async fn three_rows(site: &Site) -> Vec<Uuid> {
    site.add("t", "d", 0..3).await;
    enter(&site.client).await;
    let ids = "SELECT string_agg(id::text, ' ' ORDER BY occurred_at) FROM sync_outbox";
    text(site, ids).await.split(' ').map(|id| id.parse().unwrap()).collect()
}

/// A claim that looked before another finished the lane's rows must not hand them out again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_looked_too_early_takes_nothing() {
    for removed in [false, true] {
        let site = Site::new(Mode::Lane, "lane_race").await;
        let ids = three_rows(&site).await;
        let statement = outbox::table(Mode::Lane).statements().claim;
        assert_eq!(claim(&site.client, &statement, "first", OURS).await, ids);
        // Expired: the lane looks as if it could be taken, and is still its holder's.
        site.expire().await;
        // The other claim has its snapshot and then waits, right before it locks the lane.
        let quick = "(SELECT set_config('synchronous_commit', 'off', true)) = 'off'";
        assert!(statement.contains(quick));
        let waiting = statement.replace(quick, "(SELECT pg_advisory_xact_lock(1)::text) = ''");
        site.client.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
        let other = pg::connect(&site.address).await.unwrap();
        let late = tokio::spawn(async move { claim(&other, &waiting, "second", OTHERS).await });
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        site.until(waits, 1).await;
        assert_eq!(settle(&site.client, "complete", OURS, 1, &ids, &[]).await, 3);
        if removed {
            // As when nobody has needed it for an hour, and then somebody does.
            site.client.batch_execute("DELETE FROM sync_lane").await.unwrap();
            assert_eq!(enter(&site.client).await, 1);
        }
        site.client.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
        let taken = tokio::time::timeout(LONG, late).await.unwrap().unwrap();
        assert_eq!(taken, Vec::<Uuid>::new());
        assert_eq!(
            site.number("SELECT count(*) FROM sync_lane WHERE lease_token IS NOT NULL").await,
            0
        );
        assert_eq!(site.number("SELECT sum(attempt_count) FROM sync_outbox").await, 0);
    }
}

#[tokio::test]
async fn a_lane_that_was_made_twice_is_claimed_once() {
    let site = Site::new(Mode::Lane, "lane_twice").await;
    let ids = three_rows(&site).await;
    let statement = outbox::table(Mode::Lane).statements().claim;
    assert_eq!(claim(&site.client, &statement, "first", OURS).await, ids);
    // What a second maker leaves who looked before the first one was done.
    let stray =
        "INSERT INTO sync_lane (tenant_id, rank, key) SELECT tenant_id, rank, key FROM sync_lane";
    site.client.batch_execute(stray).await.unwrap();
    assert_eq!(claim(&site.client, &statement, "second", OTHERS).await, Vec::<Uuid>::new());
    assert_eq!(settle(&site.client, "complete", OURS, 1, &ids[..2], &ids[2..]).await, 2);
    // One row stays held, and with it the lane.
    assert_eq!(site.held_by("first").await, 1);
    assert_eq!(claim(&site.client, &statement, "second", OTHERS).await, Vec::<Uuid>::new());
    assert_eq!(settle(&site.client, "release", OURS, 1, &ids[2..], &[]).await, 1);
    assert_eq!(claim(&site.client, &statement, "second", OTHERS).await, ids[2..]);
}

#[tokio::test]
async fn idle_lanes_are_removed_and_busy_ones_stay() {
    let site = Site::new(Mode::Lane, "lane_prune").await;
    let ids = three_rows(&site).await;
    let prune =
        async |idle: i64| site.client.execute(&texts().prune, &[&idle, &10i64]).await.unwrap();
    assert_eq!(prune(3_600_000).await, 0, "it was made just now");
    let statement = outbox::table(Mode::Lane).statements().claim;
    assert_eq!(claim(&site.client, &statement, "first", OURS).await, ids);
    assert_eq!(prune(-1).await, 0, "it is leased");
    settle(&site.client, "complete", OURS, 1, &ids, &[]).await;
    assert_eq!(prune(-1).await, 1);
}

/// A row that may not go yet keeps those behind it.
#[tokio::test]
async fn a_row_that_is_not_due_bars_those_behind_it() {
    let site = Site::new(Mode::Lane, "lane_bar").await;
    let ids = three_rows(&site).await;
    let later = "UPDATE sync_outbox SET next_attempt_at = now() + interval '1 h' WHERE id = $1";
    assert_eq!(site.client.execute(later, &[&ids[1]]).await.unwrap(), 1);
    let statement = outbox::table(Mode::Lane).statements().claim;
    claim(&site.client, &statement, "first", OURS).await;
    let taken = text(&site, "SELECT array_to_string(taken, ' ') FROM sync_lane").await;
    assert_eq!(taken, ids[0].to_string());
}
