//! What a check comes to.

use serde::Serialize;

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    Ok,
    /// It works, and may not for long or not as meant.
    Warn,
    Fail,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "fail",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Check {
    pub(super) role: &'static str,
    pub(super) check: String,
    pub(super) state: State,
    /// What was found; never a secret.
    pub(super) found: String,
    /// What to do; empty when all is well.
    pub(super) advice: String,
}

impl Check {
    pub(super) fn ok(
        role: &'static str,
        check: impl Into<String>,
        found: impl Into<String>,
    ) -> Check {
        Check {
            role,
            check: check.into(),
            state: State::Ok,
            found: found.into(),
            advice: String::new(),
        }
    }

    pub(super) fn warn(
        role: &'static str,
        check: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        let advice = advice.into();
        Check { state: State::Warn, advice, ..Check::ok(role, check, found) }
    }

    pub(super) fn fail(
        role: &'static str,
        check: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Check {
        let advice = advice.into();
        Check { state: State::Fail, advice, ..Check::ok(role, check, found) }
    }
}
