//! The disk limit: what is given up for it, in which order, and when it is enough.
//!
//! What the cloud has goes before what it has not, whatever its age.

use std::collections::BTreeSet;

use super::forced::Class;
use super::report::{Fate, Job};
use super::{Disk, Error, Turn, bytes, count};

/// How often the disk is measured again in one turn. What is still too much then is the next turn's.
const ROUNDS: usize = 8;
/// A round takes no less, so that what is noted on the way does not make a turn of every minute.
const LEAST_BYTES: u64 = 256 << 10;
const WHY: &str = "the disk limit is reached; the cloud has them";

const ACKED: &str = "SELECT count(*), coalesce(avg(payload_size_bytes), 0)::float8 FROM sync_outbox
WHERE status = 'acked'";
const PENDING: &str =
    "SELECT count(*), coalesce(avg(payload_size_bytes), 0)::float8 FROM sync_outbox
WHERE NOT finished AND status = 'pending' AND priority BETWEEN $1 AND $2";

impl Turn<'_> {
    /// Gives up what must be given up for the limits.
    pub(super) async fn force(&mut self, mut disk: Disk) -> Result<(), Error> {
        let any = disk.over > 0;
        if any {
            self.note_fill().await?;
            let outcome = self.force_acked(&mut disk).await;
            self.settle(Job::Acked, outcome)?;
            let outcome = self.force_months(&mut disk).await;
            self.settle(Job::Raw, outcome)?;
            let outcome = self.force_kept(&mut disk).await;
            self.settle(Job::Disk, outcome)?;
            self.force_pending(&mut disk).await?;
        }
        if disk.over > 0 {
            tracing::error!(
                over = disk.over,
                "the database is above its limit and nothing more may be given up: add disk, or restore the link"
            );
        } else if any {
            tracing::warn!("the database is below its limit again");
        }
        self.force_media(&mut disk).await?;
        if !any {
            let outcome = self.tell_again(&disk).await;
            self.settle(Job::Media, outcome)?;
        }
        self.report.disk = Some(disk);
        Ok(())
    }

    /// Delivered rows of the outbox.
    async fn force_acked(&mut self, disk: &mut Disk) -> Result<(), Error> {
        let (mut rows, mut bytes, mut page) = (0, 0, 0);
        while disk.over > 0 {
            let some = self.acked_from(page, wanted(disk.over)).await?;
            page = some.next_page;
            if some.rows == 0 {
                break;
            }
            (rows, bytes) = (rows + some.rows, bytes + some.bytes);
            self.vacuum().await?;
            *disk = self.measure(true).await?;
        }
        let size = (rows, (rows > 0).then_some(bytes));
        self.report.add(Job::Acked, "sync_outbox", Fate::Gone, size, WHY);
        Ok(())
    }

    /// Undelivered events, declared.
    async fn force_pending(&mut self, disk: &mut Disk) -> Result<(), Error> {
        let mut passed_over = BTreeSet::new();
        for round in 1..=ROUNDS {
            if disk.over == 0 {
                break;
            }
            let wanted = if round < ROUNDS { wanted(disk.over) } else { disk.over };
            if self.force_some(wanted, &mut passed_over).await? == 0 {
                break;
            }
            self.vacuum().await?;
            *disk = self.measure(true).await?;
        }
        Ok(())
    }

    /// Pages are free for new rows, and counted as such, after a vacuum, however long it takes.
    async fn vacuum(&self) -> Result<(), Error> {
        for text in ["SET statement_timeout = 0", "VACUUM sync_outbox", "RESET statement_timeout"] {
            self.client.batch_execute(text).await?;
        }
        Ok(())
    }

    /// What the limits would take.
    pub(super) async fn would_drop(&mut self, disk: &Disk) -> Result<(), Error> {
        if disk.over > 0 {
            let outcome = self.would_force(disk.over).await;
            self.settle(Job::Disk, outcome)?;
        }
        self.would_drop_media(disk).await
    }

    async fn would_force(&mut self, over: u64) -> Result<(), Error> {
        // What has expired is in the report already.
        let expired = self.report.lines.iter().filter(|line| line.fate == Fate::WouldGo);
        let expired = expired.filter(|line| matches!(line.job, Job::Raw | Job::Aggregates));
        let mut wanted = over.saturating_sub(expired.filter_map(|line| line.bytes).sum());
        let row = self.client.query_one(ACKED, &[]).await?;
        let each = bytes::acked_row(payload(row.try_get(1)?));
        let rows = count(row.try_get(0)?).min(wanted.div_ceil(each));
        wanted = wanted.saturating_sub(rows * each);
        let young = rows.saturating_sub(self.report.rows(Job::Acked, Fate::WouldGo));
        let size = (young, (young > 0).then_some(young * each));
        self.report.add(Job::Acked, "sync_outbox", Fate::WouldGo, size, WHY);
        wanted = wanted.saturating_sub(self.would_force_months(wanted).await?);
        for class in Class::ALL {
            let (low, high) = class.priorities();
            let row = self.client.query_one(PENDING, &[&low, &high]).await?;
            let each = class.least_bytes() + bytes::outbox_row(payload(row.try_get(1)?))
                - bytes::outbox_row(0);
            let rows = count(row.try_get(0)?).min(wanted.div_ceil(each));
            wanted = wanted.saturating_sub(rows * each);
            let what = format!("undelivered: {}", class.as_str());
            let why = "the disk limit is reached, and what was delivered may not be enough";
            let size = (rows, (rows > 0).then_some(rows * each));
            self.report.add(Job::Disk, what, Fate::WouldDrop, size, why);
        }
        Ok(())
    }
}

/// What a row takes is an estimate: the limit is come up to from above, so that no more goes than must.
fn wanted(over: u64) -> u64 {
    (over - over / 4).max(LEAST_BYTES)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate of bytes")]
fn payload(average: f64) -> u64 {
    average as u64
}
