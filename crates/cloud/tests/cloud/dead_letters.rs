//! Dead letters of the inline bus: kept once, listed, replayed to the one group that gave them up.

use std::sync::Arc;

use bus::{
    Binding, Cause, Consumer, DeadLetter, DeadLetters as _, Message, Publisher as _, inline,
};
use cloud::dead_letters::audit::{self, Actor, Deed, Outcome};
use cloud::dead_letters::{Store, Wanted, count, groups, list, replay, request_replay};
use jiff::Timestamp;
use serde_json::json;
use testkit::Database;
use uuid::Uuid;

use crate::site::migrate;

const QUEUE: &str = "farmiq.cloud-telemetry-service.ingest.queue";
const OTHER: &str = "farmiq.cloud-analytics-service.kpi.queue";
const EXCHANGE: &str = "farmiq.telemetry.exchange";

struct Ground {
    _database: Database,
    client: tokio_postgres::Client,
    store: Store,
}

async fn ground(name: &str) -> Ground {
    let database = testkit::database(name, "cloud", migrate).await.unwrap();
    let options = pg::Options::new(database.url());
    let client = pg::connect(&options).await.unwrap();
    let store = Store::new(pg::Pool::new(&options).unwrap());
    Ground { _database: database, client, store }
}

fn message(id: &str, tenant: Uuid) -> Message {
    let body = format!("{{ \"tenant_id\": \"{tenant}\",\"payload\" :{{ \"value\": 1.50}} }}");
    let mut message = Message::json(EXCHANGE, "telemetry.ingested", id, body);
    message.headers.insert("trace_id".to_owned(), "t-1".to_owned());
    message.key = Some("device-1".to_owned());
    message
}

fn letter(id: &str, queue: &str, code: &str, tenant: Uuid, second: i64) -> DeadLetter {
    DeadLetter {
        message: message(id, tenant),
        queue: Some(queue.to_owned()),
        cause: Cause::new(code, "why it failed"),
        attempts: 4,
        replayed: 0,
        dead_lettered_at: Some(Timestamp::from_second(second).unwrap()),
        deaths: Vec::new(),
    }
}

async fn audit_row(client: &tokio_postgres::Client) -> i64 {
    let actor = Actor::User("somebody".to_owned());
    let parameters = json!({"queue": QUEUE});
    let deed = Deed { actor: &actor, action: "dlq.replay", parameters, dry_run: false };
    audit::begin(client, &deed).await.unwrap()
}

#[tokio::test]
async fn a_letter_is_kept_once_with_every_byte() {
    let ground = ground("letters").await;
    let tenant = Uuid::now_v7();
    let first = letter("a", QUEUE, "invalid", tenant, 1_000);
    ground.store.store(first.clone()).await.unwrap();
    let kept = list(&ground.client, &Wanted::default(), 0, 10).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((&kept[0].letter, kept[0].tenant_id), (&first, Some(tenant)));

    let mut again = letter("a", QUEUE, "poison", tenant, 2_000);
    again.attempts = 7;
    ground.store.store(again.clone()).await.unwrap();
    ground.store.store(again.clone()).await.unwrap();
    let kept = list(&ground.client, &Wanted::default(), 0, 10).await.unwrap();
    assert_eq!(kept.iter().map(|kept| &kept.letter).collect::<Vec<_>>(), [&again]);
    // Another group that gave the same message up is another letter.
    ground.store.store(letter("a", OTHER, "invalid", tenant, 3_000)).await.unwrap();
    // Bytes that are no envelope have no tenant, and are kept as they are.
    let mut raw = letter("b", QUEUE, "invalid", tenant, 4_000);
    raw.message.body = bytes::Bytes::from_static(b"\xff\x00not json");
    raw.message.headers.insert("trace_id".to_owned(), "nul\0".to_owned());
    ground.store.store(raw.clone()).await.unwrap();
    let wanted = Wanted { message_ids: Some(vec!["b".to_owned()]), ..Wanted::default() };
    let kept = list(&ground.client, &wanted, 0, 10).await.unwrap();
    assert_eq!((kept[0].tenant_id, &kept[0].letter.message.body), (None, &raw.message.body));

    let at = Timestamp::from_second(3_000).ok();
    for (wanted, expected) in [
        (Wanted::default(), 3),
        (Wanted { queue: Some(QUEUE.to_owned()), ..Wanted::default() }, 2),
        (Wanted { cause_code: Some("poison".to_owned()), ..Wanted::default() }, 1),
        (Wanted { since: at, ..Wanted::default() }, 2),
        (Wanted { tenant: Some(tenant), ..Wanted::default() }, 2),
        (Wanted { tenant: Some(Uuid::now_v7()), ..Wanted::default() }, 0),
    ] {
        assert_eq!(count(&ground.client, &wanted).await.unwrap(), expected, "{wanted:?}");
    }
    let groups = groups(&ground.client, &Wanted::default()).await.unwrap();
    assert_eq!(groups.iter().map(|group| group.count).sum::<u64>(), 3);
    assert_eq!(groups.len(), 3);
}

/// A bus with two groups that both want telemetry.
fn bus(store: &Store) -> (inline::Bus, inline::GroupConsumer, inline::GroupConsumer) {
    let mut bus = inline::Bus::new(inline::Options::default(), Arc::new(store.clone()));
    let wants = || vec![Binding::new(EXCHANGE, "telemetry.*")];
    let ingest = bus.group(QUEUE, wants());
    let kpi = bus.group(OTHER, wants());
    (bus, ingest, kpi)
}

/// Takes one batch, gives up the messages named, and returns the ids.
async fn handle(consumer: &mut inline::GroupConsumer, give_up: &[&str]) -> Vec<String> {
    let mut batch =
        tokio::time::timeout(crate::site::LONG, consumer.next()).await.unwrap().unwrap();
    let ids: Vec<String> =
        batch.deliveries().iter().map(|one| one.message.message_id.clone()).collect();
    for (at, id) in ids.iter().enumerate() {
        if give_up.contains(&id.as_str()) {
            batch.dead_letter(at, Cause::new("still", "it fails still"));
        }
    }
    batch.commit().await.unwrap();
    ids
}

#[tokio::test]
async fn a_replay_reaches_its_group_alone_and_what_fails_again_stays() {
    let ground = ground("replay").await;
    let tenant = Uuid::now_v7();
    for (id, queue) in [("a", QUEUE), ("b", QUEUE), ("c", QUEUE), ("a", OTHER), ("d", "gone")] {
        ground.store.store(letter(id, queue, "invalid", tenant, 1_000)).await.unwrap();
    }
    let (bus, mut ingest, mut kpi) = bus(&ground.store);
    let audit_id = audit_row(&ground.client).await;
    let two = Wanted { queue: Some(QUEUE.to_owned()), ..Wanted::default() };
    // Nothing is due, so nothing happens.
    assert_eq!(replay::turn(&ground.client, &bus).await.unwrap(), replay::Turn::default());
    assert_eq!(request_replay(&ground.client, &two, 2, 1_000_000, audit_id).await.unwrap(), 2);
    // The group takes the row's place only when it has settled: before that the row stays.
    let turn = replay::turn(&ground.client, &bus);
    let (turn, ids) = tokio::join!(turn, handle(&mut ingest, &["b"]));
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(turn.unwrap(), replay::Turn { stored: 1, again: 1, ..replay::Turn::default() });
    let left = list(&ground.client, &two, 0, 10).await.unwrap();
    let left: Vec<_> = left
        .iter()
        .map(|kept| (kept.letter.message.message_id.as_str(), kept.letter.replayed, kept.replay_at))
        .collect();
    assert_eq!(left, [("b", 1, None), ("c", 0, None)]);

    // A message that comes by the usual way and is given up does not take back a wish for a replay.
    let b = Wanted { message_ids: Some(vec!["b".to_owned()]), ..Wanted::default() };
    assert_eq!(request_replay(&ground.client, &b, 10, 1_000_000, audit_id).await.unwrap(), 1);
    let published = bus.publish(vec![message("b", tenant)]);
    let (published, _, _) =
        tokio::join!(published, handle(&mut ingest, &["b"]), handle(&mut kpi, &[]));
    assert!(published[0].is_ok());
    let kept = list(&ground.client, &b, 0, 10).await.unwrap();
    assert!(kept[0].replay_at.is_some());
    let (turn, _) = tokio::join!(replay::turn(&ground.client, &bus), handle(&mut ingest, &[]));
    assert_eq!(turn.unwrap().stored, 1);

    // A group that is not there is said, and the letter stays.
    let gone = Wanted { queue: Some("gone".to_owned()), ..Wanted::default() };
    assert_eq!(request_replay(&ground.client, &gone, 10, 10, audit_id).await.unwrap(), 1);
    assert_eq!(replay::turn(&ground.client, &bus).await.unwrap().refused, 1);
    assert_eq!(list(&ground.client, &gone, 0, 10).await.unwrap()[0].replay_at, None);
    // The other group saw nothing of all this but the message that was published to both.
    assert_eq!(count(&ground.client, &Wanted::default()).await.unwrap(), 3);
}

#[tokio::test]
async fn a_rate_is_when_letters_fall_due() {
    let ground = ground("rate").await;
    for n in 0..10 {
        let letter = letter(&n.to_string(), QUEUE, "invalid", Uuid::now_v7(), 1_000);
        ground.store.store(letter).await.unwrap();
    }
    let audit_id = audit_row(&ground.client).await;
    let all = Wanted::default();
    assert_eq!(request_replay(&ground.client, &all, 100, 2, audit_id).await.unwrap(), 10);
    let span = "SELECT extract(epoch FROM max(replay_at) - min(replay_at))::bigint * 10
                FROM bus_dead_letter";
    // Ten letters at two a second: the last one four and a half seconds after the first.
    assert!((40..=50).contains(&crate::site::number(&ground.client, span).await));
    // Asked again, they keep their time.
    assert_eq!(request_replay(&ground.client, &all, 100, 2, audit_id).await.unwrap(), 0);
}

#[tokio::test]
async fn what_operators_do_is_recorded_before_and_after() {
    let ground = ground("audit").await;
    let id = audit_row(&ground.client).await;
    assert_eq!(audit::latest(&ground.client, 1).await.unwrap()[0].outcome, "started");
    let done = Outcome::Done { matched: 5, changed: 3 };
    audit::finish(&ground.client, id, &done).await.unwrap();
    // It ends once.
    let failed = Outcome::Failed { changed: 0, error: "late".to_owned() };
    audit::finish(&ground.client, id, &failed).await.unwrap();
    let record = audit::latest(&ground.client, 1).await.unwrap().remove(0);
    assert_eq!(
        (record.matched, record.changed, record.outcome.as_str()),
        (Some(5), Some(3), "done")
    );
    assert_eq!((record.actor_kind.as_str(), record.actor.as_str()), ("user", "somebody"));

    let token_id = Uuid::now_v7();
    let token = Actor::Token { id: token_id, acting_for: Some("anna".to_owned()) };
    let deed = Deed { actor: &token, action: "dlq.replay", parameters: json!({}), dry_run: true };
    let id = audit::begin(&ground.client, &deed).await.unwrap();
    audit::finish(&ground.client, id, &failed).await.unwrap();
    let record = audit::latest(&ground.client, 1).await.unwrap().remove(0);
    assert_eq!(record.error.as_deref(), Some("late"));
    assert_eq!(
        (record.actor, record.parameters),
        (token_id.to_string(), json!({"acting_for": "anna"}))
    );
    // A dry run that changed something, and a deed without a name, are refused by the database.
    let id = audit::begin(&ground.client, &deed).await.unwrap();
    assert!(audit::finish(&ground.client, id, &done).await.is_err());
    let nameless = Deed { action: "", ..deed };
    assert!(audit::begin(&ground.client, &nameless).await.is_err());
}
