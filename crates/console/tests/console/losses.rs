//! What was lost, and what happened meanwhile: a gap that a node declared, and rows of the plant's journal.

use api::tokens::{Role, Tenants};
use event::id::Epoch;
use event::ledger::GapReason;
use event::wire::Gap;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::ground::{Ground, LONG};

/// The last hour, and a minute to come.
fn range() -> String {
    let now = Timestamp::now();
    let (from, to) = (now - SignedDuration::from_hours(1), now + SignedDuration::from_mins(1));
    format!("from={from}&to={to}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_node_gave_up_is_a_gap_a_mark_and_part_of_the_account() {
    let ground = Ground::new("console_gaps").await;
    let lost_at = Timestamp::now() - SignedDuration::from_mins(5);
    let gap = Gap::new(11, 15, Some(lost_at), Some(Timestamp::now()), GapReason::DropOldest);
    ground.ingest(&ground.barn, 1..=10).await;
    ground.declare_lost(&ground.barn, gap.unwrap()).await;
    ground.ingest(&ground.barn, 16..=20).await;
    let operator = ground.operator().await;
    let path = format!("/api/v1/conservation/gaps?tenant_id={}", ground.barn.tenant);
    let found = testkit::eventually(LONG, "the tombstone reaches the cloud", async || {
        let list = operator.see(&path).await;
        list["items"].as_array().unwrap().first().cloned()
    });
    let found = found.await.unwrap();
    let seen = ["stream", "epoch", "from_seq", "to_seq", "count", "lost", "reason", "origin"];
    assert_eq!(
        json!(seen.map(|name| found[name].clone())),
        json!(["barn-1", ground.barn.epoch, 11, 15, 5, 5, "drop_oldest", "node"])
    );
    assert_eq!(found["tenant_id"], json!(ground.barn.tenant));
    assert_eq!(operator.see(&format!("{path}&stream=hill-1")).await["items"], json!([]));
    let row = testkit::eventually(LONG, "all is accounted for", async || {
        let account = operator.see("/api/v1/conservation").await;
        let row = account["items"].as_array().unwrap().first()?.clone();
        (row["state"] == "whole").then_some(row)
    });
    let row = row.await.unwrap();
    let counts = ["produced", "stored", "lost", "missing"].map(|name| row[name].clone());
    assert_eq!(counts, [json!(20), json!(15), json!(5), json!(0)], "{row}");
    let marks = operator.see(&format!("/api/v1/explore/marks?{}", range())).await;
    let mark = &marks["items"][0];
    assert_eq!((&mark["kind"], &marks["truncated"]), (&json!("gap"), &json!(false)), "{marks}");
    assert_eq!(mark["text"], "barn-1: 5 lost, drop_oldest");
    let at: Timestamp = mark["at"].as_str().unwrap().parse().unwrap();
    assert_eq!(at.as_second(), lost_at.as_second(), "where the data would have been");

    let others = ground.sign_in(Role::Viewer, Tenants::Only(vec![ground.hill.tenant])).await;
    assert_eq!(others.get(&path).await.status(), 403, "another tenant's gaps");
    let marks = others.see(&format!("/api/v1/explore/marks?{}", range())).await;
    assert_eq!(marks["items"], json!([]));
}

/// What a site keeps by its settings or in quarantine is no gap, and what came after all is one no longer. A gap is where its data would have been, whenever
/// it was declared.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_lost_is_neither_a_gap_nor_a_mark() {
    let ground = Ground::new("console_no_losses").await;
    let cloud = ground.cloud_database.connect().await.unwrap();
    let (tenant, epoch) = (ground.barn.tenant.uuid(), ground.barn.epoch.uuid());
    let frontier = "INSERT INTO ledger_frontier (tenant_id, stream, epoch, acked, received, lost, received_count, lost_count)
         VALUES ($1, 'barn-1', $2, 60, '{1,40,53,60}', '{41,52}', 48, 12)";
    cloud.execute(frontier, &[&tenant, &epoch]).await.unwrap();
    let declared = "INSERT INTO ledger_tombstone (tenant_id, stream, epoch, from_seq, to_seq, count, first_at, last_at, reason, origin, recorded_at)
         SELECT $1, 'barn-1', $2, a, b, b - a + 1, now() - ago, now() - ago + interval '1 min', reason, 'edge', now() - late
         FROM (VALUES (1, 10, interval '5 min', 'kept_at_site', interval '1 s'), (11, 20, '5 min', 'quarantined', '2 s'),
             (21, 30, '5 min', 'duplicate', '3 s'), (31, 40, '5 min', 'corrupt', '4 s'),
             (41, 42, '30 days', 'disk_full', '5 s'), (43, 60, '5 min', 'expired', '2 days'))
             AS v (a, b, ago, reason, late)";
    cloud.execute(declared, &[&tenant, &epoch]).await.unwrap();
    let operator = ground.operator().await;
    let path = format!("/api/v1/conservation/gaps?tenant_id={}", ground.barn.tenant);
    let told = |list: &Value| -> Vec<(Value, Value, Value)> {
        let items = list["items"].as_array().unwrap().iter();
        items
            .map(|one| (one["reason"].clone(), one["count"].clone(), one["lost"].clone()))
            .collect()
    };
    let (old, part) =
        ((json!("disk_full"), json!(2), json!(2)), (json!("expired"), json!(18), json!(10)));
    assert_eq!(told(&operator.see(&path).await), [old, part.clone()]);
    assert_eq!(told(&operator.see(&format!("{path}&{}", range())).await), [part]);
    // The console knows whose gaps to ask for once the cloud has told its tenants.
    let marks = testkit::eventually(LONG, "the tenant is known", async || {
        let marks = operator.see(&format!("/api/v1/explore/marks?{}", range())).await;
        (marks["items"] != json!([])).then_some(marks)
    });
    let marks = marks.await.unwrap();
    let texts: Vec<&Value> =
        marks["items"].as_array().unwrap().iter().map(|mark| &mark["text"]).collect();
    assert_eq!(texts, ["barn-1: 10 lost, expired"], "{marks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_more_marks_than_fit_the_newest_are_shown() {
    let ground = Ground::new("console_marks").await;
    let client = ground.historian_database.connect().await.unwrap();
    client
        .batch_execute(
            "INSERT INTO alarm_journal (plant, area, unit_name, tag, at, action, from_state, to_state, actor_kind, actor,
                 severity, late, announced)
             SELECT 'PLANT01', 'AREA01', 'UNIT_01', 'ALARM_' || n, now() - n * interval '2 min', 'raised', 'normal',
                 'active_unacknowledged', 'process', 'process', 'HIGH', false, true
             FROM generate_series(1, 4) AS n;
             INSERT INTO events (event_id, timestamp, plant, area, unit_name, tag, value, unit, quality, node_id)
             SELECT gen_random_uuid(), now() - n * interval '3 min', 'PLANT01', 'AREA01', 'UNIT_01', 'EVENT_' || n, n, '',
                 'GOOD', 1
             FROM generate_series(1, 4) AS n",
        )
        .await
        .unwrap();
    let operator = ground.operator().await;
    let texts = |marks: &Value| -> Vec<String> {
        let items = marks["items"].as_array().unwrap();
        items.iter().map(|mark| mark["text"].as_str().unwrap().trim().to_owned()).collect()
    };
    let all = operator.see(&format!("/api/v1/explore/marks?{}", range())).await;
    assert_eq!((texts(&all).len(), &all["truncated"]), (8, &json!(false)), "{all}");
    let raised = &all["items"][7];
    assert_eq!((&raised["kind"], &raised["severity"]), (&json!("alarm"), &json!("high")));
    assert_eq!(raised["series"], "historian:PLANT01:AREA01:UNIT_01:ALARM_1");
    let few = operator.see(&format!("/api/v1/explore/marks?{}&limit=3", range())).await;
    assert_eq!(texts(&few), ["ALARM_2 raised", "EVENT_1 1", "ALARM_1 raised"]);
    assert_eq!(few["truncated"], true);
    // The plant has no tenants: it is for whoever sees everything.
    let others = ground.sign_in(Role::Viewer, Tenants::Only(vec![ground.barn.tenant])).await;
    let none = others.see(&format!("/api/v1/explore/marks?{}", range())).await;
    assert_eq!(none["items"], json!([]));
}

/// A node whose card was re-imaged begins again at one; what it made and lost before is not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn totals_are_those_of_every_life_of_a_spool() {
    let mut ground = Ground::new("console_lives").await;
    ground.ingest(&ground.barn, 1..=10).await;
    let gap = Gap::new(11, 15, None, None, GapReason::DiskFull).unwrap();
    ground.declare_lost(&ground.barn, gap).await;
    ground.barn.epoch = Epoch::mint();
    ground.ingest(&ground.barn, 1..=4).await;
    let operator = ground.operator().await;
    let picture = testkit::eventually(LONG, "the cloud has both lives", async || {
        let picture = operator.see("/api/v1/picture").await;
        (picture["totals"]["in_cloud"] == 14 && picture["totals"]["at_edges"] == 0)
            .then_some(picture)
    });
    let picture = picture.await.unwrap();
    let totals = ["produced", "in_cloud", "lost"].map(|name| picture["totals"][name].clone());
    assert_eq!(totals, [json!(19), json!(14), json!(5)], "{picture}");
    let page = operator.see("/api/v1/nodes/north/barn-1").await;
    assert_eq!((&page["epochs"], &page["received"]), (&json!(2), &json!(4)));
    assert_eq!((&page["node"]["stored"], &page["node"]["lost"]), (&json!(14), &json!(5)));
}
