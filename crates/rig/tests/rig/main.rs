//! Private servers, links and processes: they start, are cut, and end with their owner.

mod kafka;
mod link;
mod mosquitto;
mod postgres;
mod process;
mod rabbitmq;
