//! One transaction for some messages.
//!
//! Promise: after [`Writer::commit`] returns, everything the messages brought is durable or in
//! quarantine, and the acks say so; if it fails, nothing of what it was given may be acknowledged,
//! and the same messages can be given again. Its failures are about the database; a message that
//! the database refuses by its content is found and set aside (see `isolate`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use event::Window;
use event::id::{Epoch, EventId, NodeId, TenantId};
use event::names::Topic;
use event::wire::Ack;
use pg::{About, Transaction};

use super::check::{Checked, Content, Event, Item, check};
use super::plan::{Account, Accounted, EventRow, Known, Standing, Stream, Tally, account, decide};
use super::{Incoming, notice, rows};
use crate::config::TelemetrySync;
use crate::metrics::Metrics;
use crate::registry::{self, Registry};
use crate::telemetry::dirty::{self, Bucket};

/// Attempts of one transaction that others get in the way of. Each waits for them, so this is
/// seldom more than two.
const CONFLICT_ATTEMPTS: usize = 5;

/// A replica that is halted in the middle holds its streams' locks; the server ends it, so that the
/// others can go on. When it wakes, its transaction fails and is tried again, to no effect.
const NO_ZOMBIES: &str = "SET LOCAL idle_in_transaction_session_timeout = '30s'";

/// Why nothing was committed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database, or what it made of a statement.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The registry.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// A frontier that ingress did not write.
    #[error("the ledger's row of {stream} in epoch {epoch} is damaged: {problem}")]
    Damaged {
        /// The stream.
        stream: NodeId,
        /// The epoch.
        epoch: Epoch,
        /// What is wrong with it.
        problem: String,
    },
    /// Rows that were not there when they were looked up kept appearing.
    #[error("others keep writing the same events")]
    Raced,
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error.into())
    }
}

impl Error {
    /// What the error is about.
    pub fn about(&self) -> About {
        match self {
            Error::Database(error) | Error::Registry(registry::Error::Database(error)) => {
                error.about()
            }
            Error::Registry(_) | Error::Damaged { .. } => About::Us,
            Error::Raced => About::Conflict,
        }
    }
}

/// What a commit did.
#[derive(Debug, Default)]
pub struct Committed {
    /// The ack of every stream that was touched, in the order of stream and epoch.
    pub acks: Vec<(NodeId, Ack)>,
    /// What happened to the records.
    pub tally: Tally,
    /// Where the time went.
    pub timings: Timings,
}

/// Where a transaction's time went, by table.
#[derive(Debug, Default, Clone, Copy)]
pub struct Timings {
    /// Locking `ledger_frontier`.
    pub lock: Duration,
    /// `ingress_dedupe`.
    pub dedupe: Duration,
    /// Looking up suspicious ids, and deciding.
    pub decide: Duration,
    /// `sync_outbox`.
    pub outbox: Duration,
    /// `telemetry_raw`.
    pub telemetry: Duration,
    /// `telemetry_dirty`.
    pub mark: Duration,
    /// `ledger_block`, `ledger_tombstone` and `ledger_frontier`.
    pub ledger: Duration,
    /// `ingress_quarantine`, `nodes` and `devices`.
    pub rest: Duration,
    /// Making it durable.
    pub commit: Duration,
}

impl Timings {
    /// Adds another transaction's times.
    pub fn add(&mut self, other: &Timings) {
        self.lock += other.lock;
        self.dedupe += other.dedupe;
        self.decide += other.decide;
        self.outbox += other.outbox;
        self.telemetry += other.telemetry;
        self.mark += other.mark;
        self.ledger += other.ledger;
        self.rest += other.rest;
        self.commit += other.commit;
    }
}

impl Committed {
    pub(super) fn add(&mut self, other: Committed) {
        // A later ack of the same stream says more than an earlier one.
        self.acks.retain(|(node, ack)| {
            !other.acks.iter().any(|(n, a)| n == node && a.epoch == ack.epoch)
        });
        self.acks.extend(other.acks);
        self.tally.add(&other.tally);
        self.timings.add(&other.timings);
    }
}

/// Writes messages into the tables. Cloning shares the pool and the registry's cache.
#[derive(Debug, Clone)]
pub struct Writer {
    pool: pg::Pool,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    telemetry: TelemetrySync,
}

impl Writer {
    /// A writer on a pool, which hands readings over to the cloud.
    pub fn new(pool: pg::Pool, metrics: Arc<Metrics>) -> Writer {
        let registry = Arc::new(Registry::new(pool.clone()));
        Writer { registry, pool, metrics, telemetry: TelemetrySync::Raw }
    }

    /// The same writer, with readings going to the cloud or staying at the site.
    pub fn sending(self, telemetry: TelemetrySync) -> Writer {
        Writer { telemetry, ..self }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Checks and commits messages, in one transaction.
    pub async fn ingest(&self, messages: &[Incoming]) -> Result<Committed, Error> {
        let mut checked = Vec::with_capacity(messages.len());
        for message in messages {
            checked.push(self.check(message).await?);
        }
        self.commit(&checked).await
    }

    /// Reads a message and judges its records.
    pub async fn check(&self, message: &Incoming) -> Result<Checked, Error> {
        let entry = match Topic::parse(&message.topic) {
            Ok(topic) => self.registry.find(topic.node()).await?,
            Err(_) => None,
        };
        Ok(check(message, entry.as_ref()))
    }

    /// Commits messages that were checked, in one transaction; in several if the database refuses
    /// the content of one.
    pub async fn commit(&self, messages: &[Checked]) -> Result<Committed, Error> {
        let started = Instant::now();
        let committed = match self.transact(messages).await {
            Err(error) if error.about() == About::Data => {
                tracing::warn!(%error, messages = messages.len(), "looking for the refused record");
                self.isolate(messages).await?
            }
            outcome => outcome?,
        };
        self.metrics.committed(&committed.tally, started.elapsed());
        Ok(committed)
    }

    /// One transaction, again if others got in the way.
    pub(super) async fn transact(&self, messages: &[Checked]) -> Result<Committed, Error> {
        let mut look_up_all = false;
        let mut attempt = 1;
        loop {
            match self.attempt(messages, look_up_all).await {
                Ok(Some(committed)) => return Ok(committed),
                // Some event was stored already, under an id that the cache had forgotten.
                Ok(None) if attempt < CONFLICT_ATTEMPTS => look_up_all = true,
                Ok(None) => return Err(Error::Raced),
                Err(error) if error.about() == About::Conflict && attempt < CONFLICT_ATTEMPTS => {
                    tracing::debug!(%error, "ingress transaction met another");
                }
                Err(error) => return Err(error),
            }
            self.metrics.db_retry();
            attempt += 1;
        }
    }

    async fn attempt(&self, messages: &[Checked], all: bool) -> Result<Option<Committed>, Error> {
        let mut client = self.pool.get().await?;
        let transaction = client.transaction().await?;
        transaction.batch_execute(NO_ZOMBIES).await?;
        let mut timings = Timings::default();
        let mut clock = Instant::now();
        let mut lap = move |slot: &mut Duration| {
            let now = Instant::now();
            *slot += now.duration_since(clock);
            clock = now;
        };

        let mut accounts = lock(&transaction, messages).await?;
        lap(&mut timings.lock);
        let accounted = account(messages, &mut accounts);
        let fresh = rows::insert_dedupe(&transaction, &ids(&accounted)).await?;
        lap(&mut timings.dedupe);
        let known = look_up(&transaction, &accounted, fresh, all).await?;
        let plan = decide(&accounted, &mut accounts, known);
        lap(&mut timings.decide);

        if !self.telemetry.raw() {
            keep(&plan.events, &mut accounts);
        }

        let outbox = rows::copy_outbox(&transaction, &plan.events, self.telemetry).await;
        lap(&mut timings.outbox);
        let stored = match outbox {
            Ok(()) => rows::copy_telemetry(&transaction, &plan.events).await,
            failed => failed,
        };
        lap(&mut timings.telemetry);
        match stored {
            Err(error) if rows::is_taken(&error) => {
                transaction.rollback().await?;
                return Ok(None);
            }
            stored => stored?,
        }
        rows::write_blocks(&transaction, &plan.blocks).await?;
        rows::write_tombstones(&transaction, &accounted.gaps).await?;
        rows::write_kept(&transaction, &plan.kept).await?;
        rows::write_quarantine(&transaction, &plan.quarantined).await?;
        rows::write_frontiers(&transaction, &accounts).await?;
        lap(&mut timings.ledger);
        rows::write_nodes(&transaction, &plan.nodes).await?;
        rows::write_statuses(&transaction, &plan.statuses).await?;
        rows::write_devices(&transaction, &plan.devices).await?;
        lap(&mut timings.rest);
        // Last, so that the marks are held for as short as can be.
        dirty::mark(&transaction, Window::Minute, &touched(&plan.events)).await?;
        lap(&mut timings.mark);
        transaction.commit().await?;
        lap(&mut timings.commit);
        if !plan.tally.quarantined.is_empty() {
            notice::log(&plan.quarantined);
        }

        let acks = accounted.touched.iter().filter_map(|stream| {
            let frontier = &accounts.get(stream)?.frontier;
            Some((stream.0.clone(), Ack::of(stream.1, frontier)))
        });
        Ok(Some(Committed { acks: acks.collect(), tally: plan.tally, timings }))
    }
}

async fn lock(
    transaction: &Transaction<'_>,
    messages: &[Checked],
) -> Result<BTreeMap<Stream, Account>, Error> {
    let mut streams: BTreeMap<Stream, TenantId> = BTreeMap::new();
    for message in messages {
        if let (Content::Batch { epoch, .. }, Some(entry)) = (&message.content, &message.entry) {
            streams.insert((entry.node_id.clone(), *epoch), entry.tenant_id);
        }
    }
    if streams.is_empty() {
        return Ok(BTreeMap::new());
    }
    rows::lock_frontiers(transaction, &streams).await
}

/// The minutes that readings fall into.
fn touched(events: &[EventRow<'_>]) -> BTreeSet<Bucket> {
    let bucket = |row: &EventRow<'_>| {
        row.event.telemetry.as_ref()?;
        let envelope = &row.event.envelope;
        Some(Bucket {
            tenant: envelope.tenant_id.uuid(),
            device: envelope.device_id?.uuid(),
            start: Window::Minute.start_of(envelope.occurred_at),
        })
    };
    events.iter().filter_map(bucket).collect()
}

/// Takes note of the sequences whose readings stay at the site.
fn keep(events: &[EventRow<'_>], accounts: &mut BTreeMap<Stream, Account>) {
    for row in events.iter().filter(|row| row.event.telemetry.is_some()) {
        let Some((epoch, seq)) = row.place else { continue };
        if let Some(account) = accounts.get_mut(&(row.node.clone(), epoch)) {
            account.kept.insert(seq, seq);
            account.changed = true;
        }
    }
}

fn ids(accounted: &Accounted<'_>) -> BTreeSet<(TenantId, EventId)> {
    let valid = accounted.records.iter().filter_map(|judged| match judged.item {
        Item::Valid(event) => Some((event.envelope.tenant_id, event.envelope.event_id)),
        Item::Bad(_) => None,
    });
    valid.collect()
}

/// Asks the store about ids that are suspicious: not in the cache, and with a sequence that was
/// received before, or none.
async fn look_up(
    transaction: &Transaction<'_>,
    accounted: &Accounted<'_>,
    fresh: std::collections::HashSet<(TenantId, EventId)>,
    all: bool,
) -> Result<Known, Error> {
    let mut events: Vec<&Event> = Vec::new();
    let mut places = Vec::new();
    for judged in &accounted.records {
        let Item::Valid(event) = judged.item else {
            continue;
        };
        let id = (event.envelope.tenant_id, event.envelope.event_id);
        let suspicious = matches!(judged.standing, Standing::Received | Standing::Bare);
        if !(suspicious || all) || !fresh.contains(&id) {
            continue;
        }
        events.push(event);
        if let (Some((epoch, seq)), Some(node)) = (judged.place, &judged.message.node_id) {
            places.push((node, epoch, seq));
        }
    }
    let mut known = Known { fresh, ..Known::default() };
    if !events.is_empty() {
        known.stored = rows::find_stored(transaction, &events).await?;
        known.quarantined = rows::find_quarantined(transaction, &places).await?;
    }
    Ok(known)
}
