//! Finding the record that the database refuses, so that its neighbours get through.
//!
//! The messages are halved, then the batch that is left, until one record remains; it goes to
//! quarantine as `refused_by_database` and its sequence counts as received. Every part commits on
//! its own, and all of them before anything is acknowledged.

use super::check::{Checked, Content, Event, Item, Refused};
use super::write::{Committed, Error, Writer};
use super::{Reason, Refusal};

use pg::About;

impl Writer {
    /// Commits messages of which at least one makes the transaction fail.
    pub(super) async fn isolate(&self, messages: &[Checked]) -> Result<Committed, Error> {
        let mut total = Committed::default();
        let mut parts = vec![messages.to_vec()];
        // Each step halves a part or sets a record aside, so this ends.
        while let Some(part) = parts.pop() {
            match self.transact(&part).await {
                Ok(committed) => total.add(committed),
                Err(error) if error.about() == About::Data => match halve(part, &error) {
                    Some(halves) => parts.extend(halves.into_iter().rev()),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

/// The part in two, or with its one record set aside. `None` if there is nothing left to set aside.
fn halve(mut part: Vec<Checked>, error: &Error) -> Option<Vec<Vec<Checked>>> {
    if part.len() > 1 {
        let rest = part.split_off(part.len() / 2);
        return Some(vec![part, rest]);
    }
    let message = part.pop()?;
    let with = |content| Checked { content, ..message.clone() };
    let content = match message.content.clone() {
        Content::Batch { epoch, mut records, mut gaps } => {
            let more_records = records.split_off(records.len() / 2);
            if !records.is_empty() {
                let first = with(Content::Batch { epoch, records, gaps });
                let second = Content::Batch { epoch, records: more_records, gaps: vec![] };
                return Some(vec![vec![first], vec![with(second)]]);
            }
            if !gaps.is_empty() && (!more_records.is_empty() || gaps.len() > 1) {
                let kept = if more_records.is_empty() { gaps.len() / 2 } else { 0 };
                let more_gaps = gaps.split_off(kept);
                let first = with(Content::Batch { epoch, records: more_records, gaps });
                let second = Content::Batch { epoch, records: vec![], gaps: more_gaps };
                return Some(vec![vec![first], vec![with(second)]]);
            }
            match more_records.into_iter().next() {
                Some(mut record) => {
                    record.item = set_aside(&record.item, error)?;
                    Content::Batch { epoch, records: vec![record], gaps }
                }
                None => refused(error),
            }
        }
        Content::Event(item) => Content::Event(set_aside(&item, error)?),
        Content::Status(_) => refused(error),
        Content::Refused(_) => return None,
    };
    Some(vec![vec![with(content)]])
}

fn set_aside(item: &Item, error: &Error) -> Option<Item> {
    match item {
        Item::Valid(event) => {
            let Event { envelope, .. } = event.as_ref();
            let id = Some(envelope.event_id);
            Some(Item::bad(refusal(error), id, envelope.to_json().as_bytes()))
        }
        Item::Bad(_) => None,
    }
}

fn refused(error: &Error) -> Content {
    Content::Refused(Refused {
        refusal: refusal(error),
        body: bytes::Bytes::new(),
        body_bytes: 0,
        only_copy: false,
    })
}

/// The state and the constraint alone: the server's message may repeat a value.
fn refusal(error: &Error) -> Refusal {
    let answer = match error {
        Error::Database(pg::Error::Postgres(error)) => error.as_db_error(),
        _ => None,
    };
    let detail = match answer {
        None => "the database refuses it".to_owned(),
        Some(answer) => match answer.constraint() {
            Some(constraint) => format!("SQLSTATE {}, {constraint}", answer.code().code()),
            None => format!("SQLSTATE {}", answer.code().code()),
        },
    };
    Refusal::new(Reason::Refused, detail)
}
