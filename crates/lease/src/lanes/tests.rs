use proptest::prelude::*;

use super::*;

fn lane(tenant: &str, rank: i32, key: &str) -> Lane {
    Lane { tenant: tenant.into(), rank, key: key.into() }
}

fn mark(second: i64) -> Mark {
    Mark { at: Timestamp::from_second(second).unwrap(), id: None }
}

fn everywhere() -> Arc<str> {
    "".into()
}

#[test]
fn urgent_lanes_come_first_and_tenants_share() {
    let mut lanes = Lanes::new(100, 1);
    for key in ["a", "b", "c"] {
        lanes.learn(&everywhere(), lane("big", 0, key), Some(1000), None);
    }
    lanes.learn(&everywhere(), lane("big", -20, "alarm"), Some(2), None);
    lanes.learn(&everywhere(), lane("small", 0, "a"), Some(1), None);
    let mut pick = |limit| {
        let asks = lanes.pick(&everywhere(), limit);
        let mut takes: Vec<(Lane, u32)> =
            asks.into_iter().map(|ask| (ask.lane, ask.take)).collect();
        takes.sort();
        takes
    };
    let first = [
        (lane("big", -20, "alarm"), 2),
        (lane("big", 0, "a"), 49),
        (lane("big", 0, "b"), 48),
        (lane("small", 0, "a"), 1),
    ];
    assert_eq!(pick(100), first);
    assert_eq!(pick(100), [(lane("big", 0, "c"), 100)]);
    assert!(pick(100).is_empty(), "all are asked already");
}

#[test]
fn news_during_a_claim_is_not_forgotten() {
    let mut lanes = Lanes::new(100, 1);
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(1), None);
    let ask = lanes.pick(&everywhere(), 5).remove(0);
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(1), Some(mark(3)));
    lanes.forget(&ask);
    assert_eq!(lanes.pick(&everywhere(), 5).len(), 1);
}

#[test]
fn a_late_row_lowers_the_mark() {
    let mut lanes = Lanes::new(100, 1);
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(9), None);
    let ask = lanes.pick(&everywhere(), 5).remove(0);
    lanes.keep(&ask, Some(mark(50)), 5, true);
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(1), Some(mark(20)));
    let ask = lanes.pick(&everywhere(), 5).remove(0);
    assert_eq!(ask.mark, Some(mark(20)));
    // And so it does while the lane is being asked.
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(1), Some(mark(10)));
    lanes.keep(&ask, Some(mark(60)), 5, true);
    assert_eq!(lanes.pick(&everywhere(), 5).remove(0).mark, Some(mark(10)));
}

#[test]
fn a_waiting_lane_comes_back_in_time_or_with_news() {
    let mut lanes = Lanes::new(100, 1);
    let second = Duration::from_secs(1);
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(9), None);
    let ask = lanes.pick(&everywhere(), 5).remove(0);
    lanes.wait(&ask, None, second * 10);
    assert!(lanes.ready(second * 9).is_empty());
    assert_eq!(lanes.next_ready(), Some(second * 10));
    lanes.learn(&everywhere(), lane("t", 0, "k"), Some(1), None);
    let ask = lanes.pick(&everywhere(), 5).remove(0);
    // The old timer must not hand out a lane that is being asked.
    assert!(lanes.ready(second * 11).is_empty());
    lanes.wait(&ask, None, second * 20);
    assert_eq!(lanes.ready(second * 20).len(), 1);
}

#[test]
fn a_full_note_still_has_room_for_a_new_tenant() {
    let mut lanes = Lanes::new(10, 1);
    let noted =
        (0..50).filter(|n| lanes.learn(&everywhere(), lane("big", 0, &n.to_string()), None, None));
    assert_eq!(noted.count(), 10);
    assert!(lanes.learn(&everywhere(), lane("new", 0, "k"), None, None));
}

proptest! {
    /// Whatever happens: a lane is asked by one at a time, the count is right, and what has work is
    /// handed out in the end.
    #[test]
    fn nothing_is_asked_twice_or_lost(steps in proptest::collection::vec((0u8..6, 0usize..3, 0usize..4), 1..120)) {
        let mut lanes = Lanes::new(1000, 2);
        let mut asked: Vec<Ask> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        let mut now = Duration::ZERO;
        for (step, tenant, key) in steps {
            now += Duration::from_secs(1);
            let place = lane(["a", "b", "c"][tenant], 0, ["k", "l", "m", "n"][key]);
            match (step, asked.is_empty()) {
                (0 | 1, _) => {
                    lanes.learn(&everywhere(), place.clone(), Some(1), None);
                    known.insert(place);
                }
                (2, _) => {
                    lanes.ready(now);
                    for ask in lanes.pick(&everywhere(), 3) {
                        prop_assert!(!asked.iter().any(|other| other.lane == ask.lane));
                        prop_assert!(ask.take >= 1);
                        asked.push(ask);
                    }
                }
                (3, false) => lanes.keep(&asked.remove(0), None, 1, false),
                (4, false) => lanes.wait(&asked.remove(0), None, now + Duration::from_secs(3)),
                (5, false) => {
                    let ask = asked.remove(0);
                    let before = lanes.len();
                    lanes.forget(&ask);
                    if lanes.len() < before {
                        known.remove(&ask.lane);
                    }
                }
                _ => {}
            }
            prop_assert_eq!(lanes.len(), known.len());
        }
        for ask in asked {
            lanes.keep(&ask, None, 0, false);
        }
        now += Duration::from_secs(10);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            lanes.ready(now);
            seen.extend(lanes.pick(&everywhere(), 3).into_iter().map(|ask| ask.lane));
        }
        prop_assert_eq!(seen, known);
    }
}
