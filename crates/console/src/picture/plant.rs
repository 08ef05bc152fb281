//! The lane of the plant: SCADA nodes with their outboxes, the bus that they publish to, and the historian behind it. Pure.

use super::flow::{STILL_AFTER_S, WAITS_AFTER_S};
use super::tick::{PlantTick, ProducerTick, Tick};
use super::{Breaker, Flow, Lane, LaneKind, Link, LinkState, Stage, StageKind, StageState};
use crate::upstream::historian::SILENCE;

/// The lane of the plant.
const PLANT: &str = "plant";
const BUS: &str = "plant-bus";
const HISTORIAN: &str = "historian";
/// The link from the bus to the historian.
const STORED: &str = "plant-store";

/// Nothing where neither is configured.
pub(super) fn draw(flow: &mut Flow, tick: &Tick) {
    if tick.plant.is_none() && tick.producers.is_empty() {
        return;
    }
    let (id, name) = (PLANT.to_owned(), PLANT.to_owned());
    flow.lanes.push(Lane { id, name, kind: LaneKind::Plant });
    flow.stages.extend(tick.producers.iter().map(of_producer));
    let to_bus: Vec<Link> = tick.producers.iter().map(publishes).collect();
    let from_bus = tick.plant.as_ref().map(stores);
    flow.stages.push(bus(&to_bus, from_bus.as_ref()));
    flow.links.extend(to_bus);
    flow.links.extend(from_bus);
    flow.stages.extend(tick.plant.as_ref().map(of_historian));
}

/// How the way of a SCADA node to the bus is. Its oldest event says how long nothing has left: it does not say when something did.
fn way_of(producer: &ProducerTick) -> LinkState {
    let open = producer.outbox.breaker.is_some_and(|breaker| breaker != Breaker::Closed);
    match (producer.here, producer.outbox.oldest_s) {
        (false, _) => LinkState::Unknown,
        (true, oldest) if open || oldest > STILL_AFTER_S => LinkState::Down,
        (true, oldest) if oldest > WAITS_AFTER_S => LinkState::Degraded,
        (true, _) => LinkState::Up,
    }
}

fn publishes(producer: &ProducerTick) -> Link {
    Link {
        state: way_of(producer),
        rate_per_s: producer.published_per_s.filter(|_| producer.here),
        breaker: producer.outbox.breaker.filter(|_| producer.here),
        held: producer.held(),
        drain_estimate_s: producer.drain_s(),
        ..link(format!("publish:{}", producer.name), format!("producer:{}", producer.name), BUS)
    }
}

fn stores(plant: &PlantTick) -> Link {
    let silent = |problem: &String| problem.starts_with(SILENCE);
    Link {
        state: match (plant.here, plant.problems.is_empty(), plant.problems.iter().all(silent)) {
            (false, ..) => LinkState::Unknown,
            (true, true, _) => LinkState::Up,
            (true, false, true) => LinkState::Degraded,
            (true, false, false) => LinkState::Down,
        },
        rate_per_s: plant.here.then_some(plant.stored_per_s),
        ..link(STORED.to_owned(), BUS.to_owned(), HISTORIAN)
    }
}

fn link(id: String, from: String, to: &str) -> Link {
    Link {
        id,
        from,
        to: to.to_owned(),
        state: LinkState::Unknown,
        rate_per_s: None,
        breaker: None,
        held: None,
        drain_estimate_s: None,
        since: None,
        cuttable: false,
        cut: false,
    }
}

/// The bus is not asked itself: it is as those say who use it.
fn bus(to_bus: &[Link], from_bus: Option<&Link>) -> Stage {
    let all = || to_bus.iter().chain(from_bus);
    let broken = all().filter(|link| link.state == LinkState::Down).count();
    let known = all().any(|link| link.state != LinkState::Unknown);
    let slow = all().any(|link| link.state == LinkState::Degraded);
    Stage {
        state: match (known, broken, slow) {
            (false, ..) => StageState::Unknown,
            (true, 1.., _) => StageState::Broken,
            (true, 0, true) => StageState::Waiting,
            (true, 0, false) => StageState::Ok,
        },
        rate_per_s: to_bus.iter().filter_map(|link| link.rate_per_s).reduce(|a, b| a + b),
        detail: match (known, broken) {
            (false, _) => "nobody who uses it answers".to_owned(),
            (true, 0) => "as those say who use it".to_owned(),
            (true, broken) => format!("{broken} of {} links to it are down", all().count()),
        },
        ..stage(BUS.to_owned(), StageKind::Bus, "bus")
    }
}

fn of_producer(producer: &ProducerTick) -> Stage {
    let ProducerTick { name, here, outbox, published_per_s, .. } = producer;
    Stage {
        state: match (way_of(producer), outbox.failed) {
            (LinkState::Unknown, _) => StageState::Unknown,
            (LinkState::Down, _) => StageState::Broken,
            (LinkState::Up, 0) => StageState::Ok,
            (LinkState::Up | LinkState::Degraded, _) => StageState::Waiting,
        },
        rate_per_s: published_per_s.filter(|_| *here),
        held: producer.held(),
        oldest_age_s: here.then_some(outbox.oldest_s).filter(|age| *age > 0.0),
        detail: match (here, outbox.failed) {
            (false, _) => format!("{name} does not answer"),
            (true, 0) => format!("{name}: {} wait for the bus", outbox.pending),
            (true, failed) => format!("{name}: {failed} were given up"),
        },
        ..stage(format!("producer:{name}"), StageKind::Node, name)
    }
}

fn of_historian(plant: &PlantTick) -> Stage {
    Stage {
        state: match (plant.here, plant.problems.is_empty()) {
            (false, _) => StageState::Unknown,
            (true, true) => StageState::Ok,
            (true, false) => StageState::Broken,
        },
        rate_per_s: plant.here.then_some(plant.stored_per_s),
        detail: match (plant.here, plant.problems.first()) {
            (false, _) => "does not answer".to_owned(),
            (true, Some(problem)) => problem.clone(),
            (true, None) => match plant.newest_age_s {
                Some(age) => format!("the newest reading is {age:.0} s old"),
                None => "no reading yet".to_owned(),
            },
        },
        ..stage(HISTORIAN.to_owned(), StageKind::Store, HISTORIAN)
    }
}

fn stage(id: String, kind: StageKind, name: &str) -> Stage {
    Stage {
        id,
        kind,
        lane: Some(PLANT.to_owned()),
        name: name.to_owned(),
        state: StageState::Unknown,
        rate_per_s: None,
        held: None,
        oldest_age_s: None,
        detail: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tick::ProducerOutbox;
    use super::*;

    /// The states of the stages and of the links, in their order.
    fn states(tick: &Tick) -> (Vec<StageState>, Vec<LinkState>) {
        let mut flow = Flow::default();
        draw(&mut flow, tick);
        for link in &flow.links {
            for end in [&link.from, &link.to] {
                assert!(flow.stages.iter().any(|stage| stage.id == *end), "{link:?}");
            }
        }
        let links = flow.links.iter().map(|link| link.state).collect();
        (flow.stages.iter().map(|stage| stage.state).collect(), links)
    }

    fn press(oldest_s: f64, breaker: Breaker) -> ProducerTick {
        let outbox = ProducerOutbox {
            pending: 40,
            oldest_s,
            breaker: Some(breaker),
            ..ProducerOutbox::default()
        };
        ProducerTick {
            name: "press".to_owned(),
            here: true,
            outbox,
            published_per_s: Some(30.0),
            growth_per_s: Some(-4.0),
        }
    }

    #[test]
    fn a_broken_link_of_the_plant_is_seen() {
        let plant = PlantTick { here: true, ..PlantTick::default() };
        let of = |producer: ProducerTick, plant: &PlantTick| {
            let plant = Some(plant.clone());
            states(&Tick { producers: vec![producer], plant, ..Tick::default() })
        };
        let (ok, waiting, broken, unknown) =
            (StageState::Ok, StageState::Waiting, StageState::Broken, StageState::Unknown);
        let (up, slow, down, nobody) =
            (LinkState::Up, LinkState::Degraded, LinkState::Down, LinkState::Unknown);
        let closed = Breaker::Closed;
        assert_eq!(of(press(1.0, closed), &plant), (vec![ok, ok, ok], vec![up, up]));
        assert_eq!(
            of(press(31.0, closed), &plant),
            (vec![waiting, waiting, ok], vec![slow, up]),
            "it falls behind"
        );
        let cut = (vec![broken, broken, ok], vec![down, up]);
        assert_eq!(of(press(1.0, Breaker::Open), &plant), cut, "the bus is left alone");
        assert_eq!(of(press(61.0, closed), &plant), cut, "nothing leaves");
        let gone = ProducerTick { here: false, ..press(1.0, closed) };
        assert_eq!(of(gone, &plant), (vec![unknown, ok, ok], vec![nobody, up]));
        let problem = |text: &str| PlantTick { problems: vec![text.to_owned()], ..plant.clone() };
        let silent = problem("bus: no message since 400 s");
        assert_eq!(of(press(1.0, closed), &silent).1, [up, slow]);
        let still = problem("store: a batch waits since 70 s");
        assert_eq!(of(press(1.0, closed), &still), (vec![ok, broken, broken], vec![up, down]));
        assert_eq!(states(&Tick::default()), (vec![], vec![]));
    }

    #[test]
    fn what_shrinks_has_an_end_and_what_grows_has_none() {
        let press = press(1.0, Breaker::Closed);
        assert_eq!(publishes(&press).drain_estimate_s, Some(10.0));
        let grows = ProducerTick { growth_per_s: Some(1.0), ..press };
        assert_eq!(publishes(&grows).drain_estimate_s, None);
    }
}
