//! Weighing sessions: every transition, over HTTP and by plain SQL; who may do what; what is told.

use api::tokens::{Role, Tenants};
use event::id::{InferenceResultId, SessionId};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::weighing::{Barn, ODD_IDS, RESULTS, SESSIONS, Weighing, refusal};

#[tokio::test]
async fn a_session_lives_and_is_told_of_in_order() {
    let world = Weighing::new("sessions_life").await;
    let (barn, caller) = (world.barn, world.operator().await);
    let id = caller.open(&barn).await;
    for status in ["stored", "stored", "pending", "missing", "deleted"] {
        world.image(&barn, Some(&id), status).await;
    }
    world.image(&Barn::new(), Some(&id), "stored").await;
    let (low, high) = (barn.result(&id, 0.4), barn.result(&id, 0.9));
    for result in [&low, &high] {
        assert_eq!(caller.post(RESULTS, result).await.0, StatusCode::CREATED);
    }
    let body = json!({"final_weight_kg": 121.0, "end_at": "2026-02-01T10:07:00Z"});
    let (status, session) = caller.finalize(&id, &body).await;
    assert_eq!(status, StatusCode::OK, "{session}");
    assert_eq!(session["status"], "finalized");
    assert_eq!(session["image_count"], 2, "those that are stored, of this tenant");
    assert_eq!(session["inference_result_id"], high["inference_result_id"], "the surest");

    let (_, shown) = caller.get(&format!("{SESSIONS}/{id}")).await;
    assert_eq!(shown["final_weight_kg"], 121.0);
    assert_eq!(
        (shown["media"].as_array().unwrap().len(), shown["results"].as_array().unwrap().len()),
        (2, 2)
    );

    let told = world.told().await;
    let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
    let expected = [
        "weighvision.session.created",
        "inference.completed",
        "inference.completed",
        "weighvision.session.finalized",
    ];
    assert_eq!(kinds, expected, "in the order in which they go to the cloud");
    assert_eq!(
        told[0].1,
        json!({"status": "created", "batch_id": null, "initial_weight_kg": 120.5, "session_id": id})
    );
    let mut ids = vec![&low["inference_result_id"], &high["inference_result_id"]];
    ids.sort_by_key(|id| id.as_str());
    let finalized = json!({
        "status": "finalized", "final_weight_kg": 121.0, "image_count": 2,
        "inference_result_id": high["inference_result_id"], "inference_result_count": 2,
        "inference_result_ids": ids, "session_id": id,
    });
    assert_eq!(told[3].1, finalized);
    world.edge.stop().await;
}

/// Ends a session in one way, then tries every way.
#[tokio::test]
async fn an_ended_session_does_not_change_any_more() {
    let world = Weighing::new("sessions_states").await;
    let caller = world.operator().await;
    let weight = json!({"final_weight_kg": 121.0});
    for state in ["finalized", "cancelled"] {
        let id = caller.open(&world.barn).await;
        let (status, ended) = match state {
            "finalized" => caller.finalize(&id, &weight).await,
            _ => caller.cancel(&id, &json!({"reason": "escaped"})).await,
        };
        assert_eq!((status, ended["status"].as_str()), (StatusCode::OK, Some(state)));
        let before = world.told().await;
        let others = [
            caller.finalize(&id, &json!({"final_weight_kg": 122.0})).await,
            caller
                .finalize(&id, &json!({"final_weight_kg": 121.0, "end_at": "2026-02-01T10:07:00Z"}))
                .await,
            caller.cancel(&id, &json!({"reason": "another"})).await,
            caller.cancel(&id, &Value::Null).await,
        ];
        for answer in &others {
            assert_eq!(refusal(answer), (409, "wrong_state", Some("status")), "{state}");
            assert_eq!(answer.1["error"]["state"], state);
            let message = answer.1["error"]["message"].as_str().unwrap();
            assert!(message.contains(state), "{message}");
        }
        // What happened, once more: the answer may have been lost.
        let again = match state {
            "finalized" => caller.finalize(&id, &weight).await,
            _ => caller.cancel(&id, &json!({"reason": "escaped"})).await,
        };
        assert_eq!(again, (StatusCode::OK, ended));
        assert_eq!(world.told().await, before, "nothing more is told");
    }
    let told = world.told().await;
    let cancelled = told.iter().find(|(kind, _)| kind == "weighvision.session.cancelled").unwrap();
    assert_eq!(
        (&cancelled.1["status"], &cancelled.1["reason"]),
        (&json!("cancelled"), &json!("escaped"))
    );
    world.edge.stop().await;
}

#[tokio::test]
async fn the_database_refuses_what_http_refuses() {
    let world = Weighing::new("sessions_sql").await;
    let caller = world.operator().await;
    let ends = [
        (
            "finalized",
            "status = 'finalized', end_at = start_at, final_weight_kg = 1, image_count = 0",
        ),
        ("cancelled", "status = 'cancelled', end_at = start_at, cancel_reason = 'x'"),
    ];
    let client = world.site.client().await;
    let update = async |set: &str, id: &str| {
        client.execute(&format!("UPDATE weight_sessions SET {set} WHERE id = '{id}'"), &[]).await
    };
    for (state, end) in ends {
        let id = caller.open(&world.barn).await;
        for half in [
            "status = 'finalized'",
            "status = 'finalized', end_at = start_at, final_weight_kg = 1",
            "status = 'finalized', end_at = start_at, image_count = 1",
            "status = 'finalized', end_at = start_at, final_weight_kg = 'NaN', image_count = 1",
            "status = 'cancelled'",
            "status = 'cancelled', end_at = start_at - interval '1 s'",
            "status = 'cancelled', end_at = start_at, final_weight_kg = 1",
            "status = 'lost', end_at = start_at",
            "end_at = start_at",
            "final_weight_kg = 1",
            "image_count = 1",
            "cancel_reason = 'x'",
            "initial_weight_kg = 'Infinity'",
            "tenant_id = gen_random_uuid()",
        ] {
            assert!(update(half, &id).await.is_err(), "{half}");
        }
        update("batch_id = gen_random_uuid(), initial_weight_kg = 119", &id).await.unwrap();
        update(end, &id).await.unwrap();
        for change in [
            "status = 'created', end_at = NULL, final_weight_kg = NULL, image_count = NULL, cancel_reason = NULL",
            "status = 'finalized', final_weight_kg = 2, image_count = 0, cancel_reason = NULL",
            "status = 'cancelled', final_weight_kg = NULL, image_count = NULL, cancel_reason = 'y'",
            "end_at = end_at + interval '1 s'",
            "initial_weight_kg = 3",
        ] {
            let refused = update(change, &id).await.unwrap_err();
            assert_eq!(refused.code().unwrap().code(), "23514", "{state}: {change}");
        }
        update("updated_at = now()", &id).await.unwrap();
    }
    world.edge.stop().await;
}

#[tokio::test]
async fn a_result_is_chosen_by_name_and_times_must_be_right() {
    let world = Weighing::new("sessions_choice").await;
    let (barn, caller) = (world.barn, world.operator().await);
    let (id, other) = (caller.open(&barn).await, caller.open(&barn).await);
    let (low, high, foreign) =
        (barn.result(&id, 0.4), barn.result(&id, 0.9), barn.result(&other, 1.0));
    for result in [&low, &high, &foreign] {
        assert_eq!(caller.post(RESULTS, result).await.0, StatusCode::CREATED);
    }
    for unknown in [&foreign["inference_result_id"], &json!(InferenceResultId::mint())] {
        let body = json!({"final_weight_kg": 1, "inference_result_id": unknown});
        let answer = caller.finalize(&id, &body).await;
        assert_eq!(refusal(&answer), (422, "unknown_result", Some("inference_result_id")));
    }
    for (body, field) in [
        (json!({}), "final_weight_kg"),
        (json!({"final_weight_kg": "1"}), "final_weight_kg"),
        (json!({"final_weight_kg": 1, "end_at": "2026-02-01T10:04:59Z"}), "end_at"),
        (json!({"final_weight_kg": 1, "end_at": "now"}), "end_at"),
        (json!({"final_weight_kg": 1, "weight": 1}), "weight"),
        (json!({"final_weight_kg": 1, "inference_result_id": "../x"}), "inference_result_id"),
    ] {
        let answer = caller.finalize(&id, &body).await;
        assert_eq!(refusal(&answer), (400, "malformed", Some(field)), "{body}");
    }
    let body = json!({"final_weight_kg": 1, "inference_result_id": low["inference_result_id"],
        "end_at": "2026-02-01T10:05:00Z"});
    let (_, session) = caller.finalize(&id, &body).await;
    assert_eq!(session["inference_result_id"], low["inference_result_id"]);
    let later = "SELECT count(*) FROM sync_outbox f JOIN sync_outbox c USING (session_id)
        WHERE f.event_type LIKE '%finalized' AND c.event_type LIKE '%created'
          AND f.occurred_at > c.occurred_at";
    assert_eq!(world.number(later).await, 1, "the end is after the start, even at one time");

    // A late result is kept, and the choice stays.
    assert_eq!(caller.post(RESULTS, &barn.result(&id, 1.0)).await.0, StatusCode::CREATED);
    let (_, shown) = caller.get(&format!("{SESSIONS}/{id}")).await;
    assert_eq!(shown["inference_result_id"], low["inference_result_id"]);
    assert_eq!(shown["results"].as_array().unwrap().len(), 3);
    world.edge.stop().await;
}

#[tokio::test]
async fn a_role_does_what_it_may_and_a_tenant_sees_its_own() {
    let world = Weighing::new("sessions_matrix").await;
    let (ours, theirs) = (world.barn, Barn::new());
    let one = |barn: &Barn| Tenants::Only(vec![barn.tenant]);
    let viewer = world.caller(Role::Viewer, one(&ours)).await;
    let scale = world.caller(Role::Edge, one(&ours)).await;
    let operator = world.caller(Role::Operator, one(&ours)).await;
    let stranger = world.caller(Role::Admin, one(&theirs)).await;
    let admin = world.caller(Role::Admin, Tenants::All).await;
    let weight = json!({"final_weight_kg": 1});

    let id = scale.open(&ours).await;
    let path = format!("{SESSIONS}/{id}");
    assert_eq!(viewer.create("k", &ours.session()).await.0, 403);
    assert_eq!(viewer.finalize(&id, &weight).await.0, 403);
    assert_eq!(viewer.cancel(&id, &Value::Null).await.0, 403);
    assert_eq!(scale.get(SESSIONS).await.0, 403);
    assert_eq!(scale.get(&path).await.0, 403);
    for caller in [&viewer, &operator, &admin] {
        assert_eq!(caller.get(&path).await.0, 200);
        assert_eq!(caller.get(SESSIONS).await.1["rows"].as_array().unwrap().len(), 1);
    }
    for caller in [&scale, &operator, &viewer] {
        assert_eq!(caller.create("k", &theirs.session()).await.0, 403);
    }
    assert_eq!(stranger.get(SESSIONS).await.1["rows"], json!([]));
    let named = format!("{SESSIONS}?tenant_id={}", ours.tenant);
    assert_eq!(stranger.get(&named).await.0, 403);
    assert_eq!(stranger.get(&path).await.0, 404);
    assert_eq!(refusal(&stranger.finalize(&id, &weight).await).0, 404);
    assert_eq!(refusal(&stranger.cancel(&id, &Value::Null).await).0, 404);
    assert_eq!(
        world.number("SELECT count(*) FROM weight_sessions WHERE status = 'created'").await,
        1
    );

    for odd in ODD_IDS.iter().filter(|id| !id.is_empty() && !id.contains("../")) {
        let encoded: String = form_urlencoded::byte_serialize(odd.as_bytes()).collect();
        let path = format!("{SESSIONS}/{}", encoded.replace('+', "%20"));
        assert_eq!(admin.get(&path).await.0, 404, "{odd}");
        assert_eq!(admin.post(&format!("{path}/finalize"), &weight).await.0, 404, "{odd}");
        assert_eq!(admin.post(&format!("{path}/cancel"), &Value::Null).await.0, 404, "{odd}");
    }
    assert_eq!(admin.get(&format!("{SESSIONS}/{}", SessionId::mint())).await.0, 404);
    for odd in ODD_IDS {
        for field in ["tenant_id", "farm_id", "barn_id", "device_id", "batch_id"] {
            let mut body = ours.session();
            body[field] = json!(odd);
            let answer = admin.create("odd", &body).await;
            assert_eq!(refusal(&answer), (400, "malformed", Some(field)), "{odd}");
        }
    }
    world.edge.stop().await;
}

#[tokio::test]
async fn lists_are_filtered_and_go_on_page_by_page() {
    let world = Weighing::new("sessions_list").await;
    let (barn, caller) = (world.barn, world.operator().await);
    for n in 0..7 {
        let mut body = barn.session();
        // Several begin at the same moment.
        body["start_at"] = json!(format!("2026-02-01T10:0{}:00Z", n / 2));
        assert_eq!(caller.create(&format!("key-{n}"), &body).await.0, 201);
    }
    let (_, all) = caller.get(SESSIONS).await;
    let ids = |page: &Value| -> Vec<String> {
        let rows = page["rows"].as_array().unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..4 {
        let (_, page) = caller.get(&format!("{SESSIONS}?limit=2{after}")).await;
        seen.extend(ids(&page));
        after = format!("&after={}", page["next"].as_str().unwrap_or_default());
    }
    assert_eq!((seen.clone(), seen.len(), after.as_str()), (ids(&all), 7, "&after="));
    caller.finalize(&seen[3], &json!({"final_weight_kg": 1})).await;
    for (query, rows) in [
        ("status=finalized".to_owned(), 1),
        ("status=created".to_owned(), 6),
        ("status=cancelled".to_owned(), 0),
        (format!("device_id={}", barn.scale), 7),
        (format!("device_id={}", barn.camera), 0),
        (format!("barn_id={}&farm_id={}&tenant_id={}", barn.barn, barn.farm, barn.tenant), 7),
        (format!("batch_id={}", SessionId::mint()), 0),
        ("since=2026-02-01T10:01:00Z&until=2026-02-01T10:03:00Z".to_owned(), 4),
    ] {
        let (status, page) = caller.get(&format!("{SESSIONS}?{query}")).await;
        assert_eq!((status, ids(&page).len()), (StatusCode::OK, rows), "{query}");
    }
    for query in
        ["limit=0", "limit=501", "after=x", "status=open", "stats=1", "since=now", "tenant_id=.."]
    {
        assert_eq!(caller.get(&format!("{SESSIONS}?{query}")).await.0, 400, "{query}");
    }
    world.edge.stop().await;
}

#[tokio::test]
async fn a_key_is_needed_and_bodies_are_bounded() {
    let world = Weighing::new("sessions_key").await;
    let (barn, caller) = (world.barn, world.operator().await);
    let long = "k".repeat(129);
    for key in [None, Some(""), Some("a b"), Some("a\tb"), Some(long.as_str())] {
        let answer = caller.ask(Method::POST, SESSIONS, key, &barn.session()).await;
        assert_eq!(refusal(&answer), (400, "malformed", Some("Idempotency-Key")), "{key:?}");
    }
    let mut large = barn.session();
    large["trace_id"] = json!("x".repeat(20 << 10));
    assert_eq!(caller.create("k", &large).await.0, 413);
    assert_eq!(caller.create("k", &json!([])).await.0, 400);
    assert_eq!(world.number("SELECT count(*) FROM weight_sessions").await, 0);
    world.edge.stop().await;
}
