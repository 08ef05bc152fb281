//! A cycle as the spool keeps it: its envelopes as JSON, one a line, and then the counts of what was left out, if there are any.

use event::Invalid;
use event::scada::{Category, Envelope};

use crate::analytics::{Counts, Reduced};

/// What a line of counts begins with; an envelope begins with a brace.
const COUNTS: &str = "counts ";

/// The bytes of a cycle, and how precious it is.
pub(super) fn encode(cycle: &Reduced) -> (u8, Vec<u8>) {
    let events = &cycle.envelopes;
    let class = events.iter().map(|event| class(event.category)).max().unwrap_or_default();
    let mut lines: Vec<String> = events.iter().map(Envelope::to_json).collect();
    if !cycle.counts.is_empty() {
        // Text and whole numbers: that is always JSON.
        lines.extend(serde_json::to_string(&cycle.counts).map(|json| format!("{COUNTS}{json}")));
    }
    (class, lines.join("\n").into_bytes())
}

/// The cycle of a record.
pub(super) fn decode(bytes: &[u8]) -> Result<Reduced, Invalid> {
    let mut cycle = Reduced::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        match line.strip_prefix(COUNTS.as_bytes()) {
            Some(json) => cycle.counts = counts(json)?,
            None => cycle.envelopes.push(Envelope::parse(line)?),
        }
    }
    Ok(cycle)
}

fn counts(json: &[u8]) -> Result<Counts, Invalid> {
    serde_json::from_slice(json).map_err(|error| Invalid::new("counts", error.to_string()))
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
    use crate::analytics::Reducer;
    use crate::generate::Node;

    #[test]
    fn a_cycle_comes_back_as_it_was_and_has_the_class_of_its_most_precious() {
        let mut node = Node::new("PLANT01".parse().unwrap(), 3, 5).unwrap();
        let mut classes = [false; 3];
        for _ in 0..500 {
            let cycle = node.cycle(Timestamp::now()).unwrap();
            let plain = Reduced { envelopes: cycle.clone(), ..Reduced::default() };
            assert_eq!(decode(&encode(&plain).1).unwrap().envelopes, cycle);
            let counted = Reducer::default().apply(cycle.clone(), Timestamp::now());
            let (class, bytes) = encode(&counted);
            let again = decode(&bytes).unwrap();
            assert_eq!((again.envelopes, again.counts), (cycle.clone(), counted.counts));
            let has = |category| cycle.iter().any(|event| event.category == category);
            let wanted = if has(Category::Alarm) { 2 } else { u8::from(has(Category::Event)) };
            assert_eq!(class, wanted);
            classes[usize::from(class)] = true;
        }
        assert_eq!(classes, [true; 3]);
        assert!(decode(b"{}").is_err() && decode(b"").is_err());
    }
}
