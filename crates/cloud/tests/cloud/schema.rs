//! The schema: made once, by whoever comes first, and closed to wrong states.

use crate::site::{Site, bare, batch};

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
        ("status = 'pending'".to_owned(), true),
        ("status = 'acked'".to_owned(), true),
        ("status = 'dlq', dlq_reason = 'poison', failed_at = now()".to_owned(), true),
        ("status = 'failed'".to_owned(), true),
    ] {
        let done = client.execute(&format!("UPDATE relay_outbox SET {change}"), &[]).await;
        assert_eq!(done.is_ok(), allowed, "{change}: {done:?}");
    }
    let touched = "SELECT count(*) FROM relay_outbox WHERE updated_at > created_at";
    assert_eq!(site.number(touched).await, 1);
    site.cloud.stop().await;
}

#[tokio::test]
async fn the_claim_reads_what_it_takes_and_nothing_else() {
    let site = Site::new("claim").await;
    let client = site.client().await;
    client
        .batch_execute(
            "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, routing_key,
                 envelope, status)
             SELECT gen_random_uuid(), gen_random_uuid(), 'a.b', now(), 'a.b', '', 'acked'
             FROM generate_series(1, 20000);
             ANALYZE relay_outbox",
        )
        .await
        .unwrap();
    let rows = client
        .query(
            "EXPLAIN SELECT id FROM relay_outbox WHERE status = 'pending'
             ORDER BY priority DESC, id LIMIT 100 FOR UPDATE SKIP LOCKED",
            &[],
        )
        .await
        .unwrap();
    let plan: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert!(plan.iter().any(|line| line.contains("relay_outbox_claim")), "{plan:?}");
    assert!(!plan.iter().any(|line| line.contains("Sort")), "{plan:?}");
    site.cloud.stop().await;
}
