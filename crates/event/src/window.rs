//! The windows readings are aggregated over: a minute, an hour, a day, all of UTC. Pure.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

/// A window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// `1m`, computed from readings.
    Minute,
    /// `1h`, computed from minutes.
    Hour,
    /// `1d`, computed from hours.
    Day,
}

impl Window {
    /// Every window, each after the one it is computed from.
    pub const ALL: [Window; 3] = [Window::Minute, Window::Hour, Window::Day];

    /// The window as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Window::Minute => "1m",
            Window::Hour => "1h",
            Window::Day => "1d",
        }
    }

    /// How long it is.
    pub fn span(self) -> SignedDuration {
        SignedDuration::from_secs(self.seconds())
    }

    /// The one it is computed from; a minute is computed from readings.
    pub fn shorter(self) -> Option<Window> {
        match self {
            Window::Minute => None,
            Window::Hour => Some(Window::Minute),
            Window::Day => Some(Window::Hour),
        }
    }

    /// The next longer one.
    pub fn next(self) -> Option<Window> {
        match self {
            Window::Minute => Some(Window::Hour),
            Window::Hour => Some(Window::Day),
            Window::Day => None,
        }
    }

    /// When the bucket began that an instant falls into.
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        let micros = self.seconds() * 1_000_000;
        let at = at.as_microsecond();
        // Only before the first instant that the type can hold is there no start.
        Timestamp::from_microsecond(at - at.rem_euclid(micros)).unwrap_or(Timestamp::MIN)
    }

    /// When the bucket ends that begins at `start`.
    pub fn end_of(self, start: Timestamp) -> Timestamp {
        start.checked_add(self.span()).unwrap_or(Timestamp::MAX)
    }

    /// The same in seconds.
    pub fn seconds(self) -> i64 {
        match self {
            Window::Minute => 60,
            Window::Hour => 3_600,
            Window::Day => 86_400,
        }
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Window, String> {
        let found = Window::ALL.into_iter().find(|window| window.as_str() == text);
        found.ok_or_else(|| "expected 1m, 1h or 1d".to_owned())
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_begin_at_whole_minutes_hours_and_days_of_utc() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        for (window, text, start) in [
            (Window::Minute, "2026-02-01T10:07:59.999999Z", "2026-02-01T10:07:00Z"),
            (Window::Minute, "2026-02-01T10:08:00Z", "2026-02-01T10:08:00Z"),
            // The clocks of Berlin go forward in this hour; those of the buckets do not.
            (Window::Hour, "2026-03-29T01:30:00Z", "2026-03-29T01:00:00Z"),
            (Window::Day, "2026-03-29T23:59:59.9Z", "2026-03-29T00:00:00Z"),
            (Window::Day, "1969-12-31T23:59:59.5Z", "1969-12-31T00:00:00Z"),
            (Window::Minute, "1969-12-31T23:59:59.5Z", "1969-12-31T23:59:00Z"),
            (Window::Minute, "1969-12-31T23:59:00Z", "1969-12-31T23:59:00Z"),
        ] {
            assert_eq!(window.start_of(at(text)), at(start), "{window} {text}");
        }
        assert_eq!(Window::Day.end_of(at("2026-03-29T00:00:00Z")), at("2026-03-30T00:00:00Z"));
    }

    #[test]
    fn a_window_has_one_spelling() {
        for window in Window::ALL {
            assert_eq!(window.as_str().parse(), Ok(window));
        }
        assert!("2h".parse::<Window>().is_err() && "1H".parse::<Window>().is_err());
    }
}
