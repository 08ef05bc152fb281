//! What can never be stored: in `scada.l2.dlq`, with its cause and whole, before anything moves past it.

use api::tokens::Role;
use bus::Filter;
use bus::kafka::{DeadLetterTopic, admin};
use event::names::kafka::Topic;
use scada::historian::{INCOMPATIBLE, INVALID};
use testkit::eventually;
use testkit::rig::KafkaOptions;

use super::{LONG, Plant};
use crate::letters::{Asker, goes_round};
use crate::station::{count, message};

#[tokio::test]
async fn an_invalid_message_is_in_the_dead_letter_topic_with_cause_and_original() {
    let Some(plant) = Plant::shared("kafka_invalid").await else { return };
    let made = plant.events(20);
    let mut messages: Vec<_> = made.iter().map(message).collect();
    let mut invalid = message(&plant.events(1)[0]);
    invalid.body = "{\"canary\": 1}".into();
    let mut newer = message(&plant.events(1)[1]);
    newer.headers.insert("schema_version".to_owned(), "2.0.0".to_owned());
    messages.insert(5, invalid.clone());
    messages.insert(30, newer.clone());
    let historian = plant.historian().await;
    plant.publish(messages).await;
    plant.has_stored(&made).await;
    plant.is_at_the_end().await;
    let topic = DeadLetterTopic::new(plant.cluster.clone(), Topic::Dlq.name());
    let filter = Filter { queue: Some(plant.group.clone()), ..Filter::default() };
    let letters = topic.list(&filter, 1000).await.unwrap();
    for (original, code) in [(&invalid, INVALID), (&newer, INCOMPATIBLE)] {
        let mut of_this =
            letters.iter().filter(|(one, _)| one.message.message_id == original.message_id);
        let (letter, position) = of_this.next().expect("the dead letter is there");
        assert!(of_this.next().is_none(), "and once");
        assert_eq!((letter.cause.code.as_str(), &letter.message.body), (code, &original.body));
        assert!(!letter.cause.message.contains("canary"), "{:?}", letter.cause);
        let headers = &letter.message.headers;
        assert_eq!(headers.get("schema_version"), original.headers.get("schema_version"));
        assert_eq!(letter.message.key, original.key);
        assert_eq!(&*position.as_ref().unwrap().topic, original.exchange);
    }
    historian.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_dead_letters_cannot_be_written_no_offset_moves() {
    let Some(kafka) = testkit::private_kafka(KafkaOptions::default()).await.unwrap() else {
        return;
    };
    let plant = Plant::on("kafka_no_dlq", &kafka.servers(), "group").await;
    let (servers, dlq) = (kafka.servers(), Topic::Dlq.name());
    let delete = ["--bootstrap-server", &servers, "--delete", "--topic", dlq];
    kafka.tool("org.apache.kafka.tools.TopicCommand", &delete).await.unwrap();
    let made = plant.events(5);
    let mut messages: Vec<_> = made.iter().map(message).collect();
    messages[0].body = "{}".into();
    let lost = messages[0].message_id.clone();
    plant.publish(messages).await;
    let historian = plant.historian().await;
    let ready = format!("http://{}/readyz", historian.http());
    eventually(LONG, "the batch waits for its dead letter", async || {
        let said = crate::station::http().get(&ready).send().await.unwrap().text().await.unwrap();
        if said.contains("a batch waits") { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
    let client = plant.client().await;
    let topic = format!("bus_offsets WHERE topic = '{}'", made_topic(&made[0]));
    assert_eq!(count(&client, &topic).await, 0, "nothing has moved past it");
    admin::apply(&plant.cluster, &scada::kafka::topics(event::names::kafka::Profile::Dev))
        .await
        .unwrap();
    plant.has_stored(&made[1..]).await;
    plant.is_at_the_end().await;
    let letters = DeadLetterTopic::new(plant.cluster.clone(), dlq);
    let letters = letters.list(&Filter::default(), 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].0.message.message_id, lost);
    historian.stop().await;
}

#[tokio::test]
async fn a_dead_letter_goes_back_to_the_historian_over_http() {
    let options = KafkaOptions::default();
    let Some(kafka) = testkit::private_kafka(options).await.unwrap() else { return };
    let plant = Plant::on("kafka_goes_round", &kafka.servers(), "group").await;
    let historian = plant.historian().await;
    let mut bad = message(&plant.events(1)[0]);
    bad.body = "{\"canary\": 1}".into();
    plant.publish(vec![bad.clone()]).await;
    let operator = Asker::new(&plant.client().await, historian.http(), Role::Operator).await;
    goes_round(&operator, &plant.group, &bad.message_id).await;
    historian.stop().await;
}

fn made_topic(event: &event::scada::Envelope) -> &'static str {
    Topic::of(event.category, &event.tag).name()
}
