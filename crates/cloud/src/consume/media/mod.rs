//! `cloud-media-store`: what is known about images, and copies of them when both object stores are
//! configured.

mod copy;
mod rows;
mod stores;

use bus::Consumer;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::hold::{self, Store};
use super::{MEDIA_STORE, Options};

pub use stores::Stores;

struct Media {
    pool: pg::Pool,
}

impl Store for Media {
    const SERVICE: &'static str = MEDIA_STORE;

    async fn store(&self, events: &[Event]) -> Result<(), pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        rows::insert(&transaction, events).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// Works off the queue and copies objects, until told to stop.
pub(super) async fn run(
    consumer: Box<dyn Consumer>,
    pool: pg::Pool,
    stop: CancellationToken,
    options: Options,
) {
    let store = Media { pool: pool.clone() };
    let copying = async {
        if let Some(stores) = &options.stores {
            copy::run(&pool, stores, options.poll, &stop).await;
        }
    };
    let consuming = async {
        hold::work_off(consumer, &store, &stop).await;
        stop.cancel();
    };
    tokio::join!(consuming, copying);
}
