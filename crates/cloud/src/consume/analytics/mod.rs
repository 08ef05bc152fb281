//! `cloud-analytics-service`: what a farmer looks at, per farm, barn and day of UTC.
//!
//! Promises: it has tables of its own and depends on no other service's. A reading is added to its
//! minute once, however often it is delivered; days are computed from minutes whenever one of them
//! has changed, so they are right after any backfill; where a site sends aggregates in place of readings, from
//! those. Sessions, inference results, images and batches are one row each and are summed up when they are asked
//! for: there are few of them.

mod days;
mod from_edge;
mod hours;
mod images;
mod minutes;
pub mod ranges;

use bus::Consumer;
use event::farm::EventType;
use tokio_util::sync::CancellationToken;

use super::event::Event;
use super::hold::{self, Store};
use super::{ANALYTICS_SERVICE, Options, inference, session, sync};

/// The events that KPIs are made of.
pub(super) const WANTED: [EventType; 9] = [
    EventType::TELEMETRY_INGESTED,
    EventType::TELEMETRY_AGGREGATED,
    EventType::SESSION_CREATED,
    EventType::SESSION_FINALIZED,
    EventType::SESSION_CANCELLED,
    EventType::INFERENCE_COMPLETED,
    EventType::MEDIA_STORED,
    EventType::SYNC_BATCH_SENT,
    EventType::SYNC_BATCH_ACKED,
];

struct Analytics {
    pool: pg::Pool,
}

impl Store for Analytics {
    const SERVICE: &'static str = ANALYTICS_SERVICE;

    async fn store(&self, events: &[Event]) -> Result<(), pg::Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        minutes::add(&transaction, events).await?;
        from_edge::upsert(&transaction, events).await?;
        hours::upsert(&transaction, events).await?;
        session::upsert(&transaction, "kpi_session", events).await?;
        session::cancel(&transaction, "kpi_session", events).await?;
        inference::upsert(&transaction, "kpi_inference", events).await?;
        images::upsert(&transaction, events).await?;
        sync::upsert(&transaction, "kpi_sync_batch", events).await?;
        transaction.commit().await?;
        Ok(())
    }
}

/// Works off the queue and keeps the days right, until told to stop.
pub(super) async fn run(
    consumer: Box<dyn Consumer>,
    pool: pg::Pool,
    stop: CancellationToken,
    options: Options,
) {
    let store = Analytics { pool: pool.clone() };
    let computing = days::run(pool, stop.clone(), options);
    let consuming = async {
        hold::work_off(consumer, &store, &stop).await;
        stop.cancel();
    };
    tokio::join!(consuming, computing);
}
