//! Readings made from readings: average, rate, anomaly score. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::rules::{Anomaly, Average, Over, Rate};
use super::{MAX_WINDOW_READINGS, seconds_between, signed};

/// A score is kept within this; further away says no more.
const MAX_SCORE: f64 = 100.0;
/// A reading moves what is expected as if it were at most so many deviations away.
const MAX_PULL: f64 = 4.0;
/// The least deviation, as a part of the mean: that of a signal that stood still is 0.
const LEAST_DEVIATION: f64 = 1e-9;

/// The latest readings.
#[derive(Debug)]
struct Window {
    over: Over,
    readings: VecDeque<(Timestamp, f64)>,
}

impl Window {
    fn new(over: Over) -> Window {
        Window { over, readings: VecDeque::new() }
    }

    fn push(&mut self, at: Timestamp, value: f64) {
        if self.readings.back().is_some_and(|(last, _)| *last > at) {
            self.readings.clear();
        }
        self.readings.push_back((at, value));
        let (most, span) = match self.over {
            Over::Time(span) => (MAX_WINDOW_READINGS, Some(span)),
            Over::Readings(count) => (count, None),
        };
        let too_old =
            |first: Timestamp| span.is_some_and(|span| at.duration_since(first) > signed(span));
        while let Some((first, _)) = self.readings.front() {
            if self.readings.len() <= most && !too_old(*first) {
                break;
            }
            self.readings.pop_front();
        }
    }
}

/// When a derived reading is due.
#[derive(Debug)]
struct Pace {
    every: Option<Duration>,
    last: Option<Timestamp>,
}

impl Pace {
    fn new(every: Option<Duration>) -> Pace {
        Pace { every, last: None }
    }

    fn is_due(&mut self, at: Timestamp) -> bool {
        let due = match (self.every, self.last) {
            (Some(every), Some(last)) => at < last || at.duration_since(last) >= signed(every),
            _ => true,
        };
        if due {
            self.last = Some(at);
        }
        due
    }
}

#[derive(Debug)]
pub(super) struct MovingAverage {
    window: Window,
    pace: Pace,
}

impl MovingAverage {
    pub(super) fn new(rule: Average) -> MovingAverage {
        MovingAverage { window: Window::new(rule.over), pace: Pace::new(rule.every) }
    }

    pub(super) fn next(&mut self, at: Timestamp, value: f64) -> Option<f64> {
        self.window.push(at, value);
        if !self.pace.is_due(at) {
            return None;
        }
        // Summed anew each time: a running sum would drift over months.
        let readings = &self.window.readings;
        Some(readings.iter().map(|(_, value)| value).sum::<f64>() / readings.len() as f64)
    }
}

#[derive(Debug)]
pub(super) struct RateOfChange {
    pub(super) rule: Rate,
    window: Window,
    pace: Pace,
}

impl RateOfChange {
    pub(super) fn new(rule: Rate) -> RateOfChange {
        let window = Window::new(Over::Time(rule.window));
        RateOfChange { rule, window, pace: Pace::new(rule.every) }
    }

    pub(super) fn next(&mut self, at: Timestamp, value: f64) -> Option<f64> {
        self.window.push(at, value);
        let (oldest, before) = *self.window.readings.front()?;
        let seconds = seconds_between(oldest, at);
        // One reading has no rate; then the next is not made to wait for its turn.
        if seconds <= 0.0 || !self.pace.is_due(at) {
            return None;
        }
        Some((value - before) / seconds * self.rule.per.seconds())
    }
}

#[derive(Debug)]
pub(super) struct AnomalyScore {
    rule: Anomaly,
    seen: usize,
    mean: f64,
    variance: f64,
    pace: Pace,
}

impl AnomalyScore {
    pub(super) fn new(rule: Anomaly) -> AnomalyScore {
        AnomalyScore { rule, seen: 0, mean: 0.0, variance: 0.0, pace: Pace::new(rule.every) }
    }

    pub(super) fn next(&mut self, at: Timestamp, value: f64) -> Option<f64> {
        if self.seen == 0 {
            (self.seen, self.mean) = (1, value);
            return None;
        }
        let least = LEAST_DEVIATION * self.mean.abs().max(1.0);
        let deviation = self.variance.sqrt().max(least);
        let away = value - self.mean;
        let warm = self.seen >= self.rule.warm_up;
        // The first readings are all that is known: they weigh the same, and none is an outlier.
        let (alpha, pull) = if warm {
            (self.rule.alpha, away.clamp(-MAX_PULL * deviation, MAX_PULL * deviation))
        } else {
            (1.0 / (self.seen + 1) as f64, away)
        };
        self.mean += alpha * pull;
        self.variance = (1.0 - alpha) * (self.variance + alpha * pull * pull);
        self.seen = self.seen.saturating_add(1);
        let score = (away / deviation).clamp(-MAX_SCORE, MAX_SCORE);
        (warm && self.pace.is_due(at)).then_some(score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::rules::Per;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn an_average_is_over_its_window_of_time_or_of_readings() {
        let over = |over| MovingAverage::new(Average { over, every: None });
        let mut time = over(Over::Time(Duration::from_secs(10)));
        let mut count = over(Over::Readings(2));
        let both = [(0, 10.0), (5, 20.0), (10, 30.0), (20, 40.0)].map(|(second, value)| {
            (time.next(at(second), value).unwrap(), count.next(at(second), value).unwrap())
        });
        assert_eq!(both, [(10.0, 10.0), (15.0, 15.0), (20.0, 25.0), (35.0, 35.0)]);
        assert_eq!(time.next(at(3), 7.0), Some(7.0), "the clock went back: a new window");
    }

    #[test]
    fn a_window_is_bounded_and_a_pace_is_kept() {
        let mut window = Window::new(Over::Time(Duration::from_secs(86_400)));
        for _ in 0..MAX_WINDOW_READINGS + 5 {
            window.push(at(1), 1.0);
        }
        assert_eq!(window.readings.len(), MAX_WINDOW_READINGS);
        let mut pace = Pace::new(Some(Duration::from_secs(10)));
        let due: Vec<i64> = (0..25).filter(|second| pace.is_due(at(*second))).collect();
        assert_eq!(due, [0, 10, 20]);
    }

    #[test]
    fn a_rate_is_per_its_time_over_its_window() {
        let rule = Rate { window: Duration::from_secs(10), per: Per::Minute, every: None };
        let mut rate = RateOfChange::new(rule);
        assert_eq!(rate.next(at(0), 5.0), None, "one reading has no rate");
        assert_eq!(rate.next(at(5), 10.0), Some(60.0));
        assert_eq!(rate.next(at(20), 10.0), None, "the readings before are too old");
        assert_eq!(rate.next(at(20), 11.0), None, "no time has passed");
    }

    #[test]
    fn an_outlier_scores_high_and_a_level_that_stays_becomes_normal() {
        let rule = Anomaly { alpha: 0.05, warm_up: 30, every: None };
        let mut anomaly = AnomalyScore::new(rule);
        let noise = |second: i64| [0.3, -0.2, 0.5, -0.6, 0.1][usize::try_from(second % 5).unwrap()];
        for second in 0..200 {
            let score = anomaly.next(at(second), 50.0 + noise(second));
            assert_eq!(score.is_some(), second >= 30, "{second}");
            assert!(score.is_none_or(|score| score.abs() < 3.0), "{second} {score:?}");
        }
        assert!(anomaly.next(at(200), 60.0).unwrap() > 10.0);
        assert!(anomaly.next(at(201), 50.3).unwrap().abs() < 3.0, "one outlier changes little");
        let scores: Vec<f64> = (202..500)
            .map(|second| anomaly.next(at(second), 60.0 + noise(second)).unwrap())
            .collect();
        assert!(scores[0] > 5.0 && scores[297].abs() < 3.0, "{} {}", scores[0], scores[297]);
    }

    #[test]
    fn a_signal_that_stood_still_has_a_score_too() {
        let rule = Anomaly { alpha: 0.05, warm_up: 2, every: None };
        let mut anomaly = AnomalyScore::new(rule);
        for second in 0..50 {
            assert!(anomaly.next(at(second), 0.0).is_none_or(|score| score == 0.0));
        }
        assert_eq!(anomaly.next(at(51), -1.0), Some(-MAX_SCORE));
    }
}
