//! `cloud-media-store`: what is known about images, and copies of them when both object stores are
//! configured.

mod copy;
mod rows;
mod stores;

use bus::Consumer;
use event::farm::EventType;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::hold::{self, Store};
use super::{MEDIA_STORE, Options, stored};
use crate::copies;

pub(super) use copy::DEFAULT_COPIES;
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
        stored::note(&transaction, events, |kind| *kind == EventType::MEDIA_STORED).await?;
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
        if declare(&pool, options.stores.is_some(), options.poll, &stop).await.is_some()
            && let Some(stores) = &options.stores
        {
            copy::run(&pool, stores, (options.copies, options.poll), &stop).await;
        }
    };
    let consuming = async {
        hold::work_off(consumer, &store, &stop).await;
        stop.cancel();
    };
    tokio::join!(consuming, copying);
}

/// Says whether copies are made, before the first: sites ask. `None` when told to stop.
async fn declare(
    pool: &pg::Pool,
    copies: bool,
    mut pause: std::time::Duration,
    stop: &CancellationToken,
) -> Option<()> {
    while let Err(error) = copies::declare(pool, copies).await {
        tracing::warn!(service = MEDIA_STORE, %error, "copies wait for the database");
        hold::wait(&mut pause, stop).await?;
    }
    Some(())
}
