//! The node against played and real edges: what it takes, keeps, sends and forgets.

mod acks;
mod commands;
mod delivery;
mod http;
mod memory;
mod metrics;
mod replay;
mod replay_rules;
mod request;
mod resend;
mod retention;
mod sampler;
mod site;
mod tls;
mod world;
