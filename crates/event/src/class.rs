//! How dear a record is when something must be given up.

/// The class of an event. Ordered: under disk pressure telemetry goes before events, and events
/// before alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// A measurement; the next one is a moment away.
    Telemetry = 0,
    /// Something that happened once.
    Event = 1,
    /// Something a person must know.
    Alarm = 2,
}

impl Class {
    /// Every class, in order.
    pub const ALL: [Class; 3] = [Class::Telemetry, Class::Event, Class::Alarm];

    /// The number that a spool record carries.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The class with this number, if there is one.
    pub fn from_number(number: u8) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.number() == number)
    }

    /// The word for people, metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Telemetry => "telemetry",
            Class::Event => "event",
            Class::Alarm => "alarm",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip_and_keep_the_order() {
        for class in Class::ALL {
            assert_eq!(Class::from_number(class.number()), Some(class));
        }
        assert_eq!(Class::from_number(3), None);
        assert!(Class::Telemetry < Class::Event && Class::Event < Class::Alarm);
    }
}
