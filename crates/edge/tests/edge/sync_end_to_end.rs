//! The forwarder against the real cloud: what the edge has, the cloud has, once.

use api::tokens::Tenants;
use testkit::eventually;

use crate::site::{LONG, Site, gap, number};
use crate::sync::{alarm, all_are};
use crate::sync_cloud::{forward, sync_config};
use crate::sync_real::RealCloud;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_the_edge_has_the_cloud_has_once() {
    let cloud = RealCloud::start("sync_real_cloud", &[]).await;
    let (url, store) = (cloud.url(), cloud.client().await);

    let site = Site::new("sync_real_edge").await;
    let (ours, foreign) = (site.enroll("barn-1").await, site.enroll("barn-2").await);
    let token = cloud.token(Tenants::Only(vec![ours.tenant])).await;
    site.ingest(&[ours.batch(&ours.readings(6..=400), &[gap(1, 5)])]).await;
    let (_, event) = alarm(&ours);
    site.ingest(&[ours.batch(&[(401, event)], &[]), foreign.batch(&foreign.readings([1]), &[])])
        .await;

    // Without a valid token nothing moves, and nothing is lost by it.
    let locked_out = forward(&site, &sync_config(&site, &url, &[]), "edge-1");
    let down = "SELECT count(*) FROM sync_state WHERE consecutive_failures > 0";
    eventually(LONG, "the cloud refuses", async || site.number(down).await > 0).await.unwrap();
    locked_out.stop().await;
    let said = site.text("SELECT max(last_failure) FROM sync_state").await;
    assert!(said.contains("401") && said.contains("holdfast token create"), "{said}");
    let burnt = "SELECT coalesce(sum(attempt_count), 0)::bigint FROM sync_outbox";
    assert_eq!(site.number(burnt).await, 0);
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox WHERE status = 'pending'").await, 397);

    let pair = [("SYNC_TOKEN", token.as_str()), ("SYNC_BATCH_EVENTS", "100")];
    let sync = sync_config(&site, &url, &pair);
    let forwarders = [forward(&site, &sync, "edge-1"), forward(&site, &sync, "edge-2")];
    all_are(&site, "acked dlq").await;
    let unsent = "SELECT count(*) FROM ledger_tombstone WHERE sent_at IS NULL";
    eventually(LONG, "tombstones are told", async || site.number(unsent).await == 0).await.unwrap();
    for forwarder in forwarders {
        forwarder.stop().await;
    }
    let dead = "SELECT (tenant_id, dlq_reason)::text FROM sync_outbox WHERE status = 'dlq'";
    assert_eq!(site.text(dead).await, format!("({},tenant_forbidden)", foreign.tenant));

    cloud.has_once(401 - 5).await;
    let frontier = "SELECT acked FROM ledger_frontier WHERE stream = 'barn-1'";
    assert_eq!(number(&store, frontier).await, 401, "received and lost make a whole");
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_no_event_is_accounted_for_and_the_frontiers_are_equal() {
    let cloud = RealCloud::start("sync_accounted_cloud", &[]).await;
    let token = cloud.token(Tenants::All).await;
    let site = Site::new("sync_accounted_edge").await;
    let node = site.enroll("barn-1").await;
    let sync = sync_config(&site, &cloud.url(), &[("SYNC_TOKEN", &token)]);
    let forwarder = forward(&site, &sync, "edge-1");

    // Readings; a sampler's retries under further sequences; records that break a rule, in the middle, at the
    // end, and after the node had given them up; a gap; and a hole that nobody has explained yet.
    let mut records = node.readings(11..=40);
    let again: Vec<(u64, String)> =
        (41..=43).zip(&records).map(|(seq, (_, event))| (seq, event.clone())).collect();
    records.extend(again);
    records.extend([(44, "{}".to_owned()), (45, "{}".to_owned())]);
    records.extend(node.readings([46, 50]));
    records.push((51, "{\"event_id\":7}".to_owned()));
    site.ingest(&[node.batch(&records, &[gap(1, 10)])]).await;
    site.ingest(&[node.batch(&[(3, "{}".to_owned())], &[])]).await;
    // The same again changes nothing.
    site.ingest(&[node.batch(&records, &[gap(1, 10)])]).await;
    let frontier = "SELECT (acked, received, lost, received_count, lost_count)::text
        FROM ledger_frontier WHERE stream = 'barn-1'";
    let store = cloud.client().await;
    let equal = async || {
        let here = site.text(frontier).await;
        let there: Option<String> =
            store.query_opt(frontier, &[]).await.unwrap().map(|row| row.get(0));
        if there.as_ref() == Some(&here) { Ok(()) } else { Err(format!("{here} {there:?}")) }
    };
    eventually(LONG, "the frontiers are equal", equal).await.unwrap();
    let told = "SELECT string_agg(reason || ' ' || from_seq || '-' || to_seq, ', ' ORDER BY from_seq, reason)
        FROM ledger_tombstone";
    let wanted =
        "drop_oldest 1-10, quarantined 3-3, duplicate 41-43, quarantined 44-45, quarantined 51-51";
    let here = site.text(told).await;
    let there: String = store.query_one(told, &[]).await.unwrap().get(0);
    assert_eq!((here.as_str(), there.as_str()), (wanted, wanted));

    // The hole is filled, and a record comes right under its own sequence: it is an event like any other.
    let mut right = node.readings(47..=49);
    right.extend(node.readings([44]));
    right.sort();
    site.ingest(&[node.batch(&right, &[])]).await;
    eventually(LONG, "they are equal again", equal).await.unwrap();
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 51);
    all_are(&site, "acked").await;
    // 30 readings, 46, 50, the hole's three, and the one that came right.
    let accepted = "SELECT accepted_count - cloned_count FROM ledger_frontier";
    assert_eq!(number(&store, accepted).await, 36);
    forwarder.stop().await;
    cloud.stop().await;
}
