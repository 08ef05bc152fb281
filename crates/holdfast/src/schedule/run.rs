//! `holdfast schedule run` and `serve`: the two roles.

use ::schedule::deliver::Delivery;
use ::schedule::intake::serve as serve_intake;
use ::schedule::worker::Worker;
use anyhow::Context;
use tokio::net::TcpListener;

use super::ConfigArg;
use super::submit::intake;

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Only process sessions; leave the messages to somebody else.
    #[arg(long)]
    no_delivery: bool,
    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArg,
}

pub(super) async fn run(args: RunArgs) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let stop = crate::shutdown::requested()?;
    ::schedule::migration::migrate(&config.database).await?;
    let reader = config.extraction.reader().await?;
    let deliver = config.deliver.as_ref().filter(|_| !args.no_delivery);
    let delivery =
        deliver.map(|settings| Delivery::start(&config.database, settings)).transpose()?;
    let worker = Worker::start(&config.database, &config.worker, reader)?;
    tracing::info!(name = config.worker.name, delivers = delivery.is_some(), "worker started");
    stop.await;
    // Sessions first: what they still say can then still be delivered.
    let sessions = worker.counts();
    worker.stop().await;
    if let Some(delivery) = delivery {
        let messages = delivery.counts();
        delivery.stop().await;
        tracing::info!(sent = messages.done, failed = messages.buried, "delivery stopped");
    }
    tracing::info!(done = sessions.done, failed = sessions.buried, "worker stopped");
    Ok(())
}

pub(super) async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let config = args.config.load()?;
    let stop = crate::shutdown::requested()?;
    ::schedule::migration::migrate(&config.database).await?;
    let intake = intake(&config)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on schedule.http.listen = {}", config.listen))?;
    tracing::info!(address = %config.listen, "intake is served");
    Ok(serve_intake(listener, intake, stop).await?)
}
