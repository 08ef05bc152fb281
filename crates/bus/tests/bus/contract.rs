//! One contract, three implementations: every test here runs against each.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{About, Cause, Delivery, Message, PublishError};
use tokio::time::timeout;

use crate::world::{ATTEMPTS, LONG, World, body, drain, next};

/// Publishes in a task of its own: inline, it ends only when the groups have settled.
fn publish(
    world: &World,
    batch: Vec<Message>,
) -> tokio::task::JoinHandle<Vec<Result<(), PublishError>>> {
    let publisher = Arc::clone(&world.publisher);
    tokio::spawn(
        async move { timeout(LONG, publisher.publish(batch)).await.expect("results in time") },
    )
}

async fn every_group_gets_every_message_in_order(mut world: World) {
    let sent: Vec<Message> = (0..500).map(|n| world.message(n)).collect();
    let published = publish(&world, sent.clone());
    let (mut ingest, mut kpi) = (Vec::<Delivery>::new(), Vec::<Delivery>::new());
    let first = drain(&mut world.ingest, 500, |batch, at| {
        ingest.push(batch.deliveries()[at].clone());
    });
    let second = drain(&mut world.kpi, 500, |batch, at| kpi.push(batch.deliveries()[at].clone()));
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.done, second.done), (500, 500));
    assert!(published.await.unwrap().iter().all(Result::is_ok));
    for got in [ingest, kpi] {
        assert!(got.iter().all(|delivery| delivery.attempts == 0 && !delivery.redelivered));
        let got: Vec<Message> = got.into_iter().map(|delivery| delivery.message).collect();
        assert_eq!(got, sent);
    }
}

/// A partition key is up to 323 bytes by the rules of the names it is made of, and more than AMQP's 255 for names.
async fn the_longest_names_are_carried(mut world: World) {
    let key = [64, 64, 64, 128].map(|length| "N".repeat(length)).join(".");
    assert_eq!(key.len(), 323);
    let header = [("trace_id".to_owned(), "t".repeat(4096))].into();
    let sent = vec![
        Message { key: Some(key), ..world.message(0) },
        Message { key: Some("k".repeat(4096)), headers: header, ..world.message(1) },
        Message { message_id: "i".repeat(255), ..world.message(2) },
    ];
    let too_long = Message { key: Some("k".repeat(4097)), ..world.message(3) };
    let batch = [sent.clone(), vec![too_long]].concat();
    let published = publish(&world, batch);
    let mut got = Vec::new();
    let ingest = drain(&mut world.ingest, 3, |batch, at| {
        got.push(batch.deliveries()[at].message.clone());
    });
    tokio::join!(ingest, drain(&mut world.kpi, 3, |_, _| {}));
    assert_eq!(got, sent);
    let results = published.await.unwrap();
    assert!(results[..3].iter().all(Result::is_ok), "{results:?}");
    assert!(matches!(results[3], Err(PublishError::Malformed { what: "key", .. })), "{results:?}");
}

async fn what_nobody_wants_is_an_error_and_its_neighbours_are_not(mut world: World) {
    let nobody = Message { routing_key: "media.stored".to_owned(), ..world.message(1) };
    // Only one of the two groups wants this one.
    let one_group = Message { routing_key: "telemetry.aggregated".to_owned(), ..world.message(2) };
    let malformed = Message { headers: [("x-a".into(), "b".into())].into(), ..world.message(3) };
    let mut batch = vec![world.message(0), nobody, one_group, malformed];
    batch.extend((4..200).map(|n| match n % 3 {
        0 => Message { routing_key: "nobody.wants.it".to_owned(), ..world.message(n) },
        _ => world.message(n),
    }));
    let expected: Vec<Option<About>> = (0..200)
        .map(|n| (n == 1 || n == 3 || (n > 3 && n % 3 == 0)).then_some(About::Message))
        .collect();
    let wanted = expected.iter().filter(|about| about.is_none()).count() as u64;
    // A broker that does not know who wants what takes them; the groups pass over them.
    let knows = world.knows_who_wants;
    let expected: Vec<Option<About>> =
        (0..200).map(|n| expected[n].filter(|_| knows || n == 3)).collect();
    let published = publish(&world, batch);
    let ingest = drain(&mut world.ingest, wanted - 1, |_, _| {});
    let kpi = drain(&mut world.kpi, wanted, |_, _| {});
    tokio::join!(ingest, kpi);
    let results = published.await.unwrap();
    let unroutable = matches!(results[1], Err(PublishError::Unroutable { .. }));
    assert_eq!(unroutable, knows, "{:?}", results[1]);
    assert!(matches!(results[3], Err(PublishError::Malformed { .. })), "{:?}", results[3]);
    let about: Vec<Option<About>> =
        results.into_iter().map(|result| result.err().map(|error| error.about())).collect();
    assert_eq!(about, expected);
}

async fn a_failure_is_retried_by_itself(mut world: World) {
    let published = publish(&world, (0..20).map(|n| world.message(n)).collect());
    let mut tries: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let exchange = world.exchange.clone();
    let ingest = drain(&mut world.ingest, 20, |batch, at| {
        let Delivery { message, attempts, .. } = batch.deliveries()[at].clone();
        tries.entry(message.message_id.clone()).or_default().push(attempts);
        assert_eq!(message.routing_key, "telemetry.ingested");
        assert_eq!(message.exchange, exchange);
        if message.message_id == "id-7" && attempts < 2 {
            batch.retry(at, Cause::new("not_yet", "try again"));
        }
    });
    let kpi = drain(&mut world.kpi, 20, |_, _| {});
    let (ingest, kpi) = tokio::join!(ingest, kpi);
    assert_eq!((ingest.done, ingest.retried, ingest.dead_lettered), (20, 2, 0));
    assert_eq!(kpi.done, 20, "the other group does not see the retries");
    assert!(published.await.unwrap().iter().all(Result::is_ok));
    assert_eq!(tries.remove("id-7").unwrap(), [0, 1, 2]);
    assert!(tries.values().all(|tries| *tries == [0]), "{tries:?}");
    assert_eq!(world.dead_letters().await, []);
}

async fn poison_becomes_a_dead_letter_and_its_neighbours_get_through(mut world: World) {
    let published = publish(&world, (0..50).map(|n| world.message(n)).collect());
    let mut tries = 0;
    let ingest = drain(&mut world.ingest, 50, |batch, at| {
        match batch.deliveries()[at].message.message_id.as_str() {
            "id-9" => {
                tries += 1;
                batch.retry(at, Cause::new("poison", format!("try {tries}")));
            }
            "id-30" => batch.dead_letter(at, Cause::new("invalid", "never")),
            _ => {}
        }
    });
    let kpi = drain(&mut world.kpi, 50, |_, _| {});
    let (ingest, _) = tokio::join!(ingest, kpi);
    assert_eq!((ingest.done, ingest.dead_lettered), (48, 2));
    assert_eq!(tries, ATTEMPTS);
    assert!(published.await.unwrap().iter().all(Result::is_ok));
    let mut letters = world.dead_letters().await;
    letters.sort_by_key(|letter| letter.attempts);
    assert_eq!(letters.len(), 2);
    for (letter, (n, code, why, attempts)) in
        letters.iter().zip([(30, "invalid", "never", 1), (9, "poison", "try 3", ATTEMPTS)])
    {
        assert_eq!(letter.message, world.message(n), "the envelope is as it was published");
        assert_eq!(letter.message.body, body(n));
        assert_eq!((letter.cause.code.as_str(), letter.cause.message.as_str()), (code, why));
        assert_eq!(
            (letter.attempts, letter.queue.as_deref()),
            (attempts, Some(world.ingest_name.as_str()))
        );
        assert!(letter.dead_lettered_at.is_some());
    }
}

async fn a_deferral_is_no_attempt(mut world: World) {
    let published = publish(&world, vec![world.message(0)]);
    let mut deferrals = 0;
    let ingest = drain(&mut world.ingest, 1, |batch, at| {
        assert_eq!(batch.deliveries()[at].attempts, 0);
        // More often than a message may fail.
        if deferrals < ATTEMPTS + 2 {
            deferrals += 1;
            batch.defer(at);
        }
    });
    let (ingest, _) = tokio::join!(ingest, drain(&mut world.kpi, 1, |_, _| {}));
    assert_eq!((ingest.done, ingest.deferred), (1, u64::from(ATTEMPTS) + 2));
    assert!(published.await.unwrap()[0].is_ok());
    assert_eq!(world.dead_letters().await, []);
}

async fn a_batch_that_is_dropped_is_delivered_again(mut world: World) {
    let published = publish(&world, (0..10).map(|n| world.message(n)).collect());
    let mut dropped = 0;
    while dropped < 10 {
        let batch = next(&mut world.ingest).await;
        dropped += batch.len();
        drop(batch);
    }
    let mut again = Vec::new();
    let ingest = drain(&mut world.ingest, 10, |batch, at| {
        let delivery = &batch.deliveries()[at];
        assert_eq!(delivery.attempts, 0);
        assert!(delivery.redelivered);
        again.push(delivery.message.message_id.clone());
    });
    let (ingest, _) = tokio::join!(ingest, drain(&mut world.kpi, 10, |_, _| {}));
    assert_eq!(ingest.done, 10);
    again.sort_unstable();
    again.dedup();
    assert_eq!(again.len(), 10);
    assert!(published.await.unwrap().iter().all(Result::is_ok));
}

macro_rules! each {
    ($($name:ident),* $(,)?) => {
        mod inline {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::World::inline()).await;
            })*
        }
        mod rabbitmq {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::World::rabbitmq().await).await;
            })*
        }
        #[cfg(feature = "kafka")]
        mod kafka {
            $(#[tokio::test]
            async fn $name() {
                if let Some(world) = super::World::kafka().await {
                    super::$name(world).await;
                }
            })*
        }
    };
}

each!(
    every_group_gets_every_message_in_order,
    the_longest_names_are_carried,
    what_nobody_wants_is_an_error_and_its_neighbours_are_not,
    a_failure_is_retried_by_itself,
    poison_becomes_a_dead_letter_and_its_neighbours_get_through,
    a_deferral_is_no_attempt,
    a_batch_that_is_dropped_is_delivered_again,
);
