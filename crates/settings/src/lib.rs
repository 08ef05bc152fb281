//! Configuration of a role: one TOML file with a section a role, every key overridable by environment.
//!
//! A role lists its keys once ([`Key`]): path, kind, default, documentation. [`Section::load`] reads the
//! file's section and the environment, checks every value against its kind and reports **all** problems at
//! once, each with the key, the value, the reason and what would be right. After that the role picks typed
//! values: `section.get("mqtt.keepalive")?.duration()?`.
//!
//! Promises:
//! - A key in the file that the role does not know is an error that names the nearest known key.
//! - The environment wins over the file, the file over the default; [`Section::render`] says which it was.
//! - A secret never shows: not in the table, not in an error, not in `Debug`.
//! - No global state: the environment comes in as a function, so tests pass their own.
//!
//! It must not know any role. It fails with [`Error`], which is always the operator's to fix.

mod error;
pub mod kafka;
mod key;
mod kind;
mod live;
mod nearest;
mod render;
mod secret;
mod section;
mod source;

pub use error::{Error, Problem};
pub use key::{Key, joined, reference};
pub use kind::{Kind, check, parse_duration, parse_size};
pub use live::LiveSecret;
pub use secret::Secret;
pub use section::{Origin, Section, Value};
