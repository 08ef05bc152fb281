//! Publishing a batch, and what its results mean for the rows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::{About, Binding, Message, PublishError, Publisher};
use lease::{Batch, Handler, Lane, Outcome, Sent, Verdict};
use tracing::Instrument as _;

use super::outbox::Outgoing;
use crate::readiness::Readiness;
use crate::trace::Spans;

/// A fault of ours is mended by a person, so there is no hurry to look again.
const OUR_PAUSE: Duration = Duration::from_secs(5);

/// What the topology has: where messages may go, and which of them somebody of ours waits for.
#[derive(Debug, Clone, Default)]
pub struct Routes {
    /// Exchanges that are there.
    pub exchanges: BTreeSet<String>,
    /// What our own groups are bound to.
    pub bindings: Vec<Binding>,
}

impl Routes {
    fn wants(&self, message: &Message) -> bool {
        self.bindings.iter().any(|binding| binding.wants(message))
    }
}

/// Why a row was not published.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    about: About,
    /// For grouping, and for whoever asks `/readyz`.
    reason: &'static str,
    code: &'static str,
    /// For the row and the log.
    message: String,
}

impl Fault {
    fn new(about: About, reason: &'static str, code: &'static str, message: String) -> Fault {
        Fault { about, reason, code, message }
    }

    fn no_exchange(exchange: &str) -> Fault {
        let message = format!("{exchange} is not an exchange of the topology");
        Fault::new(About::Message, "unroutable", "NO_EXCHANGE", message)
    }

    /// `wanted` says that one of our own groups is bound to the message.
    fn of(error: &PublishError, wanted: bool) -> Fault {
        let reason = match error {
            PublishError::Unroutable { .. } if wanted => {
                let reason = "a queue or binding is missing: declare the topology";
                return Fault::new(About::Us, reason, "NOT_BOUND", error.to_string());
            }
            PublishError::Unroutable { .. } => "unroutable",
            PublishError::TooLarge { .. } => "too_large",
            PublishError::Malformed { .. } | PublishError::Rejected { .. } => "malformed",
            PublishError::Unreachable(_) => "the bus cannot be reached",
            PublishError::Blocked => "the broker is short of memory or disk",
            PublishError::Unconfirmed(_) => "the bus does not confirm",
            PublishError::Refused => "the broker refuses messages",
            PublishError::Misconfigured(_) | PublishError::NoTopic(_) => {
                "an exchange is missing or not allowed: declare the topology"
            }
        };
        Fault::new(error.about(), reason, error.code(), error.to_string())
    }
}

/// Publishes what the relay claims.
pub(super) struct Deliver {
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) routes: Routes,
    pub(super) trouble: Trouble,
}

impl Handler<Outgoing> for Deliver {
    async fn handle(&self, batch: Batch<Outgoing>) -> Verdict {
        let spans = Spans::relay_publish(batch.items.iter().map(|item| item.row.parent));
        let mut lanes = Vec::with_capacity(batch.items.len());
        let mut names = Vec::with_capacity(batch.items.len());
        let mut faults: Vec<Option<Fault>> = Vec::with_capacity(batch.items.len());
        let mut wanted = Vec::new();
        let mut messages = Vec::new();
        for item in batch.items {
            let Outgoing { mut message, parent } = item.row;
            lanes.push(item.lane);
            names.push((message.message_id.clone(), message.headers.get("trace_id").cloned()));
            if !self.routes.exchanges.contains(&message.exchange) {
                faults.push(Some(Fault::no_exchange(&message.exchange)));
                continue;
            }
            faults.push(None);
            let own = spans.of(parent).to_string();
            message.headers.insert("traceparent".to_owned(), own);
            wanted.push(self.routes.wants(&message));
            messages.push(message);
        }
        let publish = async {
            let results = match messages.is_empty() {
                true => Vec::new(),
                false => self.publisher.publish(messages).await,
            };
            let lost = PublishError::Unconfirmed("no result".into());
            let mut results = results.into_iter().zip(wanted);
            for fault in faults.iter_mut().filter(|fault| fault.is_none()) {
                *fault = match results.next() {
                    Some((Ok(()), _)) => None,
                    Some((Err(error), wanted)) => Some(Fault::of(&error, wanted)),
                    None => Some(Fault::of(&lost, false)),
                };
            }
            let (verdict, held) = judge(&lanes, faults);
            self.trouble.met(held.map(|fault| fault.reason));
            report(&verdict, &names);
            verdict
        };
        publish.instrument(spans.first()).await
    }
}

/// What the rows come to, and a fault that holds some of them: one of ours, whatever else there is. Rows of a lane stand next to
/// each other.
fn judge(lanes: &[Lane], faults: Vec<Option<Fault>>) -> (Verdict, Option<Fault>) {
    let holds = |about: About| faults.iter().flatten().find(|fault| fault.about == about).cloned();
    let held = holds(About::Us).or_else(|| holds(About::Destination));
    (Verdict::in_order(lanes, faults.into_iter().map(sent)), held)
}

fn sent(fault: Option<Fault>) -> Sent {
    let Some(Fault { about, reason, code, message }) = fault else { return Sent::Done };
    match about {
        About::Message => {
            let (reason, code) = (reason.to_owned(), code.to_owned());
            Sent::Failed(Outcome::Bury { reason, code, message })
        }
        About::Destination => Sent::Held { why: message, retry_after: None },
        About::Us => Sent::Held { why: message, retry_after: Some(OUR_PAUSE) },
    }
}

/// Dead letters of one batch that the log names one by one; `holdfast relay list` has all.
const NAMED_IN_LOG: usize = 20;

/// The event's id, and its `trace_id` where it has one.
type Name = (String, Option<String>);

fn report(verdict: &Verdict, names: &[Name]) {
    let count = |wanted: fn(&Outcome) -> bool| {
        verdict.outcomes.iter().filter(|outcome| wanted(outcome)).count()
    };
    let published = count(|outcome| matches!(outcome, Outcome::Done));
    let buried = count(|outcome| matches!(outcome, Outcome::Bury { .. }));
    tracing::debug!(
        published,
        buried,
        held = verdict.outcomes.len() - published - buried,
        "relayed"
    );
    let named = verdict.outcomes.iter().zip(names).filter_map(|(outcome, name)| match outcome {
        Outcome::Bury { reason, code, .. } => Some((reason, code, name)),
        _ => None,
    });
    for (reason, code, (event_id, trace_id)) in named.take(NAMED_IN_LOG) {
        tracing::warn!(
            event_id,
            trace_id,
            reason,
            code,
            "an event that cannot be published is a dead letter now"
        );
    }
    if buried > NAMED_IN_LOG {
        tracing::warn!(buried, "more events that cannot be published are dead letters now");
    }
}

/// What the last publish met, for readiness. Cloning it shares it.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    readiness: Readiness,
    publish: Arc<Mutex<Option<&'static str>>>,
}

/// The part of [`Readiness`] that the relay reports.
pub(super) const PART: &str = "relay";

impl Trouble {
    pub(super) fn new(readiness: Readiness) -> Trouble {
        Trouble { readiness, publish: Arc::default() }
    }

    /// A publish met this, or nothing.
    fn met(&self, words: Option<&'static str>) {
        *self.publish.lock().unwrap_or_else(PoisonError::into_inner) = words;
        self.readiness.report(PART, words.map_or(Ok(()), |words| Err(words.to_owned())));
    }

    /// A look at the table found whether rows are due, and whether they move.
    pub(super) fn looked(&self, due: bool, stalled: bool) {
        let mut publish = self.publish.lock().unwrap_or_else(PoisonError::into_inner);
        if !due {
            // Another relay has published what this one could not; there is nothing left to fail at.
            *publish = None;
        }
        let words = match *publish {
            Some(words) => Err(words.to_owned()),
            None if stalled => Err("events are due and none is published".to_owned()),
            None => Ok(()),
        };
        self.readiness.report(PART, words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(key: &str) -> Lane {
        Lane { tenant: "t".into(), rank: 0, key: key.into() }
    }

    fn fault(error: PublishError) -> Option<Fault> {
        Some(Fault::of(&error, false))
    }

    fn kinds(verdict: &Verdict) -> String {
        let kind = |outcome: &Outcome| match outcome {
            Outcome::Done => 'd',
            Outcome::Bury { .. } => 'b',
            Outcome::NotTried => '-',
            Outcome::Retry { .. } => 'r',
        };
        verdict.outcomes.iter().map(kind).collect()
    }

    #[test]
    fn a_bad_message_is_buried_and_its_lane_goes_on() {
        let lanes = [lane("a"), lane("a"), lane("a"), lane("b")];
        let too_large = fault(PublishError::TooLarge { bytes: 2, limit: 1 });
        let (verdict, held) = judge(&lanes, vec![None, too_large, None, None]);
        assert_eq!((kinds(&verdict).as_str(), held), ("dbdd", None));
        assert!(verdict.down.is_none());
        let expected = Outcome::Bury {
            reason: "too_large".to_owned(),
            code: "TOO_LARGE".to_owned(),
            message: "the body has 2 bytes, the limit is 1".to_owned(),
        };
        assert_eq!(verdict.outcomes[1], expected);
    }

    #[test]
    fn behind_a_held_row_its_lane_waits_even_where_it_was_confirmed() {
        let lanes = [lane("a"), lane("a"), lane("a"), lane("b"), lane("b")];
        let refused = || fault(PublishError::Refused);
        let bad = fault(PublishError::Malformed { what: "key", problem: "is long" });
        let (verdict, held) = judge(&lanes, vec![None, refused(), None, None, bad]);
        assert_eq!(kinds(&verdict), "d--db");
        assert_eq!(held.map(|fault| fault.code), Some("REFUSED"));
        assert_eq!(verdict.down.unwrap().retry_after, None);
    }

    #[test]
    fn a_fault_of_ours_buries_nothing_and_is_the_one_that_is_said() {
        let lanes = [lane("a"), lane("b"), lane("c")];
        let unroutable =
            PublishError::Unroutable { exchange: "e".to_owned(), routing_key: "k".to_owned() };
        let ours = Some(Fault::of(&unroutable, true));
        let (verdict, held) = judge(&lanes, vec![fault(PublishError::Blocked), ours, None]);
        assert_eq!(kinds(&verdict), "--d");
        assert_eq!(held.map(|fault| fault.about), Some(About::Us));
        assert_eq!(verdict.down.unwrap().retry_after, Some(OUR_PAUSE));
        let foreign = Fault::of(&unroutable, false);
        assert_eq!((foreign.about, foreign.reason), (About::Message, "unroutable"));
    }
}
