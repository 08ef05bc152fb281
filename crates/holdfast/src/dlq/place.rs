//! Where the dead letters are: in the cloud's table (inline bus), or in a letterbox: RabbitMQ's dead-letter queues, Kafka's dead-letter topics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use bus::letterbox::{BrokerLetterbox, Letterbox};
use bus::{CauseGroup, DeadLetter, Progress, ReplayOptions, by_cause};
use cloud::dead_letters::{self, Wanted, broker};
use indicatif::{ProgressBar, ProgressStyle};

use super::PlaceArgs;
use super::record::Records;

const INLINE: &str = "inline";
/// Letters read from the table at a time, so that memory does not grow with their number.
const PAGE: usize = 500;
/// How often a wait looks at what is left.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK: &str = "look at the dead letters; `holdfast bus check` says what RabbitMQ lacks";

/// The dead letters, and the database in which deeds are recorded.
pub(super) struct Place {
    records: Records,
    /// `None` where they are rows of the cloud's database.
    letterbox: Option<Letters>,
}

/// A letterbox, and its queues or topics each by itself.
struct Letters {
    bus: &'static str,
    whole: Arc<dyn Letterbox>,
    each: Vec<Arc<dyn Letterbox>>,
}

impl From<BrokerLetterbox> for Letters {
    fn from(broker: BrokerLetterbox) -> Letters {
        Letters { bus: broker.bus(), each: broker.each(), whole: Arc::new(broker) }
    }
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
    pub(super) async fn open(args: &PlaceArgs) -> anyhow::Result<Place> {
        if args.scada {
            return Place::of_scada(args).await;
        }
        let config =
            cloud::Config::load(args.broker.config.as_deref(), crate::config::environment)?;
        cloud::migrate(&config.database).await?;
        let records = Records::cloud(&config.database).await?;
        let topology = crate::bus::topology()?;
        let letterbox = match args.broker.given()? {
            Some(address) => Some(BrokerLetterbox::rabbitmq(address, broker::names(&topology))),
            None => broker::letterbox(&config.bus, &topology),
        };
        Ok(Place { records, letterbox: letterbox.map(Letters::from) })
    }

    /// The plant's: what the historian gave up.
    async fn of_scada(args: &PlaceArgs) -> anyhow::Result<Place> {
        use ::scada::historian::dead_letters::{TableLetterbox, broker};
        let config = crate::scada::historian_config(args.broker.config.as_deref())?;
        ::scada::migrate_historian(&config.database).await?;
        let records = Records::historian(&config.database).await?;
        let letters = match broker(&config.bus) {
            Some(broker) => Letters::from(broker),
            None => {
                let table: Arc<dyn Letterbox> = Arc::new(TableLetterbox::of(&config)?);
                Letters { bus: INLINE, each: vec![Arc::clone(&table)], whole: table }
            }
        };
        Ok(Place { records, letterbox: Some(letters) })
    }

    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    pub(super) fn name(&self) -> &'static str {
        self.letterbox.as_ref().map_or(INLINE, |letters| letters.bus)
    }

    /// Whether this process replays by itself, and the cloud is not asked to.
    pub(super) fn replays_here(&self) -> bool {
        self.letterbox.is_some()
    }

    pub(super) async fn groups(&self, wanted: &Wanted, limit: usize) -> anyhow::Result<Found> {
        let Some(letters) = &self.letterbox else {
            let groups = dead_letters::groups(self.records.client(), wanted).await?;
            let total = groups.iter().map(|group| group.count).sum();
            return Ok(Found { groups, looked_at: total, total });
        };
        let listing = letters.whole.list(&wanted.filter(), limit).await.context(LOOK)?;
        let (looked_at, total) = (listing.scanned, listing.total);
        Ok(Found { groups: by_cause(&listing.letters), looked_at, total })
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
        if let Some(letters) = &self.letterbox {
            let Some(one) = letters.each.get(cursor.source) else { return Ok(None) };
            cursor.source += 1;
            let letters = one.list(&wanted.filter(), left).await.context(LOOK)?.letters;
            cursor.seen += letters.len();
            return Ok(Some(letters));
        }
        let database = self.records.client();
        let kept = dead_letters::list(database, wanted, cursor.row, left.min(PAGE)).await?;
        cursor.row = kept.last().map_or(cursor.row, |last| last.id);
        cursor.seen += kept.len();
        let page: Vec<DeadLetter> = kept.into_iter().map(|kept| kept.letter).collect();
        Ok(Some(page).filter(|page| !page.is_empty()))
    }

    pub(super) async fn would_replay(&self, wanted: &Wanted, pace: Pace) -> Result<Done, Failed> {
        let Some(letters) = &self.letterbox else {
            let matched = dead_letters::count(self.records.client(), wanted).await?;
            return Ok(Done { matched: matched.min(pace.limit as u64), ..Done::default() });
        };
        let done = letters.send_back(wanted, pace, true).await?;
        Ok(Done { changed: 0, ..done })
    }

    pub(super) async fn replay(
        &self,
        wanted: &Wanted,
        pace: Pace,
        audit_id: i64,
    ) -> Result<Done, Failed> {
        if let Some(letters) = &self.letterbox {
            return letters.send_back(wanted, pace, false).await;
        }
        let database = self.records.client();
        let Pace { limit, per_second, wait } = pace;
        let matched = dead_letters::count(database, wanted).await?;
        let asked = dead_letters::request_replay(database, wanted, limit, per_second, audit_id);
        let changed = asked.await?;
        if wait {
            let waited = wait_for(database, audit_id, changed).await;
            waited.map_err(|error| Failed { changed, error: error.into() })?;
        }
        Ok(Done { matched, changed, kept: Vec::new(), asked: !wait })
    }
}

impl Letters {
    async fn send_back(&self, wanted: &Wanted, pace: Pace, dry_run: bool) -> Result<Done, Failed> {
        let bar = progress();
        let Pace { limit, per_second, .. } = pace;
        let options = ReplayOptions { filter: wanted.filter(), limit, per_second, dry_run };
        let gone = AtomicU64::new(0);
        let tell = |progress: Progress| {
            gone.store(progress.changed, Ordering::Relaxed);
            bar.set_length(progress.total);
            bar.set_position(progress.seen);
        };
        let report = self.whole.replay(&options, &tell).await;
        bar.finish_and_clear();
        let report = report.map_err(|error| Failed {
            changed: gone.load(Ordering::Relaxed),
            error: anyhow::Error::from(error).context("replay"),
        })?;
        let changed = report.replayed.len() as u64;
        let matched = changed + report.kept.len() as u64;
        Ok(Done { matched, changed, kept: report.kept, asked: false })
    }
}

/// Waits until the cloud has settled every letter that was asked for.
async fn wait_for(
    database: &tokio_postgres::Client,
    audit_id: i64,
    asked: u64,
) -> Result<(), pg::Error> {
    let bar = progress();
    bar.set_length(asked);
    loop {
        let left = dead_letters::replays_left(database, audit_id).await?;
        bar.set_position(asked.saturating_sub(left));
        if left == 0 {
            bar.finish_and_clear();
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Where a listing goes on.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    row: i64,
    source: usize,
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
