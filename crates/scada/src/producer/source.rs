//! What a cycle is made of. A further source is a further variant; a step that reduces goes into [`Source::cycle`].

use event::scada::Envelope;
use jiff::Timestamp;

use super::config::Nodes;
use crate::analytics::Counts;
use crate::generate::Node;
use crate::inputs::Inputs;

/// Where the events of a node come from.
#[derive(Debug)]
pub enum Source {
    /// Simulated nodes.
    Generators(Vec<Node>),
    /// Devices.
    Inputs(Inputs),
}

/// What one cycle has, and how many envelopes broke a rule.
#[derive(Debug, Default)]
pub struct Made {
    /// In the order in which they were made.
    pub events: Vec<Envelope>,
    /// Left out.
    pub invalid: u64,
    /// Readings that the dead bands of inputs left out.
    pub left_out: Counts,
}

impl Source {
    /// Simulated nodes with this seed.
    pub fn generators(nodes: &Nodes, seed: u64) -> Result<Source, event::Invalid> {
        let numbers = (0..nodes.count).map(|at| nodes.first.saturating_add(at));
        let made = numbers.map(|number| {
            let node = Node::new(nodes.plant.clone(), number, seed)?;
            Ok(node.placed(nodes.area.clone(), nodes.unit.clone()))
        });
        Ok(Source::Generators(made.collect::<Result<_, event::Invalid>>()?))
    }

    /// Everything that this cycle has. Every envelope keeps the rules: nothing after this can be refused for its content.
    pub fn cycle(&mut self, now: Timestamp) -> Made {
        let mut made = Made::default();
        match self {
            Source::Generators(nodes) => {
                for node in nodes {
                    match node.cycle(now) {
                        Ok(events) => made.events.extend(events),
                        Err(error) => made.refuse(error.field.as_str()),
                    }
                }
            }
            Source::Inputs(inputs) => {
                for cycle in inputs.waiting() {
                    made.events.extend(cycle.envelopes);
                    made.left_out.merge(&cycle.left_out);
                }
            }
        }
        let mut refused = Vec::new();
        made.events.retain(|event| {
            let sound = event.check().is_ok();
            if !sound {
                refused.push(event.tag.to_string());
            }
            sound
        });
        for tag in refused {
            made.refuse(&tag);
        }
        made
    }
}

impl Made {
    fn refuse(&mut self, what: &str) {
        self.invalid += 1;
        tracing::warn!(what, "an event broke a rule and was left out");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn nodes(count: u16) -> Nodes {
        Nodes {
            plant: "PLANT01".parse().unwrap(),
            first: 5,
            count,
            area: None,
            unit: None,
            seed: None,
        }
    }

    #[test]
    fn many_nodes_have_numbers_and_places_of_their_own() {
        let mut source = Source::generators(&nodes(100), 1).unwrap();
        let made = source.cycle(Timestamp::UNIX_EPOCH);
        let numbers: BTreeSet<u16> = made.events.iter().map(|event| event.node_id).collect();
        assert_eq!(numbers, (5..105).collect());
        let keys: BTreeSet<String> = made.events.iter().map(Envelope::partition_key).collect();
        assert_eq!(keys.len(), made.events.len());
        assert_eq!(made.invalid, 0);
    }

    #[test]
    fn a_single_node_may_have_a_place() {
        let place = Nodes {
            area: Some("DISTILLATION".parse().unwrap()),
            unit: Some("COMPRESSOR_A".parse().unwrap()),
            ..nodes(1)
        };
        let made = Source::generators(&place, 1).unwrap().cycle(Timestamp::UNIX_EPOCH);
        assert_eq!(made.events[0].partition_key(), "PLANT01.DISTILLATION.COMPRESSOR_A.FLOW_RATE");
    }
}
