//! Backfill over HTTP.

use crate::broker::Farm;
use crate::site::{LONG, Sender, Site, config, start};
use edge::Edge;
use event::wire::{Ack, compress};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

fn post(edge: &Edge, node: &str) -> RequestBuilder {
    let url = format!("http://{}/api/v1/nodes/{node}/backfill", edge.http());
    crate::site::http().post(url).header("content-type", "application/json")
}

async fn send(edge: &Edge, node: &Sender, body: Vec<u8>) -> Response {
    let secret = node.enrolled.secret.expose();
    post(edge, &node.node).bearer_auth(secret).body(body).send().await.unwrap()
}

async fn error(answer: Response) -> (u16, Value) {
    (answer.status().as_u16(), answer.json::<Value>().await.unwrap()["error"].clone())
}

#[tokio::test]
async fn a_batch_is_answered_with_its_ack() {
    let farm = Farm::new("http").await;
    let edge = start(&farm.config).await;
    let (node, device) = farm.node("barn-1").await;
    let body = compress(&node.body(&node.readings(1..=3_000), &[]), 3).unwrap();
    let answer = send(&edge, &node, body.clone()).await;
    assert_eq!(answer.status(), 200);
    let ack = Ack::parse(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(ack, Ack { epoch: node.epoch, acked_seq: 3_000, ranges: vec![] });
    assert_eq!(device.acked(3_000).await, ack, "the retained ack keeps up");
    let again = send(&edge, &node, body).await;
    assert_eq!(Ack::parse(&again.bytes().await.unwrap()).unwrap(), ack);
    farm.number("SELECT count(*) FROM telemetry_raw", 3_000).await;
    edge.stop().await;
}

#[tokio::test]
async fn refusals_say_why() {
    let farm = Farm::new("http_refusals").await;
    let edge = start(&farm.config).await;
    let (node, _) = farm.node("barn-1").await;
    let (other, _) = farm.node("barn-2").await;
    let body = node.body(&node.readings([1]), &[]);

    for request in [
        post(&edge, "barn-1"),
        post(&edge, "barn-1").bearer_auth("guess"),
        post(&edge, "barn-1").header("authorization", "Basic eDp5"),
        post(&edge, "nobody").bearer_auth("guess"),
        post(&edge, "BARN").bearer_auth(node.enrolled.secret.expose()),
    ] {
        let (status, error) = error(request.body(body.clone()).send().await.unwrap()).await;
        assert_eq!((status, error["code"].as_str()), (401, Some("unauthorized")));
        assert!(!error.to_string().contains("guess"));
    }
    let theirs = post(&edge, "barn-1").bearer_auth(other.enrolled.secret.expose());
    assert_eq!(error(theirs.body(body.clone()).send().await.unwrap()).await.0, 403);

    let (status, said) = error(send(&edge, &node, b"{".to_vec()).await).await;
    assert_eq!((status, said["code"].as_str()), (400, Some("malformed")));
    let wrong = json!({"v": 1, "epoch": node.epoch, "records": [{"seq": 0, "event": {}}]});
    let (status, said) = error(send(&edge, &node, wrong.to_string().into_bytes()).await).await;
    assert_eq!((status, said["field"].as_str()), (400, Some("records[0].seq")));
    let wrong = json!({"v": 9, "epoch": node.epoch, "records": [{"seq": 1, "event": {}}]});
    let (status, said) = error(send(&edge, &node, wrong.to_string().into_bytes()).await).await;
    assert_eq!((status, said["code"].as_str()), (400, Some("version")));

    let bomb = zstd::bulk::compress(&vec![b' '; 200 << 20], 1).unwrap();
    let (status, said) = error(send(&edge, &node, bomb).await).await;
    assert_eq!((status, said["code"].as_str()), (413, Some("too_large")));
    let large = send(&edge, &node, vec![b' '; (8 << 20) + 1]).await;
    assert_eq!(large.status(), 413);
    farm.number("SELECT count(*) FROM sync_outbox", 0).await;
    farm.number("SELECT count(*) FROM ingress_quarantine WHERE source = 'http'", 4).await;

    let node_id = "barn-1".parse().unwrap();
    edge::registry::set_disabled(&farm.config, &node_id, true).await.unwrap();
    // What was remembered of it is looked up again within moments.
    testkit::eventually(LONG, "the node is shut out", async || {
        send(&edge, &node, body.clone()).await.status() == 403
    })
    .await
    .unwrap();
    edge::registry::set_disabled(&farm.config, &node_id, false).await.unwrap();
    assert_eq!(send(&edge, &node, body).await.status(), 200, "and let in at once");
    let text = edge.metrics().render();
    assert!(text.contains("holdfast_edge_uploads_refused_total{status=\"401\"} 5"), "{text}");
    edge.stop().await;
}

#[tokio::test]
async fn a_new_secret_works_at_once_and_one_bad_record_fails_alone() {
    let farm = Farm::new("http_rotate").await;
    let edge = start(&farm.config).await;
    let (mut node, _) = farm.node("barn-1").await;
    assert_eq!(send(&edge, &node, node.body(&node.readings([1]), &[])).await.status(), 200);
    let mut request = crate::site::enrolment("barn-1", node.tenant);
    request.rotate = true;
    node.enrolled = edge::registry::enroll(&farm.config, &request).await.unwrap();
    let mut records = node.readings([2, 3, 4]);
    records[1].1 = "{}".to_owned();
    let answer = send(&edge, &node, node.body(&records, &[])).await;
    assert_eq!(Ack::parse(&answer.bytes().await.unwrap()).unwrap().acked_seq, 4);
    farm.number("SELECT count(*) FROM sync_outbox", 3).await;
    edge.stop().await;
}

#[tokio::test]
async fn more_uploads_than_allowed_are_told_to_come_back() {
    let farm = Farm::new("http_busy").await;
    let pairs = [("MQTT_ADDRESS", farm.address.as_str()), ("HTTP_MAX_UPLOADS", "1")];
    let edge = start(&crate::site::config(farm.site.database.url(), &pairs)).await;
    let (node, _) = farm.node("barn-1").await;
    // Two uploads whose bodies never end: the one that is refused shows that the other has the place.
    let slow = (endless(&edge, &node).await, endless(&edge, &node).await);
    let mut answers = (BufReader::new(slow.0), BufReader::new(slow.1));
    let mut lines = (String::new(), String::new());
    let refused = tokio::time::timeout(LONG, async {
        tokio::select! {
            read = answers.0.read_line(&mut lines.0) => read.unwrap(),
            read = answers.1.read_line(&mut lines.1) => read.unwrap(),
        }
    });
    refused.await.unwrap();
    assert!((lines.0 + &lines.1).contains(" 429 "));
    let body = node.body(&node.readings([1]), &[]);
    let answer = send(&edge, &node, body.clone()).await;
    assert!(answer.headers().contains_key("retry-after"));
    assert_eq!(error(answer).await.0, 429);
    drop(answers);
    testkit::eventually(LONG, "the place is free again", async || {
        send(&edge, &node, body.clone()).await.status() == 200
    })
    .await
    .unwrap();
    edge.stop().await;
}

async fn endless(edge: &Edge, node: &Sender) -> TcpStream {
    let mut stream = TcpStream::connect(edge.http()).await.unwrap();
    let head = format!(
        "POST /api/v1/nodes/{}/backfill HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-length: 100\r\n\r\n{{",
        node.node,
        node.enrolled.secret.expose()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn roles_run_apart() {
    let site = Site::new("http_roles").await;
    let config = config(site.database.url(), &[("ROLES", "sync")]);
    let edge = start(&config).await;
    let base = format!("http://{}", edge.http());
    let ready = crate::site::http().get(format!("{base}/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 200, "no ingress, so no broker is missing");
    let secret = site.enroll("barn-1").await.enrolled.secret;
    let backfill = post(&edge, "barn-1").bearer_auth(secret.expose()).send().await.unwrap();
    assert_eq!(backfill.status(), 401, "backfill is no route of this process");
    edge.stop().await;
}
