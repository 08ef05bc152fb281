//! `cloud-media-store`: what is known about images.

mod objects;

use bus::Consumer;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::hold::{self, Store};
use super::{MEDIA_STORE, Options};

struct Media {
    pool: pg::Pool,
}

impl Store for Media {
    const SERVICE: &'static str = MEDIA_STORE;

    async fn store(&self, events: &[Event]) -> Result<(), pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        objects::insert(&transaction, events).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// Works off the queue until told to stop.
pub(super) async fn run(
    consumer: Box<dyn Consumer>,
    pool: pg::Pool,
    stop: CancellationToken,
    _options: Options,
) {
    hold::work_off(consumer, &Media { pool }, &stop).await;
}
