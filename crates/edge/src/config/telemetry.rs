//! The keys of telemetry: when buckets are computed, and what of readings goes to the cloud.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use event::Window;
use settings::Section;

/// What of readings goes to the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TelemetrySync {
    /// The readings.
    #[default]
    Raw,
    /// Their aggregates; the readings stay at the site.
    Aggregates,
    /// Both.
    Both,
}

impl TelemetrySync {
    /// As an operator writes it.
    pub const WORDS: &'static [&'static str] = &["raw", "aggregates", "both"];

    /// Whether readings are sent.
    pub fn raw(self) -> bool {
        self != TelemetrySync::Aggregates
    }

    /// Whether aggregates are sent.
    pub fn aggregates(self) -> bool {
        self != TelemetrySync::Raw
    }
}

impl FromStr for TelemetrySync {
    type Err = String;

    fn from_str(text: &str) -> Result<TelemetrySync, String> {
        match text {
            "raw" => Ok(TelemetrySync::Raw),
            "aggregates" => Ok(TelemetrySync::Aggregates),
            "both" => Ok(TelemetrySync::Both),
            _ => Err(format!("expected one of {}", TelemetrySync::WORDS.join(", "))),
        }
    }
}

impl fmt::Display for TelemetrySync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TelemetrySync::Raw => "raw",
            TelemetrySync::Aggregates => "aggregates",
            TelemetrySync::Both => "both",
        })
    }
}

/// How aggregates are made; docs/spec/telemetry.md says what each value does.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// How long a bucket is left alone after it was touched.
    pub settle: Duration,
    /// What goes to the cloud.
    pub sync: TelemetrySync,
    /// The windows that are sent, if aggregates are.
    pub windows: BTreeSet<Window>,
}

impl Telemetry {
    pub(super) fn from_section(section: &Section) -> Result<Telemetry, settings::Error> {
        let key = "sync.telemetry_windows";
        let mut windows = BTreeSet::new();
        for name in section.get(key)?.list() {
            let refuse = |error| section.refuse(key, format!("{name:?} is no window: {error}"));
            windows.insert(name.parse().map_err(refuse)?);
        }
        let sync: TelemetrySync = section.get("sync.telemetry")?.parse()?;
        if sync.aggregates() && windows.is_empty() {
            return Err(section.refuse(key, "is empty: expected some of 1m, 1h, 1d"));
        }
        Ok(Telemetry { settle: section.get("telemetry.settle")?.duration()?, sync, windows })
    }

    /// Whether aggregates of a window go to the cloud.
    pub fn emits(&self, window: Window) -> bool {
        self.sync.aggregates() && self.windows.contains(&window)
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use event::Window;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        Config::load(None, |name| {
            let name = name.strip_prefix("HOLDFAST_EDGE_")?;
            let url = ("DATABASE_URL", "postgres:///farm?host=/run");
            let found = pairs.iter().chain([&url]).find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn readings_are_sent_unless_said_otherwise() {
        let raw = load(&[]).unwrap().telemetry;
        assert!(raw.sync.raw() && !raw.emits(Window::Hour));
        let hours = [("SYNC_TELEMETRY", "aggregates"), ("SYNC_TELEMETRY_WINDOWS", "1h")];
        let hours = load(&hours).unwrap().telemetry;
        assert!(!hours.sync.raw() && hours.emits(Window::Hour) && !hours.emits(Window::Minute));
        let both = load(&[("SYNC_TELEMETRY", "both")]).unwrap().telemetry;
        assert!(both.sync.raw() && Window::ALL.iter().all(|window| both.emits(*window)));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (pair, named) in [
            (("SYNC_TELEMETRY", "some"), "sync.telemetry"),
            (("SYNC_TELEMETRY_WINDOWS", "1m,5m"), "sync.telemetry_windows"),
        ] {
            let error = load(&[pair]).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
