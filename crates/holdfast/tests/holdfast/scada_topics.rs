//! `holdfast scada certs`, `topics` and `access`, on a Kafka of the test's own that asks for certificate and password; and the
//! historian and an operator there, with the rights that `access` gives them and no others.

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

/// `holdfast scada access`, with passwords of two users in the environment and the third's in the file that the configuration names.
fn access(config: &Path, arguments: &[&str], password: &str) -> (bool, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["scada", "access"]).args(arguments).args(["--operator", "operator"]);
    command.arg("--config").arg(config);
    for role in ["HISTORIAN", "OPERATOR"] {
        command.env(format!("HOLDFAST_SCADA_ADMIN_ACCESS_{role}_PASSWORD"), password);
    }
    let out = command.output().unwrap();
    let (said, error) =
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(!said.contains(password) && !error.contains(password), "{said}{error}");
    (out.status.success(), said, error)
}

async fn users_and_rules_are_made(kafka: &PrivateKafka, folder: &Path) {
    let servers = kafka.servers();
    let password = folder.join("password");
    std::fs::write(&password, format!("{SECRET}\n")).unwrap();
    let config = folder.join("admin.toml");
    let text = format!(
        "[scada_admin]\nkafka.brokers = {servers:?}\naccess.producer_password_file = {:?}\n",
        password.display().to_string()
    );
    std::fs::write(&config, text).unwrap();
    let run = |arguments: &[&str]| access(&config, arguments, SECRET);
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();

    let (same, table, error) = run(&["diff"]);
    assert!(!same && error.contains("23 differences") && error.contains("access apply"), "{error}");
    let dead_letters = format!("Write topic {}", Topic::Dlq.name());
    assert!(table.contains(&dead_letters) && table.contains("password"), "{table}");
    let (done, table, error) = run(&["apply", "--dry-run"]);
    assert!(done && table.contains("would be done"), "{table}{error}");
    let (done, _, error) = access(&config, &["apply"], "canary-pässword");
    assert!(!done && error.contains("the password of historian"), "{error}");
    assert_eq!(json(&run(&["diff", "--json"]).1).as_array().unwrap().len(), 23, "nothing is made");
    let (done, table, error) = run(&["apply"]);
    assert!(done && table.contains("done") && !table.contains("left"), "{table}{error}");
    assert!(run(&["apply", "--prune"]).1.contains("All 20 rules of 3 users were"));
    assert!(run(&["diff"]).1.contains("All 20 rules of 3 users are"));

    // Somebody lets the producer read what begins like ours.
    let wide = ["--bootstrap-server", &servers, "--add", "--allow-principal", "User:producer"];
    let what = ["--operation", "Read", "--topic", "scada.", "--resource-pattern-type", "prefixed"];
    kafka.tool(ACLS, &[&wide[..], &what].concat()).await.unwrap();
    eventually(LONG, "the wide rule is shown", async || {
        let found = json(&run(&["diff", "--json"]).1);
        let rule = &found[0]["rule"];
        if rule["name"] == "scada." && rule["pattern"] == "prefixed" { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
    let (all, done, error) = run(&["apply", "--json"]);
    assert!(!all && error.contains("--prune"), "{error}");
    assert_eq!(json(&done)["left"][0]["what"], "Read topic scada. (prefixed)", "{done}");
    let (all, table, error) = run(&["apply", "--prune"]);
    assert!(all && table.contains("not there"), "{table}{error}");

    // What is printed for Kafka's own tools comes to the same rules.
    let text = says(&["access", "print", "--brokers", &servers]);
    assert!(text.contains("kafka-configs.sh") && text.contains("producer.properties"), "{text}");
    let tools = json(&says(&["access", "print", "--brokers", &servers, "--json"]));
    let historians = tools.as_array().unwrap().iter().filter(|tool| {
        tool["tool"] == "kafka-acls" && tool["why"].as_str().unwrap().starts_with("historian")
    });
    for tool in historians {
        let arguments: Vec<&str> =
            tool["arguments"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        kafka.tool(ACLS, &arguments).await.unwrap();
    }
    assert!(run(&["diff"]).1.contains("All 20 rules of 3 users are"));
    let odd = refuses(&["access", "print", "--producer", "a b"]).1;
    assert!(odd.contains("letters"), "{odd}");
    let twice = refuses(&["access", "print", "--producer", "historian"]).1;
    assert!(twice.contains("named twice"), "{twice}");
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

    // Nor look at who may do what.
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["scada", "access", "diff"]).env_remove("HOLDFAST_CONFIG");
    for (name, value) in settings.iter().filter(|(name, _)| name.starts_with("KAFKA_")) {
        command.env(format!("HOLDFAST_SCADA_ADMIN_{name}"), value);
    }
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(said.contains("CLUSTER_AUTHORIZATION_FAILED") && said.contains("Describe"), "{said}");

    // The operator looks at the dead letter and sends it back; the historian's own user may not even look.
    let dlq = |user: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.arg("dlq").args(arguments).env_remove("HOLDFAST_CONFIG");
        for (name, value) in &settings {
            command.env(format!("HOLDFAST_HISTORIAN_{name}"), value);
        }
        for (name, value) in settings.iter().filter(|(name, _)| name.starts_with("KAFKA_")) {
            let value = match *name {
                "KAFKA_USER" => user.to_owned(),
                "KAFKA_CERTIFICATE_FILE" => file(&format!("{user}.pem")),
                "KAFKA_KEY_FILE" => file(&format!("{user}.key")),
                _ => value.clone(),
            };
            command.env(format!("HOLDFAST_SCADA_ADMIN_{name}"), value);
        }
        command.output().unwrap()
    };
    let out = dlq("historian", &["list", "--scada", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && !said.contains(SECRET), "{said}");
    let out = dlq("operator", &["replay", "--scada", "--all", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && !said.contains(SECRET), "{said}");
    let done: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(done["changed"], 1, "{done}");
    let out = dlq("operator", &["list", "--scada", "--json"]);
    let listed: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(listed["total"], 0, "{listed}");
}
