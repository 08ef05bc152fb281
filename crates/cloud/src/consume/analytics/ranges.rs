//! The ranges in which animals are comfortable. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

/// A comfortable range for each metric and unit; others have none, and no share of time in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranges(BTreeMap<(String, String), (f64, f64)>);

const EXPECTED: &str =
    "expected metric, unit and range, with commas between, such as temperature C 18..27";

/// The most ranges.
const MAX_RANGES: usize = 100;

impl Ranges {
    /// The lowest and highest comfortable value.
    pub fn of(&self, metric_type: &str, unit: &str) -> Option<(f64, f64)> {
        self.0.get(&(metric_type.to_owned(), unit.to_owned())).copied()
    }
}

impl Default for Ranges {
    /// What guides for closed barns agree on, roughly; every species and age has its own.
    fn default() -> Ranges {
        let range = |metric: &str, unit: &str, low, high| {
            ((metric.to_owned(), unit.to_owned()), (low, high))
        };
        Ranges(BTreeMap::from([
            range("temperature", "C", 18.0, 27.0),
            range("humidity", "%", 50.0, 70.0),
            range("ammonia", "ppm", 0.0, 20.0),
        ]))
    }
}

impl FromStr for Ranges {
    type Err = String;

    fn from_str(text: &str) -> Result<Ranges, String> {
        let mut ranges = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let fault = || format!("{part:?} cannot be used: {EXPECTED}");
            let words: Vec<&str> = part.split_whitespace().collect();
            let [metric, unit, range] = words[..] else { return Err(fault()) };
            event::farm::rules::metric_type("metric", metric).map_err(|_| fault())?;
            event::farm::rules::unit("unit", unit).map_err(|_| fault())?;
            let (low, high) = range.split_once("..").ok_or_else(fault)?;
            let number = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
            let (low, high) = number(low).zip(number(high)).ok_or_else(fault)?;
            if low > high {
                return Err(format!("{part:?} cannot be used: its range ends before it begins"));
            }
            let key = (metric.to_owned(), unit.to_owned());
            if ranges.insert(key, (low, high)).is_some() {
                return Err(format!("{metric} in {unit} is there twice: expected it once"));
            }
            if ranges.len() > MAX_RANGES {
                return Err(format!("there are more than {MAX_RANGES} ranges"));
            }
        }
        Ok(Ranges(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_faults_are_named() {
        let ranges: Ranges =
            "temperature C 18..27, humidity % 50..70,ammonia ppm 0..20".parse().unwrap();
        assert_eq!(ranges, Ranges::default());
        assert_eq!(ranges.of("temperature", "C"), Some((18.0, 27.0)));
        assert_eq!(ranges.of("temperature", "F"), None);
        assert_eq!("".parse::<Ranges>().unwrap().of("temperature", "C"), None);
        for text in ["temperature", "temperature C", "temperature C 18", "T C 1..2", "a C 2..1"] {
            assert!(text.parse::<Ranges>().is_err(), "{text}");
        }
        assert!("a C 1..2, a C 1..3".parse::<Ranges>().unwrap_err().contains("twice"));
    }
}
