//! `holdfast schedule run` and `serve`: the two roles.

use ::schedule::deliver::Delivery;
use ::schedule::intake::serve as serve_intake;
use ::schedule::metrics::{Metrics, serve as serve_metrics};
use ::schedule::worker::Worker;
use anyhow::Context;
use api::serve::Listener;
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
    let start = || {
        let delivery = deliver.map(|settings| Delivery::start(&config.database, settings));
        let worker = Worker::start(&config.database, &config.worker, reader)?;
        anyhow::Ok((worker, delivery.transpose()?))
    };
    let (worker, delivery, served) = match config.metrics {
        None => {
            let (worker, delivery) = start()?;
            (worker, delivery, None)
        }
        Some(address) => {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("cannot listen on schedule.metrics.listen = {address}"))?;
            let metrics = Metrics::new(&config.database)?;
            let (worker, delivery) = metrics.counting(start)?;
            (worker, delivery, Some(tokio::spawn(serve_metrics(listener, metrics))))
        }
    };
    tracing::info!(name = config.worker.name, delivers = delivery.is_some(), "worker started");
    stop.await;
    if let Some(served) = served {
        served.abort();
    }
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
    let metrics = Metrics::new(&config.database)?;
    let listener = metrics
        .counting(|| Listener::bind(config.listen, config.tls.as_ref()))
        .map_err(|error| anyhow::anyhow!("schedule.{error}"))?;
    tracing::info!(address = %listener.address(), "intake is served");
    serve_intake(listener, intake, metrics, stop).await;
    Ok(())
}
