//! Holds docs/reference/metrics.md to the sources: every metric that the code names is on the page, and the page names no other. By
//! text: a metric's name stands in the sources as a whole string, once for each place that makes or describes it.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::collections::BTreeSet;
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

#[test]
fn the_page_of_metrics_names_what_the_code_has() {
    let mut files = Vec::new();
    for member in std::fs::read_dir(root().join("crates")).unwrap() {
        let source = member.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    let mut code = BTreeSet::new();
    for file in files {
        code.extend(quoted(&std::fs::read_to_string(file).unwrap(), '"'));
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
