//! What `holdfast verify` finds beside the streams: events without a sequence that the cloud lost, images and objects that do not agree.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

#[allow(dead_code, reason = "the tests of backups use the rest")]
mod images;

use api::tokens::{self, NewToken, Role, Tenants};
use event::id::{EventId, MediaId};
use images::Site;
use serde_json::{Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

async fn acknowledged(site: &Site, id: Uuid, hours_ago: i32) {
    let sql = "INSERT INTO sync_outbox (id, tenant_id, event_type, occurred_at, payload_json, status, updated_at)
        VALUES ($1, $2, 'media.stored', now(), '{}', 'acked', now() - make_interval(hours => $3))";
    site.client.execute(sql, &[&id, &site.tenant.uuid(), &hours_ago]).await.unwrap();
}

async fn remembered(cloud: &Client, site: &Site, id: Uuid) {
    let sql = "INSERT INTO ingest_dedupe (tenant_id, event_id) VALUES ($1, $2)";
    cloud.execute(sql, &[&site.tenant.uuid(), &id]).await.unwrap();
}

#[tokio::test]
async fn an_acknowledged_event_that_the_cloud_lost_is_found_and_sent_again() {
    let site = Site::new("verify_bare").await;
    let migrate = |url| async move { cloud::migrate(&pg::Options::new(url)).await };
    let database = testkit::database("verify_bare_cloud", "cloud", migrate).await.unwrap();
    let cloud = database.connect().await.unwrap();
    let url = database.url();
    site.write_config(&format!("[cloud]\nhttp.listen = \"127.0.0.1:0\"\ndatabase.url = {url:?}\n"));
    let check = ["verify", "--json"];

    let ids: Vec<Uuid> = (0..5).map(|_| EventId::mint().uuid()).collect();
    for id in ids.iter().copied().chain([Uuid::new_v4()]) {
        acknowledged(&site, id, 0).await;
        remembered(&cloud, &site, id).await;
    }
    let found = site.json(true, &check).await;
    assert_eq!(
        (&found["bare"]["events"], &found["bare"]["differing_hours"]),
        (&json!(6), &json!(0))
    );

    // Another site of the tenant, an event that only the journal remembers, one that is too old to tell, one on its way.
    remembered(&cloud, &site, EventId::mint().uuid()).await;
    let journalled =
        "INSERT INTO event_journal (tenant_id, occurred_at, event_id, event_type, payload)
        VALUES ($1, now(), $2, 'alarm.x', '{}')";
    let forget = "DELETE FROM ingest_dedupe WHERE event_id = $1";
    cloud.execute(journalled, &[&site.tenant.uuid(), &ids[0]]).await.unwrap();
    cloud.execute(forget, &[&ids[0]]).await.unwrap();
    acknowledged(&site, EventId::mint().uuid(), 80).await;
    let waiting = EventId::mint().uuid();
    acknowledged(&site, waiting, 0).await;
    let pending = "UPDATE sync_outbox SET status = 'pending' WHERE id = $1";
    site.client.execute(pending, &[&waiting]).await.unwrap();
    let found = site.json(true, &check).await;
    assert_eq!((&found["bare"]["missing"], &found["bare"]["unchecked"]), (&json!([]), &json!(1)));

    cloud.execute(forget, &[&ids[3]]).await.unwrap();
    let missing = json!([{"tenant_id": site.tenant, "event_id": ids[3]}]);
    let found = site.json(false, &check).await;
    assert_eq!((&found["bare"]["missing"], &found["wrong"]), (&missing, &json!(1)));
    assert_eq!(over_http(&site, &cloud).await["bare"], found["bare"]);
    let dry =
        site.json(false, &["verify", "--repair", "--dry-run", "--json", "--wait", "1s"]).await;
    assert_eq!((&dry["bare"]["missing"], &dry["bare"]["resent"]), (&missing, &json!(1)));
    let audits = "SELECT count(*) FROM sync_audit WHERE action = 'verify_repair'";
    assert_eq!(site.number(audits).await, 0);
    let done = site.json(true, &["verify", "--repair", "--json", "--wait", "1s"]).await;
    assert_eq!(done["bare"]["resent"], json!(1));
    assert_eq!(site.number(audits).await, 1);
    assert_eq!(site.number("SELECT count(*) FROM sync_audit_row").await, 1);
    let status = "SELECT status FROM sync_outbox WHERE id = $1";
    let status: String = site.client.query_one(status, &[&ids[3]]).await.unwrap().get(0);
    assert_eq!(status, "pending");
    let again = site.json(true, &["verify", "--repair", "--json", "--wait", "1s"]).await;
    assert_eq!((&again["bare"]["resent"], site.number(audits).await), (&json!(0), 1));
}

/// The same, asked of the cloud's API.
async fn over_http(site: &Site, client: &Client) -> Value {
    let config = cloud::Config::load(Some(&site.config()), |_| None).unwrap();
    let cloud = cloud::Cloud::start(config).await.unwrap();
    let tenants = Tenants::Only(vec![site.tenant]);
    let new =
        NewToken { name: "operator".to_owned(), role: Role::Viewer, tenants, expires_at: None };
    let (_, token) = tokens::create(client, &new).await.unwrap();
    let url = format!("http://{}", cloud.http());
    testkit::eventually(images::LONG, "the cloud is ready", async || {
        reqwest::get(format!("{url}/readyz")).await.is_ok_and(|answer| answer.status() == 200)
    })
    .await
    .unwrap();
    let mut command = site.command(&["verify", "--json", "--cloud-url", &url]);
    command.env("HOLDFAST_CLOUD_TOKEN", token.expose());
    let mut command = tokio::process::Command::from(command);
    let output = command.kill_on_drop(true).output();
    let output = tokio::time::timeout(images::LONG, output).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("not where they should be"), "{said}");
    cloud.stop().await;
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Key and matter of every finding that is open.
fn matters(found: &Value) -> Vec<(String, String)> {
    let each = found["media"]["findings"].as_array().unwrap().iter();
    let text = |one: &Value, name: &str| one[name].as_str().unwrap().to_owned();
    let open = each.filter(|one| one["mended"] == false);
    let mut all: Vec<_> = open.map(|one| (text(one, "matter"), text(one, "object_key"))).collect();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn rows_without_objects_objects_without_rows_and_other_sizes_are_found() {
    let site = Site::new("verify_media").await;
    site.image(b"sound").await;
    let check = ["verify", "--json"];
    assert_eq!(matters(&site.json(true, &check).await), []);
    let missing = site.row(b"gone").await;
    let resized = site.image(b"as it was").await;
    site.bucket
        .replace(&resized, "image/jpeg", b"longer than it was".to_vec().into())
        .await
        .unwrap();
    let orphan = site.key(MediaId::mint());
    site.bucket.put(&orphan, "image/jpeg", b"whose".to_vec().into()).await.unwrap();
    let found = site.json(false, &check).await;
    let named = |matter: &str, key: &String| (matter.to_owned(), key.clone());
    let all = [named("missing", &missing), named("orphan", &orphan), named("resized", &resized)];
    assert_eq!((matters(&found), &found["wrong"]), (all.to_vec(), &json!(3)));
    assert_eq!(site.number("SELECT count(*) FROM sync_outbox").await, 0, "a look changes nothing");

    let done = site.json(false, &["verify", "--repair", "--json", "--wait", "5s"]).await;
    assert_eq!(matters(&done), [named("resized", &resized)]);
    let rows = "SELECT count(*) FROM media_objects WHERE status = 'missing'";
    assert_eq!(site.number(rows).await, 1);
    let rows = "SELECT count(*) FROM media_objects WHERE status = 'stored'";
    assert_eq!(site.number(rows).await, 3, "the object without a row has one now");
    site.bucket.replace(&resized, "image/jpeg", b"as it was".to_vec().into()).await.unwrap();
    assert_eq!(matters(&site.json(true, &check).await), []);
}
