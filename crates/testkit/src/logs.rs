//! What processes wrote, shown when a test fails: its folder is gone afterwards, and what happened with it.

use std::path::{Path, PathBuf};

/// The end of each log that is shown.
const LINES: usize = 25;

/// Shows the ends of all logs (`*.log`) below a folder when it is dropped by a test that fails.
#[derive(Debug)]
pub struct Logs(PathBuf);

impl Logs {
    /// The logs below this folder.
    pub fn below(folder: &Path) -> Logs {
        Logs(folder.to_owned())
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.0);
        }
    }
}

#[expect(clippy::print_stdout, reason = "the test harness captures what a test prints")]
fn show(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        // A server's own data is large, and nobody's log is there.
        if path.is_dir() && !path.join("PG_VERSION").exists() {
            show(&path);
        } else if path.extension().is_some_and(|ending| ending == "log") {
            let text = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            println!("---- the end of {}", path.display());
            println!("{}", lines[lines.len().saturating_sub(LINES)..].join("\n"));
        }
    }
}
