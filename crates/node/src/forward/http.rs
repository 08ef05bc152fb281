//! The bulk route: one batch a post, the ack as the answer.

use super::limits::BatchId;
use crate::config::{Config, Http};
use event::id::NodeId;
use event::wire::{Ack, MAX_ACK_BYTES};
use mqtt::Backoff;
use reqwest::{Client, StatusCode, Url};
use std::fmt;
use std::time::Duration;
use tokio::task::JoinHandle;

const TIMEOUT: Duration = Duration::from_secs(60);
/// However long the edge asks for, HTTP is tried again after this.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a post did not end in an ack.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The edge cannot read the batch, or it is too large for it.
    #[error("the edge refuses the batch: {0}")]
    OurFault(String),
    /// The edge does not let us in. Someone must change something, though not necessarily here.
    #[error("the edge refuses the node's secret ({0})")]
    Refused(StatusCode),
    /// No request can be made with this configuration.
    #[error("{0}")]
    Unusable(String),
    /// The edge cannot be reached, or is not able to answer; later it may.
    #[error("{reason}")]
    Outage {
        /// What happened.
        reason: String,
        /// When the edge wants to be asked again.
        retry_after: Option<Duration>,
    },
}

/// A client for one node's backfill.
#[derive(Debug, Clone)]
pub struct Poster {
    client: Client,
    url: Url,
    secret: settings::Secret,
}

impl Poster {
    /// Reads certificates, but does not connect.
    pub fn new(http: &Http, node: &NodeId) -> Result<Poster, PostError> {
        mqtt::install_crypto();
        let mut builder = Client::builder().timeout(TIMEOUT).connect_timeout(CONNECT_TIMEOUT);
        if http.ca_file.is_some() || http.client.is_some() {
            let (ca_file, client) = (http.ca_file.clone(), http.client.clone());
            let files = trust::Files { ca_file, system: true, client };
            let config = files
                .client_config()
                .map_err(|error| PostError::Unusable(format!("http.{error}")))?;
            builder = builder.tls_backend_preconfigured(config);
        }
        let client = builder.build().map_err(|error| unusable("http client", &error))?;
        let url = format!("{}/api/v1/nodes/{node}/backfill", http.address);
        let url = Url::parse(&url).map_err(|error| unusable(&url, &error))?;
        Ok(Poster { client, url, secret: http.secret.clone() })
    }

    /// Posts one batch. The ack is the edge's word that its transaction has committed.
    pub async fn post(&self, body: Vec<u8>) -> Result<Ack, PostError> {
        let request = self
            .client
            .post(self.url.clone())
            .bearer_auth(self.secret.expose())
            .header("content-type", "application/json")
            .body(body);
        let response = request.send().await.map_err(|error| outage(describe(&error)))?;
        let status = response.status();
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        if response.content_length().is_some_and(|length| length > MAX_ACK_BYTES as u64) {
            return Err(outage("the edge's answer is too long".to_owned()));
        }
        match status {
            StatusCode::OK => {
                let body = response.bytes().await.map_err(|error| outage(describe(&error)))?;
                Ack::parse(&body).map_err(|error| outage(format!("the edge's answer: {error}")))
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                Err(PostError::OurFault(status.to_string()))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(PostError::Refused(status)),
            _ => {
                Err(PostError::Outage { reason: format!("the edge answers {status}"), retry_after })
            }
        }
    }
}

fn unusable(what: impl fmt::Display, error: &dyn fmt::Display) -> PostError {
    PostError::Unusable(format!("{what}: {error}"))
}

fn outage(reason: String) -> PostError {
    PostError::Outage { reason, retry_after: None }
}

/// The innermost reason: the outer ones only repeat the address.
fn describe(error: &reqwest::Error) -> String {
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    format!("the edge cannot be reached over HTTP: {inner}")
}

/// The forwarder's posts: one at a time, with a client that is made when it is first needed.
pub(crate) struct Posts {
    http: Http,
    node: NodeId,
    poster: Option<Poster>,
    under_way: Option<(BatchId, JoinHandle<Result<Ack, PostError>>)>,
    backoff: Backoff,
}

impl Posts {
    /// Nothing, if HTTP is not configured.
    pub(crate) fn new(config: &Config) -> Option<Posts> {
        Some(Posts {
            http: config.http.clone()?,
            node: config.identity.node_id.clone(),
            poster: None,
            under_way: None,
            backoff: Backoff::new(Duration::from_secs(1), config.retry_cap),
        })
    }

    /// Starts a post.
    pub(crate) fn start(&mut self, id: BatchId, body: Vec<u8>) -> Result<(), PostError> {
        let poster = match self.poster.take() {
            Some(poster) => poster,
            None => Poster::new(&self.http, &self.node)?,
        };
        let task = {
            let poster = poster.clone();
            tokio::spawn(async move { poster.post(body).await })
        };
        self.poster = Some(poster);
        self.under_way = Some((id, task));
        Ok(())
    }

    /// Waits for the post that is under way; for ever if there is none.
    pub(crate) async fn finished(posts: &mut Option<Posts>) -> (BatchId, Result<Ack, PostError>) {
        let Some(posts) = posts else {
            return std::future::pending().await;
        };
        let Some((id, task)) = &mut posts.under_way else {
            return std::future::pending().await;
        };
        let outcome = match task.await {
            Ok(outcome) => outcome,
            Err(error) => Err(outage(format!("the post did not finish: {error}"))),
        };
        let id = *id;
        posts.under_way = None;
        if outcome.is_ok() {
            posts.backoff.reset();
        }
        (id, outcome)
    }

    /// How long to leave HTTP alone after a failure: at least what the edge asked for.
    pub(crate) fn pause_after(&mut self, error: &PostError) -> Duration {
        let asked = match error {
            PostError::Outage { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        self.backoff.next(&mut rand::rng()).max(asked.min(MAX_RETRY_AFTER))
    }

    /// Gives up what is under way.
    pub(crate) fn abort(self) {
        if let Some((_, task)) = self.under_way {
            task.abort();
        }
    }
}
