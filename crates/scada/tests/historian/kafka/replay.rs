//! A replay: the stored offsets are set back, and the next start reads again.

use event::names::kafka::Topic;
use jiff::{Span, Timestamp};
use scada::historian::audit::Actor;
use scada::historian::offsets::{Back, set_back};

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
    historian.stop().await;
    let topic = Topic::TelemetryFlow.name();
    let mut client = plant.client().await;
    let who = Actor::User("anna".to_owned());
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
