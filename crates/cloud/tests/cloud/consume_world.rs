//! Consumers on an inline bus with a database of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::inline::{self, Bus};
use bus::{DeadLetter, DeadLetters, Message, PublishError, Publisher as _};
use cloud::consume::debounce::Debounce;
use cloud::consume::{self, Options};
use event::Window;
use event::farm::EventType;
use event::id::{BarnId, BatchId, DeviceId, EventId, FarmId, SessionId, TenantId};
use event::names::amqp;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::{Database, eventually};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::site::{LONG, migrate, number};

/// The tables of the consumers, each with the columns that depend on the events alone, and not on
/// when or in how many steps they came.
pub(crate) const STORES: [(&str, &str); 16] = [
    (
        "telemetry_reading",
        "tenant_id, event_id, occurred_at, farm_id, barn_id, device_id, session_id, metric_type,
         metric_value, unit, quality, clock_unset, trace_id, stream, epoch, seq",
    ),
    (
        "telemetry_aggregate",
        "tenant_id, aggregation_window, bucket_start, device_id, metric_type, unit, farm_id, barn_id,
         sample_count, round(avg_value::numeric, 6), min_value, max_value",
    ),
    ("telemetry_latest", "t"),
    (
        "weighvision_session",
        "tenant_id, session_id, farm_id, barn_id, device_id, status, started_at, created_event_id,
         created_at, batch_id, initial_weight_kg, finalized_event_id, finalized_at,
         final_weight_kg, image_count, inference_result_id, inference_result_count,
         inference_result_ids, cancelled_event_id, cancelled_at, cancel_reason",
    ),
    (
        "inference_result",
        "tenant_id, inference_result_id, event_id, farm_id, barn_id, device_id, session_id,
         occurred_at, predicted_weight_kg, confidence, model_version, trace_id",
    ),
    (
        "sync_batch",
        "tenant_id, batch_id, edge_cluster_id, sent_at, sent_count, acked_at, acked_count, status",
    ),
    ("event_journal", "tenant_id, event_id, occurred_at, event_type, device_id, payload"),
    (
        "media_object",
        "tenant_id, media_id, event_id, session_id, occurred_at, path, mime_type, size_bytes,
         copy_status",
    ),
    ("kpi_seen", "t"),
    (
        "kpi_minute",
        "tenant_id, farm_id, barn_id, metric_type, unit, minute, sample_count,
         round(sum_value::numeric, 6), min_value, max_value",
    ),
    (
        "kpi_metric_day",
        "tenant_id, day, farm_id, barn_id, metric_type, unit, sample_count,
         round(mean_value::numeric, 6), min_value, max_value, minutes_observed, minutes_in_range",
    ),
    (
        "kpi_session",
        "tenant_id, session_id, farm_id, barn_id, created_at, batch_id, initial_weight_kg,
         finalized_at, final_weight_kg, image_count, cancelled_event_id, cancelled_at, cancel_reason",
    ),
    ("kpi_inference", "tenant_id, inference_result_id, event_id, occurred_at, confidence"),
    ("kpi_image", "t"),
    ("kpi_edge_bucket", "t"),
    ("kpi_sync_batch", "t"),
];

#[derive(Default)]
pub(crate) struct Letters(pub(crate) Mutex<Vec<DeadLetter>>);

impl DeadLetters for Letters {
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>> {
        self.0.lock().unwrap().push(letter);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Nothing waits, so that a test is quick.
pub(crate) fn options() -> Options {
    Options {
        windows: Window::ALL.into(),
        debounce: Debounce { quiet: Duration::ZERO, longest: Duration::ZERO },
        ripen: Duration::ZERO,
        ripen_days: Duration::ZERO,
        poll: Duration::from_millis(10),
        ..Options::default()
    }
}

pub(crate) async fn database(name: &str) -> Database {
    testkit::database(name, "cloud", migrate).await.unwrap()
}

/// One replica of every consumer.
pub(crate) struct Replica {
    pub(crate) bus: Bus,
    pub(crate) letters: Arc<Letters>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Replica {
    pub(crate) fn start(database: &Database, options: Options) -> Replica {
        let letters = Arc::new(Letters::default());
        let settings = inline::Options { batch: 100, ..inline::Options::default() };
        let mut bus = Bus::new(settings, Arc::clone(&letters) as Arc<dyn DeadLetters>);
        let pool = pg::Pool::new(&pg::Options {
            application_name: "consumers".to_owned(),
            ..pg::Options::new(database.url())
        })
        .unwrap();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for group in consume::groups() {
            let consumer = Box::new(bus.group(group.queue.clone(), group.bindings.clone()));
            let (pool, stop, options) = (pool.clone(), stop.clone(), options.clone());
            tasks.spawn(consume::run(group, consumer, pool, stop, options));
        }
        Replica { bus, letters, stop, tasks }
    }

    /// Publishes events as the relay does.
    pub(crate) async fn publish(&self, events: &[Value]) -> Vec<Result<(), PublishError>> {
        self.bus.publish(events.iter().map(message).collect()).await
    }

    /// Publishes events, all of which the consumers must settle.
    pub(crate) async fn deliver(&self, events: &[Value]) {
        for part in events.chunks(1_000) {
            let results = self.publish(part).await;
            assert_eq!(results.into_iter().find(Result::is_err), None);
        }
    }

    pub(crate) fn causes(&self) -> BTreeMap<String, String> {
        let letters = self.letters.0.lock().unwrap();
        letters.iter().map(|l| (l.message.message_id.clone(), l.cause.code.clone())).collect()
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Waits until nothing is left to compute or to publish.
pub(crate) async fn settled(database: &Database) {
    let client = database.connect().await.unwrap();
    let left = "SELECT (SELECT count(*) FROM telemetry_mark) + (SELECT count(*) FROM kpi_mark)
        + (SELECT count(*) FROM telemetry_aggregate WHERE publish_at <= now())";
    eventually(LONG, "every bucket is computed", async || match number(&client, left).await {
        0 => Ok(()),
        left => Err(format!("{left} left")),
    })
    .await
    .unwrap();
}

/// What the stores hold.
pub(crate) async fn stores(database: &Database) -> Vec<(&'static str, Vec<String>)> {
    let client = database.connect().await.unwrap();
    let mut all = Vec::new();
    for (table, columns) in STORES {
        let query = format!("SELECT ROW({columns})::text FROM {table} t ORDER BY 1");
        let rows = client.query(&query, &[]).await.unwrap();
        all.push((table, rows.iter().map(|row| row.get(0)).collect()));
    }
    all
}

pub(crate) fn message(event: &Value) -> Message {
    let kind: EventType = event["event_type"].as_str().unwrap().parse().unwrap();
    let id = event["event_id"].as_str().unwrap();
    let body = event.to_string().into_bytes();
    Message::json(amqp::exchange(&kind), amqp::routing_key(&kind), id, body)
}

/// A place that events come from.
#[derive(Clone, Copy)]
pub(crate) struct Barn {
    pub(crate) tenant: TenantId,
    pub(crate) farm: FarmId,
    pub(crate) barn: BarnId,
    pub(crate) device: DeviceId,
}

impl Barn {
    pub(crate) fn new(tenant: TenantId) -> Barn {
        Barn { tenant, farm: FarmId::mint(), barn: BarnId::mint(), device: DeviceId::mint() }
    }

    pub(crate) fn event(
        &self,
        kind: &str,
        session: Option<SessionId>,
        at: &str,
        payload: Value,
    ) -> Value {
        json!({
            "event_id": EventId::mint(), "event_type": kind, "tenant_id": self.tenant,
            "farm_id": self.farm, "barn_id": self.barn, "device_id": self.device,
            "session_id": session, "occurred_at": at, "trace_id": "trace-1", "payload": payload
        })
    }

    pub(crate) fn reading(&self, at: Timestamp, value: f64) -> Value {
        let payload = json!({"metric_type": "temperature", "metric_value": value, "unit": "C"});
        self.event("telemetry.ingested", None, &at.to_string(), payload)
    }

    pub(crate) fn created(&self, session: SessionId, batch: BatchId, at: &str, kg: f64) -> Value {
        let payload = json!({"status": "created", "batch_id": batch, "initial_weight_kg": kg});
        self.event("weighvision.session.created", Some(session), at, payload)
    }

    pub(crate) fn finalized(&self, session: SessionId, at: &str, kg: f64) -> Value {
        let payload = json!({"status": "finalized", "final_weight_kg": kg, "image_count": 3,
            "inference_result_id": null});
        self.event("weighvision.session.finalized", Some(session), at, payload)
    }

    pub(crate) fn cancelled(&self, session: SessionId, at: &str, reason: &str) -> Value {
        let payload = json!({"status": "cancelled", "reason": reason});
        self.event("weighvision.session.cancelled", Some(session), at, payload)
    }

    pub(crate) fn media(&self, session: SessionId, at: &str) -> Value {
        let payload = json!({"media_id": EventId::mint(), "path": "/data/media/frame-001.jpg",
            "mime_type": "image/jpeg", "size_bytes": 204800});
        self.event("media.stored", Some(session), at, payload)
    }

    pub(crate) fn inference(&self, session: SessionId, at: &str, confidence: f64) -> Value {
        let payload = json!({"inference_result_id": EventId::mint(), "predicted_weight_kg": 121.3,
            "confidence": confidence, "model_version": "weighvision-v1.2.0"});
        self.event("inference.completed", Some(session), at, payload)
    }

    pub(crate) fn sync(&self, batch: &str, sent: bool, at: &str) -> Value {
        let (kind, payload) = match sent {
            true => (
                "sync.batch.sent",
                json!({"batch_id": batch, "event_count": 500, "edge_cluster_id": "edge-01"}),
            ),
            false => (
                "sync.batch.acked",
                json!({"batch_id": batch, "event_count": 500, "status": "acked"}),
            ),
        };
        self.event(kind, None, at, payload)
    }

    /// Some of everything, in the order in which it happened.
    pub(crate) fn day(&self) -> Vec<Value> {
        let start: Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
        let mut all: Vec<Value> = (0..150_u32)
            .map(|i| {
                self.reading(
                    start + Duration::from_secs(40 * u64::from(i)),
                    20.0 + f64::from(i % 13),
                )
            })
            .collect();
        for i in 0..5 {
            let (session, at) = (SessionId::mint(), |s: i32| format!("2026-02-01T11:0{i}:{s:02}Z"));
            all.push(self.created(session, BatchId::mint(), &at(1), 100.0 + f64::from(i)));
            all.push(self.media(session, &at(2)));
            all.push(self.inference(session, &at(3), 0.9));
            all.push(self.finalized(session, &at(4), 101.0 + f64::from(i)));
        }
        let (session, at) = (SessionId::mint(), |s: i32| format!("2026-02-01T11:09:{s:02}Z"));
        all.push(self.created(session, BatchId::mint(), &at(1), 100.0));
        all.push(self.cancelled(session, &at(2), "escaped"));
        all.push(self.sync("batch-1", true, "2026-02-01T12:00:00Z"));
        all.push(self.sync("batch-1", false, "2026-02-01T12:00:10Z"));
        all.push(self.event("alarm.raised", None, "2026-02-01T12:01:00Z", json!({"code": 7})));
        all
    }
}
