//! The canonical form of a day: one form however the day was written. Pure.
//!
//! Promises: [`canonicalize`] is idempotent, and nothing that only changes how a day is written changes [`Day::hash`]. The form is
//! that of docs/spec/schedule.md, byte for byte. Its errors name entry and field, never their text, which may be personal.

mod date;
mod text;
mod time;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use serde::{Deserialize, Serialize};

use crate::digest;
use crate::observation::Observation;
pub use date::DateProblem;
pub(crate) use text::fold;
pub use time::TimeProblem;
pub(crate) use time::{DAY, read_ends};

/// The most entries of a day.
pub const MAX_ENTRIES: usize = 200;
/// The most characters of a field.
pub const MAX_FIELD_CHARS: usize = 200;
/// The kind of a shift that names none.
pub const REGULAR: &str = "regular";

/// A canonical day. Its fields are in the order of the canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// Which day.
    pub schedule_date: Date,
    /// Its shifts, in order, each once.
    pub shifts: Vec<Shift>,
    /// Where its clock stands.
    pub timezone: String,
}

/// A canonical shift. Its fields are in the order of the canonical JSON.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shift {
    /// For whom.
    pub customer: String,
    /// `HH:MM`.
    pub end: String,
    /// Whether `end` is on the day after.
    pub ends_next_day: bool,
    /// Which sort of shift.
    pub kind: String,
    /// Where.
    pub location: String,
    /// `HH:MM`.
    pub start: String,
    /// What is done.
    pub title: String,
}

/// Why an observation has no canonical form. Its words are for the person who made the capture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// The day.
    #[error("the date of the schedule {0}")]
    Date(DateProblem),
    /// The zone.
    #[error("the time zone of the schedule {0}")]
    Zone(DateProblem),
    /// The end of a line.
    #[error("entry {entry}: the {end} {problem}")]
    Time {
        /// Which line, from 1.
        entry: usize,
        /// `start` or `end`.
        end: &'static str,
        /// What is wrong.
        problem: TimeProblem,
    },
    /// A long field.
    #[error("entry {entry}: the {field} has more than {MAX_FIELD_CHARS} characters")]
    TooLong {
        /// Which line, from 1.
        entry: usize,
        /// Which field.
        field: &'static str,
    },
    /// A long day.
    #[error("the schedule has more than {MAX_ENTRIES} entries")]
    TooMany,
}

/// Gives an observation its canonical form.
pub fn canonicalize(seen: &Observation) -> Result<Day, CanonicalError> {
    if seen.entries.len() > MAX_ENTRIES {
        return Err(CanonicalError::TooMany);
    }
    let schedule_date =
        date::read_date(&fold(&seen.schedule_date)).map_err(CanonicalError::Date)?;
    let timezone = date::read_zone(&fold(&seen.timezone)).map_err(CanonicalError::Zone)?;
    let mut shifts = Vec::with_capacity(seen.entries.len());
    for (entry, raw) in (1..).zip(&seen.entries) {
        let field = |field: &'static str, text: &str| {
            // The limit holds before and after, because folding may make a text longer.
            let fits = |text: &str| text.chars().nth(MAX_FIELD_CHARS).is_none();
            let folded = if fits(text) { fold(text) } else { text.to_owned() };
            if fits(&folded) { Ok(folded) } else { Err(CanonicalError::TooLong { entry, field }) }
        };
        let (start, end) = (field("start", &raw.start)?, field("end", &raw.end)?);
        let (start, end) = read_ends(&start, &end)
            .map_err(|(end, problem)| CanonicalError::Time { entry, end, problem })?;
        let mut kind = field("kind", &raw.kind)?;
        if kind.is_empty() {
            REGULAR.clone_into(&mut kind);
        }
        shifts.push(Shift {
            customer: field("customer", &raw.customer)?,
            end: clock(end),
            ends_next_day: end >= DAY,
            kind,
            location: field("location", &raw.location)?,
            start: clock(start),
            title: field("title", &raw.title)?,
        });
    }
    in_order(&mut shifts);
    Ok(Day { schedule_date, shifts, timezone })
}

/// The order of the canonical form; the same shift twice is one.
fn in_order(shifts: &mut Vec<Shift>) {
    shifts.sort_by(|a, b| a.order().cmp(&b.order()));
    shifts.dedup();
}

fn clock(minutes: u16) -> String {
    format!("{:02}:{:02}", minutes % DAY / 60, minutes % 60)
}

impl Day {
    /// The canonical JSON.
    pub fn to_json(&self) -> String {
        // Strings, booleans and lists of them: nothing that could fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// `payload_hash`.
    pub fn hash(&self) -> String {
        digest::hex(self.to_json().as_bytes())
    }

    /// When a shift of this day begins and ends. A time that a clock change skips is read after it, one that comes twice is the first.
    pub fn instants(&self, shift: &Shift) -> Option<(Timestamp, Timestamp)> {
        let zone = date::zone(&self.timezone).ok()?;
        let at = |date: Date, time: &str| {
            let time = Time::strptime("%H:%M", time).ok()?;
            date.to_datetime(time).to_zoned(zone.clone()).ok().map(|at| at.timestamp())
        };
        let last = if shift.ends_next_day {
            self.schedule_date.tomorrow().ok()?
        } else {
            self.schedule_date
        };
        Some((at(self.schedule_date, &shift.start)?, at(last, &shift.end)?))
    }
}

impl Shift {
    pub(crate) fn order(&self) -> (&str, bool, &str, &str, &str, &str, &str) {
        let Shift { customer, end, ends_next_day, kind, location, start, title } = self;
        (start, *ends_next_day, end, title, location, customer, kind)
    }

    /// Start and end in minutes from the day's beginning.
    pub(crate) fn minutes(&self) -> (i64, i64) {
        let of = |text: &str| {
            let (hour, minute) = text.split_once(':').unwrap_or((text, "0"));
            hour.parse::<i64>().unwrap_or_default() * 60 + minute.parse::<i64>().unwrap_or_default()
        };
        let next_day = if self.ends_next_day { i64::from(DAY) } else { 0 };
        (of(&self.start), of(&self.end) + next_day)
    }

    /// The hash of a shift, or of its absence, in an event.
    pub fn value_hash(shift: Option<&Shift>) -> String {
        digest::hex(serde_json::to_string(&shift).unwrap_or_default().as_bytes())
    }
}

#[cfg(test)]
mod tests;
