//! Enrolling, and what the broker makes of the files.

use std::path::Path;
use std::time::Duration;

use crate::site::{LONG, Sender, Site, config, enrolment};
use edge::registry::{self, Error, State};
use event::id::{Epoch, TenantId};
use event::wire::Ack;
use jiff::Timestamp;
use mqtt::rumqttc::{AsyncClient, Event, EventLoop, Packet, PublishOptions, QoS};
use mqtt::{Broker, Credentials, Session, Trouble};
use testkit::eventually;
use testkit::rig::MosquittoOptions;

#[tokio::test]
async fn a_node_is_let_in_once_and_rotated_on_request() {
    let site = Site::new("enroll").await;
    let tenant = TenantId::mint();
    let mut request = enrolment("barn-1", tenant);
    let first = registry::enroll(&site.config, &request).await.unwrap();
    assert!(!first.rotated && !first.broker_files_written);
    assert!(matches!(registry::enroll(&site.config, &request).await, Err(Error::Enrolled(_))));
    request.rotate = true;
    request.tenant_id = TenantId::mint();
    assert!(matches!(registry::enroll(&site.config, &request).await, Err(Error::OtherTenant(_))));
    request.tenant_id = tenant;
    let second = registry::enroll(&site.config, &request).await.unwrap();
    assert!(second.rotated);
    assert_ne!(first.secret, second.secret);
    assert_eq!(first.device_id, second.device_id, "what is not given stays");
    let kept = site.text("SELECT encode(secret_hash, 'hex') || broker_hash FROM nodes").await;
    assert!(!kept.contains(second.secret.expose()));
    for name in ["holdfast-edge", site.config.broker_user.0.as_str()] {
        let reserved = registry::enroll(&site.config, &enrolment(name, tenant)).await;
        assert!(matches!(reserved, Err(Error::Reserved)));
    }
    let unknown = registry::set_disabled(&site.config, &"nobody".parse().unwrap(), true).await;
    assert!(matches!(unknown, Err(Error::Unknown(_))));
}

#[tokio::test]
async fn the_printed_configuration_is_what_a_node_reads() {
    let site = Site::new("node_config").await;
    let pairs = [
        ("PUBLIC_MQTT_ADDRESS", "mqtts://edge.example:8883"),
        ("PUBLIC_HTTP_ADDRESS", "https://edge.example"),
    ];
    let config = config(site.database.url(), &pairs);
    let enrolled = registry::enroll(&config, &enrolment("barn-1", TenantId::mint())).await.unwrap();
    let secret = enrolled.secret.expose();
    let expected = format!(
        "mqtt.address = \"mqtts://edge.example:8883\"\nmqtt.password = \"{secret}\"\n\
         http.address = \"https://edge.example\"\nhttp.secret = \"{secret}\"\n"
    );
    assert!(enrolled.node_config.starts_with("[node]\nnode_id = \"barn-1\"\ntenant_id = \""));
    assert!(enrolled.node_config.ends_with(&expected), "{}", enrolled.node_config);
    assert!(!format!("{enrolled:?}").contains("secret: \""), "{enrolled:?}");
}

#[tokio::test]
async fn the_list_tells_who_is_there() {
    let site = Site::new("list").await;
    let (_never, heard) = (site.enroll("barn-0").await, site.enroll("barn-1").await);
    site.ingest(&[heard.batch(&heard.readings(1..=3), &[])]).await;
    let client = site.client().await;
    let now = Timestamp::now();
    let list = registry::list(&client, now, &site.config.liveness).await.unwrap();
    assert_eq!(list.iter().map(|n| n.state).collect::<Vec<_>>(), [State::Never, State::Online]);
    assert_eq!((list[1].acked, list[1].received, list[1].stored), (3, 3, 3));
    let later = now + Duration::from_secs(600);
    let list = registry::list(&client, later, &site.config.liveness).await.unwrap();
    assert_eq!(list[1].state, State::Late);
    let later = now + Duration::from_secs(3600);
    let list = registry::list(&client, later, &site.config.liveness).await.unwrap();
    assert_eq!(list[1].state, State::Offline);
}

/// A client of the broker, connected or refused.
async fn log_in(
    address: &str,
    user: &str,
    password: &str,
) -> Result<(AsyncClient, EventLoop), Trouble> {
    let broker = Broker {
        address: address.parse().unwrap(),
        tls: mqtt::Tls::default(),
        credentials: Some(Credentials::new(user, password)),
    };
    let session = Session { client_id: format!("test-{user}"), ..Session::default() };
    let (client, mut events) = broker.connect(&session).unwrap();
    match events.poll().await {
        Ok(_) => Ok((client, events)),
        Err(error) => Err(Trouble::from(&error)),
    }
}

/// Asks for everything, and waits until the broker has heard it.
async fn subscribe(client: &AsyncClient, events: &mut EventLoop) {
    client.subscribe("iot/#", QoS::AtLeastOnce).await.unwrap();
    let heard = async {
        while !matches!(events.poll().await.unwrap(), Event::Incoming(Packet::SubAck(_))) {}
    };
    tokio::time::timeout(LONG, heard).await.unwrap();
}

fn edge_config(site: &Site, address: &str) -> edge::Config {
    config(site.database.url(), &[("MQTT_ADDRESS", address)])
}

fn files(folder: &Path) -> (String, String) {
    let name = |file: &str| folder.join(file).to_str().unwrap().to_owned();
    (name("passwords"), name("acl"))
}

#[tokio::test]
async fn the_broker_lets_each_node_use_its_own_topics_only() {
    let site = Site::new("acl").await;
    let folder = tempfile::tempdir().unwrap();
    // The broker gives up root; its files belong to whoever owns the folder, who must be able to
    // enter it.
    let (passwords, acl) = files(folder.path());
    let pairs = [("BROKER_PASSWORD_FILE", passwords.as_str()), ("BROKER_ACL_FILE", acl.as_str())];
    let config = config(site.database.url(), &pairs);
    let tenant = TenantId::mint();
    let one = registry::enroll(&config, &enrolment("barn-1", tenant)).await.unwrap();
    assert!(one.broker_files_written);
    let options = MosquittoOptions {
        password_file: Some(passwords.into()),
        acl_file: Some(acl.into()),
        ..MosquittoOptions::default()
    };
    let mut broker = testkit::Broker::start(options).await.unwrap();
    let address = broker.url();
    let two = registry::enroll(&config, &enrolment("barn-2", tenant)).await.unwrap();
    broker.reload();
    let secret = two.secret.expose();
    eventually(LONG, "the new node can log in", async || {
        log_in(&address, "barn-2", secret).await.is_ok()
    })
    .await
    .unwrap();
    for (user, password) in [("barn-1", secret), ("barn-3", secret), ("holdfast-edge", "wrong")] {
        let refused = log_in(&address, user, password).await.err().unwrap();
        assert!(matches!(refused, Trouble::Refused(_)), "{user}: {refused:?}");
    }

    let (edge, mut edge_events) =
        log_in(&address, "holdfast-edge", "the edge's own").await.unwrap();
    subscribe(&edge, &mut edge_events).await;
    let (node, mut node_events) = log_in(&address, "barn-1", one.secret.expose()).await.unwrap();
    subscribe(&node, &mut node_events).await;
    let options = || PublishOptions::new(QoS::AtLeastOnce);
    let forbidden = [
        "iot/barn-2/live",
        "iot/barn-2/status",
        "iot/barn-1/ack",
        "iot/barn-2/ack",
        "iot/barn-1/other",
        "x",
    ];
    let allowed = ["iot/barn-1/live", "iot/barn-1/backfill", "iot/barn-1/event"];
    for topic in forbidden.into_iter().chain(allowed) {
        node.publish(topic, "hello", options()).await.unwrap();
    }
    node.publish("iot/barn-1/status", "end", options()).await.unwrap();
    let (sent, heard) = tokio::join!(
        tokio::time::timeout(LONG, async {
            let mut left = forbidden.len() + allowed.len() + 1;
            while left > 0 {
                if let Event::Incoming(Packet::PubAck(_)) = node_events.poll().await.unwrap() {
                    left -= 1;
                }
            }
        }),
        tokio::time::timeout(LONG, async {
            let mut topics = Vec::new();
            while topics.last().is_none_or(|topic| topic != "iot/barn-1/status") {
                if let Event::Incoming(Packet::Publish(publish)) = edge_events.poll().await.unwrap()
                {
                    topics.push(String::from_utf8(publish.topic.to_vec()).unwrap());
                }
            }
            topics
        })
    );
    sent.unwrap();
    let heard = heard.unwrap();
    assert_eq!(
        heard,
        ["iot/barn-1/live", "iot/barn-1/backfill", "iot/barn-1/event", "iot/barn-1/status"]
    );

    // The edge acknowledges both; the node hears its own.
    edge.publish("iot/barn-2/ack", "not for barn-1", options()).await.unwrap();
    edge.publish("iot/barn-1/live", "the edge is no node", options()).await.unwrap();
    let (_, topics) = tokio::join!(
        async {
            edge.publish("iot/barn-1/ack", "for barn-1", options()).await.unwrap();
            let _ = tokio::time::timeout(LONG, async {
                let mut left = 3;
                while left > 0 {
                    if let Event::Incoming(Packet::PubAck(_)) = edge_events.poll().await.unwrap() {
                        left -= 1;
                    }
                }
            })
            .await;
        },
        async {
            loop {
                if let Event::Incoming(Packet::Publish(publish)) = node_events.poll().await.unwrap()
                {
                    break String::from_utf8(publish.topic.to_vec()).unwrap();
                }
            }
        }
    );
    assert_eq!(topics, "iot/barn-1/ack");

    // An edge with its own password takes a batch from a node with its own, and acknowledges it.
    drop((edge, edge_events));
    let edge = crate::site::start(&edge_config(&site, &address)).await;
    crate::broker::ready(&edge).await;
    let sender = Sender { node: "barn-1".into(), tenant, epoch: Epoch::mint(), enrolled: one };
    let body = sender.body(&sender.readings([1]), &[]);
    node.publish("iot/barn-1/live", body, options()).await.unwrap();
    let acked = tokio::time::timeout(LONG, async {
        loop {
            if let Event::Incoming(Packet::Publish(publish)) = node_events.poll().await.unwrap() {
                break Ack::parse(&publish.payload).unwrap();
            }
        }
    });
    assert_eq!(acked.await.unwrap().acked_seq, 1);
    edge.stop().await;

    registry::set_disabled(&config, &"barn-2".parse().unwrap(), true).await.unwrap();
    broker.reload();
    eventually(LONG, "a node that was shut out cannot log in", async || {
        log_in(&address, "barn-2", secret).await.is_err()
    })
    .await
    .unwrap();
}
