//! One tag over time: scaling, quality, and which readings are sent. Pure.

use std::time::Duration;

use event::QualityCode;
use event::id::EventId;
use event::scada::{Category, Envelope};
use jiff::{SignedDuration, Timestamp};

use super::{Point, Raw};

/// How far ahead of this machine a source's clock may be before it is not believed.
const MAX_AHEAD: SignedDuration = SignedDuration::from_secs(10);

/// What is remembered of a tag.
#[derive(Debug)]
pub(super) struct Series {
    point: Point,
    max_silence: SignedDuration,
    /// The last value that could be read: what is told while there is none.
    value: f64,
    sent: Option<Sent>,
}

#[derive(Debug)]
struct Sent {
    value: f64,
    quality: QualityCode,
    /// The time in its envelope.
    timestamp: Timestamp,
    source_time: Option<Timestamp>,
    /// When, by the clock.
    at: Timestamp,
}

/// What becomes of a reading.
#[derive(Debug, PartialEq)]
pub(super) enum Taken {
    /// It is sent.
    Sent(Envelope),
    /// It is left out, and counted.
    LeftOut(Envelope),
    /// Nothing was read, and that is known.
    Nothing,
}

impl Series {
    pub(super) fn new(point: Point, max_silence: Duration) -> Series {
        let max_silence = SignedDuration::try_from(max_silence).unwrap_or(SignedDuration::MAX);
        Series { point, max_silence, value: 0.0, sent: None }
    }

    /// The reading as an envelope, whether it is sent or not.
    pub(super) fn reading(&mut self, raw: &Raw, now: Timestamp) -> Envelope {
        let read = match raw {
            Raw::Number { number, uncertain, source_time } => {
                let value = number * self.point.scale + self.point.offset;
                value.is_finite().then_some((value, *uncertain, *source_time))
            }
            Raw::Unreadable(_) => None,
        };
        let (quality, source_time) = match read {
            Some((value, uncertain, source_time)) => {
                self.value = value;
                (self.quality(value, uncertain), source_time)
            }
            None => (QualityCode::Bad, None),
        };
        // A source tells the time of a change. After an outage that may be long before the outage, and the reading must not
        // look older than the one that told of it.
        let before = self.sent.as_ref().map(|sent| sent.timestamp);
        let timestamp = source_time
            .filter(|time| before.is_none_or(|before| *time > before))
            .filter(|time| time.duration_since(now) <= MAX_AHEAD)
            .unwrap_or(now);
        Envelope {
            event_id: EventId::mint(),
            timestamp,
            asset: self.point.asset.clone(),
            tag: self.point.tag.clone(),
            value: self.value,
            unit: self.point.unit.clone(),
            quality,
            category: Category::Telemetry,
            node_id: self.point.node_id,
        }
    }

    /// Takes what a device said.
    pub(super) fn take(&mut self, raw: &Raw, now: Timestamp) -> Taken {
        let reading = self.reading(raw, now);
        let source_time = match raw {
            Raw::Number { source_time, .. } => *source_time,
            Raw::Unreadable(_) => None,
        };
        if !self.is_news(&reading, source_time, now) {
            return match reading.quality {
                QualityCode::Bad => Taken::Nothing,
                _ => Taken::LeftOut(reading),
            };
        }
        self.sent = Some(Sent {
            value: reading.value,
            quality: reading.quality,
            timestamp: reading.timestamp,
            source_time,
            at: now,
        });
        Taken::Sent(reading)
    }

    /// What a device has not said again, and is as it was: sent when the silence has been long enough, and no reading otherwise. What
    /// was never sent, or was lost since, is news.
    pub(super) fn again(&mut self, raw: &Raw, now: Timestamp) -> Taken {
        let quality = self.reading(raw, now).quality;
        let is_sent = self
            .sent
            .as_ref()
            .is_some_and(|sent| !self.is_silent(sent, now) && sent.quality == quality);
        if is_sent { Taken::Nothing } else { self.take(raw, now) }
    }

    /// A clock that was set back must not silence a tag.
    fn is_silent(&self, sent: &Sent, now: Timestamp) -> bool {
        now < sent.at || now.duration_since(sent.at) >= self.max_silence
    }

    fn is_news(&self, reading: &Envelope, source_time: Option<Timestamp>, now: Timestamp) -> bool {
        let Some(sent) = &self.sent else { return true };
        if self.is_silent(sent, now) || reading.quality != sent.quality {
            return true;
        }
        if reading.quality == QualityCode::Bad {
            return false;
        }
        if self.point.dead_band > 0.0 {
            return (reading.value - sent.value).abs() > self.point.dead_band;
        }
        let same_time = source_time.is_some() && source_time == sent.source_time;
        !(same_time && reading.value == sent.value)
    }

    fn quality(&self, value: f64, uncertain: bool) -> QualityCode {
        let below = self.point.low.is_some_and(|low| value < low);
        let above = self.point.high.is_some_and(|high| value > high);
        match (below || above, uncertain) {
            (true, _) => QualityCode::Oor,
            (false, true) => QualityCode::Uncertain,
            (false, false) => QualityCode::Good,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::scada::Asset;

    fn series(dead_band: f64) -> Series {
        let word = |text: &str| text.parse().unwrap();
        let point = Point {
            node_id: 7,
            asset: Asset { plant: word("P"), area: word("A"), unit: word("U") },
            tag: "FLOW_RATE".parse().unwrap(),
            unit: "m³/h".to_owned(),
            scale: 0.5,
            offset: 10.0,
            low: Some(0.0),
            high: Some(100.0),
            dead_band,
        };
        Series::new(point, Duration::from_secs(60))
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn sent(taken: Taken) -> Option<(f64, QualityCode, i64)> {
        match taken {
            Taken::Sent(reading) => {
                assert_eq!(reading.check(), Ok(()));
                Some((reading.value, reading.quality, reading.timestamp.as_second()))
            }
            _ => None,
        }
    }

    #[test]
    fn values_are_scaled_judged_and_kept_out_by_the_dead_band() {
        let mut series = series(1.0);
        let mut take = |second, number| sent(series.take(&Raw::number(number), at(second)));
        assert_eq!(take(0, 40.0), Some((30.0, QualityCode::Good, 0)));
        assert_eq!(take(1, 42.0), None, "31 is within the band");
        assert_eq!(take(2, 42.2), Some((31.1, QualityCode::Good, 2)));
        assert_eq!(take(3, 180.0), Some((100.0, QualityCode::Good, 3)), "a limit can be measured");
        assert_eq!(take(4, 181.0), Some((100.5, QualityCode::Oor, 4)), "within the band, but OOR");
        assert_eq!(take(5, 181.0), None);
        assert_eq!(take(64, 181.0), Some((100.5, QualityCode::Oor, 64)), "the silence is over");
        assert_eq!(take(10, 181.0), Some((100.5, QualityCode::Oor, 10)), "the clock was set back");
    }

    #[test]
    fn unreadable_is_told_once_with_the_last_value_and_then_rarely() {
        let mut series = series(0.0);
        let gone = Raw::Unreadable("gone".to_owned());
        assert_eq!(sent(series.take(&gone, at(0))), Some((0.0, QualityCode::Bad, 0)));
        assert_eq!(series.take(&gone, at(1)), Taken::Nothing);
        assert_eq!(sent(series.take(&Raw::number(2.0), at(2))), Some((11.0, QualityCode::Good, 2)));
        assert_eq!(
            sent(series.take(&Raw::number(f64::NAN), at(3))),
            Some((11.0, QualityCode::Bad, 3))
        );
        assert_eq!(series.take(&gone, at(62)), Taken::Nothing);
        assert_eq!(sent(series.take(&gone, at(63))), Some((11.0, QualityCode::Bad, 63)));
    }

    #[test]
    fn without_a_dead_band_only_a_repeat_of_the_source_is_left_out() {
        let mut series = series(0.0);
        let from_source =
            |second| Raw::Number { number: 2.0, uncertain: true, source_time: Some(at(second)) };
        assert_eq!(
            sent(series.take(&from_source(5), at(10))),
            Some((11.0, QualityCode::Uncertain, 5))
        );
        assert!(matches!(series.take(&from_source(5), at(11)), Taken::LeftOut(_)));
        assert_eq!(
            sent(series.take(&from_source(6), at(12))),
            Some((11.0, QualityCode::Uncertain, 6))
        );
        let gone = Raw::Unreadable("gone".to_owned());
        assert_eq!(sent(series.take(&gone, at(20))), Some((11.0, QualityCode::Bad, 20)));
        let again = sent(series.take(&from_source(6), at(30)));
        assert_eq!(again, Some((11.0, QualityCode::Uncertain, 30)), "not before the outage");
        let ahead = sent(series.take(&from_source(500), at(31)));
        assert_eq!(ahead, Some((11.0, QualityCode::Uncertain, 31)), "such a clock is not believed");
        let mut series = self::series(0.0);
        for second in 0..3 {
            assert!(
                sent(series.take(&Raw::number(1.0), at(second))).is_some(),
                "every one is sent"
            );
        }
    }
}
