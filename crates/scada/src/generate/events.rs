//! Operational events.

use super::random::Random;
use super::rounded;
use super::telemetry::TAGS;

/// A kind of operational event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Its tag.
    pub tag: &'static str,
    /// How likely it is in a cycle.
    pub probability: f64,
    /// The unit of its value.
    pub unit: &'static str,
}

/// The five kinds.
pub const EVENTS: [Event; 5] = [
    Event { tag: "SETPOINT_CHANGE", probability: 0.05, unit: "m³/h" },
    Event { tag: "MODE_CHANGE", probability: 0.02, unit: "" },
    Event { tag: "UNIT_START", probability: 0.005, unit: "" },
    Event { tag: "UNIT_STOP", probability: 0.005, unit: "" },
    Event { tag: "MAINTENANCE", probability: 0.002, unit: "" },
];

impl Event {
    /// The new setpoint of the flow within a tenth, a mode from 0 to 2, or whether the unit runs.
    pub(super) fn value(&self, random: &mut Random) -> f64 {
        match self.tag {
            "SETPOINT_CHANGE" => rounded(TAGS[0].setpoint * (0.9 + 0.2 * random.unit())),
            "MODE_CHANGE" => (random.unit() * 3.0).floor(),
            "UNIT_STOP" => 0.0,
            _ => 1.0,
        }
    }
}
