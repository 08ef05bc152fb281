//! What is reduced, in the transaction of what is not.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use scada::analytics::{Average, Compress, Over, Reduced, Reducer, Rule, Rules};
use scada::generate::Node;
use scada::outbox::Outbox;
use testkit::Database;

pub(crate) async fn migrate(url: String) -> Result<(), pg::Error> {
    scada::migrate_producer(&pg::Options::new(url)).await
}

async fn plant(name: &str) -> (Database, Outbox) {
    let database = testkit::database(name, "scada_producer", migrate).await.unwrap();
    let pool = pg::Pool::new(&pg::Options::new(database.url())).unwrap();
    (database, Outbox::new(pool))
}

fn reducer(deviation: f64) -> Reducer {
    let average = Average { over: Over::Readings(5), every: Some(Duration::from_secs(10)) };
    let compress = Compress { deviation, max_silence: Duration::from_secs(60) };
    let rule = Rule { average: Some(average), compress: Some(compress), ..Rule::default() };
    Reducer::new(Rules::new([("FLOW_RATE".parse().unwrap(), rule)]))
}

/// A node's cycles over a midnight, reduced, and what was held at the end.
fn reduced(deviation: f64, cycles: i64) -> Vec<Reduced> {
    let mut node = Node::new("PLANT01".parse().unwrap(), 7, 42).unwrap();
    let mut reducer = reducer(deviation);
    let began: Timestamp = "2026-02-01T23:58:00Z".parse().unwrap();
    let mut all: Vec<Reduced> = (0..cycles)
        .map(|second| {
            let now = began + SignedDuration::from_secs(second);
            reducer.apply(node.cycle(now).unwrap(), now)
        })
        .collect();
    all.push(reducer.flush());
    all
}

pub(crate) async fn sums(database: &Database) -> (i64, i64, i64, i64) {
    let query = "SELECT coalesce(sum(readings), 0)::int8, coalesce(sum(kept), 0)::int8,
        coalesce(sum(reduced), 0)::int8, coalesce(sum(derived), 0)::int8 FROM analytics_ledger";
    let row = database.connect().await.unwrap().query_one(query, &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2), row.get(3))
}

#[tokio::test]
async fn every_reading_is_kept_or_reduced_and_every_row_is_kept_or_derived() {
    let (database, outbox) = plant("analytics_conserved").await;
    let all = reduced(4.0, 240);
    for (n, reduced) in all.iter().enumerate() {
        outbox.write_reduced(reduced).await.unwrap();
        let (readings, kept, left_out, _) = sums(&database).await;
        assert_eq!(readings, kept + left_out, "after cycle {n}");
    }
    let before = sums(&database).await;
    let (readings, kept, left_out, derived) = before;
    assert_eq!(readings, 3 * 240);
    assert!(left_out > 50, "the door has done something: {left_out}");
    assert_eq!(derived, 24);
    let client = database.connect().await.unwrap();
    for query in [
        "SELECT count(*) FROM outbox_events WHERE aggregate_type = 'telemetry'",
        "SELECT count(*) FROM local_telemetry",
    ] {
        let rows: i64 = client.query_one(query, &[]).await.unwrap().get(0);
        assert_eq!(rows, kept + derived, "{query}");
    }
    let days = "SELECT tag, day::text, readings, kept FROM analytics_ledger
        WHERE tag LIKE 'FLOW%' OR tag = 'PRESSURE' ORDER BY tag, day";
    let days = client.query(days, &[]).await.unwrap();
    let of =
        |n: usize| (days[n].get::<_, &str>(0), days[n].get::<_, &str>(1), days[n].get::<_, i64>(2));
    assert_eq!(days.len(), 4, "a row a tag and day; derived readings count under their tag");
    assert_eq!(of(0), ("FLOW_RATE", "2026-02-01", 120));
    assert_eq!(of(1), ("FLOW_RATE", "2026-02-02", 120));
    assert_eq!((of(2), days[2].get::<_, i64>(3)), (("PRESSURE", "2026-02-01", 120), 120));

    for reduced in &all {
        assert_eq!(outbox.write_reduced(reduced).await.unwrap(), 0);
    }
    assert_eq!(sums(&database).await, before, "a second time changes nothing");
}

#[tokio::test]
async fn a_cycle_reduced_to_nothing_counts_once_and_a_failed_one_not_at_all() {
    let (database, outbox) = plant("analytics_once").await;
    let mut all = reduced(1e6, 3);
    let mut nothing = all[1].clone();
    nothing.envelopes.clear();
    for _ in 0..2 {
        outbox.write_reduced(&nothing).await.unwrap();
    }
    let before = sums(&database).await;
    assert_eq!(before.0, 3, "one cycle of three tags");
    // A row that the table refuses takes the counts with it.
    let failing = &mut all[2];
    failing.envelopes[0].node_id = 0;
    assert!(outbox.write_reduced(failing).await.is_err());
    assert_eq!(sums(&database).await, before);
}
