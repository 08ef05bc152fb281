//! Behind the bus: consumers that are not there, and a relay that leaves the bus alone, as the page shows them.

use api::tokens::{Role, Tenants};
use cloud::{Cloud, Work};
use serde_json::Value;
use testkit::eventually;

use crate::ground::{Browser, Ground, LONG, cloud_config};

fn of<'a>(picture: &'a Value, what: &str, id: &str) -> &'a Value {
    let all = picture["flow"][what].as_array().unwrap();
    all.iter().find(|one| one["id"] == id).unwrap()
}

async fn sees(browser: &Browser, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    eventually(LONG, what, async || {
        let picture = browser.see("/api/v1/picture").await;
        holds(&picture).then_some(picture)
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_consumes_wait_on_the_bus_and_the_way_to_the_stores_is_down() {
    let vhost = testkit::rabbitmq().await.unwrap();
    let roles = |roles| [("BUS", "rabbitmq"), ("RABBITMQ_URL", vhost.url()), ("ROLES", roles)];
    let ground = Ground::laid("console_behind", &[], &roles("ingestion,relay")).await;
    let operator = ground.operator().await;
    let empty = sees(&operator, "it is noticed that nobody is there", |picture| {
        of(picture, "links", "store")["state"] == "degraded"
    });
    let empty = empty.await;
    assert_eq!(of(&empty, "stages", "bus")["held"], 0, "nothing waits yet");
    assert_eq!(of(&empty, "links", "relay")["breaker"], "closed");
    ground.ingest(&ground.barn, 1..=30).await;
    let waits = sees(&operator, "what waits is counted", |picture| {
        of(picture, "stages", "bus")["held"].as_u64() >= Some(30)
    });
    let waits = waits.await;
    let (bus, link) = (of(&waits, "stages", "bus"), of(&waits, "links", "store"));
    assert_eq!((&bus["state"], &link["state"]), (&"broken".into(), &"down".into()), "{waits}");
    assert!(bus["detail"].as_str().unwrap().contains("nobody consumes"), "{bus}");
    assert!(bus["oldest_age_s"].is_number() && link["since"].is_string(), "{bus} {link}");
    let queues = operator.see("/api/v1/queues").await;
    let row = queues["items"].as_array().unwrap().iter().find(|row| row["id"] == "bus").unwrap();
    assert!(row["held"].as_u64() >= Some(30) && row["state"] == "broken", "{row}");
    assert!(row["last_failure"].as_str().unwrap().contains("nobody consumes"), "{row}");
    // Whoever sees one tenant sees that it is down, and not how much of others waits.
    let one = ground.sign_in(Role::Viewer, Tenants::Only(vec![ground.barn.tenant])).await;
    let seen = one.see("/api/v1/picture").await;
    let (bus, link) = (of(&seen, "stages", "bus"), of(&seen, "links", "store"));
    assert_eq!((&link["state"], &bus["held"]), (&"down".into(), &Value::Null), "{seen}");

    let consumers = cloud_config(&ground.cloud_database, &roles("telemetry,analytics,media"));
    let consumers = Cloud::start(consumers).await.unwrap();
    let drained = sees(&operator, "what waited is taken", |picture| {
        let (bus, link) = (of(picture, "stages", "bus"), of(picture, "links", "store"));
        link["state"] == "up" && bus["held"] == 0
    });
    drained.await;
    consumers.stop().await;
    let gone = sees(&operator, "they are gone again", |picture| {
        of(picture, "links", "store")["state"] == "degraded"
    });
    gone.await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_consumer_that_ended_is_noticed_and_the_relay_leaves_the_bus_alone() {
    let ground = Ground::new("console_ended").await;
    let config = cloud_config(&ground.cloud_database, &[]);
    // The consumers of this one end at once; the ground's own cloud would publish for it.
    let works = cloud::consume::groups().into_iter();
    let works = works.map(|group| Work::new(group, async |_, _, _| {})).collect();
    let Ground { cloud, .. } = ground;
    cloud.stop().await;
    let broken = Cloud::start_with(config, works).await.unwrap();
    let asked = crate::ground::token(&ground.cloud_database, "x", Role::Viewer, Tenants::All).await;
    let client = reqwest::Client::new();
    let summary = async || -> Value {
        let url = format!("http://{}/api/v1/summary", broken.http());
        client.get(url).bearer_auth(&asked).send().await.unwrap().json().await.unwrap()
    };
    let abandoned = eventually(LONG, "nobody is said to consume", async || {
        let consumers = summary().await["consumers"].take();
        let queues = consumers["queues"].as_array().unwrap();
        let nobody = !queues.is_empty() && queues.iter().all(|queue| queue["consumers"] == 0);
        nobody.then_some(consumers)
    });
    assert_eq!(abandoned.await.unwrap()["unknown"], Value::Null);
    let database = ground.cloud_database.connect().await.unwrap();
    database
        .batch_execute(
            "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, routing_key, envelope)
             VALUES (gen_random_uuid(), gen_random_uuid(), 'telemetry.ingested', now(), 'telemetry.ingested', '{}')",
        )
        .await
        .unwrap();
    eventually(LONG, "the breaker opens", async || {
        summary().await["consumers"]["breaker"] == "open"
    })
    .await
    .unwrap();
    broken.stop().await;
}
