//! What an operator works with: the account, verify, where, dead letters, telemetry.

use api::tokens::Tenants;
use event::id::EventId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ground::{Ground, LONG, code};

#[tokio::test(flavor = "multi_thread")]
async fn the_account_adds_up_and_an_event_is_found() {
    let ground = Ground::new("console_account").await;
    let events = ground.ingest(&ground.barn, 1..=30).await;
    let operator = ground.operator().await;
    let row = testkit::eventually(LONG, "the stream is whole", async || {
        let account = operator.see("/api/v1/conservation").await;
        let row = account["items"].as_array().unwrap().first()?.clone();
        (row["state"] == "whole").then_some(row)
    });
    let row = row.await.unwrap();
    assert_eq!((&row["produced"], &row["stored"]), (&json!(30), &json!(30)));
    assert_eq!((&row["site"], &row["stream"]), (&json!("north"), &json!("barn-1")));

    let job = operator
        .finish(operator.post("/api/v1/verify", json!({"site": "north", "deep": true})).await);
    let job = job.await;
    assert_eq!((&job["state"], &job["verify"]["wrong"]), (&json!("done"), &json!(0)), "{job}");
    assert_eq!(job["verify"]["streams"][0]["cloud"]["received"], 30);
    let found = testkit::eventually(LONG, "the event is stored", async || {
        let found = operator.see(&format!("/api/v1/where/{}", events[3])).await;
        found.to_string().contains("telemetry_reading").then_some(found)
    });
    let found = found.await.unwrap();
    assert_eq!(
        (&found["site"], &found["tenant_id"]),
        (&json!("north"), &json!(ground.barn.tenant))
    );
    let nobody = operator.get(&format!("/api/v1/where/{}", EventId::mint())).await;
    assert_eq!(code(nobody).await, (404, "not_found".to_owned()));

    // Somebody removes what the cloud believes to have.
    let client = ground.cloud_database.connect().await.unwrap();
    let removed = client
        .execute(
            "UPDATE ledger_frontier SET received = '{1,20,26,30}', received_count = 25, acked = 20",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(removed, 1);
    let job =
        operator.finish(operator.post("/api/v1/verify", json!({"site": "north"})).await).await;
    assert_eq!(job["verify"]["wrong"], 5, "{job}");
    let finding = &job["verify"]["streams"][0]["findings"][0];
    assert_eq!((&finding["from"], &finding["to"]), (&json!(21), &json!(25)));
    assert_eq!((&finding["kind"], &finding["wrong"]), (&json!("missing_at_cloud"), &json!(true)));
    let no_site = operator.post("/api/v1/verify", json!({"site": "south"})).await;
    assert_eq!(code(no_site).await, (404, "not_found".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_grouped_and_redriven() {
    let ground = Ground::new("console_dead").await;
    ground.ingest(&ground.barn, 1..=5).await;
    let client = ground.edge_database.connect().await.unwrap();
    testkit::eventually(LONG, "all are acked", async || {
        let row = client
            .query_one(
                "SELECT count(*) FROM sync_outbox WHERE stream IS NOT NULL AND status = 'acked'",
                &[],
            )
            .await;
        row.map(|row| row.get::<_, i64>(0) == 5)
    })
    .await
    .unwrap();
    let killed = client
        .execute(
            "UPDATE sync_outbox SET status = 'dlq', failed_at = now(), dlq_reason = 'invalid_unit'
             WHERE stream IS NOT NULL",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(killed, 5);
    let operator = ground.operator().await;
    let outbox = async || -> Value {
        let queues = operator.see("/api/v1/queues").await;
        let items = queues["items"].as_array().unwrap();
        items.iter().find(|queue| queue["id"] == "outbox:north").cloned().unwrap_or_default()
    };
    let seen = testkit::eventually(LONG, "the dead letters are seen", async || {
        let queue = outbox().await;
        (queue["dead"] == 5).then_some(queue)
    });
    let seen = seen.await.unwrap();
    let group = &seen["groups"][0];
    assert_eq!((&group["cause"], &group["count"]), (&json!("invalid_unit"), &json!(5)));
    let alerts = operator.see("/api/v1/alerts").await;
    assert!(alerts["items"].to_string().contains("dead_letters:outbox:north"), "{alerts}");

    let path = "/api/v1/queues/outbox:north/redrive";
    let dry = json!({"cause": "invalid_unit", "dry_run": true});
    let job = operator.finish(operator.post(path, dry).await).await;
    let result = &job["redrive"];
    assert_eq!((&result["matched"], &result["changed"]), (&json!(5), &json!(0)), "{job}");
    let others =
        ground.sign_in(api::tokens::Role::Operator, Tenants::Only(vec![ground.hill.tenant]));
    let others = others.await;
    let job = others.finish(others.post(path, json!({"dry_run": false})).await).await;
    assert_eq!(job["redrive"]["matched"], 0, "another tenant's are left alone: {job}");
    let real = json!({"cause": "invalid_unit", "limit": 3, "dry_run": false});
    let job = operator.finish(operator.post(path, real).await).await;
    assert_eq!((&job["redrive"]["changed"], &job["done"]), (&json!(3), &json!(3)), "{job}");
    let rest = operator.finish(operator.post(path, json!({"dry_run": false})).await).await;
    assert_eq!(rest["redrive"]["changed"], 2, "{rest}");
    let noted = client
        .query("SELECT actor, filter ->> 'acting_for' FROM sync_audit ORDER BY id", &[])
        .await
        .unwrap();
    assert_eq!(noted.len(), 2);
    for row in &noted {
        assert!(row.get::<_, &str>(0).starts_with("token console ("), "the console's token");
        assert_eq!(row.get::<_, Option<&str>>(1), Some("somebody"), "acted for whoever signed in");
    }
    testkit::eventually(LONG, "none is left", async || outbox().await["dead"] == 0).await.unwrap();
    assert_eq!(
        operator.post("/api/v1/queues/attic/redrive", json!({"dry_run": true})).await.status(),
        404
    );
    let wild = json!({"dry_run": true, "limit": 0});
    assert_eq!(code(operator.post(path, wild).await).await, (400, "malformed".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bus_gives_its_dead_letters_back() {
    let ground = Ground::new("console_bus").await;
    let client = ground.cloud_database.connect().await.unwrap();
    client
        .execute(
            "INSERT INTO bus_dead_letter (queue, message_id, tenant_id, exchange, routing_key, body, cause_code,
                 cause_message, attempts, first_dead_lettered_at, dead_lettered_at)
             VALUES ('farmiq.nobody.queue', 'm-1', $1, 'e', 'telemetry.ingested', '\\x7b7d', 'invalid_unit',
                 'the unit is not known', 1, now(), now())",
            &[&ground.barn.tenant.uuid()],
        )
        .await
        .unwrap();
    let operator = ground.operator().await;
    testkit::eventually(LONG, "it is seen", async || {
        let queues = operator.see("/api/v1/queues").await.to_string();
        queues.contains("the unit is not known")
    })
    .await
    .unwrap();
    let path = "/api/v1/queues/bus/redrive";
    let dry = operator.finish(operator.post(path, json!({"dry_run": true})).await).await;
    assert_eq!((&dry["redrive"]["matched"], &dry["redrive"]["changed"]), (&json!(1), &json!(0)));
    // No such group exists: the cloud tries, and lets the letter lie.
    let job = operator.finish(operator.post(path, json!({"dry_run": false})).await).await;
    assert_eq!((&job["state"], &job["done"]), (&json!("done"), &json!(1)), "{job}");
    let noted = acted_for(&client, "dlq.replay").await;
    assert_eq!(noted, ["somebody", "somebody"], "the dry run too");
}

/// For whom the console's token acted, by the audit of a tier.
async fn acted_for(client: &tokio_postgres::Client, action: &str) -> Vec<String> {
    let query = "SELECT parameters ->> 'acting_for' FROM operator_audit
        WHERE action = $1 AND actor = (SELECT id::text FROM api_tokens WHERE name = 'console')";
    let rows = client.query(query, &[&action]).await.unwrap();
    rows.iter().map(|row| row.get::<_, Option<_>>(0).unwrap_or_default()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_historian_s_dead_letters_are_redriven_by_those_who_see_everything() {
    let ground = Ground::new("console_plant").await;
    let client = ground.historian_database.connect().await.unwrap();
    let event = json!({
        "eventId": EventId::mint(), "timestamp": Timestamp::now(), "tag": "TEMPERATURE", "value": 25.5,
        "asset": {"plant": "PLANT01", "area": "AREA01", "unit": "UNIT_07"}, "unit": "°C",
        "quality": "GOOD", "category": "telemetry", "nodeId": 7,
    });
    for (id, body) in [("m-1", event.to_string()), ("m-2", "{}".to_owned())] {
        client
            .execute(
                "INSERT INTO historian_dead_letters (consumer_group, message_id, topic, routing_key, headers, body,
                     cause_code, cause_message, attempts, dead_lettered_at)
                 VALUES ('scada-historian', $1, 't', 'TEMPERATURE', '{}', $2, 'incompatible_schema',
                     'the schema is newer', 1, now())",
                &[&id, &body.as_bytes()],
            )
            .await
            .unwrap();
    }
    let operator = ground.operator().await;
    let seen = testkit::eventually(LONG, "they are seen", async || {
        let queues = operator.see("/api/v1/queues").await;
        let items = queues["items"].as_array().unwrap().clone();
        let mut items = items.into_iter().filter(|queue| queue["redrivable"] == true);
        items.find(|queue| queue["id"] == "historian" && queue["dead"] == 2)
    });
    let seen = seen.await.unwrap();
    assert_eq!(seen["groups"][0]["count"], 2, "{seen}");
    let path = "/api/v1/queues/historian/redrive";
    let some = Tenants::Only(vec![ground.hill.tenant]);
    let others = ground.sign_in(api::tokens::Role::Operator, some).await;
    assert!(!others.see("/api/v1/queues").await.to_string().contains("historian"));
    assert_eq!(others.post(path, json!({"dry_run": true})).await.status(), 404);
    let viewer = ground.sign_in(api::tokens::Role::Viewer, Tenants::All).await;
    assert_eq!(viewer.post(path, json!({"dry_run": true})).await.status(), 403);
    let tenant = json!({"dry_run": true, "tenant_id": ground.hill.tenant});
    assert_eq!(operator.post(path, tenant).await.status(), 400);

    let dry = json!({"cause": "incompatible_schema", "dry_run": true});
    let job = operator.finish(operator.post(path, dry).await).await;
    let result = &job["redrive"];
    assert_eq!((&result["matched"], &result["changed"]), (&json!(2), &json!(0)), "{job}");
    let job = operator.finish(operator.post(path, json!({"dry_run": false})).await).await;
    let result = &job["redrive"];
    assert_eq!((&result["matched"], &result["changed"]), (&json!(2), &json!(1)), "{job}");
    assert_eq!(acted_for(&client, "dlq.replay").await, ["somebody", "somebody"]);
    testkit::eventually(LONG, "what is no event stays, with its cause", async || {
        let queues = operator.see("/api/v1/queues").await.to_string();
        queues.contains("invalid_envelope") && !queues.contains("incompatible_schema")
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn telemetry_is_drawn_with_its_spikes_and_written_as_csv() {
    let ground = Ground::new("console_explore").await;
    ground.ingest(&ground.barn, 1..=600).await;
    let operator = ground.operator().await;
    let series = testkit::eventually(LONG, "the series is listed", async || {
        let list = operator.see("/api/v1/explore/series?q=barn-1").await;
        list["items"].as_array().unwrap().first().cloned()
    });
    let series = series.await.unwrap();
    assert_eq!((&series["name"], &series["unit"]), (&json!("barn-1 temperature"), &json!("C")));
    let id = series["id"].as_str().unwrap();
    let now = Timestamp::now();
    let range = format!(
        "from={}&to={}",
        now - SignedDuration::from_mins(30),
        now + SignedDuration::from_mins(1)
    );
    let plots = operator.see(&format!("/api/v1/explore/points?series={id}&{range}&width=50")).await;
    let plot = &plots["series"][0];
    assert_eq!((&plot["samples"], &plot["resolution"]), (&json!(600), &json!("raw")), "{plot}");
    assert_eq!((&plot["down_sampled"], &plot["error"]), (&json!(true), &Value::Null));
    let values = plot["v"].as_array().unwrap();
    assert!(values.len() <= 100 && values.len() == plot["t"].as_array().unwrap().len());
    assert!(values.contains(&json!(99.5)), "the spike is there");
    let csv = operator.get(&format!("/api/v1/explore/csv?series={id}&{range}")).await;
    assert_eq!(csv.headers()["content-type"], "text/csv; charset=utf-8");
    let text = csv.text().await.unwrap();
    assert_eq!(text.lines().count(), 601, "a line each, and the names");
    assert!(text.lines().nth(1).unwrap().starts_with(id));
    for wrong in ["", "&series=x", &format!("&series={id}").repeat(9)] {
        let refused = operator.get(&format!("/api/v1/explore/points?{range}{wrong}")).await;
        assert_eq!(code(refused).await, (400, "malformed".to_owned()), "{wrong}");
    }
    let gone = id.replace("north", "south");
    let plots =
        operator.see(&format!("/api/v1/explore/points?series={gone}&series={id}&{range}")).await;
    assert!(plots["series"][0]["error"].is_string(), "one that is away");
    assert_eq!(plots["series"][1]["samples"], 600, "leaves the other as it is");
}
