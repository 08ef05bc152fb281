//! What intake counts: requests by route and outcome, and what came of them. Labels are from closed sets.

use std::collections::HashMap;

use axum::http::StatusCode;
use metrics::{Counter, counter};

use super::Swept;

/// The words that stand for the routes that want a token; whatever else is asked for is `other`.
const ROUTES: [&str; 8] = ["open", "show", "place", "complete", "summary", "users", "week", OTHER];
const OTHER: &str = "other";
const OUTCOMES: [&str; 5] = ["ok", "refused", "unauthorized", "rate_limited", "unavailable"];

/// The word for a path. What stands for an id may be anything: it is not looked at.
pub(super) fn word(path: &str) -> &'static str {
    let path = path.strip_prefix("/api/v1/").unwrap_or_default();
    // One more than the longest has.
    let parts: Vec<&str> = path.splitn(6, '/').collect();
    match parts[..] {
        ["sessions"] => "open",
        ["sessions", _] => "show",
        ["sessions", _, "images"] => "place",
        ["sessions", _, "images", _, "complete"] => "complete",
        ["summary"] => "summary",
        ["users"] => "users",
        ["users", _, "week"] => "week",
        _ => OTHER,
    }
}

/// What an answer means, by its status.
fn outcome(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "unauthorized",
        429 => "rate_limited",
        400..=499 => "refused",
        500.. => "unavailable",
        _ => "ok",
    }
}

/// The handles, looked up once.
pub(super) struct Meter {
    requests: HashMap<(&'static str, &'static str), Counter>,
    /// Sessions that were opened.
    pub(super) opened: Counter,
    /// Places that were promised.
    pub(super) promised: Counter,
    /// Images that joined their session.
    pub(super) joined: Counter,
    swept: Counter,
    unused: Counter,
    sweeps: Counter,
    sweeps_failed: Counter,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// To be called where metrics are counted: see [`crate::metrics::Metrics::counting`].
    pub(super) fn new() -> Meter {
        let requests = ROUTES
            .into_iter()
            .flat_map(|route| OUTCOMES.map(|outcome| (route, outcome)))
            .map(|(route, outcome)| {
                let labels = [("route", route), ("outcome", outcome)];
                ((route, outcome), counter!("holdfast_schedule_requests_total", &labels))
            })
            .collect();
        let image = |what: &'static str| counter!("holdfast_schedule_images_total", "what" => what);
        let place = |what: &'static str| counter!("holdfast_schedule_swept_total", "what" => what);
        let sweep =
            |result: &'static str| counter!("holdfast_schedule_sweeps_total", "result" => result);
        Meter {
            requests,
            opened: counter!("holdfast_schedule_opened_total"),
            promised: image("promised"),
            joined: image("joined"),
            swept: place("used"),
            unused: place("unused"),
            sweeps: sweep("done"),
            sweeps_failed: sweep("failed"),
        }
    }

    /// A request for a route, by its [`word`], was answered.
    pub(super) fn answered(&self, route: &'static str, status: StatusCode) {
        if let Some(counter) = self.requests.get(&(route, outcome(status))) {
            counter.increment(1);
        }
    }

    /// A sweep has ended, so or so.
    pub(super) fn swept(&self, swept: Option<Swept>) {
        let Some(Swept { places, unused }) = swept else {
            return self.sweeps_failed.increment(1);
        };
        self.sweeps.increment(1);
        self.swept.increment(places.saturating_sub(unused));
        self.unused.increment(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_that_wants_a_token_has_a_word_and_every_status_an_outcome() {
        for (_, path, open) in super::super::ROUTES {
            assert_eq!(word(path) != OTHER, *open == api::open::Open::Never, "{path}");
            assert!(ROUTES.contains(&word(path)));
        }
        for path in
            ["", "/", "/api/v1/", "/api/v1/sessions/a/b", "/api/v1/sessions/1/images/2/complete/3"]
        {
            assert_eq!(word(path), OTHER, "{path}");
        }
        for status in (100..600).filter_map(|status| StatusCode::from_u16(status).ok()) {
            assert!(OUTCOMES.contains(&outcome(status)), "{status}");
        }
    }
}
