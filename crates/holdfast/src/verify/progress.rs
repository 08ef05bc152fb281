//! How far a comparison is: on a terminal, and nowhere else.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over things that are counted.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar whose length is heard with the first step.
    pub(super) fn count(what: &'static str) -> Progress {
        let bar = ProgressBar::new(0);
        if let Ok(style) =
            ProgressStyle::with_template("{msg} {bar:40} {pos} of {len}, {eta} to go")
        {
            bar.set_style(style);
        }
        bar.set_message(what);
        Progress { bar }
    }

    /// So many are done, of so many.
    pub(super) fn reach(&self, done: usize, of: usize) {
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
    }

    /// It is over, and leaves nothing behind.
    pub(super) fn done(self) {
        self.bar.finish_and_clear();
    }
}
