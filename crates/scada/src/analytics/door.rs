//! Swinging door compression. Pure.
//!
//! Promise: linear interpolation between the readings that were sent is within the deviation of every reading that was left out.

use event::QualityCode;
use event::scada::Envelope;
use jiff::Timestamp;

use super::rules::Compress;
use super::{seconds_between, signed};

/// The door of one series.
#[derive(Debug)]
pub(super) struct Door {
    rule: Compress,
    run: Option<Run>,
}

/// What was seen since the anchor.
#[derive(Debug)]
struct Run {
    anchor: Timestamp,
    anchor_value: f64,
    /// When the anchor was sent, by the clock.
    sent_at: Timestamp,
    last: (Timestamp, f64, QualityCode),
    /// The newest reading, when it is not the anchor.
    held: Option<Envelope>,
    /// The slopes of the lines from the anchor that tell everything since it, the held reading included.
    low: f64,
    high: f64,
}

impl Door {
    pub(super) fn new(rule: Compress) -> Door {
        Door { rule, run: None }
    }

    /// Looks at a reading. What is to be sent now goes to `sent`: readings held until now, this one, both or none.
    pub(super) fn offer(&mut self, reading: Envelope, now: Timestamp, sent: &mut Vec<Envelope>) {
        let Some(run) = &mut self.run else {
            self.run = Some(Run::at(&reading, now));
            sent.push(reading);
            return;
        };
        let (at, value, quality) = run.last;
        let repeated = (reading.timestamp, reading.value, reading.quality) == (at, value, quality);
        if repeated {
            return;
        }
        if reading.timestamp <= at || reading.quality != quality {
            sent.extend(run.held.take());
            *run = Run::at(&reading, now);
            sent.push(reading);
            return;
        }
        if !run.fits(&reading) {
            // Only a reading after the anchor narrows the slopes, and the newest of those is held.
            if let Some(held) = run.held.take() {
                *run = Run::at(&held, now);
                sent.push(held);
            }
        }
        if reading.timestamp.duration_since(run.anchor) >= signed(self.rule.max_silence) {
            *run = Run::at(&reading, now);
            sent.push(reading);
        } else {
            run.hold(reading, self.rule.deviation);
        }
    }

    /// The held reading, when nothing was sent for too long by the clock.
    pub(super) fn overdue(&mut self, now: Timestamp) -> Option<Envelope> {
        let run = self.run.as_mut()?;
        if now.duration_since(run.sent_at) < signed(self.rule.max_silence) {
            return None;
        }
        let held = run.held.take()?;
        *run = Run::at(&held, now);
        Some(held)
    }

    /// The held reading, because nothing will come any more.
    pub(super) fn flush(&mut self) -> Option<Envelope> {
        self.run.take()?.held
    }
}

impl Run {
    /// A run that begins at a reading that is sent.
    fn at(reading: &Envelope, now: Timestamp) -> Run {
        Run {
            anchor: reading.timestamp,
            anchor_value: reading.value,
            sent_at: now,
            last: (reading.timestamp, reading.value, reading.quality),
            held: None,
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        }
    }

    /// Whether the line from the anchor to this reading tells everything between them.
    fn fits(&self, reading: &Envelope) -> bool {
        let slope =
            (reading.value - self.anchor_value) / seconds_between(self.anchor, reading.timestamp);
        (self.low..=self.high).contains(&slope)
    }

    fn hold(&mut self, reading: Envelope, deviation: f64) {
        let seconds = seconds_between(self.anchor, reading.timestamp);
        let rise = reading.value - self.anchor_value;
        self.low = self.low.max((rise - deviation) / seconds);
        self.high = self.high.min((rise + deviation) / seconds);
        self.last = (reading.timestamp, reading.value, reading.quality);
        self.held = Some(reading);
    }
}
