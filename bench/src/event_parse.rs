//! Reading messages as the edge does (decompress, batch, every envelope and its reading, all rules checked), against decompressing
//! the same bodies and parsing them into a plain `serde_json::Value`. One thread.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context as _, Result};
use event::farm::Envelope;
use event::id::TenantId;
use event::wire::{self, Batch, Limits};

use crate::measure::{interleaved, per_second};
use crate::place::Place;
use crate::readings::{Message, messages};
use crate::row::Row;

const ROUNDS: usize = 9;
const NODES: usize = 10;
const MESSAGES: usize = 200;
const RECORDS: usize = 500;

pub(crate) fn run(_: &Place) -> Result<Vec<Row>> {
    let tenant = TenantId::mint();
    let messages = messages(tenant, NODES, MESSAGES, RECORDS)?;
    let (ours, theirs) = interleaved(
        ROUNDS,
        || timed(|| messages.iter().try_for_each(|message| check(message, tenant))),
        || timed(|| messages.iter().try_for_each(parse)),
    )?;
    Ok(vec![Row::more("event_parse/decode_check_beside_value", "events/s", ours, theirs)])
}

/// Events a second.
fn timed(read_all: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    read_all()?;
    Ok(per_second(MESSAGES * RECORDS, start))
}

fn check(message: &Message, tenant: TenantId) -> Result<()> {
    let json = wire::decode(&message.body, &Limits::MQTT)?;
    let batch = Batch::parse(&json, &Limits::MQTT)?;
    for record in &batch.records {
        let envelope = Envelope::parse_from_node(record.event.get(), tenant)?;
        black_box(envelope.telemetry()?.context("not telemetry")?);
        black_box(envelope);
    }
    Ok(())
}

fn parse(message: &Message) -> Result<()> {
    let json = wire::decode(&message.body, &Limits::MQTT)?;
    black_box(serde_json::from_slice::<serde_json::Value>(&json)?);
    Ok(())
}
