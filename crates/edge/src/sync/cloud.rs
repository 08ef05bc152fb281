//! The cloud over HTTP: one request, one answer, judged by docs/spec/edge-cloud.md.
//!
//! Promises: an answer is about the events or about the link, never both; a reply that does not fit
//! the request is no reply. The token is in the one header and nowhere else.

use std::time::Duration;

use api::trace::{TRACEPARENT, Traceparent};
use jiff::Timestamp;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use settings::LiveSecret;
use tracing::Instrument as _;

use super::Error;
use super::outbox::Outgoing;
use crate::config::Sync;

/// However long the cloud asks to be left alone, it is tried again after this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A reply to five thousand events is about a megabyte; more is no reply.
const MAX_REPLY_BYTES: usize = 16 << 20;
const VERSION: u64 = 1;
const NO_HEADER: &str = "has a character that no HTTP header can have";
const COMPRESSION_LEVEL: i32 = 3;

/// The body of a request.
#[derive(Debug, Serialize)]
pub(super) struct Body<'a> {
    v: u64,
    pub(super) batch_id: String,
    edge_cluster_id: &'a str,
    pub(super) sent_at: Timestamp,
    events: Vec<&'a RawValue>,
    tombstones: &'a [Tombstone],
    #[serde(skip)]
    rows: &'a [Outgoing],
}

impl<'a> Body<'a> {
    pub(super) fn new(
        cluster: &'a str,
        rows: &'a [Outgoing],
        tombstones: &'a [Tombstone],
    ) -> Body<'a> {
        Body {
            v: VERSION,
            batch_id: format!("batch-{}", uuid::Uuid::now_v7()),
            edge_cluster_id: cluster,
            sent_at: Timestamp::now(),
            events: rows.iter().map(|row| &*row.json).collect(),
            tombstones,
            rows,
        }
    }

    /// Whether there is nothing in it to split.
    pub(super) fn is_single(&self) -> bool {
        self.rows.len() + self.tombstones.len() == 1
    }
}

/// A range of a stream that was given up.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Tombstone {
    pub(super) tenant_id: uuid::Uuid,
    pub(super) stream: String,
    pub(super) epoch: uuid::Uuid,
    pub(super) from_seq: i64,
    pub(super) to_seq: i64,
    pub(super) count: i64,
    pub(super) first_at: Option<Timestamp>,
    pub(super) last_at: Option<Timestamp>,
    pub(super) reason: String,
    pub(super) origin: String,
}

/// The body of a 200.
#[derive(Debug, Deserialize)]
pub(super) struct Reply {
    v: u64,
    batch_id: String,
    pub(super) results: Vec<EventResult>,
    #[serde(default)]
    pub(super) tombstones_rejected: Vec<RejectedTombstone>,
}

/// What became of one event.
#[derive(Debug, Deserialize)]
pub(super) struct EventResult {
    event_id: Option<String>,
    pub(super) status: Status,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
}

/// The three words of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Accepted,
    Duplicate,
    Rejected,
}

/// A tombstone that the cloud does not take.
#[derive(Debug, Deserialize)]
pub(super) struct RejectedTombstone {
    pub(super) index: usize,
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorWords,
}

#[derive(Deserialize)]
struct ErrorWords {
    code: String,
    message: String,
}

/// What a request met.
#[derive(Debug)]
pub(super) enum Answer {
    /// 200: the cloud's transaction has committed.
    Reply(Reply),
    /// 400 in the cloud's own words: the body is no batch.
    Malformed(String),
    /// 413. The words are there if they are the cloud's own.
    TooLarge(Option<String>),
    /// About the link: nothing is known of the events.
    Down {
        /// The label of the metric.
        label: &'static str,
        why: String,
        retry_after: Option<Duration>,
    },
}

impl Answer {
    pub(super) fn label(&self) -> &'static str {
        match self {
            Answer::Reply(_) => "ok",
            Answer::Malformed(_) => "malformed",
            Answer::TooLarge(_) => "too_large",
            Answer::Down { label, .. } => label,
        }
    }

    fn down(label: &'static str, why: impl Into<String>) -> Answer {
        Answer::Down { label, why: why.into(), retry_after: None }
    }
}

/// A client for the cloud.
#[derive(Debug)]
pub(super) struct Cloud {
    client: Client,
    url: Url,
    token: LiveSecret,
}

impl Cloud {
    /// Reads certificates, but does not connect.
    pub(super) fn new(config: &Sync) -> Result<Cloud, Error> {
        let builder = Client::builder()
            .timeout(config.timeout)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        let builder = config
            .trust
            .apply(builder)
            .map_err(|error| Error { key: "sync", problem: error.to_string() })?;
        let wrong = |problem: String| Error { key: "sync.cloud_url", problem };
        let client = builder.build().map_err(|error| wrong(error.to_string()))?;
        let url = Url::parse(&format!("{}/api/v1/sync/batches", config.cloud_url))
            .map_err(|error| wrong(error.to_string()))?;
        let cloud = Cloud { client, url, token: config.token.clone() };
        cloud
            .authorization()
            .ok_or_else(|| Error { key: "sync.token", problem: NO_HEADER.to_owned() })?;
        Ok(cloud)
    }

    /// The token as it is now; nothing when no header can have it.
    fn authorization(&self) -> Option<HeaderValue> {
        let bearer = format!("Bearer {}", self.token.current().expose());
        let mut value = HeaderValue::from_str(&bearer).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Posts nothing, and returns the status of the answer.
    pub(super) async fn knock(&self) -> Result<u16, String> {
        let authorization = self.authorization().ok_or_else(|| NO_HEADER.to_owned())?;
        let request = self
            .client
            .post(self.url.clone())
            .header(reqwest::header::AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, "application/json");
        let response = request.send().await.map_err(|error| describe(&error))?;
        Ok(response.status().as_u16())
    }

    /// Posts one batch.
    pub(super) async fn post(&self, body: &Body<'_>, trace: Traceparent) -> Answer {
        // The ids are those that the cloud is told, so that its spans hang below this one.
        let span = tracing::info_span!(
            "sync_batch",
            trace_id = trace.trace_id(),
            span_id = trace.span_id(),
            sampled = trace.is_sampled(),
            batch_id = body.batch_id,
            messages = body.rows.len(),
        );
        self.send(body, trace).instrument(span).await
    }

    /// Posts something else than a batch to `/api/v1/sync/{place}`: the status and body of the answer, or why there is none.
    pub(super) async fn post_json(
        &self,
        place: &str,
        body: &serde_json::Value,
    ) -> Result<(StatusCode, Vec<u8>), String> {
        let url = self.url.join(place).map_err(|error| error.to_string())?;
        let authorization = self.authorization().ok_or_else(|| NO_HEADER.to_owned())?;
        let request = self
            .client
            .post(url)
            .header(reqwest::header::AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        let mut response = request.send().await.map_err(|error| describe(&error))?;
        Ok((response.status(), read(&mut response).await?))
    }

    async fn send(&self, body: &Body<'_>, trace: Traceparent) -> Answer {
        let Some(bytes) = compressed(body).await else {
            return Answer::down("unreachable", "the request's body could not be made");
        };
        let Some(authorization) = self.authorization() else {
            return Answer::down("unauthorized", format!("edge.sync.token {NO_HEADER}"));
        };
        let request = self
            .client
            .post(self.url.clone())
            .header(reqwest::header::AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, "application/json")
            .header(CONTENT_ENCODING, "zstd")
            .header(TRACEPARENT, trace.to_string())
            .body(bytes);
        match request.send().await {
            Ok(response) => judge(response, body).await,
            Err(error) => Answer::down("unreachable", describe(&error)),
        }
    }
}

/// Compressing some megabytes takes long enough to hold up others: it has a thread for it.
async fn compressed(body: &Body<'_>) -> Option<Vec<u8>> {
    let json = serde_json::to_vec(body).ok()?;
    let compress = move || zstd::encode_all(json.as_slice(), COMPRESSION_LEVEL).ok();
    tokio::task::spawn_blocking(compress).await.ok().flatten()
}

async fn judge(mut response: Response, body: &Body<'_>) -> Answer {
    let status = response.status();
    let retry_after = retry_after(response.headers(), Timestamp::now());
    let text = read(&mut response).await;
    let said = |text: &Result<Vec<u8>, String>, code: &str| {
        let body: ErrorBody = serde_json::from_slice(text.as_ref().ok()?).ok()?;
        (body.error.code == code).then_some(body.error.message)
    };
    let down = |label: &'static str| {
        let why = format!("the cloud answers {}{}", status.as_u16(), advice(status));
        Answer::Down { label, why, retry_after }
    };
    match status {
        StatusCode::OK => match text {
            Ok(bytes) => match serde_json::from_slice::<Reply>(&bytes) {
                Ok(reply) if fits(&reply, body) => Answer::Reply(reply),
                _ => Answer::down("unreadable", "the cloud's reply does not fit the request"),
            },
            Err(why) => Answer::down("unreachable", why),
        },
        StatusCode::BAD_REQUEST => match said(&text, "malformed") {
            Some(message) => Answer::Malformed(message),
            None => down("unavailable"),
        },
        StatusCode::PAYLOAD_TOO_LARGE => Answer::TooLarge(said(&text, "too_large")),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => down("unauthorized"),
        StatusCode::TOO_MANY_REQUESTS => down("rate_limited"),
        _ => down("unavailable"),
    }
}

/// What a person can do about an answer, where that is clear.
fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => {
            ": it does not know the token. Make one at the cloud with `holdfast token create NAME \
             --role edge --tenant …` and set edge.sync.token"
        }
        StatusCode::FORBIDDEN => {
            ": the token has another role. Make one with --role edge at the cloud and set \
             edge.sync.token"
        }
        StatusCode::NOT_FOUND => ": see whether edge.sync.cloud_url is the cloud's address",
        _ => "",
    }
}

async fn read(response: &mut Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| describe(&error))? {
        if bytes.len() + chunk.len() > MAX_REPLY_BYTES {
            return Err("the cloud's reply is too long".to_owned());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

fn fits(reply: &Reply, body: &Body<'_>) -> bool {
    reply.v == VERSION
        && reply.batch_id == body.batch_id
        && reply.results.len() == body.rows.len()
        && reply.results.iter().zip(body.rows).all(|(result, row)| match &result.event_id {
            Some(id) => *id == row.event_id.to_string(),
            // The cloud could not read the id of an event that it rejects.
            None => result.status == Status::Rejected,
        })
        && reply.tombstones_rejected.iter().all(|one| one.index < body.tombstones.len())
}

/// Seconds or a date, as the standard has it.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let asked = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            Duration::try_from(date.duration_since(now)).unwrap_or_default()
        }
    };
    Some(asked.min(MAX_RETRY_AFTER))
}

/// The innermost reason: the outer ones only repeat the address.
fn describe(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    format!("the cloud cannot be reached: {inner}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_and_has_a_bound() {
        let now: Timestamp = "2026-02-01T10:00:00Z".parse().unwrap();
        for (text, seconds) in [
            ("0", Some(0)),
            ("17", Some(17)),
            ("999999999", Some(3600)),
            ("Sun, 01 Feb 2026 10:00:30 GMT", Some(30)),
            ("Sun, 01 Feb 2026 09:00:30 GMT", Some(0)),
            ("soon", None),
            ("-4", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]);
            assert_eq!(retry_after(&headers, now), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
