//! What all sites share: the cloud, the bus behind it, and the stores behind that. Pure.

use super::flow::{STILL_AFTER_S, WAITS_AFTER_S, drain};
use super::tick::{CloudTenant, CloudTick, ConsumerQueue, Consumers};
use super::{Breaker, Flow, Link, LinkState, Stage, StageKind, StageState};
use crate::access::Scope;

impl ConsumerQueue {
    /// Whether something waits; a count is not told to everybody, the time is.
    fn waits(&self) -> bool {
        self.still_s.is_some()
    }

    fn is_abandoned(&self) -> bool {
        self.consumers == Some(0)
    }
}

impl Consumers {
    /// What waits in all of them together.
    pub(crate) fn waiting(&self) -> Option<u64> {
        match self.unknown {
            Some(_) => None,
            None => self.queues.iter().map(|queue| queue.waiting).sum(),
        }
    }

    /// The longest that something has waited without becoming less.
    pub(crate) fn still_s(&self) -> Option<f64> {
        self.queues.iter().filter_map(|queue| queue.still_s).reduce(f64::max)
    }
}

/// How the way from the bus to the stores is. What waits where nobody consumes is cut off at once; where somebody does, it may take a while to become less.
pub(crate) fn link_state(consumers: &Consumers) -> LinkState {
    let any = |wrong: fn(&ConsumerQueue) -> bool| consumers.queues.iter().any(wrong);
    if consumers.unknown.is_some() {
        return LinkState::Unknown;
    }
    let down = |queue: &ConsumerQueue| {
        queue.waits() && (queue.is_abandoned() || queue.still_s > Some(STILL_AFTER_S))
    };
    let degraded =
        |queue: &ConsumerQueue| queue.is_abandoned() || queue.still_s > Some(WAITS_AFTER_S);
    match (any(down), any(degraded)) {
        (true, _) => LinkState::Down,
        (false, true) => LinkState::Degraded,
        (false, false) => LinkState::Up,
    }
}

/// Why the way to the stores is not simply up.
pub(crate) fn trouble(consumers: &Consumers) -> Option<String> {
    if let Some(why) = &consumers.unknown {
        return Some(format!("what waits is not known: {why}"));
    }
    let queues = || consumers.queues.iter();
    let abandoned = queues().find(|queue| queue.is_abandoned());
    let still = queues().find(|queue| queue.still_s > Some(WAITS_AFTER_S));
    match (abandoned, still) {
        (Some(queue), _) => Some(format!("nobody consumes {}", queue.name)),
        (None, Some(queue)) => Some(format!(
            "what waits in {} has not become less for {:.0} s",
            queue.name,
            queue.still_s.unwrap_or_default()
        )),
        (None, None) => None,
    }
}

/// What the consumers take a second: what is published, less what more waits, over all tenants.
fn taken_per_s(published: Option<f64>, growth: Option<f64>) -> Option<f64> {
    Some((published? - growth?).max(0.0))
}

/// The three stages and the two links between them.
pub(super) fn draw(flow: &mut Flow, cloud: &CloudTick, part: &CloudTenant, scope: &Scope) {
    let here = cloud.here;
    let waits = part.oldest_age_s.is_some_and(|age| age > WAITS_AFTER_S);
    let still = part.waiting > 0 && part.still_s > STILL_AFTER_S;
    let open = cloud.breaker == Some(Breaker::Open);
    let relay = match (still || open, waits || cloud.breaker == Some(Breaker::HalfOpen)) {
        (true, _) => LinkState::Down,
        (false, true) => LinkState::Degraded,
        (false, false) => LinkState::Up,
    };
    let consumed = link_state(&cloud.consumers);
    let (relay, consumed) = match here {
        true => (relay, consumed),
        false => (LinkState::Unknown, LinkState::Unknown),
    };
    let held = here.then_some(part.waiting);
    let published = part.out_per_s.filter(|_| here);
    flow.stages.push(Stage {
        held,
        oldest_age_s: part.oldest_age_s.filter(|_| here),
        rate_per_s: part.in_per_s.filter(|_| here),
        detail: match here {
            true => format!("{} wait for the bus", part.waiting),
            false => "does not answer".to_owned(),
        },
        ..stage("cloud", StageKind::Cloud, "cloud", before(relay))
    });
    // Counts behind the bus are those of all tenants together.
    let behind = Some(&cloud.consumers).filter(|_| here && scope.is_all());
    let waiting = behind.and_then(Consumers::waiting);
    let taken = match behind {
        Some(consumers) => taken_per_s(published, consumers.growth_per_s),
        None => published.filter(|_| consumed == LinkState::Up),
    };
    let dead = format!("{} dead letters", part.bus_dead);
    let letters = Some(dead).filter(|_| here && cloud.bus_dead_letters);
    let said = [trouble(&cloud.consumers).filter(|_| here), letters];
    let state = match before(consumed) {
        StageState::Ok if part.bus_dead > 0 => StageState::Waiting,
        state => state,
    };
    flow.stages.push(Stage {
        held: waiting,
        oldest_age_s: behind.and_then(Consumers::still_s),
        rate_per_s: published,
        detail: said.into_iter().flatten().collect::<Vec<_>>().join("; "),
        ..stage(
            "bus",
            StageKind::Bus,
            Some(&*cloud.bus).filter(|name| !name.is_empty()).unwrap_or("bus"),
            state,
        )
    });
    flow.stages.push(Stage {
        rate_per_s: taken,
        detail: format!("{} sequences in the cloud", part.received),
        ..stage(
            "store",
            StageKind::Store,
            "store",
            match consumed {
                LinkState::Up => StageState::Ok,
                LinkState::Unknown => StageState::Unknown,
                LinkState::Down | LinkState::Degraded => StageState::Waiting,
            },
        )
    });
    flow.links.push(Link {
        rate_per_s: published,
        breaker: cloud.breaker.filter(|_| here),
        held,
        drain_estimate_s: part
            .in_per_s
            .zip(published)
            .and_then(|(incoming, outgoing)| drain(part.waiting, incoming, outgoing)),
        ..link("relay", "cloud", "bus", relay)
    });
    flow.links.push(Link {
        rate_per_s: taken,
        held: waiting,
        drain_estimate_s: published
            .zip(taken)
            .zip(waiting)
            .and_then(|((incoming, outgoing), waiting)| drain(waiting, incoming, outgoing)),
        ..link("store", "bus", "store", consumed)
    });
}

/// How a place is from which such a link leads away.
fn before(link: LinkState) -> StageState {
    match link {
        LinkState::Up => StageState::Ok,
        LinkState::Degraded => StageState::Waiting,
        LinkState::Down => StageState::Broken,
        LinkState::Unknown => StageState::Unknown,
    }
}

fn stage(id: &str, kind: StageKind, name: &str, state: StageState) -> Stage {
    Stage {
        id: id.to_owned(),
        kind,
        lane: None,
        name: name.to_owned(),
        state,
        rate_per_s: None,
        held: None,
        oldest_age_s: None,
        detail: String::new(),
    }
}

fn link(id: &str, from: &str, to: &str, state: LinkState) -> Link {
    Link {
        id: id.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        state,
        rate_per_s: None,
        breaker: None,
        held: None,
        drain_estimate_s: None,
        since: None,
        cuttable: false,
        cut: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(consumers: Option<u64>, waiting: u64, still_s: Option<f64>) -> ConsumerQueue {
        ConsumerQueue { name: "q".to_owned(), waiting: Some(waiting), consumers, still_s }
    }

    fn state(queues: Vec<ConsumerQueue>) -> LinkState {
        link_state(&Consumers { queues, ..Consumers::default() })
    }

    #[test]
    fn the_way_to_the_stores_is_as_whole_as_its_worst_queue() {
        let well = || queue(Some(2), 7, Some(3.0));
        assert_eq!(state(vec![well(), queue(Some(1), 0, None)]), LinkState::Up);
        assert_eq!(state(vec![well(), queue(Some(0), 0, None)]), LinkState::Degraded, "yet");
        assert_eq!(state(vec![well(), queue(Some(0), 1, Some(0.0))]), LinkState::Down);
        assert_eq!(state(vec![well(), queue(Some(1), 9, Some(31.0))]), LinkState::Degraded);
        assert_eq!(state(vec![well(), queue(Some(1), 9, Some(61.0))]), LinkState::Down);
        assert_eq!(state(vec![queue(None, 9, Some(61.0))]), LinkState::Down, "whoever consumes");
        let unknown = Consumers { unknown: Some("away".to_owned()), ..Consumers::default() };
        assert_eq!(link_state(&unknown), LinkState::Unknown);
        assert!(trouble(&unknown).unwrap().contains("away"));
        assert_eq!(unknown.waiting(), None);
    }

    #[test]
    fn what_is_taken_is_what_is_published_and_does_not_wait() {
        assert_eq!(taken_per_s(Some(50.0), Some(0.0)), Some(50.0));
        assert_eq!(taken_per_s(Some(50.0), Some(50.0)), Some(0.0), "nobody takes anything");
        assert_eq!(taken_per_s(Some(50.0), Some(-20.0)), Some(70.0), "a backlog goes");
        assert_eq!(taken_per_s(Some(50.0), Some(150.0)), Some(0.0), "in three queues");
        assert_eq!(taken_per_s(Some(50.0), None), None);
    }

    #[test]
    fn counts_of_all_tenants_are_for_those_who_see_all_of_them() {
        let queues = vec![queue(Some(0), 40, Some(12.0))];
        let consumers = Consumers { queues, growth_per_s: Some(4.0), ..Consumers::default() };
        let cloud = CloudTick {
            here: true,
            consumers,
            breaker: Some(Breaker::Open),
            ..CloudTick::default()
        };
        let part = CloudTenant { out_per_s: Some(4.0), ..CloudTenant::default() };
        let seen = |scope: &Scope| {
            let mut flow = Flow::default();
            draw(&mut flow, &cloud, &part, scope);
            flow
        };
        let all = seen(&Scope::All);
        assert_eq!((all.links[1].state, all.links[1].held), (LinkState::Down, Some(40)));
        assert_eq!(all.links[1].rate_per_s, Some(0.0));
        assert_eq!(
            (all.stages[1].state, all.stages[1].oldest_age_s),
            (StageState::Broken, Some(12.0))
        );
        assert_eq!(
            (all.links[0].state, all.links[0].breaker),
            (LinkState::Down, Some(Breaker::Open))
        );
        let one = seen(&Scope::Only([uuid::Uuid::now_v7()].into()));
        assert_eq!((one.links[1].state, one.links[1].held), (LinkState::Down, None));
        assert_eq!((one.stages[1].held, one.stages[2].rate_per_s), (None, None));
    }
}
