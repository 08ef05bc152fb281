//! `status`, `spool inspect` and `spool verify`. Read-only.

use crate::config;
use crate::screen::{self, Paint, bytes, count, span};
use anyhow::{Context, Result, bail};
use clap::Args;
use event::id::Epoch;
use event::wire::{Clock, IgnoredAcks, IgnoredCommands, Report, State, VERSION};
use jiff::Timestamp;
use node::{Config, Link, LinkState, Local, NodeStatus};
use spool::Spool;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which spool.
#[derive(Args)]
pub(crate) struct Place {
    /// The spool's folder, like that of a card from another node. Default: the configured one.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The configuration file that names the folder.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// As JSON, for programs.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Place {
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(config::load(self.config.as_deref())
                .context("no --dir was given, so the configuration must name the folder")?
                .0
                .spool
                .dir),
        }
    }
}

/// Asks the node; if none answers, looks at its spool.
pub(crate) fn status(named: Option<&Path>, json: bool) -> Result<ExitCode> {
    let (config, _) = config::load(named)?;
    let (status, code) = match node::socket::query_status(&config.socket) {
        Ok(status) => (status, ExitCode::SUCCESS),
        Err(node::socket::QueryError::NotRunning(_)) => (from_spool(&config)?, ExitCode::from(2)),
        Err(error) => bail!("{}: {error}", config.socket.display()),
    };
    if json {
        screen::say(&format!("{}\n", serde_json::to_string_pretty(&status)?))?;
    } else {
        screen::say(&render(&status, Paint::new()))?;
    }
    Ok(code)
}

fn from_spool(config: &Config) -> Result<NodeStatus> {
    let spool = Spool::open_read_only(&config.spool.dir)
        .context("no node answers at its socket, and its spool cannot be read either")?;
    let found = spool.inspect()?;
    let waiting = found.gaps.iter().filter(|gap| gap.to_seq > found.acked).count();
    let report = Report {
        head: found.head,
        acked: found.acked,
        oldest: found.segments.first().map_or(found.head + 1, |segment| segment.base),
        bytes: found.segments.iter().map(|segment| segment.bytes).sum(),
        backlog: found.head.saturating_sub(found.acked),
        drops: found.dropped_records,
        gaps: waiting as u64,
        clock: Clock::Unset,
        at: Timestamp::now(),
        free_bytes: None,
        oldest_at: node::oldest_at(spool.reader(found.acked + 1)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        written_bytes_per_day: None,
        ignored_acks: IgnoredAcks::default(),
        ignored_commands: IgnoredCommands::default(),
    };
    let local = Local {
        node_id: config.identity.node_id.clone(),
        link: Link { state: LinkState::Unknown, since: None, detail: None },
        broker: config.broker.address.to_string(),
        in_flight: 0,
        resent_batches: 0,
        unsendable: 0,
        http: false,
        drain_seconds: None,
        last_ack_at: None,
        samplers: 0,
        max_spool_bytes: config.spool.max_spool_bytes,
        segments: found.segments.len() as u64,
        started_at: None,
        last_error: None,
    };
    let epoch = Epoch::from_uuid(found.epoch)?;
    Ok(NodeStatus { v: VERSION, state: State::Offline, epoch, report, local })
}

fn render(status: &NodeStatus, paint: Paint) -> String {
    let (report, local) = (&status.report, &status.local);
    let ago = |at: Timestamp| {
        let seconds = Timestamp::now().duration_since(at).as_secs();
        format!("{} ago", span(u64::try_from(seconds).unwrap_or(0)))
    };
    let since = local.link.since.map_or(String::new(), |at| format!(", changed {}", ago(at)));
    let running = match status.state {
        State::Online => paint.good("running"),
        State::Offline => paint.bad("not running; this is what its spool says"),
    };
    let link = match (local.link.state, local.link.detail.as_deref().unwrap_or("")) {
        (LinkState::Up, _) => paint.good("up"),
        (LinkState::Down, why) => paint.bad(&format!("down: {why}")),
        (LinkState::Refused, why) => paint.bad(&format!("refused: {why}")),
        (LinkState::Unknown, _) => paint.dim("unknown"),
    };
    let drain = match (report.backlog, local.drain_seconds) {
        (0, _) => String::new(),
        (_, Some(seconds)) => format!(", drains in about {}", span(seconds)),
        (_, None) => ", not shrinking".to_owned(),
    };
    let waits = report.oldest_at.map_or(String::new(), |at| {
        let seconds = report.at.duration_since(at).as_secs();
        format!(", the oldest waits for {}", span(u64::try_from(seconds).unwrap_or(0)))
    });
    let free = report.free_bytes.map_or("unknown".to_owned(), bytes);
    let wear = match report.written_bytes_per_day {
        Some(written) => format!("{} written per day", bytes(written)),
        None => "known after a minute".to_owned(),
    };
    let clock = match (status.state, report.clock) {
        (State::Offline, _) => paint.dim("unknown"),
        (_, Clock::Set) => paint.good("set"),
        (_, Clock::Unset) => paint.bad("not known to be set: samples are marked UNCERTAIN"),
    };
    let last_ack = local.last_ack_at.map_or("none yet".to_owned(), ago);
    let acks = report.ignored_acks;
    let http = if local.http { ", backlog over HTTP" } else { "" };
    let mut out = String::new();
    let mut row = |name: &str, text: String| {
        // Writing to memory does not fail.
        let _ = writeln!(out, "{}  {text}", paint.dim(&format!("{name:9}")));
    };
    row("node", format!("{} {running}, version {}", local.node_id, report.version));
    row("epoch", status.epoch.to_string());
    row("link", format!("{link}{since}, {}", local.broker));
    row("head", count(report.head));
    row("acked", format!("{}, last ack {last_ack}", count(report.acked)));
    row("backlog", format!("{}{waits}{drain}{http}", count(report.backlog)));
    row(
        "sending",
        format!(
            "{} batches in flight, {} sent again",
            count(local.in_flight),
            count(local.resent_batches)
        ),
    );
    row(
        "lost",
        format!(
            "{} records dropped, {} gaps not yet acked, {} unsendable",
            count(report.drops),
            count(report.gaps),
            count(local.unsendable)
        ),
    );
    row(
        "disk",
        format!(
            "{} of {} in {} segments, {free} free",
            bytes(report.bytes),
            bytes(local.max_spool_bytes),
            count(local.segments)
        ),
    );
    row("wear", wear);
    row("clock", clock);
    row(
        "acks",
        format!(
            "ignored: {} regressed, {} foreign epoch, {} beyond head, {} malformed",
            acks.regressed, acks.foreign_epoch, acks.beyond_head, acks.malformed
        ),
    );
    row("samplers", format!("{} connected", count(local.samplers)));
    if let Some(error) = &local.last_error {
        row("trouble", paint.bad(error));
    }
    out
}

/// Shows a spool by its footers, or by reading every frame.
pub(crate) fn inspect(place: &Place, read_frames: bool) -> Result<ExitCode> {
    let spool = Spool::open_read_only(&place.folder()?)?;
    let report = if read_frames { spool.verify()? } else { spool.inspect()? };
    let damaged: u64 = report.segments.iter().map(|segment| segment.damaged_records).sum();
    let sound = damaged == 0;
    if place.json {
        screen::say(&format!("{}\n", as_json(&report, damaged)))?;
    } else {
        screen::say(&as_text(&report, damaged, read_frames, Paint::new()))?;
    }
    Ok(if read_frames && !sound { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn as_text(report: &spool::Report, damaged: u64, read_frames: bool, paint: Paint) -> String {
    let mut out = String::new();
    let total: u64 = report.segments.iter().map(|segment| segment.bytes).sum();
    // Writing to memory does not fail, here and below.
    let _ = writeln!(out, "epoch    {}", report.epoch);
    let _ = writeln!(out, "head     {}", count(report.head));
    let _ = writeln!(out, "acked    {}", count(report.acked));
    let _ = writeln!(out, "dropped  {}", count(report.dropped_records));
    let _ = writeln!(out, "written  {}", bytes(report.bytes_written_total));
    let _ = writeln!(out, "segments {}, {}", report.segments.len(), bytes(total));
    for segment in &report.segments {
        let state = if segment.sealed { "sealed" } else { "open" };
        let damage = match segment.damaged_records {
            0 => String::new(),
            n => paint.bad(&format!("  {} damaged", count(n))),
        };
        let (base, last) = (count(segment.base), count(segment.last));
        let size = bytes(segment.bytes);
        let _ = writeln!(out, "  {base:>14} to {last:>14}  {size:>10}  {state}{damage}");
        for place in &segment.damage {
            let range = format!("{} to {}", count(place.from_seq), count(place.to_seq));
            let _ = writeln!(out, "      {}", paint.bad(&format!("damaged: {range}")));
        }
    }
    for gap in &report.gaps {
        let (from, to) = (count(gap.from_seq), count(gap.to_seq));
        let _ = writeln!(out, "gap      {from} to {to}: {}", gap.reason.as_str());
    }
    for note in &report.notes {
        let _ = writeln!(out, "note     {note}");
    }
    if read_frames {
        let verdict = match damaged {
            0 => paint.good("every frame is whole"),
            n => paint.bad(&format!("{} records are damaged", count(n))),
        };
        let _ = writeln!(out, "verified {verdict}");
    }
    out
}

fn as_json(report: &spool::Report, damaged: u64) -> serde_json::Value {
    let gap = |gap: &spool::Gap| serde_json::json!({"from_seq": gap.from_seq, "to_seq": gap.to_seq, "reason": gap.reason.as_str()});
    let segment = |segment: &spool::SegmentReport| {
        serde_json::json!({
            "base": segment.base, "last": segment.last, "bytes": segment.bytes,
            "sealed": segment.sealed, "damaged_records": segment.damaged_records,
        })
    };
    serde_json::json!({
        "epoch": report.epoch, "head": report.head, "acked": report.acked,
        "dropped_records": report.dropped_records, "damaged_records": damaged,
        "bytes_written_total": report.bytes_written_total,
        "segments": report.segments.iter().map(segment).collect::<Vec<_>>(),
        "gaps": report.gaps.iter().map(gap).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}
