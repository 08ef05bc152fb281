//! The months of the partitioned tables.
//!
//! A row of a month that has no partition goes to the default one and is moved when its month is
//! made, so nothing here is needed for a batch to be stored: a failure is logged and tried again.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

/// How far back a month gets its partition at once: a site may have been cut off for that long.
const BACK: SignedDuration = SignedDuration::from_hours(62 * 24);
/// And ahead, so that a cloud that cannot make one for weeks has it already.
const AHEAD: SignedDuration = SignedDuration::from_hours(62 * 24);
const AGAIN_EVERY: Duration = Duration::from_secs(6 * 3600);

fn tables(service: &str) -> &'static [&'static str] {
    match service {
        super::TELEMETRY_SERVICE => &["telemetry_reading", "event_journal"],
        super::ANALYTICS_SERVICE => &["kpi_seen"],
        _ => &[],
    }
}

/// Makes the months once, and keeps making them until told to stop.
pub(super) async fn ensure(service: &'static str, pool: &pg::Pool, stop: &CancellationToken) {
    let (pool, stop) = (pool.clone(), stop.clone());
    if tables(service).is_empty() {
        return;
    }
    make(service, &pool).await;
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(AGAIN_EVERY) => make(service, &pool).await,
            }
        }
    });
}

async fn make(service: &str, pool: &pg::Pool) {
    let now = Timestamp::now();
    for table in tables(service) {
        let made = async {
            let mut client = pool.get().await?;
            pg::partitions::ensure_months(
                &mut client,
                table,
                "occurred_at",
                now - BACK,
                now + AHEAD,
            )
            .await
        };
        match made.await {
            Ok(0) => {}
            Ok(months) => tracing::info!(table, months, "partitions made"),
            Err(error) => tracing::warn!(table, %error, "partitions could not be made"),
        }
    }
}
