//! Simulated nodes: measurements, operational events and alarms as docs/spec/scada.md has them. Pure: the time is passed in, and the
//! same seed gives the same values. Event ids are minted anew.

mod alarms;
mod events;
mod random;
mod telemetry;

use event::QualityCode;
use event::id::EventId;
use event::scada::{Asset, AssetName, Category, Envelope, Tag};
use jiff::Timestamp;

pub use alarms::{ALARMS, Alarm};
pub use events::{EVENTS, Event};
use random::Random;
use telemetry::Walk;
pub use telemetry::{Measured, TAGS, quality};

/// One simulated node.
#[derive(Debug, Clone)]
pub struct Node {
    asset: Asset,
    node_id: u16,
    random: Random,
    walks: Vec<Walk>,
}

impl Node {
    /// The node of this number, 1 to 1000. Ten nodes share an area. Nodes of one seed differ.
    pub fn new(plant: AssetName, node_id: u16, seed: u64) -> Result<Node, event::Invalid> {
        let area = format!("AREA{:02}", node_id.saturating_sub(1) / 10 + 1).parse()?;
        let unit = format!("UNIT_{node_id:02}").parse()?;
        let random = Random::new(seed ^ u64::from(node_id).wrapping_mul(0x5851_f42d_4c95_7f2d));
        let walks = TAGS.iter().map(Walk::new).collect();
        Ok(Node { asset: Asset { plant, area, unit }, node_id, random, walks })
    }

    /// The same node in another area or unit.
    pub fn placed(mut self, area: Option<AssetName>, unit: Option<AssetName>) -> Node {
        self.asset.area = area.unwrap_or(self.asset.area);
        self.asset.unit = unit.unwrap_or(self.asset.unit);
        self
    }

    /// What it makes in one cycle: every measurement, and the events and alarms that happen.
    pub fn cycle(&mut self, now: Timestamp) -> Result<Vec<Envelope>, event::Invalid> {
        let mut made = Vec::new();
        for walk in &mut self.walks {
            let (value, quality) = walk.step(&mut self.random);
            made.push((walk.measured.tag, value, walk.measured.unit, quality, Category::Telemetry));
        }
        for event in EVENTS {
            if self.random.happens(event.probability) {
                let value = event.value(&mut self.random);
                made.push((event.tag, value, event.unit, QualityCode::Good, Category::Event));
            }
        }
        for alarm in ALARMS {
            if self.random.happens(alarm.probability) {
                let value = alarm.value(&mut self.random);
                made.push((alarm.tag, value, alarm.unit, QualityCode::Good, Category::Alarm));
            }
        }
        let envelope = |(tag, value, unit, quality, category): (&str, f64, &str, _, _)| {
            let (event_id, asset) = (EventId::mint(), self.asset.clone());
            let (tag, unit, node_id) = (tag.parse::<Tag>()?, unit.to_owned(), self.node_id);
            Ok(Envelope {
                event_id,
                timestamp: now,
                asset,
                tag,
                value,
                unit,
                quality,
                category,
                node_id,
            })
        };
        made.into_iter().map(envelope).collect()
    }
}

/// Two decimals, as a transmitter sends them.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, cycles: usize) -> Vec<Envelope> {
        let mut node = Node::new("PLANT01".parse().unwrap(), 12, seed).unwrap();
        (0..cycles).flat_map(|_| node.cycle(Timestamp::UNIX_EPOCH).unwrap()).collect()
    }

    #[test]
    fn a_seed_repeats_its_run_and_ids_are_new() {
        let (one, two) = (run(3, 500), run(3, 500));
        let values = |run: &[Envelope]| -> Vec<(String, f64)> {
            run.iter().map(|event| (event.tag.to_string(), event.value)).collect()
        };
        assert_eq!(values(&one), values(&two));
        assert_ne!(values(&one), values(&run(4, 500)));
        assert!(one.iter().zip(&two).all(|(one, two)| one.event_id != two.event_id));
    }

    #[test]
    fn every_event_keeps_the_rules_and_comes_as_often_as_documented() {
        const CYCLES: usize = 30_000;
        let made = run(11, CYCLES);
        let count = |tag: &str| made.iter().filter(|event| event.tag.as_str() == tag).count();
        for tag in ["FLOW_RATE", "PRESSURE", "TEMPERATURE"] {
            assert_eq!(count(tag), CYCLES);
        }
        let rates = EVENTS.iter().map(|event| (event.tag, event.probability));
        for (tag, probability) in rates.chain(ALARMS.iter().map(|a| (a.tag, a.probability))) {
            let share = count(tag) as f64 / CYCLES as f64;
            assert!((share / probability - 1.0).abs() < 0.4, "{tag}: {share}");
        }
        for event in &made[..5_000] {
            assert_eq!(Envelope::parse(event.to_json().as_bytes()).as_ref(), Ok(event));
        }
    }

    #[test]
    fn nodes_have_places_of_their_own() {
        let place = |node_id| {
            let mut node = Node::new("PLANT01".parse().unwrap(), node_id, 1).unwrap();
            node.cycle(Timestamp::UNIX_EPOCH).unwrap()[0].partition_key()
        };
        assert_eq!(place(5), "PLANT01.AREA01.UNIT_05.FLOW_RATE");
        assert_eq!(place(11), "PLANT01.AREA02.UNIT_11.FLOW_RATE");
        assert_eq!(place(1000), "PLANT01.AREA100.UNIT_1000.FLOW_RATE");
    }
}
