//! The ledger's routes: who sees what, and what a repair does.

use api::tokens::{Role, Tenants};
use event::id::Epoch;
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Sender, Site, config, gap, start};
use crate::sync_admin::Asker;

const REPAIR: &str = "/api/v1/ledger/repair";

/// The address of a list about one stream.
fn about(list: &str, node: &Sender, more: &str) -> String {
    format!("/api/v1/ledger/{list}?stream={}&epoch={}{more}", node.node, node.epoch)
}

fn event_id(reading: &(u64, String)) -> String {
    let event: Value = serde_json::from_str(&reading.1).unwrap();
    event["event_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_sees_and_repairs_its_tenants_streams_and_no_other() {
    let site = Site::new("ledger_matrix").await;
    let (ours, theirs) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    let mut events = Vec::new();
    for node in [&ours, &theirs] {
        let readings = node.readings(1..=3);
        events.push(event_id(&readings[0]));
        site.ingest(&[node.batch(&readings, &[gap(6, 7)])]).await;
    }
    let edge = start(&config(site.database.url(), &[])).await;
    let one = Tenants::Only(vec![ours.tenant]);
    let viewer = Asker::new(&site, &edge, Role::Viewer, one.clone()).await;
    let operator = Asker::new(&site, &edge, Role::Operator, one).await;
    let forwarder = Asker::new(&site, &edge, Role::Edge, Tenants::All).await;

    let lists =
        [("streams", ""), ("blocks", ""), ("marks", "&blocks=0"), ("places", "&from=1&to=9")];
    for asker in [&viewer, &operator] {
        for (list, more) in lists {
            let path = |node: &Sender| match list {
                "streams" => format!("/api/v1/ledger/streams?stream={}", node.node),
                _ => about(list, node, more),
            };
            let (status, page) = asker.get(&path(&ours)).await;
            assert_eq!(status, StatusCode::OK, "{list}");
            assert_ne!(page[list], json!([]), "{list}");
            let (status, page) = asker.get(&path(&theirs)).await;
            assert_eq!((status, &page[list]), (StatusCode::OK, &json!([])), "{list}: {page}");
            let named = format!("{}&tenant_id={}", path(&theirs), theirs.tenant);
            assert_eq!(asker.get(&named).await.0, StatusCode::FORBIDDEN, "{list}");
            assert_eq!(forwarder.get(&path(&ours)).await.0, StatusCode::FORBIDDEN, "{list}");
        }
        for (event, expected) in [(&events[0], StatusCode::OK), (&events[1], StatusCode::NOT_FOUND)]
        {
            let (status, found) = asker.get(&format!("/api/v1/ledger/events/{event}")).await;
            assert_eq!(status, expected, "{found}");
            assert!(found.get("payload").is_none() && !found.to_string().contains("26.4"));
        }
    }
    let (_, page) = viewer.get("/api/v1/ledger/streams").await;
    let state = &page["streams"][0];
    assert_eq!(page["streams"].as_array().unwrap().len(), 1);
    assert_eq!((&state["received"], &state["lost"]), (&json!([[1, 3]]), &json!([[6, 7]])));
    let body = |node: &Sender| json!({"stream": node.node, "epoch": node.epoch, "adopt": [[4, 5]]});
    assert_eq!(viewer.post(REPAIR, body(&ours)).await.0, StatusCode::FORBIDDEN);
    assert_eq!(forwarder.post(REPAIR, body(&ours)).await.0, StatusCode::FORBIDDEN);
    assert_eq!(operator.post(REPAIR, body(&theirs)).await.0, StatusCode::NOT_FOUND);
    let (status, done) = operator.post(REPAIR, body(&ours)).await;
    assert_eq!((status, &done["adopted"]), (StatusCode::OK, &json!(2)));
    assert_eq!(site.number("SELECT count(*) FROM sync_audit").await, 1);
    for (path, field) in [
        ("/api/v1/ledger/streams?limit=0", "limit"),
        ("/api/v1/ledger/streams?after=x", "after"),
        ("/api/v1/ledger/blocks?stream=barn-1", "epoch"),
        ("/api/v1/ledger/marks?stream=UP", "stream"),
    ] {
        let (status, said) = operator.get(path).await;
        assert_eq!((status, &said["error"]["field"]), (StatusCode::BAD_REQUEST, &json!(field)));
    }
    for adopt in [json!([[0, 4]]), json!([[5, 4]]), json!([[9, 9], [1, 2]]), json!("all")] {
        let body = json!({"stream": "barn-1", "epoch": ours.epoch, "adopt": adopt});
        assert_eq!(operator.post(REPAIR, body).await.0, StatusCode::BAD_REQUEST, "{adopt}");
    }
    edge.stop().await;
}

#[tokio::test]
async fn a_repair_is_whole_audited_and_the_same_again_changes_nothing() {
    let site = Site::new("ledger_repair").await;
    let node = site.enroll("barn-1").await;
    site.ingest(&[node.batch(&node.readings(1..=10), &[gap(11, 12)])]).await;
    let client = site.client().await;
    let acked = "UPDATE sync_outbox SET status = 'acked'";
    assert_eq!(client.execute(acked, &[]).await.unwrap(), 10);
    client.execute("DELETE FROM sync_outbox WHERE seq = 4", &[]).await.unwrap();
    client.execute("UPDATE ledger_tombstone SET sent_at = now()", &[]).await.unwrap();
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::All).await;
    let places = operator.get(&about("places", &node, "&from=1&to=99")).await.1;
    assert_eq!(
        places["places"],
        json!([{"place": "acked", "from": 1, "to": 3}, {"place": "raw", "from": 4, "to": 4},
               {"place": "acked", "from": 5, "to": 10}])
    );

    let mut body = json!({"stream": "barn-1", "epoch": node.epoch, "adopt": [[13, 20]],
        "adopt_lost": [[21, 30]], "resend": [[31, 40]], "resync": [[3, 5]], "retell": [[11, 12]], "dry_run": true});
    let expected = json!({"dry_run": true, "asked": 10, "adopted": 8, "adopted_lost": 10, "resent": 3,
        "rebuilt": 1, "retold": 1, "audit_id": null});
    // The edge makes its aggregates meanwhile, and they are in the snapshot too.
    eventually(LONG, "the aggregates to be made", async || {
        site.number("SELECT count(*) FROM telemetry_dirty").await == 0
    })
    .await
    .unwrap();
    let before = site.snapshot().await;
    assert_eq!(operator.post(REPAIR, body.clone()).await, (StatusCode::OK, expected));
    assert_eq!(site.snapshot().await, before, "a dry run changes nothing");

    body["dry_run"] = json!(false);
    let (_, done) = operator.post(REPAIR, body.clone()).await;
    assert_eq!((&done["resent"], &done["adopted"]), (&json!(3), &json!(8)), "{done}");
    let frontier = "SELECT concat_ws(' ', acked, received, lost) FROM ledger_frontier";
    assert_eq!(site.text(frontier).await, "30 {1,10,13,20} {11,12,21,30}");
    let pending =
        "SELECT string_agg(seq::text, ',' ORDER BY seq) FROM sync_outbox WHERE status = 'pending'";
    assert_eq!(site.text(pending).await, "3,4,5");
    let rebuilt = "SELECT payload_json::text FROM sync_outbox WHERE seq = 4";
    let rebuilt: Value = serde_json::from_str(&site.text(rebuilt).await).unwrap();
    assert_eq!(rebuilt, json!({"metric_type": "temperature", "metric_value": 26.4, "unit": "C"}));
    let untold =
        "SELECT string_agg(reason || from_seq, ',') FROM ledger_tombstone WHERE sent_at IS NULL";
    assert_eq!(site.text(untold).await, "drop_oldest11");
    assert_eq!(site.number("SELECT count(*) FROM sync_audit_row").await, 2, "as they were before");

    body["resync"] = json!([]);
    body["retell"] = json!([]);
    let (_, again) = operator.post(REPAIR, body.clone()).await;
    assert_eq!((&again["adopted"], &again["adopted_lost"]), (&json!(0), &json!(0)), "{again}");
    assert_eq!(site.number("SELECT count(*) FROM ledger_resend").await, 1);

    // What was adopted and comes after all is stored, and nobody is suspected.
    let committed = site.ingest(&[node.batch(&node.readings(13..=14), &[])]).await;
    assert_eq!((committed.tally.stored, committed.tally.cloned), (2, 0));
    // A request is closed once nothing of it is missing.
    site.ingest(&[node.batch(&node.readings(31..=39), &[gap(40, 40)])]).await;
    eventually(LONG, "the request to close", async || {
        site.number("SELECT count(*) FROM ledger_resend WHERE closed_at IS NOT NULL").await == 1
    })
    .await
    .unwrap();
    let (_, state) = operator.get("/api/v1/ledger/streams").await;
    assert_eq!(state["streams"][0]["kept"], json!([[13, 20]]));
    edge.stop().await;
}

#[tokio::test]
async fn an_unknown_life_of_a_known_node_can_be_adopted() {
    let site = Site::new("ledger_adopt").await;
    let node = site.enroll("barn-1").await;
    let edge = start(&config(site.database.url(), &[])).await;
    let operator = Asker::new(&site, &edge, Role::Operator, Tenants::Only(vec![node.tenant])).await;
    let epoch = Epoch::mint();
    let body = json!({"stream": "barn-1", "epoch": epoch, "adopt": [[1, 500]]});
    assert_eq!(operator.post(REPAIR, body).await.1["adopted"], json!(500));
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 500);
    let unknown = json!({"stream": "barn-9", "epoch": epoch, "adopt": [[1, 5]]});
    assert_eq!(operator.post(REPAIR, unknown).await.0, StatusCode::NOT_FOUND);
    edge.stop().await;
}
