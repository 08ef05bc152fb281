//! Delivery: messages leave `schedule_notification` by a webhook or by Telegram, on the lease engine.
//!
//! Promises: a message is sent at least once and always under the same key; a user's messages go out in order; a destination that is away costs no
//! message an attempt; a user who cannot be reached holds up nobody. What a bot has marked itself is left alone. docs/spec/schedule.md has the tables.
//!
//! It must not know how messages come to be. Tokens, secrets and the words of messages are in no log and no error.

mod answer;
mod table;
mod telegram;
mod webhook;

use std::time::Duration;

use lease::backoff::Backoff;
use lease::{Batch, Counts, Down, Handler, Lane, Options, Outcome, Verdict};
use reqwest::Client;

use answer::Answer;
pub use api::signature::sign;
pub use table::{Message, table};
pub use telegram::Telegram;
pub use webhook::Webhook;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const LOOK: &str = "SELECT n.status = 'pending', u.telegram_chat_id
FROM schedule_ingest.schedule_notification n
LEFT JOIN schedule_ingest.user_setting u ON u.user_id = n.user_id
WHERE n.notification_id = $1";

/// Where messages go.
#[derive(Debug, Clone)]
pub enum Channel {
    /// An HTTP address.
    Webhook(Webhook),
    /// A bot.
    Telegram(Telegram),
}

/// How messages are delivered.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The worker's name; each process has its own.
    pub name: String,
    /// Where to.
    pub channel: Channel,
    /// Whom to trust.
    pub trust: api::client::Tls,
    /// How long a request may take.
    pub timeout: Duration,
    /// How often messages are looked for without a nudge.
    pub poll: Duration,
    /// How long a claim holds without a heartbeat.
    pub lease: Duration,
    /// How often users with messages of lost leases are looked for.
    pub sweep: Duration,
    /// How many users' messages are under way at once.
    pub slots: usize,
    /// The most messages of a claim.
    pub batch: u32,
    /// How many refusals fail a message.
    pub max_attempts: u32,
    /// How long a message waits after a refusal.
    pub backoff: Backoff,
    /// How long a destination is left alone after it was down.
    pub breaker: Backoff,
    /// How long a stop waits for messages under way.
    pub stop_grace: Duration,
}

impl Settings {
    /// The defaults, for a worker of this name.
    pub fn new(name: impl Into<String>, channel: Channel) -> Settings {
        Settings {
            name: name.into(),
            channel,
            trust: api::client::Tls::default(),
            timeout: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            lease: Duration::from_secs(60),
            sweep: Duration::from_secs(10),
            slots: 4,
            batch: 16,
            max_attempts: 10,
            backoff: Backoff::site(),
            // People wait for these, so a destination that is back is soon noticed.
            breaker: Backoff::Exponential {
                base: Duration::from_secs(1),
                cap: Duration::from_secs(60),
                jitter: Duration::from_secs(1),
            },
            stop_grace: Duration::from_secs(10),
        }
    }
}

/// Why delivery cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting of the leases, or the database's address.
    #[error(transparent)]
    Lease(#[from] lease::Error),
    /// The certificates to trust cannot be used.
    #[error("deliver.{0}")]
    Trust(#[from] api::client::Error),
    /// The HTTP client cannot be made.
    #[error("no HTTP client can be made: {0}")]
    Client(String),
}

/// Delivery while it runs. Dropping it is like a crash: what it holds is taken over when its lease ends.
#[derive(Debug)]
pub struct Delivery(lease::Worker);

impl Delivery {
    /// Starts it. Neither the database nor the destination need be there yet.
    pub fn start(database: &pg::Options, settings: &Settings) -> Result<Delivery, Error> {
        let client = Client::builder()
            .timeout(settings.timeout)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none());
        let client = settings.trust.apply(client)?;
        let client = client.build().map_err(|error| Error::Client(error.to_string()))?;
        let database = pg::Options {
            max_connections: settings.slots,
            application_name: "holdfast-schedule-delivery".to_owned(),
            ..database.clone()
        };
        let pool = pg::Pool::new(&database).map_err(lease::Error::from)?;
        let options = Options {
            batch: settings.batch,
            slots: settings.slots,
            lease: settings.lease,
            max_attempts: settings.max_attempts,
            backoff: settings.backoff.clone(),
            breaker: settings.breaker.clone(),
            poll: settings.poll,
            sweep: settings.sweep,
            stop_grace: settings.stop_grace,
            ..Options::new(settings.name.clone())
        };
        let send = Send { pool, client, channel: settings.channel.clone() };
        Ok(Delivery(lease::Worker::start(&database, table::queue(), send, options)?))
    }

    /// What it has done so far, in messages.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }

    /// Stops: nothing more is claimed; what is under way is finished or given back.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

struct Send {
    pool: pg::Pool,
    client: Client,
    channel: Channel,
}

impl Handler<Message> for Send {
    async fn handle(&self, batch: Batch<Message>) -> Verdict {
        let mut outcomes = Vec::with_capacity(batch.items.len());
        let mut held: Option<&Lane> = None;
        for item in &batch.items {
            if held == Some(&item.lane) {
                outcomes.push(Outcome::NotTried);
                continue;
            }
            outcomes.push(match self.send(&item.row).await {
                Answer::Has => Outcome::Done,
                Answer::Never { reason, code, message } => {
                    Outcome::Bury { reason: reason.to_owned(), code, message }
                }
                Answer::NotNow { code, message } => {
                    held = Some(&item.lane);
                    Outcome::Retry { code, message }
                }
                Answer::Down { why, retry_after } => {
                    return Verdict { outcomes, down: Some(Down { why, retry_after }) };
                }
            });
        }
        Verdict::each(outcomes)
    }
}

impl Send {
    async fn send(&self, message: &Message) -> Answer {
        // A claim may be a while ago: whoever has marked the message meanwhile has delivered it.
        let looked = async {
            let client = self.pool.get().await?;
            Ok::<_, pg::Error>(client.query_opt(LOOK, &[&message.notification_id]).await?)
        };
        let (waits, chat) = match looked.await {
            Ok(Some(row)) => (row.get::<_, bool>(0), row.get::<_, Option<i64>>(1)),
            Ok(None) => (false, None),
            Err(error) => return Answer::down(format!("the database: {error}")),
        };
        if !waits {
            return Answer::Has;
        }
        match &self.channel {
            Channel::Webhook(webhook) => webhook.send(&self.client, message).await,
            Channel::Telegram(telegram) => {
                telegram.send(&self.client, message, chat.unwrap_or(message.user_id)).await
            }
        }
    }
}
