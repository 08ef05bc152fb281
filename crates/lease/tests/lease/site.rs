//! A database with `sync_outbox`, rows to put in it, and handlers that do what a test says.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease::backoff::Backoff;
use lease::{Batch, Handler, Options, Outcome, Verdict, Worker};
use testkit::{Database, database, eventually};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::outbox::{self, Event};

/// Where the leases are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Row,
    Lane,
}

impl Mode {
    /// The table that has them.
    pub(crate) fn leases(self) -> &'static str {
        match self {
            Mode::Row => "sync_outbox",
            Mode::Lane => outbox::LANES,
        }
    }
}

/// Runs each scenario with leases on rows and with leases on lanes.
#[macro_export]
macro_rules! both {
    ($($scenario:ident,)*) => {
        mod row {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario($crate::site::Mode::Row).await;
            })*
        }
        mod lane {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $scenario() {
                super::$scenario($crate::site::Mode::Lane).await;
            })*
        }
    };
}

/// Longer than anything takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

type Answer = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// A handler from a closure.
pub(crate) struct Script(Box<dyn Fn(Batch<Event>) -> Answer + Send + Sync>);

impl Handler<Event> for Script {
    async fn handle(&self, batch: Batch<Event>) -> Verdict {
        (self.0)(batch).await
    }
}

pub(crate) fn script<F>(work: impl Fn(Batch<Event>) -> F + Send + Sync + 'static) -> Script
where
    F: Future<Output = Verdict> + Send + 'static,
{
    Script(Box::new(move |batch| Box::pin(work(batch))))
}

fn row_id(id: &lease::RowId) -> Uuid {
    match id {
        lease::RowId::Uuid(id) => *id,
        other => panic!("{other} is no uuid"),
    }
}

/// What was delivered, in order.
#[derive(Clone, Default)]
pub(crate) struct Delivered(Arc<Mutex<Vec<(Uuid, Event)>>>);

impl Delivered {
    pub(crate) fn add(&self, batch: &Batch<Event>) {
        let mut list = self.0.lock().unwrap();
        list.extend(batch.items.iter().map(|item| (row_id(&item.id), item.row.clone())));
    }

    pub(crate) fn list(&self) -> Vec<(Uuid, Event)> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A handler that delivers everything.
pub(crate) fn deliver(to: &Delivered) -> Script {
    let to = to.clone();
    script(move |batch| {
        to.add(&batch);
        async move { Verdict::all_done(&batch) }
    })
}

pub(crate) fn retry() -> Outcome {
    Outcome::Retry { code: "HTTP_422".to_owned(), message: "not now".to_owned() }
}

pub(crate) fn name(of: &str) -> Uuid {
    // Eight bytes of FNV for a readable test and an id that is always the same.
    let hash = of.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Uuid::from_u64_pair(hash, hash.rotate_left(17))
}

async fn by_row(url: String) -> Result<(), pg::Error> {
    let client = pg::connect(&pg::Options::new(url)).await?;
    client.batch_execute(outbox::SITE_TABLES).await?;
    client.batch_execute(outbox::LEASED_WORK).await?;
    Ok(())
}

async fn by_lane(url: String) -> Result<(), pg::Error> {
    by_row(url.clone()).await?;
    let client = pg::connect(&pg::Options::new(url)).await?;
    client.batch_execute(outbox::NO_ROW_LEASES).await?;
    client.batch_execute(&outbox::table(Mode::Lane).lane_table(outbox::LANES)).await?;
    Ok(())
}

pub(crate) struct Site {
    pub(crate) mode: Mode,
    pub(crate) address: pg::Options,
    pub(crate) client: Client,
    _database: Option<Database>,
}

impl Site {
    pub(crate) async fn new(mode: Mode, name: &str) -> Site {
        let database = match mode {
            Mode::Row => database(name, "outbox", by_row).await,
            Mode::Lane => database(name, "outbox_lanes", by_lane).await,
        };
        let database = database.unwrap();
        let url = database.url().to_owned();
        Site::at(mode, url, Some(database)).await
    }

    /// On a server of one's own, with an empty database.
    pub(crate) async fn on(mode: Mode, url: String) -> Site {
        match mode {
            Mode::Row => by_row(url.clone()).await.unwrap(),
            Mode::Lane => by_lane(url.clone()).await.unwrap(),
        }
        Site::at(mode, url, None).await
    }

    async fn at(mode: Mode, url: String, database: Option<Database>) -> Site {
        let mut address = pg::Options::new(url);
        address.max_connections = 12;
        address.connect_timeout = Duration::from_secs(30);
        let client = pg::connect(&address).await.unwrap();
        Site { mode, address, client, _database: database }
    }

    /// Options for tests: quick to try again, small batches.
    pub(crate) fn options(&self, worker: &str) -> Options {
        let quick = Backoff::Exponential {
            base: Duration::from_millis(1),
            cap: Duration::from_millis(5),
            jitter: Duration::ZERO,
        };
        let mut options = Options::new(worker);
        options.batch = 20;
        options.backoff = quick.clone();
        options.breaker = quick;
        options.poll = Duration::from_millis(50);
        options.sweep = Duration::from_millis(200);
        options.stop_grace = Duration::from_millis(200);
        options
    }

    pub(crate) fn start(&self, handler: Script, options: Options) -> Worker {
        let queue = outbox::queue(self.mode, "test");
        Worker::start(&self.address, queue, handler, options).unwrap()
    }

    /// Adds rows `from..to` of a device, in order.
    pub(crate) async fn add(&self, tenant: &str, device: &str, rows: std::ops::Range<i64>) {
        self.add_with(tenant, Some(device), 0, rows).await;
    }

    pub(crate) async fn add_with(
        &self,
        tenant: &str,
        device: Option<&str>,
        priority: i32,
        rows: std::ops::Range<i64>,
    ) {
        let text = "INSERT INTO sync_outbox
              (id, tenant_id, device_id, event_type, occurred_at, payload_json, priority, seq)
            SELECT gen_random_uuid(), $1, $2, 'telemetry.reading',
              '2026-01-01'::timestamptz + n * interval '1 ms', '{}', $3, n
            FROM generate_series($4::int8, $5::int8) n";
        let (tenant, device) = (name(tenant), device.map(name));
        let (first, last) = (rows.start, rows.end - 1);
        self.client.execute(text, &[&tenant, &device, &priority, &first, &last]).await.unwrap();
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits until a count is as said.
    pub(crate) async fn until(&self, query: &str, wanted: i64) {
        eventually(LONG, query, async || match self.number(query).await {
            found if found == wanted => Ok(()),
            found => Err(format!("{found}, not {wanted}")),
        })
        .await
        .unwrap();
    }

    pub(crate) async fn until_acked(&self, wanted: i64) {
        self.until("SELECT count(*) FROM sync_outbox WHERE status = 'acked'", wanted).await;
    }

    /// How many rows a worker holds.
    pub(crate) async fn held_by(&self, worker: &str) -> i64 {
        let held = match self.mode {
            Mode::Row => "SELECT count(*) FROM sync_outbox WHERE claimed_by = $1",
            Mode::Lane => {
                "SELECT coalesce(sum(cardinality(taken)), 0)::int8 FROM sync_lane WHERE claimed_by = $1"
            }
        };
        self.client.query_one(held, &[&worker]).await.unwrap().get(0)
    }

    /// Makes every lease look as if its time had passed. It locks rows in no order, so it may have to
    /// give way to a worker.
    pub(crate) async fn expire(&self) {
        let table = self.mode.leases();
        let text = format!(
            "UPDATE {table} SET lease_expires_at = now() - interval '1 s' WHERE lease_token IS NOT NULL"
        );
        let expired = async || self.client.batch_execute(&text).await;
        eventually(LONG, "leases to expire", expired).await.unwrap();
    }
}
