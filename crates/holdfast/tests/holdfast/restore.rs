//! The restore drill, on real processes: a site is filled, backed up, filled further, loses its database, and gets the old
//! backup. After `verify --repair` the promise must hold again: **produced = stored + declared lost**, at the edge and in the cloud.
//!
//! Three kinds of records are at stake, and each must be there: those that only the cloud still has (nodes deleted them after
//! the edge's ack), those that the nodes still have, and those that nobody has: acknowledged, not forwarded, deleted.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests stand outside #[test] functions"
)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use crate::conservation::sampler::{Receipts, Sampler};
use crate::conservation::site::{self, Site};
use crate::restore_weighing::Scale;
use event::ledger::RangeSet;
use rig::Mode;
use serde_json::Value;
use testkit::eventually;
use tokio_postgres::Client;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(120);
/// More than a segment of a node's spool holds.
const A_SEGMENT: u64 = 400;

/// The site with the commands that an operator runs.
struct Operator {
    folder: PathBuf,
    backups: PathBuf,
}

impl Operator {
    fn new(site: &Site) -> Operator {
        let folder = site.nodes[0].socket.parent().unwrap().to_owned();
        Operator { backups: folder.join("backups"), folder }
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(testkit::bin("holdfast").unwrap());
        command.args(arguments).env("HOLDFAST_BACKUPS", &self.backups);
        command.env("HOLDFAST_CONFIG", self.folder.join("edge-0.toml")).kill_on_drop(true);
        tokio::time::timeout(Duration::from_secs(150), command.output()).await.unwrap().unwrap()
    }

    /// What a command answers that must succeed.
    async fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{arguments:?}: {said}\n{}",
            String::from_utf8_lossy(&output.stdout)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn cloud(&self) -> String {
        site::text(&self.folder.join("cloud-0.toml"))
    }
}

/// Nodes forget what was acked within a second.
async fn hurry(site: &mut Site, folder: &Path) {
    for node in &mut site.nodes {
        let file = folder.join(format!("{}.toml", node.id));
        let mut file = std::fs::File::options().append(true).open(file).unwrap();
        file.write_all(b"spool.cursor_every = \"500ms\"\n").unwrap();
        node.role.kill().await.unwrap();
        node.role.launch().unwrap();
    }
}

/// The edges get an object store, and adopt what they find in it at once.
async fn keep_images(site: &mut Site, folder: &Path, store: &objects::Address) {
    for (number, edge) in site.edges.iter_mut().enumerate() {
        let file = folder.join(format!("edge-{number}.toml"));
        let mut file = std::fs::File::options().append(true).open(file).unwrap();
        let text = format!(
            "media.s3_endpoint = \"{}\"\nmedia.s3_bucket = {:?}\nmedia.s3_access_key = {:?}\n\
             media.s3_secret_key = {:?}\nmedia.orphan_grace = \"0s\"\n",
            store.url, store.bucket, store.access_key, store.secret_key
        );
        file.write_all(text.as_bytes()).unwrap();
        edge.kill().await.unwrap();
        edge.launch().unwrap();
    }
}

async fn numbers(client: &Client, sql: &str) -> Vec<(String, i64)> {
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Waits until every node has deleted something beyond what `sql` says of its stream now.
async fn wait_until_deleted(site: &Site, client: &Client, sql: &str) {
    for (stream, seq) in numbers(client, sql).await {
        let beyond = u64::try_from(seq).unwrap() + A_SEGMENT;
        let node = site.nodes.iter().find(|node| node.id.as_str() == stream).unwrap();
        let deleted = |status: &node::NodeStatus| status.report.oldest > beyond;
        node.wait_for_status("acked segments are deleted", deleted).await.unwrap();
    }
}

const FRONTIERS: &str = "SELECT stream, acked FROM ledger_frontier WHERE acked > 0 ORDER BY stream";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_restored_from_an_old_backup_accounts_for_every_reading_again() {
    let mut site = Site::start().await.unwrap();
    let operator = Operator::new(&site);
    hurry(&mut site, &operator.folder.clone()).await;
    let store = testkit::EmbeddedStore::start().await.unwrap();
    keep_images(&mut site, &operator.folder, store.address()).await;
    let samplers: Vec<_> = site.nodes.iter().map(|node| Sampler::start(&node.socket)).collect();
    site.wait_until_data_flows().await.unwrap();
    let edge = site.database().await.unwrap();

    let central = site.cloud.database().await.unwrap();
    let scale = Scale::new(&operator.folder, &edge, &central).await;
    let before = scale.weigh().await;
    scale.wait_until_complete(&before).await;

    let made = operator.json(&["backup", "create", "--json"]).await;
    assert_eq!(made["ledger"]["streams"].as_array().unwrap().len(), 3);
    let after = scale.weigh().await;
    scale.wait_until_complete(&after).await;

    // What comes now is in no backup; the cloud gets it, and the nodes forget it.
    let then = numbers(&edge, FRONTIERS).await;
    eventually(LONG, "the cloud has what the backup has not", async || {
        let now = numbers(&central, FRONTIERS).await;
        let far = |(stream, seq): &(String, i64)| {
            now.iter().any(|(name, acked)| name == stream && *acked > *seq + 500)
        };
        then.iter().all(far)
    })
    .await
    .unwrap();
    // What comes now reaches the edge alone.
    for uplink in &site.cloud.uplinks {
        uplink.link.set(Mode::Cut);
    }
    wait_until_deleted(&site, &edge, FRONTIERS).await;

    for edge in &mut site.edges {
        edge.kill().await.unwrap();
    }
    pg::whole::clear(&edge).await.unwrap();
    let url = site.postgres.url("postgres");
    let restored = operator.run(&["backup", "restore", "--into", &url]).await;
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    site.put_right().await.unwrap();
    for edge in &mut site.edges {
        edge.launch().unwrap();
    }
    let again = operator.run(&["backup", "restore", "--into", &url]).await;
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("is not empty"), "{said}");

    let mut receipts = Vec::new();
    for sampler in samplers {
        receipts.push(sampler.finish().await);
    }
    // The nodes tell that they were acknowledged more than the edge has.
    eventually(LONG, "the edge hears the nodes again", async || {
        let sql = "SELECT count(*) FROM nodes n JOIN ledger_frontier f ON f.stream = n.node_id
            WHERE (n.status->>'acked')::bigint > f.acked";
        edge.query_one(sql, &[]).await.map_or(0, |row| row.get::<_, i64>(0)) == 3
    })
    .await
    .unwrap();
    let cloud = operator.cloud();
    let broken = operator.run(&["verify", "--cloud-config", &cloud]).await;
    assert!(!broken.status.success(), "{}", String::from_utf8_lossy(&broken.stdout));
    let repair = ["verify", "--repair", "--wait", "90s", "--json", "--cloud-config", &cloud];
    let repaired = operator.json(&repair).await;
    site.wait_until_settled().await.unwrap();

    for (node, receipts) in site.nodes.iter().zip(&receipts) {
        check(&edge, &central, node.id.as_str(), receipts).await;
    }
    // The weighing of before the backup is at both tiers. The one after it is in the cloud alone, and as it was, though the
    // site found its image and told of it without the session.
    for weighing in [&before, &after] {
        scale.wait_until_complete(weighing).await;
    }
    assert_eq!(
        scale.at_the_site(&edge, &before).await,
        ["created", "finalized", "image", "result"]
    );
    assert_eq!(scale.at_the_site(&edge, &after).await, ["image"]);
    let only = repaired["bare"]["cloud_only"].as_array().unwrap();
    assert_eq!(only.len(), 4, "created, image, result, finalized: {only:?}");
    let sum = |name: &str| -> u64 {
        let streams = repaired["streams"].as_array().unwrap();
        streams.iter().map(|one| one["repaired"][name].as_u64().unwrap_or(0)).sum()
    };
    assert!(sum("adopted") > 0 && sum("asked") > 0, "{repaired}");
    let flagged = "SELECT count(*) FROM nodes WHERE flagged_at IS NOT NULL";
    assert_eq!(edge.query_one(flagged, &[]).await.unwrap().get::<_, i64>(0), 0, "flagged");

    let whole = operator.json(&["verify", "--deep", "--json", "--cloud-config", &cloud]).await;
    for stream in whole["streams"].as_array().unwrap() {
        assert_eq!(stream["findings"], serde_json::json!([]), "{stream}");
        assert_eq!(stream["edge"]["acked"], stream["cloud"]["acked"]);
    }
    let event = receipts[0].keys().last().unwrap().to_string();
    let found = operator.json(&["where", &event, "--json", "--cloud-config", &cloud]).await;
    let stages: BTreeSet<&str> =
        found["stages"].as_array().unwrap().iter().map(|s| s["stage"].as_str().unwrap()).collect();
    assert_eq!(
        stages,
        BTreeSet::from(["spooled", "received", "sent", "accepted", "published", "stored"])
    );

    rehearse_and_tamper(&operator, &edge, &cloud).await;
}

/// A drill passes and leaves its report; a changed row and a changed file show.
async fn rehearse_and_tamper(operator: &Operator, edge: &Client, cloud: &str) {
    let drill = operator.json(&["backup", "drill", "--json"]).await;
    assert_eq!(
        (&drill["passed"], &drill["within_target"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    let reports = std::fs::read_dir(operator.backups.join("reports")).unwrap().count();
    assert_eq!(reports, 2, "one for people, one for programs");
    let left = "SELECT count(*) FROM pg_database WHERE datname LIKE 'holdfast_drill_%'";
    assert_eq!(edge.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);

    let tamper = "UPDATE telemetry_raw SET id = gen_random_uuid() WHERE (stream, epoch, seq) =
        (SELECT stream, epoch, min(seq) FROM telemetry_raw GROUP BY 1, 2 ORDER BY 1 LIMIT 1)";
    assert_eq!(edge.execute(tamper, &[]).await.unwrap(), 1);
    let output = operator.run(&["verify", "--deep", "--json", "--cloud-config", cloud]).await;
    assert!(!output.status.success());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["streams"][0]["findings"][0]["kind"], "tampered", "{found}");

    let backup = std::fs::read_dir(&operator.backups).unwrap();
    let backup =
        backup.flatten().find(|entry| entry.path().join("manifest.json").is_file()).unwrap();
    let toc = backup.path().join("database/toc.dat");
    let mut bytes = std::fs::read(&toc).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&toc, bytes).unwrap();
    let output = operator.run(&["backup", "verify"]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("toc.dat was changed"), "{said}");
}

/// Every reading is in the edge's store, or in the cloud's, or declared lost; and the two ledgers say the same.
async fn check(edge: &Client, central: &Client, stream: &str, receipts: &Receipts) {
    let ids = async |client: &Client, sql: &str| -> BTreeSet<Uuid> {
        client.query(sql, &[&stream]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let here = ids(edge, "SELECT id FROM telemetry_raw WHERE stream = $1").await;
    let there = ids(central, "SELECT event_id FROM telemetry_reading WHERE stream = $1").await;
    let frontier = "SELECT acked, received, lost FROM ledger_frontier WHERE stream = $1";
    let read = async |client: &Client| {
        let row = client.query_one(frontier, &[&stream]).await.unwrap();
        let set = |n| RangeSet::from_flat(&row.get::<_, Vec<i64>>(n)).unwrap();
        (u64::try_from(row.get::<_, i64>(0)).unwrap(), set(1), set(2))
    };
    let (acked, received, lost) = read(edge).await;
    assert_eq!(read(central).await, (acked, received.clone(), lost.clone()), "{stream}");
    assert_eq!(received.count() + lost.count(), acked, "{stream}: produced = received + lost");
    assert!(acked >= *receipts.values().max().unwrap(), "{stream}");
    let mut adopted = 0;
    for (id, seq) in receipts {
        match (here.contains(&id.uuid()), there.contains(&id.uuid())) {
            (_, true) => assert!(!lost.contains(*seq), "{id} is stored and counts as lost"),
            (true, false) => panic!("{id} did not reach the cloud"),
            (false, false) => assert!(lost.contains(*seq), "{id} (seq {seq}) is nowhere"),
        }
        adopted += u64::from(!here.contains(&id.uuid()) && there.contains(&id.uuid()));
    }
    assert!(there.is_superset(&here), "{stream}");
    let declared = "SELECT coalesce(sum(count), 0)::bigint FROM ledger_tombstone
        WHERE stream = $1 AND reason = 'deleted_after_ack'";
    let declared: i64 = edge.query_one(declared, &[&stream]).await.unwrap().get(0);
    println!(
        "{stream}: {} produced, {} at the edge, {adopted} held by the cloud alone, {} lost",
        receipts.len(),
        here.len(),
        lost.count()
    );
    assert!(adopted > 0 && declared > 0, "{stream}: each kind is there");
}
