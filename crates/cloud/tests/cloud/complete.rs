//! A session is complete when all that it had when it was finalized is here, in whatever order it came.

use event::id::{BatchId, EventId, SessionId};
use serde_json::{Value, json};

use crate::consume_world::{Barn, Replica, options};
use crate::query::Asked;

const START: &str = "2026-02-01T10:05:00Z";
const LATER: &str = "2026-02-01T10:06:00Z";
const END: &str = "2026-02-01T10:07:00Z";

/// A finalization that tells of its results.
fn finalized(barn: &Barn, session: SessionId, images: u32, results: &[&Value]) -> Value {
    let ids: Vec<&Value> =
        results.iter().map(|one| &one["payload"]["inference_result_id"]).collect();
    let mut event = barn.finalized(session, END, 121.0);
    event["payload"]["image_count"] = json!(images);
    event["payload"]["inference_result_id"] = json!(ids.first());
    event["payload"]["inference_result_count"] = json!(ids.len());
    event["payload"]["inference_result_ids"] = json!(ids);
    event
}

/// A whole session: two images, two results.
fn whole(barn: &Barn, session: SessionId) -> Vec<Value> {
    let (one, two) = (barn.inference(session, LATER, 0.9), barn.inference(session, LATER, 0.4));
    vec![
        barn.created(session, BatchId::mint(), START, 120.5),
        barn.media(session, START),
        barn.media(session, LATER),
        finalized(barn, session, 2, &[&one, &two]),
        one,
        two,
    ]
}

async fn is_complete(asked: &Asked, session: SessionId) -> bool {
    let found = asked.get(&format!("/sessions/{session}")).await;
    found["session"]["complete"].as_bool().unwrap()
}

#[tokio::test]
async fn a_session_is_complete_with_the_last_that_it_needs_whatever_that_is() {
    let asked = Asked::new("complete_orders", |_| vec![]).await;
    let barn = Barn::new(asked.site.tenant);
    let replica = Replica::start(&asked.site.database, options());
    // Each of the six comes last once, and first once; and all of them backwards.
    let mut orders: Vec<(SessionId, Vec<Value>)> = Vec::new();
    for n in 0..6 {
        let session = SessionId::mint();
        let mut events = whole(&barn, session);
        events.rotate_left(n);
        orders.push((session, events));
    }
    let session = SessionId::mint();
    orders.push((session, whole(&barn, session).into_iter().rev().collect()));
    for step in 0..6 {
        let events: Vec<Value> = orders.iter().map(|(_, events)| events[step].clone()).collect();
        // Twice: what comes again counts once.
        replica.deliver(&events).await;
        replica.deliver(&events).await;
        for (n, (session, events)) in orders.iter().enumerate() {
            let known = events[..=step]
                .iter()
                .any(|event| event["event_type"].as_str().unwrap().starts_with("weighvision"));
            if known {
                assert_eq!(
                    is_complete(&asked, *session).await,
                    step == 5,
                    "order {n}, step {step}"
                );
            }
        }
    }
    let (first, _) = orders[0];
    let found = asked.get(&format!("/sessions/{first}")).await;
    let session = &found["session"];
    assert_eq!(
        json!([
            session["media_arrived"],
            session["results_arrived"],
            session["inference_result_count"]
        ]),
        json!([2, 2, 2])
    );
    // More than it had then does not harm.
    replica.deliver(&[barn.media(first, END), barn.inference(first, END, 0.1)]).await;
    assert!(is_complete(&asked, first).await);
    replica.stop().await;
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn others_do_not_stand_in_for_what_is_missing() {
    let asked = Asked::new("complete_others", |_| vec![]).await;
    let barn = Barn::new(asked.site.tenant);
    let replica = Replica::start(&asked.site.database, options());
    let (session, other) = (SessionId::mint(), SessionId::mint());
    let events = whole(&barn, session);
    // All but one image and one result; in their place another session's, another tenant's, a stranger.
    let foreign = Barn::new(event::id::TenantId::mint());
    replica.deliver(&events[..2]).await;
    replica.deliver(&events[3..5]).await;
    replica
        .deliver(&[
            barn.media(other, START),
            foreign.media(session, START),
            barn.inference(session, LATER, 0.5),
            barn.inference(session, LATER, 0.5),
        ])
        .await;
    assert!(!is_complete(&asked, session).await);
    replica.deliver(&events[2..3]).await;
    assert!(!is_complete(&asked, session).await, "enough results, and not the ones that are named");
    let listed = async |flag: bool| {
        let items = asked.items(&format!("/sessions?complete={flag}")).await;
        items.iter().map(|item| item["session_id"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((listed(false).await, listed(true).await), (vec![json!(session)], vec![]));
    replica.deliver(&events[5..]).await;
    assert!(is_complete(&asked, session).await);
    assert_eq!((listed(false).await, listed(true).await), (vec![], vec![json!(session)]));
    assert_eq!(asked.ask("/sessions?complete=maybe").await.status(), 400);
    replica.stop().await;
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn where_the_cloud_copies_images_a_session_waits_for_the_copies() {
    let session = SessionId::mint();
    let asked = Asked::new("complete_copies", |tenant| whole(&Barn::new(tenant), session)).await;
    let client = asked.site.client().await;
    let counts = async || {
        let found = asked.get(&format!("/sessions/{session}")).await;
        let session = &found["session"];
        json!([session["media_arrived"], session["media_copied"], session["complete"]])
    };
    assert_eq!(counts().await, json!([2, 0, true]), "this cloud makes no copies");
    client.execute("INSERT INTO media_copying DEFAULT VALUES", &[]).await.unwrap();
    assert_eq!(counts().await, json!([2, 0, false]));
    // One is copied, the other is given up, and tried again with success.
    let copied = "copy_status = 'copied', copied_at = now(), copied_bytes = size_bytes,
        copied_sha256 = sha256('x')";
    for (state, expected) in [
        (copied, json!([2, 1, false])),
        ("copy_status = 'failed', copy_failed_at = now()", json!([2, 1, false])),
        (copied, json!([2, 2, true])),
    ] {
        let change = format!(
            "UPDATE media_object SET {state} WHERE media_id =
                 (SELECT media_id FROM media_object WHERE copy_status <> 'copied' LIMIT 1)"
        );
        assert_eq!(client.execute(&change, &[]).await.unwrap(), 1);
        assert_eq!(counts().await, expected, "{state}");
    }
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn a_finalization_that_tells_less_or_nonsense_is_stored_all_the_same() {
    let sessions: Vec<SessionId> = (0..3).map(|_| SessionId::mint()).collect();
    let mut chosen = json!(null);
    let asked = Asked::new("complete_less", |tenant| {
        let barn = Barn::new(tenant);
        let mut events = Vec::new();
        for (n, session) in sessions.iter().enumerate() {
            let mut end = barn.finalized(*session, END, 121.0);
            end["payload"]["image_count"] = json!(0);
            match n {
                0 => {
                    chosen = json!(EventId::mint());
                    end["payload"]["inference_result_id"] = chosen.clone();
                }
                1 => end["payload"]["inference_result_ids"] = json!("x"),
                _ => end["payload"]["inference_result_count"] = json!(-1),
            }
            events.push(barn.created(*session, BatchId::mint(), START, 120.5));
            events.push(end);
        }
        events
    })
    .await;
    let mut found = Vec::new();
    for session in &sessions {
        found.push(is_complete(&asked, *session).await);
    }
    assert_eq!(found, [false, true, true], "the first still lacks the result it chose");
    let barn = Barn::new(asked.site.tenant);
    let mut result = barn.inference(sessions[0], LATER, 0.9);
    result["payload"]["inference_result_id"] = chosen;
    let replica = Replica::start(&asked.site.database, options());
    replica.deliver(&[result]).await;
    assert!(is_complete(&asked, sessions[0]).await);
    assert_eq!(replica.causes().len(), 0, "nothing was refused");
    replica.stop().await;
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn a_cancelled_session_is_shown_as_such_in_either_order() {
    let (one, two) = (SessionId::mint(), SessionId::mint());
    let asked = Asked::new("complete_cancelled", |tenant| {
        let barn = Barn::new(tenant);
        vec![
            barn.created(one, BatchId::mint(), START, 120.5),
            barn.cancelled(one, END, "escaped"),
            barn.cancelled(two, END, "escaped"),
            barn.created(two, BatchId::mint(), START, 120.5),
        ]
    })
    .await;
    for session in [one, two] {
        let found = asked.get(&format!("/sessions/{session}")).await;
        let shown = &found["session"];
        assert_eq!(
            json!([
                shown["status"],
                shown["cancel_reason"],
                shown["started_at"],
                shown["complete"]
            ]),
            json!(["cancelled", "escaped", START, false])
        );
    }
    assert_eq!(asked.items("/sessions?status=cancelled").await.len(), 2);
    let kpis = asked.items("/kpis/sessions").await;
    let cancelled: i64 = kpis.iter().map(|day| day["sessions_cancelled"].as_i64().unwrap()).sum();
    assert_eq!(cancelled, 2, "{kpis:?}");
    assert!(kpis.iter().all(|day| day["mean_initial_weight_kg"].is_null()), "{kpis:?}");
    assert_eq!(
        asked.items("/events").await.len(),
        0,
        "it has a table, and is not journalled beside it"
    );
    asked.site.cloud.stop().await;
}
