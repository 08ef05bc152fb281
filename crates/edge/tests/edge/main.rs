//! The edge against real servers: a database per test, a broker per test.

#![expect(clippy::unwrap_used, reason = "a test whose ground cannot be laid has failed")]

mod broker;
mod cloned;
mod console;
mod device;
mod http;
mod inference;
mod inference_worker;
mod ingest;
mod ledger;
mod media;
mod media_abuse;
mod media_crash;
mod media_sweep;
mod media_world;
mod outage;
mod quarantine;
mod registry;
mod replicas;
mod retention;
mod retention_archive;
mod retention_forced;
mod retention_ground;
mod row_bytes;
mod schema;
mod sessions;
mod sessions_races;
mod site;
mod sync;
mod sync_admin;
mod sync_answers;
mod sync_cloud;
mod sync_drain;
mod sync_end_to_end;
mod sync_faults;
mod sync_order;
mod sync_real;
mod telemetry;
mod telemetry_access;
mod telemetry_ask;
mod telemetry_race;
mod telemetry_sync;
mod upgrade;
mod weighing;
