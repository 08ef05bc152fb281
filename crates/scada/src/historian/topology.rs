//! What the historian listens to, on each bus.

use bus::rabbitmq::{Topology, WorkQueue};
use bus::{Binding, Retry};
use event::names::kafka::Topic;

/// The consumer group, unless told otherwise.
pub const GROUP: &str = "scada-historian";
/// The work queue on RabbitMQ.
pub(super) const QUEUE: &str = "scada.l2.historian.queue";

/// Everything that nodes publish: each topic, whatever the routing key.
pub fn bindings() -> Vec<Binding> {
    let topics = Topic::ALL.into_iter().filter(|topic| *topic != Topic::Dlq);
    topics.map(|topic| Binding::new(topic.name(), "#")).collect()
}

/// What RabbitMQ must have: an exchange a topic, one queue, and the dead letters under their documented name.
pub fn topology() -> Topology {
    Topology {
        exchanges: Vec::new(),
        queues: vec![WorkQueue {
            name: QUEUE.to_owned(),
            dead_letter_queue: Topic::Dlq.name().to_owned(),
            bindings: bindings(),
            retry: Retry::broker(),
        }],
    }
}
