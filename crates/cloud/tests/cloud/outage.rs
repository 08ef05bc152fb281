//! A database that goes away and comes back.

use std::os::unix::fs::PermissionsExt;

use cloud::Cloud;
use cloud::tokens::{Role, Tenants};
use event::id::{Epoch, TenantId};
use serde_json::Value;
use testkit::eventually;
use testkit::rig::{Postgres, PostgresOptions};

use crate::site::{
    LONG, bare, batch, config, error, http, number, placed, post, reading, statuses, token,
};

/// A database that can be killed without harm to other tests.
async fn private() -> (tempfile::TempDir, Postgres, String) {
    let folder = tempfile::tempdir().unwrap();
    // The server runs as another user when the test runs as root.
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let server = Postgres::start(folder.path(), PostgresOptions::default()).await.unwrap();
    let url = server.url("postgres");
    (folder, server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_in_the_middle_and_back_a_retried_batch_is_there_once() {
    let (_folder, mut server, url) = private().await;
    let cloud = Cloud::start(config(&url, &[])).await.unwrap();
    let tenant = TenantId::mint();
    let client = pg::connect(&pg::Options::new(&url)).await.unwrap();
    let (_, secret) = token(&client, Role::Edge, Tenants::All).await;
    let epoch = Epoch::mint();
    let mut events: Vec<Value> =
        (1..=200).map(|seq| placed(reading(tenant), "barn-7", epoch, seq)).collect();
    events.extend((0..20).map(|_| bare(reading(tenant))));
    let body = batch(events);
    let send = || post(&cloud).bearer_auth(&secret).body(body.to_string()).send();

    // Held in the middle of its transaction, the server dies under it.
    let blocker = pg::connect(&pg::Options::new(&url)).await.unwrap();
    blocker.batch_execute("BEGIN; LOCK TABLE relay_outbox IN EXCLUSIVE MODE").await.unwrap();
    let held = async {
        eventually(LONG, "the batch is in its transaction", async || {
            let waiting = "SELECT count(*) FROM pg_stat_activity
                 WHERE wait_event_type = 'Lock' AND application_name = 'holdfast-cloud'";
            number(&client, waiting).await == 1
        })
        .await
        .unwrap();
        server.kill().await.unwrap();
    };
    let (answer, ()) = tokio::join!(send(), held);
    let answer = answer.unwrap();
    assert!(answer.headers().contains_key("retry-after"));
    let (status, said) = error(answer).await;
    assert_eq!((status, said["code"].as_str()), (503, Some("unavailable")));
    let ready = http().get(format!("http://{}/readyz", cloud.http())).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    assert!(ready.text().await.unwrap().contains("database"));
    let alive = http().get(format!("http://{}/healthz", cloud.http())).send().await.unwrap();
    assert_eq!(alive.status(), 200);
    let answer = send().await.unwrap();
    assert_eq!(answer.status(), 503, "while it is away, nothing is answered for");

    server.restart().await.unwrap();
    let reply = eventually(LONG, "the batch is taken", async || {
        let answer = send().await.unwrap();
        match answer.status().as_u16() {
            200 => Ok(answer.json::<Value>().await.unwrap()),
            other => Err(other),
        }
        .map(Some)
    })
    .await
    .unwrap();
    assert!(statuses(&reply).iter().all(|status| status == "accepted"), "nothing was half done");
    let again = send().await.unwrap();
    assert!(statuses(&again.json().await.unwrap()).iter().all(|status| status == "duplicate"));
    let client = pg::connect(&pg::Options::new(&url)).await.unwrap();
    assert_eq!(number(&client, "SELECT count(*) FROM relay_outbox").await, 220);
    let distinct = "SELECT count(DISTINCT event_id) FROM relay_outbox";
    assert_eq!(number(&client, distinct).await, 220);
    assert_eq!(number(&client, "SELECT acked FROM ledger_frontier").await, 200);
    cloud.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn backends_terminated_under_a_stream_of_batches_lose_and_double_nothing() {
    let site = crate::site::Site::new("terminated").await;
    let epoch = Epoch::mint();
    let batches: Vec<Value> = (0..60u64)
        .map(|n| {
            let events =
                (1..=20).map(|i| placed(site.reading(), "barn-7", epoch, n * 20 + i)).collect();
            batch(events)
        })
        .collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    let killing = async {
        let client = site.client().await;
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE application_name = 'holdfast-cloud' AND datname = current_database()
                   AND state <> 'idle'";
            client.batch_execute(kill).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let sending = async {
        let mut refused = 0;
        for body in &batches {
            // A sender that comes again until it is answered.
            loop {
                let answer = site.send(body).await;
                if answer.status() == 200 {
                    break;
                }
                assert_eq!(answer.status(), 503);
                refused += 1;
                if refused > 20 {
                    done.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        refused
    };
    let (refused, ()) = tokio::join!(sending, killing);
    assert!(refused > 0, "some were cut off");
    assert_eq!(site.number("SELECT count(*) FROM relay_outbox").await, 1_200);
    let distinct = "SELECT count(DISTINCT event_id) FROM relay_outbox";
    assert_eq!(site.number(distinct).await, 1_200);
    assert_eq!(site.text("SELECT received::text FROM ledger_frontier").await, "{1,1200}");
    assert_eq!(site.number("SELECT accepted_count FROM ledger_frontier").await, 1_200);
    site.cloud.stop().await;
}
