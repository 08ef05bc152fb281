//! Monthly partitions on a real server.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::time::Duration;

use jiff::Timestamp;
use pg::partitions::{ensure_months, hold, list};
use pg::{About, Error};
use testkit::Database;
use tokio_postgres::Client;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// With all that makes copying a table hard: an identity, a generated column, an index, a check, a
/// dropped column, and a name that needs quotes.
async fn readings() -> (Database, Client) {
    let database = Database::empty("partitions").await.unwrap();
    let client = database.connect().await.unwrap();
    client
        .batch_execute(
            r#"CREATE TABLE readings (
                   gone int,
                   id bigint GENERATED ALWAYS AS IDENTITY,
                   "At" timestamptz NOT NULL,
                   value int NOT NULL CHECK (value >= 0),
                   twice int GENERATED ALWAYS AS (value * 2) STORED,
                   PRIMARY KEY (id, "At")
               ) PARTITION BY RANGE ("At");
               ALTER TABLE readings DROP COLUMN gone;
               CREATE INDEX ON readings ("At", value)"#,
        )
        .await
        .unwrap();
    (database, client)
}

async fn insert(client: &Client, at: &str, value: i32) {
    let statement = format!(r#"INSERT INTO readings ("At", value) VALUES ('{at}', {value})"#);
    client.batch_execute(&statement).await.unwrap();
}

/// Where each value lies, in order of value.
async fn places(client: &Client) -> Vec<(i32, i32, String)> {
    let rows = client
        .query("SELECT value, twice, tableoid::regclass::text FROM readings ORDER BY value", &[])
        .await
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

#[tokio::test]
async fn months_are_made_once_across_the_year() {
    let (_database, mut client) = readings().await;
    let (from, to) = (at("2025-11-30T23:59:59Z"), at("2026-02-01T00:00:00Z"));
    assert_eq!(ensure_months(&mut client, "readings", "At", from, to).await.unwrap(), 4);
    assert_eq!(ensure_months(&mut client, "readings", "At", from, to).await.unwrap(), 0);
    let expected = ["2025_11", "2025_12", "2026_01", "2026_02", "default"];
    let expected: Vec<String> = expected.iter().map(|m| format!("readings_{m}")).collect();
    assert_eq!(list(&client, "readings").await.unwrap(), expected);
    insert(&client, "2025-12-31 23:59:59.999999Z", 1).await;
    insert(&client, "2026-01-01 00:00:00Z", 2).await;
    insert(&client, "2030-01-01 00:00:00Z", 3).await;
    let places = places(&client).await;
    let tables: Vec<&str> = places.iter().map(|(_, _, table)| table.as_str()).collect();
    assert_eq!(tables, ["readings_2025_12", "readings_2026_01", "readings_default"]);
}

#[tokio::test]
async fn rows_waiting_in_the_default_partition_move() {
    let (_database, mut client) = readings().await;
    let april = at("2026-04-10T00:00:00Z");
    ensure_months(&mut client, "public.readings", "At", april, april).await.unwrap();
    insert(&client, "2026-02-28 23:59:59Z", 1).await;
    insert(&client, "2026-03-01 00:00:00Z", 2).await;
    insert(&client, "2026-03-31 23:59:59Z", 3).await;
    insert(&client, "2026-04-01 00:00:00Z", 4).await;
    // The session's time zone has no say in where a month begins.
    client.batch_execute("SET timezone = 'Pacific/Auckland'").await.unwrap();
    let march = at("2026-03-15T12:00:00Z");
    assert_eq!(ensure_months(&mut client, "readings", "At", march, march).await.unwrap(), 1);
    let expected = [
        (1, 2, "readings_default"),
        (2, 4, "readings_2026_03"),
        (3, 6, "readings_2026_03"),
        (4, 8, "readings_2026_04"),
    ];
    let expected: Vec<_> = expected.iter().map(|(v, t, p)| (*v, *t, (*p).to_owned())).collect();
    assert_eq!(places(&client).await, expected);
    // The parent's identity, index and check hold for what comes next.
    insert(&client, "2026-03-02 00:00:00Z", 5).await;
    let refused = client
        .batch_execute(r#"INSERT INTO readings ("At", value) VALUES ('2026-03-02Z', -1)"#)
        .await
        .unwrap_err();
    assert_eq!(pg::about(&refused), About::Data);
    let indexes: i64 = client
        .query_one("SELECT count(*) FROM pg_indexes WHERE tablename = 'readings_2026_03'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(indexes, 2, "the index of the parent is matched, not made a second time");
}

#[tokio::test]
async fn makers_and_writers_at_once_lose_nothing() {
    let (database, mut first) = readings().await;
    let (from, to) = (at("2026-01-01T00:00:00Z"), at("2026-06-30T00:00:00Z"));
    let everything_else = "CREATE TABLE readings_default PARTITION OF readings DEFAULT";
    first.batch_execute(everything_else).await.unwrap();
    for value in 0..60 {
        insert(&first, &format!("2026-0{}-15 00:00:00Z", value % 6 + 1), value).await;
    }
    let mut second = database.connect().await.unwrap();
    let mut third = database.connect().await.unwrap();
    let writer = database.connect().await.unwrap();
    let (a, b, c, ()) = tokio::join!(
        ensure_months(&mut first, "readings", "At", from, to),
        ensure_months(&mut second, "readings", "At", from, to),
        ensure_months(&mut third, "readings", "At", from, to),
        async {
            for value in 60..240 {
                insert(&writer, &format!("2026-0{}-20 00:00:00Z", value % 6 + 1), value).await;
            }
        }
    );
    assert_eq!(a.unwrap() + b.unwrap() + c.unwrap(), 6);
    let places = places(&first).await;
    let values: Vec<i32> = places.iter().map(|(value, _, _)| *value).collect();
    assert_eq!(values, (0..240).collect::<Vec<_>>());
    assert!(places.iter().all(|(_, _, table)| table != "readings_default"), "{places:?}");
}

#[tokio::test]
async fn no_month_is_made_while_somebody_holds_them() {
    let (database, mut client) = readings().await;
    let mut maker = database.connect().await.unwrap();
    let watcher = database.connect().await.unwrap();
    let held = client.transaction().await.unwrap();
    hold(&held, "readings").await.unwrap();
    let march = at("2026-03-01T00:00:00Z");
    let making = ensure_months(&mut maker, "readings", "At", march, march);
    let holding = async {
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event_type = 'Lock' AND wait_event = 'advisory')";
        testkit::eventually(Duration::from_secs(30), "the maker waits", async || {
            watcher.query_one(waits, &[]).await.unwrap().get::<_, bool>(0)
        })
        .await
        .unwrap();
        assert_eq!(list(&watcher, "readings").await.unwrap().len(), 0);
        held.commit().await.unwrap();
    };
    let (made, ()) = tokio::join!(making, holding);
    assert_eq!(made.unwrap(), 1);
}

#[tokio::test]
async fn what_cannot_have_months_is_refused() {
    let (_database, mut client) = readings().await;
    let long = "x".repeat(60);
    client
        .batch_execute(&format!(
            "CREATE TABLE plain (at timestamptz);
             CREATE TABLE by_list (at timestamptz) PARTITION BY LIST (at);
             CREATE TABLE {long} (at timestamptz) PARTITION BY RANGE (at)"
        ))
        .await
        .unwrap();
    let now = at("2026-01-01T00:00:00Z");
    for table in ["missing", "plain", "by_list", &long] {
        let error = ensure_months(&mut client, table, "at", now, now).await.unwrap_err();
        assert!(matches!(error, Error::Table { .. }), "{table}: {error}");
        assert_eq!(error.about(), About::Us);
    }
    let far = at("9000-01-01T00:00:00Z");
    let error = ensure_months(&mut client, "readings", "At", now, far).await.unwrap_err();
    assert!(matches!(error, Error::Table { .. }), "{error}");
}
