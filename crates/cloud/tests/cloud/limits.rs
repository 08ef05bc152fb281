//! Each limit: what is over it is refused, says why, and stores nothing.

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::site::{LONG, Site, bare, batch, error};

async fn refused(site: &Site, body: impl Into<reqwest::Body>, zstd: bool) -> (u16, Value) {
    let mut request = site.post().bearer_auth(&site.token).body(body);
    if zstd {
        request = request.header("content-encoding", "zstd");
    }
    error(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_body_that_is_no_batch_is_refused_by_name() {
    let site = Site::new("malformed").await;
    let good = batch(vec![bare(site.reading())]);
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string()
    };
    let twice = good.to_string().replacen('{', "{\"v\":1,", 1);
    for (body, field) in [
        ("{".to_owned(), "body"),
        ("[]".to_owned(), "body"),
        ("\"x\"".to_owned(), "body"),
        (format!("{good} {{}}"), "body"),
        ("{}".to_owned(), "v"),
        (with("v", json!(2)), "v"),
        (with("v", json!("1")), "v"),
        (with("batch_id", json!(null)), "batch_id"),
        (with("batch_id", json!("a b")), "batch_id"),
        (with("batch_id", json!("x".repeat(65))), "batch_id"),
        (with("batch_id", json!(7)), "batch_id"),
        (with("edge_cluster_id", json!("")), "edge_cluster_id"),
        (with("sent_at", json!("yesterday")), "sent_at"),
        (with("events", json!({})), "events"),
        (with("events", json!("x")), "events"),
        (with("events", json!([])), "events"),
        (with("events", json!(null)), "events"),
        (with("tombstones", json!(7)), "tombstones"),
        (twice, "v"),
    ] {
        let (status, said) = refused(&site, body.clone(), false).await;
        assert_eq!((status, said["code"].as_str()), (400, Some("malformed")), "{body}");
        assert_eq!(said["field"], field, "{body}");
    }
    let not_text = vec![b'{', 0xff, b'}'];
    assert_eq!(refused(&site, not_text, false).await.0, 400);
    // What is unknown beside the documented fields passes.
    let more = with("colour", json!({"deep": [1, 2]}));
    assert_eq!(site.send(&serde_json::from_str(&more).unwrap()).await.status(), 200);
    site.cloud.stop().await;
}

#[tokio::test]
async fn encodings_must_be_as_stated() {
    let site = Site::new("encoding").await;
    let good = batch(vec![bare(site.reading())]).to_string();
    let packed = event::wire::compress(good.as_bytes(), 3).unwrap();
    assert_eq!(refused(&site, good.clone(), true).await.1["field"], "Content-Encoding");
    assert_eq!(refused(&site, packed.clone(), false).await.1["field"], "Content-Encoding");
    let torn = packed[..packed.len() - 3].to_vec();
    assert_eq!(refused(&site, torn, true).await.0, 400);
    let request = site.post().bearer_auth(&site.token).header("content-encoding", "gzip");
    assert_eq!(error(request.body(good).send().await.unwrap()).await.0, 400);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 0);
    site.cloud.stop().await;
}

#[tokio::test]
async fn sizes_and_counts_are_bounded() {
    let pairs = [
        ("LIMITS_BODY", "256KiB"),
        ("LIMITS_DECOMPRESSED", "1MiB"),
        ("LIMITS_EVENTS", "10"),
        ("LIMITS_TOMBSTONES", "3"),
    ];
    let site = Site::with("sizes", &pairs).await;
    let check = |(status, said): (u16, Value), word: &str| {
        assert_eq!((status, said["code"].as_str()), (413, Some("too_large")), "{said}");
        assert!(said["message"].as_str().unwrap().contains(word), "{said}");
    };
    check(refused(&site, vec![b' '; (256 << 10) + 1], false).await, "262144");
    // Without a stated length the limit is found while reading.
    let stated = site.post().bearer_auth(&site.token).header("content-length", "99999999999");
    assert_eq!(stated.send().await.map_or(413, |answer| answer.status().as_u16()), 413);
    check(chunked(&site, 300 << 10).await, "262144");
    // Bombs: one that states its size, one that does not.
    let bomb = zstd::bulk::compress(&vec![b' '; 200 << 20], 1).unwrap();
    check(refused(&site, bomb, true).await, "decompressed");
    let mut silent = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    silent.include_contentsize(false).unwrap();
    std::io::Write::write_all(&mut silent, &vec![b' '; 100 << 20]).unwrap();
    check(refused(&site, silent.finish().unwrap(), true).await, "decompressed");
    let many = batch((0..11).map(|_| bare(site.reading())).collect()).to_string();
    check(refused(&site, many, false).await, "events");
    let mut many = batch(vec![]);
    let one = crate::site::tombstone(site.tenant, event::id::Epoch::mint(), 1, 1);
    many["tombstones"] = json!([one, one, one, one]);
    check(refused(&site, many.to_string(), false).await, "tombstones");
    for table in crate::site::TABLES {
        assert_eq!(site.number(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    let just = batch((0..10).map(|_| bare(site.reading())).collect());
    assert_eq!(site.send(&just).await.status(), 200);
    site.cloud.stop().await;
}

/// Sends so many bytes in chunks, without a stated length.
async fn chunked(site: &Site, bytes: usize) -> (u16, Value) {
    let mut stream = TcpStream::connect(site.cloud.http()).await.unwrap();
    let head = format!(
        "POST /api/v1/sync/batches HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         transfer-encoding: chunked\r\n\r\n",
        site.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut chunk = b"8000\r\n".to_vec();
    chunk.extend([b' '; 0x8000]);
    chunk.extend(b"\r\n");
    for _ in 0..bytes.div_ceil(0x8000) {
        // The other side may have answered and gone already.
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let status = first.split(' ').nth(1).unwrap().parse().unwrap();
    let mut body = None;
    while let Ok(Some(line)) = lines.next_line().await {
        if line.starts_with('{') {
            body = Some(serde_json::from_str::<Value>(&line).unwrap()["error"].clone());
        }
    }
    (status, body.unwrap())
}

#[tokio::test]
async fn a_token_over_its_rate_is_told_when_to_come_back_and_others_are_not_held_up() {
    let pairs = [("RATE_REQUESTS_PER_SECOND", "1"), ("LIMITS_REQUESTS_PER_TOKEN", "100")];
    let site = Site::with("request_rate", &pairs).await;
    let body = batch(vec![bare(site.reading())]);
    let mut codes = Vec::new();
    for _ in 0..10 {
        let answer = site.send(&body).await;
        let wait = answer.headers().get("retry-after").cloned();
        if answer.status() == 429 {
            let seconds: u64 = wait.unwrap().to_str().unwrap().parse().unwrap();
            assert!((1..=5).contains(&seconds));
            assert_eq!(error(answer).await.1["code"], "rate_limited");
            codes.push(429);
        } else {
            codes.push(answer.status().as_u16());
        }
    }
    assert_eq!(codes[0], 200);
    assert!(codes.contains(&429), "{codes:?}");
    let other = cloud::tokens::Tenants::Only(vec![site.tenant]);
    let (_, other) =
        crate::site::token(&site.client().await, cloud::tokens::Role::Edge, other).await;
    let request = site.post().bearer_auth(other).body(body.to_string());
    assert_eq!(request.send().await.unwrap().status(), 200);
    // Waiting as told is enough.
    testkit::eventually(LONG, "the token is let in again", async || {
        site.send(&body).await.status() == 200
    })
    .await
    .unwrap();
    site.cloud.stop().await;
}

#[tokio::test]
async fn events_have_a_rate_too() {
    let site = Site::with("event_rate", &[("RATE_EVENTS_PER_SECOND", "1")]).await;
    let many = batch((0..100).map(|_| bare(site.reading())).collect());
    assert_eq!(site.send(&many).await.status(), 200, "one batch is let through whole");
    let answer = site.send(&batch(vec![bare(site.reading())])).await;
    let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(wait > 50, "{wait}");
    assert_eq!(
        error(answer).await,
        (
            429,
            json!({
                "code": "rate_limited", "field": null,
                "message": "this token sends more events a second than allowed"
            })
        )
    );
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 100);
    site.cloud.stop().await;
}

async fn endless(site: &Site) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(site.cloud.http()).await.unwrap();
    let head = format!(
        "POST /api/v1/sync/batches HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-length: 100\r\n\r\n{{",
        site.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

async fn at_once(name: &str, pairs: &[(&str, &str)], status: u16, code: &str) {
    let site = Site::with(name, pairs).await;
    // A body that never ends holds the one place.
    let slow = endless(&site).await;
    let body = batch(vec![bare(site.reading())]);
    testkit::eventually(LONG, "the place is taken", async || {
        site.cloud.metrics().render().contains("holdfast_cloud_batches_in_flight 1")
    })
    .await
    .unwrap();
    let answer = site.send(&body).await;
    assert!(answer.headers().contains_key("retry-after"));
    let (refused, said) = error(answer).await;
    assert_eq!((refused, said["code"].as_str()), (status, Some(code)));
    drop(slow);
    testkit::eventually(LONG, "the place is free again", async || {
        site.send(&body).await.status() == 200
    })
    .await
    .unwrap();
    site.cloud.stop().await;
}

#[tokio::test]
async fn requests_at_once_are_bounded_for_all_and_for_one_token() {
    at_once("busy", &[("LIMITS_REQUESTS", "1")], 503, "busy").await;
    at_once("busy_token", &[("LIMITS_REQUESTS_PER_TOKEN", "1")], 429, "rate_limited").await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_gives_its_place_back() {
    let pairs = [("LIMITS_REQUESTS", "1"), ("LIMITS_BODY_WITHIN", "100ms")];
    let site = Site::with("slow", &pairs).await;
    let mut slow = endless(&site).await;
    let mut line = String::new();
    tokio::time::timeout(LONG, slow.read_line(&mut line)).await.unwrap().unwrap();
    // About the link and not the batch: a 400 would have the batch split and dead-lettered.
    assert!(line.contains(" 503 "), "{line}");
    assert_eq!(site.send(&batch(vec![bare(site.reading())])).await.status(), 200);
    site.cloud.stop().await;
}
