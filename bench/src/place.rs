//! Where a run happens: the target folder, the programs built beside this one, and what the terminal shows meanwhile.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;
use tempfile::TempDir;

/// The folders of a run, and its progress line.
pub(crate) struct Place {
    /// The build's target folder.
    pub(crate) target: PathBuf,
    /// Whether sizes are to be those that are named, however long it takes.
    pub(crate) full: bool,
    programs: PathBuf,
    progress: Option<ProgressBar>,
}

impl Place {
    /// From where this program lies: `target/PROFILE/bench`.
    pub(crate) fn find(full: bool) -> Result<Place> {
        let program = std::env::current_exe().context("find this program")?;
        let programs = program.parent().context("this program is in no folder")?.to_owned();
        let target = programs.parent().context("this program is in no target folder")?.to_owned();
        let progress = std::io::stderr().is_terminal().then(|| {
            let progress = ProgressBar::new_spinner();
            progress.enable_steady_tick(Duration::from_millis(100));
            progress
        });
        Ok(Place { target, full, programs, progress })
    }

    /// An empty folder on the disk of the target folder; it goes when it is dropped.
    pub(crate) fn folder(&self) -> Result<TempDir> {
        tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(&self.target)
            .with_context(|| format!("make a folder in {}", self.target.display()))
    }

    /// A program of ours, built with the same profile.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        let path = self.programs.join(name);
        if !path.is_file() {
            bail!("{} is not built; ./dev bench builds it", path.display());
        }
        Ok(path)
    }

    /// Shows what is being done.
    pub(crate) fn say(&self, benchmark: &str, what: &str) {
        match &self.progress {
            Some(progress) => progress.set_message(format!("{benchmark}: {what}")),
            None => drop(writeln!(std::io::stderr(), "{benchmark}: {what}")),
        }
    }

    /// Shows what went wrong, and keeps it on the screen.
    pub(crate) fn complain(&self, what: &str) {
        match &self.progress {
            Some(progress) => progress.suspend(|| drop(writeln!(std::io::stderr(), "{what}"))),
            None => drop(writeln!(std::io::stderr(), "{what}")),
        }
    }

    /// Takes the progress line away.
    pub(crate) fn be_quiet(&self) {
        if let Some(progress) = &self.progress {
            progress.finish_and_clear();
        }
    }
}
