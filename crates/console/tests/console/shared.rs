//! However many browsers look, an upstream is asked once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use api::tokens::{Role, Tenants};
use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::ground::{Browser, Ground, LONG, token};

/// A door before a real tier that counts who goes through, by path.
#[derive(Clone, Default)]
struct Door(Arc<Mutex<BTreeMap<String, usize>>>);

impl Door {
    /// Stands before this address; the address of the door.
    async fn before(&self, upstream: &str) -> String {
        let (upstream, counts) = (upstream.to_owned(), Arc::clone(&self.0));
        let client = reqwest::Client::new();
        let pass = async move |request: Request| {
            let path = request.uri().path().to_owned();
            *counts.lock().unwrap().entry(path).or_default() += 1;
            let asked = client.get(format!("{upstream}{}", request.uri()));
            let asked = asked.header("authorization", &request.headers()["authorization"]);
            let answer = asked.send().await.unwrap();
            (answer.status(), answer.bytes().await.unwrap()).into_response()
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(pass);
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }

    fn count(&self, path: &str) -> usize {
        self.0.lock().unwrap().get(path).copied().unwrap_or_default()
    }
}

const BROWSERS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn thirty_browsers_ask_as_much_as_one() {
    let ground = Ground::new("console_shared").await;
    let [site, cloud, historian] = [Door::default(), Door::default(), Door::default()];
    let edge = format!("http://{}", ground.edge.http());
    let sites = ground.setting("SITES").replace(&edge, &site.before(&edge).await);
    let cloud_url = cloud.before(ground.setting("CLOUD_URL")).await;
    let historian_url = historian.before(ground.setting("HISTORIAN_URL")).await;
    let settings = [
        ("SITES", sites.as_str()),
        ("CLOUD_URL", &cloud_url),
        ("HISTORIAN_URL", &historian_url),
        ("POLL_EVERY", "1s"),
    ];
    let console = ground.another(&settings).await;
    let secret = token(&ground.cloud_database, "somebody", Role::Operator, Tenants::All).await;
    let operator = Browser::new(&console).sign_in(&secret).await;
    testkit::eventually(LONG, "all have answered", async || {
        let picture = operator.see("/api/v1/picture").await;
        picture["upstreams"].as_array().unwrap().iter().all(|one| one["state"] == "here")
    })
    .await
    .unwrap();
    // What somebody looks at, who is asked for it, and how many seconds an answer may be old.
    let looks = [
        ("/api/v1/queues", &site, "/api/v1/sync/dead-letters", 2),
        ("/api/v1/queues", &cloud, "/api/v1/relay/dead-letters", 2),
        ("/api/v1/queues", &cloud, "/api/v1/dead-letters", 2),
        ("/api/v1/queues", &historian, "/api/v1/dead-letters", 2),
        ("/api/v1/alarms?open=true", &historian, "/api/v1/alarm-states", 1),
        ("/api/v1/alarms?open=true", &historian, "/api/v1/summary", 1),
        ("/api/v1/explore/series?q=b", &historian, "/api/v1/telemetry/tags", 10),
        ("/api/v1/explore/series?q=ba", &site, "/api/v1/telemetry/series", 10),
    ];
    for (path, door, upstream, life) in looks {
        let (before, began) = (door.count(upstream), Instant::now());
        join_all((0..BROWSERS).map(|_| operator.see(path))).await;
        let asked = door.count(upstream) - before;
        // A tenant each, where it is asked for by tenant; again when the machine is so slow that an answer has grown old; and the console's
        // own poll of the summary, once a second.
        let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
        let most = 2 * (1 + seconds / life) + 1 + seconds;
        assert!(asked <= most, "{path}: {BROWSERS} browsers asked for {upstream} {asked} times");
    }
    assert!(historian.count("/api/v1/alarm-states") > 0, "it was asked through the door");
    assert!(site.count("/api/v1/telemetry/series") > 0);
    console.stop().await;
}

/// A site and a plant with more series than a page has.
#[tokio::test(flavor = "multi_thread")]
async fn every_series_is_found_by_its_name() {
    let ground = Ground::new("console_many_series").await;
    let client = ground.edge_database.connect().await.unwrap();
    client
        .execute(
            "INSERT INTO telemetry_series (tenant_id, device_id, metric_type, unit, first_at, last_at)
             SELECT $1, $2, 'metric_' || lpad(n::text, 5, '0'), 'C', now(), now() FROM generate_series(1, 2500) AS n",
            &[&ground.barn.tenant.uuid(), &ground.barn.enrolled.device_id.uuid()],
        )
        .await
        .unwrap();
    let client = ground.historian_database.connect().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO telemetry (event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
             SELECT gen_random_uuid(), now(), 'PLANT01', 'AREA01', 'UNIT_01', 'TAG_' || lpad(n::text, 5, '0'), 1, 'C', 'GOOD', 1
             FROM generate_series(1, 1500) AS n",
        )
        .await
        .unwrap();
    let operator = ground.operator().await;
    let last = testkit::eventually(LONG, "the last series is found", async || {
        let list = operator.see("/api/v1/explore/series?q=METRIC_02500").await;
        list["items"].as_array().unwrap().first().cloned().map(|one| (one, list))
    });
    let (last, list) = last.await.unwrap();
    assert_eq!((&last["name"], &list["more"]), (&json!("barn-1 metric_02500"), &json!(false)));
    let names = async |query: &str| -> (Vec<Value>, Value) {
        let list = operator.see(&format!("/api/v1/explore/series?{query}")).await;
        let items = list["items"].as_array().unwrap().iter();
        (items.map(|one| one["name"].clone()).collect(), list["more"].clone())
    };
    let tag = json!("PLANT01.AREA01.UNIT_01.TAG_01500");
    assert_eq!(names("q=tag_01500").await, (vec![tag], json!(false)));
    let (first, more) = names("limit=2").await;
    assert_eq!(first, [json!("barn-1 metric_00001"), json!("barn-1 metric_00002")]);
    assert_eq!(more, true);
}
