//! What the operators' console asks of a site: its nodes, and its dead letters by reason. A token sees its tenants.

use api::tokens::{Role, Tenants};
use reqwest::StatusCode;
use serde_json::json;

use crate::site::{Site, config, start};
use crate::sync_admin::Asker;

#[tokio::test]
async fn nodes_and_dead_letters_are_shown_to_those_who_see_their_tenant() {
    let site = Site::new("console_asks").await;
    let (ours, theirs) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    for node in [&ours, &theirs] {
        site.ingest(&[node.batch(&node.readings(1..=3), &[])]).await;
    }
    let query =
        "UPDATE sync_outbox SET status = 'dlq', dlq_reason = 'invalid_unit', failed_at = now(),
        last_error_message = 'not right'";
    site.client().await.execute(query, &[]).await.unwrap();
    let edge = start(&config(site.database.url(), &[])).await;
    let mine = Tenants::Only(vec![ours.tenant]);
    let viewer = Asker::new(&site, &edge, Role::Viewer, mine).await;
    let admin = Asker::new(&site, &edge, Role::Admin, Tenants::All).await;
    let machine = Asker::new(&site, &edge, Role::Edge, Tenants::All).await;
    let (status, seen) = viewer.get("/api/v1/nodes").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(seen["nodes"].as_array().unwrap().len(), 1);
    let node = &seen["nodes"][0];
    assert_eq!((&node["node_id"], &node["state"]), (&json!("barn-1"), &json!("online")));
    assert_eq!((&node["stored"], &node["received"]), (&json!(3), &json!(3)));
    assert_eq!(admin.get("/api/v1/nodes").await.1["nodes"].as_array().unwrap().len(), 2);
    let (_, seen) = viewer.get("/api/v1/sync/dead-letters").await;
    assert_eq!(seen["groups"].as_array().unwrap().len(), 1, "{seen}");
    let group = &seen["groups"][0];
    assert_eq!((&group["reason"], &group["count"]), (&json!("invalid_unit"), &json!(3)));
    assert_eq!(group["tenant_id"], json!(ours.tenant));
    assert_eq!(group["sample_message"], "not right");
    let (_, stats) = viewer.get("/api/v1/sync/stats?pace_seconds=10").await;
    assert_eq!(stats["tenants"][0]["rows"]["dlq"], 3);
    for path in ["/api/v1/nodes", "/api/v1/sync/dead-letters"] {
        assert_eq!(machine.get(path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    let wrong = viewer.get("/api/v1/sync/stats?pace_seconds=0").await;
    assert_eq!(wrong.0, StatusCode::BAD_REQUEST);
    edge.stop().await;
}
