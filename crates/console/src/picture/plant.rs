//! The lane of the plant: SCADA nodes with their outboxes, and the historian that they feed. Pure.

use super::flow::WAITS_AFTER_S;
use super::tick::{PlantTick, ProducerTick, Tick};
use super::{Flow, Lane, LaneKind, Stage, StageKind, StageState};

/// The lane of the plant.
const PLANT: &str = "plant";
const HISTORIAN: &str = "historian";

/// Nothing where neither is configured.
pub(super) fn draw(flow: &mut Flow, tick: &Tick) {
    if tick.plant.is_none() && tick.producers.is_empty() {
        return;
    }
    let (id, name) = (PLANT.to_owned(), PLANT.to_owned());
    flow.lanes.push(Lane { id, name, kind: LaneKind::Plant });
    flow.stages.extend(tick.producers.iter().map(of_producer));
    flow.stages.extend(tick.plant.as_ref().map(of_historian));
}

fn of_producer(producer: &ProducerTick) -> Stage {
    let ProducerTick { name, here, outbox, published_per_s } = producer;
    Stage {
        id: format!("producer:{name}"),
        kind: StageKind::Node,
        lane: Some(PLANT.to_owned()),
        name: name.clone(),
        state: match (here, outbox.oldest_s > WAITS_AFTER_S, outbox.failed) {
            (false, ..) => StageState::Unknown,
            (true, false, 0) => StageState::Ok,
            (true, ..) => StageState::Waiting,
        },
        rate_per_s: published_per_s.filter(|_| *here),
        held: here.then_some(outbox.pending + outbox.in_progress),
        oldest_age_s: here.then_some(outbox.oldest_s).filter(|age| *age > 0.0),
        detail: match (here, outbox.failed) {
            (false, _) => format!("{name} does not answer"),
            (true, 0) => format!("{name}: {} wait for the bus", outbox.pending),
            (true, failed) => format!("{name}: {failed} were given up"),
        },
    }
}

fn of_historian(plant: &PlantTick) -> Stage {
    Stage {
        id: HISTORIAN.to_owned(),
        kind: StageKind::Store,
        lane: Some(PLANT.to_owned()),
        name: HISTORIAN.to_owned(),
        state: match (plant.here, plant.problems.is_empty()) {
            (false, _) => StageState::Unknown,
            (true, true) => StageState::Ok,
            (true, false) => StageState::Broken,
        },
        rate_per_s: plant.here.then_some(plant.stored_per_s),
        held: None,
        oldest_age_s: None,
        detail: match (plant.here, plant.problems.first()) {
            (false, _) => "does not answer".to_owned(),
            (true, Some(problem)) => problem.clone(),
            (true, None) => match plant.newest_age_s {
                Some(age) => format!("the newest reading is {age:.0} s old"),
                None => "no reading yet".to_owned(),
            },
        },
    }
}
