//! Lists and sentences for people.

use std::fmt::Write as _;

use super::folder::Found;
use super::manifest::Manifest;
use crate::table;

pub(super) fn list(found: &Found) -> String {
    let mut text = String::new();
    if found.backups.is_empty() {
        text.push_str("No backup yet: make one with holdfast backup create.\n");
    } else {
        let headings = ["backup", "role", "finished", "size", "database", "streams", "objects"];
        let mut rows = table::new(&headings, &[3, 4, 5, 6]);
        for one in &found.backups {
            rows.add_row([
                one.id.clone(),
                one.role.as_str().to_owned(),
                one.finished_at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
                size(one.bytes),
                size(one.database_bytes.unsigned_abs()),
                one.streams.to_string(),
                one.objects.to_string(),
            ]);
        }
        let _ = writeln!(text, "{rows}");
    }
    for one in &found.unfinished {
        let what = match one.under_way {
            true => "work under way",
            false => "left by an interrupted backup: the next create removes it",
        };
        let _ = writeln!(text, "{}: {what}", one.name);
    }
    for one in &found.damaged {
        let _ = writeln!(text, "not usable: {one}");
    }
    text
}

pub(super) fn created(manifest: &Manifest, pruned: &[String]) -> String {
    let seconds = manifest.finished_at.duration_since(manifest.started_at).as_secs();
    let rows = manifest.tables.values().sum();
    let mut text = format!(
        "{}: {} tables, {} rows, {} streams in {} ({} of database), made in {}.\n",
        manifest.id,
        manifest.tables.len(),
        table::grouped(rows),
        manifest.ledger.streams.len(),
        size(manifest.bytes()),
        size(manifest.database_bytes.unsigned_abs()),
        table::span(seconds),
    );
    if !pruned.is_empty() {
        let _ = writeln!(text, "Removed by age: {}.", pruned.join(", "));
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        1_048_576..10_737_418_240 => format!("{} MiB", bytes / 1_048_576),
        _ => format!("{} GiB", bytes / 1_073_741_824),
    }
}
