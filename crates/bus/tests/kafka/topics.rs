//! Topics as they are wanted.

use std::time::Duration;

use bus::kafka::admin::{self, AdminError, Difference, TopicSpec};
use jiff::Timestamp;

use crate::world::{Site, publish_all};

const DAY: Duration = Duration::from_secs(24 * 3600);

#[tokio::test]
async fn topics_are_made_compared_and_changed() {
    let Some(site) = Site::shared(2).await else { return };
    let cluster = &site.cluster;
    let name = format!("{}-more", site.topic);
    let spec = |partitions| {
        TopicSpec::new(&name, partitions, 1).retention(7 * DAY).segment(DAY / 24).min_in_sync(1)
    };
    let differences = async |wanted: &TopicSpec| {
        let drifts = admin::diff(cluster, std::slice::from_ref(wanted)).await.unwrap();
        drifts.into_iter().map(|drift| drift.difference).collect::<Vec<_>>()
    };
    assert_eq!(differences(&spec(4)).await, [Difference::Missing]);
    let applied = admin::apply(cluster, &[spec(4)]).await.unwrap();
    assert_eq!((applied.changed.len(), applied.left.len()), (1, 0));
    assert_eq!(differences(&spec(4)).await, []);
    assert_eq!(admin::apply(cluster, &[spec(4)]).await.unwrap(), admin::Applied::default());

    // A setting that we do not name stays when others are changed.
    let other = spec(4).set("max.message.bytes", "5000".to_owned());
    admin::apply(cluster, std::slice::from_ref(&other)).await.unwrap();
    let wanted = spec(6).retention(30 * DAY);
    let drifts = admin::diff(cluster, std::slice::from_ref(&wanted)).await.unwrap();
    let words: Vec<String> = drifts.iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            format!("{name}: 4 partitions instead of 6"),
            format!("{name}: retention.ms is 604800000 instead of 2592000000"),
        ]
    );
    assert_eq!(admin::apply(cluster, std::slice::from_ref(&wanted)).await.unwrap().changed, drifts);
    assert_eq!(differences(&wanted.clone().set("max.message.bytes", "5000".to_owned())).await, []);

    // What cannot be changed is said.
    // It would delete: fewer partitions, or a shorter time to keep messages. Other settings of the topic are changed all the same.
    let fewer = TopicSpec::new(&name, 3, 2).retention(DAY).segment(DAY / 12);
    let applied = admin::apply(cluster, &[fewer]).await.unwrap();
    let changed: Vec<String> = applied.changed.iter().map(ToString::to_string).collect();
    assert_eq!(changed, [format!("{name}: segment.ms is 3600000 instead of 7200000")]);
    let left: Vec<String> = applied.left.iter().map(ToString::to_string).collect();
    assert_eq!(
        left,
        [
            format!("{name}: 6 partitions instead of 3"),
            format!("{name}: 1 replicas instead of 2"),
            format!("{name}: retention.ms is 2592000000 instead of 86400000"),
        ]
    );
    assert_eq!(differences(&wanted.segment(DAY / 12)).await, [], "and stays as it was");
    let refused = admin::apply(cluster, &[TopicSpec::new(format!("{name}-3"), 1, 3)]).await;
    assert!(matches!(refused, Err(AdminError::Refused { .. })), "{refused:?}");
    let refused = admin::diff(cluster, &[TopicSpec::new("no topic", 1, 1)]).await;
    assert!(matches!(refused, Err(AdminError::Name(_))), "{refused:?}");
}

#[tokio::test]
async fn offsets_are_found_by_time() {
    let Some(site) = Site::shared(2).await else { return };
    publish_all(&site.publisher(), (0..20).map(|n| site.message(n, 9))).await;
    let start = admin::offsets_at(&site.cluster, &site.topic, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(start, [(0, 0), (1, 0)].into());
    let later = Timestamp::now() + jiff::Span::new().hours(1);
    let end = admin::offsets_at(&site.cluster, &site.topic, later).await.unwrap();
    assert_eq!(end.values().sum::<i64>(), 20);
    let nowhere = admin::offsets_at(&site.cluster, &format!("{}-nowhere", site.topic), later).await;
    assert!(matches!(nowhere, Err(AdminError::NoTopic(_) | AdminError::Cluster(_))), "{nowhere:?}");
}
