//! Backfill over TLS: the node's own client, and an edge that asks it for a certificate.

use event::wire::compress;
use node::forward::{PostError, Poster};
use testkit::Certificates;
use testkit::rig::{Link, Mode};

use crate::broker::Farm;
use crate::site::{config, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_posts_by_tls_and_both_ends_change_their_certificates() {
    let mut certificates = Certificates::make().unwrap();
    let farm = Farm::new("http_tls").await;
    let mut keys = vec![("MQTT_ADDRESS", farm.address.as_str())];
    keys.extend(certificates.settings());
    let edge = start(&config(farm.site.database.url(), &keys)).await;
    let link = Link::start(edge.http()).await.unwrap();
    let (node, _device) = farm.node("barn-1").await;
    // Files of its own, which are not the edge's.
    let ours = Certificates::make().unwrap();
    ours.put(&certificates.first).unwrap();
    let http = |scheme: &str, shows: bool| {
        let shown = &ours.used.client;
        node::Http {
            address: format!("{scheme}://{}", link.addr()),
            threshold: 1,
            secret: node.enrolled.secret.clone(),
            ca_file: Some(ours.used.ca.clone()),
            client: shows.then(|| (shown.certificate.clone(), shown.key.clone())),
            batch_records: 1_000,
            batch_bytes: 1 << 20,
        }
    };
    let poster = |http: &node::Http| Poster::new(http, &node.node.parse().unwrap()).unwrap();
    let running = poster(&http("https", true));
    let post = async |poster: &Poster, upto: u64| {
        // Connections from before have trusted what was there before.
        link.set(Mode::Cut);
        link.set(Mode::Pass);
        let body = node.body(&node.readings(upto - 9..=upto), &[]);
        poster.post(compress(&body, 3).unwrap()).await.map(|ack| ack.acked_seq)
    };

    assert_eq!(post(&running, 10).await.unwrap(), 10);
    for refused in [http("https", false), http("http", true)] {
        let answer = post(&poster(&refused), 20).await;
        assert!(matches!(answer, Err(PostError::Outage { .. })), "{answer:?}");
    }
    // A file that breaks changes nothing.
    std::fs::write(&ours.used.client.key, "nonsense").unwrap();
    assert_eq!(post(&running, 20).await.unwrap(), 20);

    // The edge changes to another authority. What the node has will not do, until its files change too.
    certificates.are_asked_for(edge.http(), "/healthz").await.unwrap();
    let answer = post(&running, 30).await;
    assert!(matches!(answer, Err(PostError::Outage { .. })), "{answer:?}");
    ours.put(&certificates.used).unwrap();
    assert_eq!(post(&running, 30).await.unwrap(), 30);
    farm.number("SELECT count(*) FROM telemetry_raw", 30).await;
    edge.stop().await;
}
