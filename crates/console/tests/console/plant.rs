//! The plant: alarms, and its series.

use api::tokens::Role;
use serde_json::json;

use crate::ground::{Browser, Ground, LONG, code, token};

#[tokio::test(flavor = "multi_thread")]
async fn alarms_are_seen_acknowledged_and_shelved() {
    let ground = Ground::new("console_alarms").await;
    let client = ground.historian_database.connect().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit, last_raised_at,
                 raises, occurrences)
             VALUES ('PLANT01', 'AREA01', 'UNIT_01', 'HIGH_TEMP', 'active_unacknowledged', 'HIGH', 91.5, 'C', now(),
                 ARRAY[now()], 1);
             INSERT INTO alarm_floods (position, peak) VALUES ('PLANT01', 14);
             INSERT INTO telemetry (event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
             SELECT gen_random_uuid(), now() - n * interval '1 s', 'PLANT01', 'AREA01', 'UNIT_01', 'TEMP', 20 + n % 3,
                 'C', 'GOOD', 1
             FROM generate_series(0, 99) AS n",
        )
        .await
        .unwrap();
    let operator = ground.operator().await;
    let list = operator.see("/api/v1/alarms").await;
    let id = "PLANT01.AREA01.UNIT_01.HIGH_TEMP";
    assert_eq!((&list["items"][0]["id"], &list["items"][0]["value"]), (&json!(id), &json!(91.5)));
    assert_eq!(list["counts"]["active_unacknowledged"], 1);
    let viewer = ground.sign_in(Role::Viewer, api::tokens::Tenants::All).await;
    let act = |what: &str| format!("/api/v1/alarms/{id}/{what}");
    assert_eq!(viewer.post(&act("acknowledge"), json!({})).await.status(), 403);
    let done = operator.post(&act("acknowledge"), json!({})).await;
    let alarm: serde_json::Value = done.json().await.unwrap();
    assert_eq!((&alarm["state"], &alarm["id"]), (&json!("active_acknowledged"), &json!(id)));
    assert_eq!(alarm["acknowledged_by"], "somebody", "the person, and not the console");
    let again = operator.post(&act("acknowledge"), json!({})).await;
    assert_eq!(code(again).await, (409, "not_allowed".to_owned()));
    let no_reason = operator.post(&act("shelve"), json!({"minutes": 30, "reason": " "})).await;
    assert_eq!(code(no_reason).await, (400, "malformed".to_owned()));
    let shelf = json!({"minutes": 30, "reason": "the sensor is replaced"});
    let shelved: serde_json::Value =
        operator.post(&act("shelve"), shelf).await.json().await.unwrap();
    assert!(shelved["shelved_until"].is_string());
    let said = (&shelved["shelf_reason"], &shelved["shelved_by"]);
    assert_eq!(said, (&json!("the sensor is replaced"), &json!("somebody")));
    assert_eq!(operator.post(&act("unshelve"), json!({})).await.status(), 200);
    let rows = client
        .query(
            "SELECT action, parameters ->> 'acting_for' FROM operator_audit
             WHERE actor = (SELECT id::text FROM api_tokens WHERE name = 'console')
             UNION ALL SELECT 'journal', acting_for FROM alarm_journal WHERE actor_kind = 'token'",
            &[],
        )
        .await
        .unwrap();
    let mut noted: Vec<(String, String)> = rows
        .iter()
        .map(|row| (row.get(0), row.get::<_, Option<_>>(1).unwrap_or_default()))
        .collect();
    noted.sort();
    let deeds =
        ["alarm.acknowledge", "alarm.shelve", "alarm.unshelve", "journal", "journal", "journal"];
    let expected = deeds.map(|deed| (deed.to_owned(), "somebody".to_owned()));
    assert_eq!(noted, expected, "the console's token acted for somebody");
    for wrong in ["PLANT01.AREA01.UNIT_01.NOTHING", "a/../b", "PLANT01"] {
        let path = format!("/api/v1/alarms/{}/acknowledge", wrong.replace('/', "%2F"));
        assert_eq!(operator.post(&path, json!({})).await.status(), 404, "{wrong}");
    }
    let series = operator.see("/api/v1/explore/series?source=historian").await;
    assert_eq!(series["items"][0]["name"], "PLANT01.AREA01.UNIT_01.TEMP");
    assert_eq!(series["items"][0]["unit"], "C");
    testkit::eventually(LONG, "the picture has the alarm", async || {
        let picture = operator.see("/api/v1/picture").await;
        picture["alarms"]["active_acknowledged"] == 1
    })
    .await
    .unwrap();
}

/// More than a page of alarms that are over came after the one that somebody still has to look at.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_open_alarm_is_found_behind_any_number_of_newer_ones() {
    let ground = Ground::new("console_open_alarms").await;
    let client = ground.historian_database.connect().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit, last_raised_at)
             SELECT 'PLANT01', 'AREA01', 'UNIT_01', 'CLOSED_' || n, 'normal', 'LOW', 1, 'C', now()
             FROM generate_series(1, 1100) AS n;
             INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit, last_raised_at)
             VALUES ('PLANT01', 'AREA01', 'UNIT_01', 'OLDEST', 'active_acknowledged', 'HIGH', 1, 'C', now() - interval '9 d'),
                    ('PLANT01', 'AREA01', 'UNIT_01', 'OLDER', 'active_unacknowledged', 'HIGH', 1, 'C', now() - interval '8 d'),
                    ('PLANT01', 'AREA01', 'UNIT_01', 'OLD', 'cleared_unacknowledged', 'HIGH', 1, 'C', now() - interval '7 d');
             INSERT INTO alarm_state (plant, area, unit_name, tag, state, severity, value, unit, last_raised_at,
                 shelved_until, shelved_at, shelved_by, shelf_reason)
             VALUES ('PLANT01', 'AREA01', 'UNIT_01', 'SHELVED', 'active_unacknowledged', 'HIGH', 1, 'C', now(),
                 now() + interval '1 d', now(), 'somebody', 'it is known')",
        )
        .await
        .unwrap();
    let operator = ground.operator().await;
    let all = operator.see("/api/v1/alarms?limit=1000").await.to_string();
    assert!(!all.contains("OLDEST"), "more than a page came after it");
    let tags = |page: &serde_json::Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|alarm| alarm["tag"].as_str().unwrap().to_owned()).collect()
    };
    let first = operator.see("/api/v1/alarms?open=true&limit=2").await;
    assert_eq!(tags(&first), ["OLD", "OLDER"]);
    let next = first["next_cursor"].as_str().unwrap();
    let second = operator.see(&format!("/api/v1/alarms?open=true&limit=2&cursor={next}")).await;
    assert_eq!(tags(&second), ["OLDEST"]);
    assert!(second["next_cursor"].is_null());
    let closed = tags(&operator.see("/api/v1/alarms?open=false&limit=1").await);
    assert_eq!(closed, ["SHELVED"], "which is the last by name of those that were raised now");
    let wrong = operator.get("/api/v1/alarms?open=perhaps").await;
    assert_eq!(code(wrong).await, (400, "malformed".to_owned()));
}

/// A SCADA node, as it runs, whose broker is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_scada_node_that_cannot_publish_is_a_broken_link_and_a_queue_to_look_at() {
    let ground = Ground::new("console_scada").await;
    let database = testkit::database("console_scada_producer", "scada_producer", async |url| {
        scada::migrate_producer(&pg::Options::new(url)).await
    });
    let (database, folder) = (database.await.unwrap(), tempfile::tempdir().unwrap());
    // Nobody listens at the broker's address, and what is there already need not be declared.
    let pairs = [
        ("DATABASE_URL", database.url()),
        ("SPOOL_DIR", folder.path().to_str().unwrap()),
        ("SPOOL_FREE_SPACE_RESERVE", "0"),
        ("HTTP_LISTEN", "127.0.0.1:0"),
        ("BUS", "rabbitmq"),
        ("RABBITMQ_URL", "amqp://nobody:nothing@127.0.0.1:9/scada"),
        ("BUS_DECLARE", "false"),
        ("NODES", "2"),
        ("INTERVAL", "200ms"),
        ("REPORT_EVERY", "100ms"),
    ];
    let config = scada::producer::Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_PRODUCER_")?;
        pairs.iter().find(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned())
    });
    let producer = scada::producer::Producer::start(config.unwrap()).await.unwrap();
    let place = format!("press=http://{}", producer.http());
    let console = ground.another(&[("PRODUCERS", &place)]).await;
    let secret =
        token(&ground.cloud_database, "somebody", Role::Operator, api::tokens::Tenants::All);
    let operator = Browser::new(&console).sign_in(&secret.await).await;
    let by_id = |list: &serde_json::Value, id: &str| {
        list.as_array().unwrap().iter().find(|one| one["id"] == id).cloned().unwrap_or_default()
    };
    let link = testkit::eventually(LONG, "the link is seen to be broken", async || {
        let picture = operator.see("/api/v1/picture").await;
        let link = by_id(&picture["flow"]["links"], "publish:press");
        let ends = ["producer:press", "plant-bus"]
            .map(|id| by_id(&picture["flow"]["stages"], id)["state"].clone());
        (link["state"] == "down" && ends == [json!("broken"), json!("broken")]).then_some(link)
    });
    let link = link.await.unwrap();
    assert_eq!((&link["breaker"], &link["to"]), (&json!("open"), &json!("plant-bus")), "{link}");
    // That the broker is away may be known before there is anything for it.
    let queue = testkit::eventually(LONG, "something waits", async || {
        let queues = operator.see("/api/v1/queues").await;
        let queue = by_id(&queues["items"], "producer:press");
        (queue["held"].as_u64() > Some(0)).then_some(queue)
    });
    let queue = queue.await.unwrap();
    assert_eq!((&queue["kind"], &queue["redrivable"]), (&json!("producer"), &json!(false)));
    // The page shows as a command what stands in backticks.
    assert!(queue["note"].as_str().unwrap().ends_with(": `holdfast scada producer redrive`"));
    let path = "/api/v1/queues/producer:press/redrive";
    assert_eq!(operator.post(path, json!({"dry_run": true})).await.status(), 404);
    console.stop().await;
    producer.stop().await;
}
