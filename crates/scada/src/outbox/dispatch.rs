//! The dispatcher: leased rows to the bus, in batches, with confirms.
//!
//! What the broker says of a message is retried by the schedule, because its operators can mend it; what is wrong with a message by our
//! own rules is given up at once; a bus that is away costs nothing but time.

use std::sync::Arc;
use std::time::Duration;

use bus::{About, Message, PublishError, Publisher};
use lease::backoff::Backoff;
use lease::{Batch, Counts, Handler, Item, Lane, Options, Outcome, Queue, Sent, Verdict, Worker};

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
        let (lanes, turns) = turns(batch.items);
        let mut answers: Vec<Sent> = vec![Sent::Failed(Outcome::NotTried); lanes.len()];
        self.send(turns.first, &mut answers).await;
        // Behind a row that has failed before, a lane waits for that row: it may fail again, and they would all go twice.
        let passed =
            |head: usize| matches!(answers[head], Sent::Done | Sent::Failed(Outcome::Bury { .. }));
        let behind: Vec<(usize, Message)> = turns
            .behind
            .into_iter()
            .filter(|(head, ..)| passed(*head))
            .map(|(_, at, message)| (at, message))
            .collect();
        self.send(behind, &mut answers).await;
        let verdict = Verdict::in_order(&lanes, answers);
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

impl Deliver {
    /// Publishes messages and puts what became of each to its place.
    async fn send(&self, batch: Vec<(usize, Message)>, answers: &mut [Sent]) {
        if batch.is_empty() {
            return;
        }
        let (places, messages): (Vec<usize>, Vec<Message>) = batch.into_iter().unzip();
        let results = self.publisher.publish(messages).await.into_iter().map(sent);
        let lost = || Sent::Held { why: "no answer".to_owned(), retry_after: None };
        for (at, answer) in places.into_iter().zip(results.chain(std::iter::repeat_with(lost))) {
            answers[at] = answer;
        }
    }
}

/// The messages of a batch with their places in it, in two turns.
#[derive(Default)]
struct Turns {
    first: Vec<(usize, Message)>,
    /// Those behind the head of a lane that has failed before, with the place of that head.
    behind: Vec<(usize, usize, Message)>,
}

fn turns(items: Vec<Item<Message>>) -> (Vec<Lane>, Turns) {
    let mut lanes: Vec<Lane> = Vec::with_capacity(items.len());
    let mut turns = Turns::default();
    let (mut head, mut in_doubt) = (0, false);
    for (at, item) in items.into_iter().enumerate() {
        if lanes.last() != Some(&item.lane) {
            (head, in_doubt) = (at, item.attempts > 0);
        }
        match in_doubt && at > head {
            true => turns.behind.push((head, at, item.row)),
            false => turns.first.push((at, item.row)),
        }
        lanes.push(item.lane);
    }
    (lanes, turns)
}

fn sent(result: Result<(), PublishError>) -> Sent {
    let Err(error) = result else { return Sent::Done };
    let message = error.to_string();
    // The broker's own verdicts: a rule, a binding or a topic that its operators can mend.
    if let PublishError::Rejected { .. }
    | PublishError::Unroutable { .. }
    | PublishError::NoTopic(_) = &error
    {
        return Sent::Failed(Outcome::Retry { code: error.code().to_owned(), message });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_s_verdict_is_retried_ours_is_final_and_an_outage_is_nobody_s() {
        let what = |error: PublishError| sent(Err(error));
        let text = |words: &str| words.to_owned();
        for error in [
            PublishError::Rejected { what: "body", problem: "is larger than the topic takes" },
            PublishError::Unroutable { exchange: text("e"), routing_key: text("k") },
            PublishError::NoTopic("scada.l2.flow".into()),
        ] {
            assert!(matches!(what(error), Sent::Failed(Outcome::Retry { .. })));
        }
        for error in [
            PublishError::Malformed { what: "key", problem: "is longer than 4096 bytes" },
            PublishError::TooLarge { bytes: 2, limit: 1 },
        ] {
            assert!(matches!(what(error), Sent::Failed(Outcome::Bury { .. })));
        }
        for error in [
            PublishError::Unreachable("cut".into()),
            PublishError::Unconfirmed("late".into()),
            PublishError::Blocked,
            // A queue that is full, or too few replicas: it is not about this message.
            PublishError::Refused,
            PublishError::Misconfigured("not allowed".into()),
        ] {
            assert!(matches!(what(error), Sent::Held { .. }));
        }
    }

    #[test]
    fn only_the_head_of_a_lane_that_has_failed_goes_first() {
        let item = |key: &str, attempts, id: i64| Item {
            id: lease::RowId::Number(id),
            lane: Lane { tenant: "0".into(), rank: 0, key: key.into() },
            attempts,
            row: Message::json("e", "k", id.to_string(), "{}"),
        };
        let items = vec![item("a", 0, 0), item("a", 0, 1), item("b", 2, 2), item("b", 0, 3)];
        let (lanes, turns) = turns(items);
        assert_eq!(lanes.len(), 4);
        let first: Vec<usize> = turns.first.iter().map(|(at, _)| *at).collect();
        let behind: Vec<_> = turns.behind.iter().map(|(head, at, _)| (*head, *at)).collect();
        assert_eq!((first, behind), (vec![0, 1, 2], vec![(2, 3)]));
    }
}
