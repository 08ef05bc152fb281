//! Stored offsets: where a partition goes on, and a replay.

use jiff::Timestamp;
use scada::historian::audit::Actor;
use scada::historian::offsets::{Back, load, set_back};

use crate::station::Station;

#[tokio::test]
async fn offsets_are_set_back_by_offset_and_by_day_and_audited() {
    let station = Station::new("hist_offsets").await;
    let mut client = station.client().await;
    client
        .batch_execute(
            "INSERT INTO bus_offsets (consumer_group, topic, partition, next_offset) VALUES
                 ('g', 'scada.l2.alarms', 0, 100), ('g', 'scada.l2.alarms', 1, 7), ('g', 'scada.l2.events', 0, 50),
                 ('other', 'scada.l2.alarms', 0, 100);
             INSERT INTO bus_marks VALUES ('g', 'scada.l2.alarms', 0, '2026-02-01', 10),
                 ('g', 'scada.l2.alarms', 0, '2026-02-02', 60), ('g', 'scada.l2.alarms', 0, '2026-02-03', 55),
                 ('g', 'scada.l2.alarms', 1, '2026-01-01', 0)",
        )
        .await
        .unwrap();
    let who = Actor::User("anna".to_owned());
    let day: Timestamp = "2026-02-02T13:00:00Z".parse().unwrap();
    let back = set_back(&mut client, &who, "g", "scada.l2.alarms", Back::Time(day)).await.unwrap();
    assert_eq!(back.len(), 1, "partition 1 has nothing of that day or later");
    assert_eq!(
        (back[0].partition, back[0].from_offset, back[0].to_offset),
        (0, 100, 55),
        "late events of a later day count"
    );
    let back = set_back(&mut client, &who, "g", "scada.l2.alarms", Back::Offset(5)).await.unwrap();
    assert_eq!(back.iter().map(|one| one.to_offset).collect::<Vec<_>>(), [5, 5]);
    let again = set_back(&mut client, &who, "g", "scada.l2.alarms", Back::Offset(5)).await.unwrap();
    assert!(again.is_empty());
    assert_eq!(station.count("operator_audit WHERE actor = 'anna'").await, 3);
    let pool = pg::Pool::new(&pg::Options::new(station.database.url())).unwrap();
    let wanted = [
        ("scada.l2.alarms".to_owned(), 0),
        ("scada.l2.events".to_owned(), 0),
        ("scada.l2.events".to_owned(), 9),
    ];
    let loaded = load(&pool, "g", &wanted).await.unwrap();
    assert_eq!(
        loaded.values().copied().collect::<Vec<_>>(),
        [5, 50],
        "one that is not there starts at the earliest"
    );
}
