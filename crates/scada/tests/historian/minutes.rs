//! Telemetry by the minute: what is answered is what the samples say, whoever stores what and when.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use event::scada::Envelope;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use testkit::eventually;

use crate::station::{LONG, Viewer, alarm, database, events, message, start, token};

/// Hours that count, but for the one that may have ended while a test runs.
const COUNTED: &str = "telemetry_hours h
    WHERE NOT EXISTS (SELECT FROM telemetry_changes c WHERE c.hour IN (h.hour, '-infinity'))
        AND hour < date_bin('1 hour', now(), '2000-01-01 00:00:00+00') - interval '1 hour'";
/// An hour that changed again waits before it is made again; a test does not.
const LONG_AGO: &str = "UPDATE telemetry_hours SET rolled_at = rolled_at - interval '1 hour'
    WHERE hour IN (SELECT hour FROM telemetry_changes)";
const HOUR: i64 = 3_600;

static TEMPLATE: LazyLock<Envelope> = LazyLock::new(|| events(7, 1).remove(0));

/// The beginning of the hour that was so many hours ago.
fn hours_ago(hours: i64) -> Timestamp {
    let second = Timestamp::now().as_second();
    Timestamp::from_second(second - second.rem_euclid(HOUR) - hours * HOUR).unwrap()
}

fn after(at: Timestamp, seconds: f64) -> Timestamp {
    at + SignedDuration::from_secs_f64(seconds)
}

/// A measurement of the unit 7. Its value is added up without rounding.
fn sample(at: Timestamp, value: f64) -> Envelope {
    Envelope { event_id: event::id::EventId::mint(), timestamp: at, value, ..TEMPLATE.clone() }
}

fn path(from: Timestamp, to: Timestamp, points: i64) -> String {
    let tag = &TEMPLATE.tag;
    format!(
        "/telemetry/series?plant=PLANT01&area=AREA01&unit_name=UNIT_07&tag={tag}&from={from}&to={to}&points={points}"
    )
}

/// Where a bucket begins, its lowest and highest value, their average, how many.
type Bucket = (Timestamp, f64, f64, f64, i64);

fn buckets(answer: &Value) -> Vec<Bucket> {
    let bucket = |point: &Value| {
        let number = |name: &str| point[name].as_f64().unwrap();
        let at = point["at"].as_str().unwrap().parse().unwrap();
        (at, number("min"), number("max"), number("avg"), point["count"].as_i64().unwrap())
    };
    answer["points"].as_array().unwrap().iter().map(bucket).collect()
}

/// What the samples give for buckets of so many seconds.
fn expected(samples: &[Envelope], from: Timestamp, to: Timestamp, width: i64) -> Vec<Bucket> {
    let origin = from.as_second() - from.as_second().rem_euclid(60);
    let mut values: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for one in samples.iter().filter(|one| one.timestamp >= from && one.timestamp < to) {
        let bucket = (one.timestamp.as_second() - origin).div_euclid(width);
        values.entry(bucket).or_default().push(one.value);
    }
    let bucket = |(bucket, values): (i64, Vec<f64>)| {
        let at = Timestamp::from_second(origin + bucket * width).unwrap();
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let count = i32::try_from(values.len()).unwrap();
        (at, lowest, highest, values.iter().sum::<f64>() / f64::from(count), i64::from(count))
    };
    values.into_iter().map(bucket).collect()
}

/// Fails unless the answer is what the samples say.
async fn check(viewer: &Viewer, samples: &[Envelope], from: Timestamp, to: Timestamp, points: i64) {
    let (status, answer) = viewer.ask(&path(from, to, points)).await;
    assert!(status.is_success(), "{answer}");
    let width = answer["bucket_seconds"].as_f64().unwrap();
    assert_eq!((answer["raw"].as_bool(), width % 60.0), (Some(false), 0.0));
    #[expect(clippy::cast_possible_truncation, reason = "a day has few seconds")]
    let wanted = expected(samples, from, to, width as i64);
    let found = buckets(&answer);
    let context = format!("{from} to {to} in {points}");
    assert!(i64::try_from(found.len()).unwrap() <= points, "{context}: {}", found.len());
    assert_eq!(found.len(), wanted.len(), "{context}");
    for (found, wanted) in found.iter().zip(&wanted) {
        let (same, close) = ((found.0, found.1, found.2, found.4), (found.3 - wanted.3).abs());
        assert_eq!(same, (wanted.0, wanted.1, wanted.2, wanted.4), "{context}");
        // JSON's numbers are read to the last digit but one.
        assert!(close <= wanted.3.abs() * 1e-12, "{context}: {found:?}, {wanted:?}");
    }
}

async fn counted(viewer: &Viewer, hours: i64) {
    let client = viewer.station.client().await;
    eventually(LONG, "the hours count", async || {
        client.batch_execute(LONG_AGO).await.unwrap();
        crate::station::count(&client, COUNTED).await == hours
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn buckets_of_minutes_are_those_of_the_samples_at_every_edge() {
    let viewer = Viewer::new("minutes_edges").await;
    let first = hours_ago(6);
    let mut samples = Vec::new();
    for n in 0..4_000_i32 {
        let value = f64::from(n * 37 % 101) * 0.25 - 8.0;
        samples.push(sample(after(first, f64::from(n) * 4.3), value));
    }
    // The same tag of another unit, in the same minutes.
    let mut messages: Vec<_> = samples.iter().map(message).collect();
    for other in samples.iter().step_by(100) {
        let mut other = Envelope { event_id: event::id::EventId::mint(), ..other.clone() };
        other.asset.unit = "UNIT_08".parse().unwrap();
        other.value = 1_000.0;
        messages.push(message(&other));
    }
    viewer.station.publish(messages).await;
    check(&viewer, &samples, first, after(first, 17_200.0), 100).await;
    counted(&viewer, 5).await;
    let edges = [0.0, 0.5, 59.999, 1_234.567, 3_600.0];
    for before in edges {
        for behind in edges {
            let (from, to) = (after(first, before), after(first, 17_400.0 - behind));
            for points in [1, 7, 60, 300] {
                check(&viewer, &samples, from, to, points).await;
            }
        }
    }
    check(&viewer, &samples, after(first, 70.0), after(first, 110.0), 1).await;
    // It is the minutes that are read: what is wrong there is wrong in the answer, and the ends are not.
    let client = viewer.station.client().await;
    client.execute("UPDATE telemetry_minutes SET max = 5000", &[]).await.unwrap();
    let (from, to) = (after(first, 30.0), after(first, 16_230.0));
    let (_, answer) = viewer.ask(&path(from, to, 300)).await;
    let highest: Vec<bool> = buckets(&answer).iter().map(|bucket| bucket.2 == 5_000.0).collect();
    let (ends, inner) = (highest[0] || highest[highest.len() - 1], &highest[1..highest.len() - 1]);
    assert!(!ends && inner.len() > 200 && inner.iter().all(|high| *high), "{highest:?}");
    // An hour that changed is read by its samples at once.
    samples.push(sample(after(first, 2.0 * 3_600.0 + 1.0), 250.0));
    viewer.station.publish(samples.last().iter().map(|one| message(one)).collect()).await;
    let (_, answer) = viewer.ask(&path(from, to, 300)).await;
    let third = after(first, 2.0 * 3_600.0)..after(first, 3.0 * 3_600.0);
    for bucket in buckets(&answer).iter().filter(|bucket| third.contains(&bucket.0)) {
        assert!(bucket.2 <= 250.0, "{bucket:?}");
    }
    let text = viewer.station.historian.metrics().render();
    let line =
        text.lines().find_map(|line| line.strip_prefix("holdfast_historian_hours_rolled_total "));
    assert!(line.unwrap().parse::<u32>().unwrap() >= 5, "{text}");
}

#[tokio::test]
async fn a_batch_that_was_open_while_its_hour_was_made_is_not_lost() {
    let viewer = Viewer::new("minutes_open").await;
    let first = hours_ago(3);
    let mut samples: Vec<Envelope> =
        (0..60_i32).map(|n| sample(after(first, f64::from(n) * 60.0), f64::from(n))).collect();
    viewer.station.publish(samples.iter().map(message).collect()).await;
    viewer.station.publish(vec![message(&alarm("HIGH_TEMP", 330.0, Timestamp::now()))]).await;
    counted(&viewer, 1).await;
    let right = async |samples: &[Envelope]| {
        check(&viewer, samples, first, after(first, 3_600.0), 7).await;
    };
    right(&samples).await;
    // The next batch copies its row, and waits for the alarm's state, which we hold.
    let mut holder = viewer.station.client().await;
    let held = holder.transaction().await.unwrap();
    held.execute("SELECT FROM alarm_state FOR UPDATE", &[]).await.unwrap();
    let late = sample(after(first, 1_830.0), 99.0);
    let batch = vec![message(&late), message(&alarm("HIGH_TEMP", 331.0, Timestamp::now()))];
    let client = viewer.station.client().await;
    let waiting = async || {
        crate::station::count(
            &client,
            "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND application_name = 'holdfast-historian'",
        )
        .await
    };
    let store = viewer.station.publish(batch);
    let meanwhile = async {
        eventually(LONG, "the batch waits", async || waiting().await == 1).await.unwrap();
        // Something else has changed the hour, which is made again while the batch is open.
        client.execute("INSERT INTO telemetry_changes VALUES ($1)", &[&first]).await.unwrap();
        right(&samples).await;
        counted(&viewer, 1).await;
        assert_eq!(waiting().await, 1);
        right(&samples).await;
        held.commit().await.unwrap();
    };
    tokio::join!(store, meanwhile);
    samples.push(late);
    right(&samples).await;
    assert_eq!(viewer.station.count(COUNTED).await, 0);
    counted(&viewer, 1).await;
    right(&samples).await;
    assert_eq!(viewer.station.count("telemetry_minutes WHERE max = 99").await, 1);
}

#[tokio::test]
async fn what_was_stored_before_the_upgrade_is_made_in_the_background_the_newest_first() {
    let database = database("minutes_upgrade").await;
    let client = database.connect().await.unwrap();
    // Stored by the version before, which says nothing of hours; the tables of this one are new.
    client.batch_execute("SET holdfast.hours = noted").await.unwrap();
    let (first, tag) = (hours_ago(112), &TEMPLATE.tag);
    let fill = "INSERT INTO telemetry
            (event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
        SELECT gen_random_uuid(), $1::timestamptz + n * interval '20 minutes', plant, 'AREA01', 'UNIT_07', $2, n, 'C', 'GOOD', 1
        FROM generate_series(0, $3::int4) AS n, unnest('{PLANT01,PLANT02}'::text[]) AS plant";
    client.execute(fill, &[&first, &tag.as_str(), &329]).await.unwrap();
    let old: Timestamp = "1999-12-31T23:59:59.999999Z".parse().unwrap();
    client.execute(fill, &[&old, &tag.as_str(), &9]).await.unwrap();
    let (historian, bus) = start(crate::station::config(database.url(), &[])).await;
    let token = token(&client, api::tokens::Role::Viewer).await;
    let station = crate::station::Station { database, historian, bus };
    let viewer = Viewer { station, token };
    let value = |n: i32| sample(after(first, f64::from(n) * 1_200.0), f64::from(n));
    let samples: Vec<Envelope> = (0..330).map(value).collect();
    let to = after(first, 112.0 * 3_600.0);
    check(&viewer, &samples, first, to, 100).await;
    // More than a search finds at once, and the four of the old ones.
    counted(&viewer, 110 + 4).await;
    check(&viewer, &samples, first, to, 100).await;
    assert_eq!(viewer.station.count("telemetry_minutes").await, 2 * (330 + 10));
    assert_eq!(viewer.station.count("telemetry_search").await, 0);
    let order = "SELECT array_agg(hour ORDER BY rolled_at) = array_agg(hour ORDER BY hour DESC) FROM telemetry_hours";
    assert!(client.query_one(order, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn who_does_not_say_which_hours_changed_is_answered_rightly_all_the_same() {
    let viewer = Viewer::new("minutes_unsaid").await;
    let first = hours_ago(4);
    let mut samples: Vec<Envelope> =
        (0..120_i32).map(|n| sample(after(first, f64::from(n) * 60.0), f64::from(n))).collect();
    viewer.station.publish(samples.iter().map(message).collect()).await;
    counted(&viewer, 2).await;
    // A replica of the version before.
    let client = viewer.station.client().await;
    let late = sample(after(first, 90.5), 400.0);
    let like = "INSERT INTO telemetry SELECT $1, $2, plant, area, unit_name, tag, 400, unit, quality, node_id
        FROM telemetry LIMIT 1";
    client.execute(like, &[&late.event_id.uuid(), &late.timestamp]).await.unwrap();
    samples.push(late);
    let right = async |samples: &[Envelope]| {
        check(&viewer, samples, first, after(first, 7_200.0), 60).await;
    };
    right(&samples).await;
    counted(&viewer, 2).await;
    right(&samples).await;
    // A person takes out a whole minute.
    let minute = (after(first, 60.0), after(first, 120.0));
    let delete = "DELETE FROM telemetry WHERE timestamp >= $1 AND timestamp < $2";
    client.execute(delete, &[&minute.0, &minute.1]).await.unwrap();
    samples.retain(|one| one.timestamp < minute.0 || one.timestamp >= minute.1);
    right(&samples).await;
    counted(&viewer, 2).await;
    right(&samples).await;
    let max = "telemetry_minutes WHERE max >= 400";
    assert_eq!(viewer.station.count(max).await, 0);
}

#[tokio::test]
async fn changes_do_not_pile_up_and_an_hour_that_cannot_be_added_up_holds_up_no_other() {
    let viewer = Viewer::new("minutes_pile").await;
    for _ in 0..50 {
        viewer.station.publish(events(7, 1).iter().map(message).collect()).await;
    }
    let first = hours_ago(3);
    let huge = after(first, 3_600.0);
    let batch = [0.0, 1.0].map(|n| message(&sample(after(huge, n), f64::MAX)));
    viewer.station.publish(batch.to_vec()).await;
    let more: Vec<_> = [0.0, 1.0].map(|n| sample(after(first, n), n)).to_vec();
    viewer.station.publish(more.iter().map(message).collect()).await;
    counted(&viewer, 1).await;
    let client = viewer.station.client().await;
    let row = client.query_one("SELECT min(hour) FROM telemetry_hours", &[]).await.unwrap();
    assert_eq!(row.get::<_, Timestamp>(0), first);
    let piled = "(SELECT FROM telemetry_changes GROUP BY hour HAVING count(*) > 1) AS many";
    eventually(LONG, "one row an hour stays", async || {
        crate::station::count(&client, piled).await == 0
    })
    .await
    .unwrap();
    check(&viewer, &more, first, after(first, 3_600.0), 1).await;
    let metrics = viewer.station.historian.metrics();
    eventually(LONG, "the hour that waits is told of", async || {
        metrics.render().contains("holdfast_historian_hours_waiting 1\n")
    })
    .await
    .unwrap();
}
