//! Extractors of tests: what each session shows is told beforehand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease::backoff::Backoff;
use schedule::observation::{Observation, RawEntry};
use schedule::worker::{Extract, ExtractError, Session, Settings};
use uuid::Uuid;

pub(crate) const LONG: Duration = Duration::from_secs(120);

/// What sessions show, and in which order they were asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rota {
    shown: Arc<Mutex<HashMap<Uuid, Observation>>>,
    asked: Arc<Mutex<Vec<Session>>>,
}

impl Rota {
    pub(crate) fn show(&self, session: Uuid, seen: Observation) {
        self.shown.lock().unwrap().insert(session, seen);
    }

    pub(crate) fn asked(&self) -> Vec<Session> {
        self.asked.lock().unwrap().clone()
    }
}

impl Extract for Rota {
    async fn extract(&self, session: &Session) -> Result<Observation, ExtractError> {
        self.asked.lock().unwrap().push(session.clone());
        let shown = self.shown.lock().unwrap().get(&session.id).cloned();
        shown.ok_or_else(|| ExtractError::Unreadable("nothing is shown".to_owned()))
    }
}

/// An extractor that does what a closure says.
pub(crate) struct Script<F>(pub(crate) F);

impl<F, A> Extract for Script<F>
where
    F: Fn(Session) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Observation, ExtractError>> + Send,
{
    async fn extract(&self, session: &Session) -> Result<Observation, ExtractError> {
        (self.0)(session.clone()).await
    }
}

/// A worker that does not wait.
pub(crate) fn settings(name: &str) -> Settings {
    Settings {
        poll: Duration::from_millis(20),
        sweep: Duration::from_millis(50),
        idle_timeout: Duration::ZERO,
        stop_grace: Duration::from_millis(100),
        backoff: Backoff::Schedule(vec![Duration::ZERO]),
        ..Settings::new(name)
    }
}

/// A day with these shifts: times, title, location.
pub(crate) fn day(shifts: &[(&str, &str, &str)]) -> Observation {
    let entry = |(times, title, location): &(&str, &str, &str)| RawEntry {
        start: (*times).to_owned(),
        title: (*title).to_owned(),
        location: (*location).to_owned(),
        ..RawEntry::default()
    };
    Observation {
        schedule_date: "2026-11-16".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        entries: shifts.iter().map(entry).collect(),
        confidence: None,
    }
}
