//! Users and access rules over Kafka's own protocol, and what they come to for who has them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use bus::kafka::access::{
    Applied, Drift, Login, Operation, Options, Pattern, Resource, Rule, User, Wanted, WireError,
    apply, diff,
};
use bus::kafka::{Cluster, ConsumerOptions, KafkaConsumer, KafkaPublisher, PublisherOptions, Tls};
use bus::{About, Consumer as _, Publisher as _};
use testkit::eventually;
use testkit::rig::certificates::Authority;
use tokio::time::timeout;

use crate::world::{LONG, SECRET, Site, WEEK, by, ids, next, secured};

const ACLS: &str = "org.apache.kafka.tools.AclCommand";

fn user(name: &str, login: Login) -> User {
    User { name: name.to_owned(), login }
}

fn password(text: &str) -> Login {
    Login::Password(text.to_owned())
}

/// A producer that writes `readings`, a historian that reads them in its group.
fn wanted() -> Wanted {
    let rules = [
        Rule::allow("producer", Operation::Write, Resource::Topic, "readings"),
        Rule::allow("historian", Operation::Read, Resource::Topic, "readings"),
        Rule::allow("historian", Operation::Read, Resource::Group, "group"),
    ];
    let users = vec![user("producer", password(SECRET)), user("historian", password(SECRET))];
    Wanted { rules: rules.into(), users }
}

const PLAIN: Options = Options { prune: false, set_passwords: false, dry_run: false };
const PRUNE: Options = Options { prune: true, set_passwords: false, dry_run: false };

/// The words of an error, without a password in them.
fn words(result: Result<impl std::fmt::Debug, WireError>) -> String {
    let error = result.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET) && !shown.contains("wrong-password"), "{shown}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_and_users_are_made_compared_and_pruned() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::make(folder.path(), "ca").unwrap();
    let stranger = Authority::make(folder.path(), "stranger").unwrap();
    let client = authority.issue("client", &[], SystemTime::now() + WEEK).unwrap();
    let foreign = stranger.issue("foreign", &[], SystemTime::now() + WEEK).unwrap();
    let Some(kafka) = secured(&authority, &["admin", "nobody"]).await else { return };
    let site = Site::on(&kafka.servers(), 2, 1).await;
    let secure = Cluster::parse(&kafka.secure_servers()).unwrap();
    let trusted = by(&secure, &client, &authority);
    let login = |name: &str| trusted.clone().with_login(name, SECRET);
    let admin = login("admin");

    // An empty cluster lacks everything; a dry run leaves it so.
    let found = diff(&admin, &wanted()).await.unwrap();
    assert_eq!(found.len(), 5, "{found:?}");
    let dry = Options { dry_run: true, ..PLAIN };
    assert_eq!(apply(&admin, &wanted(), dry).await.unwrap().changed, found);
    let kept = Wanted {
        users: vec![user("producer", Login::Kept), user("historian", Login::Elsewhere)],
        ..wanted()
    };
    let left = apply(&admin, &kept, dry).await.unwrap().left;
    assert_eq!(left, [Drift::NoPassword("producer".to_owned())]);
    assert_eq!(diff(&admin, &wanted()).await.unwrap(), found);
    let done = apply(&admin, &wanted(), PLAIN).await.unwrap();
    assert_eq!(done, Applied { changed: found, left: Vec::new() });
    assert_eq!(diff(&admin, &wanted()).await.unwrap(), []);
    assert_eq!(apply(&admin, &wanted(), PRUNE).await.unwrap(), Applied::default());

    // They can do what they may.
    let (producer, historian) = (login("producer"), login("historian"));
    let publisher = |cluster: &Cluster| {
        Arc::new(KafkaPublisher::new(cluster.clone(), PublisherOptions::default()))
    };
    let reader = |cluster: &Cluster| {
        KafkaConsumer::new(cluster, site.group(), publisher(cluster), ConsumerOptions::default())
    };
    let sent = timeout(LONG, publisher(&producer).publish(vec![site.message(0, 1)])).await;
    assert_eq!(sent.unwrap(), [Ok(())]);
    let mut reading = reader(&historian);
    let batch = next(&mut reading).await;
    assert_eq!(ids(&batch), ["id-0"]);
    batch.commit().await.unwrap();

    // And nothing else.
    let error = timeout(LONG, reader(&producer).next()).await.unwrap().unwrap_err();
    assert_eq!(error.about(), About::Us, "a producer that reads: {error}");
    let sent = timeout(LONG, publisher(&historian).publish(vec![site.message(1, 1)])).await;
    let error = sent.unwrap().remove(0).unwrap_err();
    assert_eq!(error.about(), About::Us, "a historian that writes: {error}");
    let said = words(diff(&producer, &wanted()).await);
    for part in ["DescribeAcls", "CLUSTER_AUTHORIZATION_FAILED", "Describe on the cluster"] {
        assert!(said.contains(part), "{said}");
    }

    // Somebody gives them more, and somebody everybody.
    let plain = kafka.servers();
    let add = ["--bootstrap-server", &plain, "--add", "--operation", "Read", "--topic", "read"];
    let who = ["--allow-principal", "User:producer", "--allow-principal", "User:*"];
    let how = ["--resource-pattern-type", "prefixed"];
    kafka.tool(ACLS, &[&add[..], &who, &how].concat()).await.unwrap();
    let rule = |user: &str| {
        let rule = Rule::allow(user, Operation::Read, Resource::Topic, "read");
        Drift::TooMuch(Rule { pattern: Pattern::Prefixed, ..rule })
    };
    let (own, of_all) = (rule("producer"), rule("*"));
    eventually(LONG, "the wide rules are found", async || {
        let found = diff(&admin, &wanted()).await.unwrap();
        if found == [of_all.clone(), own.clone()] { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
    let done = apply(&admin, &wanted(), PLAIN).await.unwrap();
    assert_eq!(done.left, [of_all.clone(), own.clone()]);
    let done = apply(&admin, &wanted(), PRUNE).await.unwrap();
    assert_eq!(done, Applied { changed: vec![own], left: vec![of_all.clone()] });
    assert_eq!(diff(&admin, &wanted()).await.unwrap(), [of_all]);

    // A password is set again when that is asked for, and the old one ends.
    let new = "another password, = longer";
    let users = vec![user("producer", password(new)), user("historian", Login::Kept)];
    let renewed = Wanted { users, ..wanted() };
    let again = Options { set_passwords: true, ..PLAIN };
    let done = apply(&admin, &renewed, again).await.unwrap();
    assert_eq!(done.changed, [Drift::Password("producer".to_owned())]);
    let with = |password: &str| trusted.clone().with_login("producer", password);
    // The login is right when only the rights are missing.
    eventually(LONG, "the new password is taken", async || {
        let said = words(diff(&with(new), &wanted()).await);
        if said.contains("CLUSTER_AUTHORIZATION_FAILED") { Ok(()) } else { Err(said) }
    })
    .await
    .unwrap();
    let said = words(diff(&with(SECRET), &wanted()).await);
    assert!(said.contains("the login of producer failed"), "{said}");

    // Who cannot come in is told why.
    let nobody = Wanted { rules: BTreeSet::new(), users: Vec::new() };
    for (cluster, parts) in [
        (
            trusted.clone().with_login("admin", "wrong-password"),
            ["login of admin", "SASL_AUTHENTICATION_FAILED"],
        ),
        (
            trusted.clone().with_login("admin", "wrong-pässword"),
            ["kafka.password", "printable ASCII"],
        ),
        (trusted.clone(), ["DescribeAcls", "closed the connection"]),
        (by(&secure, &client, &stranger).with_login("admin", SECRET), ["TLS", "UnknownIssuer"]),
        (
            by(&secure, &foreign, &authority).with_login("admin", SECRET),
            [kafka.secure_servers().as_str(), "alert"],
        ),
        (secure.clone().with_login("admin", SECRET), ["ApiVersions", "kafka.tls"]),
        (
            Cluster::parse(&plain).unwrap().with_login("admin", SECRET),
            ["login of admin", "leave kafka.user out"],
        ),
        (login("nobody"), ["CLUSTER_AUTHORIZATION_FAILED", "super.users"]),
        (
            secure
                .clone()
                .with_tls(Tls { ca_file: Some(folder.path().join("none.pem")), identity: None }),
            ["none.pem", "such file"],
        ),
    ] {
        let said = words(diff(&cluster, &nobody).await);
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
    }
    // One broker of the list is enough.
    let dead = testkit::rig::free_port().unwrap();
    let list = format!("127.0.0.1:{dead},{}", kafka.secure_servers());
    let several = by(&Cluster::parse(&list).unwrap(), &client, &authority);
    assert_eq!(diff(&several.with_login("admin", SECRET), &nobody).await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_broker_without_an_authorizer_says_so_and_a_bad_password_is_found_before_anything() {
    let Some(kafka) = testkit::kafka().await.unwrap() else { return };
    let cluster = Cluster::parse(kafka.servers()).unwrap();
    let said = words(apply(&cluster, &wanted(), PLAIN).await);
    assert!(said.contains("SECURITY_DISABLED") && said.contains("authorizer.class.name"), "{said}");
    let users = vec![user("producer", password("wrong-password-ü"))];
    let said = words(apply(&cluster, &Wanted { users, ..wanted() }, PLAIN).await);
    assert!(said.contains("the password of producer"), "{said}");
    let dead = testkit::rig::free_port().unwrap();
    let nowhere = Cluster::parse(&format!("127.0.0.1:{dead}")).unwrap();
    let said = words(diff(&nowhere, &wanted()).await);
    assert!(said.contains(&format!("127.0.0.1:{dead}: connecting")), "{said}");
}
