//! `spool export` and `spool import`.

use crate::screen::{self, Progress, count};
use crate::{config, files, show};
use anyhow::{Context, Result};
use clap::Args;
use event::id::NodeId;
use node::forward::Poster;
use node::{Http, carry};
use settings::Secret;
use spool::Spool;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Pauses between attempts to post one batch: about five minutes in all.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(180),
];

#[derive(Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    place: show::Place,
    /// The file to write. It must not be there yet. A name ending in .zst is compressed.
    #[arg(long)]
    out: PathBuf,
    /// Compress, whatever the name.
    #[arg(long)]
    zstd: bool,
    /// The first seq. Default: the first that the edge has not acknowledged.
    #[arg(long)]
    from: Option<u64>,
    /// The last seq. Default: the head.
    #[arg(long)]
    to: Option<u64>,
    /// Whose spool it is. Default: the configured node.
    #[arg(long)]
    node_id: Option<NodeId>,
}

pub(crate) fn export(args: &ExportArgs) -> Result<ExitCode> {
    let node_id = match &args.node_id {
        Some(node_id) => node_id.clone(),
        None => {
            config::load(args.place.config.as_deref())
                .context("no --node-id was given, so the configuration must name the node")?
                .0
                .identity
                .node_id
        }
    };
    let spool = Spool::open_read_only(&args.place.folder()?)?;
    let zstd = args.zstd || args.out.extension().is_some_and(|ext| ext == "zst");
    let mut progress = Progress::new();
    let mut exported = None;
    files::write_new(&args.out, zstd, |out| {
        let show = |seq| progress.show(&format!("exported up to {}", count(seq)));
        exported = Some(carry::export(&spool, node_id, args.from, args.to, out, show)?);
        Ok(())
    })?;
    progress.end();
    if let Some(done) = exported {
        screen::say(&format!(
            "exported {} records and {} gaps, seq {} to {}, to {}\n",
            count(done.records),
            count(done.gaps),
            count(done.from_seq),
            count(done.to_seq),
            args.out.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub(crate) struct ImportArgs {
    /// The exported file.
    file: PathBuf,
    /// The edge's address: http://host:port or https://host:port.
    #[arg(long)]
    edge: String,
    /// A file that holds the node's secret.
    #[arg(long)]
    secret_file: PathBuf,
    /// PEM file of the authorities an https:// edge is checked against.
    #[arg(long)]
    ca_file: Option<PathBuf>,
}

pub(crate) fn import(args: &ImportArgs) -> Result<ExitCode> {
    let secret = std::fs::read_to_string(&args.secret_file)
        .with_context(|| format!("cannot read {}", args.secret_file.display()))?;
    let http = Http {
        address: args.edge.trim_end_matches('/').to_owned(),
        threshold: 0,
        secret: Secret::new(secret.trim_end()),
        ca_file: args.ca_file.clone(),
        client: None,
        batch_records: 0,
        batch_bytes: 0,
    };
    let mut input = files::open(&args.file)?;
    let mut progress = Progress::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let imported = runtime.block_on(carry::import(
        input.as_mut(),
        |header| Poster::new(&http, &header.node_id),
        &PAUSES,
        |at| progress.show(&format!("imported up to {} of {}", count(at.seq), count(at.to_seq))),
    ));
    progress.end();
    let done = imported?;
    let acked = done.ack.map_or(0, |ack| ack.acked_seq);
    screen::say(&format!(
        "the edge has taken {} records and {} gaps of {} (seq {} to {}); it has everything up to {}\n",
        count(done.records),
        count(done.gaps),
        done.header.node_id,
        count(done.header.from_seq),
        count(done.header.to_seq),
        count(acked)
    ))?;
    Ok(ExitCode::SUCCESS)
}
