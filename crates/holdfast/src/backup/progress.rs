//! Progress on a terminal, and nothing anywhere else.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or a counter where the end is not known.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Bytes of a known number.
    pub(super) fn bytes(what: &'static str, total: u64) -> Progress {
        let form = "{msg} {bar:40} {bytes} of {total_bytes}, {eta} to go";
        Progress::styled(ProgressBar::new(total), form, what)
    }

    /// Bytes whose number is known at the end.
    pub(super) fn growing(what: &'static str) -> Progress {
        Progress::styled(ProgressBar::new_spinner(), "{spinner} {msg} {bytes}, {elapsed}", what)
    }

    fn styled(bar: ProgressBar, form: &str, what: &'static str) -> Progress {
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Progress { bar }
    }

    pub(super) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    pub(super) fn set(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    pub(super) fn done(self) {
        self.bar.finish_and_clear();
    }
}
