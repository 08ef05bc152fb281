//! The product as its users meet it: its commands, its roles as real processes, and all of them together.
//!
//! One program, so that it is linked once and its tests wait beside each other: most of them wait for servers most of the time.

mod backup;
mod backup_kill;
mod cloud;
mod commands;
mod conservation;
mod console;
mod dead_letters;
mod doctor_console;
mod doctor_tls;
mod images;
mod media;
mod metrics_page;
mod operator;
mod outbox;
mod relay;
mod restore;
mod restore_weighing;
mod retain;
mod retain_kills;
#[cfg(feature = "kafka")]
mod scada_conservation;
mod scada_historian;
mod scada_inputs;
mod scada_producer;
#[cfg(feature = "kafka")]
mod scada_topics;
mod scada_verify;
mod schedule;
mod tutorial;
mod up;
mod verify;
mod zombie;
