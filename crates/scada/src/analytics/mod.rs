//! Edge analytics: derived tags, and compression of what a straight line tells. docs/spec/scada-analytics.md is the contract.
//!
//! Promises: linear interpolation between the readings that are sent is within the rule's deviation of every reading that is left
//! out; `readings = kept + reduced` in the ledger after every commit. Pure and synchronous but for [`count`], which writes in the
//! caller's transaction; time is passed in.
//!
//! It must not know where readings come from nor where they go. It fails only for a rules file that cannot work.

mod counts;
mod derive;
mod door;
mod ledger;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::Duration;

use event::QualityCode;
use event::id::EventId;
use event::scada::{Category, Envelope};
use jiff::{SignedDuration, Timestamp};

pub use counts::{Counts, SeriesDay, Tally};
use derive::{AnomalyScore, MovingAverage, RateOfChange};
use door::Door;
pub use ledger::count;
pub use rules::{Anomaly, Average, Compress, Over, Per, Rate, Rule, Rules};

/// The most readings that a window holds.
pub const MAX_WINDOW_READINGS: usize = 10_000;

/// What is left of a cycle, and what became of the rest. Both are written in one transaction.
#[derive(Debug, Clone, Default)]
pub struct Reduced {
    /// What is to be written to the outbox, in order.
    pub envelopes: Vec<Envelope>,
    /// What goes to the ledger with them.
    pub counts: Counts,
}

impl Reduced {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.envelopes.is_empty() && self.counts.is_empty()
    }
}

/// Applies the rules to the readings of many series. One series is one tag of one asset of one node; there are as many as there
/// are tags configured.
#[derive(Debug, Default)]
pub struct Reducer {
    rules: Rules,
    series: HashMap<(u16, String), Series>,
}

/// What is remembered of a tag that has a rule.
#[derive(Debug)]
struct Series {
    average: Option<MovingAverage>,
    rate: Option<RateOfChange>,
    anomaly: Option<AnomalyScore>,
    door: Option<Door>,
}

impl Reducer {
    /// A reducer with these rules, that has seen nothing.
    pub fn new(rules: Rules) -> Reducer {
        Reducer { rules, series: HashMap::new() }
    }

    /// What is to be written of a cycle. `now` is the clock's time: a reading that is held for too long is sent with the next cycle,
    /// whatever that brings.
    pub fn apply(&mut self, cycle: Vec<Envelope>, now: Timestamp) -> Reduced {
        let mut reduced = Reduced::default();
        for reading in cycle {
            if reading.category == Category::Telemetry {
                self.reading(reading, now, &mut reduced);
            } else {
                reduced.envelopes.push(reading);
            }
        }
        for held in self.doors().filter_map(|door| door.overdue(now)) {
            reduced.counts.sent(&held);
            reduced.envelopes.push(held);
        }
        reduced
    }

    /// The same for the readings of inputs, which have left some out already.
    pub fn apply_counted(
        &mut self,
        cycle: Vec<Envelope>,
        left_out: &Counts,
        now: Timestamp,
    ) -> Reduced {
        let mut reduced = self.apply(cycle, now);
        reduced.counts.merge(left_out);
        reduced
    }

    /// Everything that is held: at an orderly stop, after the last cycle.
    pub fn flush(&mut self) -> Reduced {
        let mut reduced = Reduced::default();
        for held in self.doors().filter_map(Door::flush) {
            reduced.counts.sent(&held);
            reduced.envelopes.push(held);
        }
        reduced
    }

    fn doors(&mut self) -> impl Iterator<Item = &mut Door> {
        self.series.values_mut().filter_map(|series| series.door.as_mut())
    }

    fn reading(&mut self, reading: Envelope, now: Timestamp, reduced: &mut Reduced) {
        reduced.counts.read(&reading);
        let Some(rule) = self.rules.by_tag.get(&reading.tag) else {
            reduced.counts.sent(&reading);
            reduced.envelopes.push(reading);
            return;
        };
        let key = (reading.node_id, reading.partition_key());
        let series = self.series.entry(key).or_insert_with(|| Series::new(rule));
        let made = series.derive(&reading);
        if !made.is_empty() {
            reduced.counts.derived(&reading, i64::try_from(made.len()).unwrap_or(i64::MAX));
        }
        let before = reduced.envelopes.len();
        match &mut series.door {
            Some(door) => door.offer(reading, now, &mut reduced.envelopes),
            None => reduced.envelopes.push(reading),
        }
        for sent in &reduced.envelopes[before..] {
            reduced.counts.sent(sent);
        }
        reduced.envelopes.extend(made);
    }
}

impl Series {
    fn new(rule: &Rule) -> Series {
        Series {
            average: rule.average.map(MovingAverage::new),
            rate: rule.rate.map(RateOfChange::new),
            anomaly: rule.anomaly.map(AnomalyScore::new),
            door: rule.compress.map(Door::new),
        }
    }

    fn derive(&mut self, reading: &Envelope) -> Vec<Envelope> {
        if matches!(reading.quality, QualityCode::Bad | QualityCode::Oor) {
            return Vec::new();
        }
        let (at, value) = (reading.timestamp, reading.value);
        let average = self.average.as_mut().and_then(|average| average.next(at, value));
        let rate = self.rate.as_mut().and_then(|rate| {
            let unit = format!("{}/{}", reading.unit, rate.rule.per.symbol());
            Some((rate.next(at, value)?, unit))
        });
        let anomaly = self.anomaly.as_mut().and_then(|anomaly| anomaly.next(at, value));
        [
            average.map(|value| ("AVG", value, reading.unit.clone())),
            rate.map(|(value, unit)| ("RATE", value, unit)),
            anomaly.map(|value| ("ANOMALY", value, String::new())),
        ]
        .into_iter()
        .flatten()
        .filter_map(|(suffix, value, unit)| derived(reading, suffix, value, unit))
        .collect()
    }
}

/// A reading made from another. `None` for a value that is not finite, as of the average of numbers at the end of their range.
fn derived(from: &Envelope, suffix: &str, value: f64, unit: String) -> Option<Envelope> {
    let tag = format!("{}_{suffix}", from.tag).parse().ok()?;
    let made = Envelope { event_id: EventId::mint(), tag, value, unit, ..from.clone() };
    if made.check().is_ok() {
        return Some(made);
    }
    let made = Envelope { unit: String::new(), ..made };
    made.check().is_ok().then_some(made)
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}
