//! A broker that asks for everything: TLS, a client certificate, a password, and topics of one's own only.
#![allow(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

mod site;

use site::{FakeEdge, NODE, Site, run, text};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::rig::{MosquittoOptions, Tls};

fn openssl(arguments: &[&str], folder: &Path) {
    let made = run(Command::new("openssl").args(arguments).current_dir(folder));
    assert!(made.status.success(), "{}", text(&made.stderr));
}

/// An authority, and a certificate for `localhost` that it has signed.
fn certificates(folder: &Path) -> [PathBuf; 3] {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let authority =
        ["req", "-x509", "-days", "2", "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&authority[..], &key[..]].concat(), folder);
    let request =
        ["req", "-new", "-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr"];
    openssl(&[&request[..], &key[..]].concat(), folder);
    std::fs::write(folder.join("ext"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .unwrap();
    let sign = "x509 -req -days 2 -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext -out leaf.pem";
    openssl(&sign.split(' ').collect::<Vec<_>>(), folder);
    ["ca.pem", "leaf.pem", "leaf.key"].map(|name| folder.join(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strict_broker_is_satisfied_and_a_forged_authority_is_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let [ca, cert, key] = certificates(folder.path());
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
    let tls =
        Tls { cert_file: cert.clone(), key_file: key.clone(), client_ca_file: Some(ca.clone()) };
    let options = MosquittoOptions {
        password_file: Some(passwords),
        acl_file: Some(acl),
        tls: Some(tls),
        ..MosquittoOptions::default()
    };
    let strict = testkit::Broker::start(options).await.unwrap();

    let mut site = Site::new("").await;
    let with_ca = |ca: &Path| {
        format!(
            "mqtt.address = \"{}\"\nmqtt.ca_file = {ca:?}\nmqtt.client_cert = {cert:?}\n\
             mqtt.client_key = {key:?}\nmqtt.password = \"node-password\"",
            strict.url()
        )
    };
    // An authority of the same name that has signed nothing.
    let stranger = tempfile::tempdir().unwrap();
    let [forged, _, _] = certificates(stranger.path());
    site.configure(&with_ca(&forged));
    site.start_node().await;
    let status = site.status_where("a refusal", |s| s.local.link.detail.is_some()).await;
    let detail = status.local.link.detail.unwrap();
    assert!(detail.to_lowercase().contains("certificate"), "{detail}");
    site.sampler().samples(50);
    site.stop_node().await;

    let edge = FakeEdge::connect(mqtt::Broker {
        address: strict.url().parse().unwrap(),
        tls: mqtt::Tls {
            ca_file: Some(ca.clone()),
            client_cert: Some(cert.clone()),
            client_key: Some(key.clone()),
        },
        credentials: Some(mqtt::Credentials::new("edge", "edge-password")),
    })
    .await;
    site.configure(&with_ca(&ca));
    site.start_node().await;
    edge.has_all(50).await;
    site.drained().await;
    assert!(!site.log().contains("node-password"), "the log shows the password");
}
