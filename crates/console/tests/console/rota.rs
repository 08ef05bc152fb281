//! People's schedules, asked of a real intake.

use std::net::SocketAddr;

use api::tokens::{Role, Tenants};
use schedule::intake::{Intake, Limits, serve};
use serde_json::{Value, json};
use testkit::{Database, EmbeddedStore};

use crate::ground::{Ground, LONG, code, token};

/// Versions of a day as somebody's backend writes them.
const VERSIONS: &str = "
    INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
    SELECT gen_random_uuid(), 4711, 'pending', now() FROM generate_series(1, 2);
    UPDATE schedule_ingest.capture_session SET state = 'processing', locked_at = now(), locked_by = 'c';
    DO $$ DECLARE s record; BEGIN
        FOR s IN SELECT id, user_id, row_number() OVER (ORDER BY id) AS n FROM schedule_ingest.capture_session LOOP
            INSERT INTO schedule_ingest.schedule_version
                (user_id, schedule_date, version, session_id, payload_hash, payload, created_at)
            VALUES (s.user_id, '2026-11-17', s.n, s.id, s.n::text, jsonb_build_object('schedule_date', '2026-11-17',
                'timezone', 'Europe/Berlin', 'shifts', jsonb_build_array(jsonb_build_object('customer', '',
                    'end', '16:00', 'ends_next_day', false, 'kind', 'regular', 'location', 'ward ' || s.n,
                    'start', '08:00', 'title', 'nurse'))), now());
        END LOOP;
    END $$";

async fn serving(database: &Database, store: &EmbeddedStore) -> SocketAddr {
    let pool = pg::Pool::new(&pg::Options::new(database.url())).unwrap();
    let intake = Intake::new(pool, store.address(), store.address(), Limits::default()).unwrap();
    let listener = api::serve::Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).unwrap();
    let address = listener.address();
    let metrics = schedule::metrics::Metrics::new(&pg::Options::new(database.url())).unwrap();
    tokio::spawn(serve(listener, intake, metrics, std::future::pending()));
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_week_is_shown_to_whoever_sees_everything() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = testkit::database("console_rota", "schedule", async |url| {
        schedule::migration::migrate(&pg::Options::new(url)).await
    });
    let database = database.await.unwrap();
    let store = EmbeddedStore::start().await.unwrap();
    let address = serving(&database, &store).await;
    let asks = token(&database, "console", Role::Viewer, Tenants::All).await;
    let url = format!("http://{address}");
    let settings = [("SCHEDULE_URL", url.as_str()), ("SCHEDULE_TOKEN", asks.as_str())];
    let ground = Ground::with("console_rota", &settings).await;
    let viewer = ground.sign_in(Role::Viewer, Tenants::All).await;
    assert!(
        viewer.see("/api/v1/me").await["views"].as_array().unwrap().contains(&json!("schedules"))
    );
    let empty = viewer.see("/api/v1/schedules/week").await;
    assert_eq!((&empty["user"], &empty["users"]), (&Value::Null, &json!([])));
    assert_eq!(empty["days"].as_array().unwrap().len(), 7);

    database.connect().await.unwrap().batch_execute(VERSIONS).await.unwrap();
    let week = viewer.see("/api/v1/schedules/week?from=2026-11-16").await;
    assert_eq!((&week["user"], &week["users"]), (&json!("4711"), &json!(["4711"])));
    let tuesday = &week["days"][1];
    assert_eq!(tuesday["schedule_date"], "2026-11-17");
    assert_eq!(
        (&tuesday["current_version"], &tuesday["timezone"]),
        (&json!(2), &json!("Europe/Berlin"))
    );
    let change = &tuesday["versions"][1]["changes"][0];
    assert_eq!(change["types"], json!(["shift_relocated"]));
    assert_eq!(
        (&change["old"]["location"], &change["new"]["location"]),
        (&json!("ward 1"), &json!("ward 2"))
    );
    assert_eq!(week["days"][0]["current_version"], Value::Null);
    let unknown = viewer.see("/api/v1/schedules/week?user=-1&from=2026-11-16").await;
    assert_eq!((&unknown["user"], &unknown["days"][1]["versions"]), (&json!("-1"), &json!([])));
    for wrong in ["user=anna", "from=soon", "user=4711&week=1", "from=9999-12-31"] {
        let refused = viewer.get(&format!("/api/v1/schedules/week?{wrong}")).await;
        assert_eq!(code(refused).await, (400, "malformed".to_owned()), "{wrong}");
    }

    let bound = ground.sign_in(Role::Operator, Tenants::Only(vec![ground.barn.tenant])).await;
    let me = bound.see("/api/v1/me").await;
    assert!(!me["views"].as_array().unwrap().contains(&json!("schedules")), "{me}");
    let refused = bound.get("/api/v1/schedules/week").await;
    assert_eq!(code(refused).await, (403, "forbidden".to_owned()));
    testkit::eventually(LONG, "the picture says that schedules are here", async || {
        let picture = viewer.see("/api/v1/picture").await;
        let found = picture["upstreams"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| (&one["id"], &one["state"]) == (&json!("schedule"), &json!("here")));
        found.then_some(()).ok_or(picture["upstreams"].clone())
    })
    .await
    .unwrap();
    let seen = bound.see("/api/v1/picture").await;
    assert!(seen["upstreams"].as_array().unwrap().iter().all(|one| one["id"] != "schedule"));
    store.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_that_are_away_break_nothing_else() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = [("SCHEDULE_URL", "http://127.0.0.1:9"), ("SCHEDULE_TOKEN", "hf_nothing")];
    let ground = Ground::with("console_rota_away", &settings).await;
    let viewer = ground.sign_in(Role::Viewer, Tenants::All).await;
    let refused = viewer.get("/api/v1/schedules/week").await;
    assert_eq!(code(refused).await, (503, "away".to_owned()));
    assert_eq!(viewer.get("/api/v1/nodes").await.status(), 200);
}
