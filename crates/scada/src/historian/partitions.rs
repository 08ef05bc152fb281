//! The months of the tables that have one row for each event, and of the minutes.
//!
//! A row of a month that has no partition waits in the default one and is moved when its month is made, so nothing here is
//! needed for a batch to be stored: a failure is logged and tried again.

use jiff::{SignedDuration, Timestamp};

/// How far back a month gets its partition at once: a plant may have been cut off for that long.
const BACK: SignedDuration = SignedDuration::from_hours(62 * 24);
/// And ahead, so that a historian that cannot make one for weeks has it already.
const AHEAD: SignedDuration = SignedDuration::from_hours(62 * 24);
/// With the column that each is partitioned by.
const TABLES: [(&str, &str); 4] = [
    ("telemetry", "timestamp"),
    ("telemetry_minutes", "minute"),
    ("events", "timestamp"),
    ("alarms", "timestamp"),
];

/// Makes the months that are missing.
pub(super) async fn make(pool: &pg::Pool) {
    let now = Timestamp::now();
    for (table, column) in TABLES {
        let made = async {
            let mut client = pool.get().await?;
            let (from, to) = (now - BACK, now + AHEAD);
            pg::partitions::ensure_months(&mut client, table, column, from, to).await
        };
        match made.await {
            Ok(0) => {}
            Ok(months) => tracing::info!(table, months, "partitions made"),
            Err(error) => tracing::warn!(table, %error, "partitions could not be made"),
        }
    }
}
