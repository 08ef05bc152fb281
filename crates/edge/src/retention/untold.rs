//! Images whose event the disk limit took: the cloud is told of them again when there is room.

use super::{Disk, Error, Turn, bytes};
use crate::media::{COLUMNS, Row, stored_event};
use crate::outbox;

/// Below this much room nothing is told: the limit would soon take it again.
const LEAST_ROOM: u64 = 1 << 20;
/// What the event of an image takes in the outbox.
const PAYLOAD: u64 = 400;

impl Turn<'_> {
    /// Writes events of images that the cloud has to be told of again, into half of the room that there is.
    pub(super) async fn tell_again(&mut self, disk: &Disk) -> Result<(), Error> {
        let room = disk.room();
        if !self.delivers || room < LEAST_ROOM {
            return Ok(());
        }
        let mut left = room / 2 / bytes::outbox_row(PAYLOAD);
        let select = format!(
            "SELECT {COLUMNS} FROM media_objects m WHERE untold_at IS NOT NULL AND status = 'stored'
             ORDER BY captured_at LIMIT $1 FOR UPDATE SKIP LOCKED"
        );
        let (mut told, most) = (0, u64::from(self.config().batch_rows));
        while left > 0 {
            let transaction = self.client.transaction().await?;
            let rows = transaction.query(&select, &[&left.min(most).cast_signed()]).await?;
            let (mut ids, mut events) = (Vec::new(), Vec::new());
            for row in &rows {
                let row = Row::read(row)?;
                match stored_event(&row, None) {
                    Ok(event) => {
                        ids.push(row.id);
                        events.push(event);
                    }
                    Err(error) => {
                        tracing::warn!(media_id = %row.id, %error, "an image cannot be told of");
                    }
                }
            }
            if ids.is_empty() {
                break;
            }
            outbox::add_all_uncached(&transaction, &events).await?;
            let text = "UPDATE media_objects SET untold_at = NULL WHERE id = ANY($1)";
            transaction.execute(text, &[&ids]).await?;
            transaction.commit().await?;
            (told, left) = (told + ids.len(), left.saturating_sub(ids.len() as u64));
        }
        if told > 0 {
            tracing::info!(
                images = told,
                "the cloud is told again of images whose event was dropped"
            );
        }
        Ok(())
    }
}
