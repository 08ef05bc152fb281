//! The schema: made once, by whoever comes first, and closed to wrong states.

use std::time::Duration;

use crate::site::{Site, bare, batch};

const LONG: Duration = Duration::from_secs(30);

const NO_LEASE: &str =
    "claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL, lease_token = NULL";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_that_start_together_migrate_once() {
    let database = testkit::Database::empty("migrate").await.unwrap();
    let options = pg::Options::new(database.url());
    let all = (0..4).map(|_| {
        let options = options.clone();
        tokio::spawn(async move { cloud::migrate(&options).await })
    });
    for task in all.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    let client = database.connect().await.unwrap();
    // Each once, whatever their number is today.
    let applied = "SELECT count(*) - count(DISTINCT version) FROM cloud_migrations";
    assert_eq!(crate::site::number(&client, applied).await, 0);
    let applied = "SELECT count(*) FROM cloud_migrations";
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let written = i64::try_from(std::fs::read_dir(folder).unwrap().count()).unwrap();
    assert_eq!(crate::site::number(&client, applied).await, written);
}

#[tokio::test]
async fn wrong_states_are_refused_by_the_database() {
    let site = Site::new("states").await;
    site.statuses(&batch(vec![bare(site.reading())])).await;
    let client = site.client().await;
    let mut lease = String::from("claimed_by = 'w', claimed_at = now()");
    for (change, allowed) in [
        ("status = 'sent'".to_owned(), false),
        ("status = 'claimed'".to_owned(), false),
        (format!("status = 'claimed', {lease}"), false),
        ("status = 'dlq'".to_owned(), false),
        ("status = 'dlq', dlq_reason = 'poison'".to_owned(), false),
        ("attempt_count = -1".to_owned(), false),
        ("seq = 1".to_owned(), false),
        (
            {
                lease += ", lease_expires_at = now(), lease_token = gen_random_uuid()";
                format!("status = 'claimed', {lease}")
            },
            true,
        ),
        ("status = 'pending'".to_owned(), false),
        (format!("status = 'pending', {NO_LEASE}"), true),
        ("status = 'acked'".to_owned(), false),
        ("lease_token = gen_random_uuid()".to_owned(), false),
        ("status = 'dlq', dlq_reason = 'poison', failed_at = now()".to_owned(), true),
        ("status = 'failed'".to_owned(), true),
    ] {
        let done = client.execute(&format!("UPDATE relay_outbox SET {change}"), &[]).await;
        assert_eq!(done.is_ok(), allowed, "{change}: {done:?}");
    }
    site.cloud.stop().await;
}

/// What the engine does to a row: the claim must write no index entry, whoever adds an index.
#[tokio::test]
async fn a_claim_writes_no_index_entry() {
    let site = Site::new("claim").await;
    let client = site.client().await;
    client
        .batch_execute(
            "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, routing_key,
                 ordering_key, envelope)
             SELECT gen_random_uuid(), gen_random_uuid(), 'a.b', now(), 'a.b', n % 10, decode(repeat('00', 600), 'hex')
             FROM generate_series(1, 2000) n",
        )
        .await
        .unwrap();
    let claim = "UPDATE relay_outbox SET status = 'claimed', claimed_by = 'w', claimed_at = now(),
        lease_expires_at = now(), lease_token = gen_random_uuid(), updated_at = now()";
    assert_eq!(client.execute(claim, &[]).await.unwrap(), 2000);
    // Other sessions learn of it when this one has told, at the latest when it ends.
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    let hot = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'relay_outbox'";
    testkit::eventually(LONG, "the server's counts", async || match site.number(hot).await {
        2000 => Ok(()),
        other => Err(format!("{other} of 2000 claims were HOT updates")),
    })
    .await
    .unwrap();
    site.cloud.stop().await;
}
