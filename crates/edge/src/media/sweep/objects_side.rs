//! Objects and the rows of the same keys, side by side in the order of the keys.

use std::collections::BTreeMap;

use jiff::Timestamp;
use objects::Listed;

use super::{Error, Matter, Sweep};
use crate::config::Orphans;
use crate::media::complete::{self, Turn};
use crate::media::{COLUMNS, Fault, Row, adopt, told};
use crate::outbox;

/// Where all keys of ours are.
const PREFIX: &str = "tenants/";
/// Objects on a page, and rows looked at with one statement.
const PAGE: usize = 1_000;

impl Sweep<'_> {
    /// Walks the bucket and the table together.
    pub(super) async fn compare(&mut self) -> Result<(), Error> {
        let mut after: Option<String> = None;
        loop {
            let page = self.media.bucket.list(PREFIX, after.as_deref(), PAGE).await?;
            self.report.objects += page.objects.len() as u64;
            let mut objects: BTreeMap<&str, &Listed> =
                page.objects.iter().map(|object| (object.key.as_str(), object)).collect();
            // The rows are read after the list: a row comes before its object, so an object in the list
            // that has no row now never had one, or has lost it.
            let mut from = after.clone().unwrap_or_default();
            loop {
                let rows = self.rows(&from, page.next.as_deref()).await?;
                let Some(last) = rows.last() else { break };
                from.clone_from(&last.object_key);
                for row in &rows {
                    let object = objects.remove(row.object_key.as_str());
                    self.report.rows += 1;
                    self.one_row(row, object).await?;
                }
            }
            for object in objects.into_values() {
                self.one_orphan(object).await?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Rows with keys after one, up to and with another.
    async fn rows(&self, from: &str, to: Option<&str>) -> Result<Vec<Row>, Error> {
        let query = format!(
            "SELECT {COLUMNS} FROM media_objects
             WHERE bucket = $1 AND object_key > $2 AND ($3::text IS NULL OR object_key <= $3)
             ORDER BY object_key LIMIT $4"
        );
        let limit = i64::try_from(PAGE).unwrap_or(i64::MAX);
        let name = self.media.bucket.name();
        let client = self.pool.get().await?;
        let rows = client.query(&query, &[&name, &from, &to, &limit]).await?;
        Ok(rows.iter().map(Row::read).collect::<Result<Vec<Row>, _>>()?)
    }

    async fn one_row(&mut self, row: &Row, object: Option<&Listed>) -> Result<(), Error> {
        match (row.status.as_str(), object) {
            // A list may be older than the row: the object itself decides.
            ("stored", None) => match self.media.bucket.head(&row.object_key).await {
                Err(objects::Error::NotFound) => {
                    self.report.missing += 1;
                    self.name(Matter::Missing, Some(row.id), &row.object_key, true);
                    self.change(row, "missing").await
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            },
            ("stored", Some(object)) if object.size != row.size() => {
                tracing::error!(media_id = %row.id, "the object of a stored media has another size");
                self.report.resized += 1;
                self.name(Matter::Resized, Some(row.id), &row.object_key, false);
                Ok(())
            }
            // One of the same size may still be another: what the row promises is looked at.
            ("missing", Some(_)) => match complete::inspect(self.media, row, Turn::Awaited).await {
                Ok(_) => {
                    self.report.restored += 1;
                    self.name(Matter::Restored, Some(row.id), &row.object_key, true);
                    self.change(row, "stored").await
                }
                Err(Fault::NotUploaded) => Ok(()),
                Err(Fault::Differs { message, .. }) => {
                    tracing::error!(media_id = %row.id, %message, "the object of a missing media is another one");
                    self.report.resized += 1;
                    self.name(Matter::Resized, Some(row.id), &row.object_key, false);
                    Ok(())
                }
                Err(fault) => self.pass(fault),
            },
            ("deleted", Some(object)) if self.is_old(row.deleted_at) => {
                self.report.leftovers += 1;
                self.name(Matter::Leftover, Some(row.id), &row.object_key, true);
                if self.dry_run {
                    Ok(())
                } else {
                    Ok(self.media.bucket.delete(&object.key).await?)
                }
            }
            _ => Ok(()),
        }
    }

    /// Changes a row's state, with the event that tells of it.
    async fn change(&mut self, row: &Row, to: &str) -> Result<(), Error> {
        if self.dry_run {
            return Ok(());
        }
        let now = Timestamp::now();
        let event =
            if to == "missing" { told::missing(row, now) } else { told::restored(row, now) };
        let event = match event {
            Ok(event) => event,
            Err(fault) => return self.pass(fault),
        };
        if to == "missing" {
            tracing::error!(media_id = %row.id, "the object of a stored media is gone");
        }
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        let update = "UPDATE media_objects SET status = $2,
                 missing_at = CASE WHEN $2 = 'missing' THEN now() ELSE missing_at END
             WHERE id = $1 AND status = $3";
        let changed = transaction.execute(update, &[&row.id, &to, &row.status]).await?;
        if changed == 1 {
            outbox::add(&transaction, &event).await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    async fn one_orphan(&mut self, object: &Listed) -> Result<(), Error> {
        let Some(told) = adopt::read(&object.key) else {
            self.report.foreign += 1;
            self.name(Matter::Foreign, None, &object.key, false);
            return Ok(());
        };
        if !self.is_old(object.modified) {
            self.report.orphans += 1;
            self.name(Matter::Young, None, &object.key, false);
            return Ok(());
        }
        let mends = self.media.config.orphans != Orphans::Report;
        self.name(Matter::Orphan, None, &object.key, mends);
        match (self.media.config.orphans, self.dry_run) {
            (Orphans::Report, _) => self.report.orphans += 1,
            (Orphans::Adopt, true) => self.report.adopted += 1,
            (Orphans::Delete, true) => self.report.removed += 1,
            (Orphans::Adopt, false) => {
                match adopt::adopt(self.media, self.pool, object, &told).await {
                    Ok(true) => self.report.adopted += 1,
                    Ok(false) => self.report.foreign += 1,
                    Err(Fault::Store(error)) => return Err(error.into()),
                    Err(fault) => self.pass(fault)?,
                }
            }
            (Orphans::Delete, false) => {
                self.media.bucket.delete(&object.key).await?;
                self.report.removed += 1;
            }
        }
        Ok(())
    }

    /// Aborts uploads in parts that no row knows: whoever opened them died before the row was there, or
    /// the row is gone.
    pub(super) async fn uploads(&mut self) -> Result<(), Error> {
        let open = self.media.bucket.open_uploads(PREFIX).await?;
        let ids: Vec<&str> = open.iter().map(|upload| upload.upload_id.as_str()).collect();
        let query = "SELECT upload_id FROM media_uploads WHERE upload_id = ANY($1)";
        let known = self.pool.get().await?.query(query, &[&ids]).await?;
        let known: Vec<String> =
            known.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
        for upload in &open {
            if known.contains(&upload.upload_id) || !self.is_old(upload.opened) {
                continue;
            }
            self.report.aborted += 1;
            if !self.dry_run {
                self.media.bucket.abort_upload(&upload.key, &upload.upload_id).await?;
            }
        }
        Ok(())
    }
}
