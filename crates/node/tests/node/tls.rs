//! A broker that asks for everything: TLS, a client certificate, a password, and topics of one's own only.
#![allow(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use crate::site::{FakeEdge, NODE, Site, run, text};
use std::process::Command;
use testkit::Certificates;
use testkit::certificates::Paper;
use testkit::rig::{MosquittoOptions, Tls};

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_broker_is_satisfied_and_a_forged_authority_is_not_trusted_until_the_files_change()
{
    let folder = tempfile::tempdir().unwrap();
    let mut certificates = Certificates::make().unwrap();
    let stranger = certificates.another().unwrap();
    let passwords = folder.path().join("passwords");
    std::fs::write(&passwords, format!("{NODE}:node-password\nedge:edge-password\n")).unwrap();
    let hashed = run(Command::new("mosquitto_passwd").arg("-U").arg(&passwords));
    assert!(hashed.status.success(), "{}", text(&hashed.stderr));
    let acl = folder.path().join("acl");
    let own = ["live", "backfill", "event", "status"]
        .map(|name| format!("pattern write iot/%u/{name}\n"));
    let rules =
        format!("{}pattern read iot/%u/ack\nuser edge\ntopic readwrite iot/#\n", own.concat());
    std::fs::write(&acl, rules).unwrap();
    let Paper { ca, server, .. } = certificates.used.clone();
    let tls = Tls { cert_file: server.certificate, key_file: server.key, client_ca_file: Some(ca) };
    let options = MosquittoOptions {
        password_file: Some(passwords),
        acl_file: Some(acl),
        tls: Some(tls),
        ..MosquittoOptions::default()
    };
    let mut strict = testkit::Broker::start(options).await.unwrap();

    let mut site = Site::new("").await;
    // The node has files of its own, which are not the broker's.
    let ours = Certificates::make().unwrap();
    let Paper { ca, client: shown, .. } = &ours.used;
    site.configure(&format!(
        "mqtt.address = \"{}\"\nmqtt.ca_file = {ca:?}\nmqtt.client_cert = {:?}\n\
         mqtt.client_key = {:?}\nmqtt.password = \"node-password\"",
        strict.url(),
        shown.certificate,
        shown.key
    ));
    // An authority of the same name that has signed nothing here.
    ours.put(&Paper { ca: stranger.ca.clone(), ..certificates.first.clone() }).unwrap();
    site.start_node().await;
    let status = site.status_where("a refusal", |s| s.local.link.detail.is_some()).await;
    let detail = status.local.link.detail.unwrap();
    assert!(detail.to_lowercase().contains("certificate"), "{detail}");
    site.sampler().samples(50);

    // It runs on, and connects when its files are right.
    ours.put(&certificates.first).unwrap();
    let edge = FakeEdge::connect(mqtt::Broker {
        address: strict.url().parse().unwrap(),
        tls: mqtt::Tls {
            ca_file: Some(ca.clone()),
            client_cert: Some(shown.certificate.clone()),
            client_key: Some(shown.key.clone()),
        },
        credentials: Some(mqtt::Credentials::new("edge", "edge-password")),
    })
    .await;
    edge.has_all(50).await;

    // The broker changes to another authority; so do the node and the edge, which run on.
    certificates.put(&stranger).unwrap();
    ours.put(&stranger).unwrap();
    strict.restart().await.unwrap();
    site.sampler().samples(50);
    edge.has_all(100).await;
    site.drained().await;
    assert!(!site.log().contains("node-password"), "the log shows the password");
}
