//! Claim and completion while retention removes rows that were acked long ago, beside the same without it. The outbox holds ten
//! million of them, or as many as this machine writes in [`FILL_FOR`]; the run says how many. Retention works as it does by default.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use edge::retention::{Fate, Job, Retention};
use lease::{Batch, Handler, Options, Verdict, Worker};
use rig::{Postgres, PostgresOptions};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

use crate::measure::{interleaved, per_second};
use crate::outbox_drain::TOO_LONG;
use crate::outbox_tables::SYNC;
use crate::place::Place;
use crate::row::Row;

const NAME: &str = "retention_claim";
const ROUNDS: usize = 3;
const ACKED: i64 = 10_000_000;
const CHUNK: i64 = 250_000;
const FILL_FOR: Duration = Duration::from_secs(60);
/// What is drained in one measurement.
const ROWS: u64 = 100_000;
const BATCH: u32 = 500;
const SLOTS: usize = 2;

/// Rows that were delivered twice the retention ago.
const FILL_ACKED: &str = "INSERT INTO sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type, occurred_at, trace_id, payload_json,
    payload_size_bytes, stream, epoch, seq, status, created_at, updated_at)
  SELECT gen_random_uuid(), md5('t' || n % 10)::uuid, md5('f' || n % 10)::uuid, md5('b' || n % 20)::uuid,
    md5('d' || n % 100)::uuid, 'telemetry.ingested', now() - interval '60 days' + n * interval '1 ms', repeat('a', 32),
    jsonb_build_object('metric_type', 'temperature', 'metric_value', n, 'unit', 'celsius', 'note', repeat('x', 150)), 220,
    'barn-' || n % 100, md5('e' || n % 100)::uuid, n / 100, 'acked', now() - interval '60 days', now() - interval '60 days'
  FROM generate_series(1, $1::int8) n";

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    place.say(NAME, "starting Postgres");
    let runtime = Runtime::new()?;
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    let rows = measure(place, &runtime, &server);
    runtime.block_on(server.stop())?;
    rows
}

fn measure(place: &Place, runtime: &Runtime, server: &Postgres) -> Result<Vec<Row>> {
    let site = runtime.block_on(Site::prepare(server))?;
    place.say(NAME, "writing rows that were acked long ago");
    let fill_for = if place.full { Duration::MAX } else { FILL_FOR };
    let acked = runtime.block_on(site.fill(ACKED, fill_for))?;
    place.say(NAME, &format!("{acked} of {ACKED} acked rows; --full writes all of them"));
    let (during, without) = interleaved(
        ROUNDS,
        || runtime.block_on(site.drain_during_retention(acked)),
        || runtime.block_on(site.drain()),
    )?;
    // How many there were is part of what was measured.
    let name = format!("{NAME}/during_retention_of_{}k_beside_without", acked / 1_000);
    Ok(vec![Row::more(name, "rows/s", during, without).bar(0.8)])
}

/// Does nothing, with everything it gets.
struct Nothing;

impl Handler<Vec<u8>> for Nothing {
    async fn handle(&self, batch: Batch<Vec<u8>>) -> Verdict {
        std::hint::black_box(batch.items.iter().map(|item| item.row.len()).sum::<usize>());
        Verdict::all_done(&batch)
    }
}

struct Site {
    address: pg::Options,
    client: Client,
    retention: Retention,
}

impl Site {
    async fn prepare(server: &Postgres) -> Result<Site> {
        let admin = pg::connect(&pg::Options::new(server.url("postgres"))).await?;
        admin.batch_execute("CREATE DATABASE site").await?;
        let address = pg::Options::new(server.url("site"));
        edge::migrate(&address).await?;
        let url = address.url.clone();
        let config =
            edge::Config::load(None, |name| (name == "DATABASE_URL").then(|| url.clone()))?;
        let retention = Retention::new(&config, None);
        Ok(Site { client: pg::connect(&address).await?, address, retention })
    }

    /// Writes acked rows until there are so many, or for so long; returns how many there are.
    async fn fill(&self, wanted: i64, at_most: Duration) -> Result<i64> {
        let (start, mut acked) = (Instant::now(), self.acked().await?);
        while acked < wanted && start.elapsed() < at_most {
            self.client.execute(FILL_ACKED, &[&CHUNK]).await?;
            acked += CHUNK;
        }
        self.client.batch_execute("VACUUM (ANALYZE) sync_outbox").await?;
        Ok(acked)
    }

    /// Rows a second that are claimed and completed.
    async fn drain(&self) -> Result<f64> {
        self.client.execute(SYNC.fill, &[&i64::try_from(ROWS)?]).await?;
        self.client.batch_execute("CHECKPOINT").await?;
        self.drain_now().await
    }

    async fn drain_now(&self) -> Result<f64> {
        let mut options = Options::new("bench");
        (options.batch, options.slots) = (BATCH, SLOTS);
        let start = Instant::now();
        let worker = Worker::start(&self.address, SYNC.queue(), Nothing, options)?;
        while worker.counts().done < ROWS {
            ensure!(start.elapsed() < TOO_LONG, "{} of {ROWS} drained", worker.counts().done);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = per_second(usize::try_from(ROWS)?, start);
        worker.stop().await;
        Ok(rate)
    }

    /// The same, while retention is at work from before the first claim until after the last.
    /// What earlier turns have removed of the `acked` rows is there again first.
    async fn drain_during_retention(&self, acked: i64) -> Result<f64> {
        self.fill(acked, TOO_LONG).await?;
        self.client.execute(SYNC.fill, &[&i64::try_from(ROWS)?]).await?;
        self.client.batch_execute("CHECKPOINT").await?;
        let (began, mut has_begun) = tokio::sync::mpsc::channel(1);
        let watched = self.retention.clone().watched(std::sync::Arc::new(move |step| {
            if step == "acked.batch" {
                let _ = began.try_send(());
            }
            true
        }));
        let turn = tokio::spawn(async move { watched.turn().await });
        has_begun.recv().await.context("retention did not begin")?;
        let before = self.acked().await?;
        let rate = self.drain_now().await?;
        let still_at_work = !turn.is_finished();
        turn.abort();
        let removed = before + i64::try_from(ROWS)? - self.acked().await?;
        ensure!(removed > 0, "retention removed nothing meanwhile");
        if !still_at_work {
            let report = turn.await.context("the turn")??.context("another turn")?;
            let gone = report.rows(Job::Acked, Fate::Gone);
            ensure!(gone > 0, "retention ended early, having removed {gone} rows");
        }
        Ok(rate)
    }

    async fn acked(&self) -> Result<i64> {
        let text = "SELECT count(*) FROM sync_outbox WHERE status = 'acked'";
        Ok(self.client.query_one(text, &[]).await?.try_get(0)?)
    }
}
