//! The picture: how data moves, at one moment, for everyone who looks.
//!
//! `poll` asks the upstreams, each by itself; once a second `board` puts what they said last together into a [`Tick`]; `flow` and `nodes` show a
//! tick to somebody, as far as they may see; `serve` answers. All but `poll` and `serve` is pure.

mod board;
mod flow;
mod meter;
mod nodes;
mod plant;
mod poll;
mod serve;
mod shapes;
#[cfg(test)]
mod tests;
mod tick;
mod trunk;

pub(crate) use board::{Board, Snapshot};
pub(crate) use flow::{cloud_part, drain, draw, site_part};
pub(crate) use meter::number;
pub(crate) use nodes::NodeEntry;
pub(crate) use poll::start;
pub(crate) use serve::{
    __path_cut, __path_history, __path_node, __path_nodes, __path_restore, __path_stream,
    __path_whole, cut, history, node, nodes, restore, stream, whole,
};
pub(crate) use shapes::*;
#[cfg(test)]
pub(crate) use tick::{
    CloudTenant, ConsumerQueue, Consumers, Outbox, PlantTick, ProducerOutbox, ScheduleTick,
    SiteTenant,
};
pub(crate) use tick::{CloudTick, ProducerTick, SiteTick, Tick};
pub(crate) use trunk::trouble;

/// The most browsers that follow at once.
pub(crate) const MAX_STREAMS: usize = 256;
