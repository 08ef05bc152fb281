//! One alarm after ISA-18.2, as a pure state machine: what happens to it, and what is to be journalled. Time is passed in.
//!
//! The table of transitions is that of docs/spec/historian.md. Messages may come in any order: what is older than what is known changes
//! nothing and is journalled as late.

use std::time::Duration;

use event::scada::Severity;
use jiff::Timestamp;
use serde::Serialize;

/// Where an alarm stands. Shelving lies over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No alarm.
    Normal,
    /// Active, nobody has seen it.
    ActiveUnacknowledged,
    /// Active, somebody has.
    ActiveAcknowledged,
    /// Returned to normal before anybody saw it.
    ClearedUnacknowledged,
}

impl State {
    /// Every state.
    pub const ALL: [State; 4] = [
        State::Normal,
        State::ActiveUnacknowledged,
        State::ActiveAcknowledged,
        State::ClearedUnacknowledged,
    ];

    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Normal => "normal",
            State::ActiveUnacknowledged => "active_unacknowledged",
            State::ActiveAcknowledged => "active_acknowledged",
            State::ClearedUnacknowledged => "cleared_unacknowledged",
        }
    }

    /// Reads what is stored.
    pub fn from_stored(text: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Whether the condition is there.
    pub fn is_active(self) -> bool {
        matches!(self, State::ActiveUnacknowledged | State::ActiveAcknowledged)
    }
}

/// When an alarm is over, late or chattering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Not raised again for so long, it is cleared.
    pub quiet: Duration,
    /// Older than this, a raise is late.
    pub late_after: Duration,
    /// So many transitions to active…
    pub chatter_count: usize,
    /// …within this time are chattering.
    pub chatter_window: Duration,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            quiet: Duration::from_secs(300),
            late_after: Duration::from_secs(120),
            chatter_count: 3,
            chatter_window: Duration::from_secs(60),
        }
    }
}

/// What happens to an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Its condition was there at this time.
    Raise(Timestamp),
    /// Its condition was gone at this time.
    Clear(Timestamp),
    /// An operator has seen it.
    Acknowledge,
    /// An operator does not want to hear of it until then.
    Shelve(Timestamp),
    /// An operator wants to hear of it again.
    Unshelve,
    /// Time has passed: what is quiet is cleared, what is shelved too long comes off the shelf.
    Look,
}

/// A word of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Its condition came.
    Raised,
    /// Its condition went.
    Cleared,
    /// An operator has seen it.
    Acknowledged,
    /// It went on the shelf.
    Shelved,
    /// It came off the shelf.
    Unshelved,
    /// It comes and goes too often.
    Chattering,
}

impl Action {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Raised => "raised",
            Action::Cleared => "cleared",
            Action::Acknowledged => "acknowledged",
            Action::Shelved => "shelved",
            Action::Unshelved => "unshelved",
            Action::Chattering => "chattering",
        }
    }
}

/// A line of the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What happened.
    pub action: Action,
    /// When.
    pub at: Timestamp,
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// It came long after it happened.
    pub late: bool,
    /// Operators are told.
    pub announced: bool,
}

/// The state does not allow what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not allowed: the alarm is {}{}", state.as_str(), if *shelved { " and shelved" } else { "" })]
pub struct NotAllowed {
    /// Where the alarm stands.
    pub state: State,
    /// Whether it is shelved.
    pub shelved: bool,
}

/// One alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Where it stands.
    pub state: State,
    /// How bad it is.
    pub severity: Severity,
    /// When its condition was last known to be there.
    pub last_raised_at: Option<Timestamp>,
    /// When its condition was last known to be gone.
    pub last_cleared_at: Option<Timestamp>,
    /// Until when it is shelved.
    pub shelved_until: Option<Timestamp>,
    /// The latest transitions to active, the newest last.
    pub raises: Vec<Timestamp>,
    /// Until when it counts as chattering.
    pub chattering_until: Option<Timestamp>,
    /// How often it was raised.
    pub occurrences: u64,
}

impl Alarm {
    /// One that was never raised.
    pub fn new(severity: Severity) -> Alarm {
        Alarm {
            state: State::Normal,
            severity,
            last_raised_at: None,
            last_cleared_at: None,
            shelved_until: None,
            raises: Vec::new(),
            chattering_until: None,
            occurrences: 0,
        }
    }

    /// Applies what happens; the steps are to be journalled in this order. A refusal changes nothing.
    pub fn apply(
        &mut self,
        input: Input,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Vec<Step>, NotAllowed> {
        match input {
            Input::Raise(at) => Ok(self.raise(at.min(now), now, rules)),
            Input::Clear(at) => Ok(self.clear(at.min(now))),
            Input::Acknowledge => self.acknowledge(now),
            Input::Shelve(until) => self.shelve(until, now),
            Input::Unshelve if self.shelved_until.is_some() => Ok(vec![self.unshelve(now)]),
            Input::Unshelve => Err(self.not_allowed()),
            Input::Look => Ok(self.look(now, rules)),
        }
    }

    fn raise(&mut self, at: Timestamp, now: Timestamp, rules: &Rules) -> Vec<Step> {
        self.occurrences += 1;
        let from = self.state;
        let late = after(at, rules.late_after) <= now;
        let over = after(at, rules.quiet) <= now
            || self.last_cleared_at.is_some_and(|cleared| at <= cleared);
        if over {
            return vec![Step {
                action: Action::Raised,
                at,
                from,
                to: from,
                late: true,
                announced: false,
            }];
        }
        self.last_raised_at = Some(self.last_raised_at.map_or(at, |last| last.max(at)));
        if from.is_active() {
            return Vec::new();
        }
        self.state = State::ActiveUnacknowledged;
        let announced = self.shelved_until.is_none();
        let to = self.state;
        let mut steps = vec![Step { action: Action::Raised, at, from, to, late, announced }];
        steps.extend(self.chatter(at, now, rules));
        steps
    }

    /// Notes a transition to active, and says when that makes it chatter.
    fn chatter(&mut self, at: Timestamp, now: Timestamp, rules: &Rules) -> Option<Step> {
        self.raises.push(at);
        self.raises.sort_unstable();
        let beyond = self.raises.len().saturating_sub(rules.chatter_count.max(1));
        self.raises.drain(..beyond);
        let (first, last) = (*self.raises.first()?, *self.raises.last()?);
        let many = self.raises.len() >= rules.chatter_count;
        if !many || after(first, rules.chatter_window) < last {
            return None;
        }
        let already = self.chattering_until.is_some_and(|until| until > now);
        self.chattering_until = Some(after(last, rules.chatter_window));
        let (from, to) = (self.state, self.state);
        let step = Step { action: Action::Chattering, at, from, to, late: false, announced: false };
        (!already).then_some(step)
    }

    fn clear(&mut self, at: Timestamp) -> Vec<Step> {
        self.last_cleared_at = Some(self.last_cleared_at.map_or(at, |last| last.max(at)));
        let older = self.last_raised_at.is_some_and(|raised| at < raised);
        if older || !self.state.is_active() {
            return Vec::new();
        }
        vec![self.move_to_cleared(at)]
    }

    fn move_to_cleared(&mut self, at: Timestamp) -> Step {
        let from = self.state;
        self.state = match from {
            State::ActiveUnacknowledged => State::ClearedUnacknowledged,
            _ => State::Normal,
        };
        let to = self.state;
        Step { action: Action::Cleared, at, from, to, late: false, announced: false }
    }

    fn acknowledge(&mut self, now: Timestamp) -> Result<Vec<Step>, NotAllowed> {
        let from = self.state;
        self.state = match from {
            State::ActiveUnacknowledged => State::ActiveAcknowledged,
            State::ClearedUnacknowledged => State::Normal,
            State::Normal | State::ActiveAcknowledged => return Err(self.not_allowed()),
        };
        let to = self.state;
        let action = Action::Acknowledged;
        Ok(vec![Step { action, at: now, from, to, late: false, announced: false }])
    }

    fn shelve(&mut self, until: Timestamp, now: Timestamp) -> Result<Vec<Step>, NotAllowed> {
        if self.shelved_until.is_some() {
            return Err(self.not_allowed());
        }
        self.shelved_until = Some(until);
        let (from, to) = (self.state, self.state);
        let action = Action::Shelved;
        Ok(vec![Step { action, at: now, from, to, late: false, announced: false }])
    }

    fn unshelve(&mut self, at: Timestamp) -> Step {
        self.shelved_until = None;
        let (from, to) = (self.state, self.state);
        let announced = self.state == State::ActiveUnacknowledged;
        Step { action: Action::Unshelved, at, from, to, late: false, announced }
    }

    fn look(&mut self, now: Timestamp, rules: &Rules) -> Vec<Step> {
        let mut steps = Vec::new();
        let over = self.last_raised_at.map(|at| after(at, rules.quiet));
        if let Some(over) = over.filter(|over| self.state.is_active() && *over <= now) {
            self.last_cleared_at = Some(self.last_cleared_at.map_or(over, |at| at.max(over)));
            steps.push(self.move_to_cleared(over));
        }
        if let Some(until) = self.shelved_until.filter(|until| *until <= now) {
            steps.push(self.unshelve(until));
        }
        steps
    }

    fn not_allowed(&self) -> NotAllowed {
        NotAllowed { state: self.state, shelved: self.shelved_until.is_some() }
    }
}

/// Adding that stops at the end of time instead of failing: times come from messages.
fn after(at: Timestamp, span: Duration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
