//! How much waits for a consumer group, as whoever watches the bus wants to know it.

/// One group's queue at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depth {
    /// The queue, or the group.
    pub name: String,
    /// Messages that no consumer has settled. RabbitMQ counts those that no consumer has in hand, Kafka those beyond the
    /// group's offset, the inline bus every one that it was handed.
    pub waiting: u64,
    /// Consumers that are there; `None` where the bus does not say.
    pub consumers: Option<u64>,
}
