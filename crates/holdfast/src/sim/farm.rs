//! A barn's climate and its birds, as four readings with a daily rhythm and noise. Pure: time and randomness come in.

use std::f64::consts::TAU;

use rand::{Rng, RngExt};
use serde_json::{Value, json};

/// Above this an ammonia alarm is raised; it clears below [`AMMONIA_CLEAR_PPM`].
const AMMONIA_ALARM_PPM: f64 = 25.0;
const AMMONIA_CLEAR_PPM: f64 = 20.0;

/// The slow part of each reading's noise returns to zero at this rate per reading.
const REVERSION: f64 = 0.05;

/// One barn. Each has its own offsets, so that five barns do not draw five identical lines.
#[derive(Debug)]
pub(crate) struct Barn {
    offset: f64,
    day_of_flock: f64,
    drift: [f64; 4],
    ammonia_alarm: bool,
}

impl Barn {
    pub(crate) fn new(rng: &mut impl Rng) -> Self {
        Self {
            offset: rng.random_range(-1.5..1.5),
            day_of_flock: rng.random_range(1.0..40.0),
            drift: [0.0; 4],
            ammonia_alarm: false,
        }
    }

    /// One reading of each kind, as requests for the sampler socket, and an alarm when the air turns.
    /// `seconds` is the time of day in seconds, `elapsed_days` how long the flock has been simulated.
    pub(crate) fn readings(
        &mut self,
        seconds: f64,
        elapsed_days: f64,
        rng: &mut impl Rng,
    ) -> Vec<Value> {
        let phase = TAU * (seconds / 86_400.0 - 9.0 / 24.0);
        let temperature = 24.0 + self.offset + 4.0 * phase.sin() + self.noise(0, 0.15, rng);
        let humidity =
            (62.0 - 1.2 * (temperature - 24.0) + self.noise(1, 0.6, rng)).clamp(20.0, 99.0);
        // The fans run slower in the cool hours, so ammonia peaks when temperature is lowest.
        let ammonia =
            (14.0 + self.offset * 2.0 - 7.0 * phase.sin() + self.noise(2, 0.5, rng)).max(0.0);
        let weight = flock_weight_kg(self.day_of_flock + elapsed_days) + self.noise(3, 0.004, rng);

        let mut requests = vec![
            sample("temperature", temperature, 2, "C"),
            sample("humidity", humidity, 1, "%"),
            sample("ammonia", ammonia, 1, "ppm"),
            sample("weight", weight.max(0.03), 3, "kg"),
        ];
        if let Some(event_type) = self.alarm_change(ammonia) {
            requests.push(json!({
                "event_type": event_type,
                "payload": { "code": "NH3_HIGH", "severity": "HIGH", "value": round(ammonia, 1), "limit": AMMONIA_ALARM_PPM },
            }));
        }
        requests
    }

    fn alarm_change(&mut self, ammonia: f64) -> Option<&'static str> {
        if !self.ammonia_alarm && ammonia > AMMONIA_ALARM_PPM {
            self.ammonia_alarm = true;
            Some("alarm.raised")
        } else if self.ammonia_alarm && ammonia < AMMONIA_CLEAR_PPM {
            self.ammonia_alarm = false;
            Some("alarm.cleared")
        } else {
            None
        }
    }

    /// A slow random walk that returns to zero, plus a little white noise.
    fn noise(&mut self, channel: usize, amplitude: f64, rng: &mut impl Rng) -> f64 {
        let step = (rng.random::<f64>() + rng.random::<f64>() - 1.0) * amplitude;
        let drift = &mut self.drift[channel];
        *drift += step - *drift * REVERSION;
        *drift + (rng.random::<f64>() - 0.5) * amplitude
    }
}

/// Mean weight of a broiler flock by age: a Gompertz curve from 40 g to about 2.8 kg at six weeks.
fn flock_weight_kg(day: f64) -> f64 {
    let full_grown = 4.8;
    full_grown * (-4.8 * (-0.052 * day).exp()).exp()
}

fn sample(metric: &str, value: f64, digits: i32, unit: &str) -> Value {
    json!({ "metric_type": metric, "metric_value": round(value, digits), "unit": unit })
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    fn value(requests: &[Value], metric: &str) -> f64 {
        let found = requests.iter().find(|r| r["metric_type"] == metric).unwrap();
        found["metric_value"].as_f64().unwrap()
    }

    fn mean_at(hour: f64, metric: &str) -> f64 {
        let mut rng = StdRng::seed_from_u64(7);
        let mut barn = Barn::new(&mut rng);
        let sum: f64 =
            (0..200).map(|_| value(&barn.readings(hour * 3600.0, 0.0, &mut rng), metric)).sum();
        sum / 200.0
    }

    #[test]
    fn afternoons_are_warmer_and_drier_than_nights() {
        assert!(mean_at(15.0, "temperature") > mean_at(3.0, "temperature") + 4.0);
        assert!(mean_at(15.0, "humidity") < mean_at(3.0, "humidity") - 4.0);
    }

    #[test]
    fn birds_grow() {
        assert!(flock_weight_kg(0.0) > 0.03 && flock_weight_kg(0.0) < 0.06);
        assert!(flock_weight_kg(42.0) > 2.2 && flock_weight_kg(42.0) < 3.2);
    }

    #[test]
    fn readings_stay_in_their_physical_ranges_and_alarms_alternate() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut barn = Barn::new(&mut rng);
        let mut expected = "alarm.raised";
        for minute in 0..20_000 {
            let requests = barn.readings(
                f64::from(minute % 1440) * 60.0,
                f64::from(minute) / 1440.0,
                &mut rng,
            );
            assert!((5.0..45.0).contains(&value(&requests, "temperature")));
            assert!((20.0..99.1).contains(&value(&requests, "humidity")));
            assert!(value(&requests, "ammonia") >= 0.0);
            for alarm in requests.iter().filter_map(|r| r["event_type"].as_str()) {
                assert_eq!(alarm, expected);
                expected = if alarm == "alarm.raised" { "alarm.cleared" } else { "alarm.raised" };
            }
        }
    }
}
