//! Alarms. Their severity is a property of the tag: `event::scada::Severity::of_alarm`.

use super::random::Random;
use super::rounded;

/// A kind of alarm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alarm {
    /// Its tag.
    pub tag: &'static str,
    /// How likely it is in a cycle.
    pub probability: f64,
    /// The limit that was passed.
    pub threshold: f64,
    /// Whether it is the lower side of the threshold that alarms.
    pub below: bool,
    /// The unit of threshold and value.
    pub unit: &'static str,
}

/// The six kinds.
pub const ALARMS: [Alarm; 6] = [
    alarm("HIGH_FLOW", 0.008, 95.0, "m³/h"),
    Alarm { below: true, ..alarm("LOW_PRESSURE", 0.005, 2.0, "bar") },
    alarm("HIGH_TEMP", 0.004, 320.0, "°C"),
    alarm("CRITICAL_TEMP", 0.001, 380.0, "°C"),
    alarm("VIBRATION_HIGH", 0.006, 7.1, "mm/s"),
    alarm(INSTRUMENT_FAULT, 0.003, 1.0, ""),
];

const INSTRUMENT_FAULT: &str = "INSTRUMENT_FAULT";

const fn alarm(tag: &'static str, probability: f64, threshold: f64, unit: &'static str) -> Alarm {
    Alarm { tag, probability, threshold, below: false, unit }
}

impl Alarm {
    /// A value beyond the threshold by up to a twentieth of it; a fault is a fault.
    pub(super) fn value(&self, random: &mut Random) -> f64 {
        let excess = 0.05 * self.threshold * random.unit();
        match (self.tag, self.below) {
            (INSTRUMENT_FAULT, _) => self.threshold,
            (_, true) => rounded(self.threshold - excess),
            (_, false) => rounded(self.threshold + excess),
        }
    }
}

#[cfg(test)]
mod tests {
    use event::scada::Severity;

    use super::*;

    #[test]
    fn alarms_are_beyond_their_thresholds_and_have_a_severity() {
        let mut random = Random::new(1);
        for alarm in ALARMS {
            let value = alarm.value(&mut random);
            let beyond =
                if alarm.below { value <= alarm.threshold } else { value >= alarm.threshold };
            assert!(beyond, "{alarm:?}: {value}");
            assert!(Severity::of_alarm(&alarm.tag.parse().unwrap()).is_some());
        }
    }
}
