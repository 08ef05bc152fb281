//! Where the dead letters are: in the cloud's table (inline bus), or in RabbitMQ's dead-letter queues.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bus::rabbitmq::{
    Address, DeadLetterQueue, PublisherOptions, RabbitPublisher, ReplayOptions, Replayed,
};
use bus::{CauseGroup, DeadLetter, Filter, Test, by_cause};
use cloud::dead_letters::{self, Wanted, tenant_of};
use indicatif::{ProgressBar, ProgressStyle};
use tokio_postgres::Client;

use crate::bus::BrokerArgs;

/// Letters read from the table at a time, so that memory does not grow with their number.
const PAGE: usize = 500;
/// How often a wait looks at what is left.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The dead letters, and the database in which deeds are recorded.
pub(super) struct Place {
    database: Client,
    bus: Bus,
}

enum Bus {
    Inline,
    RabbitMq { address: Address, queues: BTreeSet<String> },
}

/// How fast and how far a replay goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) limit: usize,
    pub(super) per_second: u32,
    /// On the inline bus, whether to wait for the cloud.
    pub(super) wait: bool,
}

/// Groups, and how much was looked at.
pub(super) struct Found {
    pub(super) groups: Vec<CauseGroup>,
    pub(super) looked_at: u64,
    pub(super) total: u64,
}

/// What a replay did, or would do.
#[derive(Default)]
pub(super) struct Done {
    pub(super) matched: u64,
    pub(super) changed: u64,
    /// Those that stay, and why.
    pub(super) kept: Vec<(String, String)>,
    /// The cloud delivers them, and has not yet.
    asked: bool,
}

impl Done {
    pub(super) fn sentence(&self, dry_run: bool) -> String {
        match (dry_run, self.asked) {
            (true, _) => format!("{} would be replayed; nothing was done.", self.matched),
            (false, true) => format!(
                "{} of {} are marked; the cloud delivers them at this rate while it runs.",
                self.changed, self.matched
            ),
            (false, false) => format!("{} of {} were replayed.", self.changed, self.matched),
        }
    }
}

/// A replay that ended early.
pub(super) struct Failed {
    pub(super) changed: u64,
    pub(super) error: anyhow::Error,
}

impl From<pg::Error> for Failed {
    fn from(error: pg::Error) -> Failed {
        Failed { changed: 0, error: error.into() }
    }
}

impl Place {
    pub(super) async fn open(args: &BrokerArgs) -> anyhow::Result<Place> {
        let config = cloud::Config::load(args.config.as_deref(), crate::config::environment)?;
        cloud::migrate(&config.database).await?;
        let database = pg::connect(&config.database).await?;
        let address = match (args.given()?, config.bus) {
            (Some(address), _) | (None, cloud::config::Bus::RabbitMq { address, .. }) => address,
            #[cfg(feature = "kafka")]
            (None, cloud::config::Bus::Kafka(_)) => anyhow::bail!(
                "cloud.bus is kafka, whose dead letters are in the topics farmiq.{{service}}.dlq.queue: read them with \
                 Kafka's own kafka-console-consumer, and set the group's offsets back to have the originals read again"
            ),
            (None, cloud::config::Bus::Inline) => return Ok(Place { database, bus: Bus::Inline }),
        };
        let topology = crate::bus::topology()?;
        let queues = topology.queues.into_iter().map(|queue| queue.dead_letter_queue).collect();
        Ok(Place { database, bus: Bus::RabbitMq { address, queues } })
    }

    pub(super) fn database(&self) -> &Client {
        &self.database
    }

    pub(super) fn name(&self) -> &'static str {
        match self.bus {
            Bus::Inline => "inline",
            Bus::RabbitMq { .. } => "rabbitmq",
        }
    }

    pub(super) async fn groups(&self, wanted: &Wanted, limit: usize) -> anyhow::Result<Found> {
        match &self.bus {
            Bus::Inline => {
                let groups = dead_letters::groups(&self.database, wanted).await?;
                let total = groups.iter().map(|group| group.count).sum();
                Ok(Found { groups, looked_at: total, total })
            }
            Bus::RabbitMq { address, queues } => {
                let (mut letters, mut looked_at, mut total) = (Vec::new(), 0, 0);
                for queue in queues {
                    let left = limit.saturating_sub(letters.len());
                    let listing = look(address, queue, wanted, left).await?;
                    looked_at += listing.scanned;
                    total += listing.total;
                    letters.extend(listing.letters);
                }
                Ok(Found { groups: by_cause(&letters), looked_at, total })
            }
        }
    }

    pub(super) async fn letters(
        &self,
        wanted: &Wanted,
        limit: usize,
    ) -> anyhow::Result<Vec<DeadLetter>> {
        let mut letters = Vec::new();
        let mut after = None;
        while let Some(page) = self.page(wanted, &mut after, limit).await? {
            letters.extend(page);
        }
        Ok(letters)
    }

    /// The next letters that are meant, up to `limit` altogether; `None` after the last.
    pub(super) async fn page(
        &self,
        wanted: &Wanted,
        after: &mut Option<Cursor>,
        limit: usize,
    ) -> anyhow::Result<Option<Vec<DeadLetter>>> {
        let cursor = after.get_or_insert_default();
        let left = limit.saturating_sub(cursor.seen);
        let page: Vec<DeadLetter> = match &self.bus {
            Bus::Inline => {
                let most = left.min(PAGE);
                let kept = dead_letters::list(&self.database, wanted, cursor.row, most).await?;
                cursor.row = kept.last().map_or(cursor.row, |last| last.id);
                kept.into_iter().map(|kept| kept.letter).collect()
            }
            Bus::RabbitMq { address, queues } => match queues.iter().nth(cursor.queue) {
                Some(queue) => {
                    cursor.queue += 1;
                    let letters = look(address, queue, wanted, left).await?.letters;
                    cursor.seen += letters.len();
                    return Ok(Some(letters));
                }
                None => Vec::new(),
            },
        };
        cursor.seen += page.len();
        Ok(Some(page).filter(|page| !page.is_empty()))
    }

    pub(super) async fn would_replay(&self, wanted: &Wanted, pace: Pace) -> Result<Done, Failed> {
        match &self.bus {
            Bus::Inline => {
                let matched = dead_letters::count(&self.database, wanted).await?;
                let matched = matched.min(pace.limit as u64);
                Ok(Done { matched, ..Done::default() })
            }
            Bus::RabbitMq { address, queues } => {
                let done = send_back(address, queues, wanted, pace, true).await?;
                Ok(Done { changed: 0, ..done })
            }
        }
    }

    pub(super) async fn replay(
        &self,
        wanted: &Wanted,
        pace: Pace,
        audit_id: i64,
    ) -> Result<Done, Failed> {
        match &self.bus {
            Bus::Inline => {
                let (database, Pace { limit, per_second, wait }) = (&self.database, pace);
                let matched = dead_letters::count(database, wanted).await?;
                let asked =
                    dead_letters::request_replay(database, wanted, limit, per_second, audit_id);
                let changed = asked.await?;
                if wait {
                    let waited = self.wait_for(audit_id, changed).await;
                    waited.map_err(|error| Failed { changed, error: error.into() })?;
                }
                Ok(Done { matched, changed, kept: Vec::new(), asked: !wait })
            }
            Bus::RabbitMq { address, queues } => {
                send_back(address, queues, wanted, pace, false).await
            }
        }
    }

    /// Waits until the cloud has settled every letter that was asked for.
    async fn wait_for(&self, audit_id: i64, asked: u64) -> Result<(), pg::Error> {
        let bar = progress();
        bar.set_length(asked);
        loop {
            let left = dead_letters::replays_left(&self.database, audit_id).await?;
            bar.set_position(asked.saturating_sub(left));
            if left == 0 {
                bar.finish_and_clear();
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Where a listing goes on.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    row: i64,
    queue: usize,
    seen: usize,
}

/// Shown on a terminal and nowhere else.
fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len}, {eta} to go") {
        bar.set_style(style);
    }
    bar
}

async fn look(
    address: &Address,
    queue: &str,
    wanted: &Wanted,
    limit: usize,
) -> anyhow::Result<bus::rabbitmq::Listing> {
    let queue_of = DeadLetterQueue::new(address.clone(), queue);
    let listing = queue_of.list(&filter(wanted), limit).await;
    listing.with_context(|| format!("look at {queue}; `holdfast bus check` says what is missing"))
}

fn filter(wanted: &Wanted) -> Filter {
    Filter {
        message_ids: wanted.message_ids.clone().map(|ids| ids.into_iter().collect()),
        queue: wanted.queue.clone(),
        cause_code: wanted.cause_code.clone(),
        since: wanted.since,
        test: wanted
            .tenant
            .map(|tenant| Test::new(move |letter| tenant_of(&letter.message.body) == Some(tenant))),
        ..Filter::default()
    }
}

/// Replays from each dead-letter queue in turn.
async fn send_back(
    address: &Address,
    queues: &BTreeSet<String>,
    wanted: &Wanted,
    pace: Pace,
    dry_run: bool,
) -> Result<Done, Failed> {
    let options = PublisherOptions { name: "holdfast dlq".to_owned(), ..Default::default() };
    let publisher = RabbitPublisher::new(address.clone(), options);
    let bar = progress();
    let mut done = Done::default();
    for queue in queues {
        let left = pace.limit.saturating_sub(usize::try_from(done.changed).unwrap_or(usize::MAX));
        if left == 0 {
            break;
        }
        let options = ReplayOptions {
            filter: filter(wanted),
            limit: left,
            per_second: pace.per_second,
            dry_run,
        };
        let before = AtomicU64::new(0);
        let tell = |total: u64, report: &Replayed| {
            before.store(report.replayed.len() as u64, Ordering::Relaxed);
            bar.set_length(total);
            bar.set_position(report.scanned);
        };
        let source = DeadLetterQueue::new(address.clone(), queue.as_str());
        let report = source.replay_telling(&publisher, &options, &tell).await;
        let report = report.with_context(|| format!("replay from {queue}")).map_err(|error| {
            Failed { changed: done.changed + before.load(Ordering::Relaxed), error }
        })?;
        done.changed += report.replayed.len() as u64;
        done.kept.extend(report.kept);
    }
    bar.finish_and_clear();
    done.matched = done.changed + done.kept.len() as u64;
    Ok(done)
}
