//! What can be asked, by whom, and how much of it comes.

use std::collections::BTreeSet;

use api::tokens::Role;
use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;

use crate::station::{Viewer, events, http, message};

#[tokio::test]
async fn pages_hold_every_row_once_and_filters_hold() {
    let viewer = Viewer::new("hist_pages").await;
    let made = events(7, 100);
    viewer.station.publish(made.iter().map(message).collect()).await;
    let (mut seen, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let (status, page) = viewer.ask(&format!("/telemetry?limit=37{cursor}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        for item in page["items"].as_array().unwrap() {
            assert!(seen.insert(item["event_id"].as_str().unwrap().to_owned()));
            assert!(item.get("key_at").is_none());
        }
        // Rows that come in between shift nothing.
        viewer.station.publish(events(9, 1).iter().map(message).collect()).await;
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let wanted: BTreeSet<String> = made
        .iter()
        .filter(|event| event.category == event::scada::Category::Telemetry)
        .map(|event| event.event_id.to_string())
        .collect();
    assert!(wanted.is_subset(&seen));
    let (_, page) = viewer.ask("/telemetry?tag=PRESSURE&node_id=7&plant=PLANT01&limit=1000").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 100);
    let (_, page) = viewer.ask("/events?to=2020-01-01T00:00:00Z").await;
    assert_eq!(page["items"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn a_series_has_a_bounded_number_of_points_and_keeps_its_spikes() {
    let viewer = Viewer::new("hist_series").await;
    let template = events(7, 1).remove(0);
    let start: Timestamp = Timestamp::now() - SignedDuration::from_hours(3);
    let samples: Vec<_> = (0..5_000_i64)
        .map(|n| event::scada::Envelope {
            event_id: event::id::EventId::mint(),
            timestamp: start + SignedDuration::from_secs(n),
            value: if n == 2_345 { 119.0 } else { 50.0 },
            ..template.clone()
        })
        .collect();
    viewer.station.publish(samples.iter().map(message).collect()).await;
    let series = |from: i64, to: i64, more: &str| {
        let at = |n| start + SignedDuration::from_secs(n);
        format!(
            "/telemetry/series?plant=PLANT01&area=AREA01&unit_name=UNIT_07&tag={}&from={}&to={}{more}",
            template.tag,
            at(from),
            at(to)
        )
    };
    let (status, all) = viewer.ask(&series(0, 5_000, "&points=50")).await;
    assert_eq!(status, StatusCode::OK, "{all}");
    let points = all["points"].as_array().unwrap();
    // 5,000 seconds are 84 minutes or, begun within one, 85; two minutes each.
    assert_eq!((all["raw"].as_bool(), &all["bucket_seconds"]), (Some(false), &120.0.into()));
    assert!((42..=43).contains(&points.len()), "{} points", points.len());
    assert_eq!(points.iter().map(|point| point["count"].as_i64().unwrap()).sum::<i64>(), 5_000);
    let spikes: Vec<_> = points.iter().filter(|point| point["max"] == 119.0).collect();
    assert_eq!((spikes.len(), spikes[0]["min"].as_f64()), (1, Some(50.0)));
    let (_, short) = viewer.ask(&series(0, 1_000, "&points=50")).await;
    assert_eq!(short["bucket_seconds"], 20.0);
    assert_eq!(short["points"].as_array().unwrap().len(), 50);
    let (_, few) = viewer.ask(&series(0, 400, "")).await;
    assert_eq!((few["raw"].as_bool(), few["points"].as_array().unwrap().len()), (Some(true), 400));
    for path in [
        series(0, 0, ""),
        series(0, 10, "&points=2001"),
        series(0, 10, "&tag=x"),
        "/telemetry/series?tag=PRESSURE".to_owned(),
        "/telemetry?tag=flow'--".to_owned(),
        "/telemetry?cursor=nonsense".to_owned(),
        "/telemetry?cursor=1_nonsense".to_owned(),
        "/telemetry?limit=1001".to_owned(),
        "/alarms?severity=HUGE".to_owned(),
    ] {
        assert_eq!(viewer.ask(&path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn who_may_only_look_cannot_act_and_nothing_is_open_that_should_not_be() {
    let viewer = Viewer::new("hist_access").await;
    let client = http();
    let edge = viewer.station.token(Role::Edge).await;
    for (method, path, open) in scada::historian::ROUTES {
        let path = path
            .replace("{plant}", "P")
            .replace("{area}", "A")
            .replace("{unit}", "U")
            .replace("{tag}", "T");
        let url = format!("http://{}{path}", viewer.station.historian.http());
        let ask = |token: &str| {
            let request = client.request(method.clone(), &url);
            let request = if token.is_empty() { request } else { request.bearer_auth(token) };
            request.send()
        };
        let without = ask("").await.unwrap().status();
        assert_eq!(without == StatusCode::UNAUTHORIZED, *open == api::open::Open::Never, "{path}");
        if *open == api::open::Open::Never {
            let acts = method == reqwest::Method::POST;
            let looking = ask(&viewer.token).await.unwrap().status();
            assert_eq!(looking == StatusCode::FORBIDDEN, acts, "{path}: {looking}");
            let sending = ask(&edge).await.unwrap().status();
            assert_eq!(
                sending == StatusCode::FORBIDDEN,
                !path.contains("federation"),
                "{path}: {sending}"
            );
        }
    }
    let ready = client.get(format!("http://{}/readyz", viewer.station.historian.http()));
    assert_eq!(ready.send().await.unwrap().status(), StatusCode::OK);
}
