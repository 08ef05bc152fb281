//! The operator's API: who may ask, what they see, what a redrive and an unclaim do.

use api::tokens::{self, NewToken, Role, Tenants};
use edge::{Edge, Open, ROUTES};
use event::id::{EventId, TenantId};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Sender, Site, config, http, start};
use crate::sync::all_are;
use crate::sync_cloud::{Say, TOKEN, TestCloud};

/// Someone with a token, and what they ask.
pub(crate) struct Asker {
    base: String,
    token: String,
}

impl Asker {
    pub(crate) async fn new(site: &Site, edge: &Edge, role: Role, tenants: Tenants) -> Asker {
        let new = NewToken { name: "anna".to_owned(), role, tenants, expires_at: None };
        let (_, token) = tokens::create(&site.client().await, &new).await.unwrap();
        Asker { base: format!("http://{}", edge.http()), token: token.expose().to_owned() }
    }

    /// A request with the token.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        http().request(method, format!("{}{path}", self.base)).bearer_auth(&self.token)
    }

    /// The token's text.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let mut request = self.request(method, path);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.json().await.unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.ask(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        self.ask(Method::POST, path, body).await
    }
}

const REDRIVE: &str = "/api/v1/sync/redrive";
const GIVE_UP: &str = "/api/v1/sync/give-up";
const UNCLAIM: &str = "/api/v1/sync/unclaim-stuck";
const OUTBOX: &str = "/api/v1/sync/outbox";
const STATS: &str = "/api/v1/sync/stats";

/// Makes dead letters of a node's rows, without a cloud.
async fn bury(site: &Site, node: &Sender, reason: &str) {
    let client = site.client().await;
    let query = "UPDATE sync_outbox SET status = 'dlq', dlq_reason = $2, failed_at = now(),
        attempt_count = 3, last_error_code = 'REJECTED', last_error_message = 'not right'
        WHERE tenant_id = $1";
    client.execute(query, &[&node.tenant.uuid(), &reason]).await.unwrap();
}

#[tokio::test]
async fn nothing_is_open_that_need_not_be() {
    let site = Site::new("admin_open").await;
    let edge = start(&config(site.database.url(), &[])).await;
    let base = format!("http://{}", edge.http());
    let mut routes: Vec<(Method, String, bool)> = ROUTES
        .iter()
        .map(|(method, path, open)| {
            (
                method.clone(),
                path.replace("{id}", &EventId::mint().to_string()),
                *open != Open::Never,
            )
        })
        .collect();
    for path in
        ["/", "/api/v1", "/api/v1/nothing", "/api/v1/sync/outbox/", "/api/v1/nodes/a/backfill"]
    {
        routes.push((Method::POST, path.to_owned(), false));
    }
    for (method, path, open) in routes {
        for header in [
            None,
            Some("Bearer guess"),
            Some("Basic eDp5"),
            Some(&*format!("Bearer hf_{:064x}", 7)),
        ] {
            let mut request = http().request(method.clone(), format!("{base}{path}"));
            if let Some(header) = header {
                request = request.header("authorization", header);
            }
            let answer = request.send().await.unwrap();
            let unknown = answer.status() == StatusCode::UNAUTHORIZED;
            assert_eq!(unknown, !open, "{method} {path} {header:?}: {}", answer.status());
            let text = answer.text().await.unwrap();
            assert!(!text.contains("guess"), "{text}");
        }
    }
    let proxied = http().get(format!("{base}/metrics")).header("x-forwarded-for", "192.0.2.1");
    assert_eq!(proxied.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    edge.stop().await;
}

#[tokio::test]
async fn a_role_does_what_it_may_and_a_tenant_sees_its_own() {
    let site = Site::new("admin_matrix").await;
    let (ours, theirs) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    for node in [&ours, &theirs] {
        site.ingest(&[node.batch(&node.readings(1..=3), &[])]).await;
        bury(&site, node, "invalid").await;
    }
    let edge = start(&config(site.database.url(), &[])).await;
    let one = |tenant: TenantId| Tenants::Only(vec![tenant]);
    let viewer = Asker::new(&site, &edge, Role::Viewer, one(ours.tenant)).await;
    let operator = Asker::new(&site, &edge, Role::Operator, one(ours.tenant)).await;
    let forwarder = Asker::new(&site, &edge, Role::Edge, Tenants::All).await;
    let admin = Asker::new(&site, &edge, Role::Admin, Tenants::All).await;

    for path in [OUTBOX, STATS] {
        assert_eq!(forwarder.get(path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    for asker in [&viewer, &forwarder] {
        for (path, body) in [
            (REDRIVE, json!({"all": true})),
            (GIVE_UP, json!({"all": true, "because": "it is late"})),
            (UNCLAIM, json!({})),
        ] {
            let (status, answer) = asker.post(path, body).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
            assert_eq!(answer["error"]["code"], "forbidden");
        }
    }

    let tenants = |page: &Value| -> Vec<String> {
        let rows = page["rows"].as_array().unwrap();
        rows.iter().map(|row| row["tenant_id"].as_str().unwrap().to_owned()).collect()
    };
    for asker in [&viewer, &operator] {
        let (_, page) = asker.get(OUTBOX).await;
        assert_eq!(tenants(&page), vec![ours.tenant.to_string(); 3]);
        let (status, _) = asker.get(&format!("{OUTBOX}?tenant_id={}", theirs.tenant)).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        let (_, stats) = asker.get(STATS).await;
        assert_eq!(stats["tenants"].as_array().unwrap().len(), 1);
        assert_eq!(stats["tenants"][0]["rows"], json!({"dlq": 3}));
    }
    let (_, page) = admin.get(OUTBOX).await;
    assert_eq!(tenants(&page).len(), 6);
    let of = |tenant: TenantId| {
        let row = page["rows"].as_array().unwrap().iter();
        let row = row.clone().find(|row| row["tenant_id"] == json!(tenant)).unwrap();
        format!("{OUTBOX}/{}", row["id"].as_str().unwrap())
    };
    let (status, shown) = viewer.get(&of(ours.tenant)).await;
    assert_eq!((status, shown.get("payload_json")), (StatusCode::OK, None), "{shown}");
    let (_, shown) = operator.get(&of(ours.tenant)).await;
    assert_eq!(shown["payload_json"]["metric_type"], "temperature");
    for asker in [&viewer, &operator] {
        assert_eq!(asker.get(&of(theirs.tenant)).await.0, StatusCode::NOT_FOUND);
    }

    let (status, _) = operator.post(REDRIVE, json!({"tenant_id": theirs.tenant})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let foreign: Vec<Value> =
        page["rows"].as_array().unwrap().iter().map(|r| r["id"].clone()).collect();
    let (_, done) = operator.post(REDRIVE, json!({"ids": foreign})).await;
    assert_eq!((&done["rows"], &done["left"]), (&json!(3), &json!(0)), "{done}");
    let left = "SELECT count(*) FROM sync_outbox WHERE status = 'dlq' AND tenant_id = ";
    assert_eq!(site.number(&format!("{left} '{}'", theirs.tenant)).await, 3);
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redriven_dead_letter_goes_out_and_its_history_stays() {
    let site = Site::new("admin_redrive").await;
    let node = site.enroll("barn-1").await;
    let readings = node.readings(1..=20);
    site.ingest(&[node.batch(&readings, &[])]).await;
    let bad: Vec<String> = readings[..5]
        .iter()
        .map(|(_, text)| {
            serde_json::from_str::<Value>(text).unwrap()["event_id"].as_str().unwrap().to_owned()
        })
        .collect();
    let refused = bad.clone();
    let cloud = TestCloud::start(move |_| Say::Reject(refused.clone())).await;
    let pairs = [("SYNC_CLOUD_URL", cloud.url.as_str()), ("SYNC_TOKEN", TOKEN)];
    let edge = start(&config(site.database.url(), &pairs)).await;
    all_are(&site, "acked dlq").await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::All).await;

    let what = json!({"reason": "invalid", "failed_before": jiff::Timestamp::now(), "limit": 3, "dry_run": true});
    let (_, would) = operator.post(REDRIVE, what).await;
    assert_eq!(
        would,
        json!({"dry_run": true, "rows": 3, "left": 2, "by_reason": {"invalid": 3}, "audit_id": null})
    );
    assert_eq!(site.number("SELECT count(*) FROM sync_audit").await, 0);
    for nothing in [
        json!({"reason": "too_large"}),
        json!({"failed_after": jiff::Timestamp::now()}),
        json!({"tenant_id": TenantId::mint()}),
        json!({"ids": [EventId::mint()]}),
    ] {
        let (status, done) = operator.post(REDRIVE, nothing).await;
        assert_eq!((status, &done["rows"]), (StatusCode::OK, &json!(0)), "{done}");
    }
    for wrong in [json!({}), json!({"resaon": "invalid"}), json!({"all": true, "limit": 100_000})] {
        let (status, answer) = operator.post(REDRIVE, wrong).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (StatusCode::BAD_REQUEST, &json!("malformed"))
        );
    }

    // Rejected again, it is a dead letter again; taken, it is acked. The history has both.
    let (_, again) = operator.post(REDRIVE, json!({"ids": [bad[0]]})).await;
    assert_eq!(again["rows"], 1);
    let dead = "SELECT count(*) FROM sync_outbox WHERE status = 'dlq'";
    eventually(LONG, "it is dead again", async || site.number(dead).await == 5).await.unwrap();
    cloud.tell(|_| Say::Store);
    let (_, done) = operator.post(REDRIVE, json!({"all": true})).await;
    assert_eq!((&done["rows"], &done["by_reason"]), (&json!(5), &json!({"invalid": 5})));
    all_are(&site, "acked").await;
    let (_, shown) = operator.get(&format!("{OUTBOX}/{}", bad[0])).await;
    assert_eq!((&shown["status"], &shown["attempt_count"]), (&json!("acked"), &json!(0)));
    let history = shown["history"].as_array().unwrap();
    assert_eq!(history.len(), 2, "{shown}");
    for one in history {
        assert_eq!((&one["action"], &one["dlq_reason"]), (&json!("redrive"), &json!("invalid")));
        assert_eq!(
            (&one["last_error_code"], &one["attempt_count"]),
            (&json!("REJECTED"), &json!(1))
        );
        assert!(one["actor"].as_str().unwrap().starts_with("token anna ("));
    }
    assert!(bad.iter().all(|id| cloud.stored().contains(id)));
    let audit = site.text("SELECT string_agg(via || ' ' || rows || ' ' || (filter ? 'ids'), ', ' ORDER BY id) FROM sync_audit").await;
    assert_eq!(audit, "http 1 true, http 5 false");
    edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_puts_back_more_than_the_rate_allows_waits() {
    let site = Site::new("admin_rate").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=1), &[])]).await;
    // A forwarder that has nowhere to send to leaves them where they are put.
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::All).await;
    let more = "INSERT INTO sync_outbox (id, tenant_id, event_type, occurred_at, payload_json, status, dlq_reason, failed_at)
        SELECT gen_random_uuid(), $1, 'telemetry.ingested', now(), '{}', 'dlq', 'invalid', now() FROM generate_series(1, 30000)";
    site.client().await.execute(more, &[&node.tenant.uuid()]).await.unwrap();
    let all = || json!({"all": true, "limit": 10_000});
    let mut refused = None;
    for _ in 0..4 {
        let (status, answer) = operator.post(REDRIVE, all()).await;
        if status == StatusCode::TOO_MANY_REQUESTS {
            refused = Some(answer);
            break;
        }
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let refused = refused.expect("30,000 rows at once are more than the rate allows");
    assert_eq!(refused["error"]["code"], "rate_limited", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("come back later"), "{refused}");
    // To look costs nothing.
    let (status, would) = operator.post(REDRIVE, json!({"all": true, "dry_run": true})).await;
    assert_eq!(status, StatusCode::OK, "{would}");
    edge.stop().await;
}

#[tokio::test]
async fn only_expired_leases_are_freed_and_pages_follow_each_other() {
    let site = Site::new("admin_unclaim").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=10), &[])]).await;
    let client = site.client().await;
    let hold = "UPDATE sync_outbox SET status = 'claimed', claimed_by = $1, claimed_at = now(),
        lease_token = gen_random_uuid(), lease_expires_at = now() + $2::text::interval WHERE seq BETWEEN $3 AND $4";
    for (holder, lease, from, to) in [("dead", "-1 s", 1i64, 4i64), ("alive", "1 h", 5, 7)] {
        client.execute(hold, &[&holder, &lease, &from, &to]).await.unwrap();
    }
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::All).await;
    let (_, stats) = operator.get(STATS).await;
    assert_eq!(stats["tenants"][0]["rows"], json!({"claimed": 7, "pending": 3}));
    assert_eq!((&stats["tenants"][0]["stuck"], &stats["breaker"]), (&json!(4), &json!("closed")));
    assert_eq!(stats["drain_seconds"], Value::Null, "nothing leaves");

    assert_eq!(operator.post(UNCLAIM, json!({"claimed_by": "alive"})).await.1["rows"], 0);
    let (_, would) = operator.post(UNCLAIM, json!({"limit": 3, "dry_run": true})).await;
    assert_eq!((&would["rows"], &would["left"]), (&json!(3), &json!(1)));
    let (_, done) = operator.post(UNCLAIM, json!({})).await;
    assert_eq!((&done["rows"], &done["by_reason"]), (&json!(4), &json!({"dead": 4})));
    let held =
        "SELECT string_agg(DISTINCT claimed_by, ',') FROM sync_outbox WHERE status = 'claimed'";
    assert_eq!(site.text(held).await, "alive");
    let counted = "SELECT count(*) FROM sync_outbox WHERE status = 'pending' AND attempt_count = 1
        AND last_error_code = 'LEASE_EXPIRED' AND lease_token IS NULL";
    assert_eq!(site.number(counted).await, 4, "a lost lease counts an attempt");

    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let (_, page) =
            operator.get(&format!("{OUTBOX}?limit=4&status=pending,claimed{after}")).await;
        let rows = page["rows"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    let mut once = seen.clone();
    once.sort_unstable_by(|a, b| b.cmp(a));
    once.dedup();
    assert_eq!((seen.len(), &seen), (10, &once));
    let (_, none) = operator.get(&format!("{OUTBOX}?stream=barn-9")).await;
    assert_eq!(none, json!({"rows": [], "next": null}));
    edge.stop().await;
}

/// How many rows of a tenant are in a state.
async fn count(site: &Site, node: &Sender, state: &str) -> i64 {
    let text = format!(
        "SELECT count(*) FROM sync_outbox WHERE status = '{state}' AND tenant_id = '{}'",
        node.tenant
    );
    site.number(&text).await
}

#[tokio::test]
async fn a_dead_letter_is_given_up_with_a_reason_and_comes_back_only_by_its_id() {
    let site = Site::new("admin_give_up").await;
    let (ours, theirs) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    for node in [&ours, &theirs] {
        site.ingest(&[node.batch(&node.readings(1..=6), &[])]).await;
        bury(&site, node, "invalid").await;
    }
    let client = site.client().await;
    for (state, seq) in [("pending", 5i64), ("acked", 6)] {
        let text = "UPDATE sync_outbox SET status = $1, failed_at = NULL, dlq_reason = NULL WHERE seq = $2";
        client.execute(text, &[&state, &seq]).await.unwrap();
    }
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![ours.tenant])).await;

    for (wrong, field) in [
        (json!({"all": true}), "because"),
        (json!({"all": true, "because": " "}), "because"),
        (json!({"because": "a test rig"}), "reason"),
    ] {
        let (status, answer) = operator.post(GIVE_UP, wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(field), "{answer}");
    }
    let foreign = json!({"tenant_id": theirs.tenant, "because": "not mine"});
    assert_eq!(operator.post(GIVE_UP, foreign).await.0, StatusCode::FORBIDDEN);
    let (_, would) = operator
        .post(GIVE_UP, json!({"all": true, "because": "a test rig", "dry_run": true, "limit": 3}))
        .await;
    assert_eq!((&would["rows"], &would["left"]), (&json!(3), &json!(1)), "{would}");
    assert_eq!(count(&site, &ours, "dlq").await, 4, "to look changes nothing");

    // Every row by its id: those that wait, are acked, or are another tenant's stay as they are.
    let all = client.query("SELECT id::text FROM sync_outbox", &[]).await.unwrap();
    let ids: Vec<String> = all.iter().map(|row| row.get(0)).collect();
    let (_, done) = operator.post(GIVE_UP, json!({"ids": ids, "because": "a test rig"})).await;
    assert_eq!((&done["rows"], &done["by_reason"]), (&json!(4), &json!({"invalid": 4})), "{done}");
    for (state, rows) in [("failed", 4), ("pending", 1), ("acked", 1), ("dlq", 0)] {
        assert_eq!(count(&site, &ours, state).await, rows, "{state}");
    }
    assert_eq!(count(&site, &theirs, "dlq").await, 4);
    let audit =
        "SELECT concat_ws(' ', action, via, rows, because, left(actor, 10)) FROM sync_audit";
    assert_eq!(site.text(audit).await, "give_up http 4 a test rig token anna");
    let (_, groups) = operator.get("/api/v1/sync/dead-letters").await;
    assert_eq!(groups, json!({"groups": []}), "it is no dead letter any more");

    // Final for everybody who does not name it.
    let (_, none) = operator.post(REDRIVE, json!({"reason": "invalid"})).await;
    assert_eq!(none["rows"], 0);
    let (_, page) = operator.get(&format!("{OUTBOX}?status=failed")).await;
    let id = page["rows"][0]["id"].as_str().unwrap();
    let (_, back) = operator.post(REDRIVE, json!({"ids": [id]})).await;
    assert_eq!(back["rows"], 1, "{back}");
    let (_, shown) = operator.get(&format!("{OUTBOX}/{id}")).await;
    assert_eq!((&shown["status"], &shown["failed_at"]), (&json!("pending"), &Value::Null));
    let history: Vec<_> = shown["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["action"], &one["status"]))
        .collect();
    assert_eq!(
        history,
        [(&json!("redrive"), &json!("failed")), (&json!("give_up"), &json!("dlq"))]
    );
    assert_eq!(shown["history"][1]["because"], "a test rig");
    edge.stop().await;
}
