//! The consumers: duplicates, reordering, poison, outages, replicas.

use event::id::TenantId;
use rand::seq::SliceRandom as _;
use serde_json::json;
use testkit::eventually;

use crate::consume_world::{Barn, Replica, database, message, options, settled, stores};
use crate::kpis::aggregate;
use crate::site::{LONG, number};

#[tokio::test]
async fn the_same_events_in_any_order_and_number_leave_the_same_rows() {
    let barn = Barn::new(TenantId::mint());
    let mut events = barn.day();
    // A site's own aggregate and its correction, of a metric that has no readings.
    for (version, values) in [(1, &[51.0][..]), (2, &[51.0, 53.0])] {
        let mut own = aggregate(&barn, "1m", "2026-02-01T10:00:00Z", version, values);
        own["payload"]["metric_type"] = json!("humidity");
        own["payload"]["unit"] = json!("%");
        events.push(own);
    }
    let plain = database("consume_plain").await;
    let replica = Replica::start(&plain, options());
    replica.deliver(&events).await;
    settled(&plain).await;
    let expected = stores(&plain).await;
    for (table, rows) in &expected {
        assert!(!rows.is_empty(), "{table} holds nothing");
    }
    // Again, and one by one from the end.
    replica.deliver(&events).await;
    for event in events.iter().rev().take(40) {
        replica.deliver(std::slice::from_ref(event)).await;
    }
    settled(&plain).await;
    assert_eq!(stores(&plain).await, expected);
    replica.stop().await;

    let seed = testkit::seed().unwrap();
    for round in 0..3 {
        let mixed = database("consume_mixed").await;
        let replica = Replica::start(&mixed, options());
        let mut shuffled = events.clone();
        shuffled.extend(events.iter().step_by(3).cloned());
        shuffled
            .shuffle(&mut <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed ^ round));
        for part in shuffled.chunks(37) {
            replica.deliver(part).await;
        }
        settled(&mixed).await;
        assert_eq!(stores(&mixed).await, expected, "seed {seed} round {round}");
        replica.stop().await;
    }
}

#[tokio::test]
async fn poison_becomes_a_dead_letter_and_its_neighbours_are_stored() {
    let database = database("consume_poison").await;
    let client = database.connect().await.unwrap();
    client
        .batch_execute("ALTER TABLE telemetry_reading ADD CHECK (metric_value <> 666)")
        .await
        .unwrap();
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let at = "2026-02-01T10:00:00Z".parse().unwrap();
    let mut messages: Vec<_> = (0..300).map(|i| message(&barn.reading(at, f64::from(i)))).collect();
    let refused = barn.reading(at, 666.0);
    messages[150] = message(&refused);
    messages[20].body = "not JSON: canary-4711".into();
    let mut wrong = barn.reading(at, 1.0);
    wrong["payload"]["metric_value"] = json!("canary-4711");
    messages[21] = message(&wrong);
    let ids: Vec<String> = [20, 21, 150].map(|i: usize| messages[i].message_id.clone()).into();
    let results = bus::Publisher::publish(&replica.bus, messages).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(number(&client, "SELECT count(*) FROM telemetry_reading").await, 297);
    // The analytics service has no such rule and stores what it can.
    assert_eq!(number(&client, "SELECT count(*) FROM kpi_seen").await, 298);
    let causes = replica.causes();
    assert_eq!(causes.len(), 3);
    assert_eq!(causes[&ids[0]], "invalid_envelope");
    assert_eq!(causes[&ids[1]], "invalid_envelope");
    assert_eq!(causes[&ids[2]], "refused_by_database");
    for letter in replica.letters.0.lock().unwrap().iter() {
        assert!(!letter.cause.message.contains("canary"), "{:?}", letter.cause);
    }
    replica.stop().await;
}

#[tokio::test]
async fn a_database_that_drops_its_connections_costs_nothing() {
    let database = database("consume_cut").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let start: jiff::Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
    let events: Vec<_> = (0..4_000_u64)
        .map(|i| barn.reading(start + std::time::Duration::from_secs(i), 20.0))
        .collect();
    let client = database.connect().await.unwrap();
    let publishing = replica.deliver(&events);
    let cutting = async {
        let (mut cut, mut seen) = (0, -1);
        // Again each time that something was stored: consumers and computation are hit wherever
        // they are, and get on between.
        while seen < 4_000 {
            let stored = number(&client, "SELECT count(*) FROM telemetry_reading").await;
            if stored > seen {
                seen = stored;
                let gone = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'consumers'
                    AND state <> 'idle'";
                cut += number(&client, gone).await;
            }
            tokio::task::yield_now().await;
        }
        cut
    };
    let ((), cut) = tokio::join!(publishing, cutting);
    settled(&database).await;
    assert!(cut > 0, "nothing was cut off");
    assert!(replica.causes().is_empty(), "{:?}", replica.causes());
    assert_eq!(number(&client, "SELECT count(*) FROM telemetry_reading").await, 4_000);
    let counted = "SELECT sample_count FROM telemetry_aggregate WHERE aggregation_window = '1d'";
    assert_eq!(number(&client, counted).await, 4_000);
    let counted = "SELECT sum(sample_count)::bigint FROM kpi_minute";
    assert_eq!(number(&client, counted).await, 4_000);
    replica.stop().await;
}

#[tokio::test]
async fn while_the_tables_are_locked_the_batch_is_held_and_no_attempt_is_counted() {
    let database = database("consume_hold").await;
    let client = database.connect().await.unwrap();
    client.batch_execute("ALTER TABLE media_object RENAME TO away").await.unwrap();
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let event = barn.media(event::id::SessionId::mint(), "2026-02-01T10:00:00Z");
    let publishing = replica.publish(std::slice::from_ref(&event));
    let mending = async {
        // The consumer has met the missing table before it comes back.
        eventually(LONG, "the consumer tries", async || {
            let tried = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND application_name = 'consumers' AND query LIKE '%media_object%'";
            number(&client, tried).await
                + number(
                    &client,
                    "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()",
                )
                .await
                > 0
        })
        .await
        .unwrap();
        client.batch_execute("ALTER TABLE away RENAME TO media_object").await.unwrap();
    };
    let (results, ()) = tokio::join!(publishing, mending);
    assert_eq!(results, [Ok(())]);
    assert_eq!(number(&client, "SELECT count(*) FROM media_object").await, 1);
    assert!(replica.causes().is_empty());
    replica.stop().await;
}

#[tokio::test]
async fn coordinates_ride_beside_the_envelope() {
    let database = database("consume_place").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let at = "2026-02-01T10:00:00Z".parse().unwrap();
    let epoch = event::id::Epoch::mint().to_string();
    let placed = |stream: &str, seq: &str| {
        let mut one = message(&barn.reading(at, 1.0));
        for (name, value) in [("stream", stream), ("epoch", epoch.as_str()), ("seq", seq)] {
            one.headers.insert(name.to_owned(), value.to_owned());
        }
        one
    };
    let sent = vec![placed("barn-7", "42"), placed("Barn 7", "43"), placed("barn-7", "0")];
    let results = bus::Publisher::publish(&replica.bus, sent).await;
    assert!(results.iter().all(Result::is_ok));
    let client = database.connect().await.unwrap();
    let query = "SELECT stream, seq FROM telemetry_reading WHERE stream IS NOT NULL";
    let rows = client.query(query, &[]).await.unwrap();
    assert_eq!(rows.len(), 1, "what is no coordinate is left out");
    assert_eq!((rows[0].get(0), rows[0].get(1)), ("barn-7", 42_i64));
    assert_eq!(number(&client, "SELECT count(*) FROM telemetry_reading").await, 3);
    replica.stop().await;
}
