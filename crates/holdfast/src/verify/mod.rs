//! `holdfast verify`: whether node, edge and cloud hold the same, and bringing them together again.
//!
//! Streams by their sequences, events without one by hour and id, what the cloud accepted by what its stores have, images by row and
//! object, and by what the cloud has of them.
//!
//! The rules are `event::ledger`'s, the data the tiers'; this asks in the right order, waits while a repair takes effect, and
//! prints. docs/spec/verify.md says what is compared and what can be repaired.

mod at_edge;
mod bare;
mod by_id;
mod copies;
mod media;
mod progress;
mod remote;
mod show;
mod stored;
pub(crate) mod tier;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use edge::media::sweep::{Matter, Named};
use event::id::{NodeId, TenantId};
use event::ledger::{Finding, FindingKind, Repair, Repaired, plan_repair};
use serde::Serialize;

use console::verify::{Scope, StreamReport};

use self::bare::BareReport;
use self::copies::{CopyMatter, CopyReport};
use self::media::MediaReport;
use self::progress::Progress;
use self::stored::StoredReport;
use self::tier::{TierArgs, Tiers};
use crate::output::say;

/// How often a repair under way is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Different repairs of one stream; each answers what the one before brought to light.
const MAX_ROUNDS: usize = 10;

const NOT_BARE: &str =
    "events without a sequence were not compared: the edge is older than this command";
const NOT_STORED: &str = "what the cloud accepted was not compared with its stores: the cloud is older than this command";
const NOT_COPIES: &str =
    "images were not compared with the cloud: the edge or the cloud is older than this command";
const NOT_MEDIA: &str =
    "images were not compared with their objects: that needs --config of the site";

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast verify --config edge.toml --cloud-url https://cloud.example
  holdfast verify --edge-url http://10.0.0.7:8090 --cloud-url https://cloud.example
  holdfast verify --node barn-7 --json | jq '.streams[].findings'
  holdfast verify --repair --dry-run
  holdfast verify --repair --wait 5m          after restoring a backup")]
pub(crate) struct Args {
    /// One tenant.
    #[arg(long)]
    tenant: Option<TenantId>,
    /// One node.
    #[arg(long, visible_alias = "stream")]
    node: Option<NodeId>,
    /// Recompute the edge's blocks from its rows: reads every event.
    #[arg(long)]
    deep: bool,
    /// Bring back what is missing.
    #[arg(long)]
    repair: bool,
    /// With --repair: say what would be done.
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// How long to wait for a repair to take effect, such as 60s or 5m.
    #[arg(long, default_value = "60s", value_parser = span)]
    wait: Duration,
    /// How old an event that the cloud accepted must be before it has to be in a store, such as 10m.
    #[arg(long, default_value = "10m", value_parser = span)]
    grace: Duration,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tiers: TierArgs,
}

/// What was found, and done.
#[derive(Debug, Serialize)]
struct Report {
    streams: Vec<StreamReport>,
    /// Events without a sequence; absent where only one node is looked at, or the cloud is not asked.
    bare: Option<BareReport>,
    /// What the cloud accepted against its stores; absent likewise.
    stored: Option<StoredReport>,
    /// Images of the site against those of the cloud; absent likewise.
    copies: Option<CopyReport>,
    /// Rows of images against objects; absent where only one node is looked at, the edge is asked over HTTP, or the site has no object store.
    media: Option<MediaReport>,
    /// Why something was not compared.
    notes: Vec<String>,
    /// Sequences, events and images of findings that are more than data in motion.
    wrong: u64,
}

/// Runs it.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let tiers = args.tiers.open()?;
    let scope = Scope { tenant: args.tenant, stream: args.node.clone(), deep: args.deep };
    let streams = match args.repair {
        true => repair(&tiers, &scope, &args).await?,
        false => check(&tiers, &scope).await?,
    };
    let mut notes: Vec<String> = tiers.note.iter().cloned().collect();
    let (mut bare, mut stored, mut copies, mut media) = (None, None, None, None);
    if args.node.is_none() {
        bare = bare::check(&tiers, args.tenant).await?;
        if let Some(found) = &mut bare
            && args.repair
        {
            bare::repair(&tiers, found, args.dry_run).await?;
        }
        if bare.is_none() && tiers.cloud.is_some() {
            notes.push(NOT_BARE.to_owned());
        }
        let mut tenants: BTreeSet<TenantId> = args.tenant.into_iter().collect();
        tenants.extend(streams.iter().map(|one| one.tenant_id));
        tenants.extend(bare.iter().flat_map(|found| &found.tenants));
        if let Some(found) = &mut bare {
            found.cloud_only = bare::cloud_only(&tiers, &tenants).await?;
        }
        stored = stored::check(&tiers, tenants, args.grace).await?;
        if let Some(found) = &mut stored
            && args.repair
        {
            stored::repair(&tiers, found, args.dry_run).await?;
        }
        if stored.is_none() && tiers.cloud.is_some() {
            notes.push(NOT_STORED.to_owned());
        }
        copies = copies::check(&tiers, args.tenant).await?;
        if let Some(found) = &mut copies
            && args.repair
        {
            copies::repair(&tiers, found, args.dry_run).await?;
        }
        if copies.is_none() && tiers.cloud.is_some() {
            notes.push(NOT_COPIES.to_owned());
        }
        match &tiers.site {
            Some(site) if site.media.is_some() => {
                let mend = args.repair && !args.dry_run;
                media = Some(media::check(site, mend, args.wait).await?);
            }
            Some(_) => {}
            None => notes.push(NOT_MEDIA.to_owned()),
        }
    }
    let mut wrong = streams.iter().flat_map(StreamReport::wrong).map(|one| one.count()).sum();
    wrong += bare.as_ref().map_or(0, |found| found.missing.len() as u64);
    wrong += stored.as_ref().map_or(0, |found| found.unstored);
    wrong += copies.as_ref().map_or(0, |found| found.findings.len() as u64);
    wrong += media.as_ref().map_or(0, |found| found.wrong().count() as u64);
    let report = Report { streams, bare, stored, copies, media, notes, wrong };
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => say(&show::report(&report, args.dry_run))?,
    }
    anyhow::ensure!(report.wrong == 0, "{}", next_step(&report, &args));
    Ok(())
}

fn next_step(report: &Report, args: &Args) -> String {
    let mut open = report.streams.iter().flat_map(StreamReport::wrong);
    let closable = open.any(can_be_closed)
        || report.bare.as_ref().is_some_and(|found| !found.missing.is_empty())
        || report.stored.as_ref().is_some_and(StoredReport::closable)
        || report.copies.as_ref().is_some_and(|found| {
            found.findings.iter().any(|one| one.matter == CopyMatter::Missing)
        })
        || report.media.as_ref().is_some_and(|found| found.wrong().any(is_mendable));
    let what = format!("{} sequences, events or images are not where they should be", report.wrong);
    match (closable, args.repair && !args.dry_run) {
        (true, false) => format!("{what}: holdfast verify --repair brings back what can be"),
        (true, true) => format!("{what} yet: what was asked for goes on; look again later"),
        (false, _) => format!("{what}, and no repair closes them: docs/spec/verify.md says why"),
    }
}

/// Whether the sweep does something about it; what it leaves by configuration it leaves for a person.
fn is_mendable(found: &Named) -> bool {
    found.matter != Matter::Resized
}

/// Repairs, and looks again until nothing is left to do or the time is over.
async fn repair(tiers: &Tiers, scope: &Scope, args: &Args) -> anyhow::Result<Vec<StreamReport>> {
    let deadline = tokio::time::Instant::now() + args.wait;
    let mut done: BTreeMap<String, (Repaired, Vec<Repair>)> = BTreeMap::new();
    loop {
        let mut streams = check(tiers, scope).await?;
        for report in &mut streams {
            let name = format!("{} {}", report.stream, report.epoch);
            let (sum, before) = done.entry(name).or_default();
            let plan = plan_repair(&report.state, &report.findings, args.dry_run);
            // A repair that was asked for takes effect by itself; only another one is news.
            if !plan.is_empty() && before.len() < MAX_ROUNDS && !before.contains(&plan) {
                add(sum, &tiers.edge.repair(&plan).await?);
                before.push(plan);
            }
            report.repaired = Some(sum.clone()).filter(|sum| sum.changes() > 0);
        }
        let open = streams.iter().flat_map(|one| &one.findings).any(can_be_closed);
        if !open || args.dry_run || tokio::time::Instant::now() >= deadline {
            return Ok(streams);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn check(tiers: &Tiers, scope: &Scope) -> anyhow::Result<Vec<StreamReport>> {
    let compared = console::verify::Tiers { edge: &tiers.edge, cloud: tiers.cloud.as_ref() };
    let progress = Progress::count("comparing streams");
    let found = console::verify::check(&compared, scope, |done, of| {
        progress.reach(done, of);
    })
    .await;
    progress.done();
    found
}

/// Whether a repair may close it.
fn can_be_closed(finding: &Finding) -> bool {
    matches!(
        finding.kind,
        FindingKind::MissingAtEdge
            | FindingKind::LostAtEdge
            | FindingKind::MissingAtCloud
            | FindingKind::Untold
    )
}

fn add(sum: &mut Repaired, part: &Repaired) {
    sum.dry_run = part.dry_run;
    sum.asked += part.asked;
    sum.adopted += part.adopted;
    sum.adopted_lost += part.adopted_lost;
    sum.resent += part.resent;
    sum.rebuilt += part.rebuilt;
    sum.retold += part.retold;
    sum.audit_id = part.audit_id.or(sum.audit_id);
}

/// A span of time, such as 60s, 5m or 2h.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let expected = || "expected a span of time such as 60s, 5m or 2h".to_owned();
    let span: jiff::SignedDuration = text.parse().map_err(|_| expected())?;
    Duration::try_from(span).map_err(|_| expected())
}
