//! The state table of docs/spec/leased-work.md, walked: every state against every statement.

use jiff::Timestamp;
use lease::HoldStatements;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::outbox;
use crate::site::{Mode, Site, name};

const OURS: Uuid = Uuid::from_u128(7);
const OTHERS: Uuid = Uuid::from_u128(8);

/// Name, and the columns that make it: status, attempts, due, holder, expires.
const STATES: [(&str, &str); 12] = [
    ("pending", "'pending', 3, now(), NULL::text, NULL::timestamptz"),
    ("pending later", "'pending', 3, now() + interval '1 h', NULL::text, NULL::timestamptz"),
    ("claimed", "'claimed', 3, now(), 'w', now() + interval '1 h'"),
    ("claimed expired", "'claimed', 3, now(), 'w', now() - interval '1 s'"),
    ("claimed spent", "'claimed', 9, now(), 'w', now() - interval '1 s'"),
    ("sending", "'sending', 3, now(), 'w', now() + interval '1 h'"),
    ("sending expired", "'sending', 3, now(), 'w', now() - interval '1 s'"),
    ("sending spent", "'sending', 9, now(), 'w', now() - interval '1 s'"),
    ("pending spent", "'pending', 9, now(), NULL::text, NULL::timestamptz"),
    ("acked", "'acked', 3, now(), NULL::text, NULL::timestamptz"),
    ("dlq", "'dlq', 3, now(), NULL::text, NULL::timestamptz"),
    ("failed", "'failed', 3, now(), NULL::text, NULL::timestamptz"),
];

/// What a statement makes of a state: the new status and attempts; `None`: nothing changes.
fn expected(state: &str, action: &str) -> Option<(&'static str, i32)> {
    let held = state.starts_with("claimed") || state.starts_with("sending");
    let attempts = if state.ends_with("spent") { 9 } else { 3 };
    match action {
        "claim" => match state {
            "pending" | "pending spent" => Some(("claimed", attempts)),
            "claimed expired" | "sending expired" => Some(("claimed", 4)),
            "claimed spent" | "sending spent" => Some(("dlq", 10)),
            _ => None,
        },
        _ if !held || action.ends_with("others") => None,
        "renew" => {
            Some((if state.starts_with("claimed") { "claimed" } else { "sending" }, attempts))
        }
        "complete" => Some(("acked", attempts)),
        "retry" => Some(("pending", attempts + 1)),
        "bury" => Some(("dlq", attempts + 1)),
        "release" | "abandon" => Some(("pending", attempts)),
        _ => panic!("{action}"),
    }
}

async fn act(site: &Site, action: &str, id: Uuid) {
    let texts = outbox::table(Mode::Row).statements();
    let HoldStatements::Row(row) = &texts.hold else { panic!("no row has a lease") };
    let token = if action.ends_with("others") { OTHERS } else { OURS };
    let ids = vec![id];
    let word = vec!["word".to_owned()];
    let (tenant, key) = (vec![name("t").to_string()], vec![name("d").to_string()]);
    let (ranks, takes, lease, limit) = (vec![0i32], vec![5i32], 60_000i64, 10i32);
    let (at, mark): (Vec<Option<Timestamp>>, Vec<Option<Uuid>>) = (vec![None], vec![None]);
    let (delays, worker) = (vec![5_000i64], "w".to_owned());
    let claim: [&(dyn ToSql + Sync); 10] =
        [&"new", &OTHERS, &lease, &limit, &tenant, &ranks, &key, &at, &mark, &takes];
    let abandon: [&(dyn ToSql + Sync); 8] =
        [&worker, &token, &tenant, &ranks, &key, &at, &mark, &takes];
    let (text, parameters): (&str, &[&(dyn ToSql + Sync)]) = match action.split(' ').next() {
        Some("claim") => (&texts.claim, &claim),
        Some("renew") => (&row.renew, &[&ids, &token, &lease]),
        Some("complete") => (&row.complete, &[&ids, &token]),
        Some("retry") => (&row.retry, &[&ids, &token, &delays, &word, &word]),
        Some("bury") => (&row.bury, &[&ids, &token, &word, &word, &word]),
        Some("release") => (&row.release, &[&ids, &token]),
        Some("abandon") => (&texts.abandon, &abandon),
        _ => panic!("{action}"),
    };
    site.client.query(text, parameters).await.unwrap();
}

/// The whole row but `updated_at`, to see whether anything changed.
const ROW: &str = "SELECT to_jsonb(o) - 'updated_at' AS row, status, attempt_count,
    lease_token IS NULL AND claimed_by IS NULL AND claimed_at IS NULL AND lease_expires_at IS NULL,
    claimed_by IS NOT DISTINCT FROM 'new', next_attempt_at > now() + interval '3 s',
    last_error_code, dlq_reason FROM sync_outbox o";

#[tokio::test]
async fn every_transition_allowed_and_refused() {
    let site = Site::new(Mode::Row, "states").await;
    let actions = [
        "claim",
        "renew",
        "complete",
        "retry",
        "bury",
        "release",
        "abandon",
        "renew others",
        "complete others",
        "retry others",
        "bury others",
        "release others",
        "abandon others",
    ];
    for (state, columns) in STATES {
        for action in actions {
            let id = Uuid::new_v4();
            site.client.batch_execute("DELETE FROM sync_outbox").await.unwrap();
            let insert = format!(
                "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, payload_json,
                   status, attempt_count, next_attempt_at, claimed_by, lease_expires_at,
                   claimed_at, lease_token, failed_at, dlq_reason)
                 SELECT $1, $2, $3, 'e', '{{}}', s.*,
                   CASE WHEN s.holder IS NOT NULL THEN now() END,
                   CASE WHEN s.holder IS NOT NULL THEN $4::uuid END,
                   CASE WHEN s.status = 'dlq' THEN now() END,
                   CASE WHEN s.status = 'dlq' THEN 'r' END
                 FROM (SELECT {columns}) s(status, attempts, due, holder, expires)"
            );
            site.client.execute(&insert, &[&id, &name("t"), &name("d"), &OURS]).await.unwrap();
            let before = site.client.query_one(ROW, &[]).await.unwrap();
            act(&site, action, id).await;
            let after = site.client.query_one(ROW, &[]).await.unwrap();
            let told = format!("{action} of {state}");
            let Some((status, attempts)) = expected(state, action) else {
                let (before, after): (String, String) = (
                    before
                        .get::<_, tokio_postgres::types::Json<serde_json::Value>>(0)
                        .0
                        .to_string(),
                    after.get::<_, tokio_postgres::types::Json<serde_json::Value>>(0).0.to_string(),
                );
                assert_eq!(before, after, "{told} must change nothing");
                continue;
            };
            assert_eq!((after.get(1), after.get(2)), (status, attempts), "{told}");
            let free: bool = after.get(3);
            assert_eq!(free, !matches!(status, "claimed" | "sending"), "{told}: the lease");
            assert_eq!(after.get::<_, bool>(4), action == "claim" && status == "claimed", "{told}");
            assert_eq!(after.get::<_, bool>(5), action == "retry", "{told}: due later");
            let code: Option<&str> = after.get(6);
            let lost = action == "claim" && !state.starts_with("pending");
            let word = matches!(action, "retry" | "bury").then_some("word");
            assert_eq!(code, if lost { Some(lease::LEASE_EXPIRED) } else { word }, "{told}");
            let reason: Option<&str> = after.get(7);
            let spent = (status == "dlq").then_some(word.unwrap_or(lease::MAX_ATTEMPTS));
            assert_eq!(reason, spent, "{told}");
        }
    }
}

#[tokio::test]
async fn the_schema_refuses_states_that_mean_nothing() {
    let site = Site::new(Mode::Row, "checks").await;
    for columns in [
        "'claimed', 'w', now(), now(), NULL::uuid",
        "'pending', NULL, NULL, NULL, gen_random_uuid()",
        "'acked', NULL, NULL, NULL, gen_random_uuid()",
        "'claimed', NULL, NULL, NULL, gen_random_uuid()",
        "'lost', NULL, NULL, NULL, NULL",
    ] {
        let insert = format!(
            "INSERT INTO sync_outbox (id, tenant_id, event_type, payload_json, status, claimed_by,
               claimed_at, lease_expires_at, lease_token)
             SELECT gen_random_uuid(), gen_random_uuid(), 'e', '{{}}', {columns}"
        );
        let refused = site.client.batch_execute(&insert).await.unwrap_err();
        assert_eq!(refused.code().map(|c| c.code()), Some("23514"), "{columns}");
    }
}
