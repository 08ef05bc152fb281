//! How far a group is behind, and how many members it has.

use bus::Consumer as _;
use bus::kafka::LagProbe;
use bus::kafka::admin::AdminError;

use crate::world::{LONG, Site, next, publish_all};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_behind_by_what_it_has_not_committed() {
    let Some(site) = Site::shared(3).await else { return };
    let groups = vec![(site.group.clone(), [site.topic.clone()].into())];
    let mut probe = LagProbe::new(site.cluster.clone(), groups);
    let waiting = |found: &[bus::Depth]| (found[0].waiting, found[0].consumers);
    assert_eq!(waiting(&probe.look().await.unwrap()), (0, Some(0)));
    let messages = (0..40).map(|n| site.message(n, 7));
    publish_all(&site.publisher(), messages).await;
    assert_eq!(waiting(&probe.look().await.unwrap()), (40, Some(0)), "it has no offset yet");
    let mut consumer = site.consumer();
    let mut taken = 0;
    while taken < 40 {
        let batch = next(&mut consumer).await;
        taken += batch.deliveries().len();
        let found = probe.look().await.unwrap();
        assert!(found[0].waiting > 0, "what is in hand is not committed");
        batch.commit().await.unwrap();
    }
    let done = async || waiting(&probe.look().await.unwrap()) == (0, Some(1));
    testkit::eventually(LONG, "all is taken, and one is there", done).await.unwrap();
    consumer.leave().await;
    let nowhere = vec![(site.group.clone(), [format!("{}-none", site.topic)].into())];
    let found = LagProbe::new(site.cluster.clone(), nowhere).look().await;
    assert!(matches!(found, Err(AdminError::NoTopic(_))), "{found:?}");
}
