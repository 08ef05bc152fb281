//! What the roles' HTTP APIs share: where they listen, in plain or by TLS ([`serve`]), who may ask
//! ([`tokens`], and [`open`] for what needs none), how they are refused ([`Refused`]), how
//! much they may ask for ([`rate`]), the page of an OpenAPI document ([`page`]) and what
//! it must say ([`document`]), which trace a request belongs to ([`trace`]), whom their own
//! clients trust ([`client`]), and the signature of what is posted to others ([`signature`]).
//!
//! Each role has its own tokens, in the table `api_tokens` of its own database; its migrations make
//! that table. This crate must not know any role's routes or tables beyond it.

pub mod client;
pub mod document;
pub mod open;
pub mod page;
pub mod rate;
pub mod refused;
pub mod serve;
pub mod signature;
pub mod tokens;
pub mod trace;

pub use refused::Refused;
