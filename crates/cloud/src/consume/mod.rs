//! The consumers: what each service stores of the events that come over the bus.
//!
//! | service | queue | keeps |
//! |---|---|---|
//! | `cloud-telemetry-service` | `ingest` | readings, aggregates, sessions, inference results, sync batches, other events |
//! | `cloud-analytics-service` | `kpi` | KPIs per farm, barn and day, in tables of its own |
//! | `cloud-media-store` | `store` | media metadata, and copies of the objects when both stores are configured |
//!
//! Promises: a batch is stored in one transaction and acknowledged after its commit; the same event
//! twice, or in another order, leaves every table as it was; one event that cannot be stored goes to
//! the dead letters and its neighbours do not; while the database is away the batch is held and no
//! attempt is counted. Any number of replicas may run. docs/spec/cloud-stores.md has the tables.
//!
//! It must not know which bus brings the events. Events that it makes go into the relay outbox, in
//! the transaction that they tell of; it publishes nothing itself. It ends when it is told to, or
//! when its consumer is closed.

pub mod analytics;
mod event;
mod hold;
mod inference;
pub mod media;
mod options;
mod partitions;
mod session;
mod stored;
mod sync;
mod telemetry;

use ::event::farm::EventType;
use ::event::names::amqp::{self, Name};
use bus::Binding;
use tokio_util::sync::CancellationToken;

pub use options::Options;
pub use telemetry::debounce;

/// A consumer group: a service and the queue it works off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The service, which names its dead letters.
    pub service: &'static str,
    /// The work queue.
    pub queue: String,
    /// What it wants.
    pub bindings: Vec<Binding>,
}

/// Stores readings, sessions, inference results and sync batches, and aggregates readings.
pub const TELEMETRY_SERVICE: &str = "cloud-telemetry-service";
/// Keeps KPIs.
pub const ANALYTICS_SERVICE: &str = "cloud-analytics-service";
/// Keeps media metadata and objects.
pub const MEDIA_STORE: &str = "cloud-media-store";

/// The consumer groups of the cloud.
pub fn groups() -> Vec<Group> {
    // Whole domains, so that an event of a type that has no table is journalled and not refused by
    // the bus for want of a queue.
    let domains = ["telemetry", "weighvision", "inference", "sync", "media", "alarm"];
    let all = domains
        .iter()
        .map(|domain| Binding::new(format!("farmiq.{domain}.exchange"), format!("{domain}.#")));
    let one = |kind: &EventType| Binding::new(amqp::exchange(kind), amqp::routing_key(kind));
    [
        group(TELEMETRY_SERVICE, "ingest", all.collect()),
        group(ANALYTICS_SERVICE, "kpi", analytics::WANTED.iter().map(one).collect()),
        group(MEDIA_STORE, "store", vec![one(&EventType::MEDIA_STORED)]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A group, if its names keep their grammar; a test says that they do.
fn group(service: &'static str, purpose: &str, bindings: Vec<Binding>) -> Option<Group> {
    let (name, purpose) = (service.parse::<Name>().ok()?, purpose.parse::<Name>().ok()?);
    Some(Group { service, queue: amqp::queue(&name, &purpose), bindings })
}

/// Runs one replica of a group until it is told to stop, or until the consumer is closed.
///
/// A batch in hand when it stops is either committed or delivered again.
pub async fn run(
    group: Group,
    consumer: Box<dyn bus::Consumer>,
    pool: pg::Pool,
    stop: CancellationToken,
    options: Options,
) {
    // What the service does beside its queue ends with it.
    let stop = stop.child_token();
    let _ended = stop.clone().drop_guard();
    partitions::ensure(group.service, &pool, &stop).await;
    tracing::info!(service = group.service, queue = group.queue, "consumer started");
    match group.service {
        TELEMETRY_SERVICE => telemetry::run(consumer, pool, stop, options).await,
        ANALYTICS_SERVICE => analytics::run(consumer, pool, stop, options).await,
        MEDIA_STORE => media::run(consumer, pool, stop, options).await,
        other => tracing::error!(service = other, "there is no such consumer"),
    }
    tracing::info!(service = group.service, "consumer stopped");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_documented_queues_and_want_every_core_event() {
        let groups = groups();
        let queues: Vec<&str> = groups.iter().map(|group| group.queue.as_str()).collect();
        assert_eq!(
            queues,
            [
                "farmiq.cloud-telemetry-service.ingest.queue",
                "farmiq.cloud-analytics-service.kpi.queue",
                "farmiq.cloud-media-store.store.queue",
            ]
        );
        for kind in EventType::CORE {
            let message = bus::Message::json(amqp::exchange(&kind), kind.as_str(), "id", "");
            let wanting = |group: &Group| group.bindings.iter().any(|b| b.wants(&message));
            assert!(wanting(&groups[0]), "{kind}");
            assert_eq!(wanting(&groups[1]), analytics::WANTED.contains(&kind), "{kind}");
            assert_eq!(wanting(&groups[2]), kind == EventType::MEDIA_STORED, "{kind}");
        }
        let custom = bus::Message::json("farmiq.telemetry.exchange", "telemetry.custom", "id", "");
        assert!(groups[0].bindings.iter().any(|binding| binding.wants(&custom)));
    }
}
