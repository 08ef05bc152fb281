//! Draining an outbox with the engine of leased work: claim, hand over, complete, fenced, in order per key. Beside it a bare
//! `DELETE … FOR UPDATE SKIP LOCKED … RETURNING` loop with the same batch and as many connections, which does nothing of that
//! and loses what it holds when it crashes. A site's outbox keeps what it has delivered; beside it stands a bare loop that keeps it as well,
//! `UPDATE … SET status = 'acked' … RETURNING`. Handlers do nothing. The server is durable, with its default settings.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lease::{Batch, Handler, Options, Verdict, Worker};
use rig::{Postgres, PostgresOptions};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use crate::measure::{interleaved, per_second};
use crate::outbox_peers::Peers;
use crate::outbox_tables::{Outbox, RELAY, SYNC};
use crate::place::Place;
use crate::row::Row;

const ROUNDS: usize = 5;
/// Of what is filled for a long time.
const FEW_ROUNDS: usize = 3;
const BATCH: u32 = 500;
const SLOTS: usize = 2;
/// The backlog of a comparison with the bare loop.
const ROWS: u64 = 100_000;
const SMALL: u64 = 20_000;
const LARGE: u64 = 1_000_000;
/// What is drained of the large backlog: the rest waits all the while.
const OF_LARGE: u64 = 150_000;
/// A drain that has not ended by then never will.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(300);

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say("outbox_drain", "starting Postgres");
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    let rows = measure(place, &runtime, &server);
    runtime.block_on(server.stop())?;
    rows
}

fn measure(place: &Place, runtime: &Runtime, server: &Postgres) -> Result<Vec<Row>> {
    let (site, edge) = runtime.block_on(prepare(server))?;
    let mut rows = Vec::new();
    // It takes minutes: what is known is said.
    let mut add = |row: Row| {
        place.say("outbox_drain", &format!("{}: {:.2}", row.name, row.ratio));
        rows.push(row);
    };
    for site in [&site, &edge] {
        let name = site.outbox.name;
        place.say("outbox_drain", &format!("{name} beside a bare loop"));
        // The first rows of a new server wait for files that it has yet to make.
        runtime.block_on(site.drain(ROWS, ROWS))?;
        for (loops, text, bar) in site.outbox.bare {
            runtime.block_on(site.bare(text))?;
            let (ours, theirs) = interleaved(
                ROUNDS,
                || runtime.block_on(site.drain(ROWS, ROWS)),
                || runtime.block_on(site.bare(text)),
            )?;
            let row = Row {
                bar: *bar,
                ..Row::more(
                    format!("outbox_drain/{name}_beside_bare_{loops}"),
                    "rows/s",
                    ours,
                    theirs,
                )
            };
            add(row);
        }
        place.say("outbox_drain", &format!("a backlog of a million in {name}"));
        let (large, small) = interleaved(
            FEW_ROUNDS,
            || runtime.block_on(site.drain(LARGE, OF_LARGE)),
            || runtime.block_on(site.drain(SMALL, SMALL)),
        )?;
        add(Row::more(format!("outbox_drain/{name}_1M_beside_20k"), "rows/s", large, small)
            .bar(0.8));
        place.say("outbox_drain", &format!("{name} beside an old snapshot"));
        let (old, none) = interleaved(
            FEW_ROUNDS,
            || runtime.block_on(site.drain_under_old_snapshot()),
            || runtime.block_on(site.drain(ROWS, ROWS)),
        )?;
        add(Row::more(
            format!("outbox_drain/{name}_old_snapshot_beside_none"),
            "rows/s",
            old,
            none,
        )
        .bar(0.7));
    }
    let peers = Peers::install(place, server)?;
    for peer in ["graphile-worker", "pg-boss"] {
        place.say("outbox_drain", &format!("beside {peer}"));
        let (ours, theirs) = interleaved(
            ROUNDS,
            || runtime.block_on(site.drain(SMALL, SMALL)),
            || runtime.block_on(peers.run(peer, SMALL)),
        )?;
        let name = format!("outbox_drain/relay_outbox_beside_{peer}");
        add(Row::more(name, "jobs/s", ours, theirs).bar(1.0));
    }
    Ok(rows)
}

/// Does nothing, with everything it gets.
struct Nothing;

impl Handler<Vec<u8>> for Nothing {
    async fn handle(&self, batch: Batch<Vec<u8>>) -> Verdict {
        std::hint::black_box(batch.items.iter().map(|item| item.row.len()).sum::<usize>());
        Verdict::all_done(&batch)
    }
}

/// A database with an outbox.
struct Site {
    address: pg::Options,
    client: Client,
    outbox: Outbox,
}

/// The cloud's and a site's.
async fn prepare(server: &Postgres) -> Result<(Site, Site)> {
    let admin = pg::connect(&pg::Options::new(server.url("postgres"))).await?;
    admin.batch_execute("CREATE DATABASE cloud").await?;
    admin.batch_execute("CREATE DATABASE site").await?;
    let address = pg::Options::new(server.url("cloud"));
    cloud::migrate(&address).await?;
    let cloud = Site { client: pg::connect(&address).await?, address, outbox: RELAY };
    let address = pg::Options::new(server.url("site"));
    edge::migrate(&address).await?;
    let site = Site { client: pg::connect(&address).await?, address, outbox: SYNC };
    Ok((cloud, site))
}

impl Site {
    /// Rows that wait, and nothing left to be written back.
    async fn fill(&self, rows: u64) -> Result<()> {
        let table = self.outbox.name;
        self.client.batch_execute(&format!("TRUNCATE {table}")).await?;
        self.client.execute(self.outbox.fill, &[&i64::try_from(rows)?]).await?;
        self.client.batch_execute(&format!("ANALYZE {table}")).await?;
        Ok(self.client.batch_execute("CHECKPOINT").await?)
    }

    async fn expect_left(&self, wanted: u64) -> Result<()> {
        let left: i64 = self.client.query_one(self.outbox.waiting, &[]).await?.get(0);
        ensure!(u64::try_from(left)? <= wanted, "{left} rows of {} are left", self.outbox.name);
        Ok(())
    }

    /// Rows a second of the engine: `drained` of a backlog of `backlog`.
    async fn drain(&self, backlog: u64, drained: u64) -> Result<f64> {
        self.fill(backlog).await?;
        let mut options = Options::new("bench");
        (options.batch, options.slots) = (BATCH, SLOTS);
        let start = Instant::now();
        let worker = Worker::start(&self.address, self.outbox.queue(), Nothing, options)?;
        while worker.counts().done < drained {
            ensure!(start.elapsed() < TOO_LONG, "{} of {drained} drained", worker.counts().done);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = per_second(usize::try_from(drained)?, start);
        let counts = worker.counts();
        ensure!(counts.fenced == 0 && counts.retried == 0, "not a clean drain: {counts:?}");
        worker.stop().await;
        self.expect_left(backlog - drained).await?;
        Ok(rate)
    }

    async fn drain_under_old_snapshot(&self) -> Result<f64> {
        let other = pg::connect(&self.address).await?;
        other.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await?;
        let rate = self.drain(ROWS, ROWS).await;
        other.batch_execute("ROLLBACK").await?;
        rate
    }

    /// Rows a second of the bare loop.
    async fn bare(&self, text: &'static str) -> Result<f64> {
        self.fill(ROWS).await?;
        let mut clients = Vec::new();
        for _ in 0..SLOTS {
            clients.push(pg::connect(&self.address).await?);
        }
        let start = Instant::now();
        let mut loops = tokio::task::JoinSet::new();
        for client in clients {
            loops.spawn(async move {
                let statement = client.prepare(text).await?;
                while !client.query(&statement, &[&i64::from(BATCH)]).await?.is_empty() {}
                anyhow::Ok(())
            });
        }
        while let Some(ended) = loops.join_next().await {
            ended.context("a bare loop")??;
        }
        let rate = per_second(usize::try_from(ROWS)?, start);
        self.expect_left(0).await?;
        Ok(rate)
    }
}
