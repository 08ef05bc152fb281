//! TLS, passwords and access rules, on a broker of the test's own.

use std::sync::Arc;
use std::time::SystemTime;

use bus::kafka::{
    Cluster, ConsumerOptions, KafkaConsumer, KafkaPublisher, PublisherOptions, Tls, admin,
};
use bus::{About, Consumer as _, PublishError, Publisher as _};
use testkit::rig::certificates::Authority;
use tokio::time::timeout;

use crate::world::{LONG, SECRET, Site, WEEK, by, ids, next, secured};

const ACLS: &str = "org.apache.kafka.tools.AclCommand";

async fn refusal(cluster: &Cluster, site: &Site) -> PublishError {
    let publisher = KafkaPublisher::new(cluster.clone(), PublisherOptions::default());
    let mut results = timeout(LONG, publisher.publish(vec![site.message(9, 1)])).await.unwrap();
    let error = results.remove(0).unwrap_err();
    let shown = format!("{error} {error:?} {publisher:?} {cluster:?}");
    assert!(!shown.contains(SECRET) && !shown.contains("wrong-password"), "{shown}");
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_who_may_gets_in_and_only_as_far_as_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::make(folder.path(), "ca").unwrap();
    let stranger = Authority::make(folder.path(), "stranger").unwrap();
    let now = SystemTime::now();
    let client = authority.issue("client", &[], now + WEEK).unwrap();
    let expired = authority.issue("expired", &[], now - WEEK).unwrap();
    let foreign = stranger.issue("foreign", &[], now + WEEK).unwrap();
    let Some(kafka) = secured(&authority, &["producer", "historian"]).await else { return };
    // The plain listener is the administrator's.
    let site = Site::on(&kafka.servers(), 2, 1).await;
    let plain = kafka.servers();
    let allow = async |rule: &[&str]| {
        let add = ["--bootstrap-server", &plain, "--add", "--allow-principal"];
        kafka.tool(ACLS, &[&add[..], rule].concat()).await.unwrap();
    };
    allow(&[
        "User:producer",
        "--operation",
        "Write",
        "--operation",
        "Describe",
        "--topic",
        "readings",
    ])
    .await;
    allow(&[
        "User:historian",
        "--operation",
        "Read",
        "--operation",
        "Describe",
        "--topic",
        "readings",
        "--group",
        "group",
    ])
    .await;

    let secure = Cluster::parse(&kafka.secure_servers()).unwrap();
    let trusted = by(&secure, &client, &authority);
    let producer = trusted.clone().with_login("producer", SECRET);
    let historian = trusted.clone().with_login("historian", SECRET);
    let publisher = |cluster: &Cluster| {
        Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()))
    };
    let consumer = |cluster: &Cluster| {
        KafkaConsumer::new(cluster, site.group(), publisher(cluster), ConsumerOptions::default())
    };

    // What they may do works.
    let batch = (0..3).map(|n| site.message(n, 2)).collect();
    assert_eq!(timeout(LONG, publisher(&producer).publish(batch)).await.unwrap(), vec![Ok(()); 3]);
    let mut reading = consumer(&historian);
    let mut read = Vec::new();
    while read.len() < 3 {
        let batch = next(&mut reading).await;
        read.extend(ids(&batch));
        batch.commit().await.unwrap();
    }

    // What they may not is our fault.
    let error = timeout(LONG, consumer(&producer).next()).await.unwrap().unwrap_err();
    assert_eq!(error.about(), About::Us, "a producer that tries to read: {error}");
    let error = refusal(&historian, &site).await;
    assert!(matches!(error, PublishError::Misconfigured(_)), "a reader that writes: {error:?}");
    let making = admin::apply(&producer, &[admin::TopicSpec::new("mine", 1, 1)]).await;
    assert!(making.is_err(), "{making:?}");

    // Who may not come in at all waits outside, and is told why.
    let wrong = trusted.clone().with_login("producer", "wrong-password");
    let error = refusal(&wrong, &site).await;
    assert_eq!(error.about(), About::Destination);
    assert!(error.to_string().to_lowercase().contains("authentication"), "{error}");
    for cluster in [
        by(&secure, &expired, &authority).with_login("producer", SECRET),
        by(&secure, &foreign, &authority).with_login("producer", SECRET),
        by(&secure, &client, &stranger).with_login("producer", SECRET),
        secure.clone().with_login("producer", SECRET),
    ] {
        let error = refusal(&cluster, &site).await;
        assert_eq!(error.about(), About::Destination, "{cluster:?}: {error}");
    }
    let missing = Tls { ca_file: Some(folder.path().join("missing.pem")), identity: None };
    assert_eq!(refusal(&secure.with_tls(missing), &site).await.about(), About::Us);
}
