//! The bare loop: a client that publishes bodies, in a process of its own and on one thread, as the node is.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use event::id::{Epoch, NodeId};
use event::names::Topic;
use event::wire;
use mqtt::rumqttc::{PublishOptions, QoS};
use serde::{Deserialize, Serialize};

use super::{COMPRESSION_LEVEL, Content, WINDOW};

/// The argument that makes this program a bare loop; the file of its [`Task`] follows.
pub(crate) const ARGUMENT: &str = "--bare-loop";

/// What a loop is told.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) address: String,
    pub(super) node: NodeId,
    /// The messages, in order.
    pub(super) messages: Vec<(Epoch, u64, u64)>,
    /// The file with what to publish.
    pub(super) source: Source,
}

/// Files of pieces, see [`pieces`].
#[derive(Serialize, Deserialize)]
pub(super) enum Source {
    /// A body for each message.
    Bodies(PathBuf),
    /// The records; the loop makes the bodies.
    Records(PathBuf),
}

/// Publishes everything, then waits to be ended.
pub(crate) fn run(task: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(publish(serde_json::from_slice(&fs::read(task)?)?))
}

async fn publish(task: Task) -> Result<()> {
    let pieces = match &task.source {
        Source::Bodies(file) | Source::Records(file) => pieces(&fs::read(file)?)?,
    };
    let broker = mqtt::Broker {
        address: task.address.parse()?,
        tls: mqtt::Tls::default(),
        credentials: None,
    };
    let session = mqtt::Session {
        client_id: task.node.to_string(),
        inflight: WINDOW,
        queue: usize::from(WINDOW),
        ..mqtt::Session::default()
    };
    let (client, mut events) = broker.connect(&session)?;
    let polling = tokio::spawn(async move { while events.poll().await.is_ok() {} });
    client.subscribe(Topic::Ack(task.node.clone()).to_string(), QoS::AtLeastOnce).await?;
    let topic = Topic::Backfill(task.node).to_string();
    for (index, (epoch, first, last)) in task.messages.into_iter().enumerate() {
        let body = match &task.source {
            Source::Bodies(_) => pieces[index].clone(),
            Source::Records(_) => make(&pieces, Content { epoch, first, last })?,
        };
        client.publish(topic.clone(), body, PublishOptions::at_least_once()).await?;
    }
    Ok(polling.await?)
}

/// The body that the node makes of these records.
fn make(records: &[Bytes], content: Content) -> Result<Bytes> {
    let seqs = content.first..=content.last;
    let chosen = &records[usize::try_from(content.first - 1)?..usize::try_from(content.last)?];
    let json = wire::encode(content.epoch, seqs.zip(chosen), &[]);
    Ok(wire::compress(&json, COMPRESSION_LEVEL)?.into())
}

/// Writes pieces, each after its length.
pub(super) fn write_pieces<'a>(file: &Path, pieces: impl Iterator<Item = &'a [u8]>) -> Result<()> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend(u32::try_from(piece.len())?.to_le_bytes());
        bytes.extend(piece);
    }
    fs::write(file, bytes).with_context(|| format!("write {}", file.display()))
}

fn pieces(mut bytes: &[u8]) -> Result<Vec<Bytes>> {
    let mut pieces = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let len = usize::try_from(u32::from_le_bytes(*len))?;
        let (piece, rest) = rest.split_at_checked(len).context("a file of pieces is cut off")?;
        pieces.push(Bytes::copy_from_slice(piece));
        bytes = rest;
    }
    Ok(pieces)
}
