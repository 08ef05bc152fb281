//! Simulated field devices, for `up` and for trying things out. Barns speak to a node only through its sampler socket, and scales to an edge
//! only over HTTP, as real ones would; people send captures of their schedules.

pub(crate) mod farm;
pub(crate) mod feed;
mod model;
pub(crate) mod people;
mod picture;
pub(crate) mod scale;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use feed::Feed;

/// `holdfast sim …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Barns: temperature, humidity, ammonia and weight with a daily rhythm, and ammonia alarms.
    #[command(after_help = "Examples:
  holdfast sim farm --socket /run/holdfast/sampler.sock
  holdfast sim farm --socket a.sock --socket b.sock --every 100ms --rounds 50")]
    Farm(FarmArgs),
    /// A model command for an edge: what the simulated scale's pictures weigh.
    #[command(after_help = "Examples:
  inference.command = [\"holdfast\", \"sim\", \"model\"]      in edge.toml

It reads one line of JSON from standard input, {\"image\": PATH, …}, and answers with one.")]
    Model,
}

/// `holdfast sim farm`
#[derive(Debug, clap::Args)]
pub(crate) struct FarmArgs {
    /// A node's sampler socket; once for each barn.
    #[arg(long, required = true)]
    socket: Vec<PathBuf>,
    /// Time between two rounds of readings.
    #[arg(long, default_value = "1s", value_parser = settings::parse_duration)]
    every: Duration,
    /// Stop after so many rounds (each has four readings); for ever when absent.
    #[arg(long)]
    rounds: Option<u64>,
    /// The same seed draws the same lines.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs a `sim` command.
pub(crate) async fn run(command: Command) -> anyhow::Result<()> {
    let args = match command {
        Command::Farm(args) => args,
        Command::Model => return model::run(),
    };
    let mut barns = tokio::task::JoinSet::new();
    for (index, socket) in args.socket.iter().enumerate() {
        let feed = Feed::new(socket, args.every, args.seed.wrapping_add(index as u64));
        barns.spawn(feed.run(args.rounds));
    }
    let stop = crate::shutdown::requested()?;
    let all = async {
        while let Some(done) = barns.join_next().await {
            let tally = done??;
            tracing::info!(
                accepted = tally.accepted,
                refused = tally.refused,
                skipped = tally.skipped,
                "barn done"
            );
        }
        anyhow::Ok(())
    };
    tokio::select! {
        done = all => done,
        () = stop => Ok(()),
    }
}
