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
    for (change, allowed) in [
        ("status = 'sent'", false),
        ("status = 'claimed'", false),
        ("status = 'dlq'", false),
        ("status = 'dlq', dlq_reason = 'poison'", false),
        ("attempt_count = -1", false),
        ("seq = 1", false),
        ("status = 'acked'", false),
        ("status = 'dlq', dlq_reason = 'poison', failed_at = now()", true),
        ("status = 'failed'", true),
    ] {
        let done = client.execute(&format!("UPDATE relay_outbox SET {change}"), &[]).await;
        assert_eq!(done.is_ok(), allowed, "{change}: {done:?}");
    }
    let lane = "INSERT INTO relay_lane (tenant_id, rank, key) VALUES (gen_random_uuid(), 0, 'k')";
    client.batch_execute(lane).await.unwrap();
    let lease = "lease_token = gen_random_uuid(), claimed_by = 'w', lease_expires_at = now()";
    for (change, allowed) in [
        ("lease_token = gen_random_uuid()".to_owned(), false),
        (lease.to_owned(), false),
        ("taken = '{1}'".to_owned(), false),
        (format!("{lease}, taken = '{{1}}'"), true),
        ("lease_token = NULL".to_owned(), false),
    ] {
        let done = client.execute(&format!("UPDATE relay_lane SET {change}"), &[]).await;
        assert_eq!(done.is_ok(), allowed, "{change}: {done:?}");
    }
    site.cloud.stop().await;
}

/// The migration and the engine's own description are one table.
#[tokio::test]
async fn the_lanes_are_as_the_engine_describes_them() {
    let site = Site::new("lanes").await;
    let client = site.client().await;
    client.batch_execute(&cloud::relay::table().lane_table("described")).await.unwrap();
    let columns = |table: &str| {
        format!(
            "SELECT string_agg(concat_ws(' ', column_name, udt_name, is_nullable, collation_name,
                 column_default), ', ' ORDER BY ordinal_position)
             FROM information_schema.columns WHERE table_name = '{table}'"
        )
    };
    let (ours, described) = (site.text(&columns("relay_lane")).await, columns("described"));
    assert_eq!(ours, site.text(&described).await);
    site.cloud.stop().await;
}

#[tokio::test]
async fn an_upgrade_gives_back_what_was_claimed_on_rows() {
    const LANES: u32 = 15;
    let database = testkit::Database::empty("upgrade").await.unwrap();
    let client = database.connect().await.unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut migrations: Vec<(u32, std::path::PathBuf)> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (name[1..].split_once("__").unwrap().0.parse().unwrap(), path.clone())
        })
        .filter(|(version, _)| *version <= LANES)
        .collect();
    migrations.sort();
    for (version, path) in migrations {
        if version == LANES {
            let claimed = "INSERT INTO relay_outbox (tenant_id, event_id, event_type, occurred_at, routing_key,
                     ordering_key, envelope, status, attempt_count, claimed_by, claimed_at, lease_expires_at, lease_token)
                 SELECT gen_random_uuid(), gen_random_uuid(), 'a.b', now(), 'a.b', 'k', '{}', s, 3,
                     h, t, t, CASE WHEN h IS NOT NULL THEN gen_random_uuid() END
                 FROM (VALUES ('claimed', 'w', now()), ('pending', NULL, NULL)) AS v(s, h, t)";
            client.batch_execute(claimed).await.unwrap();
        }
        client.batch_execute(&std::fs::read_to_string(path).unwrap()).await.unwrap();
    }
    let back = "SELECT count(*) FROM relay_outbox WHERE status = 'pending' AND attempt_count = 3";
    assert_eq!(crate::site::number(&client, back).await, 2);
}
