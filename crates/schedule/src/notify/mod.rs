//! What people are told: messages, their ids and their words. Pure.
//!
//! Promises: the same session and changes give the same ids and the same text. A message is bounded: at most [`MAX_LINES`] lines of shifts.
//! It must not know how a message is delivered.

mod language;

use jiff::civil::Date;
use uuid::Uuid;

use crate::canonical::Shift;
use crate::diff::{Change, EventType};
pub use language::Language;

/// Up to so many changed shifts are told one by one.
pub const MAX_SINGLE: usize = 3;
/// The most lines of a summary.
pub const MAX_LINES: usize = 10;

/// Which sort of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationType {
    /// One shift.
    Event,
    /// A day.
    Summary,
}

impl NotificationType {
    /// Its name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            NotificationType::Event => "event",
            NotificationType::Summary => "summary",
        }
    }
}

/// A message as it is queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The same for the same session and change.
    pub notification_id: String,
    /// Which sort.
    pub notification_type: NotificationType,
    /// The words.
    pub message: String,
    /// The events it tells of.
    pub event_ids: Vec<Uuid>,
}

/// What a session found.
#[derive(Debug, Clone, Copy)]
pub struct News<'a> {
    /// The session.
    pub session: Uuid,
    /// The day.
    pub schedule_date: Date,
    /// True when the day had no version before.
    pub first: bool,
    /// What changed, each with the ids of its events.
    pub changes: &'a [(Change, Vec<Uuid>)],
    /// The day's shifts now.
    pub shifts: &'a [Shift],
}

/// The messages for a session's news.
pub fn notifications(news: &News<'_>, language: Language) -> Vec<Notification> {
    let session = news.session;
    let summary = |message: String| Notification {
        notification_id: format!("summary:{session}"),
        notification_type: NotificationType::Summary,
        message,
        event_ids: news.changes.iter().flat_map(|(_, ids)| ids.iter().copied()).collect(),
    };
    let words = language.words();
    let date = language.date(news.schedule_date);
    if news.first {
        if news.shifts.is_empty() {
            return vec![summary(fill(words.free, &[("date", &date)]))];
        }
        let lines: Vec<String> = news.shifts.iter().map(|shift| listed(shift, language)).collect();
        return vec![summary(list(fill(words.first, &[("date", &date)]), &lines, language))];
    }
    if news.changes.len() > MAX_SINGLE {
        let count = news.changes.len().to_string();
        let heading = fill(words.many, &[("count", &count), ("date", &date)]);
        let lines: Vec<String> =
            news.changes.iter().map(|(change, _)| told(change, &date, language)).collect();
        return vec![summary(list(heading, &lines, language))];
    }
    let event = |(change, ids): &(Change, Vec<Uuid>)| {
        let first = ids.first()?;
        Some(Notification {
            notification_id: format!("event:{session}:{first}"),
            notification_type: NotificationType::Event,
            message: told(change, &date, language),
            event_ids: ids.clone(),
        })
    };
    news.changes.iter().filter_map(event).collect()
}

/// A change in a sentence, as a message tells it.
pub fn sentence(change: &Change, schedule_date: Date, language: Language) -> String {
    told(change, &language.date(schedule_date), language)
}

/// A shift in a few words: `08:00–16:30 Nurse at Ward 3`.
pub fn line(shift: &Shift, language: Language) -> String {
    listed(shift, language)
}

fn list(heading: String, lines: &[String], language: Language) -> String {
    let mut text = heading;
    for line in lines.iter().take(MAX_LINES) {
        text.push_str("\n• ");
        text.push_str(line);
    }
    if let Some(more @ 1..) = lines.len().checked_sub(MAX_LINES) {
        text.push('\n');
        text.push_str(&fill(language.words().more, &[("count", &more.to_string())]));
    }
    text
}

/// A shift in a list: `08:00–16:30 Nurse at Ward 3`.
fn listed(shift: &Shift, language: Language) -> String {
    format!("{} {}", span(shift, language), what(shift, language))
}

/// A change as a sentence.
fn told(change: &Change, date: &str, language: Language) -> String {
    let words = language.words();
    let span = |shift: &Shift| span(shift, language);
    match (&change.old, &change.new) {
        (None, None) => String::new(),
        (None, Some(new)) => fill(
            words.added,
            &[("date", date), ("what", &what(new, language)), ("new", &span(new))],
        ),
        (Some(old), None) => fill(
            words.removed,
            &[("date", date), ("what", &what(old, language)), ("old", &span(old))],
        ),
        (Some(old), Some(new)) => {
            let parts: Vec<String> =
                change.types.iter().map(|aspect| part(*aspect, old, new, language)).collect();
            let name = title(old, language);
            // The times say which shift it is, unless they are what changed.
            let which = match change.types.contains(&EventType::ShiftTimeChanged) {
                true => name,
                false => format!("{name} {}", span(old)),
            };
            let (date, changes) = (capital(date), parts.join(", "));
            fill(words.changed, &[("date", &date), ("which", &which), ("changes", &changes)])
        }
    }
}

fn part(aspect: EventType, old: &Shift, new: &Shift, language: Language) -> String {
    let words = language.words();
    match aspect {
        EventType::ShiftTimeChanged => {
            fill(words.moved, &[("old", &span(old, language)), ("new", &span(new, language))])
        }
        EventType::ShiftRelocated => fill(
            words.relocated,
            &[("place", &place(new, language)), ("old_place", &place(old, language))],
        ),
        EventType::ShiftRetitled => fill(words.retitled, &[("new_title", &title(new, language))]),
        EventType::ShiftReclassified => fill(
            words.reclassified,
            &[("new_kind", &capitals(&new.kind)), ("old_kind", &capitals(&old.kind))],
        ),
        EventType::ShiftAdded | EventType::ShiftRemoved => String::new(),
    }
}

fn title(shift: &Shift, language: Language) -> String {
    let given = if shift.title.is_empty() { language.words().shift } else { &shift.title };
    capitals(given)
}

fn what(shift: &Shift, language: Language) -> String {
    let title = title(shift, language);
    if shift.location.is_empty() && shift.customer.is_empty() {
        return title;
    }
    fill(language.words().at, &[("what", &title), ("place", &place(shift, language))])
}

fn place(shift: &Shift, language: Language) -> String {
    let (location, customer) = (capitals(&shift.location), capitals(&shift.customer));
    match (location.is_empty(), customer.is_empty()) {
        (true, true) => language.words().nowhere.to_owned(),
        (false, true) => location,
        (true, false) => customer,
        (false, false) => {
            fill(language.words().customer, &[("place", &location), ("customer", &customer)])
        }
    }
}

fn span(shift: &Shift, language: Language) -> String {
    let Shift { start, end, .. } = shift;
    match (shift.ends_next_day, end.as_str()) {
        (true, "00:00") => format!("{start}–24:00"),
        (true, _) => format!("{start}–{end} {}", language.words().next_day),
        (false, _) => format!("{start}–{end}"),
    }
}

/// Each word with a capital letter: the canonical form has none.
fn capitals(text: &str) -> String {
    text.split(' ').map(capital).collect::<Vec<_>>().join(" ")
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Fills the places of a template, each once and in one pass, so that a value with braces is not taken for a place.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        let value = values.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value);
        text.push_str(value);
        rest = behind;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests;
