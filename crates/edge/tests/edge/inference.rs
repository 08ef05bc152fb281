//! Results of inference over HTTP: once for each id, linked to what is there, told of in one transaction.

use api::tokens::{Role, Tenants};
use edge::inference::enqueue;
use event::id::{DeviceId, FarmId, InferenceResultId, MediaId, SessionId};
use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::LONG;
use crate::weighing::{Barn, JOBS, ODD_IDS, RESULTS, Weighing, refusal};

const TOLD: &str = "SELECT count(*) FROM sync_outbox WHERE event_type = 'inference.completed'";

/// Asks for the evaluation of an image, as whoever stores it does.
pub(crate) async fn ask_for(site: &crate::site::Site, barn: &Barn, media: MediaId) {
    let pool = pg::Pool::new(&site.config.database).unwrap();
    let mut client = pool.get().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    enqueue(&transaction, barn.tenant, media).await.unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_result_is_stored_and_told_of_once() {
    let world = Weighing::new("inference_once").await;
    let (barn, caller) = (world.barn, world.operator().await);
    let session = caller.open(&barn).await;
    let media = world.image(&barn, Some(&session), "stored").await;
    let mut body = barn.result(&session, 0.94);
    body["media_id"] = json!(media);
    body["predicted_size"] = json!("large");
    let answers = join_all((0..8).map(|_| caller.post(RESULTS, &body))).await;
    let made = answers.iter().filter(|one| one.0 == StatusCode::CREATED).count();
    let same = answers.iter().filter(|one| one.0 == StatusCode::OK).count();
    assert_eq!((made, same), (1, 7), "{answers:?}");
    assert!(answers.iter().all(|one| one.1 == answers[0].1));
    let row = &answers[0].1;
    assert_eq!(row["id"], body["inference_result_id"]);
    assert_eq!(row["device_id"], json!(barn.camera), "the image's, not the scale's");

    let mut other = body.clone();
    other["confidence"] = json!(0.95);
    let reused = (409, "id_reused", Some("inference_result_id"));
    assert_eq!(refusal(&caller.post(RESULTS, &other).await), reused);
    let theirs = Barn::new();
    let admin = world.caller(Role::Admin, Tenants::All).await;
    let mut foreign = theirs.result(&admin.open(&theirs).await, 0.94);
    foreign["inference_result_id"] = body["inference_result_id"].clone();
    assert_eq!(refusal(&admin.post(RESULTS, &foreign).await), reused);

    assert_eq!(world.number(TOLD).await, 1);
    let told = world.told().await;
    let (_, payload) = told.iter().find(|(kind, _)| kind == "inference.completed").unwrap();
    let expected = json!({
        "inference_result_id": body["inference_result_id"], "predicted_weight_kg": 121.3,
        "confidence": 0.94, "model_version": "weighvision-v1.2.0", "media_id": media,
        "predicted_size": "large", "session_id": session,
    });
    assert_eq!(*payload, expected);
    // A repeat is answered even when the image has gone.
    world.site.client().await.execute("DELETE FROM media_objects", &[]).await.unwrap();
    assert_eq!(caller.post(RESULTS, &body).await.0, StatusCode::OK);
    world.edge.stop().await;
}

#[tokio::test]
async fn a_result_is_linked_to_what_is_there_and_agrees() {
    let world = Weighing::new("inference_links").await;
    let (barn, caller) = (world.barn, world.operator().await);
    let session = caller.open(&barn).await;
    let other = caller.open(&barn).await;
    let stored = world.image(&barn, Some(&session), "stored").await;
    let theirs = Barn::new();
    let foreign = world.image(&theirs, None, "stored").await;
    let admin = world.caller(Role::Admin, Tenants::All).await;
    let their_session = admin.open(&theirs).await;

    let mut bad: Vec<(&str, Value, &str)> = vec![
        ("session_id", json!(SessionId::mint()), "unknown_session"),
        ("session_id", json!(their_session), "unknown_session"),
        ("media_id", json!(MediaId::mint()), "unknown_media"),
        ("media_id", json!(foreign), "unknown_media"),
        ("farm_id", json!(FarmId::mint()), "contradiction"),
    ];
    for status in ["pending", "missing", "deleted"] {
        let media = world.image(&barn, Some(&session), status).await;
        bad.push(("media_id", json!(media), "unknown_media"));
    }
    for (field, value, code) in bad {
        let mut body = barn.result(&session, 0.5);
        body[field] = value;
        let answer = caller.post(RESULTS, &body).await;
        assert_eq!(refusal(&answer), (422, code, Some(field)), "{body}");
    }
    for (field, value) in [("session_id", json!(other)), ("device_id", json!(DeviceId::mint()))] {
        let mut body = barn.result(&session, 0.5);
        body["media_id"] = json!(stored);
        body[field] = value;
        assert_eq!(
            refusal(&caller.post(RESULTS, &body).await),
            (422, "contradiction", Some(field))
        );
    }
    for (field, value) in [
        ("confidence", json!(1.01)),
        ("confidence", json!(-0.01)),
        ("predicted_weight_kg", json!("121")),
        ("model_version", json!("")),
        ("model_version", json!("a\u{0}b")),
        ("predicted_size", json!(3)),
        ("occurred_at", json!("yesterday")),
        ("inference_result_id", Value::Null),
        ("colour", json!("brown")),
        ("trace_id", json!("a b")),
    ] {
        let mut body = barn.result(&session, 0.5);
        body[field] = value;
        let answer = caller.post(RESULTS, &body).await;
        assert_eq!(refusal(&answer), (400, "malformed", Some(field)), "{body}");
    }
    for odd in ODD_IDS {
        for field in ["inference_result_id", "tenant_id", "session_id", "media_id", "device_id"] {
            let mut body = barn.result(&session, 0.5);
            body[field] = json!(odd);
            assert_eq!(
                refusal(&caller.post(RESULTS, &body).await),
                (400, "malformed", Some(field))
            );
        }
    }
    let mut nowhere = barn.result(&session, 0.5);
    nowhere["session_id"] = Value::Null;
    assert_eq!(refusal(&caller.post(RESULTS, &nowhere).await), (400, "malformed", Some("farm_id")));
    assert_eq!(world.number(TOLD).await, 0);

    nowhere["farm_id"] = json!(barn.farm);
    nowhere["barn_id"] = json!(barn.barn);
    nowhere["device_id"] = json!(barn.camera);
    assert_eq!(caller.post(RESULTS, &nowhere).await.0, 201, "a place of its own is enough");
    let mut by_media = barn.result(&session, 0.5);
    by_media["session_id"] = Value::Null;
    by_media["media_id"] = json!(stored);
    let (status, row) = caller.post(RESULTS, &by_media).await;
    assert_eq!(
        (status.as_u16(), &row["session_id"]),
        (201, &json!(session)),
        "the image's session"
    );
    assert_eq!(world.number(TOLD).await, 2);
    world.edge.stop().await;
}

#[tokio::test]
async fn a_role_does_what_it_may_and_lists_go_on() {
    let world = Weighing::new("inference_matrix").await;
    let (ours, theirs) = (world.barn, Barn::new());
    let one = |barn: &Barn| Tenants::Only(vec![barn.tenant]);
    let viewer = world.caller(Role::Viewer, one(&ours)).await;
    let vision = world.caller(Role::Edge, one(&ours)).await;
    let stranger = world.caller(Role::Admin, one(&theirs)).await;
    let session = vision.open(&ours).await;
    for n in 0..5 {
        let result = ours.result(&session, f64::from(n) / 10.0);
        assert_eq!(vision.post(RESULTS, &result).await.0, 201);
        assert_eq!(viewer.post(RESULTS, &result).await.0, 403);
        assert_eq!(stranger.post(RESULTS, &result).await.0, 403);
    }
    for path in [RESULTS, JOBS] {
        assert_eq!(vision.get(path).await.0, 403);
        assert_eq!(stranger.get(&format!("{path}?tenant_id={}", ours.tenant)).await.0, 403);
        assert_eq!(stranger.get(path).await.1["rows"], json!([]));
        for query in ["limit=0", "limit=501", "after=..", "what=1", "tenant_id=1"] {
            assert_eq!(viewer.get(&format!("{path}?{query}")).await.0, 400, "{path} {query}");
        }
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..3 {
        let (_, page) = viewer.get(&format!("{RESULTS}?limit=2&session_id={session}{after}")).await;
        let rows = page["rows"].as_array().unwrap();
        seen.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        after = format!("&after={}", page["next"].as_str().unwrap_or_default());
    }
    assert_eq!((seen.len(), after.as_str()), (5, "&after="));
    for (query, rows) in [
        ("model_version=weighvision-v1.2.0", 5),
        ("model_version=other", 0),
        ("since=2026-02-01T10:06:00Z&until=2026-02-01T10:06:01Z", 5),
        ("until=2026-02-01T10:06:00Z", 0),
    ] {
        let (_, page) = viewer.get(&format!("{RESULTS}?{query}")).await;
        assert_eq!(page["rows"].as_array().unwrap().len(), rows, "{query}");
    }
    let path = format!("{RESULTS}/{}", seen[0]);
    assert_eq!(viewer.get(&path).await.1["id"], json!(seen[0]));
    assert_eq!(stranger.get(&path).await.0, 404);
    assert_eq!(viewer.get(&format!("{RESULTS}/..%2f..%2fx")).await.0, 404);
    assert_eq!(viewer.get(&format!("{RESULTS}/{}", InferenceResultId::mint())).await.0, 404);
    world.edge.stop().await;
}

#[tokio::test]
async fn an_image_is_asked_for_once_and_its_result_answers_it() {
    let world = Weighing::new("inference_jobs").await;
    let (barn, operator) = (world.barn, world.operator().await);
    let viewer = world.caller(Role::Viewer, Tenants::Only(vec![barn.tenant])).await;
    let (answered, dead) =
        (world.image(&barn, None, "stored").await, world.image(&barn, None, "stored").await);
    for media in [answered, answered, dead] {
        ask_for(&world.site, &barn, media).await;
    }
    assert_eq!(world.number("SELECT count(*) FROM inference_jobs").await, 2);
    let mut body = barn.result("x", 0.5);
    body["session_id"] = Value::Null;
    body["media_id"] = json!(answered);
    assert_eq!(operator.post(RESULTS, &body).await.0, 201);

    let bury = "UPDATE inference_jobs SET status = 'dlq', failed_at = now(), dlq_reason = 'r',
        attempt_count = 5, last_stderr = 'words'";
    world.site.client().await.execute(bury, &[]).await.unwrap();
    let (_, page) = operator.get(&format!("{JOBS}?status=dlq")).await;
    let rows = page["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["media_id"]), (1, &json!(dead)), "the other is answered");
    assert_eq!(rows[0]["last_stderr"], "words");
    let (_, page) = viewer.get(JOBS).await;
    assert_eq!(page["rows"][0].get("last_stderr"), None, "a model may print what it reads");
    let path = format!("{JOBS}/{}/redrive", rows[0]["id"].as_str().unwrap());
    let stranger = world.caller(Role::Admin, Tenants::Only(vec![Barn::new().tenant])).await;
    assert_eq!(viewer.post(&path, &Value::Null).await.0, 403);
    assert_eq!(stranger.post(&path, &Value::Null).await.0, 404);
    assert_eq!(operator.post(&format!("{JOBS}/x/redrive"), &Value::Null).await.0, 404);
    let (status, job) = operator.post(&path, &Value::Null).await;
    assert_eq!(
        (status.as_u16(), &job["status"], &job["attempt_count"]),
        (200, &json!("pending"), &json!(0))
    );
    let again = operator.post(&path, &Value::Null).await;
    assert_eq!(refusal(&again), (409, "wrong_state", Some("status")));
    assert_eq!(again.1["error"]["state"], "pending");
    world.edge.stop().await;
}

#[tokio::test]
async fn jobs_that_nobody_asks_for_are_forgotten_where_there_is_no_model() {
    let world = Weighing::new("inference_unasked").await;
    world.edge.stop().await;
    let (old, young) =
        (image(&world.site, &world.barn).await, image(&world.site, &world.barn).await);
    for (media, days) in [(old, 8), (young, 6)] {
        ask_for(&world.site, &world.barn, media).await;
        let age = format!(
            "UPDATE inference_jobs SET next_attempt_at = now() - interval '{days} days'
             WHERE media_id = '{media}'"
        );
        world.site.client().await.execute(&age, &[]).await.unwrap();
    }
    let pairs = [("ROLES", "inference")];
    let edge = crate::site::start(&crate::site::config(world.site.database.url(), &pairs)).await;
    let left = "SELECT string_agg(media_id::text, ' ') FROM inference_jobs";
    eventually(LONG, "the old job is gone", async || {
        world.site.text(left).await == young.to_string()
    })
    .await
    .unwrap();
    edge.stop().await;
}

async fn image(site: &crate::site::Site, barn: &Barn) -> MediaId {
    crate::weighing::image(site, barn, None, "stored", 3).await
}
