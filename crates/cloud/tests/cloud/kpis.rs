//! KPIs of sites that send aggregates, of images and of batches: once, in any order, and right after a correction.

use event::id::{DeviceId, SessionId, TenantId};
use serde_json::{Value, json};
use testkit::Database;

use crate::consume_world::{Barn, Replica, database, options, settled, stores};
use crate::query::Asked;

/// A site's own aggregate of some values.
pub(crate) fn aggregate(
    barn: &Barn,
    window: &str,
    at: &str,
    version: u32,
    values: &[f64],
) -> Value {
    let sum: f64 = values.iter().sum();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let payload = json!({"metric_type": "temperature", "aggregation_window": window, "unit": "C",
        "avg_value": sum / values.len() as f64, "min_value": least, "max_value": most,
        "count": values.len(), "sum_value": sum, "version": version, "source": "edge"});
    barn.event("telemetry.aggregated", None, at, payload)
}

/// Samples, mean, lowest, highest, minutes observed and in range of the one day there is.
async fn day(database: &Database) -> (i64, f64, f64, f64, i32, i32) {
    settled(database).await;
    let client = database.connect().await.unwrap();
    let query = "SELECT sample_count, mean_value, min_value, max_value, minutes_observed,
        minutes_in_range FROM kpi_metric_day";
    let row = client.query_one(query, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4), row.get(5))
}

#[tokio::test]
async fn days_come_from_a_sites_aggregates_and_follow_their_corrections() {
    let database = database("kpi_aggregates").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let beside = Barn { device: DeviceId::mint(), ..barn };
    let first = [
        aggregate(&barn, "1m", "2026-02-01T10:00:00Z", 1, &[20.0, 22.0]),
        aggregate(&beside, "1m", "2026-02-01T10:00:00Z", 1, &[24.0]),
        aggregate(&barn, "1m", "2026-02-01T10:01:00Z", 1, &[40.0]),
    ];
    let correction = aggregate(&barn, "1m", "2026-02-01T10:01:00Z", 2, &[40.0, 10.0]);
    replica.deliver(&first).await;
    assert_eq!(day(&database).await, (4, 26.5, 20.0, 40.0, 2, 1));
    // Twice, the correction, and then the old one once more.
    replica.deliver(&first).await;
    replica.deliver(std::slice::from_ref(&correction)).await;
    replica.deliver(&first).await;
    let corrected = (5, 23.2, 10.0, 40.0, 2, 2);
    assert_eq!(day(&database).await, corrected);
    // Longer windows tell of the same readings; so does what the cloud itself made of them.
    let hour = aggregate(&barn, "1h", "2026-02-01T10:00:00Z", 1, &[20.0, 22.0, 40.0, 10.0]);
    let mut own = aggregate(&barn, "1m", "2026-02-01T10:05:00Z", 1, &[99.0]);
    own["payload"].as_object_mut().unwrap().remove("source");
    replica.deliver(&[hour, own]).await;
    assert_eq!(day(&database).await, corrected);
    let found = stores(&database).await;
    replica.deliver(&first).await;
    replica.deliver(&[correction]).await;
    settled(&database).await;
    assert_eq!(stores(&database).await, found);
    assert!(replica.causes().is_empty());
    replica.stop().await;
}

#[tokio::test]
async fn readings_and_their_aggregates_are_not_added_up() {
    let database = database("kpi_both").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
    // Both of a minute; a reading whose aggregate is still to come; an aggregate whose readings are.
    let events = [
        barn.reading(at("2026-02-01T10:00:01Z"), 20.0),
        barn.reading(at("2026-02-01T10:00:02Z"), 22.0),
        aggregate(&barn, "1m", "2026-02-01T10:00:00Z", 1, &[20.0, 22.0]),
        barn.reading(at("2026-02-01T10:01:00Z"), 30.0),
        aggregate(&barn, "1m", "2026-02-01T10:02:00Z", 1, &[24.0, 26.0]),
    ];
    replica.deliver(&events).await;
    let expected = (5, 24.4, 20.0, 30.0, 3, 2);
    assert_eq!(day(&database).await, expected);
    let late = [
        barn.reading(at("2026-02-01T10:02:01Z"), 24.0),
        barn.reading(at("2026-02-01T10:02:02Z"), 26.0),
        aggregate(&barn, "1m", "2026-02-01T10:01:00Z", 1, &[30.0]),
    ];
    replica.deliver(&late).await;
    assert_eq!(day(&database).await, expected);
    replica.stop().await;
}

#[tokio::test]
async fn a_site_that_sends_hours_alone_has_days_of_hours() {
    let database = database("kpi_hours").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let events = [
        aggregate(&barn, "1d", "2026-02-01T00:00:00Z", 1, &[20.0, 22.0, 40.0]),
        aggregate(&barn, "1h", "2026-02-01T10:00:00Z", 1, &[20.0, 22.0]),
        aggregate(&barn, "1h", "2026-02-01T11:00:00Z", 1, &[40.0]),
    ];
    replica.deliver(&events[..1]).await;
    let (count, .., minutes, in_range) = day(&database).await;
    assert_eq!((count, minutes, in_range), (3, 1440, 0), "all that is known is the day's mean");
    replica.deliver(&events[1..]).await;
    let (count, .., minutes, in_range) = day(&database).await;
    assert_eq!((count, minutes, in_range), (3, 120, 60));
    replica.stop().await;
}

#[tokio::test]
async fn a_day_of_the_cloud_follows_the_hours_of_a_site_however_late() {
    let database = database("edge_hours").await;
    let replica = Replica::start(&database, options());
    let barn = Barn::new(TenantId::mint());
    let samples = async || {
        settled(&database).await;
        let client = database.connect().await.unwrap();
        let query = "SELECT sample_count FROM telemetry_aggregate WHERE aggregation_window = '1d'";
        client.query_one(query, &[]).await.unwrap().get::<_, i64>(0)
    };
    let hour = |at, version, values| aggregate(&barn, "1h", at, version, values);
    replica.deliver(&[hour("2026-02-01T10:00:00Z", 1, &[20.0, 22.0])]).await;
    assert_eq!(samples().await, 2);
    let late = [
        hour("2026-02-01T09:00:00Z", 1, &[18.0]),
        hour("2026-02-01T10:00:00Z", 2, &[20.0, 22.0, 24.0]),
    ];
    replica.deliver(&late).await;
    assert_eq!(samples().await, 4);
    replica.stop().await;
}

#[tokio::test]
async fn images_and_batches_are_counted_once_by_day() {
    let session = SessionId::mint();
    let mut barns = Vec::new();
    let asked = Asked::new("kpi_images", |tenant| {
        let (barn, other) = (Barn::new(tenant), Barn::new(tenant));
        barns.extend([barn, other]);
        let image = barn.media(session, "2026-02-01T10:00:00Z");
        // Told of again, later, by another event.
        let mut again = barn.media(session, "2026-02-02T10:00:00Z");
        again["payload"]["media_id"] = image["payload"]["media_id"].clone();
        vec![
            again.clone(),
            image.clone(),
            image,
            again,
            barn.media(session, "2026-02-01T23:59:59Z"),
            other.media(session, "2026-02-02T00:00:00Z"),
            barn.sync("b-1", false, "2026-02-01T12:00:10Z"),
            barn.sync("b-1", true, "2026-02-01T12:00:00Z"),
            barn.sync("b-2", true, "2026-02-01T13:00:00Z"),
            barn.sync("b-2", true, "2026-02-01T13:00:00Z"),
        ]
    })
    .await;
    let image = |barn: &Barn, day: &str, count: i64| {
        json!({"day": day, "farm_id": barn.farm, "barn_id": barn.barn, "image_count": count,
            "total_bytes": count * 204_800})
    };
    let expected = [image(&barns[1], "2026-02-02", 1), image(&barns[0], "2026-02-01", 2)];
    assert_eq!(asked.items("/kpis/images").await, expected);
    let batches = json!([{"day": "2026-02-01", "edge_cluster_id": "edge-01", "batches_sent": 2,
        "batches_acked": 1, "events_sent": 1000, "events_acked": 500, "mean_seconds_to_ack": 10.0}]);
    assert_eq!(json!(asked.items("/kpis/sync").await), batches);
    asked.site.cloud.stop().await;
}
