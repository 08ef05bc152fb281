//! Messages that were given up, as data.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::Instant;

use crate::{Cause, Message, topic};

/// One entry of the broker's own record of a message's way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Death {
    /// The queue it left.
    pub queue: String,
    /// Why: `expired`, `rejected`, `delivery_limit`, `maxlen`.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// A message that a consumer group gave up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message, as it was published.
    pub message: Message,
    /// The work queue or group that gave it up; not known for a message that somebody else put there.
    pub queue: Option<String>,
    /// Why.
    pub cause: Cause,
    /// How often it failed.
    pub attempts: u32,
    /// How often it was replayed before.
    pub replayed: u32,
    /// When it was given up.
    pub dead_lettered_at: Option<Timestamp>,
    /// The broker's record; empty on the inline bus.
    pub deaths: Vec<Death>,
}

/// Where the inline bus puts messages that were given up. The caller has the table.
pub trait DeadLetters: Send + Sync {
    /// Keeps a dead letter; returns when it is durable. The same one may come again. An error, in words
    /// without payload, makes it come again later.
    fn store(&self, letter: DeadLetter) -> BoxFuture<'_, Result<(), String>>;
}

/// Which dead letters are meant. What is absent does not matter; what is there must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// One of these ids.
    pub message_ids: Option<BTreeSet<String>>,
    /// Given up by this queue or group.
    pub queue: Option<String>,
    /// For this cause.
    pub cause_code: Option<String>,
    /// With a routing key that this pattern matches.
    pub routing_key: Option<String>,
    /// Given up at this time or later; one without a time does not match.
    pub since: Option<Timestamp>,
    /// Given up before this time; one without a time does not match.
    pub until: Option<Timestamp>,
    /// The caller's own test, of what the bus does not know: whose message it is, say.
    pub test: Option<Test>,
}

/// A test of a dead letter that the caller brings.
#[derive(Clone)]
pub struct Test(Arc<dyn Fn(&DeadLetter) -> bool + Send + Sync>);

impl Test {
    /// A test.
    pub fn new(test: impl Fn(&DeadLetter) -> bool + Send + Sync + 'static) -> Test {
        Test(Arc::new(test))
    }
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Test")
    }
}

/// Two tests are the same when they are one.
impl PartialEq for Test {
    fn eq(&self, other: &Test) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Test {}

impl Filter {
    /// True when the dead letter is meant.
    pub fn matches(&self, letter: &DeadLetter) -> bool {
        let at = letter.dead_lettered_at;
        self.message_ids.as_ref().is_none_or(|ids| ids.contains(&letter.message.message_id))
            && self.queue.as_ref().is_none_or(|queue| letter.queue.as_ref() == Some(queue))
            && self.cause_code.as_ref().is_none_or(|code| letter.cause.code == *code)
            && self
                .routing_key
                .as_ref()
                .is_none_or(|pattern| topic::matches(pattern, &letter.message.routing_key))
            && self.since.is_none_or(|since| at.is_some_and(|at| at >= since))
            && self.until.is_none_or(|until| at.is_some_and(|at| at < until))
            && self.test.as_ref().is_none_or(|Test(test)| test(letter))
    }
}

/// Dead letters of one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseGroup {
    /// The queue or group that gave them up.
    pub queue: Option<String>,
    /// Why.
    pub cause_code: String,
    /// Their routing key.
    pub routing_key: String,
    /// How many.
    pub count: u64,
    /// The first time among them.
    pub first_at: Option<Timestamp>,
    /// The last time among them.
    pub last_at: Option<Timestamp>,
    /// One of them, to look at.
    pub sample_id: String,
    /// What that one says.
    pub sample_message: String,
}

/// Groups dead letters by queue, cause and routing key; the largest group first.
pub fn by_cause<'a>(letters: impl IntoIterator<Item = &'a DeadLetter>) -> Vec<CauseGroup> {
    by_cause_and(letters, |_| ()).into_iter().map(|((), group)| group).collect()
}

/// The same, and by what `key` says besides.
pub(crate) fn by_cause_and<'a, K: Ord>(
    letters: impl IntoIterator<Item = &'a DeadLetter>,
    key: impl Fn(&DeadLetter) -> K,
) -> Vec<(K, CauseGroup)> {
    let mut groups: BTreeMap<_, CauseGroup> = BTreeMap::new();
    for letter in letters {
        let by = (&letter.queue, &letter.cause.code, &letter.message.routing_key);
        let group = groups.entry((key(letter), by)).or_insert_with(|| CauseGroup {
            queue: letter.queue.clone(),
            cause_code: letter.cause.code.clone(),
            routing_key: letter.message.routing_key.clone(),
            count: 0,
            first_at: None,
            last_at: None,
            sample_id: letter.message.message_id.clone(),
            sample_message: letter.cause.message.clone(),
        });
        group.count += 1;
        if let Some(at) = letter.dead_lettered_at {
            group.first_at = Some(group.first_at.map_or(at, |first| first.min(at)));
            group.last_at = Some(group.last_at.map_or(at, |last| last.max(at)));
        }
    }
    let mut groups: Vec<(K, CauseGroup)> =
        groups.into_iter().map(|((key, _), group)| (key, group)).collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    groups
}

#[derive(Serialize)]
struct Exported<'a> {
    message_id: &'a str,
    exchange: &'a str,
    routing_key: &'a str,
    key: Option<&'a str>,
    content_type: Option<&'a str>,
    queue: Option<&'a str>,
    cause: &'a Cause,
    attempts: u32,
    replayed: u32,
    dead_lettered_at: Option<Timestamp>,
    deaths: &'a [Death],
    headers: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_hex: Option<String>,
}

/// A dead letter as one line of JSON, body included, without the line's end.
pub fn export_line(letter: &DeadLetter) -> Result<String, serde_json::Error> {
    let message = &letter.message;
    let body = std::str::from_utf8(&message.body).ok();
    let body_hex =
        body.is_none().then(|| message.body.iter().map(|byte| format!("{byte:02x}")).collect());
    serde_json::to_string(&Exported {
        message_id: &message.message_id,
        exchange: &message.exchange,
        routing_key: &message.routing_key,
        key: message.key.as_deref(),
        content_type: message.content_type.as_deref(),
        queue: letter.queue.as_deref(),
        cause: &letter.cause,
        attempts: letter.attempts,
        replayed: letter.replayed,
        dead_lettered_at: letter.dead_lettered_at,
        deaths: &letter.deaths,
        headers: &message.headers,
        body,
        body_hex,
    })
}

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Those that were meant, oldest first.
    pub letters: Vec<DeadLetter>,
    /// How many were looked at.
    pub scanned: u64,
    /// How many there were when the look began.
    pub total: u64,
}

/// The most messages of a replay that go together; fewer when the rate is lower.
const REPLAY_CHUNK: u32 = 100;

/// Keeps a replay to its rate: the first go at once, and the others when those before them have had their time.
#[derive(Debug)]
pub struct Pace {
    per_second: u32,
    started: Instant,
    gone: u32,
}

impl Pace {
    /// So many in a second from now on, at least one.
    pub fn new(per_second: u32) -> Pace {
        Pace { per_second: per_second.max(1), started: Instant::now(), gone: 0 }
    }

    /// How many go together.
    pub fn chunk(&self) -> usize {
        self.per_second.min(REPLAY_CHUNK) as usize
    }

    /// Waits until it is the turn of the next `count`; none need no turn.
    pub async fn turn(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let span = f64::from(self.gone) / f64::from(self.per_second);
        tokio::time::sleep_until(self.started + Duration::from_secs(1).mul_f64(span)).await;
        self.gone = self.gone.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    }
}

/// How a replay goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Which.
    pub filter: Filter,
    /// The most that are replayed.
    pub limit: usize,
    /// The most in a second.
    pub per_second: u32,
    /// Reports what it would do, and does nothing.
    pub dry_run: bool,
}

impl Default for ReplayOptions {
    fn default() -> ReplayOptions {
        ReplayOptions { filter: Filter::default(), limit: 10_000, per_second: 100, dry_run: true }
    }
}

/// What a replay did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many were looked at.
    pub scanned: u64,
    /// Ids of those that went back to their queue; in a dry run, that would.
    pub replayed: Vec<String>,
    /// Ids of those that stay, and why: the queue is not known, or is gone, or did not confirm.
    pub kept: Vec<(String, String)>,
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many were looked at.
    pub seen: u64,
    /// How many there were, as far as is known.
    pub total: u64,
    /// Of those looked at, how many are meant.
    pub matched: u64,
    /// Of these, how many went back; in a dry run, would.
    pub changed: u64,
}

impl Progress {
    /// Of a report so far, where there were `total`.
    pub fn of(total: u64, report: &Replayed) -> Progress {
        let (changed, kept) = (report.replayed.len() as u64, report.kept.len() as u64);
        Progress { seen: report.scanned, total, matched: changed + kept, changed }
    }

    /// Both together.
    pub(crate) fn and(self, other: Progress) -> Progress {
        Progress {
            seen: self.seen + other.seen,
            total: self.total + other.total,
            matched: self.matched + other.matched,
            changed: self.changed + other.changed,
        }
    }

    /// The same; a replay that changes nothing has changed nothing.
    pub(crate) fn changing(self, changes: bool) -> Progress {
        Progress { changed: if changes { self.changed } else { 0 }, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(id: &str, code: &str, second: i64) -> DeadLetter {
        DeadLetter {
            message: Message::json("e", "telemetry.ingested", id, "{}"),
            queue: Some("q".to_owned()),
            cause: Cause::new(code, "why"),
            attempts: 2,
            replayed: 0,
            dead_lettered_at: Timestamp::from_second(second).ok(),
            deaths: Vec::new(),
        }
    }

    #[test]
    fn groups_say_how_many_and_when() {
        let letters = [letter("1", "a", 5), letter("2", "b", 3), letter("3", "b", 9)];
        let groups = by_cause(&letters);
        let seen: Vec<_> = groups.iter().map(|g| (g.cause_code.as_str(), g.count)).collect();
        assert_eq!(seen, [("b", 2), ("a", 1)]);
        assert_eq!(groups[0].first_at, Timestamp::from_second(3).ok());
        assert_eq!(groups[0].last_at, Timestamp::from_second(9).ok());
        assert_eq!(groups[0].sample_id, "2");
    }

    #[test]
    fn every_part_of_a_filter_must_hold() {
        let one = letter("1", "a", 5);
        let at = |second| Timestamp::from_second(second).ok();
        let some = |text: &str| Some(text.to_owned());
        let all = Filter {
            message_ids: Some(["1".to_owned()].into()),
            queue: some("q"),
            cause_code: some("a"),
            routing_key: some("telemetry.*"),
            since: at(5),
            until: at(6),
            test: Some(Test::new(|letter| letter.attempts == 2)),
        };
        assert!(all.matches(&one) && Filter::default().matches(&one));
        for wrong in [
            Filter { message_ids: Some(["2".to_owned()].into()), ..all.clone() },
            Filter { queue: some("p"), ..all.clone() },
            Filter { cause_code: some("b"), ..all.clone() },
            Filter { routing_key: some("media.*"), ..all.clone() },
            Filter { since: at(6), ..all.clone() },
            Filter { until: at(5), ..all.clone() },
            Filter { test: Some(Test::new(|letter| letter.attempts == 3)), ..all.clone() },
        ] {
            assert!(!wrong.matches(&one), "{wrong:?}");
        }
    }

    #[test]
    fn an_export_has_the_body_byte_for_byte() {
        let mut one = letter("1", "a", 5);
        one.message.body = bytes::Bytes::from_static(b"{ \"a\" : 1.50 }");
        let line: serde_json::Value = serde_json::from_str(&export_line(&one).unwrap()).unwrap();
        assert_eq!(line["body"], "{ \"a\" : 1.50 }");
        one.message.body = bytes::Bytes::from_static(b"\xff\x00");
        let line: serde_json::Value = serde_json::from_str(&export_line(&one).unwrap()).unwrap();
        assert_eq!(line["body_hex"], "ff00");
    }
}
