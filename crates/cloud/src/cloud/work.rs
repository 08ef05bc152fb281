//! What works on the consumer groups, and the topology that follows from them.

use std::sync::Arc;

use bus::rabbitmq::{Topology, WorkQueue};
use bus::{Consumer, Retry};
use event::Invalid;
use event::farm::EventType;
use event::names::amqp::{self, Name};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::config::Role;
use crate::consume::{self, Group};
use crate::relay::Routes;

type Run = Arc<
    dyn Fn(Box<dyn Consumer>, pg::Pool, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync,
>;

/// A consumer group, and what stores its messages.
#[derive(Clone)]
pub struct Work {
    /// The group.
    pub group: Group,
    run: Run,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Work {
    /// `run` works on the group's messages until it is told to stop or the consumer is closed.
    pub fn new<F, R>(group: Group, run: F) -> Work
    where
        F: Fn(Box<dyn Consumer>, pg::Pool, CancellationToken) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let run: Run = Arc::new(move |consumer, pool, stop| Box::pin(run(consumer, pool, stop)));
        Work { group, run }
    }

    /// The cloud's own.
    pub fn all(options: &consume::Options) -> Vec<Work> {
        let work = |group: Group| {
            let options = options.clone();
            Work::new(group.clone(), move |consumer, pool, stop| {
                consume::run(group.clone(), consumer, pool, stop, options.clone())
            })
        };
        consume::groups().into_iter().map(work).collect()
    }

    /// The role that runs it.
    pub(super) fn role(&self) -> Option<Role> {
        Role::of_service(self.group.service)
    }

    pub(super) fn run(
        &self,
        consumer: Box<dyn Consumer>,
        pool: pg::Pool,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        (self.run)(consumer, pool, stop)
    }
}

/// What RabbitMQ must have for these groups: the documented exchanges, and each group's queues.
pub fn topology(groups: &[Group]) -> Result<Topology, Invalid> {
    let queue = |group: &Group| {
        let service: Name = group.service.parse()?;
        Ok(WorkQueue {
            name: group.queue.clone(),
            dead_letter_queue: amqp::dead_letter_queue(&service),
            bindings: group.bindings.clone(),
            retry: Retry::broker(),
        })
    };
    Ok(Topology {
        exchanges: EventType::CORE.iter().map(amqp::exchange).collect(),
        queues: groups.iter().map(queue).collect::<Result<_, Invalid>>()?,
    })
}

/// What the relay must know of a topology.
pub(super) fn routes(topology: &Topology) -> Routes {
    let bindings: Vec<_> =
        topology.queues.iter().flat_map(|queue| queue.bindings.iter().cloned()).collect();
    let bound = bindings.iter().map(|binding| binding.exchange.clone());
    Routes { exchanges: topology.exchanges.iter().cloned().chain(bound).collect(), bindings }
}
