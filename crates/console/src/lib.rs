//! The operator's console: the page, and an API for it.
//!
//! Purpose: one picture of sites, cloud, historian and schedules, asked for once however many people look, with what an operator does about it.
//! docs/spec/console.md is the contract.
//!
//! Promises: nobody sees a tenant that their token does not name; whoever may only look cannot act; an upstream that is away is shown as
//! away and breaks nothing else; polls do not grow with browsers; everything held in memory is bounded.
//!
//! It must not know the tables or the code of edge, cloud, historian or schedules: it speaks HTTP with them. The one table it reads is `api_tokens`, through
//! [`api::tokens`].
//!
//! It fails at start with [`Error`]; later with refusals to whoever asked, in the form of [`api::Refused`].

mod access;
mod alerts;
mod answers;
pub mod config;
mod conservation;
mod console;
mod explore;
mod farm;
mod files;
mod http;
mod jobs;
mod metrics;
mod picture;
mod plant;
pub mod probe;
mod queues;
mod rota;
pub mod trail;
mod upstream;
pub mod verify;

pub use alerts::{StateError, Webhook};
pub use config::Config;
pub use console::{Console, Error, run};
pub use http::{Asks, asks, openapi};
