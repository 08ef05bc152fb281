//! Two historians: what the first stores of a plant, the second has too, once and in order.

use api::tokens::Role;
use event::scada::Envelope;
use testkit::eventually;
use testkit::rig::{Link, Mode};

use crate::station::{LONG, Station, alarm, events, expected, http, message};

fn of_plant(plant: &str, events: Vec<Envelope>) -> Vec<Envelope> {
    let mut events = events;
    for event in &mut events {
        event.asset.plant = plant.parse().unwrap();
    }
    events
}

#[tokio::test]
async fn the_second_has_what_the_first_stored_of_its_plants_through_an_outage() {
    let _ = http();
    let second = Station::new("fed_second").await;
    let token = second.token(Role::Edge).await;
    let link = Link::start(second.historian.http()).await.unwrap();
    let url = format!("http://{}", link.addr());
    let first = Station::with(
        "fed_first",
        &[("FEDERATION_URL", &url), ("FEDERATION_TOKEN", &token), ("FEDERATION_PLANTS", "NORTH")],
    )
    .await;
    let (north, south) = (of_plant("NORTH", events(7, 60)), of_plant("SOUTH", events(8, 20)));
    link.set(Mode::Cut);
    first.publish(north.iter().chain(&south).map(message).collect()).await;
    let waiting = "federation_outbox";
    assert_eq!(first.count(waiting).await, i64::try_from(north.len()).unwrap());
    link.set(Mode::Pass);
    eventually(LONG, "all of it is there", async || {
        second.stored().await.len() == north.len() && first.count(waiting).await == 0
    })
    .await
    .unwrap();
    assert_eq!(second.stored().await, expected(&north), "the other plant's is not sent");
    // The same again, and what the second cannot take.
    first.publish(north.iter().map(message).collect()).await;
    assert_eq!(first.count(waiting).await, 0, "what is no news is not sent");
    let late = of_plant("NORTH", vec![alarm("HIGH_TEMP", 330.0, jiff::Timestamp::now())]);
    first.publish(late.iter().map(message).collect()).await;
    eventually(LONG, "an alarm goes the same way", async || {
        second.count("alarm_state WHERE plant = 'NORTH' AND tag = 'HIGH_TEMP'").await == 1
    })
    .await
    .unwrap();
    assert_eq!(first.count("federation_outbox WHERE retry_count > 0").await, 0);
}

#[tokio::test]
async fn two_that_send_to_each_other_do_not_go_round_in_circles() {
    let _ = http();
    let second = Station::new("fed_back").await;
    let token = second.token(Role::Edge).await;
    let url = format!("http://{}", second.historian.http());
    let pairs = [("FEDERATION_URL", url.as_str()), ("FEDERATION_TOKEN", token.as_str())];
    let first = Station::with("fed_forth", &pairs).await;
    let made = events(7, 30);
    // As the second would send them.
    let body = serde_json::json!({"events": made.iter().map(|event| serde_json::json!({"event": event})).collect::<Vec<_>>()});
    let edge = first.token(Role::Edge).await;
    let post = async |body: String| {
        let request = http().post(first.url("/federation/batches")).bearer_auth(&edge);
        let answer = request.body(body).send().await.unwrap();
        answer.json::<serde_json::Value>().await.unwrap()
    };
    let answer = post(body.to_string()).await;
    assert!(answer["results"].as_array().unwrap().iter().all(|one| one["status"] == "stored"));
    let again = post(body.to_string()).await;
    assert!(again["results"].as_array().unwrap().iter().all(|one| one["status"] == "duplicate"));
    assert_eq!(first.stored().await, expected(&made));
    assert_eq!(first.count("federation_outbox").await, 0);
    let bad = post(
        "{\"events\": [{\"event\": {}}, {\"schema_version\": \"9.0.0\", \"event\": {}}]}"
            .to_owned(),
    )
    .await;
    assert_eq!(bad["results"][0]["code"], "invalid_envelope");
    assert_eq!(bad["results"][1]["code"], "incompatible_schema");
}
