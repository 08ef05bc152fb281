//! Sequences: replays after the TTL, cloned cards, tombstones.

use std::time::Duration;

use cloud::sweep_dedupe;
use event::id::{Epoch, TenantId};
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Site, bare, batch, placed, tombstone};

const TTL: Duration = Duration::from_secs(72 * 3600);

impl Site {
    /// Everything in the cache has expired and is swept.
    async fn forget(&self) {
        let older = "UPDATE ingest_dedupe SET first_seen_at = now() - interval '73 hours'";
        self.client().await.batch_execute(older).await.unwrap();
        assert!(self.sweep().await > 0);
        assert_eq!(self.number("SELECT count(*) FROM ingest_dedupe").await, 0);
    }

    /// Sweeps the cache as soon as the cloud's own first turn is over.
    async fn sweep(&self) -> u64 {
        eventually(LONG, "the sweep's lock", async || {
            sweep_dedupe(&self.config.database, TTL).await
        })
        .await
        .unwrap()
    }
}

#[tokio::test]
async fn a_replay_after_the_ttl_is_known_by_its_coordinates() {
    let site = Site::new("replay").await;
    let epoch = Epoch::mint();
    let events: Vec<Value> =
        (1..=200).map(|seq| placed(site.reading(), "barn-7", epoch, seq)).collect();
    let body = batch(events.clone());
    site.statuses(&body).await;
    // The relay has done its work and the rows are gone: the ledger alone remembers.
    site.client().await.batch_execute("DELETE FROM relay_outbox").await.unwrap();
    site.forget().await;
    assert!(site.statuses(&body).await.iter().all(|status| status == "duplicate"));
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 0);
    assert!(site.cloud.metrics().render().contains("holdfast_cloud_replayed_total 200"));
    site.cloud.stop().await;
}

#[tokio::test]
async fn recent_ids_survive_the_sweep_and_one_replica_sweeps_at_a_time() {
    let site = Site::new("sweep").await;
    site.statuses(&batch(vec![bare(site.reading())])).await;
    assert_eq!(site.sweep().await, 0);
    let client = site.client().await;
    client.batch_execute("SELECT pg_advisory_lock(x'636c6477'::bigint)").await.unwrap();
    assert_eq!(sweep_dedupe(&site.config.database, TTL).await.unwrap(), None);
    site.cloud.stop().await;
}

#[tokio::test]
async fn a_cloned_card_loses_nothing_and_is_counted() {
    let site = Site::new("cloned").await;
    let epoch = Epoch::mint();
    let place = |event: &Value, seq| placed(event.clone(), "barn-7", epoch, seq);
    let (one, two, three) = (site.reading(), site.reading(), site.reading());
    assert_eq!(site.statuses(&batch(vec![place(&one, 1)])).await, ["accepted"]);
    // The same sequence with other events: in another batch, and within one.
    let both = batch(vec![place(&two, 1), place(&three, 1), place(&two, 1)]);
    assert_eq!(site.statuses(&both).await, ["accepted", "accepted", "duplicate"]);
    site.forget().await;
    let all = batch(vec![place(&one, 1), place(&two, 1), place(&three, 1)]);
    assert_eq!(site.statuses(&all).await, ["duplicate", "duplicate", "duplicate"]);
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 3);
    assert_eq!(site.number("SELECT accepted_count FROM ledger_frontier").await, 3);
    assert_eq!(site.number("SELECT cloned_count FROM ledger_frontier").await, 2);
    assert_eq!(site.number("SELECT received_count FROM ledger_frontier").await, 1);
    assert_eq!(site.number("SELECT sum(count)::bigint FROM ledger_block").await, 1);
    assert!(site.cloud.metrics().render().contains("holdfast_cloud_cloned_total 2"));
    // A retry under a second sequence is a duplicate, and its sequence is accounted for.
    assert_eq!(site.statuses(&batch(vec![place(&one, 2)])).await, ["duplicate"]);
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 2);
    site.cloud.stop().await;
}

#[tokio::test]
async fn streams_of_two_tenants_with_the_same_name_are_apart() {
    let site = Site::new("tenant_streams").await;
    let other = TenantId::mint();
    let client = site.client().await;
    let tenants = cloud::tokens::Tenants::Only(vec![site.tenant, other]);
    let (_, token) = crate::site::token(&client, cloud::tokens::Role::Edge, tenants).await;
    let epoch = Epoch::mint();
    let events = vec![
        placed(site.reading(), "barn-7", epoch, 1),
        placed(crate::site::reading(other), "barn-7", epoch, 1),
    ];
    let body = batch(events).to_string();
    let answer = site.post().bearer_auth(token).body(body).send().await.unwrap();
    let reply: Value = answer.json().await.unwrap();
    assert_eq!(crate::site::statuses(&reply), ["accepted", "accepted"]);
    assert_eq!(site.number("SELECT count(*) FROM ledger_frontier WHERE acked = 1").await, 2);
    assert_eq!(site.number("SELECT sum(cloned_count)::bigint FROM ledger_frontier").await, 0);
    site.cloud.stop().await;
}

#[tokio::test]
async fn tombstones_close_holes_and_what_comes_after_all_is_recovered() {
    let site = Site::new("tombstones").await;
    let epoch = Epoch::mint();
    let mut body = batch(vec![placed(site.reading(), "barn-7", epoch, 20)]);
    let stranger = TenantId::mint();
    let mut reversed = tombstone(site.tenant, epoch, 5, 5);
    reversed["to_seq"] = json!(4);
    let mut miscounted = tombstone(site.tenant, epoch, 5, 6);
    miscounted["count"] = json!(7);
    let mut by_node = tombstone(site.tenant, epoch, 1, 10);
    by_node["origin"] = json!("node");
    body["tombstones"] = json!([
        by_node,
        tombstone(site.tenant, epoch, 11, 19),
        tombstone(stranger, epoch, 1, 2),
        reversed,
        miscounted,
        "nothing",
    ]);
    let reply: Value = site.send(&body).await.json().await.unwrap();
    assert_eq!(reply["tombstones_accepted"], 2);
    let refused = reply["tombstones_rejected"].as_array().unwrap();
    let said: Vec<_> = refused.iter().map(|r| (r["index"].clone(), r["code"].clone())).collect();
    let expected = [(2, "tenant_forbidden"), (3, "invalid"), (4, "invalid"), (5, "invalid")];
    assert_eq!(said, expected.map(|(index, code)| (json!(index), json!(code))));
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 20);
    let origins = "SELECT string_agg(origin, ',' ORDER BY from_seq) FROM ledger_tombstone";
    assert_eq!(site.text(origins).await, "node,edge");
    // Received wins over lost.
    let late = batch(vec![placed(site.reading(), "barn-7", epoch, 7)]);
    assert_eq!(site.statuses(&late).await, ["accepted"]);
    assert_eq!(site.text("SELECT lost::text FROM ledger_frontier").await, "{1,6,8,19}");
    assert!(site.cloud.metrics().render().contains("holdfast_cloud_recovered_total 1"));
    // Tombstones alone are a batch too.
    let mut alone = batch(vec![]);
    alone["tombstones"] = json!([tombstone(site.tenant, epoch, 21, 22)]);
    assert_eq!(site.send(&alone).await.status(), 200);
    assert_eq!(site.number("SELECT acked FROM ledger_frontier").await, 22);
    site.cloud.stop().await;
}

#[tokio::test]
async fn more_holes_than_a_frontier_keeps_are_caught_up_with() {
    let pairs = [("LIMITS_EVENTS", "50000"), ("LIMITS_BODY", "32MiB")];
    let site = Site::with("behind", &pairs).await;
    let epoch = Epoch::mint();
    // Alarms go first: every second sequence is a hole until the readings follow.
    let half = |first: u64| {
        let seqs = (0..17_000u64).map(move |n| n * 2 + first);
        batch(seqs.map(|seq| placed(site.reading(), "barn-7", epoch, seq)).collect())
    };
    assert!(site.statuses(&half(2)).await.iter().all(|status| status == "accepted"));
    assert_eq!(site.number("SELECT count(*) FROM ledger_frontier WHERE behind").await, 1);
    assert!(site.statuses(&half(1)).await.iter().all(|status| status == "accepted"));
    // The next turn of the side work takes the rest from the pages.
    let pool = pg::Pool::new(&site.config.database).unwrap();
    assert_eq!(cloud::absorb_behind(&pool).await.unwrap(), 1);
    assert_eq!(site.text("SELECT received::text FROM ledger_frontier").await, "{1,34000}");
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 34_000);
    assert_eq!(cloud::absorb_behind(&pool).await.unwrap(), 0);
    site.cloud.stop().await;
}
