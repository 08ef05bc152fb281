//! Readings that were never to leave the site, under the disk limit: nobody else has them, so they are declared.

use std::sync::Arc;

use edge::retention::{Error, Fate, Job, Retention};

use crate::retention_ground::{aggregated, days_ago, delivering, fill, set_state, take_turn, turn};
use crate::site::Site;

const RAW: &str = "SELECT count(*) FROM telemetry_raw";
const LOST: &str = "SELECT coalesce(sum(lost_count), 0)::int8 FROM ledger_frontier";
const DECLARED: &str = "SELECT coalesce(sum(count), 0)::int8 FROM ledger_tombstone
    WHERE stream = 'barn-1' AND reason = 'drop_oldest' AND origin = 'edge' AND first_at < last_at AND sent_at IS NULL";
const BLOCKS: &str = "SELECT coalesce(sum(count), 0)::int8 FROM ledger_block";

/// A month that is over and not yet past its time: 300 readings that were kept here, 20 that the cloud has.
async fn site(name: &str) -> Site {
    let site = Site::new(name).await;
    let (kept, sent) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    fill(&site, &kept, 1..=300, days_ago(45)).await;
    fill(&site, &sent, 1..=20, days_ago(45)).await;
    aggregated(&site).await;
    set_state(&site, "acked", 0, "stream = 'barn-2'").await;
    let client = site.client().await;
    client.execute("DELETE FROM sync_outbox WHERE stream = 'barn-1'", &[]).await.unwrap();
    // The first are told of already, the others will be.
    let told = "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count, reason, origin)
        SELECT tenant_id, stream, epoch, a, a + 99, 100, 'kept_at_site', 'edge'
        FROM ledger_frontier, unnest(ARRAY[1, 101]) AS a WHERE stream = 'barn-1'";
    assert_eq!(client.execute(told, &[]).await.unwrap(), 2);
    let later = "UPDATE ledger_frontier SET kept = '{201,300}' WHERE stream = 'barn-1'";
    client.execute(later, &[]).await.unwrap();
    site
}

#[tokio::test]
async fn readings_that_only_the_site_has_are_declared_before_the_limit_takes_them() {
    let site = site("kept_declared").await;
    let mut config = delivering(&site);
    config.retention.batch_rows = 70;
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 0, "{report:?}");
    assert_eq!(site.number(RAW).await, 320, "without need nothing goes");

    config.retention.max_database_bytes = Some(1);
    let looked = Retention::new(&config, None).look().await.unwrap();
    assert_eq!(looked.rows(Job::Disk, Fate::WouldDrop), 320, "{looked:?}");
    let report = turn(&config, None).await;
    assert_eq!(report.rows(Job::Disk, Fate::Dropped), 300, "{report:?}");
    assert_eq!(report.rows(Job::Raw, Fate::Gone), 0, "{report:?}");
    assert_eq!(site.number(RAW).await, 0, "the month went with what the cloud has of it");
    assert_eq!((site.number(LOST).await, site.number(DECLARED).await), (300, 300));
    assert_eq!(
        site.number(BLOCKS).await,
        20,
        "of barn-2, which the ledger still knows as received"
    );
}

#[tokio::test]
async fn a_kill_while_they_are_given_up_leaves_none_undeclared() {
    let site = site("kept_killed").await;
    let mut config = delivering(&site);
    config.retention.batch_rows = 70;
    config.retention.max_database_bytes = Some(1);
    for (step, gone) in [("kept.written", 0), ("kept.committed", 70)] {
        let watched = Retention::new(&config, None).watched(Arc::new(move |now| now != step));
        let ended = take_turn(&watched).await;
        assert!(matches!(ended, Err(Error::Ended(at)) if at == step), "{ended:?}");
        assert_eq!(site.number(RAW).await, 320 - gone);
        assert_eq!((site.number(LOST).await, site.number(DECLARED).await), (gone, gone));
    }
    turn(&config, None).await;
    assert_eq!((site.number(RAW).await, site.number(LOST).await), (0, 300));
}
