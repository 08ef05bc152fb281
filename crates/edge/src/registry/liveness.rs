//! How a node's silence is judged: by receipt time alone.
//!
//! A replay brings old sample times; they say how fresh the data is and nothing about the node
//! being there.

use jiff::Timestamp;

use crate::config::Liveness;

/// Whether a node is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Heard within `late_after`.
    Online,
    /// Not heard for `late_after`.
    Late,
    /// Not heard for `offline_after`.
    Offline,
    /// Enrolled and never heard.
    Never,
}

impl State {
    /// Judges a node by when something of it was last received.
    pub fn judge(last_rx_at: Option<Timestamp>, now: Timestamp, thresholds: &Liveness) -> State {
        let Some(last) = last_rx_at else {
            return State::Never;
        };
        // A receipt after `now` comes from another replica's clock: it is recent.
        let silent = now.duration_since(last).unsigned_abs();
        match last > now {
            true => State::Online,
            false if silent < thresholds.late_after => State::Online,
            false if silent < thresholds.offline_after => State::Late,
            false => State::Offline,
        }
    }

    /// The word for people and machines.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Online => "online",
            State::Late => "late",
            State::Offline => "offline",
            State::Never => "never",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn silence_alone_decides() {
        let thresholds = Liveness {
            late_after: Duration::from_secs(10),
            offline_after: Duration::from_secs(60),
        };
        let now = Timestamp::from_second(1_000_000).unwrap();
        let judge = |ago: i64| {
            let last = Timestamp::from_second(1_000_000 - ago).unwrap();
            State::judge(Some(last), now, &thresholds)
        };
        assert_eq!(judge(0), State::Online);
        assert_eq!(judge(9), State::Online);
        assert_eq!(judge(10), State::Late);
        assert_eq!(judge(59), State::Late);
        assert_eq!(judge(60), State::Offline);
        assert_eq!(judge(-500), State::Online);
        assert_eq!(State::judge(None, now, &thresholds), State::Never);
    }
}
