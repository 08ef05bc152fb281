//! The API of telemetry: who may ask and write, what is refused, and readings that come in by token.

use api::tokens::{Role, Tenants};
use edge::config::TelemetrySync;
use event::id::{DeviceId, EventId, TenantId};
use serde_json::{Value, json};

use crate::site::Site;
use crate::telemetry::{aggregator, at, reading};
use crate::telemetry_ask::{Asker, DAY, asked, gap_at, quiet};

#[tokio::test]
async fn tenants_and_roles_are_kept_apart() {
    let site = Site::new("ask_tenants").await;
    let edge = quiet(&site).await;
    let (ours, theirs) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    // The same device id in both tenants: only the tenant tells them apart.
    let device = DeviceId::mint();
    let time = at("2026-02-01T10:00:00Z");
    site.ingest(&[ours.batch(&[(1, reading(device, time, 1.0, "GOOD"))], &[])]).await;
    site.ingest(&[theirs.batch(&[(1, reading(device, time, 2.0, "GOOD"))], &[gap_at(2, 3)])]).await;
    aggregator(&site, TelemetrySync::Raw).work_off().await.unwrap();
    let only = |tenant: TenantId| Tenants::Only(vec![tenant]);
    let (us, them) = (ours.tenant, theirs.tenant);
    let paths = |tenant: &str| {
        ["raw", "1m", "1h", "1d"]
            .map(|resolution| asked(device, &format!("{DAY}&resolution={resolution}{tenant}")))
            .into_iter()
            .chain([format!("/latest?limit=5{tenant}"), format!("/series?limit=5{tenant}")])
            .collect::<Vec<_>>()
    };
    for role in [Role::Viewer, Role::Operator, Role::Admin] {
        let anna = Asker::new(&site, &edge, role, only(us)).await;
        for path in paths("") {
            let (status, page) = anna.get(&path).await;
            assert_eq!(status, 200, "{page}");
            let items = page["points"].as_array().or(page["items"].as_array()).unwrap();
            assert_eq!(items.len(), 1, "{path} {page}");
            assert!(!page.to_string().contains("2.0"), "{page}");
            assert_eq!(page["gaps"].as_array().map_or(0, Vec::len), 0, "their gap is not ours");
        }
        for path in paths(&format!("&tenant_id={them}")) {
            let (status, page) = anna.get(&path).await;
            assert_eq!((status, &page["error"]["field"]), (403, &json!("tenant_id")), "{path}");
        }
        let csv =
            anna.send(&asked(device, &format!("{DAY}&format=csv"))).await.text().await.unwrap();
        assert_eq!(csv.lines().count(), 2);
    }
    let all = Asker::new(&site, &edge, Role::Viewer, Tenants::All).await;
    let (status, page) = all.get(&asked(device, DAY)).await;
    assert_eq!((status, &page["error"]["field"]), (400, &json!("tenant_id")), "{page}");
    let (status, page) = all.get(&asked(device, &format!("{DAY}&tenant_id={them}"))).await;
    assert_eq!((status, page["gaps"].as_array().unwrap().len()), (200, 1));
    let machine = Asker::new(&site, &edge, Role::Edge, only(us)).await;
    for path in paths("") {
        assert_eq!(machine.get(&path).await.0, 403, "{path}");
    }

    // Writing: machines and people who act, for their own tenants.
    let body = |tenant: Value| {
        json!({"readings": [{"event_id": EventId::mint(), "event_type": "telemetry.ingested",
            "tenant_id": tenant, "device_id": device, "occurred_at": time,
            "payload": {"metric_type": "temperature", "metric_value": 5.0, "unit": "C"}}]})
    };
    for (role, wanted) in
        [(Role::Edge, 200), (Role::Operator, 200), (Role::Admin, 200), (Role::Viewer, 403)]
    {
        let asker = Asker::new(&site, &edge, role, only(us)).await;
        for tenant in [json!(us), Value::Null] {
            assert_eq!(asker.post(&body(tenant)).await.0, wanted, "{role:?}");
        }
        let (status, said) = asker.post(&body(json!(them))).await;
        assert_eq!(status, 403, "{said}");
    }
    let written = "SELECT count(*) FROM telemetry_raw WHERE metric_value = 5 AND tenant_id = ";
    assert_eq!(site.number(&format!("{written} '{us}'")).await, 6);
    assert_eq!(site.number(&format!("{written} '{them}'")).await, 0);
    edge.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_named() {
    let site = Site::new("ask_bad").await;
    let edge = quiet(&site).await;
    let tenant = TenantId::mint();
    let anna = Asker::new(&site, &edge, Role::Admin, Tenants::Only(vec![tenant])).await;
    let device = DeviceId::mint();
    let good = format!("device_id={device}&metric_type=temperature&{DAY}");
    for (path, field) in [
        (format!("?metric_type=temperature&{DAY}"), "device_id"),
        (format!("?device_id={device}&{DAY}"), "metric_type"),
        (format!("?device_id={device}&metric_type=t"), "from"),
        (format!("?device_id=7&metric_type=t&{DAY}"), "device_id"),
        (format!("?device_id={device}&metric_type=T&{DAY}"), "metric_type"),
        (format!("?{good}&resolution=5m"), "resolution"),
        (format!("?{good}&limit=0"), "limit"),
        (format!("?{good}&limit=10001"), "limit"),
        (format!("?{good}&after=1h"), "after"),
        (format!("?{good}&resolution=1m&after=1h.5"), "after"),
        (format!("?{good}&format=xml"), "format"),
        (format!("?{good}&format=csv&after=1h.5"), "after"),
        (format!("?{good}&reslution=raw"), "reslution"),
        (format!("?{good}&limit=5&limit=6"), "limit"),
        (format!("?{good}&tenant_id=x"), "tenant_id"),
        (asked(device, "from=now"), "from"),
        (asked(device, "from=2026-02-01"), "from"),
        (asked(device, "from=2026-02-02T00:00:00Z&to=2026-02-01T00:00:00Z"), "to"),
        (asked(device, "from=2001-01-01T00:00:00Z&to=2026-02-01T00:00:00Z"), "from"),
        ("/series?limit=1001".to_owned(), "limit"),
        ("/latest?after=x".to_owned(), "after"),
        ("/latest?from=x".to_owned(), "from"),
    ] {
        let (status, said) = anna.get(&path).await;
        assert_eq!((status, &said["error"]["field"]), (400, &json!(field)), "{path} {said}");
    }
    let sound = || {
        json!({"event_id": EventId::mint(), "event_type": "telemetry.ingested",
            "device_id": device, "occurred_at": "2026-02-01T10:00:00Z",
            "payload": {"metric_type": "temperature", "metric_value": 5.0, "unit": "C"}})
    };
    let with = |name: &str, value: Value| {
        let mut reading = sound();
        match name.strip_prefix("payload.") {
            Some(name) => reading["payload"][name] = value,
            None => reading[name] = value,
        }
        json!({"readings": [sound(), reading]})
    };
    for (body, field) in [
        (json!({"readings": []}), "readings"),
        (json!({"reading": [sound()]}), "readings"),
        (json!([sound()]), "readings"),
        (with("event_id", json!(7)), "readings[1].event_id"),
        (with("event_type", json!("alarm.raised")), "readings[1].event_type"),
        (with("device_id", Value::Null), "readings[1].device_id"),
        (with("occurred_at", json!("today")), "readings[1].occurred_at"),
        (with("payload.metric_value", json!("5")), "readings[1].payload.metric_value"),
        (with("payload.unit", json!("")), "readings[1].payload.unit"),
        (with("payload.quality", json!("FINE")), "readings[1].payload.quality"),
    ] {
        let (status, said) = anna.post(&body).await;
        assert_eq!((status, &said["error"]["field"]), (400, &json!(field)), "{said}");
    }
    assert_eq!(site.number("SELECT count(*) FROM telemetry_raw").await, 0, "nothing was stored");
    assert_eq!(site.number("SELECT count(*) FROM ingress_quarantine").await, 0);
    edge.stop().await;
}

#[tokio::test]
async fn readings_by_token_are_stored_once_like_bare_events() {
    let site = Site::new("ask_ingest").await;
    let edge = quiet(&site).await;
    let (tenant, other) = (TenantId::mint(), TenantId::mint());
    let anna = Asker::new(&site, &edge, Role::Edge, Tenants::Only(vec![tenant])).await;
    let device = DeviceId::mint();
    let reading = |id: EventId, value: f64| {
        json!({"event_id": id, "event_type": "telemetry.ingested", "device_id": device,
            "occurred_at": "2026-02-01T10:00:00Z",
            "payload": {"metric_type": "temperature", "metric_value": value, "unit": "C"}})
    };
    let ids: Vec<EventId> = (0..3).map(|_| EventId::mint()).collect();
    let body =
        json!({"readings": [reading(ids[0], 1.0), reading(ids[1], 2.0), reading(ids[0], 1.0)]});
    let (status, said) = anna.post(&body).await;
    assert_eq!((status, said), (200, json!({"stored": 2, "duplicate": 1, "quarantined": 0})));
    let before = site.snapshot().await;
    let (_, said) = anna.post(&body).await;
    assert_eq!(said, json!({"stored": 0, "duplicate": 3, "quarantined": 0}));
    let after = site.snapshot().await;
    for (before, after) in before.iter().zip(&after).filter(|((name, _), _)| *name != "devices") {
        assert_eq!(before, after);
    }
    // An id that is another tenant's.
    let theirs = Asker::new(&site, &edge, Role::Edge, Tenants::Only(vec![other])).await;
    let (_, said) = theirs.post(&json!({"readings": [reading(ids[0], 1.0)]})).await;
    assert_eq!(said, json!({"stored": 0, "duplicate": 0, "quarantined": 1}));
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 2, "they go to the cloud");
    aggregator(&site, TelemetrySync::Raw).work_off().await.unwrap();
    let viewer = Asker::new(&site, &edge, Role::Viewer, Tenants::Only(vec![tenant])).await;
    let (_, page) = viewer.get(&asked(device, &format!("{DAY}&resolution=1d"))).await;
    assert_eq!(page["points"][0]["avg_value"], 1.5);
    edge.stop().await;
}
