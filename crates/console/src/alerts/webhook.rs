//! Alerts to a webhook: what begins, worsens and ends is posted, one after the other, until it was taken.
//!
//! Promises: at least once, in order, under a stable id; with a state file also over restarts. The address and the secret are never logged.
//! A receiver that is away is tried again with growing pauses; what it refuses for good is left out and said so in the log.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::signature::{self, sign};
use jiff::Timestamp;
use rand::RngExt as _;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use settings::Secret;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::disk::{StateError, load, save};
use super::told::{News, Told};
use crate::picture::Board;

/// How long the receiver may take.
const WITHIN: Duration = Duration::from_secs(10);
/// The first pause after a failure; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause, but for what the receiver asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// However long a receiver asks to be left alone.
const LONGEST_ASKED: Duration = Duration::from_secs(3_600);
/// Added to each pause, so that several consoles do not come at once.
const JITTER_MS: u64 = 500;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where alerts are posted to.
#[derive(Clone)]
pub struct Webhook {
    /// The address.
    pub url: reqwest::Url,
    /// What requests are signed with.
    pub secret: Option<Secret>,
    /// Where it is kept what was told, over restarts.
    pub state_file: Option<PathBuf>,
}

impl std::fmt::Debug for Webhook {
    /// Without the path, which with many receivers is the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("host", &self.url.host_str()).finish_non_exhaustive()
    }
}

/// What became of a request.
enum Answer {
    Taken,
    /// Never to be taken.
    Refused(u16),
    /// Another time.
    Down {
        why: String,
        wait: Option<Duration>,
    },
}

struct Teller {
    webhook: Webhook,
    client: reqwest::Client,
    told: Mutex<Told>,
    news: Notify,
    /// Held while the state is written: the later state is the one that stays.
    writing: tokio::sync::Mutex<()>,
}

/// For whoever wants to know how the webhook does.
pub(crate) struct Telling(Arc<Teller>);

impl Telling {
    /// How much it is still to be told.
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().waiting()
    }
}

impl std::fmt::Debug for Telling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telling").finish_non_exhaustive()
    }
}

/// Starts the two tasks: one notices, one tells.
pub(crate) fn start(
    webhook: Webhook,
    client: reqwest::Client,
    board: &Arc<Board>,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) -> Result<Telling, StateError> {
    let told = webhook.state_file.as_deref().map_or(Ok(Told::default()), load)?;
    // A folder that cannot be written to is said at start, not when something is wrong.
    if let Some(file) = &webhook.state_file {
        save(file, &told)?;
    }
    let teller = Arc::new(Teller {
        webhook,
        client,
        told: Mutex::new(told),
        news: Notify::new(),
        writing: tokio::sync::Mutex::default(),
    });
    let (notices, board, stopping) = (Arc::clone(&teller), Arc::clone(board), stop.clone());
    tasks.spawn(async move {
        let mut ticks = board.follow();
        while stopping.run_until_cancelled(ticks.changed()).await.is_some_and(|tick| tick.is_ok()) {
            let snapshot = board.now();
            if notices.lock().look(&snapshot.alerts, &snapshot.tick) {
                notices.keep().await;
                notices.news.notify_one();
            }
        }
    });
    let (stopping, telling) = (stop.clone(), Telling(Arc::clone(&teller)));
    tasks.spawn(async move {
        stopping.run_until_cancelled(teller.tell()).await;
    });
    Ok(telling)
}

impl Teller {
    fn lock(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells one thing after the other, for ever.
    async fn tell(&self) {
        let mut failures = 0_u32;
        loop {
            let next = self.lock().next().cloned();
            let Some(news) = next else {
                self.news.notified().await;
                continue;
            };
            match self.post(&news).await {
                Answer::Taken => {
                    if failures > 0 {
                        tracing::info!(failures, "the alerts' webhook takes what it is told again");
                    }
                    failures = 0;
                }
                Answer::Refused(status) => {
                    tracing::warn!(status, news = %news.id, "the alerts' webhook refuses this for good");
                    failures = 0;
                }
                Answer::Down { why, wait } => {
                    if failures == 0 {
                        let waiting = self.lock().waiting();
                        tracing::warn!(%why, waiting, "the alerts' webhook cannot be told; it is tried again");
                    }
                    tokio::time::sleep(pause(failures, wait)).await;
                    failures = failures.saturating_add(1);
                    continue;
                }
            }
            self.lock().done(&news.id);
            self.keep().await;
        }
    }

    async fn post(&self, news: &News) -> Answer {
        // Names, numbers and what was JSON before: nothing that could fail.
        let body = serde_json::to_vec(news).unwrap_or_default();
        let mut request = self
            .client
            .post(self.webhook.url.clone())
            .timeout(WITHIN)
            .header(CONTENT_TYPE, "application/json");
        if let Ok(key) = HeaderValue::from_str(&news.id) {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(secret) = &self.webhook.secret {
            let signed = sign(secret, Timestamp::now().as_second(), &body);
            request = request.header(signature::HEADER, signed);
        }
        match request.body(body).send().await {
            Ok(response) => {
                let asked = response.headers().get(RETRY_AFTER);
                let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
                let wait = asked.map(|seconds| Duration::from_secs(seconds).min(LONGEST_ASKED));
                match response.status().as_u16() {
                    200..300 => Answer::Taken,
                    status @ (400 | 410 | 413 | 422) => Answer::Refused(status),
                    status => Answer::Down { why: format!("it answers {status}"), wait },
                }
            }
            // The library's words repeat the address, which may be the secret.
            Err(error) => {
                let why = match () {
                    () if error.is_timeout() => "no answer in time",
                    () if error.is_connect() => "no connection",
                    () => "the request was cut off",
                };
                Answer::Down { why: why.to_owned(), wait: None }
            }
        }
    }

    /// Makes what is told and what is to be told durable. A disk that fails is said, and alerts go out all the same.
    async fn keep(&self) {
        let Some(file) = self.webhook.state_file.clone() else { return };
        let _writing = self.writing.lock().await;
        let told = self.lock().clone();
        let saved = tokio::task::spawn_blocking(move || save(&file, &told)).await;
        match saved {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "what was told of alerts cannot be kept"),
            Err(error) => tracing::warn!(%error, "what was told of alerts was not kept"),
        }
    }
}

/// How long a receiver is left alone after so many failures before this one.
fn pause(failures: u32, asked: Option<Duration>) -> Duration {
    let grown = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.min(16)));
    // After the cap, so that pauses at the cap spread too.
    let jitter = Duration::from_millis(rand::rng().random_range(0..JITTER_MS));
    grown.min(LONGEST_PAUSE).max(asked.unwrap_or_default()) + jitter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_heed_what_is_asked() {
        let second = Duration::from_secs(1);
        let within = |pause: Duration, least: Duration| pause >= least && pause < least + second;
        assert!(within(pause(0, None), FIRST_PAUSE));
        assert!(within(pause(3, None), 8 * FIRST_PAUSE));
        assert!(within(pause(u32::MAX, None), LONGEST_PAUSE));
        assert!(within(pause(0, Some(60 * second)), 60 * second));
    }
}
