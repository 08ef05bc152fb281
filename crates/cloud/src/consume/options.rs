//! What the consumers were told.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Window;
use super::analytics::ranges::Ranges;
use super::debounce::Debounce;

/// What the consumers were told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The windows whose aggregates are published.
    pub windows: BTreeSet<Window>,
    /// When a changed aggregate is published.
    pub debounce: Debounce,
    /// How long a bucket is left to change before it is computed, so that readings which come
    /// together cost one computation.
    pub ripen: Duration,
    /// The same for a day's KPIs, which cost more.
    pub ripen_days: Duration,
    /// How often marks are looked for when there was none.
    pub poll: Duration,
    /// The ranges in which animals are comfortable.
    pub ranges: Ranges,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            windows: BTreeSet::from([Window::Hour]),
            debounce: Debounce {
                quiet: Duration::from_secs(30),
                longest: Duration::from_secs(600),
            },
            ripen: Duration::from_secs(1),
            ripen_days: Duration::from_secs(15),
            poll: Duration::from_millis(500),
            ranges: Ranges::default(),
        }
    }
}
