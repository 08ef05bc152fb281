//! Nodes and historian in one process: what the outbox has said is what the historian has, through a stop in the middle.

use std::collections::BTreeSet;

use scada::line::Line;
use scada::{historian, producer};
use testkit::{Database, eventually};
use uuid::Uuid;

use crate::plant::LONG;

fn env<'a>(section: &'a str, pairs: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| {
        let key = name.strip_prefix(section)?;
        Some(pairs.iter().find(|(name, _)| *name == key)?.1.to_owned())
    }
}

async fn ids(database: &Database, query: &str) -> BTreeSet<Uuid> {
    let client = database.connect().await.unwrap();
    let rows = client.query(query, &[]).await.unwrap();
    let ids: BTreeSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids.len(), rows.len(), "nothing is there twice");
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_nodes_and_their_historian_agree_after_a_stop_in_the_middle() {
    let node = Database::empty("line_node").await.unwrap();
    let store = Database::empty("line_historian").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let start = async |interval: &str| {
        let nodes = [
            ("DATABASE_URL", node.url()),
            ("SPOOL_DIR", folder.path().to_str().unwrap()),
            ("SPOOL_FREE_SPACE_RESERVE", "0"),
            ("HTTP_LISTEN", "127.0.0.1:0"),
            ("BUS", "inline"),
            ("NODES", "100"),
            ("INTERVAL", interval),
            ("DISPATCHERS", "2"),
            ("OUTBOX_BATCH_SIZE", "500"),
        ];
        let nodes = producer::Config::load(None, env("HOLDFAST_PRODUCER_", &nodes)).unwrap();
        let own =
            [("DATABASE_URL", store.url()), ("HTTP_LISTEN", "127.0.0.1:0"), ("BUS", "inline")];
        let own = historian::Config::load(None, env("HOLDFAST_HISTORIAN_", &own)).unwrap();
        Line::start(nodes, own).await.unwrap()
    };
    let all = "SELECT event_id FROM telemetry UNION ALL SELECT event_id FROM events
        UNION ALL SELECT event_id FROM alarms";
    let written = "SELECT id FROM outbox_events";
    let line = start("100ms").await;
    eventually(LONG, "cycles arrive", async || ids(&store, all).await.len() >= 1_000)
        .await
        .unwrap();
    line.stop().await;

    // One cycle more, and what was left is published.
    let line = start("1h").await;
    eventually(LONG, "the historian has what the nodes wrote", async || {
        let (wrote, has) = (ids(&node, written).await, ids(&store, all).await);
        if wrote == has { Ok(()) } else { Err((wrote.len(), has.len())) }
    })
    .await
    .unwrap();
    line.stop().await;
    let numbers = "SELECT count(DISTINCT node_id)::int8 FROM telemetry";
    let numbers: i64 = store.connect().await.unwrap().query_one(numbers, &[]).await.unwrap().get(0);
    assert_eq!(numbers, 100);
}
