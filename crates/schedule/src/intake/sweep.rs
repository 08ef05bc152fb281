//! Places that were promised and are of no use any more: forgotten, with what somebody may have uploaded there and never completed.
//!
//! Promises: only places of sessions that have ended are swept, and only when the last address of theirs has expired long ago; an object that is an image of
//! any session stays. The object goes before the row that remembers it, so a sweep that dies is made up for by the next.

use std::time::Duration;

use uuid::Uuid;

use super::meter::Meter;
use super::{Fault, Intake};

/// Places looked at in one statement.
const BATCH: i64 = 200;
/// How often intake sweeps.
pub(super) const EVERY: Duration = Duration::from_secs(3_600);

// No address is given out for a session that has ended, and each that was given out counts as something that happened to it.
const OVER: &str = "SELECT u.id, u.r2_key,
    EXISTS (SELECT FROM schedule_ingest.capture_image i WHERE i.r2_key = u.r2_key)
FROM schedule_ingest.capture_upload u JOIN schedule_ingest.capture_session s ON s.id = u.session_id
WHERE s.state IN ('done', 'failed') AND s.active_at < now() - make_interval(secs => $1) AND u.id > $2
ORDER BY u.id LIMIT $3";
const FORGET: &str = "DELETE FROM schedule_ingest.capture_upload WHERE id = ANY($1)";

/// What a sweep has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Places that are forgotten.
    pub places: u64,
    /// Of these, places that no image ever joined its session from; their objects are gone, if there were any.
    pub unused: u64,
}

impl Intake {
    /// Sweeps once.
    pub async fn sweep(&self) -> Result<Swept, Fault> {
        let (mut swept, mut last) = (Swept::default(), Uuid::nil());
        loop {
            let after = self.limits.sweep_after.as_secs_f64();
            let rows = self.pool.get().await?.query(OVER, &[&after, &last, &BATCH]).await?;
            let mut over = Vec::with_capacity(rows.len());
            for row in &rows {
                let (id, key, used): (Uuid, String, bool) =
                    (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                if !used {
                    match self.bucket.delete(&key).await {
                        Ok(()) | Err(objects::Error::NotFound) => swept.unused += 1,
                        Err(error) => return Err(Fault::Store(error)),
                    }
                }
                last = id;
                over.push(id);
            }
            if over.is_empty() {
                return Ok(swept);
            }
            swept.places += self.pool.get().await?.execute(FORGET, &[&over]).await?;
        }
    }

    /// Sweeps now and then, for ever.
    pub(super) async fn keep_sweeping(&self, meter: &Meter) {
        loop {
            let swept = self.sweep().await;
            meter.swept(swept.as_ref().ok().copied());
            match swept {
                Ok(Swept { places: 0, .. }) => {}
                Ok(Swept { places, unused }) => {
                    tracing::info!(places, unused, "places for images were swept");
                }
                Err(error) => tracing::warn!(%error, "places for images could not be swept"),
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}
