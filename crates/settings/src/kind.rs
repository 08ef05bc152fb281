//! The kinds of values, and their grammar. A refusal says what would be right.

use std::str::FromStr;
use std::time::Duration;

/// What a value must look like.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Any text that is not empty.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number in a range, both ends included.
    Integer {
        /// The lowest that works.
        min: u64,
        /// The highest that works.
        max: u64,
    },
    /// A decimal number in a range, both ends included.
    Number {
        /// The lowest that works.
        min: f64,
        /// The highest that works.
        max: f64,
    },
    /// A time span like `250ms`, `30s`, `15m`, `72h`, `14d`, in a range given in milliseconds.
    Duration {
        /// The shortest that works, in milliseconds.
        min_ms: u64,
        /// The longest that works, in milliseconds.
        max_ms: u64,
    },
    /// A number of bytes like `4096`, `64MiB`, `2GiB`, in a range.
    Size {
        /// The smallest that works.
        min: u64,
        /// The largest that works.
        max: u64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// An address to listen on or connect to: `host:port`.
    HostPort,
    /// Several texts: a TOML array, or separated by commas in the environment.
    List,
    /// Anything with a grammar of its own; the function says what is wrong. See [`check`].
    Checked(fn(&str) -> Result<(), String>),
}

/// Checks by parsing: `Kind::Checked(check::<NodeId>)`.
pub fn check<T>(text: &str) -> Result<(), String>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

impl Kind {
    /// Says what is wrong with a value, or nothing. The value itself is named by the caller.
    pub(crate) fn refuse(&self, text: &str) -> Option<String> {
        let outcome = match *self {
            Kind::Text if text.is_empty() => Err("expected some text".to_owned()),
            Kind::Text | Kind::List => Ok(()),
            Kind::Flag => parse_flag(text).map(drop),
            Kind::Integer { min, max } => match text.parse::<u64>() {
                Ok(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("expected a whole number from {min} to {max}")),
            },
            Kind::Number { min, max } => match text.parse::<f64>() {
                Ok(n) if n >= min && n <= max => Ok(()),
                _ => Err(format!("expected a number from {min} to {max}")),
            },
            Kind::Duration { min_ms, max_ms } => parse_duration(text).and_then(|span| {
                let ms = span.as_millis();
                if ms < u128::from(min_ms) || ms > u128::from(max_ms) {
                    let (low, high) = (show_duration(min_ms), show_duration(max_ms));
                    return Err(format!("expected a time span from {low} to {high}"));
                }
                Ok(())
            }),
            Kind::Size { min, max } => parse_size(text).and_then(|bytes| {
                if bytes < min || bytes > max {
                    let (low, high) = (show_size(min), show_size(max));
                    return Err(format!("expected a size from {low} to {high}"));
                }
                Ok(())
            }),
            Kind::Choice(words) if words.contains(&text) => Ok(()),
            Kind::Choice(words) => Err(format!("expected one of {}", words.join(", "))),
            Kind::HostPort => parse_host_port(text),
            Kind::Checked(check) => check(text),
        };
        outcome.err()
    }
}

pub(crate) fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

fn parse_host_port(text: &str) -> Result<(), String> {
    let right = "expected host:port, like 127.0.0.1:8080";
    let (host, port) = text.rsplit_once(':').ok_or(right)?;
    let host_ok =
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._[]:".contains(c));
    if !host_ok || port.parse::<u16>().is_err() {
        return Err(right.to_owned());
    }
    Ok(())
}

const DURATION_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
];

/// Reads a time span: a whole number with a unit of `ms`, `s`, `m`, `h` or `d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    scaled(text, &DURATION_UNITS)
        .map(Duration::from_millis)
        .ok_or_else(|| "expected a time span like 250ms, 30s, 15m, 72h or 14d".to_owned())
}

/// Reads a number of bytes: a whole number, alone or with a unit of `KiB`, `MiB`, `GiB`, `TiB`, `kB`, `MB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .or_else(|| scaled(text, &SIZE_UNITS))
        .ok_or_else(|| "expected a size like 4096, 512KiB, 64MiB or 2GiB".to_owned())
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn show_duration(ms: u64) -> String {
    show_in(ms, &DURATION_UNITS[..])
}

fn show_size(bytes: u64) -> String {
    show_in(bytes, &SIZE_UNITS[..5])
}

fn show_in(amount: u64, units: &[(&str, u64)]) -> String {
    let unit =
        units.iter().rev().find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor));
    match unit {
        Some((name, factor)) => format!("{}{name}", amount / factor),
        None => format!("{amount}{}", units[0].0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_and_sizes_are_read_with_their_units() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("72h"), Ok(Duration::from_secs(72 * 3600)));
        assert_eq!(parse_duration("14d"), Ok(Duration::from_secs(14 * 86_400)));
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        for wrong in ["", "30", "s", "-1s", "1.5h", "30 parsecs", "99999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong} was read as a time span");
        }
        for wrong in ["", "MiB", "-4", "64 mib", "18446744073709551615KiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong} was read as a size");
        }
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let kind = Kind::Duration { min_ms: 1_000, max_ms: 3_600_000 };
        assert_eq!(kind.refuse("2h").as_deref(), Some("expected a time span from 1s to 1h"));
        let kind = Kind::Size { min: 1 << 20, max: 1 << 40 };
        assert_eq!(kind.refuse("1KiB").as_deref(), Some("expected a size from 1MiB to 1TiB"));
        assert!(Kind::Choice(&["a", "b"]).refuse("c").is_some_and(|r| r.contains("a, b")));
        assert!(Kind::Number { min: 0.0, max: 1.0 }.refuse("NaN").is_some());
        assert!(Kind::HostPort.refuse("127.0.0.1:8080").is_none());
        assert!(Kind::HostPort.refuse("[::1]:8080").is_none());
        assert!(Kind::HostPort.refuse("localhost").is_some());
    }
}
