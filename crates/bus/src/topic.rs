//! Topic patterns, as RabbitMQ's topic exchanges match them. Pure.
//!
//! A routing key is words joined by dots. In a pattern, `*` stands for one word and `#` for any number of
//! words, none included.

use crate::Message;

/// What a queue or group wants: messages of an exchange whose routing key matches the pattern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// The exchange.
    pub exchange: String,
    /// The topic pattern.
    pub pattern: String,
}

impl Binding {
    /// A binding.
    pub fn new(exchange: impl Into<String>, pattern: impl Into<String>) -> Binding {
        Binding { exchange: exchange.into(), pattern: pattern.into() }
    }

    /// True when the message is wanted.
    pub fn wants(&self, message: &Message) -> bool {
        self.exchange == message.exchange && matches(&self.pattern, &message.routing_key)
    }
}

/// True when the pattern matches the routing key.
pub fn matches(pattern: &str, routing_key: &str) -> bool {
    let words: Vec<&str> = words(routing_key);
    // `reached[i]`: the pattern so far matches the first `i` words. This is linear in both, whatever
    // the pattern: a recursive match would be exponential in the number of `#`.
    let mut reached = vec![false; words.len() + 1];
    reached[0] = true;
    for part in self::words(pattern) {
        let mut next = vec![false; words.len() + 1];
        let mut any = false;
        for at in 0..=words.len() {
            any |= reached[at];
            next[at] = match part {
                "#" => any,
                "*" => at > 0 && reached[at - 1],
                word => at > 0 && reached[at - 1] && words[at - 1] == word,
            };
        }
        reached = next;
    }
    reached[words.len()]
}

/// An empty key has no words.
fn words(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_the_broker_does() {
        for (pattern, key, expected) in [
            ("telemetry.ingested", "telemetry.ingested", true),
            ("telemetry.ingested", "telemetry.aggregated", false),
            ("telemetry.*", "telemetry.ingested", true),
            ("telemetry.*", "telemetry", false),
            ("telemetry.*", "telemetry.a.b", false),
            ("telemetry.#", "telemetry", true),
            ("telemetry.#", "telemetry.a.b", true),
            ("#", "", true),
            ("#", "a.b.c", true),
            ("*", "", false),
            ("#.acked", "sync.batch.acked", true),
            ("#.acked", "sync.batch.sent", false),
            ("sync.#.acked", "sync.acked", true),
            ("*.batch.*", "sync.batch.acked", true),
            ("#.#.a", "a", true),
            ("a.b", "a.b.c", false),
        ] {
            assert_eq!(matches(pattern, key), expected, "{pattern:?} {key:?}");
        }
    }

    /// The definition, by recursion.
    fn by_definition(pattern: &[&str], key: &[&str]) -> bool {
        match (pattern.split_first(), key.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((&"#", rest)), _) => {
                (0..=key.len()).any(|skip| by_definition(rest, &key[skip..]))
            }
            (Some(_), None) => false,
            (Some((part, rest)), Some((word, others))) => {
                (*part == "*" || part == word) && by_definition(rest, others)
            }
        }
    }

    proptest! {
        #[test]
        fn equals_its_definition(
            pattern in proptest::collection::vec(prop_oneof![Just("#"), Just("*"), Just("a"), Just("b")], 1..6),
            key in proptest::collection::vec(prop_oneof![Just("a"), Just("b")], 1..6),
        ) {
            let expected = by_definition(&pattern, &key);
            prop_assert_eq!(matches(&pattern.join("."), &key.join(".")), expected);
        }
    }
}
