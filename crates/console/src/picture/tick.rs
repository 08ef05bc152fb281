//! What is known at one moment, by site and tenant: small enough to be kept for ten minutes, enough to show it to anybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use super::flow::drain;
use super::nodes::Tally;
use super::{Breaker, Upstream};
use crate::upstream::cloud::{CloudFacts, ConsumerFacts, QueueFact};
use crate::upstream::historian::{AlarmsByState, Flood};

/// One moment.
#[derive(Debug, Default)]
pub(crate) struct Tick {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) sites: Vec<SiteTick>,
    /// None: not configured.
    pub(crate) cloud: Option<CloudTick>,
    pub(crate) plant: Option<PlantTick>,
    /// SCADA nodes.
    pub(crate) producers: Vec<ProducerTick>,
    /// None: not configured.
    pub(crate) schedule: Option<ScheduleTick>,
    /// The cables of `up` by name, and a word for the state of each.
    pub(crate) cables: Option<Arc<BTreeMap<String, String>>>,
    /// Since when each link is in its state, as somebody sees it who sees everything.
    pub(crate) since: BTreeMap<String, Timestamp>,
}

/// A site.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiteTick {
    pub(crate) name: String,
    pub(crate) here: bool,
    /// Whether it forwards to a cloud.
    pub(crate) forwards: bool,
    pub(crate) tenants: BTreeMap<Uuid, SiteTenant>,
    /// What its database or disk is above its limit.
    pub(crate) disk_over_bytes: Option<f64>,
    /// By how much its clock is ahead of ours.
    pub(crate) clock_off_s: Option<f64>,
}

/// A tenant's part of a site.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiteTenant {
    pub(crate) nodes: Tally,
    /// What nodes made, a second; and what the site stored.
    pub(crate) produced_per_s: Option<f64>,
    pub(crate) stored_per_s: Option<f64>,
    pub(crate) outbox: Option<Outbox>,
}

/// What waits at a site for the cloud.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outbox {
    pub(crate) waiting: u64,
    pub(crate) dead: u64,
    pub(crate) stuck: u64,
    pub(crate) oldest_age_s: Option<f64>,
    pub(crate) in_per_s: f64,
    pub(crate) out_per_s: f64,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) paused_until: Option<Timestamp>,
    pub(crate) last_failure: Option<String>,
    /// How long nothing has left although something waits.
    pub(crate) still_s: f64,
}

/// The cloud.
#[derive(Debug, Clone, Default)]
pub(crate) struct CloudTick {
    pub(crate) here: bool,
    pub(crate) bus: String,
    pub(crate) bus_dead_letters: bool,
    pub(crate) tenants: BTreeMap<Uuid, CloudTenant>,
    /// What waits behind the bus.
    pub(crate) consumers: Consumers,
    /// The relay's.
    pub(crate) breaker: Option<Breaker>,
}

/// What waits on the bus for the consumers, over all tenants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumers {
    pub(crate) queues: Vec<ConsumerQueue>,
    /// Why it is not known.
    pub(crate) unknown: Option<String>,
    /// By how much it grows a second; less than nothing when it shrinks.
    pub(crate) growth_per_s: Option<f64>,
}

/// One consumer queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConsumerQueue {
    pub(crate) name: String,
    pub(crate) waiting: Option<u64>,
    pub(crate) consumers: Option<u64>,
    /// How long something has waited without becoming less; none when nothing waits.
    pub(crate) still_s: Option<f64>,
}

impl Consumers {
    fn of(facts: Option<&ConsumerFacts>, growth_per_s: Option<f64>, at: Timestamp) -> Consumers {
        let Some(facts) = facts else {
            let unknown = Some("the cloud is of a version that does not tell".to_owned());
            return Consumers { unknown, ..Consumers::default() };
        };
        let queue = |fact: &QueueFact| ConsumerQueue {
            name: fact.name.clone(),
            waiting: fact.waiting,
            consumers: fact.consumers,
            still_s: fact.still_since.map(|since| age(at, since)),
        };
        Consumers {
            queues: facts.queues.iter().map(queue).collect(),
            unknown: facts.unknown.clone(),
            growth_per_s,
        }
    }
}

/// A tenant's part of the cloud.
#[derive(Debug, Clone, Default)]
pub(crate) struct CloudTenant {
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) in_per_s: Option<f64>,
    pub(crate) out_per_s: Option<f64>,
    pub(crate) waiting: u64,
    pub(crate) oldest_age_s: Option<f64>,
    pub(crate) relay_dead: u64,
    pub(crate) bus_dead: u64,
    pub(crate) media_failed: u64,
    pub(crate) still_s: f64,
}

/// The plant.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlantTick {
    pub(crate) here: bool,
    pub(crate) stored_per_s: f64,
    pub(crate) newest_age_s: Option<f64>,
    pub(crate) dead_letters: u64,
    pub(crate) problems: Vec<String>,
    pub(crate) alarms: AlarmsByState,
    pub(crate) floods: Vec<Flood>,
}

/// People's schedules.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScheduleTick {
    pub(crate) here: bool,
    /// How long the oldest complete capture has been due, and the oldest message.
    pub(crate) captures_oldest_s: f64,
    pub(crate) messages_oldest_s: f64,
}

/// A SCADA node.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProducerTick {
    pub(crate) name: String,
    pub(crate) here: bool,
    pub(crate) outbox: ProducerOutbox,
    pub(crate) published_per_s: Option<f64>,
    /// By how much its outbox grows a second; less than nothing when it shrinks.
    pub(crate) growth_per_s: Option<f64>,
}

/// How its outbox stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProducerOutbox {
    pub(crate) pending: u64,
    pub(crate) oldest_s: f64,
    pub(crate) failed: u64,
    pub(crate) in_progress: u64,
    pub(crate) batch_size: u64,
    /// Of its way to the bus.
    pub(crate) breaker: Option<Breaker>,
}

impl ProducerTick {
    /// What waits for the bus.
    pub(crate) fn held(&self) -> Option<u64> {
        self.here.then_some(self.outbox.pending + self.outbox.in_progress)
    }

    /// How long what waits lasts; none when nothing waits, or when it does not shrink.
    pub(crate) fn drain_s(&self) -> Option<f64> {
        drain(self.held()?, self.growth_per_s?, 0.0)
    }
}

impl CloudTick {
    /// A cloud of which nothing is known.
    pub(super) fn unknown() -> CloudTick {
        CloudTick::default()
    }

    /// What the cloud said, with the rates that were taken of it.
    pub(super) fn of(
        facts: &CloudFacts,
        rates: &BTreeMap<Uuid, CloudRates>,
        growth_per_s: Option<f64>,
        at: Timestamp,
    ) -> CloudTick {
        let tenant = |one: &crate::upstream::cloud::TenantFacts| {
            let rates = rates.get(&one.tenant_id).copied().unwrap_or_default();
            let tenant = CloudTenant {
                received: one.received,
                lost: one.lost,
                in_per_s: rates.in_per_s,
                out_per_s: rates.out_per_s,
                waiting: one.relay.waiting,
                oldest_age_s: one.relay.oldest_at.map(|oldest| age(at, oldest)),
                relay_dead: one.relay.dead,
                bus_dead: one.bus_dead,
                media_failed: one.media_failed,
                still_s: rates.still_s,
            };
            (one.tenant_id, tenant)
        };
        CloudTick {
            here: true,
            bus: facts.bus.clone(),
            bus_dead_letters: facts.bus_dead_letters,
            tenants: facts.tenants.iter().map(tenant).collect(),
            consumers: Consumers::of(facts.consumers.as_ref(), growth_per_s, at),
            breaker: facts.consumers.as_ref().and_then(|consumers| consumers.breaker),
        }
    }
}

/// What was reckoned from two looks at the cloud.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CloudRates {
    pub(super) in_per_s: Option<f64>,
    pub(super) out_per_s: Option<f64>,
    pub(super) still_s: f64,
}

/// Seconds from a time to now; none when it is ahead of us.
pub(crate) fn age(now: Timestamp, then: Timestamp) -> f64 {
    now.duration_since(then).as_secs_f64().max(0.0)
}
