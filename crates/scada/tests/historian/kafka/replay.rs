//! A replay: the stored offsets are set back, and the next start reads again.

use event::names::kafka::Topic;
use jiff::{Span, Timestamp};
use scada::historian::audit::Actor;
use scada::historian::offsets::{Back, SetBackError, set_back};

use super::Plant;
use crate::station::message;

#[tokio::test]
async fn a_replay_by_offset_or_by_time_reads_again_and_doubles_nothing() {
    let Some(plant) = Plant::shared("kafka_replay").await else { return };
    let made = plant.events(30);
    plant.publish(made.iter().map(message).collect()).await;
    // A group that is new starts at the earliest, though this was published before it was there.
    let historian = plant.historian().await;
    plant.has_stored(&made).await;
    plant.is_at_the_end().await;
    let topic = Topic::TelemetryFlow.name();
    let mut client = plant.client().await;
    let who = Actor::User("anna".to_owned());
    // Beside a replica that runs it would be undone by the next batch.
    let offsets = "SELECT sum(next_offset)::int8 FROM bus_offsets";
    let before: i64 = client.query_one(offsets, &[]).await.unwrap().get(0);
    let refused = set_back(&mut client, &who, &plant.group, topic, Back::Offset(0)).await;
    let refused = refused.unwrap_err();
    assert!(matches!(&refused, SetBackError::Running { running, .. } if running.len() == 1));
    assert!(refused.to_string().contains("stop them all"), "{refused}");
    let after: i64 = client.query_one(offsets, &[]).await.unwrap().get(0);
    assert!(after >= before, "nothing went back: {before}, {after}");
    // Another group is none of its business.
    let other = set_back(&mut client, &who, "another", topic, Back::Offset(0)).await.unwrap();
    assert_eq!(other, []);
    // A replica whose connection is broken takes its lock again by itself.
    let cut = "SELECT count(pg_terminate_backend(pid))::int8 FROM pg_stat_activity
        WHERE application_name = 'holdfast-historian-replica' AND datname = current_database()";
    let held = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity a USING (pid)
        WHERE locktype = 'advisory' AND granted AND datname = current_database()
            AND a.application_name = 'holdfast-historian-replica' AND NOT a.pid = ANY($1::int4[])";
    let pids = "SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
        WHERE application_name = 'holdfast-historian-replica' AND datname = current_database()";
    let old: Vec<i32> = client.query_one(pids, &[]).await.unwrap().get(0);
    assert_eq!(client.query_one(cut, &[]).await.unwrap().get::<_, i64>(0), 1);
    testkit::eventually(super::LONG, "the lock is held again", async || {
        client.query_one(held, &[&old]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await
    .unwrap();
    historian.stop().await;
    let yesterday = Timestamp::now() - Span::new().hours(24);
    let lose = "DELETE FROM telemetry WHERE plant = $1 AND tag = 'FLOW_RATE'";
    for back in [Back::Offset(0), Back::Time(yesterday)] {
        // What is lost comes again; what is not is left as it is.
        let lost = client.execute(lose, &[&plant.name]).await.unwrap();
        assert_eq!(lost, 4 * 30);
        let done = set_back(&mut client, &who, &plant.group, topic, back).await.unwrap();
        assert!(!done.is_empty() && done.iter().all(|one| one.to_offset < one.from_offset));
        let historian = plant.historian().await;
        plant.has_stored(&made).await;
        plant.is_at_the_end().await;
        historian.stop().await;
    }
    // Without one, a restart reads nothing again.
    client.execute(lose, &[&plant.name]).await.unwrap();
    let historian = plant.historian().await;
    let more = plant.events(1);
    plant.publish(more.iter().map(message).collect()).await;
    plant.is_at_the_end().await;
    let left = made.iter().filter(|event| event.tag.as_str() != "FLOW_RATE").count();
    assert_eq!(plant.stored().await.len(), left + more.len());
    historian.stop().await;
}
