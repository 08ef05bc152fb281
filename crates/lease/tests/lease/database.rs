//! The database goes away in the middle of batches.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;

use testkit::eventually;
use testkit::rig::{Postgres, PostgresOptions};

use crate::site::{Delivered, LONG, Mode, Site, deliver};

const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()";

async fn terminated_backends_lose_nothing_and_cost_no_attempt(mode: Mode) {
    let site = Site::new(mode, "terminate").await;
    for device in 0..10 {
        site.add("t", &format!("d{device}"), 0..300).await;
    }
    let delivered = Delivered::default();
    let worker = site.start(deliver(&delivered), site.options("w"));
    for cut in 1..8 {
        eventually(LONG, "progress", async || delivered.len() > cut * 150).await.unwrap();
        site.number(TERMINATE).await;
    }
    site.until_acked(3_000).await;
    crate::order::assert_in_order(&delivered.list());
    let distinct: HashSet<_> = delivered.list().iter().map(|(id, _)| *id).collect();
    assert_eq!(distinct.len(), 3_000);
    assert_eq!(site.number("SELECT sum(attempt_count) FROM sync_outbox").await, 0);
    assert_eq!(worker.counts().fenced, 0);
    worker.stop().await;
}

async fn a_killed_postgres_that_comes_back_is_worked_on(mode: Mode) {
    let folder = tempfile::tempdir().unwrap();
    let open = std::fs::Permissions::from_mode(0o711);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let settings = PostgresOptions { durable: false, max_connections: 50 };
    let mut server = Postgres::start(folder.path(), settings).await.unwrap();
    let mut site = Site::on(mode, server.url("postgres")).await;
    for device in 0..10 {
        site.add("t", &format!("d{device}"), 0..300).await;
    }
    let delivered = Delivered::default();
    let workers = ["a", "b"].map(|name| site.start(deliver(&delivered), site.options(name)));
    for cut in 1..3 {
        eventually(LONG, "progress", async || delivered.len() > cut * 600).await.unwrap();
        server.kill().await.unwrap();
        server.restart().await.unwrap();
        site.client = pg::connect(&site.address).await.unwrap();
    }
    site.until_acked(3_000).await;
    crate::order::assert_in_order(&delivered.list());
    assert_eq!(site.number("SELECT sum(attempt_count) FROM sync_outbox").await, 0);
    for worker in workers {
        worker.stop().await;
    }
    server.stop().await.unwrap();
}

crate::both! {
    terminated_backends_lose_nothing_and_cost_no_attempt,
    a_killed_postgres_that_comes_back_is_worked_on,
}
