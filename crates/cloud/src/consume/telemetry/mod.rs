//! `cloud-telemetry-service`: readings and their aggregates, sessions, inference results, sync
//! batches, and a journal of everything else.

mod aggregate;
pub mod debounce;
mod from_edge;
mod journal;
mod publish;
mod readings;

use bus::Consumer;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::hold::{self, Store};
use super::{Options, TELEMETRY_SERVICE, inference, session, stored, sync};

struct Telemetry {
    pool: pg::Pool,
}

impl Store for Telemetry {
    const SERVICE: &'static str = TELEMETRY_SERVICE;

    async fn store(&self, events: &[Event]) -> Result<(), pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        readings::insert(&transaction, events).await?;
        from_edge::upsert(&transaction, events).await?;
        session::upsert(&transaction, "weighvision_session", events).await?;
        session::expect_results(&transaction, events).await?;
        session::cancel(&transaction, "weighvision_session", events).await?;
        inference::upsert(&transaction, "inference_result", events).await?;
        sync::upsert(&transaction, "sync_batch", events).await?;
        journal::insert(&transaction, events).await?;
        stored::note(&transaction, events, stored::without_a_row).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// Works off the queue and keeps the aggregates right, until told to stop.
pub(super) async fn run(
    consumer: Box<dyn Consumer>,
    pool: pg::Pool,
    stop: CancellationToken,
    options: Options,
) {
    let store = Telemetry { pool: pool.clone() };
    let aggregating = aggregate::run(pool, stop.clone(), options);
    let consuming = async {
        hold::work_off(consumer, &store, &stop).await;
        stop.cancel();
    };
    tokio::join!(consuming, aggregating);
}
