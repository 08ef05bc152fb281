//! The API of telemetry: who may ask and write, what is answered, and what is said when it is not.

use api::tokens::{self, NewToken, Role, Tenants};
use edge::Edge;
use edge::config::TelemetrySync;
use event::id::{DeviceId, EventId, TenantId};
use event::wire::{Gap, GapReason};
use jiff::{SignedDuration, Timestamp};
use reqwest::Response;
use serde_json::{Value, json};
use testkit::eventually;

use crate::retention_ground::{TestStore, days_ago, delivering, fill, set_state, turn};
use crate::site::{LONG, Site, config, http, start};
use crate::telemetry::{aggregator, at, measured, numbered, reading};

/// Someone with a token.
pub(crate) struct Asker {
    base: String,
    token: String,
}

impl Asker {
    pub(crate) async fn new(site: &Site, edge: &Edge, role: Role, tenants: Tenants) -> Asker {
        let new = NewToken { name: "anna".to_owned(), role, tenants, expires_at: None };
        let (_, token) = tokens::create(&site.client().await, &new).await.unwrap();
        Asker {
            base: format!("http://{}/api/v1/telemetry", edge.http()),
            token: token.expose().to_owned(),
        }
    }

    pub(crate) async fn send(&self, path: &str) -> Response {
        let request = http().get(format!("{}{path}", self.base)).bearer_auth(&self.token);
        request.send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.send(path).await;
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    pub(crate) async fn post(&self, body: &Value) -> (u16, Value) {
        let request = http().post(format!("{}/readings", self.base)).bearer_auth(&self.token);
        let answer = request.json(body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

/// An edge that computes only when a test says so.
pub(crate) async fn quiet(site: &Site) -> Edge {
    let pairs = [("ROLES", "telemetry"), ("TELEMETRY_SETTLE", "10m")];
    start(&config(site.database.url(), &pairs)).await
}

pub(crate) fn asked(device: DeviceId, rest: &str) -> String {
    format!("?device_id={device}&metric_type=temperature&{rest}")
}

pub(crate) const DAY: &str = "from=2026-02-01T00:00:00Z&to=2026-02-02T00:00:00Z";

#[tokio::test]
async fn a_range_is_answered_at_each_resolution_page_by_page_and_as_csv() {
    let site = Site::new("ask_range").await;
    let edge = quiet(&site).await;
    let node = site.enroll("barn-1").await;
    let device = DeviceId::mint();
    let time = |text| at(&format!("2026-02-01T{text}Z"));
    let events = [
        reading(device, time("10:00:00"), 20.0, "GOOD"),
        reading(device, time("10:00:30.25"), 21.5, "GOOD"),
        measured(device, time("10:01:00"), "temperature", -0.1, "C, \"moist\"", "UNCERTAIN"),
        reading(device, time("11:30:00"), 1e21, "BAD"),
        reading(device, time("11:30:00"), 23.0, "GOOD"),
        measured(device, time("10:00:10"), "humidity", 61.0, "%", "GOOD"),
    ];
    let ids: Vec<Value> = events
        .iter()
        .map(|event| serde_json::from_str::<Value>(event).unwrap()["event_id"].clone())
        .collect();
    let ids: Vec<&str> = ids.iter().map(|id| id.as_str().unwrap()).collect();
    site.ingest(&[node.batch(&numbered(1, events), &[])]).await;
    aggregator(&site, TelemetrySync::Raw).work_off().await.unwrap();
    let anna = Asker::new(&site, &edge, Role::Viewer, Tenants::Only(vec![node.tenant])).await;

    let csv = async |rest: &str| {
        let answer = anna.send(&asked(device, rest)).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/csv; charset=utf-8");
        assert_eq!(answer.headers()["x-holdfast-gaps"], "0");
        answer.text().await.unwrap()
    };
    let raw = format!(
        "occurred_at,metric_type,metric_value,unit,quality,event_id\r\n\
         2026-02-01T10:00:00Z,temperature,20,C,GOOD,{}\r\n\
         2026-02-01T10:00:30.25Z,temperature,21.5,C,GOOD,{}\r\n\
         2026-02-01T10:01:00Z,temperature,-0.1,\"C, \"\"moist\"\"\",UNCERTAIN,{}\r\n\
         2026-02-01T11:30:00Z,temperature,1000000000000000000000,C,BAD,{}\r\n\
         2026-02-01T11:30:00Z,temperature,23,C,GOOD,{}\r\n",
        ids[0], ids[1], ids[2], ids[3], ids[4]
    );
    assert_eq!(csv(&format!("{DAY}&resolution=raw&format=csv")).await, raw);
    let minutes = "bucket_start_at,bucket_end_at,metric_type,avg_value,min_value,max_value,count,unit,version\r\n\
         2026-02-01T10:00:00Z,2026-02-01T10:01:00Z,temperature,20.75,20,21.5,2,C,1\r\n\
         2026-02-01T10:01:00Z,2026-02-01T10:02:00Z,temperature,-0.1,-0.1,-0.1,1,\"C, \"\"moist\"\"\",1\r\n\
         2026-02-01T11:30:00Z,2026-02-01T11:31:00Z,temperature,23,23,23,1,C,1\r\n";
    assert_eq!(csv(&format!("{DAY}&format=csv")).await, minutes, "a day is shown by minutes");
    let two = minutes.lines().take(2).map(|line| format!("{line}\r\n")).collect::<String>();
    assert_eq!(csv(&format!("{DAY}&format=csv&limit=1")).await, two);

    // Pages of one point each bring what one page brings.
    for resolution in ["auto", "raw", "1m", "1h", "1d"] {
        let all = anna.get(&asked(device, &format!("{DAY}&resolution={resolution}"))).await;
        assert_eq!(all.0, 200, "{}", all.1);
        let (mut points, mut after) = (Vec::new(), String::new());
        loop {
            let rest = format!("{DAY}&resolution={resolution}&limit=1{after}");
            let (status, page) = anna.get(&asked(device, &rest)).await;
            assert_eq!(status, 200, "{page}");
            points.extend(page["points"].as_array().unwrap().clone());
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(&Value::Array(points), &all.1["points"], "{resolution}");
    }
    let (_, hours) = anna.get(&asked(device, &format!("{DAY}&resolution=1h"))).await;
    assert_eq!(hours["points"][1]["avg_value"], 23.0);
    assert_eq!(
        (&hours["points"][0]["unit"], &hours["next"]),
        (&json!("C, \"moist\""), &Value::Null)
    );
    let auto = async |to: &str| {
        let (_, page) =
            anna.get(&asked(device, &format!("from=2026-02-01T00:00:00Z&to={to}"))).await;
        page["resolution"].as_str().unwrap().to_owned()
    };
    assert_eq!(auto("2026-02-01T01:00:00Z").await, "raw");
    assert_eq!(auto("2026-02-03T00:00:00Z").await, "1m");
    assert_eq!(auto("2026-03-01T00:00:00Z").await, "1h");
    assert_eq!(auto("2027-02-01T00:00:00Z").await, "1d");

    let (_, series) = anna.get("/series?limit=1").await;
    let wanted = json!({"device_id": device, "metric_type": "humidity", "unit": "%",
        "first_at": "2026-02-01T10:00:10Z", "last_at": "2026-02-01T10:00:10Z"});
    assert_eq!(series["items"], json!([wanted]));
    let next = series["next"].as_str().unwrap();
    let (_, series) = anna.get(&format!("/series?limit=1&after={next}")).await;
    assert_eq!(
        (&series["items"][0]["metric_type"], &series["next"]),
        (&json!("temperature"), &Value::Null)
    );
    // A reading that no minute was computed for yet is the latest all the same.
    let newer = reading(device, time("12:00:00"), 24.0, "BAD");
    site.ingest(&[node.batch(&[(7, newer)], &[])]).await;
    let (_, latest) = anna.get("/latest?metric_type=temperature").await;
    let item = &latest["items"][0];
    assert_eq!((&item["metric_value"], &item["quality"]), (&json!(24.0), &json!("BAD")));
    edge.stop().await;
}

pub(crate) fn gap_at(from: u64, to: u64) -> Gap {
    let (first, last) = (at("2026-02-01T12:00:00Z"), at("2026-02-01T12:10:00Z"));
    Gap::new(from, to, Some(first), Some(last), GapReason::DropOldest).unwrap()
}

#[tokio::test]
async fn known_gaps_are_marked_until_what_was_lost_arrives() {
    let site = Site::new("ask_gaps").await;
    let edge = quiet(&site).await;
    let node = site.enroll("barn-1").await;
    let device = node.enrolled.device_id;
    let gaps = [gap_at(2, 9), Gap::new(20, 20, None, None, GapReason::Corrupt).unwrap()];
    let time = at("2026-02-01T10:00:00Z");
    let event = |second| reading(device, time + SignedDuration::from_secs(second), 1.0, "GOOD");
    // One record in quarantine: nothing of it is lost, so it is no gap.
    let records = [(1, event(1)), (10, event(2)), (11, "{}".to_owned())];
    site.ingest(&[node.batch(&records, &gaps)]).await;
    let anna = Asker::new(&site, &edge, Role::Viewer, Tenants::Only(vec![node.tenant])).await;
    let shown = async |rest: &str| {
        let (status, page) = anna.get(&asked(device, rest)).await;
        assert_eq!(status, 200, "{page}");
        let mut gaps = page["gaps"].as_array().unwrap().clone();
        gaps.sort_by_key(|gap| gap["from_seq"].as_i64());
        gaps
    };
    let all = shown(DAY).await;
    let wanted = json!({"stream": "barn-1", "epoch": node.epoch, "from_seq": 2, "to_seq": 9,
        "lost": 8, "from": "2026-02-01T12:00:00Z", "to": "2026-02-01T12:10:00Z",
        "reason": "drop_oldest", "origin": "node"});
    assert_eq!(all[0], wanted);
    assert_eq!(
        (all.len(), &all[1]["reason"], &all[1]["from"]),
        (2, &json!("corrupt"), &Value::Null)
    );
    let before = shown("from=2026-02-01T10:00:00Z&to=2026-02-01T11:00:00Z").await;
    assert_eq!(before.len(), 1, "only the one whose time is not known");
    let csv = anna.send(&asked(device, &format!("{DAY}&format=csv"))).await;
    assert_eq!(csv.headers()["x-holdfast-gaps"], "2");
    let rows = format!("{DAY}&format=csv&gaps=rows&resolution=raw");
    let rows = anna.send(&asked(device, &rows)).await.text().await.unwrap();
    let lines: Vec<&str> = rows.split_terminator("\r\n").collect();
    let raw = "occurred_at,metric_type,metric_value,unit,quality,event_id";
    assert_eq!(lines[0], format!("{raw},gap,gap_until,gap_lost"));
    assert_eq!(lines.len(), 1 + 2 + 2, "{rows}");
    assert!(lines[1].starts_with("2026-02-01T10:00:01Z,temperature,1,C,GOOD,"), "{rows}");
    assert!(lines[1].ends_with(",,,"), "{rows}");
    let first = "2026-02-01T12:00:00Z,temperature,,,,,drop_oldest,2026-02-01T12:10:00Z,8";
    assert_eq!(lines[3..], [first, ",temperature,,,,,corrupt,,1"]);
    assert!(lines.iter().all(|line| line.matches(',').count() == 8), "{rows}");
    let (status, said) = anna.get(&asked(device, &format!("{DAY}&gaps=rows"))).await;
    assert_eq!((status, &said["error"]["field"]), (400, &json!("gaps")), "{said}");

    site.ingest(&[node.batch(&[(4, event(3)), (5, event(4))], &[])]).await;
    assert_eq!(shown(DAY).await[0]["lost"], 6);
    let rest: Vec<_> = (2..=9u64).map(|seq| (seq, event(10 + seq.cast_signed()))).collect();
    site.ingest(&[node.batch(&rest, &[])]).await;
    assert_eq!(shown(DAY).await.len(), 1, "what arrived after all is no gap");
    edge.stop().await;
}

#[tokio::test]
async fn a_gap_is_shown_exactly_while_a_reading_is_not_here() {
    let site = Site::new("ask_gone").await;
    let edge = quiet(&site).await;
    let node = site.enroll("barn-1").await;
    let device = node.enrolled.device_id;
    let anna = Asker::new(&site, &edge, Role::Viewer, Tenants::Only(vec![node.tenant])).await;
    let rest = format!("from={}&resolution=raw", days_ago(3));
    let shown = async || {
        let (status, page) = anna.get(&asked(device, &rest)).await;
        assert_eq!(status, 200, "{page}");
        let gap = |gap: &Value| json!([gap["reason"], gap["origin"], gap["lost"]]);
        let gaps = page["gaps"].as_array().unwrap().iter().map(gap).collect::<Vec<Value>>();
        (page["points"].as_array().unwrap().len(), gaps)
    };
    fill(&site, &node, 1..=10, days_ago(2)).await;
    set_state(&site, "dlq", 40, "seq <= 3").await;
    let store = TestStore::start().await;
    let mut config = delivering(&site);
    turn(&config, Some(&store.bucket)).await;
    let declared = "SELECT count(*) FROM ledger_tombstone WHERE reason = 'expired'";
    assert_eq!(site.number(declared).await, 1, "the cloud will hear of it");
    assert_eq!(shown().await, (10, vec![]), "an archived dead letter takes no reading");

    config.retention.max_database_bytes = Some(1);
    turn(&config, Some(&store.bucket)).await;
    assert_eq!(shown().await, (3, vec![json!(["drop_oldest", "edge", 7])]));
    fill(&site, &node, 4..=6, days_ago(2)).await;
    assert_eq!(shown().await, (6, vec![json!(["drop_oldest", "edge", 4])]));
    fill(&site, &node, 7..=10, days_ago(2)).await;
    assert_eq!(shown().await, (10, vec![]), "the node had them still");

    // What a restored edge leaves to the cloud.
    let adopt = "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count,
            reason, origin, sent_at)
        SELECT tenant_id, stream, epoch, 11, 12, 2, 'held_by_cloud', 'edge', now()
        FROM ledger_frontier";
    site.client().await.execute(adopt, &[]).await.unwrap();
    assert_eq!(shown().await, (10, vec![json!(["held_by_cloud", "edge", 2])]));
    edge.stop().await;
}

#[tokio::test]
async fn a_range_is_read_by_the_index() {
    let site = Site::new("ask_index").await;
    let edge = quiet(&site).await;
    let client = site.client().await;
    let (tenant, device) = (TenantId::mint(), DeviceId::mint());
    // Twenty devices over four days, this one among them.
    let fill = "WITH d AS (SELECT CASE n WHEN 1 THEN $2 ELSE gen_random_uuid() END AS device
            FROM generate_series(1, 20) n)
        INSERT INTO telemetry_agg (id, tenant_id, device_id, \"window\", bucket_start_at,
            bucket_end_at, metric_type, avg_value, min_value, max_value, count, sum_value, unit, readings)
        SELECT gen_random_uuid(), $1, device, '1m', at, at + interval '1 minute', 'temperature',
            1, 1, 1, 1, 1, 'C', 1
        FROM d, generate_series('2026-02-01Z'::timestamptz, '2026-02-04Z', '1 minute') at";
    client.execute(fill, &[&tenant.uuid(), &device.uuid()]).await.unwrap();
    let copy = "INSERT INTO telemetry_raw (id, tenant_id, device_id, occurred_at, metric_type,
            metric_value, unit)
        SELECT id, tenant_id, device_id, bucket_start_at, metric_type, avg_value, unit FROM telemetry_agg";
    client.execute(copy, &[]).await.unwrap();
    client.batch_execute("ANALYZE telemetry_agg; ANALYZE telemetry_raw").await.unwrap();
    let scans = async |column: &str| {
        site.number(&format!(
            "SELECT coalesce(sum({column}), 0)::bigint FROM pg_stat_user_tables
             WHERE relname IN ('telemetry_raw_2026_02', 'telemetry_agg_2026_02')"
        ))
        .await
    };
    let anna = Asker::new(&site, &edge, Role::Viewer, Tenants::Only(vec![tenant])).await;
    // Counts of the server come a moment after the fact: until those of the preparation stand.
    eventually(LONG, "the preparation is counted", async || scans("seq_scan").await > 0)
        .await
        .unwrap();
    let (read, rows) = (scans("seq_scan").await, scans("idx_tup_fetch").await);
    for resolution in ["raw", "1m"] {
        let rest = format!("{DAY}&resolution={resolution}");
        let (_, page) = anna.get(&asked(device, &rest)).await;
        assert_eq!(page["points"].as_array().unwrap().len(), 1_440, "{page}");
    }
    eventually(LONG, "the index was read", async || scans("idx_tup_fetch").await > rows + 2_000)
        .await
        .unwrap();
    assert_eq!(scans("seq_scan").await, read, "and nothing was read through");
    assert!(scans("idx_tup_fetch").await < rows + 5_000, "nor more than was asked for");
    edge.stop().await;
}

#[tokio::test]
async fn buckets_are_computed_by_the_index_whatever_the_statistics_say() {
    let site = Site::new("agg_index").await;
    let client = site.client().await;
    let (tenant, device) = (TenantId::mint(), DeviceId::mint());
    // A device comes back after two days, beside a hundred that have little; of its readings the statistics know nothing.
    let fill = "INSERT INTO telemetry_raw (id, tenant_id, device_id, occurred_at, metric_type, metric_value, unit)
        SELECT gen_random_uuid(), $1, coalesce($2, gen_random_uuid()), at, 'temperature', 1, 'C'
        FROM generate_series('2026-02-01Z'::timestamptz, '2026-02-01Z'::timestamptz + $3::int * interval '10 seconds', '10 seconds') at";
    client.execute(fill, &[&tenant.uuid(), &None::<uuid::Uuid>, &100]).await.unwrap();
    client.batch_execute("ANALYZE telemetry_raw").await.unwrap();
    client.execute(fill, &[&tenant.uuid(), &device.uuid(), &17_279]).await.unwrap();
    let mark = "INSERT INTO telemetry_dirty (tenant_id, device_id, \"window\", bucket_start_at, due_at)
        SELECT DISTINCT tenant_id, device_id, '1m', date_trunc('minute', occurred_at), now() FROM telemetry_raw
        WHERE device_id = $1";
    client.execute(mark, &[&device.uuid()]).await.unwrap();
    let scans = async |column: &str| {
        let of_raw = "FROM pg_stat_user_tables WHERE relname = 'telemetry_raw_2026_02'";
        site.number(&format!("SELECT coalesce(sum({column}), 0)::bigint {of_raw}")).await
    };
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    eventually(LONG, "the preparation is counted", async || scans("seq_scan").await > 0)
        .await
        .unwrap();
    let read = scans("seq_tup_read").await;
    aggregator(&site, TelemetrySync::Raw).work_off().await.unwrap();
    let stored = site.number("SELECT count(*) FROM telemetry_agg").await;
    assert_eq!(stored, 2_880 + 48 + 2, "minutes, hours, days");
    eventually(LONG, "the index was read", async || scans("idx_tup_fetch").await >= 17_280)
        .await
        .unwrap();
    assert_eq!(scans("seq_tup_read").await, read, "and nothing was read through");
}

#[tokio::test]
async fn the_role_keeps_aggregates_right_by_itself() {
    let site = Site::new("ask_role").await;
    let pairs = [("ROLES", "telemetry"), ("TELEMETRY_SETTLE", "0ms")];
    let edge = start(&config(site.database.url(), &pairs)).await;
    let tenant = TenantId::mint();
    let anna = Asker::new(&site, &edge, Role::Admin, Tenants::Only(vec![tenant])).await;
    let device = DeviceId::mint();
    let then = Timestamp::now() - SignedDuration::from_hours(72);
    let body = json!({"readings": [{"event_id": EventId::mint(),
        "event_type": "telemetry.ingested", "device_id": device, "occurred_at": then,
        "payload": {"metric_type": "temperature", "metric_value": 5.0, "unit": "C"}}]});
    assert_eq!(anna.post(&body).await.0, 200);
    let from = then - SignedDuration::from_hours(48);
    let path = asked(device, &format!("from={from}&resolution=1d"));
    eventually(LONG, "the day is there", async || {
        let (_, page) = anna.get(&path).await;
        if page["points"][0]["count"] == 1 { Ok(()) } else { Err(page) }
    })
    .await
    .unwrap();
    assert!(edge.metrics().render().contains("holdfast_telemetry_changed_total{window=\"1d\"} 1"));
    edge.stop().await;
}
