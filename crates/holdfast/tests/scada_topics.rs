//! `holdfast scada certs` and `holdfast scada topics`, on a Kafka of the test's own that asks for certificate and password; and the
//! historian there, with the rights that `acls` gives it and no others.

#![cfg(feature = "kafka")]
#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use bus::kafka::{
    Cluster, ConsumerOptions, DeadLetterTopic, Group, KafkaConsumer, KafkaPublisher,
    PublisherOptions, Tls,
};
use bus::{About, Consumer as _, Filter, Message, PublishError, Publisher as _, Retry};
use event::names::kafka::Topic;
use jiff::Timestamp;
use scada::generate::Node;
use scada::historian::{Config, Historian};
use scada::outbox::Headers;
use serde_json::Value;
use testkit::rig::KafkaOptions;
use testkit::rig::kafka::KafkaSecurity;
use testkit::{Database, PrivateKafka, eventually};

const LONG: Duration = Duration::from_secs(120);
const SECRET: &str = "canary-password";
const CONFIGS: &str = "kafka.admin.ConfigCommand";
const ACLS: &str = "org.apache.kafka.tools.AclCommand";

fn holdfast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("scada").args(arguments).output().unwrap()
}

fn says(arguments: &[&str]) -> String {
    let out = holdfast(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Standard output and error of a command that fails.
fn refuses(arguments: &[&str]) -> (String, String) {
    let out = holdfast(arguments);
    assert!(!out.status.success(), "{arguments:?}");
    (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
}

async fn topics_are_compared_and_made(kafka: &PrivateKafka) {
    let servers = kafka.servers();
    let run = |verb: &'static str| ["topics", verb, "--profile", "dev", "--brokers", &servers];
    let (table, error) = refuses(&run("diff"));
    for topic in Topic::ALL {
        assert!(table.contains(topic.name()), "{table}");
    }
    assert!(error.contains("topics apply"), "{error}");
    assert!(says(&run("apply")).contains("missing"));
    assert!(says(&run("apply")).contains("were as they should be"));
    assert!(says(&run("diff")).contains("All 6 topics"));
    // Somebody has changed them: what is shorter is mended, what would delete is left.
    let alter = async |topic: Topic, setting: &str| {
        let server = ["--bootstrap-server", &servers, "--alter", "--entity-type", "topics"];
        let what = ["--entity-name", topic.name(), "--add-config", setting];
        kafka.tool(CONFIGS, &[&server[..], &what].concat()).await.unwrap();
    };
    alter(Topic::Events, "retention.ms=1000,segment.ms=1000").await;
    alter(Topic::Alarms, "retention.ms=-1").await;
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (found, _) = refuses(&[&run("diff")[..], &["--json"]].concat());
    assert_eq!(json(&found).as_array().unwrap().len(), 3, "{found}");
    let (done, error) = refuses(&[&run("apply")[..], &["--json"]].concat());
    let done = json(&done);
    assert_eq!(done["changed"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(done["left"][0]["topic"], Topic::Alarms.name(), "{done}");
    assert!(error.contains("kafka-configs"), "{error}");
}

/// Runs what `acls` writes.
async fn users_and_rules_are_made(kafka: &PrivateKafka, folder: &Path) {
    let servers = kafka.servers();
    let text = says(&["topics", "acls", "--brokers", &servers]);
    assert!(text.contains("kafka-acls.sh") && !text.contains(SECRET), "{text}");
    let written = says(&["topics", "acls", "--brokers", &servers, "--json"]);
    let tools: Vec<Value> = serde_json::from_str(&written).unwrap();
    for tool in tools {
        let mut arguments: Vec<String> = serde_json::from_value(tool["arguments"].clone()).unwrap();
        let class = if tool["tool"] == "kafka-acls" { ACLS } else { CONFIGS };
        if let Some(file) = arguments.last_mut().filter(|last| last.ends_with(".properties")) {
            let path = folder.join(&*file);
            std::fs::write(&path, format!("SCRAM-SHA-512=password={SECRET}\n")).unwrap();
            *file = path.display().to_string();
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        kafka.tool(class, &arguments).await.unwrap();
    }
    let odd = refuses(&["topics", "acls", "--producer", "a b"]).1;
    assert!(odd.contains("letters"), "{odd}");
}

fn events(count: usize) -> Vec<Message> {
    let mut node = Node::new("PLANT01".parse().unwrap(), 1, 1).unwrap();
    let made = (0..count).flat_map(|_| node.cycle(Timestamp::now()).unwrap());
    let message = |event: event::scada::Envelope| {
        let headers = Headers::of(&event, "test");
        let id = event.event_id.to_string();
        let new = Message::json(headers.topic, event.tag.as_str(), id, event.to_json());
        Message { key: Some(headers.partition_key), ..new }
    };
    made.map(message).collect()
}

async fn publish(cluster: &Cluster, messages: Vec<Message>) -> Vec<Result<(), PublishError>> {
    let publisher = KafkaPublisher::new(cluster.clone(), PublisherOptions::default());
    tokio::time::timeout(LONG, publisher.publish(messages)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_set_up_by_commands_and_the_historian_works_with_what_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let certs = folder.path().join("certs");
    let out = certs.to_str().unwrap();
    says(&["certs", "--out", out, "--host", "kafka-1.plant.local"]);
    assert!(refuses(&["certs", "--out", out]).1.contains("is there already"));
    let security = KafkaSecurity {
        authority: certs.join("ca.pem"),
        certificate: certs.join("broker.pem"),
        key: certs.join("broker.key"),
        mutual: true,
        users: Vec::new(),
    };
    let options = KafkaOptions { security: Some(security), ..KafkaOptions::default() };
    let Some(kafka) = testkit::private_kafka(options).await.unwrap() else { return };
    topics_are_compared_and_made(&kafka).await;
    users_and_rules_are_made(&kafka, folder.path()).await;

    let as_user = |name: &str| {
        let file = |end: &str| certs.join(format!("{name}.{end}"));
        let identity = Some((file("pem"), file("key")));
        let tls = Tls { ca_file: Some(certs.join("ca.pem")), identity };
        Cluster::parse(&kafka.secure_servers()).unwrap().with_tls(tls).with_login(name, SECRET)
    };
    let password = folder.path().join("password");
    std::fs::write(&password, format!("{SECRET}\n")).unwrap();
    let database = Database::empty("scada_secure").await.unwrap();
    let servers = kafka.secure_servers();
    let file = |name: &str| certs.join(name).display().to_string();
    let settings = [
        ("DATABASE_URL", database.url().to_owned()),
        ("HTTP_LISTEN", "127.0.0.1:0".to_owned()),
        ("BUS", "kafka".to_owned()),
        ("KAFKA_BROKERS", servers),
        ("KAFKA_CA_FILE", file("ca.pem")),
        ("KAFKA_CERTIFICATE_FILE", file("historian.pem")),
        ("KAFKA_KEY_FILE", file("historian.key")),
        ("KAFKA_USER", "historian".to_owned()),
        ("KAFKA_PASSWORD_FILE", password.display().to_string()),
    ];
    let config = Config::load(None, |name| {
        let key = name.strip_prefix("HOLDFAST_HISTORIAN_")?;
        Some(settings.iter().find(|(name, _)| *name == key)?.1.clone())
    });
    let config = config.unwrap();
    assert!(!format!("{config:?}").contains(SECRET));
    let historian = Historian::start(config).await.unwrap();

    // The producer writes, the historian stores, what is invalid is a dead letter.
    let mut messages = events(20);
    messages[3].body = "{}".into();
    let count = i64::try_from(messages.len() - 1).unwrap();
    let results = publish(&as_user("producer"), messages.clone()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let client = database.connect().await.unwrap();
    let all = "SELECT (SELECT count(*) FROM telemetry) + (SELECT count(*) FROM events) + (SELECT count(*) FROM alarms)";
    eventually(LONG, "all of it is stored", async || {
        let seen: i64 = client.query_one(all, &[]).await.unwrap().get(0);
        if seen == count { Ok(()) } else { Err(seen) }
    })
    .await
    .unwrap();
    let letters =
        DeadLetterTopic::new(Cluster::parse(&kafka.servers()).unwrap(), Topic::Dlq.name());
    let letters = letters.list(&Filter::default(), 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].0.message.message_id, messages[3].message_id);

    // And neither may do more.
    let ours = |results: &[Result<(), PublishError>]| {
        results.iter().all(|one| one.as_ref().is_err_and(|error| error.about() == About::Us))
    };
    let to_dlq = Message { exchange: Topic::Dlq.name().to_owned(), ..messages[0].clone() };
    let refused = publish(&as_user("producer"), vec![to_dlq]).await;
    assert!(ours(&refused), "a producer that writes dead letters: {refused:?}");
    let refused = publish(&as_user("historian"), vec![messages[0].clone()]).await;
    assert!(ours(&refused), "a historian that makes events: {refused:?}");
    let producer = as_user("producer");
    let group = Group {
        name: scada::historian::GROUP.to_owned(),
        bindings: scada::historian::bindings(),
        dead_letter_topic: Topic::Dlq.name().to_owned(),
        retry: Retry::broker(),
    };
    let copies = Arc::new(KafkaPublisher::new(producer.clone(), PublisherOptions::default()));
    let mut reader = KafkaConsumer::new(&producer, group, copies, ConsumerOptions::default());
    let error = tokio::time::timeout(LONG, reader.next()).await.unwrap().unwrap_err();
    assert_eq!(error.about(), About::Us, "a producer that tries to read: {error}");
    historian.stop().await;
}
