//! Pending rows: completed, or removed when their time is over.

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{Error, Sweep};
use crate::media::complete::{Turn, inspect, settle, upload_of};
use crate::media::{COLUMNS, Fault, Row};

/// Rows looked at with one statement.
const ROWS: i64 = 200;
/// Removed only while it is what it was.
const REMOVE: &str = "DELETE FROM media_objects WHERE id = $1 AND status = 'pending'";

impl Sweep<'_> {
    /// Settles what is pending.
    pub(super) async fn pending(&mut self) -> Result<(), Error> {
        let query = format!(
            "SELECT {COLUMNS} FROM media_objects
             WHERE status = 'pending' AND bucket = $1 AND (expires_at, id) > ($2, $3)
             ORDER BY expires_at, id LIMIT $4"
        );
        let mut after = (Timestamp::UNIX_EPOCH, Uuid::nil());
        loop {
            let client = self.pool.get().await?;
            let name = self.media.bucket.name();
            let rows = client.query(&query, &[&name, &after.0, &after.1, &ROWS]).await?;
            drop(client);
            for row in &rows {
                let row = Row::read(row)?;
                after = (row.expires_at.unwrap_or(after.0), row.id);
                self.report.rows += 1;
                self.one_pending(&row).await?;
            }
            if rows.is_empty() {
                return Ok(());
            }
        }
    }

    async fn one_pending(&mut self, row: &Row) -> Result<(), Error> {
        let done = if self.dry_run {
            inspect(self.media, row, Turn::Awaited).await.map(drop)
        } else {
            settle(self.media, self.pool, row, None, Turn::Awaited).await.map(drop)
        };
        let expired = row.expires_at.is_none_or(|at| self.is_past(at));
        match done {
            Ok(()) => self.report.completed += 1,
            Err(Fault::NotUploaded | Fault::Differs { .. }) if !expired => self.report.waiting += 1,
            Err(Fault::NotUploaded) => {
                self.report.expired += 1;
                self.forget(row, false).await?;
            }
            Err(Fault::Differs { .. }) => {
                self.report.rejected += 1;
                self.forget(row, true).await?;
            }
            // Somebody else settled it meanwhile.
            Err(Fault::Missing | Fault::WrongState(_)) => {}
            Err(fault) => self.pass(fault)?,
        }
        Ok(())
    }

    /// Whether nobody can be at it any more. A store looks at the time of an address when a request begins, so one that
    /// began in time goes on after it; the row waits for it, and with it the session of the image.
    fn is_past(&self, expires_at: Timestamp) -> bool {
        let grace = SignedDuration::try_from(self.media.config.upload_grace);
        self.now.duration_since(expires_at) >= grace.unwrap_or(SignedDuration::MAX)
    }

    /// Removes what was promised: first what is in the store, so that a crash leaves a row to go on with.
    /// An object that comes after all is an orphan, and is found as one.
    async fn forget(&mut self, row: &Row, with_object: bool) -> Result<(), Error> {
        if self.dry_run {
            return Ok(());
        }
        let upload = match upload_of(self.pool, row.id).await {
            Ok(upload) => upload,
            Err(fault) => return self.pass(fault),
        };
        if let Some((upload_id, _)) = upload {
            self.media.bucket.abort_upload(&row.object_key, &upload_id).await?;
        }
        if with_object {
            tracing::warn!(media_id = %row.id, "an object that was not as announced is removed");
            self.media.bucket.delete(&row.object_key).await?;
        }
        self.pool.get().await?.execute(REMOVE, &[&row.id]).await?;
        Ok(())
    }
}
