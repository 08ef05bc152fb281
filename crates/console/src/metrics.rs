//! What the console tells Prometheus: whom it asks and what it hears, who looks, what is wrong. docs/reference/metrics.md has the names.
//!
//! The recorder belongs to one console, not to the process. Labels come from the configuration and from closed sets. Everything but the listener's own
//! counters is put in when somebody asks.

use std::net::SocketAddr;

use api::Refused;
use api::open::{Open, Route, is_open};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::alerts::Severity;
use crate::http::Http;
use crate::picture::{MAX_STREAMS, Presence, number};

/// Who may ask without a token, as at every role.
const ROUTES: [Route; 1] = [(Method::GET, "/metrics", Open::ToThisMachine)];

/// The console's recorder.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        Metrics { recorder, handle }
    }

    /// Starts what counts by itself, such as the listener, so that it counts here.
    pub(crate) fn counting<T>(&self, start: impl FnOnce() -> T) -> T {
        metrics::with_local_recorder(&self.recorder, start)
    }

    fn render(&self, http: &Http) -> String {
        self.counting(|| show(http));
        self.handle.run_upkeep();
        self.handle.render()
    }
}

fn show(http: &Http) {
    let polls = "holdfast_console_polls_total";
    describe_counter!(polls, "Polls of an upstream, by outcome.");
    let up = "holdfast_console_upstream_up";
    describe_gauge!(up, "1 while an upstream answers.");
    for poll in http.board.polls() {
        let of = poll.upstream;
        for (outcome, count) in
            [("answered", poll.answered), ("busy", poll.busy), ("failed", poll.failed)]
        {
            counter!(polls, "upstream" => of.clone(), "outcome" => outcome).absolute(count);
        }
        let here = poll.presence == Presence::Here;
        gauge!(up, "upstream" => of).set(f64::from(u8::from(here)));
    }
    let sessions = "holdfast_console_sessions";
    describe_gauge!(sessions, "Sessions of people who are signed in.");
    gauge!(sessions).set(number(http.sessions.count(std::time::Instant::now()) as u64));
    let streams = "holdfast_console_streams";
    describe_gauge!(streams, "Browsers that follow the picture.");
    let open = MAX_STREAMS.saturating_sub(http.streams.available_permits());
    gauge!(streams).set(number(open as u64));
    let alerts = "holdfast_console_alerts";
    describe_gauge!(alerts, "Alerts that hold, by severity.");
    let snapshot = http.board.now();
    for (severity, word) in [(Severity::Critical, "critical"), (Severity::Warning, "warning")] {
        let held = snapshot.alerts.iter().filter(|alert| alert.severity == severity).count();
        gauge!(alerts, "severity" => word).set(number(held as u64));
    }
    if let Some(webhook) = &http.webhook {
        let waiting = "holdfast_console_webhook_waiting";
        describe_gauge!(waiting, "What the webhook of alerts is still to be told.");
        gauge!(waiting).set(number(webhook.waiting() as u64));
    }
}

/// What Prometheus reads: open to this machine, from elsewhere with a token of any role.
pub(crate) async fn page(
    State(http): State<Http>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Result<Response, Refused> {
    if !is_open(&ROUTES, &request, peer) {
        http.tokens.authenticate(request.headers()).await?;
    }
    let text = http.metrics.render(&http);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
