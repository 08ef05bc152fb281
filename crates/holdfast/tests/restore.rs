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

#[allow(dead_code, reason = "the site's other tests use the rest")]
#[path = "conservation/cloud.rs"]
mod cloud;
#[allow(dead_code, reason = "the site's other tests use the rest")]
#[path = "conservation/sampler.rs"]
mod sampler;
#[allow(dead_code, reason = "the site's other tests use the rest")]
#[path = "conservation/site.rs"]
mod site;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use event::ledger::RangeSet;
use rig::Mode;
use sampler::{Receipts, Sampler};
use serde_json::Value;
use site::Site;
use testkit::eventually;
use tokio_postgres::Client;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(60);
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
    let samplers: Vec<_> = site.nodes.iter().map(|node| Sampler::start(&node.socket)).collect();
    site.wait_until_data_flows().await.unwrap();
    let edge = site.database().await.unwrap();

    let made = operator.json(&["backup", "create", "--json"]).await;
    assert_eq!(made["ledger"]["streams"].as_array().unwrap().len(), 3);

    // What comes now is in no backup; the cloud gets it, and the nodes forget it.
    let then = numbers(&edge, FRONTIERS).await;
    let central = site.cloud.database().await.unwrap();
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

/// Kills `backup create` when something of it is there.
async fn kill_when(operator: &Operator, there: impl Fn(&Path) -> bool) {
    let mut command = std::process::Command::new(testkit::bin("holdfast").unwrap());
    command.args(["backup", "create"]).env("HOLDFAST_BACKUPS", &operator.backups);
    command.env("HOLDFAST_CONFIG", operator.folder.join("edge-0.toml"));
    let mut process = rig::Process::spawn(command, None).unwrap();
    eventually(LONG, "the backup comes so far", async || {
        let entries = std::fs::read_dir(&operator.backups).into_iter().flatten().flatten();
        let mut partial = entries.filter(|entry| entry.path().extension().is_some());
        partial.any(|entry| there(&entry.path())) || !process.is_running()
    })
    .await
    .unwrap();
    process.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_backup_is_whole_or_a_leftover_that_the_next_one_removes() {
    let database = testkit::database("backup_kill", "edge", |url| async move {
        edge::migrate(&pg::Options::new(url)).await
    });
    let database = database.await.unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().to_owned();
    let operator = Operator { backups: folder.join("backups"), folder };
    let config = format!("[edge]\ndatabase.url = {:?}\n", database.url());
    std::fs::write(operator.folder.join("edge-0.toml"), config).unwrap();

    kill_when(&operator, |_| true).await;
    kill_when(&operator, |path| path.join("database").is_dir()).await;
    kill_when(&operator, |path| path.join("database/toc.dat").is_file()).await;
    // Work of a program that outlived its parent is left alone until it ends.
    eventually(LONG, "nobody works on a leftover", async || {
        let found = operator.json(&["backup", "list", "--json"]).await;
        found["unfinished"].as_array().unwrap().iter().all(|one| one["under_way"] == false)
    })
    .await
    .unwrap();
    operator.json(&["backup", "create", "--json"]).await;
    let found = operator.json(&["backup", "list", "--json"]).await;
    assert_eq!(found["unfinished"], serde_json::json!([]), "{found}");
    for backup in found["backups"].as_array().unwrap() {
        let output = operator.run(&["backup", "verify", backup["id"].as_str().unwrap()]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
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
