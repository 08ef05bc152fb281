//! From HTTP to a consumer's store, over the inline bus.

use std::collections::BTreeMap;

use cloud::Cloud;
use event::farm::Envelope;
use event::id::{DeviceId, Epoch, TenantId};
use serde_json::{Value, json};
use testkit::eventually;

use crate::site::{LONG, Site, bare, batch, http, placed};
use crate::wiring::{Store, analytics, telemetry};

pub(crate) const ALL: (&str, &str) = ("ROLES", "ingestion,relay,telemetry,analytics,media");

/// Readings of some devices of the site's tenant, in turn, each with its place in the ledger.
pub(crate) fn readings(
    site: &Site,
    devices: &[DeviceId],
    epoch: Epoch,
    from: u64,
    count: u64,
) -> Vec<Value> {
    readings_of(site.tenant, devices, epoch, from, count)
}

pub(crate) fn readings_of(
    tenant: TenantId,
    devices: &[DeviceId],
    epoch: Epoch,
    from: u64,
    count: u64,
) -> Vec<Value> {
    let reading = |seq: u64| {
        let mut event = crate::site::reading(tenant);
        let device = usize::try_from(seq).unwrap() % devices.len();
        event["device_id"] = json!(devices[device]);
        placed(event, "barn-7", epoch, seq)
    };
    (from..from + count).map(reading).collect()
}

pub(crate) fn ids(events: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for element in events {
        let event = &element["event"];
        let key = format!("telemetry/{}", event["device_id"].as_str().unwrap());
        keys.entry(key).or_default().push(event["event_id"].as_str().unwrap().to_owned());
    }
    keys
}

/// What `/readyz` says.
pub(crate) async fn ready(cloud: &Cloud) -> (u16, String) {
    let answer = http().get(format!("http://{}/readyz", cloud.http())).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// How many rows relays hold.
pub(crate) const HELD: &str = "SELECT coalesce(sum(cardinality(taken)), 0)::int8 FROM relay_lane WHERE lease_token IS NOT NULL";

pub(crate) async fn outbox_is_empty(site: &Site) {
    eventually(LONG, "the outbox is empty", async || {
        let left = "SELECT count(*) FROM relay_outbox WHERE status = 'pending'";
        site.number(left).await == 0
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_poison_event_in_a_thousand_and_the_others_get_through_in_order() {
    let (store, other) = (Store::default(), Store::default());
    let works = vec![store.work(telemetry()), other.work(analytics())];
    let site = Site::with_works("relay_inline", &[ALL, ("RELAY_BATCH", "100")], works).await;
    let devices: Vec<DeviceId> = (0..7).map(|_| DeviceId::mint()).collect();
    let epoch = Epoch::mint();
    let mut events = readings(&site, &devices, epoch, 1, 999);
    let expected = ids(&events);
    // Its exchange is none of the topology's.
    let mut poison = site.reading();
    poison["event_type"] = json!("nobody.wants");
    poison["payload"] = json!({"note": "poison"});
    events.insert(500, bare(poison.clone()));
    for part in events.chunks(250) {
        site.statuses(&batch(part.to_vec())).await;
    }
    store.has(999).await;
    other.has(999).await;
    assert!(store.by_key() == expected, "rows of a device leave in order");
    assert!(other.by_key() == expected, "and for the other group");
    outbox_is_empty(&site).await;

    let message = store.messages().swap_remove(0);
    let sent = events.iter().find(|e| e["event"]["event_id"] == json!(message.message_id)).unwrap();
    let envelope = Envelope::parse(sent["event"].to_string().as_bytes()).unwrap();
    assert_eq!(message.body, envelope.to_json().as_bytes(), "the documented envelope, exactly");
    assert_eq!(message.routing_key, "telemetry.ingested");
    assert_eq!(message.headers["trace_id"], "trace-1");
    assert_eq!(message.headers["stream"], "barn-7");
    assert_eq!(message.headers["epoch"], epoch.to_string());
    assert_eq!(message.headers["seq"], sent["seq"].to_string());
    assert!(message.headers["traceparent"].parse::<cloud::trace::Traceparent>().is_ok());

    let dead = "SELECT event_id::text || ' ' || dlq_reason || ' ' || attempt_count || ' ' || last_error_code
         FROM relay_outbox WHERE status = 'dlq'";
    let poisoned = poison["event_id"].as_str().unwrap();
    assert_eq!(site.text(dead).await, format!("{poisoned} unroutable 1 NO_EXCHANGE"));
    eventually(LONG, "readiness names the dead letter", async || {
        let (status, text) = ready(&site.cloud).await;
        if status == 200 && text.contains("relay: 1 dead letters") { Ok(()) } else { Err(text) }
    })
    .await
    .unwrap();
    site.cloud.stop().await;
}
