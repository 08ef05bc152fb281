//! The reducer against its promises.

use event::scada::Asset;
use proptest::prelude::*;

use super::*;

fn reading(at_ms: i64, value: f64, quality: QualityCode) -> Envelope {
    let word = |text: &str| text.parse().unwrap();
    Envelope {
        event_id: EventId::mint(),
        timestamp: Timestamp::from_millisecond(at_ms).unwrap(),
        asset: Asset { plant: word("PLANT01"), area: word("AREA01"), unit: word("UNIT_07") },
        tag: "FLOW_RATE".parse().unwrap(),
        value,
        unit: "m³/h".to_owned(),
        quality,
        category: Category::Telemetry,
        node_id: 7,
    }
}

fn good(at_ms: i64, value: f64) -> Envelope {
    reading(at_ms, value, QualityCode::Good)
}

fn reducer(rule: Rule) -> Reducer {
    Reducer::new(Rules::new([("FLOW_RATE".parse().unwrap(), rule)]))
}

fn compressing(deviation: f64, silence_ms: u64) -> Reducer {
    let compress = Compress { deviation, max_silence: Duration::from_millis(silence_ms) };
    reducer(Rule { compress: Some(compress), ..Rule::default() })
}

/// Everything that is sent of these readings, each its own cycle, and the sum of the counts.
fn run(reducer: &mut Reducer, readings: &[Envelope]) -> (Vec<Envelope>, Counts) {
    let (mut sent, mut counts) = (Vec::new(), Counts::new());
    let mut take = |reduced: Reduced| {
        for (_, tally) in reduced.counts.iter() {
            assert_eq!(tally.readings, tally.kept + tally.reduced, "in every cycle");
        }
        counts.merge(&reduced.counts);
        sent.extend(reduced.envelopes);
    };
    for reading in readings {
        take(reducer.apply(vec![reading.clone()], reading.timestamp));
    }
    take(reducer.flush());
    (sent, counts)
}

/// Straight lines between the readings around a time.
fn interpolated(sent: &[Envelope], at: Timestamp) -> f64 {
    let after = sent.iter().position(|kept| kept.timestamp >= at).unwrap();
    let right = &sent[after];
    if right.timestamp == at {
        return right.value;
    }
    let left = &sent[after - 1];
    let part =
        seconds_between(left.timestamp, at) / seconds_between(left.timestamp, right.timestamp);
    left.value + (right.value - left.value) * part
}

prop_compose! {
    /// Walks with jumps, drifts, pauses and changes of quality.
    fn series()(steps in prop::collection::vec(
        (1i64..5_000, prop_oneof![4 => -0.5f64..0.5, 1 => -20.0f64..20.0, 1 => Just(0.0)], 0u8..40),
        1..200,
    )) -> Vec<Envelope> {
        let (mut at, mut value, mut quality) = (0, 50.0, QualityCode::Good);
        steps.into_iter().map(|(pause, step, turn)| {
            (at, value) = (at + pause, value + step);
            if usize::from(turn) < QualityCode::ALL.len() {
                quality = QualityCode::ALL[usize::from(turn)];
            }
            reading(at, value, quality)
        }).collect()
    }
}

proptest! {
    #[test]
    fn what_was_left_out_is_within_the_deviation_of_a_line(
        readings in series(), deviation in 0.0f64..3.0, silence in 1_000u64..60_000,
    ) {
        let (sent, counts) = run(&mut compressing(deviation, silence), &readings);
        for reading in &readings {
            let away = (interpolated(&sent, reading.timestamp) - reading.value).abs();
            prop_assert!(away <= deviation + 1e-9 * reading.value.abs().max(1.0), "{away} {reading:?}");
        }
        prop_assert_eq!(&sent[0], &readings[0]);
        let total = counts.total();
        prop_assert_eq!(usize::try_from(total.readings).unwrap(), readings.len());
        prop_assert_eq!(usize::try_from(total.kept).unwrap(), sent.len());
        prop_assert_eq!(total.readings, total.kept + total.reduced);
        prop_assert!(sent.is_sorted_by_key(|kept| kept.timestamp));
        prop_assert!(sent.iter().all(|kept| readings.contains(kept)), "nothing is made up");
        // Every change of quality passes with the reading before it.
        for pair in readings.windows(2).filter(|pair| pair[0].quality != pair[1].quality) {
            prop_assert!(sent.contains(&pair[0]) && sent.contains(&pair[1]));
        }
        // A reading that ends a silence is sent itself.
        for pair in sent.windows(2) {
            let silence = i128::from(silence) * 1_000_000;
            let quiet = pair[1].timestamp.as_nanosecond() - pair[0].timestamp.as_nanosecond();
            let earlier = readings.iter().filter(|reading| {
                let since = reading.timestamp.as_nanosecond() - pair[0].timestamp.as_nanosecond();
                since >= silence && since < quiet
            });
            prop_assert_eq!(earlier.count(), 0, "there was an earlier reading to send");
        }
    }

    #[test]
    fn counts_go_through_json_unchanged(readings in series()) {
        let (_, counts) = run(&mut compressing(0.5, 30_000), &readings);
        let text = serde_json::to_string(&counts).unwrap();
        prop_assert_eq!(serde_json::from_str::<Counts>(&text).unwrap(), counts);
    }
}

#[test]
fn a_ramp_needs_its_ends_only() {
    let ramp: Vec<Envelope> =
        (0..1_000u16).map(|n| good(i64::from(n) * 10, f64::from(n))).collect();
    let (sent, _) = run(&mut compressing(0.1, 60_000), &ramp);
    let times: Vec<i64> = sent.iter().map(|kept| kept.timestamp.as_millisecond()).collect();
    assert_eq!(times, [0, 9_990]);
}

#[test]
fn a_held_reading_is_sent_when_it_is_overdue_and_the_next_is_not_there() {
    let mut reducer = compressing(1.0, 10_000);
    let at = |ms| Timestamp::from_millisecond(ms).unwrap();
    assert_eq!(reducer.apply(vec![good(0, 1.0)], at(0)).envelopes.len(), 1);
    let held = reducer.apply(vec![good(1_000, 1.5)], at(1_000));
    assert!(held.envelopes.is_empty());
    assert_eq!(held.counts.total().reduced, 1);
    assert!(reducer.apply(Vec::new(), at(9_000)).is_empty());
    let late = reducer.apply(Vec::new(), at(11_000));
    assert_eq!(late.envelopes[0].value, 1.5);
    let total = late.counts.total();
    assert_eq!((total.readings, total.kept, total.reduced), (0, 1, -1));
    assert!(reducer.flush().is_empty());
}

#[test]
fn a_clock_that_goes_back_begins_anew_and_a_repeat_is_left_out() {
    let (sent, counts) = run(
        &mut compressing(1.0, 60_000),
        &[good(5_000, 1.0), good(5_000, 1.0), good(1_000, 1.1), good(2_000, 1.2)],
    );
    let values: Vec<f64> = sent.iter().map(|kept| kept.value).collect();
    assert_eq!(values, [1.0, 1.1, 1.2]);
    assert_eq!(counts.total().reduced, 1);
}

#[test]
fn derived_tags_have_names_units_and_counts_and_bad_readings_make_none() {
    let mut reducer = reducer(Rule {
        average: Some(Average { over: Over::Readings(2), every: None }),
        rate: Some(Rate { window: Duration::from_secs(60), per: Per::Minute, every: None }),
        anomaly: Some(Anomaly { alpha: 0.1, warm_up: 2, every: None }),
        compress: None,
    });
    let bad = reading(2_500, 9e9, QualityCode::Bad);
    let readings = [good(0, 10.0), good(1_000, 20.0), bad.clone(), good(2_000 + 1_000, 30.0)];
    let (sent, counts) = run(&mut reducer, &readings);
    let made: Vec<(&str, f64, &str)> =
        sent.iter().map(|made| (made.tag.as_str(), made.value, made.unit.as_str())).collect();
    assert_eq!(made[0], ("FLOW_RATE", 10.0, "m³/h"));
    assert_eq!(made[1], ("FLOW_RATE_AVG", 10.0, "m³/h"));
    assert!(made.contains(&("FLOW_RATE_AVG", 15.0, "m³/h")));
    assert!(made.contains(&("FLOW_RATE_AVG", 25.0, "m³/h")), "not of the bad one");
    assert!(made.contains(&("FLOW_RATE_RATE", 600.0, "m³/h/min")));
    assert!(
        made.iter().any(|(tag, score, unit)| *tag == "FLOW_RATE_ANOMALY"
            && *score > 0.0
            && unit.is_empty())
    );
    let place = sent.iter().position(|made| made.event_id == bad.event_id).unwrap();
    assert_eq!(sent[place + 1].event_id, readings[3].event_id, "a bad reading makes nothing");
    let total = counts.total();
    assert_eq!((total.readings, total.kept, total.reduced), (4, 4, 0));
    assert_eq!(usize::try_from(total.derived).unwrap(), sent.len() - 4);
    for made in &sent {
        assert_eq!(made.check(), Ok(()));
    }
}

#[test]
fn events_alarms_and_tags_without_a_rule_pass_as_they_are() {
    let mut reducer = compressing(100.0, 60_000);
    let alarm = Envelope { category: Category::Alarm, ..good(0, 1.0) };
    let other = Envelope { tag: "PRESSURE".parse().unwrap(), ..good(0, 1.0) };
    let cycle = vec![alarm, other.clone(), other];
    let reduced = reducer.apply(cycle.clone(), Timestamp::UNIX_EPOCH);
    assert_eq!(reduced.envelopes, cycle);
    let total = reduced.counts.total();
    assert_eq!((total.readings, total.kept, total.reduced), (2, 2, 0), "alarms are no readings");
}
