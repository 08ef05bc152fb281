//! What the operators' console asks of the cloud: how it stands, dead letters by cause, sending them back.

use std::net::SocketAddr;

use cloud::tokens::{Role, Tenants};
use event::id::{Epoch, TenantId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::site::{Site, batch, http, placed, token};

/// Somebody with a token, and the replica that is asked.
pub(crate) struct Asker {
    at: SocketAddr,
    token: String,
}

impl Asker {
    pub(crate) async fn new(site: &Site, role: Role, tenants: Tenants) -> Asker {
        let (_, token) = token(&site.client().await, role, tenants).await;
        Asker { at: site.cloud.http(), token }
    }

    /// The same at another replica.
    pub(crate) fn at(&self, at: SocketAddr) -> Asker {
        Asker { at, token: self.token.clone() }
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let url = format!("http://{}/api/v1{path}", self.at);
        let request = http().request(method, url).bearer_auth(&self.token);
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.ask(Method::GET, path, Value::Null).await
    }
}

const BURY: &str = "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, routing_key, envelope,
        status, failed_at, dlq_reason, last_error_message)
    SELECT $1, gen_random_uuid(), 'telemetry.ingested', now(), 'k', '', 'dlq', now(), 'unroutable', 'no exchange'
    FROM generate_series(1, $2::int8)";
const GIVE_UP: &str = "INSERT INTO bus_dead_letter (queue, message_id, tenant_id, exchange, routing_key, body,
        cause_code, cause_message, attempts, first_dead_lettered_at, dead_lettered_at)
    SELECT 'q', gen_random_uuid()::text, $1, 'e', 'telemetry.ingested', '\\x7b7d', 'invalid_unit', 'no such unit', 1,
        now(), now()
    FROM generate_series(1, $2::int8)";

#[tokio::test]
async fn a_token_sees_and_moves_its_own_tenants_dead_letters_alone() {
    let site = Site::new("operate").await;
    let (ours, theirs) = (site.tenant, TenantId::mint());
    let epoch = Epoch::mint();
    let body = batch(vec![placed(site.reading(), "barn-7", epoch, 1)]);
    assert_eq!(site.statuses(&body).await, ["accepted"]);
    let client = site.client().await;
    for (tenant, count) in [(ours, 3_i64), (theirs, 5)] {
        client.execute(BURY, &[&tenant.uuid(), &count]).await.unwrap();
        client.execute(GIVE_UP, &[&tenant.uuid(), &count]).await.unwrap();
    }
    let viewer = Asker::new(&site, Role::Viewer, Tenants::Only(vec![ours])).await;
    let operator = Asker::new(&site, Role::Operator, Tenants::Only(vec![ours])).await;
    let admin = Asker::new(&site, Role::Admin, Tenants::All).await;
    let machine = Asker::new(&site, Role::Edge, Tenants::All).await;

    let (_, seen) = viewer.get("/summary").await;
    assert_eq!(seen["tenants"].as_array().unwrap().len(), 1, "{seen}");
    let tally = &seen["tenants"][0];
    assert_eq!((&tally["received"], &tally["accepted"]), (&json!(1), &json!(1)));
    assert_eq!((&tally["relay"]["waiting"], &tally["relay"]["dead"]), (&json!(1), &json!(3)));
    assert_eq!((&tally["bus_dead"], &seen["bus"]), (&json!(3), &json!("inline")));
    assert_eq!(admin.get("/summary").await.1["tenants"].as_array().unwrap().len(), 2);
    for (path, cause) in [("/relay/dead-letters", "unroutable"), ("/dead-letters", "invalid_unit")]
    {
        let (_, seen) = viewer.get(path).await;
        assert_eq!(seen["groups"].as_array().unwrap().len(), 1, "{seen}");
        let group = &seen["groups"][0];
        assert_eq!((&group["cause"], &group["count"]), (&json!(cause), &json!(3)));
        assert!(!seen.to_string().contains(&theirs.to_string()));
        assert_eq!(admin.get(path).await.1["groups"].as_array().unwrap().len(), 2);
        assert_eq!(machine.get(path).await.0, 403);
    }
    for (path, cause) in
        [("/relay/redrive", "unroutable"), ("/dead-letters/replay", "invalid_unit")]
    {
        let post = async |asker: &Asker, body: Value| asker.ask(Method::POST, path, body).await;
        let all = json!({"all": true});
        assert_eq!(post(&viewer, all.clone()).await.0, 403, "{path}");
        assert_eq!(post(&machine, all.clone()).await.0, 403, "{path}");
        assert_eq!(post(&operator, all).await.0, 400, "which tenant?");
        assert_eq!(post(&admin, json!({})).await.0, 400, "which ones?");
        assert_eq!(post(&operator, json!({"tenant_id": theirs})).await.0, 403, "{path}");
        assert_eq!(post(&operator, json!({"tenant_id": ours, "limit": 0})).await.0, 400);
        let dry = json!({"tenant_id": ours, "reason": cause, "dry_run": true});
        let (_, done) = post(&operator, dry).await;
        assert_eq!((&done["matched"], &done["changed"]), (&json!(3), &json!(0)), "{done}");
        assert_eq!(done["by_cause"][cause], 3);
        let (_, done) = post(&operator, json!({"tenant_id": ours, "limit": 2})).await;
        assert_eq!((&done["matched"], &done["changed"]), (&json!(3), &json!(2)), "{done}");
        if path.contains("replay") {
            let left = format!("/dead-letters/replays/{}", done["replay_id"]);
            assert_eq!(operator.get(&left).await.1["left"], 2, "nobody works them off here");
            assert_eq!(viewer.get(&left).await.0, 403);
        }
    }
    let audited =
        "SELECT count(*) FROM operator_audit WHERE actor_kind = 'token' AND outcome = 'done'";
    let audited: i64 = client.query_one(audited, &[]).await.unwrap().get(0);
    assert_eq!(audited, 4, "what was done, and what was only asked about");
    let untouched = "SELECT count(*) FROM relay_outbox WHERE tenant_id = $1 AND status = 'dlq'";
    let untouched: i64 = client.query_one(untouched, &[&theirs.uuid()]).await.unwrap().get(0);
    assert_eq!(untouched, 5);
    site.cloud.stop().await;
}
