//! What `holdfast verify` finds beside the streams: events without a sequence that the cloud lost, what it accepted and did not store, images and objects that do not agree.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use crate::images::{self, Site};
use api::tokens::{self, NewToken, Role, Tenants};
use event::id::{EventId, MediaId};
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

/// Runs verify on another machine than the site's: both tiers over HTTP.
async fn from_afar(
    site: &Site,
    urls: [&str; 2],
    secrets: [&str; 2],
    more: &[&str],
) -> (bool, Value) {
    let mut line = vec!["verify", "--json", "--edge-url", urls[0], "--cloud-url", urls[1]];
    line.extend(more);
    let mut command = site.command(&line);
    command.env_remove("HOLDFAST_CONFIG");
    command.env("HOLDFAST_EDGE_TOKEN", secrets[0]).env("HOLDFAST_CLOUD_TOKEN", secrets[1]);
    let output = tokio::process::Command::from(command).kill_on_drop(true).output();
    let output = tokio::time::timeout(images::LONG, output).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let found = serde_json::from_slice(&output.stdout);
    (output.status.success(), found.expect(&said))
}

#[tokio::test]
async fn events_and_images_are_compared_and_sent_again_over_http() {
    let site = Site::new("verify_afar").await;
    let migrate = |url| async move { cloud::migrate(&pg::Options::new(url)).await };
    let database = testkit::database("verify_afar_cloud", "cloud", migrate).await.unwrap();
    let client = database.connect().await.unwrap();
    let config = cloud::Config::load(None, |name| match name {
        "HOLDFAST_CLOUD_DATABASE_URL" => Some(database.url().to_owned()),
        "HOLDFAST_CLOUD_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    });
    let cloud = cloud::Cloud::start(config.unwrap()).await.unwrap();
    let config = edge::Config::load(Some(&site.config()), |name| match name {
        "HOLDFAST_EDGE_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        "HOLDFAST_EDGE_MQTT_PASSWORD" => Some("none".to_owned()),
        "HOLDFAST_EDGE_ROLES" => Some("ingress".to_owned()),
        _ => None,
    });
    let edge = edge::Edge::start(config.unwrap()).await.unwrap();
    let urls = [format!("http://{}", edge.http()), format!("http://{}", cloud.http())];
    let urls = [urls[0].as_str(), urls[1].as_str()];
    let operator = async |client: &Client, role| {
        let tenants = Tenants::Only(vec![site.tenant]);
        let new = NewToken { name: "operator".to_owned(), role, tenants, expires_at: None };
        tokens::create(client, &new).await.unwrap().1.expose().to_owned()
    };
    let secrets =
        [operator(&site.client, Role::Operator).await, operator(&client, Role::Viewer).await];
    let secrets = [secrets[0].as_str(), secrets[1].as_str()];

    // Both tiers hold the same: two events, and an image that the cloud knows.
    let ids = [EventId::mint().uuid(), EventId::mint().uuid()];
    for id in ids {
        acknowledged(&site, id, 0).await;
        remembered(&client, &site, id).await;
    }
    let mut known = Vec::new();
    for bytes in [&b"first"[..], b"second"] {
        let key = site.image(bytes).await;
        let id = "SELECT id FROM media_objects WHERE object_key = $1";
        let id: Uuid = site.client.query_one(id, &[&key]).await.unwrap().get(0);
        let row = "INSERT INTO media_object (tenant_id, media_id, event_id, farm_id, barn_id, device_id, occurred_at, path, mime_type, size_bytes)
            VALUES ($1, $2, gen_random_uuid(), $2, $2, $2, now(), $3, 'image/jpeg', $4)";
        let size = i64::try_from(bytes.len()).unwrap();
        client.execute(row, &[&site.tenant.uuid(), &id, &key, &size]).await.unwrap();
        known.push(id);
    }
    let (sound, found) = from_afar(&site, urls, secrets, &[]).await;
    assert!(sound, "{found}");
    assert_eq!((&found["bare"]["events"], &found["copies"]["images"]), (&json!(2), &json!(2)));
    assert_eq!(found["copies"]["on_the_way"], json!(2), "{found}");

    // The cloud loses an event and an image, and has another size of the other.
    client.execute("DELETE FROM ingest_dedupe WHERE event_id = $1", &[&ids[1]]).await.unwrap();
    client.execute("DELETE FROM media_object WHERE media_id = $1", &[&known[0]]).await.unwrap();
    let resize = "UPDATE media_object SET size_bytes = 99 WHERE media_id = $1";
    client.execute(resize, &[&known[1]]).await.unwrap();
    let (sound, found) = from_afar(&site, urls, secrets, &[]).await;
    let tenant = site.tenant;
    assert_eq!(found["bare"]["missing"], json!([{"tenant_id": tenant, "event_id": ids[1]}]));
    let named =
        |id: Uuid, matter: &str| json!({"tenant_id": tenant, "media_id": id, "matter": matter});
    let findings = found["copies"]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2, "{found}");
    for one in [named(known[0], "missing"), named(known[1], "differs")] {
        assert!(findings.contains(&one), "{one} in {found}");
    }
    assert!(!sound && found["wrong"] == json!(3), "{found}");
    let waiting = "SELECT count(*) FROM sync_outbox WHERE status = 'pending'";
    let (_, dry) =
        from_afar(&site, urls, secrets, &["--repair", "--dry-run", "--wait", "1s"]).await;
    assert_eq!((&dry["bare"]["resent"], &dry["copies"]["told"]), (&json!(1), &json!(1)), "{dry}");
    assert_eq!(site.number(waiting).await, 0, "a dry run changes nothing");
    let (_, done) = from_afar(&site, urls, secrets, &["--repair", "--wait", "1s"]).await;
    assert_eq!(
        (&done["bare"]["resent"], &done["copies"]["told"]),
        (&json!(1), &json!(1)),
        "{done}"
    );
    assert_eq!(done["copies"]["findings"], json!([named(known[1], "differs")]), "for a person");
    assert_eq!(site.number(waiting).await, 2, "the event, and one that tells of the image");
    let audits = "SELECT count(*) FROM sync_audit WHERE action = 'verify_repair' AND via = 'http'";
    assert_eq!(site.number(audits).await, 2);
    let (_, again) = from_afar(&site, urls, secrets, &["--repair", "--wait", "1s"]).await;
    assert_eq!(again["copies"]["told"], json!(0), "it is on its way: {again}");
    assert_eq!(site.number(waiting).await, 2);
    // Another tenant's token sees and changes nothing of this.
    let theirs = NewToken {
        name: "other".to_owned(),
        role: Role::Operator,
        tenants: Tenants::Only(vec![event::id::TenantId::mint()]),
        expires_at: None,
    };
    let (_, theirs) = tokens::create(&site.client, &theirs).await.unwrap();
    let http = reqwest::Client::new();
    for path in ["hours", "media"] {
        let answer =
            http.get(format!("{}/api/v1/ledger/{path}", urls[0])).bearer_auth(theirs.expose());
        let text = answer.send().await.unwrap().text().await.unwrap();
        assert!(!text.contains(&tenant.to_string()), "{text}");
    }
    for (path, id) in [("resend", ids[0]), ("media/tell", known[0])] {
        let body = json!({"tenant_id": tenant, "ids": [id]});
        let answer =
            http.post(format!("{}/api/v1/ledger/{path}", urls[0])).bearer_auth(theirs.expose());
        assert_eq!(answer.json(&body).send().await.unwrap().status(), 403, "{path}");
    }
    edge.stop().await;
    cloud.stop().await;
}

/// Adds an event to the site's outbox, with a sequence if it is given one.
async fn waiting(
    site: &Site,
    kind: &str,
    payload: Value,
    place: Option<(&str, Uuid, i64)>,
) -> Uuid {
    let sql = "INSERT INTO sync_outbox (id, tenant_id, device_id, event_type, occurred_at, payload_json, stream, epoch, seq)
        VALUES ($1, $2, $1, $3, now(), $4, $5, $6, $7)";
    let id = EventId::mint().uuid();
    let place = (place.map(|p| p.0), place.map(|p| p.1), place.map(|p| p.2));
    site.client
        .execute(sql, &[&id, &site.tenant.uuid(), &kind, &payload, &place.0, &place.1, &place.2])
        .await
        .unwrap();
    id
}

#[tokio::test]
async fn an_accepted_event_that_no_store_has_is_found_and_brought_back_from_the_site() {
    let site = Site::new("verify_stored").await;
    let migrate = |url| async move { cloud::migrate(&pg::Options::new(url)).await };
    let database = testkit::database("verify_stored_cloud", "cloud", migrate).await.unwrap();
    let client = database.connect().await.unwrap();
    let config = cloud::Config::load(None, |name| match name {
        "HOLDFAST_CLOUD_DATABASE_URL" => Some(database.url().to_owned()),
        "HOLDFAST_CLOUD_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    });
    let cloud = cloud::Cloud::start(config.unwrap()).await.unwrap();
    let make = async |client: &Client, role| {
        let tenants = Tenants::Only(vec![site.tenant]);
        let new = NewToken { name: "a token".to_owned(), role, tenants, expires_at: None };
        tokens::create(client, &new).await.unwrap().1.expose().to_owned()
    };
    let (sender, there) = (make(&client, Role::Edge).await, format!("http://{}", cloud.http()));
    let url = database.url();
    site.write_config(&format!(
        "sync.cloud_url = {there:?}\nsync.token = {sender:?}\n\
         [cloud]\nhttp.listen = \"127.0.0.1:0\"\ndatabase.url = {url:?}\n"
    ));
    let config = edge::Config::load(Some(&site.config()), |name| match name {
        "HOLDFAST_EDGE_HTTP_LISTEN" => Some("127.0.0.1:0".to_owned()),
        "HOLDFAST_EDGE_MQTT_PASSWORD" => Some("none".to_owned()),
        "HOLDFAST_EDGE_ROLES" => Some("ingress,sync".to_owned()),
        _ => None,
    });
    let edge = edge::Edge::start(config.unwrap()).await.unwrap();

    // Three events without a sequence and a reading of a node come to the stores.
    let epoch = event::id::Epoch::mint().uuid();
    let node = "INSERT INTO nodes (node_id, tenant_id, device_id, secret_hash, broker_hash)
        VALUES ('barn-7', $1, $1, sha256('x'), 'x')";
    site.client.execute(node, &[&site.tenant.uuid()]).await.unwrap();
    let alarm = json!({"code": 7});
    let sound = waiting(&site, "alarm.raised", alarm.clone(), None).await;
    let lost = waiting(&site, "alarm.raised", alarm.clone(), None).await;
    let given_up = waiting(&site, "alarm.raised", alarm, None).await;
    let value = json!({"metric_type": "temperature", "metric_value": 26.4, "unit": "C"});
    let reading = waiting(&site, "telemetry.ingested", value, Some(("barn-7", epoch, 1))).await;
    let stored = "SELECT (SELECT count(*) FROM event_journal WHERE event_type = 'alarm.raised')
        + (SELECT count(*) FROM telemetry_reading)";
    let all_stored = async |count: i64| {
        testkit::eventually(images::LONG, "the events are stored", async || {
            let found: i64 = client.query_one(stored, &[]).await.unwrap().get(0);
            if found == count { Ok(()) } else { Err(format!("{found} of {count}")) }
        })
        .await
        .unwrap();
    };
    all_stored(4).await;
    let frontier = "INSERT INTO ledger_frontier (stream, epoch, tenant_id, acked, received, received_count, stored_count)
        VALUES ('barn-7', $1, $2, 1, '{1,1}', 1, 1)";
    site.client.execute(frontier, &[&epoch, &site.tenant.uuid()]).await.unwrap();
    let hash: Vec<u8> =
        client.query_one("SELECT hash FROM ledger_block", &[]).await.unwrap().get(0);
    let block = "INSERT INTO ledger_block (stream, epoch, block, count, hash) VALUES ('barn-7', $1, 0, 1, $2)";
    site.client.execute(block, &[&epoch, &hash]).await.unwrap();
    let acked = "SELECT count(*) FROM sync_outbox WHERE status = 'acked' AND event_type <> 'sync.batch.sent'";
    testkit::eventually(images::LONG, "the site knows it", async || site.number(acked).await >= 4)
        .await
        .unwrap();

    // A broker loses two of them and a consumer gives one up; what the site itself tells of its batches is stored.
    for (table, id) in
        [("event_journal", lost), ("event_journal", given_up), ("telemetry_reading", reading)]
    {
        let lose = format!("DELETE FROM {table} WHERE event_id = $1");
        assert_eq!(client.execute(&lose, &[&id]).await.unwrap(), 1);
    }
    let letter = "INSERT INTO bus_dead_letter (queue, message_id, tenant_id, exchange, routing_key, body, cause_code,
            cause_message, attempts, first_dead_lettered_at, dead_lettered_at)
        VALUES ('q', $1, $2, 'e', 'r', '', 'refused', '', 1, now(), now())";
    client.execute(letter, &[&given_up.to_string(), &site.tenant.uuid()]).await.unwrap();
    let check = ["verify", "--json"];
    let young = site.json(true, &check).await;
    assert_eq!(young["stored"]["unstored"], json!(0), "it may be in the bus: {young}");
    let age = "UPDATE ingest_dedupe SET first_seen_at = first_seen_at - interval '20 minutes'
        WHERE event_id = ANY($1)";
    client.execute(age, &[&vec![sound, lost, given_up, reading]]).await.unwrap();
    let found = site.json(false, &check).await;
    let named = |found: &Value| -> Vec<Value> {
        let list = found["stored"]["findings"].as_array().unwrap();
        list.iter().map(|one| one["event_id"].clone()).collect()
    };
    let numbers = (&found["stored"]["remembered"], &found["stored"]["unstored"]);
    assert_eq!(numbers, (&json!(4), &json!(2)), "{found}");
    let mut ids = named(&found);
    ids.sort_by_key(ToString::to_string);
    assert_eq!(ids, [json!(lost), json!(reading)]);
    let said = site.run(&["verify"]).await.stdout;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(&format!("{lost}: unstored")), "{said}");

    // Over HTTP: a dry run, then for good; what the site does not have cannot be closed.
    let gone = EventId::mint().uuid();
    remembered(&client, &site, gone).await;
    let age = "UPDATE ingest_dedupe SET first_seen_at = now() - interval '20 minutes' WHERE event_id = $1";
    client.execute(age, &[&gone]).await.unwrap();
    let here = format!("http://{}", edge.http());
    let urls = [here.as_str(), there.as_str()];
    let secrets = [make(&site.client, Role::Operator).await, make(&client, Role::Operator).await];
    let secrets = [secrets[0].as_str(), secrets[1].as_str()];
    let (_, dry) =
        from_afar(&site, urls, secrets, &["--repair", "--dry-run", "--wait", "1s"]).await;
    assert_eq!((&dry["stored"]["resent"], &dry["stored"]["unstored"]), (&json!(2), &json!(3)));
    let notes = "SELECT count(*) FROM ingest_again";
    assert_eq!(client.query_one(notes, &[]).await.unwrap().get::<_, i64>(0), 0);
    let (closed, done) = from_afar(&site, urls, secrets, &["--repair", "--wait", "1s"]).await;
    assert_eq!(done["stored"]["resent"], json!(2), "{done}");
    let open = json!([{"tenant_id": site.tenant, "event_id": gone, "at_site": false}]);
    assert_eq!((closed, &done["stored"]["findings"]), (false, &open), "{done}");
    all_stored(3).await;
    for (table, id) in
        [("event_journal", sound), ("event_journal", lost), ("telemetry_reading", reading)]
    {
        let there = format!("SELECT count(*) FROM {table} WHERE event_id = $1");
        let count: i64 = client.query_one(&there, &[&id]).await.unwrap().get(0);
        assert_eq!(count, 1, "{table} {id}");
    }
    assert_eq!(client.query_one(notes, &[]).await.unwrap().get::<_, i64>(0), 0);
    client.execute("DELETE FROM ingest_dedupe WHERE event_id = $1", &[&gone]).await.unwrap();
    // All that was accepted comes to be stored, what was sent again too.
    testkit::eventually(images::LONG, "nothing is unstored", async || {
        let output = site.run(&["verify", "--json", "--grace", "0s"]).await;
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let clean = output.status.success() && found["stored"]["unstored"] == json!(0);
        if clean { Ok(()) } else { Err(found["stored"].to_string()) }
    })
    .await
    .unwrap();
    edge.stop().await;
    cloud.stop().await;
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
