//! What the disk limit takes of readings that were never to leave the site (`edge.sync.telemetry = "aggregates"`): the cloud has their
//! aggregates, and nobody else has the readings. So each is given up in the ledger before its month is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use uuid::Uuid;

use super::forced::{self, Batch, Class, REASON};
use super::ledger::{Place, Stream, give_up, lock};
use super::partitions::{KEPT, Partition};
use super::report::{Fate, Job};
use super::{Disk, Error, Turn, bytes, count};

pub(super) const WHY: &str = "the disk limit is reached; the cloud has their aggregates";

/// How a report names them.
pub(super) fn named(month: &Partition) -> String {
    format!("kept here alone: {}", month.short)
}

impl Turn<'_> {
    /// Gives up months with readings that were kept here, the oldest first, until the disk is below its limits.
    pub(super) async fn force_kept(&mut self, disk: &mut Disk) -> Result<(), Error> {
        for month in self.months_to_force(true).await? {
            if disk.over == 0 {
                break;
            }
            let (mut rows, mut passed_over) = (0, BTreeSet::new());
            loop {
                let began = Instant::now();
                let batch = self.give_up_kept(&month, &mut passed_over).await?;
                if batch.found == 0 {
                    break;
                }
                rows += batch.rows;
                self.step("kept.committed")?;
                self.rest(began).await;
            }
            // Deleted rows leave no room that anybody uses: no reading comes into a month that is over.
            self.drop_delivered(&month).await?;
            if rows > 0 {
                let month = month.short.as_str();
                tracing::error!(
                    month,
                    rows,
                    "the disk limit is reached: readings that only this site had are gone, and declared"
                );
            }
            let size = (rows, (rows > 0).then_some(month.bytes));
            self.report.add(Job::Disk, named(&month), Fate::Dropped, size, WHY);
            *disk = self.measure(true).await?;
        }
        Ok(())
    }

    /// One transaction. Streams whose ledger has no room for more holes, or that have none, are passed over.
    async fn give_up_kept(
        &mut self,
        month: &Partition,
        passed_over: &mut BTreeSet<Stream>,
    ) -> Result<Batch, Error> {
        let limit = i64::from(self.config().batch_rows);
        let watch = self.retention.watch.clone();
        let transaction = self.client.transaction().await?;
        let passed: (Vec<&str>, Vec<Uuid>) =
            passed_over.iter().map(|(stream, epoch)| (stream.as_str(), *epoch)).unzip();
        let text = format!(
            "SELECT t.id, t.stream, t.epoch, t.seq, t.occurred_at FROM {} t WHERE {KEPT}
                 AND NOT EXISTS (SELECT FROM unnest($1::text[], $2::uuid[]) AS p (stream, epoch)
                     WHERE p.stream = t.stream AND p.epoch = t.epoch) LIMIT $3",
            month.name
        );
        let mut places: BTreeMap<Stream, Vec<Place>> = BTreeMap::new();
        let found = transaction.query(&text, &[&passed.0, &passed.1, &limit]).await?;
        for row in &found {
            let (event_id, seq, at) = (row.try_get(0)?, count(row.try_get(3)?), row.try_get(4)?);
            let stream = (row.try_get(1)?, row.try_get(2)?);
            places.entry(stream).or_default().push(Place { seq, event_id, at });
        }
        let mut locked = lock(&transaction, &places.keys().cloned().collect()).await?;
        let mut batch = Batch { found: found.len(), ..Batch::default() };
        let (mut ids, mut range) = (Vec::new(), None);
        for (stream, places) in &places {
            let frontier = locked.remove(stream);
            let Some(frontier) = frontier.filter(|one| forced::has_room(one, places)) else {
                passed_over.insert(stream.clone());
                continue;
            };
            give_up(&transaction, stream, frontier, places, REASON).await?;
            ids.extend(places.iter().map(|place| place.event_id));
            for place in places {
                range = forced::widened(range, place.at);
            }
        }
        let delete = format!("DELETE FROM {} WHERE id = ANY($1)", month.name);
        batch.rows = transaction.execute(&delete, &[&ids]).await?;
        batch.bytes = batch.rows * bytes::RAW_ROW;
        if batch.rows > 0 {
            forced::note(&transaction, Class::Telemetry, &batch, 0, range).await?;
        }
        if watch.is_some_and(|watch| !watch("kept.written")) {
            return Err(Error::Ended("kept.written"));
        }
        transaction.commit().await?;
        Ok(batch)
    }
}
