//! Measurements: a random walk that drifts back to its setpoint.

use event::QualityCode;

use super::random::Random;
use super::rounded;

/// How far a value is drawn back to its setpoint in one step.
const REVERSION: f64 = 0.1;
/// The part of the span next to a limit in which a value is uncertain.
const MARGIN: f64 = 0.05;
/// The part of the span by which a value may leave its range: a sensor shows a little more than it can measure.
const BEYOND: f64 = 0.1;

/// A process variable that is measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Its tag.
    pub tag: &'static str,
    /// Where it drifts to.
    pub setpoint: f64,
    /// The lowest value that the sensor can measure.
    pub low: f64,
    /// The highest one.
    pub high: f64,
    /// The deviation of a step's noise.
    pub amplitude: f64,
    /// The engineering unit.
    pub unit: &'static str,
}

/// The three tags of a node.
pub const TAGS: [Measured; 3] = [
    Measured {
        tag: "FLOW_RATE",
        setpoint: 50.0,
        low: 0.0,
        high: 120.0,
        amplitude: 5.0,
        unit: "m³/h",
    },
    Measured { tag: "PRESSURE", setpoint: 12.0, low: 0.0, high: 30.0, amplitude: 1.5, unit: "bar" },
    Measured {
        tag: "TEMPERATURE",
        setpoint: 180.0,
        low: -20.0,
        high: 400.0,
        amplitude: 8.0,
        unit: "°C",
    },
];

/// How far a value can be trusted, by how near it is to the limits of `low` to `high`.
pub fn quality(value: f64, low: f64, high: f64) -> QualityCode {
    let margin = (high - low) * MARGIN;
    if value < low || value > high {
        QualityCode::Oor
    } else if value < low + margin || value > high - margin {
        QualityCode::Uncertain
    } else {
        QualityCode::Good
    }
}

/// A tag's value over time.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    pub(super) measured: &'static Measured,
    current: f64,
}

impl Walk {
    pub(super) fn new(measured: &'static Measured) -> Walk {
        Walk { measured, current: measured.setpoint }
    }

    pub(super) fn step(&mut self, random: &mut Random) -> (f64, QualityCode) {
        let Measured { setpoint, low, high, amplitude, .. } = *self.measured;
        let drift = (setpoint - self.current) * REVERSION;
        let noise = random.gauss() * amplitude;
        let beyond = (high - low) * BEYOND;
        self.current = (self.current + drift + noise).clamp(low - beyond, high + beyond);
        let value = rounded(self.current);
        (value, quality(value, low, high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_goes_by_the_limits() {
        let of = |value| quality(value, 0.0, 120.0);
        assert_eq!(of(50.0), QualityCode::Good);
        assert_eq!(of(6.0), QualityCode::Good, "the margin is 5 % of the span");
        assert_eq!(of(5.99), QualityCode::Uncertain);
        assert_eq!(of(0.0), QualityCode::Uncertain, "a limit can still be measured");
        assert_eq!(of(-0.01), QualityCode::Oor);
        assert_eq!(of(114.01), QualityCode::Uncertain);
        assert_eq!(of(120.01), QualityCode::Oor);
    }

    #[test]
    fn a_walk_stays_around_its_setpoint_and_within_the_widened_range() {
        for measured in &TAGS {
            let (mut walk, mut random) = (Walk::new(measured), Random::new(5));
            let values: Vec<f64> = (0..50_000).map(|_| walk.step(&mut random).0).collect();
            let mean = values.iter().sum::<f64>() / 5e4;
            assert!((mean - measured.setpoint).abs() < measured.amplitude, "{mean}");
            let beyond = (measured.high - measured.low) * BEYOND;
            let within = measured.low - beyond..=measured.high + beyond;
            assert!(values.iter().all(|value| within.contains(value)));
        }
    }
}
