//! Writing, publishing in order, failing, pruning.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::PublishError;
use event::scada::Envelope;
use scada::audit::Actor;
use scada::outbox::{Pruned, metrics, prune, redrive};

use crate::plant::{Bus, LONG, Plant, cycles};

#[tokio::test]
async fn the_four_ways_of_writing_are_one_transaction_each() {
    let plant = Plant::new("scada_write").await;
    let made: Vec<Envelope> = cycles(3).concat();
    let [first, second, third] = [&made[0], &made[1], &made[2]];
    plant.outbox.write_event(first).await.unwrap();
    assert!(plant.outbox.write_event(first).await.is_err(), "an event is written once");
    plant.outbox.write_event_with_local_cache(second).await.unwrap();
    assert_eq!(plant.outbox.write_batch(&made[..3]).await.unwrap(), 1, "two are there already");
    let all = u64::try_from(made.len()).unwrap();
    assert_eq!(plant.outbox.write_cycle(&made).await.unwrap(), all - 3);
    assert_eq!(plant.outbox.write_cycle(&made).await.unwrap(), 0, "the same again changes nothing");

    let client = plant.client().await;
    let row = client
        .query_one(
            "SELECT aggregate_type, aggregate_id, event_type, status, retry_count, payload::text, headers
             FROM outbox_events WHERE id = $1",
            &[&third.event_id.uuid()],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "telemetry");
    assert_eq!(row.get::<_, &str>(1), "PLANT01.AREA01.UNIT_07.TEMPERATURE");
    assert_eq!((row.get::<_, &str>(2), row.get::<_, &str>(3)), ("TEMPERATURE", "PENDING"));
    assert_eq!(row.get::<_, i32>(4), 0);
    assert_eq!(Envelope::parse(row.get::<_, &str>(5).as_bytes()).as_ref(), Ok(third));
    let headers: serde_json::Value = row.get(6);
    let mut names: Vec<_> = headers.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let documented =
        ["correlationId", "partitionKey", "schemaVersion", "sourceTimestamp", "topic", "traceId"];
    assert_eq!(names, documented);
    assert_eq!(headers["topic"], "scada.l2.telemetry.temperature");
    let cached: i64 =
        client.query_one("SELECT count(*) FROM local_telemetry", &[]).await.unwrap().get(0);
    assert_eq!(cached, 9, "three measurements a cycle");
}

#[tokio::test]
async fn two_dispatchers_publish_everything_once_and_in_order() {
    let plant = Plant::new("scada_order").await;
    let made = cycles(200);
    for cycle in &made {
        plant.outbox.write_cycle(cycle).await.unwrap();
    }
    let bus = Arc::new(Bus::default());
    let dispatchers = [plant.dispatcher("one", &bus), plant.dispatcher("two", &bus)];
    let all = made.concat();
    plant.settled("SENT", i64::try_from(all.len()).unwrap()).await;
    let mut wanted: HashMap<String, Vec<String>> = HashMap::new();
    for event in &all {
        wanted.entry(event.partition_key()).or_default().push(event.event_id.to_string());
    }
    let mut seen: HashMap<String, Vec<String>> = HashMap::new();
    for message in bus.taken() {
        seen.entry(message.key.unwrap()).or_default().push(message.message_id);
    }
    assert_eq!(seen, wanted);
    for dispatcher in dispatchers {
        dispatcher.stop().await;
    }
}

/// By what the server counts: claims walk the lanes and not the table, and write no index entry.
#[tokio::test]
async fn claims_read_their_lanes_and_write_no_index_entry() {
    let plant = Plant::new("scada_claims").await;
    let made = cycles(300).concat();
    for part in made.chunks(500) {
        plant.outbox.write_batch(part).await.unwrap();
    }
    let rows = i64::try_from(made.len()).unwrap();
    let client = plant.client().await;
    let statistics = "SELECT
        (SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'idx_outbox_lane') AS lane,
        (SELECT sum(idx_tup_read)::int8 FROM pg_stat_user_indexes
            WHERE indexrelname IN ('idx_outbox_created', 'idx_outbox_aggregate_order')) AS elsewhere,
        n_tup_hot_upd AS hot FROM pg_stat_user_tables WHERE relname = 'outbox_events'";
    let bus = Arc::new(Bus::default());
    let dispatcher = plant.dispatcher("one", &bus);
    plant.settled("SENT", rows).await;
    dispatcher.stop().await;
    testkit::eventually(LONG, "the server's counts", async || {
        let row = client.query_one(statistics, &[]).await.unwrap();
        let (lane, elsewhere): (i64, i64) = (row.get("lane"), row.get("elsewhere"));
        assert_eq!(elsewhere, 0, "rows were looked for in another order");
        // A page that was full at the first claim has no room: most, not all.
        lane > 0 && row.get::<_, i64>("hot") > rows / 2
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_outage_burns_no_attempt_and_a_refused_event_fails_alone() {
    let plant = Plant::new("scada_outage").await;
    let made = cycles(20).concat();
    let bus = Arc::new(Bus::default());
    *bus.away.lock().unwrap() = Some(PublishError::Unreachable("cut".into()));
    let poison = made[0].event_id.to_string();
    let too_large = PublishError::TooLarge { bytes: 9, limit: 8 };
    bus.failures.lock().unwrap().insert(poison, too_large);
    plant.outbox.write_cycle(&made).await.unwrap();
    let dispatcher = plant.dispatcher("one", &bus);
    testkit::eventually(LONG, "the bus is tried", async || dispatcher.counts().released > 0)
        .await
        .unwrap();
    *bus.away.lock().unwrap() = None;
    plant.settled("SENT", i64::try_from(made.len()).unwrap() - 1).await;
    plant.settled("FAILED", 1).await;
    let client = plant.client().await;
    let row = client
        .query_one(
            "SELECT max(retry_count) FILTER (WHERE status = 'SENT'),
                max(failed_reason), max(last_error_code) FROM outbox_events",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, i32>(0), 0);
    assert_eq!(row.get::<_, &str>(1), "refused_by_the_bus");
    assert_eq!(row.get::<_, &str>(2), "TOO_LARGE");
    let pool = pg::Pool::new(&plant.options).unwrap();
    let told = metrics(&pool.get().await.unwrap(), "one").await.unwrap();
    assert_eq!((told.pending_count, told.in_progress_count, told.failed_count), (0, 0, 1));
    assert_eq!(told.sent_count, u64::try_from(made.len()).unwrap() - 1);

    // What was wrong is mended, and an operator says so.
    bus.failures.lock().unwrap().clear();
    let mut client = plant.client().await;
    let actor = Actor::User("ada".to_owned());
    let sent = redrive(&mut client, &actor, &[made[1].event_id.uuid()]).await.unwrap();
    assert!(sent.is_empty(), "it was sent");
    assert_eq!(redrive(&mut client, &actor, &[]).await.unwrap(), [made[0].event_id.uuid()]);
    let audit = "SELECT actor, action, parameters, changed FROM operator_audit ORDER BY id";
    let deeds: Vec<(String, String, serde_json::Value, i64)> = client
        .query(audit, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
        .collect();
    let deed = |parameters, changed| {
        ("ada".to_owned(), "producer.redrive".to_owned(), parameters, changed)
    };
    let one = serde_json::json!({"all": false, "ids": [made[1].event_id]});
    assert_eq!(deeds, [deed(one, 0), deed(serde_json::json!({"all": true, "ids": []}), 1)]);
    plant.settled("SENT", i64::try_from(made.len()).unwrap()).await;
    dispatcher.stop().await;
}

#[tokio::test]
async fn the_database_refuses_states_that_there_are_not() {
    let plant = Plant::new("scada_states").await;
    plant.outbox.write_batch(&cycles(1).concat()).await.unwrap();
    let client = plant.client().await;
    for change in [
        "status = 'DONE'",
        "status = 'SENT'",
        "status = 'FAILED'",
        "status = 'IN_PROGRESS'",
        "status = 'IN_PROGRESS', lease_token = gen_random_uuid()",
        "lease_token = gen_random_uuid()",
        "retry_count = -1",
    ] {
        let query = format!("UPDATE outbox_events SET {change}");
        assert!(client.batch_execute(&query).await.is_err(), "{change}");
    }
}

#[tokio::test]
async fn only_what_was_sent_long_ago_is_pruned() {
    let plant = Plant::new("scada_prune").await;
    let made = cycles(4).concat();
    plant.outbox.write_cycle(&made).await.unwrap();
    let client = plant.client().await;
    let old = "now() - interval '31 days'";
    let each = [
        format!("status = 'SENT', sent_at = {old}"),
        "status = 'SENT', sent_at = now()".to_owned(),
        format!("status = 'FAILED', failed_at = {old}, failed_reason = 'x', created_at = {old}"),
        format!("created_at = {old}"),
        format!(
            "status = 'IN_PROGRESS', locked_by = 'x', locked_at = {old}, lock_expires_at = {old},
             lease_token = gen_random_uuid(), created_at = {old}"
        ),
    ];
    for (change, event) in each.iter().zip(&made) {
        let query = format!("UPDATE outbox_events SET {change} WHERE id = $1");
        client.execute(&query, &[&event.event_id.uuid()]).await.unwrap();
    }
    let aged = format!("UPDATE local_telemetry SET timestamp = {old} WHERE tag = 'PRESSURE'");
    client.batch_execute(&aged).await.unwrap();
    let pool = pg::Pool::new(&plant.options).unwrap();
    let month = Duration::from_secs(30 * 24 * 3600);
    let pruned = prune(&pool.get().await.unwrap(), month).await.unwrap();
    assert_eq!(pruned, Pruned { events: 1, telemetry: 4 });
    assert_eq!(prune(&pool.get().await.unwrap(), month).await.unwrap(), Pruned::default());
}
