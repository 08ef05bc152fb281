//! Whether everything that was made is somewhere nameable: the ledger for people, with `verify` and `where`.

mod account;
mod ledgers;
mod list;
mod look;

pub(crate) use ledgers::Ledgers;
pub(crate) use list::{__path_gaps, __path_list, GapList, gaps, list};
pub(crate) use look::{__path_verify, __path_where_is, VerifyResult, verify, where_is};
