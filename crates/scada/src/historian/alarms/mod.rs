//! Alarms after ISA-18.2: what messages, operators and time make of them.
//!
//! [`state`] decides, pure; this module keeps its states and its journal, always in one transaction. Rows of several alarms are
//! locked in the order of their keys, so that replicas do not meet crosswise.

mod act;
mod flood;
mod list;
mod rows;
pub mod state;
mod sweep;

pub use act::{Deed, NotDone, act};
pub(super) use flood::floods;
pub use flood::{Flood, Position};
pub use list::{AlarmView, Shown, list};
pub use rows::Key;
pub(super) use rows::{Told, follow};
pub(super) use sweep::sweep;
