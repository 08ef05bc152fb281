//! Sessions under many hands: one key makes one session, one end wins, a crash leaves all or nothing.

use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::weighing::{RESULTS, Weighing, refusal};

const CREATED: &str = "SELECT count(*) FROM sync_outbox WHERE event_type LIKE '%.created'";
const ENDED: &str = "SELECT count(*) FROM sync_outbox
    WHERE event_type IN ('weighvision.session.finalized', 'weighvision.session.cancelled')";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_key_makes_one_session_however_often_it_comes() {
    let world = Weighing::new("sessions_idempotent").await;
    let (barn, caller) = (world.barn, world.operator().await);
    for round in 0..5 {
        let key = format!("key-{round}");
        let (body, mut other) = (barn.session(), barn.session());
        other["initial_weight_kg"] = json!(99);
        let asked = (0..12).map(|n| {
            let (caller, key) = (caller.clone(), key.clone());
            let mut body = if n % 3 == 2 { other.clone() } else { body.clone() };
            body["trace_id"] = json!(format!("trace-{n}"));
            async move { caller.create(&key, &body).await }
        });
        let answers = join_all(asked).await;
        let of = |status: u16| answers.iter().filter(|one| one.0 == status).count();
        assert_eq!(of(201), 1, "one made it");
        assert_eq!(of(200) + of(409), 11);
        // Whichever body won, those with the same got its session, the others a refusal.
        assert!([(7, 4), (3, 8)].contains(&(of(200), of(409))), "{answers:?}");
        let ids: Vec<&Value> =
            answers.iter().filter(|one| one.0.is_success()).map(|one| &one.1["id"]).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        for answer in answers.iter().filter(|one| one.0 == 409) {
            assert_eq!(refusal(answer), (409, "key_reused", Some("Idempotency-Key")));
        }
    }
    assert_eq!(world.number("SELECT count(*) FROM weight_sessions").await, 5);
    assert_eq!(world.number(CREATED).await, 5);

    // The same key is another tenant's own; a session that ended is answered as it is now.
    let theirs = crate::weighing::Barn::new();
    let admin = world.caller(api::tokens::Role::Admin, api::tokens::Tenants::All).await;
    assert_eq!(admin.create("key-0", &theirs.session()).await.0, StatusCode::CREATED);
    let (_, made) = admin.create("once", &barn.session()).await;
    let id = made["id"].as_str().unwrap();
    admin.cancel(id, &Value::Null).await;
    let (status, again) = admin.create("once", &barn.session()).await;
    assert_eq!(
        (status, &again["id"], &again["status"]),
        (StatusCode::OK, &made["id"], &json!("cancelled"))
    );
    world.edge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_several_ends_one_wins() {
    let world = Weighing::new("sessions_ends").await;
    let (barn, caller) = (world.barn, world.operator().await);
    for round in 1..=6 {
        let id = caller.open(&barn).await;
        let asked = (0..8).map(|n| {
            let (caller, id) = (caller.clone(), id.clone());
            async move {
                match n % 4 {
                    3 => caller.cancel(&id, &json!({"reason": "escaped"})).await,
                    // Two of these ask for the same.
                    n => caller.finalize(&id, &json!({"final_weight_kg": 100 + n / 2})).await,
                }
            }
        });
        let answers = join_all(asked).await;
        let won: Vec<&Value> =
            answers.iter().filter(|one| one.0 == 200).map(|one| &one.1).collect();
        assert!(!won.is_empty() && won.iter().all(|one| *one == won[0]), "{answers:?}");
        for answer in answers.iter().filter(|one| one.0 != 200) {
            assert_eq!(refusal(answer), (409, "wrong_state", Some("status")));
            assert_eq!(answer.1["error"]["state"], won[0]["status"]);
        }
        assert_eq!(world.number(ENDED).await, round, "one end is told of");
    }
    world.edge.stop().await;
}

/// A result that comes while the session is finalized is either counted and named, or came later.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_finalization_counts_a_result_wholly_or_not_at_all() {
    let world = Weighing::new("sessions_results").await;
    let (barn, caller) = (world.barn, world.operator().await);
    for _ in 0..5 {
        let id = caller.open(&barn).await;
        let results = join_all((0..6).map(|n| {
            let (caller, body) = (caller.clone(), barn.result(&id, f64::from(n) / 10.0));
            async move { caller.post(RESULTS, &body).await }
        }));
        let finalized = async {
            // Somewhere among them.
            tokio::task::yield_now().await;
            caller.finalize(&id, &json!({"final_weight_kg": 1})).await
        };
        let (results, (status, session)) = tokio::join!(results, finalized);
        assert_eq!(status, StatusCode::OK, "{session}");
        assert!(results.iter().all(|one| one.0 == 201), "{results:?}");
        let told = world.told().await;
        let (_, payload) = told
            .iter()
            .find(|(kind, payload)| {
                kind.ends_with(".finalized") && payload["session_id"] == json!(id)
            })
            .unwrap();
        let named = payload["inference_result_ids"].as_array().unwrap();
        assert_eq!(payload["inference_result_count"], named.len());
        let chosen = &payload["inference_result_id"];
        assert!(
            chosen.is_null() == named.is_empty() && (chosen.is_null() || named.contains(chosen))
        );
    }
    world.edge.stop().await;
}

/// The event cannot be written: the transition did not happen either.
#[tokio::test]
async fn a_transition_without_its_event_did_not_happen() {
    let world = Weighing::new("sessions_atomic").await;
    let (barn, caller) = (world.barn, world.operator().await);
    let id = caller.open(&barn).await;
    let client = world.site.client().await;
    client.batch_execute("ALTER TABLE sync_outbox RENAME TO sync_outbox_away").await.unwrap();
    assert_eq!(caller.create("k", &barn.session()).await.0, 503);
    assert_eq!(caller.finalize(&id, &json!({"final_weight_kg": 1})).await.0, 503);
    assert_eq!(caller.cancel(&id, &Value::Null).await.0, 503);
    assert_eq!(caller.post(RESULTS, &barn.result(&id, 0.5)).await.0, 503);
    client.batch_execute("ALTER TABLE sync_outbox_away RENAME TO sync_outbox").await.unwrap();
    assert_eq!(
        world.number("SELECT count(*) FROM weight_sessions WHERE status = 'created'").await,
        1
    );
    assert_eq!(world.number("SELECT count(*) FROM inference_results").await, 0);
    assert_eq!(world.number("SELECT count(*) FROM sync_outbox").await, 1);
    assert_eq!(caller.create("k", &barn.session()).await.0, 201);
    assert_eq!(caller.finalize(&id, &json!({"final_weight_kg": 1})).await.0, 200);
    world.edge.stop().await;
}
