//! The dispatcher: leased rows to the bus, in batches, with confirms.

use std::sync::Arc;
use std::time::Duration;

use bus::{About, Message, PublishError, Publisher};
use lease::backoff::Backoff;
use lease::{Batch, Counts, Handler, Options, Outcome, Queue, Sent, Verdict, Worker};

use super::table;

/// A fault of ours is mended by a person, so there is no hurry to look again.
const OUR_PAUSE: Duration = Duration::from_secs(5);

/// How a dispatcher works. The defaults are the documented ones.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its name, as `locked_by` shows it; each process has its own.
    pub instance: String,
    /// `OUTBOX_BATCH_SIZE`: the most events of one publish.
    pub batch: u32,
    /// How many batches are under way at once.
    pub slots: usize,
    /// `OUTBOX_POLL_INTERVAL_MS`: how often the table is looked at without a nudge.
    pub poll: Duration,
    /// `OUTBOX_MAX_RETRIES`: failures until `FAILED`.
    pub max_retries: u32,
    /// `OUTBOX_LOCK_TIMEOUT_SECONDS`: how long a claim holds.
    pub lock_timeout: Duration,
    /// `OUTBOX_RECOVERY_INTERVAL_MS`: how often everything is looked for, expired locks included.
    pub recovery: Duration,
}

impl Settings {
    /// The documented defaults.
    pub fn new(instance: impl Into<String>) -> Settings {
        Settings {
            instance: instance.into(),
            batch: 50,
            slots: 2,
            poll: Duration::from_millis(500),
            max_retries: 10,
            lock_timeout: Duration::from_secs(120),
            recovery: Duration::from_secs(30),
        }
    }
}

/// A running dispatcher. Dropping it is like a crash: what it holds is taken over when its lease ends.
#[derive(Debug)]
pub struct Dispatcher {
    worker: Worker,
}

impl Dispatcher {
    /// Starts it. Neither the database nor the bus need be there yet.
    pub fn start(
        database: &pg::Options,
        settings: &Settings,
        publisher: Arc<dyn Publisher>,
    ) -> Result<Dispatcher, lease::Error> {
        Dispatcher::start_on(database, settings, publisher, table::queue())
    }

    /// The same on another table of the same columns.
    pub(crate) fn start_on(
        database: &pg::Options,
        settings: &Settings,
        publisher: Arc<dyn Publisher>,
        queue: Queue<Message>,
    ) -> Result<Dispatcher, lease::Error> {
        let database = pg::Options {
            application_name: "holdfast-scada-dispatcher".to_owned(),
            ..database.clone()
        };
        let options = Options {
            batch: settings.batch,
            slots: settings.slots,
            lease: settings.lock_timeout,
            max_attempts: settings.max_retries,
            backoff: Backoff::scada(),
            breaker: Backoff::Exponential {
                base: Duration::from_millis(500),
                cap: Duration::from_secs(30),
                jitter: Duration::from_millis(500),
            },
            poll: settings.poll,
            sweep: settings.recovery,
            ..Options::new(settings.instance.clone())
        };
        let deliver = Deliver { publisher };
        Ok(Dispatcher { worker: Worker::start(&database, queue, deliver, options)? })
    }

    /// What it has done so far, in rows.
    pub fn counts(&self) -> Counts {
        self.worker.counts()
    }

    /// Stops: nothing more is claimed; what is under way is finished or given back.
    pub async fn stop(self) {
        self.worker.stop().await;
    }
}

struct Deliver {
    publisher: Arc<dyn Publisher>,
}

impl Handler<Message> for Deliver {
    async fn handle(&self, batch: Batch<Message>) -> Verdict {
        let (lanes, messages): (Vec<_>, Vec<_>) =
            batch.items.into_iter().map(|item| (item.lane, item.row)).unzip();
        let results = self.publisher.publish(messages).await;
        let verdict = Verdict::in_order(&lanes, results.into_iter().map(sent));
        let failed = verdict
            .outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Outcome::Bury { .. } | Outcome::Retry { .. }));
        let failed = failed.count();
        if failed > 0 {
            tracing::error!(failed, "events were refused by the bus");
        }
        verdict
    }
}

fn sent(result: Result<(), PublishError>) -> Sent {
    let Err(error) = result else { return Sent::Done };
    let message = error.to_string();
    match error.about() {
        About::Message => Sent::Failed(Outcome::Bury {
            reason: "refused_by_the_bus".to_owned(),
            code: error.code().to_owned(),
            message,
        }),
        About::Destination => Sent::Held { why: message, retry_after: None },
        About::Us => Sent::Held { why: message, retry_after: Some(OUR_PAUSE) },
    }
}
