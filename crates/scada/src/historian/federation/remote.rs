//! The second historian, as something to publish to.

use std::sync::Arc;
use std::time::Duration;

use bus::{Message, PublishError, Publisher};
use futures_util::future::BoxFuture;
use reqwest::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use settings::LiveSecret;

/// The most events of a request.
pub(crate) const MAX_EVENTS: usize = 1_000;
/// The most bytes of a request.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;
/// How long an answer may take; the second stores before it answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const PATH: &str = "/api/v1/federation/batches";
const SCHEMA_VERSION: &str = "schema_version";

/// What is sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) events: Vec<Sent>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Sent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schema_version: Option<String>,
    pub(crate) event: Box<RawValue>,
}

/// What is answered, one for each event in their order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) results: Vec<Verdict>,
}

#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase", tag = "status")]
pub(crate) enum Verdict {
    Stored,
    Duplicate,
    Refused { code: String },
}

/// A second historian.
#[derive(Debug)]
pub struct Remote {
    client: reqwest::Client,
    url: String,
    token: LiveSecret,
}

impl Remote {
    /// At this address, with a token of role `edge`. Fails when the certificates cannot be used.
    pub fn new(url: &str, token: LiveSecret, trust: &api::client::Tls) -> Result<Remote, String> {
        let builder = reqwest::Client::builder().timeout(ANSWER_WITHIN);
        let builder = trust.apply(builder).map_err(|error| error.to_string())?;
        let client = builder.build().map_err(|_| "no HTTP client can be made".to_owned())?;
        Ok(Remote { client, url: format!("{}{PATH}", url.trim_end_matches('/')), token })
    }

    async fn send(&self, batch: &[Message]) -> Result<Vec<Verdict>, PublishError> {
        let unreachable = |why: &str| PublishError::Unreachable(Arc::from(why));
        let malformed = PublishError::Malformed { what: "body", problem: "is no JSON" };
        let events = batch.iter().map(|message| {
            let event: Box<RawValue> = serde_json::from_slice(&message.body).ok()?;
            let schema_version = message.headers.get(SCHEMA_VERSION).cloned();
            Some(Sent { schema_version, event })
        });
        let events = events.collect::<Option<Vec<_>>>().ok_or(malformed)?;
        let answer = self
            .client
            .post(&self.url)
            .bearer_auth(self.token.current().expose())
            .json(&Request { events })
            .send()
            .await
            // The library's words hold the address, which may hold a password.
            .map_err(|error| match error.is_timeout() {
                true => PublishError::Unconfirmed("no answer in time".into()),
                false => unreachable("no connection"),
            })?;
        let status = answer.status();
        if status != StatusCode::OK {
            let words = format!("the second historian answers {}", status.as_u16());
            let us = status.is_client_error() && ![401, 403, 408, 429].contains(&status.as_u16());
            return Err(match us {
                true => PublishError::Misconfigured(words.into()),
                false => unreachable(&words),
            });
        }
        let answer: Answer =
            answer.json().await.map_err(|_| PublishError::Unconfirmed("cut off".into()))?;
        if answer.results.len() != batch.len() {
            return Err(PublishError::Unconfirmed("an answer for other events".into()));
        }
        Ok(answer.results)
    }
}

impl Publisher for Remote {
    fn publish(&self, batch: Vec<Message>) -> BoxFuture<'_, Vec<Result<(), PublishError>>> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(batch.len());
            for part in batch.chunks(MAX_EVENTS) {
                match self.send(part).await {
                    Ok(verdicts) => results.extend(verdicts.into_iter().map(result)),
                    Err(error) => results.extend(part.iter().map(|_| Err(error.clone()))),
                }
            }
            results
        })
    }
}

fn result(verdict: Verdict) -> Result<(), PublishError> {
    match verdict {
        Verdict::Stored | Verdict::Duplicate => Ok(()),
        Verdict::Refused { .. } => Err(PublishError::Malformed {
            what: "event",
            problem: "is refused by the second historian",
        }),
    }
}
