//! A tier behind HTTP: requests with our token, bounded in time, size and number.

use std::time::Duration;

use api::Refused;
use api::tokens::ACTING_FOR;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use settings::LiveSecret;
use tokio::sync::Semaphore;

use crate::access::Person;
use crate::config::Place;

/// How long a poll may take.
pub(crate) const QUICK: Duration = Duration::from_secs(5);
/// How long an answer may take that a person waits for.
pub(crate) const PATIENT: Duration = Duration::from_secs(30);
/// The largest answer.
const MAX_ANSWER_BYTES: usize = 32 << 20;
/// Requests under way at one upstream; fewer than it has connections for operators.
const AT_ONCE: usize = 3;
/// The longest message of an upstream that is passed on.
const MAX_MESSAGE_CHARS: usize = 300;
/// The most pages of one list; a loop beyond it would be the upstream's fault.
const MAX_PAGES: usize = 1_000;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fault {
    /// Nobody answers.
    #[error("{0}")]
    Away(String),
    /// It answers, and refuses.
    #[error("answers {status}: {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The word for programs.
        code: String,
        /// Why.
        message: String,
    },
    /// It answers something that is not of this version.
    #[error("answers what is not understood: {0}")]
    Odd(String),
}

impl Fault {
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Fault::Refused { status: 404, .. })
    }

    /// Whether it is there, and has no time for us at the moment.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Fault::Refused { status: 429, .. } => true,
            Fault::Refused { status: 503, code, .. } => code == "busy",
            _ => false,
        }
    }

    /// What the person who asked is told.
    pub(crate) fn refuse(self, name: &str) -> Refused {
        match self {
            Fault::Away(why) => {
                let message = format!("{name} is away: {why}");
                Refused::new(StatusCode::SERVICE_UNAVAILABLE, "away", message)
            }
            Fault::Refused { status: 400, message, .. } => Refused::malformed(None, message),
            Fault::Refused { status: 404, message, .. } => {
                Refused::new(StatusCode::NOT_FOUND, "not_found", message)
            }
            Fault::Refused { status: 409, message, .. } => {
                Refused::new(StatusCode::CONFLICT, "not_allowed", message)
            }
            Fault::Refused { status: 429 | 503, message, .. } => {
                Refused::unavailable("busy", &format!("{name}: {message}"))
            }
            other => {
                let message = format!("{name} {other}");
                Refused::new(StatusCode::BAD_GATEWAY, "upstream", message)
            }
        }
    }
}

#[derive(Deserialize)]
struct Refusal {
    error: Words,
}

#[derive(Deserialize)]
struct Words {
    code: String,
    message: String,
}

/// One upstream.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) name: String,
    base: String,
    token: LiveSecret,
    client: reqwest::Client,
    places: Semaphore,
}

/// The client that all share. It follows no redirect: the token would go along.
pub(super) fn client(trust: &api::client::Tls) -> Result<reqwest::Client, crate::Error> {
    let builder = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(3))
        .pool_max_idle_per_host(AT_ONCE)
        .redirect(reqwest::redirect::Policy::none());
    Ok(trust.apply(builder)?.build()?)
}

impl Remote {
    pub(super) fn new(client: reqwest::Client, place: &Place) -> Remote {
        Remote {
            name: place.name.clone(),
            base: place.url.clone(),
            token: place.token.clone(),
            client,
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Asks for what is at a path.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        within: Duration,
    ) -> Result<T, Fault> {
        let mut url = reqwest::Url::parse(&format!("{}{path}", self.base))
            .map_err(|error| Fault::Odd(error.to_string()))?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.ask(self.client.get(url), within).await
    }

    /// Asks for a text.
    pub(crate) async fn text(&self, path: &str, within: Duration) -> Result<String, Fault> {
        let bytes = self.bytes(self.client.get(format!("{}{path}", self.base)), within).await?;
        String::from_utf8(bytes.into()).map_err(|_| Fault::Odd("it is no text".to_owned()))
    }

    /// Sends a body for somebody who is signed in, and says who it is: the token is ours, the deed is theirs.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        person: &Person,
        path: &str,
        body: &Value,
        within: Duration,
    ) -> Result<T, Fault> {
        let request = self.client.post(format!("{}{path}", self.base)).json(body);
        self.ask(request.header(ACTING_FOR, person.0.clone()), within).await
    }

    /// Every page of a list that goes on after `next_after`.
    pub(crate) async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, String)],
        member: &str,
    ) -> Result<Vec<T>, Fault> {
        let mut found: Vec<T> = Vec::new();
        let mut query = query.to_vec();
        for _ in 0..MAX_PAGES {
            let mut page: Value = self.get(path, &query, PATIENT).await?;
            let part: Vec<T> = serde_json::from_value(page[member].take())
                .map_err(|error| Fault::Odd(error.to_string()))?;
            found.extend(part);
            let after = match &page["next_after"] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => break,
            };
            query.retain(|(name, _)| *name != "after");
            query.push(("after", after));
        }
        Ok(found)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        within: Duration,
    ) -> Result<T, Fault> {
        let bytes = self.bytes(request, within).await?;
        serde_json::from_slice(&bytes).map_err(|error| Fault::Odd(error.to_string()))
    }

    async fn bytes(&self, request: RequestBuilder, within: Duration) -> Result<Bytes, Fault> {
        // The semaphore is never closed; a permit that could not be had changes only the bound.
        let waiting = tokio::time::timeout(within, self.places.acquire()).await;
        let _place = waiting.map_err(|_| Fault::Away("it is asked too much already".to_owned()))?;
        let answered = async {
            let token = self.token.current();
            // A SCADA node on this machine needs none.
            let request = match token.expose() {
                "" => request,
                token => request.bearer_auth(token),
            };
            let response = request.send().await.map_err(away)?;
            let status = response.status().as_u16();
            Ok((status, read(response, MAX_ANSWER_BYTES).await?))
        };
        let late = |_| Fault::Away(format!("no answer within {} s", within.as_secs()));
        let (status, bytes) = tokio::time::timeout(within, answered).await.map_err(late)??;
        if (200..300).contains(&status) {
            return Ok(bytes);
        }
        let Words { code, message } = match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => refusal.error,
            Err(_) => Words { code: String::new(), message: "no reason is given".to_owned() },
        };
        let message = message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect();
        Err(Fault::Refused { status, code, message })
    }

    /// Fetches the bytes behind an address that the upstream has signed, without our token.
    pub(crate) async fn fetch(
        &self,
        url: &str,
        limit: usize,
    ) -> Result<(Option<String>, Bytes), Fault> {
        let _place = self.places.acquire().await.ok();
        let answered = async {
            let response = self.client.get(url).send().await.map_err(away)?;
            if !response.status().is_success() {
                let message = "the object store does not give it".to_owned();
                let status = response.status().as_u16();
                return Err(Fault::Refused { status, code: String::new(), message });
            }
            let kind = response.headers().get("content-type");
            let kind = kind.and_then(|value| value.to_str().ok()).map(str::to_owned);
            Ok((kind, read(response, limit).await?))
        };
        let late = |_| Fault::Away("the object store does not answer in time".to_owned());
        tokio::time::timeout(PATIENT, answered).await.map_err(late)?
    }
}

async fn read(mut response: reqwest::Response, limit: usize) -> Result<Bytes, Fault> {
    let mut whole = BytesMut::new();
    while let Some(part) = response.chunk().await.map_err(away)? {
        if whole.len() + part.len() > limit {
            return Err(Fault::Odd(format!("more than {limit} bytes")));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// The library's words have the address in them, which people know by its name.
fn away(error: reqwest::Error) -> Fault {
    let why = match () {
        () if error.is_connect() => "no connection",
        () if error.is_timeout() => "no answer in time",
        () if error.is_body() || error.is_decode() => "the answer broke off",
        () => "the request failed",
    };
    Fault::Away(why.to_owned())
}
