//! Envelopes, ids, validation, names and the ledger's arithmetic. Pure: no I/O, no async, no SQL.
