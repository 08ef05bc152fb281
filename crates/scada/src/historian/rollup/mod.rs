//! Telemetry by the minute: which hours changed, and how their minutes are made. docs/spec/historian.md is the contract,
//! docs/adr/0017-minutes-beside-samples.md has the reasons.
//!
//! Promise: an hour counts only while its minutes are what its samples say, for every snapshot. Those who store append the hours they
//! touched in their own transaction ([`note`]); [`run`] makes hours in the background and only ever delays an answer, it never changes one.
//!
//! It must not know who asks. When it fails an hour does not count, and is read by its samples.

mod roll;

use std::collections::BTreeSet;

use event::scada::Category;
use jiff::Timestamp;

use super::record::Record;

pub(super) use roll::run;

/// Settings of the sessions that store. Without `holdfast.hours` the database takes it that any hour may have changed; compiling
/// a plan takes longer than the longest of our queries.
pub const SESSION: &[(&str, &str)] = &[("holdfast.hours", "noted"), ("jit", "off")];

const HOUR_SECONDS: i64 = 3_600;

const NOTE: &str = "INSERT INTO telemetry_changes (hour) SELECT * FROM unnest($1::timestamptz[])";

/// Notes the hours of what is newly stored. Sent beside another statement it costs no round trip of its own.
pub(super) async fn note(
    client: &impl pg::GenericClient,
    new: &[&Record],
) -> Result<(), pg::Error> {
    let telemetry = new.iter().filter(|record| record.is(Category::Telemetry));
    let hours = hours(telemetry.map(|record| record.envelope.timestamp));
    if !hours.is_empty() {
        let statement = client.prepare_cached(NOTE).await?;
        client.execute(&statement, &[&hours]).await?;
    }
    Ok(())
}

/// The hours of these times, each once.
fn hours(times: impl Iterator<Item = Timestamp>) -> Vec<Timestamp> {
    let mut found = BTreeSet::new();
    for at in times {
        let second = floor_second(at);
        found.insert(second.div_euclid(HOUR_SECONDS));
        // The database keeps microseconds, and a finer time before 2000 is rounded up on its way there.
        if at.subsec_nanosecond() % 1_000 != 0 {
            found.insert((second + 1).div_euclid(HOUR_SECONDS));
        }
    }
    found.iter().filter_map(|hour| Timestamp::from_second(hour * HOUR_SECONDS).ok()).collect()
}

/// Whole seconds since 1970, rounded down before it too.
pub(super) fn floor_second(at: Timestamp) -> i64 {
    at.as_second() - i64::from(at.subsec_nanosecond() < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_an_hour_that_is_noted() {
        let noted = |times: &[&str]| -> Vec<String> {
            let hours = hours(times.iter().map(|time| time.parse().unwrap()));
            hours.iter().map(ToString::to_string).collect()
        };
        let day = ["2026-02-01T10:00:00Z", "2026-02-01T10:59:59.999999Z", "2026-02-01T09:59:59Z"];
        assert_eq!(noted(&day), ["2026-02-01T09:00:00Z", "2026-02-01T10:00:00Z"]);
        assert_eq!(noted(&["1969-12-31T23:59:59.5Z"]), ["1969-12-31T23:00:00Z"]);
        let fine = noted(&["1999-12-31T23:59:59.999999999Z"]);
        assert_eq!(fine, ["1999-12-31T23:00:00Z", "2000-01-01T00:00:00Z"]);
    }
}
