//! `holdfast schedule alive`: whether the worker goes on.

use ::schedule::worker::alive;

use super::ConfigArg;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let worker = args.config.load()?.worker;
    let Some(file) = &worker.heartbeat else {
        anyhow::bail!(
            "schedule.worker.heartbeat_file is not set: the worker leaves no sign of life"
        );
    };
    Ok(alive(file, worker.poll)?)
}
