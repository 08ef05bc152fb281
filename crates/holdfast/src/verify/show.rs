//! The report for people.

use std::fmt::Write as _;

use edge::media::sweep::Matter;
use event::ledger::{Finding, FindingKind, HeldBy, Repaired};

use super::Report;
use super::bare::BareReport;
use super::copies::{CopyMatter, CopyReport};
use super::media::MediaReport;
use super::stored::StoredReport;
use crate::table;
use console::verify::{Held, StreamReport};

/// Findings that are printed of one stream; `--json` has all.
const SHOWN: usize = 20;

pub(super) fn report(report: &Report, dry_run: bool) -> String {
    let mut text = String::new();
    for note in &report.notes {
        let _ = writeln!(text, "Note: {note}\n");
    }
    text.push_str(&match report.streams.is_empty() {
        true => "No tier knows any stream yet.\n".to_owned(),
        false => streams(report, dry_run),
    });
    text.push_str(&report.bare.as_ref().map_or_else(String::new, |found| bare(found, dry_run)));
    text.push_str(&report.stored.as_ref().map_or_else(String::new, |found| stored(found, dry_run)));
    text.push_str(&report.copies.as_ref().map_or_else(String::new, |found| copies(found, dry_run)));
    text.push_str(&report.media.as_ref().map_or_else(String::new, media));
    text
}

fn bare(found: &BareReport, dry_run: bool) -> String {
    let mut text = format!(
        "\nEvents without a sequence: {} that the cloud acknowledged, in {} hours, {} of them looked at by id.\n",
        found.events, found.hours, found.differing_hours
    );
    for one in found.missing.iter().take(SHOWN) {
        let _ = writeln!(text, "  {}: acknowledged, and missing in the cloud", one.event_id);
    }
    if found.missing.len() > SHOWN {
        let _ = writeln!(text, "  and {} more: see --json", found.missing.len() - SHOWN);
    }
    if found.unchecked > 0 {
        let _ = writeln!(text, "  {} not comparable any more", found.unchecked);
    }
    if let Some(only) = found.cloud_only.as_ref().filter(|only| !only.is_empty()) {
        let _ = writeln!(
            text,
            "  {} of weighings, images and results only the cloud has: they came after the backup that this site was \
             restored from, or from another site of the tenant",
            only.len()
        );
    }
    if found.resent > 0 {
        let what = if dry_run { "would be done" } else { "done" };
        let _ = writeln!(text, "  {what}: {} sent to the cloud again", found.resent);
    }
    text
}

fn stored(found: &StoredReport, dry_run: bool) -> String {
    let mut text = format!(
        "\nStored in the cloud: of {} events that it accepted and remembers, {} are in no store.\n",
        found.remembered, found.unstored
    );
    for one in found.findings.iter().take(SHOWN) {
        let what = match one.at_site {
            None => "accepted, and in no store: lost between the bus and the stores",
            Some(true) => "accepted, and in no store; the site has it",
            Some(false) => {
                "accepted, and in no store; this site does not have it: cannot be closed from here"
            }
        };
        let _ = writeln!(text, "  {}: unstored: {what}", one.event_id);
    }
    let shown = found.findings.len().min(SHOWN) as u64;
    if found.unstored > shown {
        let _ = writeln!(text, "  and {} more: see --json", found.unstored - shown);
    }
    if found.more {
        let _ = writeln!(text, "  there may be more than could be counted: repair, and look again");
    }
    if found.unchecked > 0 {
        let _ = writeln!(
            text,
            "  {} accepted before an upgrade, which cannot be told",
            found.unchecked
        );
    }
    if found.resent > 0 {
        let what = if dry_run { "would be done" } else { "done" };
        let _ = writeln!(
            text,
            "  {what}: {} sent to the cloud again, to be published again",
            found.resent
        );
    }
    text
}

fn copies(found: &CopyReport, dry_run: bool) -> String {
    if found.images == 0 {
        return String::new();
    }
    let (images, copied, moving) = (found.images, found.copied, found.on_the_way);
    let mut text = match found.copies {
        true => format!(
            "\nImages in the cloud: of {images} at the site {copied} are copied, {moving} on the way.\n"
        ),
        false => {
            format!("\nImages in the cloud: {images} at the site; the cloud makes no copies.\n")
        }
    };
    for one in found.findings.iter().take(SHOWN) {
        let what = match one.matter {
            CopyMatter::Missing => "the cloud does not know it",
            CopyMatter::Failed => {
                "the cloud gave up copying it: see holdfast media copies list there"
            }
            CopyMatter::Differs => "the cloud has another size or hash: a person must look",
        };
        let _ = writeln!(text, "  {}: {what}", one.media_id);
    }
    if found.findings.len() > SHOWN {
        let _ = writeln!(text, "  and {} more: see --json", found.findings.len() - SHOWN);
    }
    if found.told > 0 {
        let what = if dry_run { "would be done" } else { "done" };
        let _ = writeln!(text, "  {what}: the cloud told of {} again", found.told);
    }
    text
}

fn media(found: &MediaReport) -> String {
    let mut text =
        format!("\nImages: {} rows and {} objects compared.\n", found.rows, found.objects);
    for one in found.findings.iter().take(SHOWN) {
        let what = match one.matter {
            Matter::Missing => "a row without its object",
            Matter::Resized => {
                "the object is another one than its row tells of: a person must look"
            }
            Matter::Restored => "known as missing, and the object is back",
            Matter::Orphan => "an object without a row",
            Matter::Young => "a young object without a row, left alone for now",
            Matter::Leftover => "an object whose image was deleted",
            Matter::Foreign => "an object that is none of ours, left alone",
        };
        let done = if one.mended { ": done" } else { "" };
        let _ = writeln!(text, "  {}: {what}{done}", one.object_key);
    }
    if found.findings.len() > SHOWN {
        let _ = writeln!(text, "  and {} more: see --json", found.findings.len() - SHOWN);
    }
    text
}

fn streams(report: &Report, dry_run: bool) -> String {
    let mut text = String::new();
    let headings =
        ["node", "epoch", "node's head", "edge has", "lost", "cloud has", "lost", "verdict"];
    let mut rows = table::new(&headings, &[2, 3, 4, 5, 6]);
    let number = |n: u64| table::grouped(i64::try_from(n).unwrap_or(i64::MAX));
    for one in &report.streams {
        let cloud = |part: fn(&Held) -> u64| {
            one.cloud.as_ref().map_or("?".to_owned(), |held| number(part(held)))
        };
        let epoch = one.epoch.to_string();
        rows.add_row([
            one.stream.to_string(),
            epoch.get(24..).unwrap_or_default().to_owned(),
            one.node.as_ref().map_or("?".to_owned(), |node| number(node.head)),
            number(one.edge.received),
            number(one.edge.lost),
            cloud(|held| held.received),
            cloud(|held| held.lost),
            verdict(one),
        ]);
    }
    let _ = writeln!(text, "{rows}");
    for one in &report.streams {
        if !one.findings.is_empty() || one.repaired.is_some() {
            text.push_str(&stream(one, dry_run));
        }
    }
    text
}

fn verdict(one: &StreamReport) -> String {
    let wrong: u64 = one.wrong().map(Finding::count).sum();
    let moving: u64 = one.findings.iter().map(Finding::count).sum::<u64>() - wrong;
    let mut words = Vec::new();
    if wrong > 0 {
        words.push(format!("{wrong} wrong"));
    }
    if moving > 0 {
        words.push(format!("{moving} on the way"));
    }
    if one.unchecked > 0 {
        words.push(format!("{} not comparable any more", one.unchecked));
    }
    match words.is_empty() {
        true => "the same".to_owned(),
        false => words.join(", "),
    }
}

fn stream(one: &StreamReport, dry_run: bool) -> String {
    let mut text = format!("\n{} in epoch {}\n", one.stream, one.epoch);
    for finding in one.findings.iter().take(SHOWN) {
        let range = match finding.from == finding.to {
            true => finding.from.to_string(),
            false => format!("{}-{}", finding.from, finding.to),
        };
        let _ = writeln!(text, "  {range} ({}): {}", finding.count(), sentence(finding));
    }
    if one.findings.len() > SHOWN {
        let _ = writeln!(text, "  and {} more: see --json", one.findings.len() - SHOWN);
    }
    if let Some(done) = &one.repaired {
        let _ =
            writeln!(text, "  {}: {}", if dry_run { "would be done" } else { "done" }, deeds(done));
    }
    text
}

fn sentence(finding: &Finding) -> &'static str {
    match (finding.kind, finding.held_by) {
        (FindingKind::Spooled, _) => "in the node's spool, on its way to the edge",
        (FindingKind::MissingAtEdge, HeldBy::Node) => {
            "missing at the edge; the node may still have it"
        }
        (FindingKind::MissingAtEdge, HeldBy::Cloud) => "missing at the edge; the cloud has it",
        (FindingKind::MissingAtEdge, HeldBy::KnownLost) => {
            "missing at the edge; the cloud knows that it was lost"
        }
        (FindingKind::MissingAtEdge, _) => "missing at the edge; nobody is known to have it",
        (FindingKind::LostAtEdge, _) => "lost at the edge; the cloud has it",
        (FindingKind::OnItsWay, _) => "at the edge, on its way to the cloud",
        (FindingKind::DeadLetter, _) => {
            "a dead letter at the edge: see holdfast outbox list --status dlq"
        }
        (FindingKind::MissingAtCloud, _) => "missing in the cloud; the edge has it",
        (FindingKind::Untold, _) => "the cloud was not told what became of it",
        (FindingKind::Gone, _) => "missing in the cloud, and removed at the edge: cannot be closed",
        (FindingKind::Differs, _) => "edge and cloud have different events: a person must look",
        (FindingKind::Tampered, _) => "the edge's rows are not those that were counted",
    }
}

fn deeds(done: &Repaired) -> String {
    let parts = [
        (done.asked, "asked of the node"),
        (done.adopted, "counted as held by the cloud"),
        (done.adopted_lost, "taken over as lost"),
        (done.resent, "sent to the cloud again"),
        (done.retold, "gaps told again"),
    ];
    let said = parts.iter().filter(|(count, _)| *count > 0);
    let said: Vec<String> = said.map(|(count, what)| format!("{count} {what}")).collect();
    said.join(", ")
}
