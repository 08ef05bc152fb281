//! Holds docs/reference/metrics.md to the sources: every metric that the code names is on the page, the page names no other, and its types
//! and labels are those of the code. By text: a metric's name stands in the sources as a whole string, once for each place that makes or
//! describes it, mostly after a word that says its type and, in macros, before its first label.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Strings that begin like a metric and are none.
const NO_METRIC: &[&str] = &["holdfast_drill_", "holdfast_console"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names that stand between `quote`s in a text.
fn quoted(text: &str, quote: char) -> BTreeSet<String> {
    let start = format!("{quote}holdfast_");
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices(&start) {
        let rest = &text[at + 1..];
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap();
        if rest[end..].starts_with(quote) {
            names.insert(rest[..end].to_owned());
        }
    }
    names
}

/// Rust files under every crate's `src`.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The text of every one of them.
fn texts() -> Vec<String> {
    let mut files = Vec::new();
    for member in std::fs::read_dir(root().join("crates")).unwrap() {
        let source = member.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// What the page says of a metric.
struct Row {
    kind: String,
    labels: BTreeSet<String>,
    /// The words of its section above the table: a label that all of a section have stands there.
    section: String,
}

fn rows() -> BTreeMap<String, Row> {
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let mut rows = BTreeMap::new();
    let mut section = String::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match cells[..] {
            ["", name, kind, labels, ..] if name.starts_with("`holdfast_") => {
                let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
                let row = Row { kind: kind.to_owned(), labels, section: section.clone() };
                rows.insert(name.trim_matches('`').to_owned(), row);
            }
            _ if line.starts_with('#') => section.clear(),
            _ => section.push_str(line),
        }
    }
    rows
}

/// The type of the metric whose name stands between these texts, where they say it.
fn kind(before: &str, after: &str) -> Option<&'static str> {
    // A table of name, type and help.
    for (word, kind) in [("\", \"gauge\"", "g"), ("\", \"counter\"", "c")] {
        if after.starts_with(word) {
            return Some(kind);
        }
    }
    // `word(name`, `word!(name`, `word((name` or `word(recorder, name`, over lines or not.
    let before = before.trim_end().trim_end_matches("recorder,").trim_end_matches('&').trim_end();
    let call = before.trim_end_matches('(').trim_end_matches('!');
    if call == before {
        return None;
    }
    let begins =
        call.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |at| at + 1);
    match &call[begins..] {
        "counter" | "describe_counter" | "plain" | "count" | "labelled" => Some("c"),
        "gauge" | "describe_gauge" | "level" => Some("g"),
        "histogram" | "describe_histogram" => Some("h"),
        _ => None,
    }
}

/// The label that a macro gives right after the name.
fn label(after: &str) -> Option<&str> {
    let rest = after.strip_prefix("\",")?.trim_start().strip_prefix('"')?;
    let (label, rest) = rest.split_once('"')?;
    rest.trim_start().starts_with("=>").then_some(label)
}

#[test]
fn types_and_labels_on_the_page_are_those_of_the_code() {
    let rows = rows();
    let (mut typed, mut labelled) = (BTreeSet::new(), BTreeSet::new());
    for text in texts() {
        for (at, _) in text.match_indices("\"holdfast_") {
            let end = at + 1 + text[at + 1..].find('"').unwrap();
            let name = &text[at + 1..end];
            let Some(row) = rows.get(name) else { continue };
            if let Some(kind) = kind(&text[..at], &text[end..]) {
                assert_eq!(
                    row.kind, kind,
                    "left: the type of {name} on the page; right: in the code"
                );
                typed.insert(name.to_owned());
            }
            if let Some(label) = label(&text[end..]) {
                let there =
                    row.labels.contains(label) || row.section.contains(&format!("`{label}`"));
                assert!(there, "the page does not say that {name} has the label {label}");
                labelled.insert(name.to_owned());
            }
        }
    }
    assert!(typed.len() > 90, "the types of only {} were found", typed.len());
    assert!(labelled.len() > 15, "the labels of only {} were found", labelled.len());
    for (name, row) in rows {
        assert_eq!(row.kind == "c", name.ends_with("_total"), "{name} is called a {}", row.kind);
    }
}

#[test]
fn the_page_of_metrics_names_what_the_code_has() {
    let mut code = BTreeSet::new();
    for text in texts() {
        code.extend(quoted(&text, '"'));
    }
    // `_bucket` is what Prometheus makes of a histogram, as a unit test reads it.
    code.retain(|name| !NO_METRIC.contains(&name.as_str()) && !name.ends_with("_bucket"));
    assert!(code.len() > 50, "the scan found only {code:?}");

    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let page = quoted(&page, '`');
    let missing: Vec<_> = code.difference(&page).collect();
    let stale: Vec<_> = page.difference(&code).collect();
    assert!(missing.is_empty(), "docs/reference/metrics.md lacks {missing:?}");
    assert!(stale.is_empty(), "docs/reference/metrics.md has {stale:?}, and the code has not");
}
