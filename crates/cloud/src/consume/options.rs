//! What the consumers were told.

use std::collections::BTreeSet;
use std::time::Duration;

use event::Window;
use settings::Section;

use super::analytics::ranges::Ranges;
use super::debounce::Debounce;
use super::media::{DEFAULT_COPIES, Stores};

/// What the consumers were told.
#[derive(Debug, Clone, PartialEq)]
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
    /// From where to where objects are copied; `None`: they stay where they are.
    pub stores: Option<Stores>,
    /// Objects copied at once; each is held in memory.
    pub copies: usize,
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
            stores: None,
            copies: DEFAULT_COPIES,
        }
    }
}

impl Options {
    /// Takes the values of the cloud's section.
    pub(crate) fn from_section(section: &Section) -> Result<Options, settings::Error> {
        let text: String = section.get("telemetry.windows")?.parse()?;
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let windows = words.map(str::parse::<Window>).collect::<Result<BTreeSet<Window>, String>>();
        let windows = windows.map_err(|why| section.refuse("telemetry.windows", why))?;
        let debounce = Debounce {
            quiet: section.get("telemetry.quiet")?.duration()?,
            longest: section.get("telemetry.longest_wait")?.duration()?,
        };
        if debounce.longest < debounce.quiet {
            let why = "is shorter than telemetry.quiet, which would then never be waited for";
            return Err(section.refuse("telemetry.longest_wait", why));
        }
        let text: String = section.get("analytics.ranges")?.parse()?;
        let ranges = text.parse::<Ranges>();
        let ranges = ranges.map_err(|why| section.refuse("analytics.ranges", why))?;
        let stores = Stores::from_section(section)?;
        let copies = section.get("media.copies")?.parse()?;
        Ok(Options { windows, debounce, ranges, stores, copies, ..Options::default() })
    }
}
