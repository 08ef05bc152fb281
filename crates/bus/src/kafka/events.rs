//! What the client library tells on the side: its log, and how the cluster is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// How the cluster is, as one client sees it.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Since when no broker could be reached.
    down: Option<Instant>,
    /// The last reason that said more than "all are down".
    reason: Option<Arc<str>>,
}

impl Health {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when no broker could be reached, and why; nothing while one can.
    pub(crate) fn down(&self) -> Option<(Instant, Arc<str>)> {
        let state = self.state();
        let why = || state.reason.clone().unwrap_or_else(|| "no broker can be reached".into());
        state.down.map(|since| (since, why()))
    }

    /// No broker answered a question. Returns why, as far as is known.
    pub(crate) fn lost(&self, otherwise: Arc<str>) -> Arc<str> {
        let mut state = self.state();
        state.down.get_or_insert_with(Instant::now);
        Arc::clone(state.reason.get_or_insert(otherwise))
    }

    /// A broker answered. True when none could be reached before.
    pub(crate) fn up(&self) -> bool {
        let mut state = self.state();
        state.reason = None;
        state.down.take().is_some()
    }

    fn error(&self, code: Option<RDKafkaErrorCode>, reason: &str) {
        let mut state = self.state();
        match code {
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                state.down.get_or_insert_with(Instant::now);
            }
            // A broker that does not let us in is as good as away; the library makes no "all are down" of it.
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) => {
                state.down.get_or_insert_with(Instant::now);
                state.reason = Some(reason.into());
            }
            Some(_) => state.reason = Some(reason.into()),
            None => {}
        }
    }
}

/// A context that keeps [`Health`] and logs as we do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched {
    pub(crate) health: Arc<Health>,
}

impl ClientContext for Watched {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.health.error(error.rdkafka_error_code(), reason);
        tracing::debug!(%error, reason, "Kafka client");
    }
}

/// The library's lines name brokers, topics and states, never bodies or passwords. Most repeat what we report
/// ourselves, with the reason; so they are for looking closer.
fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, "{message}");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning => tracing::info!(facility, "{message}"),
        _ => tracing::debug!(facility, "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_last_that_says_more() {
        let health = Health::default();
        assert!(health.down().is_none() && !health.up());
        health.error(Some(RDKafkaErrorCode::BrokerTransportFailure), "refused");
        assert!(health.down().is_none(), "one broker is not all");
        health.error(Some(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");
        assert_eq!(&*health.down().unwrap().1, "refused");
        assert!(health.up() && health.down().is_none());
        assert_eq!(&*health.lost("no answer".into()), "no answer");
        assert!(health.up());
        health.error(Some(RDKafkaErrorCode::Authentication), "wrong password");
        assert_eq!(&*health.down().unwrap().1, "wrong password");
    }
}
