//! `holdfast scada line`: nodes and historian in one process, on the inline bus.

use std::path::PathBuf;

use ::scada::line::Line;
use ::scada::{historian, producer};
use anyhow::ensure;

use crate::config::environment;

/// `holdfast scada line`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The configuration; its producer and historian sections are read. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Option<PathBuf>,
}

/// Runs until told to stop.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let file = args.config.as_deref();
    let nodes = producer::Config::load(file, environment)?;
    let store = historian::Config::load(file, environment)?;
    let inline = matches!(nodes.bus, producer::config::Bus::Inline)
        && matches!(store.bus, historian::config::Bus::Inline);
    ensure!(
        inline,
        "one process needs no broker: set producer.bus and historian.bus to \"inline\", or run each by itself"
    );
    let mut stop = std::pin::pin!(crate::shutdown::requested()?);
    let line = tokio::select! {
        line = Line::start(nodes, store) => line?,
        () = &mut stop => return Ok(()),
    };
    stop.await;
    line.stop().await;
    Ok(())
}
