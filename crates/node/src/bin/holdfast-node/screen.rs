//! Talking to a person: text, colours on a terminal only, progress on a terminal only.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Prints to standard output. A reader that has gone (`| head`) is no error.
pub(crate) fn say(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A failure with its causes, each said once: many an error repeats its cause in its own words.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !text.contains(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text.push_str(&format!("{colon}{cause}"));
        }
    }
    text
}

/// Prints a failure.
pub(crate) fn complain(text: &str) {
    let mut stderr = io::stderr();
    let (red, off) = if stderr.is_terminal() { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
    // If even this cannot be written there is nobody to tell.
    let _ = writeln!(stderr, "{red}error:{off} {text}");
}

/// Colours, if standard output is a terminal that wants them.
#[derive(Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn new() -> Paint {
        Paint(io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none())
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A line that is written over itself, on a terminal only.
pub(crate) struct Progress {
    shown_at: Option<Instant>,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress { shown_at: None, terminal: io::stderr().is_terminal() }
    }

    pub(crate) fn show(&mut self, text: &str) {
        const EVERY: Duration = Duration::from_millis(200);
        if self.terminal && self.shown_at.is_none_or(|at| at.elapsed() > EVERY) {
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            self.shown_at = Some(Instant::now());
        }
    }

    pub(crate) fn end(self) {
        if self.shown_at.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `73400320` as `70.0 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut tenths = u128::from(n) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// `3725` as `1h 2m`.
pub(crate) fn span(seconds: u64) -> String {
    let (d, h, m, s) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    match (d, h, m) {
        (0, 0, 0) => format!("{s}s"),
        (0, 0, _) => format!("{m}m {s}s"),
        (0, _, _) => format!("{h}h {m}m"),
        _ => format!("{d}d {h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::other("no such file");
        let error = anyhow::Error::new(cause).context("cannot read x: no such file");
        assert_eq!(causes(&error), "cannot read x: no such file");
        assert_eq!(
            causes(&error.context("not started")),
            "not started: cannot read x: no such file"
        );
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(bytes(1_023), "1023 B");
        assert_eq!(bytes(73_400_320), "70.0 MiB");
        assert_eq!(bytes(u64::MAX), "16383.9 PiB");
        assert_eq!(span(59), "59s");
        assert_eq!(span(3_725), "1h 2m");
        assert_eq!(span(200_000), "2d 7h");
    }
}
