//! The rules file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use event::scada::Tag;
use serde::Deserialize;
use settings::Error;
use toml::Spanned;

use super::MAX_WINDOW_READINGS;
use crate::tables::Source;

const SPAN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
const EVERY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(86_400);
const ALPHA: RangeInclusive<f64> = 0.0001..=0.5;
/// What a derived tag's name ends with; the longest of them decides how long a tag may be.
const LONGEST_SUFFIX: &str = "_ANOMALY";

/// What is done with which tag. Without rules, nothing is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    pub(super) by_tag: BTreeMap<Tag, Rule>,
}

/// What is done with a tag.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    /// Makes `{TAG}_AVG`.
    pub average: Option<Average>,
    /// Makes `{TAG}_RATE`.
    pub rate: Option<Rate>,
    /// Makes `{TAG}_ANOMALY`.
    pub anomaly: Option<Anomaly>,
    /// Leaves out what a line tells.
    pub compress: Option<Compress>,
}

/// What an average is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The readings of so long.
    Time(Duration),
    /// So many readings.
    Readings(usize),
}

/// The moving average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Average {
    /// What it is taken over.
    pub over: Over,
    /// Made at most this often; without it at every reading.
    pub every: Option<Duration>,
}

/// The rate of change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Over how long.
    pub window: Duration,
    /// Per second, minute or hour.
    pub per: Per,
    /// Made at most this often; without it at every reading.
    pub every: Option<Duration>,
}

/// The time that a rate is told per.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Per {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl Per {
    pub(super) fn seconds(self) -> f64 {
        match self {
            Per::Second => 1.0,
            Per::Minute => 60.0,
            Per::Hour => 3_600.0,
        }
    }

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Per::Second => "s",
            Per::Minute => "min",
            Per::Hour => "h",
        }
    }
}

/// The anomaly score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anomaly {
    /// The weight of the newest reading.
    pub alpha: f64,
    /// Readings before the first score.
    pub warm_up: usize,
    /// Made at most this often; without it at every reading.
    pub every: Option<Duration>,
}

/// Swinging door compression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compress {
    /// How far a line may be from a reading that was left out.
    pub deviation: f64,
    /// A reading is sent at least this often.
    pub max_silence: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    tag: String,
    average: Option<AverageEntry>,
    rate: Option<RateEntry>,
    anomaly: Option<AnomalyEntry>,
    compress: Option<CompressEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AverageEntry {
    window: Option<String>,
    readings: Option<i64>,
    every: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RateEntry {
    window: String,
    per: Option<String>,
    every: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnomalyEntry {
    alpha: Option<f64>,
    warm_up: Option<i64>,
    every: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompressEntry {
    deviation: f64,
    max_silence: Option<String>,
}

impl Rules {
    /// Reads a rules file; everything that is wrong with it comes back together.
    pub fn load(path: &Path) -> Result<Rules, Error> {
        Rules::read(Source::read(path)?)
    }

    /// Rules put together by hand.
    pub fn new(rules: impl IntoIterator<Item = (Tag, Rule)>) -> Rules {
        Rules { by_tag: rules.into_iter().collect() }
    }

    fn read(source: Source) -> Result<Rules, Error> {
        let file: File = source.parse()?;
        let mut rules = Rules::default();
        let mut checking = Checking { source, at: 0, entry: String::new() };
        for spanned in file.rule {
            checking.at = spanned.span().start;
            let entry = spanned.into_inner();
            checking.entry = format!("rule {:?}", entry.tag);
            let Some(tag) = checking.tag(&entry.tag) else { continue };
            let rule = Rule {
                average: entry.average.and_then(|entry| checking.average(&entry)),
                rate: entry.rate.and_then(|entry| checking.rate(&entry)),
                anomaly: entry.anomaly.and_then(|entry| checking.anomaly(&entry)),
                compress: entry.compress.and_then(|entry| checking.compress(&entry)),
            };
            if rules.by_tag.insert(tag, rule).is_some() {
                checking.refuse("tag", "has a rule already: expected one rule a tag");
            }
        }
        checking.source.finish(rules)
    }
}

/// The entry that is being checked.
struct Checking {
    source: Source,
    at: usize,
    entry: String,
}

impl Checking {
    fn refuse(&mut self, key: &str, reason: impl Into<String>) {
        self.source.refuse(self.at, format!("{}.{key}", self.entry), reason);
    }

    fn span(&mut self, key: &str, text: &str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let name = || format!("{}.{key}", self.entry);
        self.source.span(self.at, name, text, range)
    }

    fn every(&mut self, key: &str, text: Option<&String>) -> Option<Duration> {
        text.and_then(|text| self.span(key, text, EVERY))
    }

    fn count(&mut self, key: &str, number: i64) -> Option<usize> {
        let count = usize::try_from(number).ok();
        let count = count.filter(|count| (2..=MAX_WINDOW_READINGS).contains(count));
        if count.is_none() {
            let right = format!("expected a whole number from 2 to {MAX_WINDOW_READINGS}");
            self.refuse(key, format!("is {number}: {right}"));
        }
        count
    }

    fn tag(&mut self, text: &str) -> Option<Tag> {
        let longest = Tag::MAX_LEN - LONGEST_SUFFIX.len();
        match text.parse::<Tag>() {
            Ok(tag) if text.len() <= longest => Some(tag),
            Ok(_) => {
                let why = format!("is {} characters: expected at most {longest}", text.len());
                self.refuse("tag", format!("{why}, for the names of derived tags are longer"));
                None
            }
            Err(invalid) => {
                self.refuse("tag", invalid.problem);
                None
            }
        }
    }

    fn average(&mut self, entry: &AverageEntry) -> Option<Average> {
        let every = self.every("average.every", entry.every.as_ref());
        let over = match (&entry.window, entry.readings) {
            (Some(window), None) => Over::Time(self.span("average.window", window, SPAN)?),
            (None, Some(readings)) => Over::Readings(self.count("average.readings", readings)?),
            _ => {
                self.refuse("average", "expected one of window and readings, and not both");
                return None;
            }
        };
        Some(Average { over, every })
    }

    fn rate(&mut self, entry: &RateEntry) -> Option<Rate> {
        let every = self.every("rate.every", entry.every.as_ref());
        let window = self.span("rate.window", &entry.window, SPAN);
        let per = match entry.per.as_deref() {
            None | Some("1s") => Per::Second,
            Some("1m") => Per::Minute,
            Some("1h") => Per::Hour,
            Some(other) => {
                self.refuse("rate.per", format!("is {other:?}: expected one of 1s, 1m, 1h"));
                return None;
            }
        };
        Some(Rate { window: window?, per, every })
    }

    fn anomaly(&mut self, entry: &AnomalyEntry) -> Option<Anomaly> {
        let every = self.every("anomaly.every", entry.every.as_ref());
        let alpha = entry.alpha.unwrap_or(0.05);
        if !ALPHA.contains(&alpha) {
            let right = format!("expected a number from {} to {}", ALPHA.start(), ALPHA.end());
            self.refuse("anomaly.alpha", format!("is {alpha}: {right}"));
        }
        let warm_up = self.count("anomaly.warm_up", entry.warm_up.unwrap_or(30))?;
        Some(Anomaly { alpha, warm_up, every })
    }

    fn compress(&mut self, entry: &CompressEntry) -> Option<Compress> {
        let deviation = entry.deviation;
        if !(deviation.is_finite() && deviation >= 0.0) {
            let why = format!("is {deviation}: expected a finite number that is not negative");
            self.refuse("compress.deviation", why);
        }
        let silence = entry.max_silence.as_deref().unwrap_or("60s");
        let max_silence = self.span("compress.max_silence", silence, SPAN)?;
        Some(Compress { deviation, max_silence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Rules, String> {
        Rules::read(Source::new(Path::new("rules.toml"), text.to_owned()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_and_the_specification_are_read() {
        let rules = read(include_str!("../../../../docs/examples/analytics.toml")).unwrap();
        assert_eq!(rules.by_tag.len(), 2);
        let page = include_str!("../../../../docs/spec/scada-analytics.md");
        let sample = page.split("```toml").nth(1).unwrap().split("```").next().unwrap();
        let rules = read(sample).unwrap();
        let rule = &rules.by_tag[&"FLOW_RATE".parse().unwrap()];
        assert_eq!(rule.compress.unwrap().deviation, 0.5);
        assert_eq!(rule.rate.unwrap().per, Per::Minute);
        assert_eq!(rule.average.unwrap().over, Over::Time(Duration::from_secs(60)));
    }

    #[test]
    fn every_problem_is_named_with_its_rule_key_and_line() {
        let problems = read(
            "[[rule]]\ntag = \"FLOW_RATE\"\naverage = { window = \"60s\", readings = 3 }\n\
             rate = { window = \"0s\", per = \"2m\" }\nanomaly = { alpha = 2.0 }\n\
             compress = { deviation = -1 }\n[[rule]]\ntag = \"flow\"\n[[rule]]\ntag = \"FLOW_RATE\"\n",
        )
        .unwrap_err();
        for named in [
            "rule \"FLOW_RATE\".average (rules.toml:1)",
            "rule \"FLOW_RATE\".rate.window (rules.toml:1): is \"0s\": expected a time span from 1s",
            "rule \"FLOW_RATE\".rate.per (rules.toml:1): is \"2m\": expected one of 1s, 1m, 1h",
            "rule \"FLOW_RATE\".anomaly.alpha (rules.toml:1): is 2: expected a number from 0.0001",
            "rule \"FLOW_RATE\".compress.deviation (rules.toml:1): is -1: expected",
            "rule \"flow\".tag (rules.toml:7): is \"flow\": expected 1 to 128",
            "rule \"FLOW_RATE\".tag (rules.toml:9): has a rule already",
        ] {
            assert!(problems.contains(named), "{named}\n{problems}");
        }
    }

    #[test]
    fn what_has_another_form_is_named_by_its_line() {
        let problem = read("[[rule]]\ntag = \"A\"\ncompres = { deviation = 1 }\n").unwrap_err();
        assert!(problem.contains("compres (rules.toml:3): unknown field"), "{problem}");
        let problem = read("[[rule]]\ntag = 5\n").unwrap_err();
        assert!(problem.contains("[[rule]] tag (rules.toml:2): invalid type"), "{problem}");
    }
}
