//! What becomes of a batch.

use event::id::{Epoch, EventId, SessionId};
use event::wire::compress;
use serde_json::{Value, json};

use crate::site::{Site, bare, batch, placed, tombstone};

#[tokio::test]
async fn the_same_batch_twice_leaves_every_table_as_it_was() {
    let site = Site::new("twice").await;
    let epoch = Epoch::mint();
    let mut events: Vec<Value> =
        (1..=300).map(|seq| placed(site.reading(), "barn-7", epoch, seq)).collect();
    events.push(bare(site.reading()));
    let mut body = batch(events);
    body["tombstones"] = json!([tombstone(site.tenant, epoch, 301, 310)]);
    let answer = site.send(&body).await;
    assert_eq!(answer.status(), 200);
    let reply: Value = answer.json().await.unwrap();
    assert_eq!(reply["v"], 1);
    assert_eq!(reply["batch_id"], body["batch_id"]);
    assert_eq!(reply["tombstones_accepted"], 1);
    let results = reply["results"].as_array().unwrap();
    assert_eq!(results.len(), 301);
    for (result, sent) in results.iter().zip(body["events"].as_array().unwrap()) {
        assert_eq!(result, &json!({"event_id": sent["event"]["event_id"], "status": "accepted"}));
    }
    let before = site.snapshot().await;
    assert!(site.statuses(&body).await.iter().all(|status| status == "duplicate"));
    assert_eq!(site.snapshot().await, before);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 301);
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 310);
    assert_eq!(site.number("SELECT lost_count FROM ledger_frontier").await, 10);
    assert_eq!(site.number("SELECT sum(count)::bigint FROM ledger_block").await, 300);
    site.cloud.stop().await;
}

#[tokio::test]
async fn compressed_batches_are_read_and_the_relay_row_holds_what_the_bus_needs() {
    let site = Site::new("relay_row").await;
    let epoch = Epoch::mint();
    let session = SessionId::mint();
    let mut alarm = site.reading();
    alarm["event_type"] = json!("alarm.raised");
    let mut made = site.reading();
    made["event_type"] = json!("scale.calibrated");
    made["session_id"] = json!(session);
    let mut lonely = site.reading();
    lonely["event_type"] = json!("site.opened");
    lonely["device_id"] = json!(null);
    let reading = site.reading();
    let device = reading["device_id"].as_str().unwrap().to_owned();
    let body = batch(vec![
        placed(reading.clone(), "barn-7", epoch, 41),
        bare(alarm.clone()),
        bare(made),
        bare(lonely),
    ]);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let answer = site
        .post()
        .bearer_auth(&site.token)
        .header("content-encoding", "zstd")
        .header("traceparent", parent)
        .body(compress(body.to_string().as_bytes(), 3).unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let client = site.client().await;
    let rows = client
        .query(
            "SELECT routing_key, ordering_key, priority, convert_from(envelope, 'UTF8'), stream,
                    epoch, seq, traceparent, status, attempt_count, trace_id
             FROM relay_outbox ORDER BY id",
            &[],
        )
        .await
        .unwrap();
    let keys: Vec<Option<String>> = rows.iter().map(|row| row.get(1)).collect();
    let alarm_device = alarm["device_id"].as_str().unwrap();
    assert_eq!(
        keys,
        [
            Some(format!("telemetry/{device}")),
            Some(format!("alarm/{alarm_device}")),
            Some(format!("session/{session}")),
            None
        ]
    );
    let priorities: Vec<i32> = rows.iter().map(|row| row.get(2)).collect();
    assert_eq!(priorities, [0, 20, 10, 10]);
    let first = &rows[0];
    assert_eq!(first.get::<_, &str>(0), "telemetry.ingested");
    let envelope: Value = serde_json::from_str(first.get(3)).unwrap();
    assert_eq!(envelope, reading);
    assert_eq!(first.get::<_, &str>(4), "barn-7");
    assert_eq!(first.get::<_, i64>(6), 41);
    let traceparent: &str = first.get(7);
    assert!(traceparent.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{traceparent}");
    assert_eq!((first.get::<_, &str>(8), first.get::<_, i32>(9)), ("pending", 0));
    assert_eq!(first.get::<_, &str>(10), "trace-1");
    site.cloud.stop().await;
}

#[tokio::test]
async fn bad_events_fail_alone_and_say_why() {
    let site = Site::new("bad_events").await;
    let epoch = Epoch::mint();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut event = site.reading();
        change(&mut event);
        event
    };
    let hot = with(&|e| e["payload"]["metric_value"] = json!("hot"));
    let nul = with(&|e| e["payload"]["note"] = json!("a\u{0}b"));
    let no_id = with(&|e| e["event_id"] = json!("7"));
    let huge = with(&|e| e["payload"]["note"] = json!("x".repeat(300_000)));
    let good = [site.reading(), site.reading()];
    let events = vec![
        placed(good[0].clone(), "barn-7", epoch, 1),
        placed(hot.clone(), "barn-7", epoch, 2),
        bare(nul),
        bare(no_id),
        bare(huge),
        json!({"event": site.reading(), "stream": "barn-7"}),
        json!({"event": site.reading(), "stream": "BARN", "epoch": epoch, "seq": 3}),
        json!({"event": site.reading(), "stream": "barn-7", "epoch": epoch, "seq": 0}),
        json!({"event": site.reading(), "stream": "barn-7", "epoch": epoch, "seq": 1.5}),
        json!("not an object"),
        json!({}),
        placed(good[1].clone(), "barn-7", epoch, 3),
    ];
    let answer = site.send(&batch(events)).await;
    assert_eq!(answer.status(), 200);
    let reply: Value = answer.json().await.unwrap();
    let results = reply["results"].as_array().unwrap();
    let code = |index: usize| {
        let result = &results[index];
        assert_eq!((&result["status"], &result["index"]), (&json!("rejected"), &json!(index)));
        (result["code"].as_str().unwrap(), result["field"].as_str().unwrap_or("-"))
    };
    assert_eq!(results[0]["status"], "accepted");
    assert_eq!(results[11]["status"], "accepted");
    assert_eq!(code(1), ("invalid", "payload.metric_value"));
    assert_eq!(results[1]["event_id"], hot["event_id"]);
    assert_eq!(code(2).0, "invalid");
    assert!(results[2]["field"].as_str().unwrap().starts_with("payload"), "{}", results[2]);
    assert_eq!(code(3), ("invalid", "event_id"));
    assert_eq!(results[3]["event_id"], Value::Null);
    assert_eq!(code(4), ("too_large", "event"));
    assert_eq!(code(5), ("invalid", "stream"));
    assert_eq!(code(6), ("invalid", "stream"));
    assert_eq!(code(7), ("invalid", "seq"));
    assert_eq!(code(8), ("invalid", "seq"));
    assert_eq!(code(9), ("invalid", "-"));
    assert_eq!(code(10), ("invalid", "event"));
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 2);
    // The edge still holds what was rejected, so its sequence is missing here.
    assert_eq!(site.text("SELECT received::text FROM ledger_frontier").await, "{1,1,3,3}");
    assert_eq!(site.number("SELECT count(*) FROM ingest_rejected").await, 10);
    assert_eq!(
        site.number("SELECT max(octet_length(body))::bigint FROM ingest_rejected").await,
        4096
    );
    // Redriven after it was put right, it is accepted.
    let mut right = hot;
    right["payload"]["metric_value"] = json!(26.4);
    let again = batch(vec![placed(right, "barn-7", epoch, 2)]);
    assert_eq!(site.statuses(&again).await, ["accepted"]);
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 3);
    site.cloud.stop().await;
}

#[tokio::test]
async fn what_is_rejected_again_is_counted_and_the_rows_of_a_token_are_bounded() {
    let site = Site::new("rejected").await;
    let bad = |n: usize| bare(json!({"event_id": EventId::mint(), "n": n}));
    let one = batch(vec![bad(0)]);
    site.statuses(&one).await;
    site.statuses(&one).await;
    assert_eq!(site.number("SELECT times FROM ingest_rejected").await, 2);
    site.statuses(&batch((0..1_500).map(bad).collect())).await;
    site.statuses(&batch((0..50).map(bad).collect())).await;
    assert_eq!(site.number("SELECT count(*) FROM ingest_rejected").await, 1_001);
    assert_eq!(site.number("SELECT sum(times)::bigint FROM ingest_rejected").await, 1_552);
    assert_eq!(site.number("SELECT times FROM ingest_rejected WHERE body_bytes = 0").await, 551);
    site.cloud.stop().await;
}

#[tokio::test]
async fn an_event_that_the_database_refuses_is_rejected_alone() {
    let site = Site::new("isolate").await;
    let refuse = "ALTER TABLE relay_outbox ADD CONSTRAINT no_poison
                  CHECK (event_type <> 'poison.event')";
    site.client().await.batch_execute(refuse).await.unwrap();
    let epoch = Epoch::mint();
    let mut events: Vec<Value> =
        (1..=50).map(|seq| placed(site.reading(), "barn-7", epoch, seq)).collect();
    for index in [0, 17, 49] {
        events[index]["event"]["event_type"] = json!("poison.event");
    }
    let mut body = batch(events);
    body["tombstones"] = json!([tombstone(site.tenant, epoch, 60, 61)]);
    let answer = site.send(&body).await;
    assert_eq!(answer.status(), 200);
    let reply: Value = answer.json().await.unwrap();
    for (index, result) in reply["results"].as_array().unwrap().iter().enumerate() {
        let poison = [0, 17, 49].contains(&index);
        assert_eq!(result["status"], if poison { "rejected" } else { "accepted" }, "{index}");
        assert_eq!(result["event_id"], body["events"][index]["event"]["event_id"]);
        if poison {
            assert_eq!((&result["code"], &result["index"]), (&json!("invalid"), &json!(index)));
            assert!(result["message"].as_str().unwrap().contains("no_poison"));
        }
    }
    assert_eq!(reply["tombstones_accepted"], 1);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 47);
    assert_eq!(site.number("SELECT count(*) FROM ingest_dedupe").await, 47);
    let seqs = "SELECT bool_and(seq > before)::text FROM (
                    SELECT seq, lag(seq, 1, 0::bigint) OVER (ORDER BY id) AS before
                    FROM relay_outbox) t";
    assert_eq!(site.text(seqs).await, "true", "the order of the request is kept");
    site.cloud.stop().await;
}

#[tokio::test]
async fn the_relay_is_woken_once_for_a_transaction_and_not_for_duplicates() {
    let site = Site::new("notify").await;
    let (client, mut connection) = site
        .database
        .url()
        .parse::<tokio_postgres::Config>()
        .unwrap()
        .connect(tokio_postgres::NoTls)
        .await
        .unwrap();
    let (heard, mut notices) = tokio::sync::mpsc::channel(100);
    tokio::spawn(async move {
        loop {
            match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(tokio_postgres::AsyncMessage::Notification(notice))) => {
                    let _ = heard.send(notice.payload().to_owned()).await;
                }
                Some(Ok(_)) => {}
                _ => return,
            }
        }
    });
    client.batch_execute(&format!("LISTEN {}", cloud::RELAY_CHANNEL)).await.unwrap();
    let first = batch((0..20).map(|_| bare(site.reading())).collect());
    site.statuses(&first).await;
    site.statuses(&first).await;
    site.statuses(&batch(vec![bare(site.reading())])).await;
    client.batch_execute("NOTIFY relay_outbox, 'end'").await.unwrap();
    let mut said = Vec::new();
    while said.last().is_none_or(|last| last != "end") {
        said.push(tokio::time::timeout(crate::site::LONG, notices.recv()).await.unwrap().unwrap());
    }
    assert_eq!(said, ["", "", "end"]);
    site.cloud.stop().await;
}
