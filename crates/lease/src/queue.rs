//! A queue: a table of leased work with its owner's row type, and what a handler says of its rows.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use crate::id::RowId;
use crate::lanes::Lane;
use crate::statements::Statements;
use crate::table::Table;

/// Reads the owner's columns of a claimed row. They are found by name. The text of an error is
/// written to the row and must not repeat its values.
type ReadRow<T> = Box<dyn Fn(&Row) -> Result<T, String> + Send + Sync>;
type Destination = Box<dyn Fn(&Lane) -> String + Send + Sync>;

/// A table of leased work as the engine sees it.
pub struct Queue<T> {
    pub(crate) name: &'static str,
    pub(crate) table: Table,
    pub(crate) statements: Statements,
    pub(crate) channel: Option<&'static str>,
    pub(crate) read: ReadRow<T>,
    pub(crate) destination: Destination,
}

impl<T> Queue<T> {
    /// A queue on a table. `name` labels its metrics and logs.
    pub fn new(
        name: &'static str,
        table: Table,
        read: impl Fn(&Row) -> Result<T, String> + Send + Sync + 'static,
    ) -> Queue<T> {
        let statements = table.statements();
        let destination: Destination = Box::new(|_| String::new());
        Queue { name, table, statements, channel: None, read: Box::new(read), destination }
    }

    /// The channel that writers NOTIFY when they have added rows. Without one the queue is polled.
    pub fn channel(mut self, channel: &'static str) -> Queue<T> {
        self.channel = Some(channel);
        self
    }

    /// Where the rows of a lane go. Each destination has its own breaker, and a batch is for one
    /// destination. Without this all rows go to the same.
    pub fn destination(
        mut self,
        destination: impl Fn(&Lane) -> String + Send + Sync + 'static,
    ) -> Queue<T> {
        self.destination = Box::new(destination);
        self
    }
}

impl<T> std::fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}

/// One claimed row.
#[derive(Debug, Clone)]
pub struct Item<T> {
    /// Its id.
    pub id: RowId,
    /// Its lane.
    pub lane: Lane,
    /// How often it has failed already.
    pub attempts: u32,
    /// What the queue's reader made of it.
    pub row: T,
}

/// Rows claimed together, for one destination. Rows of a lane are next to each other and in order.
#[derive(Debug)]
pub struct Batch<T> {
    /// The lease token they are held under.
    pub token: Uuid,
    /// Where they go; see [`Queue::destination`].
    pub destination: Arc<str>,
    /// True when this batch tests whether a destination that was down is back.
    pub probe: bool,
    /// The rows; never empty.
    pub items: Vec<Item<T>>,
}

/// What became of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered.
    Done,
    /// A verdict on this row: it failed, and may succeed later. Counts an attempt; the last one
    /// buries it.
    Retry {
        /// A code for machines.
        code: String,
        /// Words for people, without payload.
        message: String,
    },
    /// A verdict on this row: it will never succeed. Counts an attempt.
    Bury {
        /// Why, as a code for grouping.
        reason: String,
        /// A code for machines.
        code: String,
        /// Words for people, without payload.
        message: String,
    },
    /// Not tried, because an earlier row of its lane failed or the destination went away: it goes
    /// back untouched.
    NotTried,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// One for each row, in order. Missing ones count as [`Outcome::NotTried`].
    pub outcomes: Vec<Outcome>,
    /// Set when the destination could not be reached, after some of the rows or before all.
    pub down: Option<Down>,
}

/// A destination that could not be reached: no connection, timeout, overload, unauthorised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// Words for the log, without secrets.
    pub why: String,
    /// How long it asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Verdict {
    /// Every row was tried.
    pub fn each(outcomes: Vec<Outcome>) -> Verdict {
        Verdict { outcomes, down: None }
    }

    /// All rows of the batch were delivered.
    pub fn all_done<T>(batch: &Batch<T>) -> Verdict {
        Verdict::each(vec![Outcome::Done; batch.items.len()])
    }

    /// The destination is down and no row was delivered.
    pub fn down(why: impl Into<String>, retry_after: Option<Duration>) -> Verdict {
        Verdict { outcomes: Vec::new(), down: Some(Down { why: why.into(), retry_after }) }
    }
}

/// What a destination that answers for each message said of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    /// It is there.
    Done,
    /// A verdict on this row: [`Outcome::Retry`] or [`Outcome::Bury`].
    Failed(Outcome),
    /// The row is not to blame; it stays, and so do the later ones of its lane.
    Held {
        /// Words for the log, without secrets.
        why: String,
        /// How long the destination is better left alone.
        retry_after: Option<Duration>,
    },
}

impl Verdict {
    /// What the answers of a destination come to, for rows whose lanes stand next to each other. A row behind one that is sent later is
    /// not done even if it went through: it goes again behind that one, so that the last copies of a lane are in order. Rows
    /// without an answer are held.
    pub fn in_order(lanes: &[Lane], answers: impl IntoIterator<Item = Sent>) -> Verdict {
        let mut answers = answers.into_iter();
        let mut down: Option<Down> = None;
        let mut held_lane: Option<&Lane> = None;
        let mut outcomes = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let answer = answers.next();
            let outcome = match answer {
                _ if held_lane == Some(lane) => Outcome::NotTried,
                Some(Sent::Done) => Outcome::Done,
                Some(Sent::Failed(outcome)) => {
                    if matches!(outcome, Outcome::Retry { .. } | Outcome::NotTried) {
                        held_lane = Some(lane);
                    }
                    outcome
                }
                Some(Sent::Held { .. }) | None => {
                    held_lane = Some(lane);
                    let (why, retry_after) = match answer {
                        Some(Sent::Held { why, retry_after }) => (why, retry_after),
                        _ => ("no answer".to_owned(), None),
                    };
                    // One that asks for a pause is the one to heed, whatever else there is.
                    if down.as_ref().is_none_or(|first| first.retry_after.is_none()) {
                        down = Some(Down { why, retry_after });
                    }
                    Outcome::NotTried
                }
            };
            outcomes.push(outcome);
        }
        Verdict { outcomes, down }
    }
}

/// Does the work of a queue.
pub trait Handler<T>: Send + Sync + 'static {
    /// Delivers a batch and says what became of each row. Rows of one lane must be delivered in
    /// order: after a row that failed, the later ones of its lane are [`Outcome::NotTried`].
    ///
    /// It may be dropped at an await when the worker stops and the grace has passed; the rows then
    /// go back untouched, and will be delivered again.
    fn handle(&self, batch: Batch<T>) -> impl Future<Output = Verdict> + Send;
}
