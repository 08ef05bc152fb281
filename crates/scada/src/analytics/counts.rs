//! What became of the readings of a cycle.

use std::collections::BTreeMap;

use event::scada::Envelope;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The counts of one cycle. They go with the cycle wherever it goes, to the spool too.
///
/// Invariant: the sum over all cycles of a series has `readings = kept + reduced`; so has each cycle, day by day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Tells these counts from others: they are written once.
    pub id: Uuid,
    #[serde(with = "as_list")]
    by_series: BTreeMap<SeriesDay, Tally>,
}

/// A tag of a node on a day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SeriesDay {
    /// The node.
    pub node_id: u16,
    /// The plant.
    pub plant: String,
    /// The area.
    pub area: String,
    /// The work unit.
    pub unit: String,
    /// The tag that was read.
    pub tag: String,
    /// The day in UTC, by the time of the reading.
    pub day: Date,
}

impl SeriesDay {
    fn of(reading: &Envelope) -> SeriesDay {
        SeriesDay {
            node_id: reading.node_id,
            plant: reading.asset.plant.to_string(),
            area: reading.asset.area.to_string(),
            unit: reading.asset.unit.to_string(),
            tag: reading.tag.to_string(),
            day: reading.timestamp.to_zoned(TimeZone::UTC).date(),
        }
    }
}

/// Changes of the ledger. A reading that was held counts as reduced; when it is sent in a later cycle, that cycle takes one back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Readings taken.
    pub readings: i64,
    /// Of those, sent.
    pub kept: i64,
    /// Of those, left out.
    pub reduced: i64,
    /// Readings made from them.
    pub derived: i64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts::new()
    }
}

impl Counts {
    /// Counts of nothing, with an id of their own.
    pub fn new() -> Counts {
        Counts { id: Uuid::now_v7(), by_series: BTreeMap::new() }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.by_series.is_empty()
    }

    /// Every series with its tally.
    pub fn iter(&self) -> impl Iterator<Item = (&SeriesDay, &Tally)> {
        self.by_series.iter()
    }

    /// The tally of everything.
    pub fn total(&self) -> Tally {
        self.by_series.values().fold(Tally::default(), |mut total, tally| {
            total.add(tally);
            total
        })
    }

    /// A reading that was taken. Until it is sent, it is one that was left out.
    pub(crate) fn read(&mut self, reading: &Envelope) {
        let tally = self.tally(reading);
        tally.readings += 1;
        tally.reduced += 1;
    }

    /// A reading that was taken before, here or in an earlier cycle, and is sent now.
    pub(crate) fn sent(&mut self, reading: &Envelope) {
        let tally = self.tally(reading);
        tally.kept += 1;
        tally.reduced -= 1;
    }

    /// Readings that were made from this one.
    pub(crate) fn derived(&mut self, from: &Envelope, made: i64) {
        self.tally(from).derived += made;
    }

    /// Takes in what another stage counted.
    pub(crate) fn merge(&mut self, other: &Counts) {
        for (series, tally) in other.iter() {
            self.by_series.entry(series.clone()).or_default().add(tally);
        }
    }

    fn tally(&mut self, reading: &Envelope) -> &mut Tally {
        self.by_series.entry(SeriesDay::of(reading)).or_default()
    }
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.readings += other.readings;
        self.kept += other.kept;
        self.reduced += other.reduced;
        self.derived += other.derived;
    }
}

/// JSON has only text for keys.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{SeriesDay, Tally};

    pub(super) fn serialize<S: Serializer>(
        map: &BTreeMap<SeriesDay, Tally>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<SeriesDay, Tally>, D::Error> {
        Ok(Vec::<(SeriesDay, Tally)>::deserialize(deserializer)?.into_iter().collect())
    }
}
