//! A cycle as the spool keeps it: its envelopes as JSON, one a line.

use event::Invalid;
use event::scada::{Category, Envelope};

/// The bytes of a cycle, and how precious it is.
pub(super) fn encode(cycle: &[Envelope]) -> (u8, Vec<u8>) {
    let class = cycle.iter().map(|event| class(event.category)).max().unwrap_or_default();
    let lines: Vec<String> = cycle.iter().map(Envelope::to_json).collect();
    (class, lines.join("\n").into_bytes())
}

/// The cycle of a record.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Envelope>, Invalid> {
    bytes.split(|byte| *byte == b'\n').map(Envelope::parse).collect()
}

fn class(category: Category) -> u8 {
    match category {
        Category::Telemetry => 0,
        Category::Event => 1,
        Category::Alarm => 2,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::generate::Node;

    #[test]
    fn a_cycle_comes_back_as_it_was_and_has_the_class_of_its_most_precious() {
        let mut node = Node::new("PLANT01".parse().unwrap(), 3, 5).unwrap();
        let mut classes = [false; 3];
        for _ in 0..500 {
            let cycle = node.cycle(Timestamp::now()).unwrap();
            let (class, bytes) = encode(&cycle);
            assert_eq!(decode(&bytes).unwrap(), cycle);
            let has = |category| cycle.iter().any(|event| event.category == category);
            let wanted = if has(Category::Alarm) { 2 } else { u8::from(has(Category::Event)) };
            assert_eq!(class, wanted);
            classes[usize::from(class)] = true;
        }
        assert_eq!(classes, [true; 3]);
        assert!(decode(b"{}").is_err() && decode(b"").is_err());
    }
}
