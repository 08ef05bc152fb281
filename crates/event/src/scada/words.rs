//! The words an envelope is addressed with.

use crate::spelling::spelled;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::{Class, Invalid};

fn is_upper_word(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

macro_rules! upper_words {
    ($($(#[$doc:meta])* $name:ident, $max:literal, $field:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The longest name, in characters.
            pub const MAX_LEN: usize = $max;

            pub(super) const EXPECTED: &'static str =
                concat!("1 to ", $max, " of A-Z, 0-9 and underscore");

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<$name, Invalid> {
                if is_upper_word(text, $name::MAX_LEN) {
                    Ok($name(text.to_owned()))
                } else {
                    Err(Invalid::value($field, text, $name::EXPECTED))
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    )+};
}

upper_words! {
    /// The name of a plant, an area or a unit, such as `PLANT01`.
    AssetName, 64, "asset";
    /// The name of a process variable, an event or an alarm, such as `FLOW_RATE`.
    Tag, 128, "tag";
}

/// What sort of message it is; decides its topic and its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// A continuous measurement.
    Telemetry,
    /// A discrete operational event.
    Event,
    /// A process alarm (ISA-18.2).
    Alarm,
}

impl Category {
    /// Every category.
    pub const ALL: [Category; 3] = [Category::Telemetry, Category::Event, Category::Alarm];

    pub(super) const EXPECTED: &'static str = "one of telemetry, event, alarm";

    /// The category as it is written in an envelope.
    pub fn as_str(self) -> &'static str {
        self.class().as_str()
    }

    /// How dear a message of this category is.
    pub fn class(self) -> Class {
        match self {
            Category::Telemetry => Class::Telemetry,
            Category::Event => Class::Event,
            Category::Alarm => Class::Alarm,
        }
    }
}

spelled!(Category, "category");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_grammar_and_length() {
        for text in ["A", "_", "PLANT01", "UNIT_05", &"X".repeat(64)] {
            assert_eq!(text.parse::<AssetName>().unwrap().as_str(), text);
        }
        assert!("X".repeat(128).parse::<Tag>().is_ok());
        assert!("X".repeat(129).parse::<Tag>().is_err());
        for text in ["", "plant", "A.B", "A-B", "A B", "É", "A\n", &"X".repeat(65)] {
            assert!(text.parse::<AssetName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn categories_are_lower_case() {
        for category in Category::ALL {
            assert_eq!(category.as_str().parse::<Category>(), Ok(category));
            assert_eq!(serde_json::to_string(&category).unwrap(), format!("\"{category}\""));
        }
        assert!("ALARM".parse::<Category>().is_err());
    }
}
