//! `holdfast up`: the whole product on one machine, with no configuration.
//!
//! A private Postgres, a private Mosquitto and an object store under one folder, the cloud, the edge and a handful of nodes as real processes, a
//! link in front of each node and one from the site to the cloud that can be cut, simulated barns that feed the nodes' sockets, a simulated scale with a camera, a plant: simulated SCADA nodes with their historian, and a few people whose schedules change. Ctrl-C stops all of it; the next
//! `up` on the same folder goes on where it stopped.
//!
//! The site's layout on disk is in [`site`], the cloud in [`cloud`], the plant in [`scada`], schedules in [`schedule`], the page in [`console`], the processes and their restarts in [`children`], cutting links in [`links`], what
//! is shown in [`summary`]. A role that dies is started again and said so; a server that cannot be started ends `up` with the
//! reason.

mod children;
mod cloud;
mod console;
pub(crate) mod links;
mod objects;
mod scada;
mod schedule;
mod site;
mod summary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use children::Child;
use links::Links;
use rig::Link;
use site::Site;
use summary::Summary;

use crate::sim::feed::Feed;

/// `holdfast up`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast up                            five barns, a round of readings a second
  holdfast up --nodes 20 --every 100ms   more of everything
  holdfast up --bus rabbitmq             the cloud's and the plant's events through a private RabbitMQ
  holdfast up --bus kafka                the same through a private Apache Kafka
  holdfast link cut barn-1               in a second terminal: pull a plug")]
pub(crate) struct Args {
    /// How many simulated nodes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=200))]
    nodes: u16,
    /// Time between two rounds of readings of a node.
    #[arg(long, default_value = "1s", value_parser = settings::parse_duration)]
    every: Duration,
    /// What carries events to the cloud's stores and to the historian; the one of the last time, or inline.
    #[arg(long)]
    bus: Option<cloud::Bus>,
    /// Where everything is kept.
    #[arg(long, default_value = links::DEFAULT_DATA)]
    data: PathBuf,
    /// Stop by itself after this long.
    #[arg(long = "for", value_name = "TIME", value_parser = settings::parse_duration)]
    stop_after: Option<Duration>,
}

/// Runs until Ctrl-C.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let stop = crate::shutdown::requested()?;
    let site = Site::open(&args.data)?;
    say(&format!("data in {}", site.folder().display()));
    say("starting Postgres");
    let mut postgres = site.start_postgres().await?;
    let (cloud, mut bus) = site.prepare_cloud(&postgres, args.bus).await?;
    let plant = site.prepare_scada(&postgres, &bus).await?;
    let mut config = site.prepare_edge(&postgres).await?;
    let rota = site.prepare_schedule(&postgres).await?;
    say("starting the broker");
    let mut broker = site.start_broker(&mut config, &postgres).await?;
    let uplink = Link::start_on(site.uplink_port()?, cloud.listen).await?;
    let links =
        Arc::new(Links::open(&site, uplink, broker.addr(), config.listen, args.nodes).await?);
    say(&format!("enrolling {} nodes", args.nodes));
    site.enroll(&config, &links).await?;
    broker.reload();

    let objects = site.start_objects(&config).await?;

    let people = site.start_people(&rota).await?;
    let door = site.prepare_console(&postgres, &config, &cloud, &plant, &rota).await?;

    say("starting the cloud, the edge, the nodes, the plant, schedules and the console");
    let mut children = vec![Child::start(site.cloud_role()?).await?];
    children.push(Child::start(site.edge_role()?).await?);
    for node in links.nodes() {
        children.push(Child::start(site.node_role(node)?).await?);
    }
    for role in site.scada_roles(&plant)? {
        children.push(Child::start(role).await?);
    }
    for role in site.schedule_roles()? {
        children.push(Child::start(role).await?);
    }
    children.push(Child::start(site.console_role()?).await?);
    let mut barns = tokio::task::JoinSet::new();
    for (seed, node) in (1..).zip(links.nodes()) {
        barns.spawn(Feed::new(&site.sampler_socket(node), args.every, seed).run(None));
    }

    let scale = tokio::spawn(site.scale(&config)?.run(None));

    let control = links::serve(&site.control_socket(), Arc::clone(&links))?;
    let summary = Summary::new(
        &site,
        &config,
        &cloud,
        &plant,
        &rota,
        people.heard.clone(),
        Arc::clone(&links),
    );
    say(&summary::hint(&site, &plant, &rota, &door));
    let stopped = tokio::select! {
        ended = watch(&mut children) => ended,
        shown = summary.run() => shown,
        served = control => served,
        () = stop => Ok(()),
        () = after(args.stop_after) => Ok(()),
    };

    // Downstream last, so that what is on its way can still arrive.
    say("stopping; the next up goes on from here");
    barns.shutdown().await;
    scale.abort();
    people.rest();
    for child in children.iter_mut().rev() {
        child.stop().await;
    }
    people.stop();
    objects.stop().await?;
    broker.stop().await?;
    bus.stop().await?;
    postgres.stop().await?;
    stopped
}

/// Starts again whatever role has died, for ever.
async fn watch(children: &mut [Child]) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_millis(500));
    loop {
        ticks.tick().await;
        for child in children.iter_mut() {
            child.restart_if_dead().await?;
        }
    }
}

async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

fn say(text: &str) {
    use std::io::Write;
    // Whoever closed our output still wants the system to run.
    let _ = writeln!(std::io::stdout(), "{text}");
}
