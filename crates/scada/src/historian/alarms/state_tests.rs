//! The table of transitions, and what holds whatever happens.

use proptest::prelude::*;

use super::*;

const START: i64 = 1_800_000_000;

fn second(n: i64) -> Timestamp {
    Timestamp::from_second(START + n).unwrap()
}

fn in_state(state: State) -> Alarm {
    Alarm { state, last_raised_at: Some(second(0)), ..Alarm::new(Severity::High) }
}

#[test]
fn the_documented_table() {
    use State::{ActiveAcknowledged, ActiveUnacknowledged, ClearedUnacknowledged, Normal};
    let rules = Rules::default();
    for (state, raised, cleared, acknowledged) in [
        (Normal, ActiveUnacknowledged, Normal, None),
        (
            ActiveUnacknowledged,
            ActiveUnacknowledged,
            ClearedUnacknowledged,
            Some(ActiveAcknowledged),
        ),
        (ActiveAcknowledged, ActiveAcknowledged, Normal, None),
        (ClearedUnacknowledged, ActiveUnacknowledged, ClearedUnacknowledged, Some(Normal)),
    ] {
        let after = |input| {
            let mut alarm = in_state(state);
            alarm.apply(input, second(2), &rules).map(|steps| (alarm.state, steps))
        };
        let (to, steps) = after(Input::Raise(second(1))).unwrap();
        assert_eq!(to, raised);
        let announced = steps.iter().any(|step| step.announced);
        assert_eq!(announced, !state.is_active(), "{state:?}");
        assert_eq!(after(Input::Clear(second(1))).unwrap().0, cleared, "{state:?}");
        let result = after(Input::Acknowledge);
        assert_eq!(result.as_ref().ok().map(|(to, _)| *to), acknowledged, "{state:?}");
        if acknowledged.is_none() {
            assert_eq!(result.unwrap_err(), NotAllowed { state, shelved: false });
        }
        assert!(after(Input::Unshelve).is_err());
        assert_eq!(State::from_stored(state.as_str()), Some(state));
    }
}

#[test]
fn a_shelf_keeps_quiet_and_what_is_still_there_is_announced_after_it() {
    let rules = Rules::default();
    let mut alarm = in_state(State::Normal);
    let shelved = alarm.apply(Input::Shelve(second(60)), second(1), &rules).unwrap();
    assert_eq!(shelved[0].action, Action::Shelved);
    assert!(alarm.apply(Input::Shelve(second(90)), second(2), &rules).is_err());
    let raised = alarm.apply(Input::Raise(second(3)), second(3), &rules).unwrap();
    assert!(!raised[0].announced && raised[0].to == State::ActiveUnacknowledged);
    assert_eq!(alarm.apply(Input::Look, second(59), &rules).unwrap(), []);
    let off = alarm.apply(Input::Look, second(61), &rules).unwrap();
    assert_eq!((off[0].action, off[0].at, off[0].announced), (Action::Unshelved, second(60), true));
}

#[test]
fn a_late_alarm_is_announced_only_while_it_is_still_active() {
    let rules = Rules::default();
    let mut alarm = Alarm::new(Severity::High);
    let over = alarm.apply(Input::Raise(second(0)), second(300), &rules).unwrap();
    assert_eq!((over[0].late, over[0].announced, over[0].at), (true, false, second(0)));
    assert_eq!(alarm.state, State::Normal, "it has been over for long");
    let still = alarm.apply(Input::Raise(second(150)), second(300), &rules).unwrap();
    assert_eq!((still[0].late, still[0].announced), (true, true));
    assert_eq!(alarm.state, State::ActiveUnacknowledged);
    let quiet = alarm.apply(Input::Look, second(450), &rules).unwrap();
    assert_eq!((quiet[0].action, quiet[0].at), (Action::Cleared, second(450)));
    assert_eq!(alarm.state, State::ClearedUnacknowledged);
}

#[test]
fn three_times_in_a_minute_is_chattering_and_said_once() {
    let rules = Rules::default();
    let mut alarm = Alarm::new(Severity::Low);
    let mut said = 0;
    for turn in 0..5 {
        let at = second(turn * 10);
        let steps = alarm.apply(Input::Raise(at), at, &rules).unwrap();
        said += steps.iter().filter(|step| step.action == Action::Chattering).count();
        assert_eq!(said, usize::from(turn >= 2), "{turn}");
        let gone = second(turn * 10 + 5);
        alarm.apply(Input::Clear(gone), gone, &rules).unwrap();
    }
    assert_eq!(alarm.chattering_until, Some(second(100)));
    let mut slow = Alarm::new(Severity::Low);
    for turn in 0..5 {
        let at = second(turn * 40);
        slow.apply(Input::Raise(at), at, &rules).unwrap();
        slow.apply(Input::Clear(second(turn * 40 + 5)), second(turn * 40 + 5), &rules).unwrap();
    }
    assert_eq!(slow.chattering_until, None);
}

fn inputs() -> impl Strategy<Value = Input> {
    prop_oneof![
        (0..400_i64).prop_map(|n| Input::Raise(second(n))),
        (0..400_i64).prop_map(|n| Input::Clear(second(n))),
        Just(Input::Acknowledge),
        (0..800_i64).prop_map(|n| Input::Shelve(second(n))),
        Just(Input::Unshelve),
        Just(Input::Look),
    ]
}

proptest! {
    #[test]
    fn what_always_holds(all in proptest::collection::vec((inputs(), 0..30_i64), 0..60)) {
        let rules = Rules::default();
        let mut alarm = Alarm::new(Severity::Medium);
        let mut now = 0;
        for (input, passed) in all {
            now += passed;
            let before = alarm.clone();
            let Ok(steps) = alarm.apply(input, second(now), &rules) else {
                prop_assert_eq!(&alarm, &before);
                continue;
            };
            let mut at = before.state;
            for step in &steps {
                prop_assert_eq!(step.from, at, "steps follow each other");
                at = step.to;
                if step.announced {
                    prop_assert_eq!(step.to, State::ActiveUnacknowledged);
                    prop_assert!(alarm.shelved_until.is_none());
                }
                prop_assert!(step.at <= second(now), "nothing is journalled ahead");
            }
            prop_assert_eq!(at, alarm.state, "a change of state is journalled");
            prop_assert!(alarm.raises.len() <= rules.chatter_count);
        }
    }

    #[test]
    fn the_order_of_messages_does_not_decide_whether_it_is_active(
        (all, shuffled) in proptest::collection::vec((any::<bool>(), 0..200_i64), 1..12)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle()))
    ) {
        let rules = Rules::default();
        let run = |messages: &[(bool, i64)]| {
            let mut alarm = Alarm::new(Severity::Medium);
            for (raise, n) in messages {
                let at = second(*n);
                let input = if *raise { Input::Raise(at) } else { Input::Clear(at) };
                alarm.apply(input, second(250), &rules).unwrap();
            }
            alarm.state.is_active()
        };
        prop_assert_eq!(run(&all), run(&shuffled));
    }
}
