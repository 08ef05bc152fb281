//! What a worker of schedules and intake count, under names that stay. Labels come from closed sets only; no user becomes one.
//!
//! Promises: without `metrics.listen` the worker opens no port. With it only this machine reaches it. Intake has its metrics among its routes. What waits is looked up when somebody asks, one
//! look at a time and within a bound; a database that is away is told as such, and the counters are there all the same.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Gauge, Key, KeyName, Label, Level, Metadata, Recorder};
use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use crate::waiting::{Waiting, waiting};

const META: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);
/// Seconds, from a claim to an image that Tesseract took long for.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];
/// How long a look at the database may take.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// How often histograms are put together where nobody asks for them.
const UPKEEP_EVERY: Duration = Duration::from_secs(30);

/// A role's metrics. Clones share everything.
#[derive(Clone)]
pub struct Metrics(Arc<Shared>);

struct Shared {
    pool: pg::Pool,
    handle: PrometheusHandle,
    recorder: PrometheusRecorder,
    collecting: Gauge,
    waiting: Gauge,
    oldest: Gauge,
    messages: Gauge,
    oldest_message: Gauge,
    database_up: Gauge,
    /// Whoever looks holds it: two who ask at once do not ask the database twice at once.
    looking: Mutex<()>,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// All counters at zero. The recorder belongs to one role: two in one process count apart.
    pub fn new(database: &pg::Options) -> Result<Metrics, pg::Error> {
        let pool = pg::Pool::new(&pg::Options {
            max_connections: 1,
            application_name: "holdfast-schedule-metrics".to_owned(),
            ..database.clone()
        })?;
        let matcher = Matcher::Suffix("_seconds".to_owned());
        // The call refuses an empty list only.
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(matcher, &BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let gauge = |name: &'static str, help: &'static str, labels: Vec<Label>| {
            recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
            recorder.register_gauge(&Key::from_parts(name, labels), &META)
        };
        let state = |state: &'static str| {
            let help = "Capture sessions that have not ended, counted up to 100,000.";
            gauge("holdfast_schedule_sessions", help, vec![Label::new("state", state)])
        };
        Ok(Metrics(Arc::new(Shared {
            collecting: state("collecting"),
            waiting: state("waiting"),
            oldest: gauge(
                "holdfast_schedule_sessions_oldest_seconds",
                "How long the oldest complete session has been due.",
                vec![],
            ),
            messages: gauge(
                "holdfast_schedule_messages_waiting",
                "Messages that nobody has delivered yet, counted up to 100,000.",
                vec![],
            ),
            oldest_message: gauge(
                "holdfast_schedule_messages_oldest_seconds",
                "The age of the oldest of them.",
                vec![],
            ),
            database_up: gauge(
                "holdfast_schedule_database_up",
                "1 when the database answered the last look.",
                vec![],
            ),
            pool,
            handle: recorder.handle(),
            recorder,
            looking: Mutex::new(()),
        })))
    }

    /// Starts what counts by itself, such as a worker of leased work or a listener, so that it counts here.
    pub fn counting<T>(&self, start: impl FnOnce() -> T) -> T {
        ::metrics::with_local_recorder(&self.0.recorder, start)
    }

    /// Looks at what waits, and gives the text that Prometheus reads.
    pub async fn render(&self) -> String {
        let shared = &self.0;
        let _looking = shared.looking.lock().await;
        let look = async { waiting(&*shared.pool.get().await?).await };
        match tokio::time::timeout(LOOK_WITHIN, look).await {
            Ok(Ok(waiting)) => self.set(&waiting),
            // What waited the last time is left as it was: a database that is away empties no queue.
            Ok(Err(error)) => {
                tracing::debug!(%error, "what waits could not be looked up");
                shared.database_up.set(0.0);
            }
            Err(_) => shared.database_up.set(0.0),
        }
        shared.handle.render()
    }

    /// Puts histograms together now and then, for ever: what they took in stays in memory until somebody asks, or until this.
    pub(crate) async fn keep_up(&self) {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            self.0.handle.run_upkeep();
        }
    }

    fn set(&self, waiting: &Waiting) {
        let shared = &self.0;
        #[expect(clippy::cast_precision_loss, reason = "counts are bounded by 100,000")]
        let count = |value: i64| value as f64;
        shared.collecting.set(count(waiting.sessions_collecting));
        shared.waiting.set(count(waiting.sessions_waiting));
        shared.oldest.set(waiting.sessions_oldest_seconds);
        shared.messages.set(count(waiting.messages_waiting));
        shared.oldest_message.set(waiting.messages_oldest_seconds);
        shared.database_up.set(1.0);
    }
}

/// Serves `/metrics` and `/healthz` until dropped. The listener is one of this machine alone: see `metrics.listen`.
pub async fn serve(listener: TcpListener, metrics: Metrics) {
    let router = Router::new()
        .route("/metrics", get(of_worker))
        .route("/healthz", get(async || "ok\n"))
        .with_state(metrics.clone());
    tokio::select! {
        served = axum::serve(listener, router).into_future() => if let Err(error) = served {
            tracing::warn!(%error, "metrics are not served any more");
        },
        () = metrics.keep_up() => {}
    }
}

async fn of_worker(State(metrics): State<Metrics>) -> Response {
    show(&metrics).await
}

/// The answer to who asks for metrics.
pub(crate) async fn show(metrics: &Metrics) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.render().await).into_response()
}
