//! What the roles' HTTP APIs share: who may ask ([`tokens`], and [`open`] for what
//! needs none), how they are refused ([`Refused`]), how
//! much they may ask for ([`rate`]), and the page of an OpenAPI document ([`page`]).
//!
//! Each role has its own tokens, in the table `api_tokens` of its own database; its migrations make
//! that table. This crate must not know any role's routes or tables beyond it.

pub mod open;
pub mod page;
pub mod rate;
pub mod refused;
pub mod tokens;

pub use refused::Refused;
