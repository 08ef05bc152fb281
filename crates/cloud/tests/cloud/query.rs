//! The query API: what it shows, page by page, and what it refuses.

use std::time::Duration;

use cloud::tokens::{Role, Tenants};
use event::id::{BatchId, SessionId, TenantId};
use jiff::Timestamp;
use reqwest::Response;
use serde_json::{Value, json};

use crate::consume_world::{Barn, Replica, options, settled};
use crate::site::{Site, error, http, token};

pub(crate) struct Asked {
    pub(crate) site: Site,
    viewer: String,
}

impl Asked {
    pub(crate) async fn new(name: &str, events: impl FnOnce(TenantId) -> Vec<Value>) -> Asked {
        let site = Site::new(name).await;
        let client = site.client().await;
        let only = Tenants::Only(vec![site.tenant]);
        let (_, viewer) = token(&client, Role::Viewer, only).await;
        let replica = Replica::start(&site.database, options());
        replica.deliver(&events(site.tenant)).await;
        settled(&site.database).await;
        replica.stop().await;
        Asked { site, viewer }
    }

    pub(crate) async fn ask(&self, path: &str) -> Response {
        let url = format!("http://{}/api/v1{path}", self.site.cloud.http());
        http().get(url).bearer_auth(&self.viewer).send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.ask(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        answer.json().await.unwrap()
    }

    pub(crate) async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn pages_hold_every_row_once_though_rows_come_in_between() {
    let start: Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
    let mut all = Vec::new();
    let asked = Asked::new("pages", |tenant| {
        let barn = Barn::new(tenant);
        // Several at one instant, so that time alone does not order them.
        all = (0..250_u64).map(|i| barn.reading(start + Duration::from_secs(i / 7), 1.0)).collect();
        all.clone()
    })
    .await;
    let expected: std::collections::BTreeSet<&str> =
        all.iter().map(|event| event["event_id"].as_str().unwrap()).collect();
    for order in ["asc", "desc"] {
        let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let path = format!("/telemetry?limit=30&order={order}{cursor}");
            let page = asked.get(&path).await;
            for item in page["items"].as_array().unwrap() {
                found.push(item["event_id"].as_str().unwrap().to_owned());
            }
            pages += 1;
            if pages == 3 {
                // Rows before the place that has been reached change nothing.
                let replica = Replica::start(&asked.site.database, options());
                let early = if order == "asc" { -3600 } else { 7200 };
                let at = start + jiff::SignedDuration::from_secs(early);
                replica.deliver(&[Barn::new(asked.site.tenant).reading(at, 2.0)]).await;
                replica.stop().await;
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        let unique: std::collections::BTreeSet<&str> = found.iter().map(String::as_str).collect();
        assert_eq!(unique.len(), found.len(), "{order}: a row twice");
        assert!(expected.is_subset(&unique), "{order}: a row is missing");
    }
    let some = asked.items("/telemetry?from=2026-02-01T10:00:10Z&to=2026-02-01T10:00:20Z").await;
    assert_eq!(some.len(), 70);
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn a_session_is_shown_with_its_images_and_results() {
    let (session, other) = (SessionId::mint(), SessionId::mint());
    let asked = Asked::new("one_session", |tenant| {
        let barn = Barn::new(tenant);
        vec![
            barn.finalized(session, "2026-02-01T10:07:00Z", 121.0),
            barn.inference(session, "2026-02-01T10:06:00Z", 0.94),
            barn.media(session, "2026-02-01T10:05:30Z"),
            barn.created(session, BatchId::mint(), "2026-02-01T10:05:00Z", 120.5),
            barn.media(other, "2026-02-01T10:05:30Z"),
        ]
    })
    .await;
    let found = asked.get(&format!("/sessions/{session}")).await;
    assert_eq!(found["session"]["status"], "finalized");
    assert_eq!(found["session"]["initial_weight_kg"], 120.5);
    assert_eq!(found["session"]["final_weight_kg"], 121.0);
    assert_eq!(found["session"]["started_at"], "2026-02-01T10:05:00Z");
    assert_eq!(found["media"].as_array().unwrap().len(), 1);
    assert_eq!(found["media"][0]["copy_status"], "pending");
    assert_eq!(found["inference"][0]["confidence"], 0.94);
    // Images may come before their session does.
    assert_eq!(asked.ask(&format!("/sessions/{other}")).await.status(), 404);
    assert_eq!(asked.items(&format!("/media?session_id={other}")).await.len(), 1);
    let (status, said) = error(asked.ask("/sessions/last").await).await;
    assert_eq!((status, said["field"].as_str()), (400, Some("session_id")));
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn kpis_say_what_happened_in_the_barn() {
    let batch = BatchId::mint();
    let asked = Asked::new("kpis", |tenant| {
        let barn = Barn::new(tenant);
        let start: Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
        // Ten minutes at 20 degrees, one sample each; five at 40, sampled ten times as often.
        let mut events: Vec<Value> =
            (0..10_u64).map(|i| barn.reading(start + Duration::from_secs(60 * i), 20.0)).collect();
        events.extend(
            (0..50_u64).map(|i| barn.reading(start + Duration::from_secs(600 + 6 * i), 40.0)),
        );
        for (day, kg) in [(1, 100.0), (1, 102.0), (6, 111.0)] {
            let session = SessionId::mint();
            let at = |minute| format!("2026-02-0{day}T11:{minute}:00Z");
            events.push(barn.finalized(session, &at("05"), kg));
            events.push(barn.created(session, batch, &at("00"), kg - 1.0));
            events.push(barn.inference(session, &at("04"), 0.5 + kg / 1000.0));
        }
        events
    })
    .await;
    let days = asked.items("/kpis/metrics?metric_type=temperature").await;
    assert_eq!(days.len(), 1);
    let day = &days[0];
    assert_eq!((day["day"].as_str(), day["sample_count"].as_i64()), (Some("2026-02-01"), Some(60)));
    assert_eq!((day["min_value"].as_f64(), day["max_value"].as_f64()), (Some(20.0), Some(40.0)));
    let mean = day["mean_value"].as_f64().unwrap();
    assert!((mean - (200.0 + 2000.0) / 60.0).abs() < 1e-9, "{mean}");
    assert_eq!((&day["minutes_observed"], &day["minutes_in_range"]), (&json!(15), &json!(10)));
    let share = day["share_in_range"].as_f64().unwrap();
    assert!((share - 2.0 / 3.0).abs() < 1e-9, "by time, not by samples: {share}");

    let sessions = asked.items("/kpis/sessions?from=2026-02-01&to=2026-02-02").await;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["sessions_created"], 2);
    assert_eq!(sessions[0]["sessions_finalized"], 2);
    assert_eq!(sessions[0]["mean_final_weight_kg"], 101.0);
    assert_eq!(sessions[0]["image_count"], 6);

    let batches = asked.items(&format!("/kpis/batches?batch_id={batch}")).await;
    assert_eq!(batches.len(), 1);
    assert_eq!(
        (&batches[0]["gain_kg"], &batches[0]["gain_kg_per_day"]),
        (&json!(10.0), &json!(2.0))
    );
    assert_eq!(batches[0]["session_count"], 3);

    let results = asked.items("/kpis/inference?order=asc").await;
    assert_eq!(results.len(), 2);
    let mean = results[0]["mean_confidence"].as_f64().unwrap();
    assert!((mean - 0.601).abs() < 1e-9, "{mean}");

    let latest = asked.items("/telemetry/latest").await;
    assert_eq!((latest.len(), latest[0]["metric_value"].as_f64()), (1, Some(40.0)));
    assert_eq!(latest[0]["occurred_at"], "2026-02-01T10:14:54Z");
    let hours = asked.items("/telemetry/aggregates?aggregation_window=1h").await;
    assert_eq!((hours.len(), hours[0]["sample_count"].as_i64()), (1, Some(60)));
    asked.site.cloud.stop().await;
}

#[tokio::test]
async fn what_is_not_understood_is_named_with_what_would_be_right() {
    let asked = Asked::new("wrong_queries", |_| Vec::new()).await;
    for (path, field, right) in [
        ("/telemetry?limit=0", "limit", "1 to 1000"),
        ("/telemetry?limit=1001", "limit", "1 to 1000"),
        ("/telemetry?limit=many", "limit", "1 to 1000"),
        ("/telemetry?device=7", "device", "device_id"),
        ("/telemetry?device_id=7", "device_id", "UUID"),
        ("/telemetry?from=yesterday", "from", "RFC 3339"),
        ("/telemetry?from=2026-02-01", "from", "RFC 3339"),
        ("/telemetry?order=down", "order", "asc or desc"),
        ("/telemetry?cursor=AAAA", "cursor", "next_cursor"),
        // A cursor of the right form with a value of the wrong type.
        ("/telemetry?cursor=WyJhIiwiYiJd", "cursor", "next_cursor"),
        ("/telemetry?limit=5&limit=6", "limit", "once"),
        ("/telemetry/aggregates", "aggregation_window", "1m, 1h, 1d"),
        ("/telemetry/aggregates?aggregation_window=2h", "aggregation_window", "1m, 1h, 1d"),
        ("/kpis/metrics?from=2026-02-01T00:00:00Z", "from", "2026-02-01"),
        ("/sessions?status=open", "status", "created, finalized"),
        ("/telemetry?metric_type=%00", "metric_type", "control character"),
        ("/telemetry?tenant_id=me", "tenant_id", "UUID"),
    ] {
        let (status, said) = error(asked.ask(path).await).await;
        assert_eq!((status, said["code"].as_str()), (400, Some("malformed")), "{path}");
        assert_eq!(said["field"], field, "{path}");
        assert!(said["message"].as_str().unwrap().contains(right), "{path}: {said}");
    }
    // A token of several tenants must say which.
    let client = asked.site.client().await;
    let (_, all) = token(&client, Role::Admin, Tenants::All).await;
    let url = format!("http://{}/api/v1/telemetry", asked.site.cloud.http());
    let answer = http().get(&url).bearer_auth(&all).send().await.unwrap();
    let (status, said) = error(answer).await;
    assert_eq!((status, said["field"].as_str()), (400, Some("tenant_id")));
    let url = format!("{url}?tenant_id={}", asked.site.tenant);
    assert_eq!(http().get(url).bearer_auth(&all).send().await.unwrap().status(), 200);
    asked.site.cloud.stop().await;
}
