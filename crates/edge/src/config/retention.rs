//! The `retention.*` keys: how long things stay, and how large the database may become.

use std::path::PathBuf;
use std::time::Duration;

use settings::{Key, Kind, Section};

/// What may be kept for how long; docs/spec/retention.md says what each value does.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Days that raw telemetry stays.
    pub telemetry_raw_days: u32,
    /// Days that aggregates stay.
    pub telemetry_agg_days: u32,
    /// Days that media stay.
    pub media_days: u32,
    /// Days that finished rows of the outbox stay.
    pub outbox_days: u32,
    /// Whether media wait for their copy in the cloud.
    pub media_until_copied: UntilCopied,
    /// What the stored images may take.
    pub max_media_bytes: Option<u64>,
    /// Whether media of an open session may go.
    pub media_of_open_sessions: bool,
    /// What the database may use.
    pub max_database_bytes: Option<u64>,
    /// What must stay free on a file system.
    pub min_free: Option<MinFree>,
    /// How often everything is looked at.
    pub every: Duration,
    /// How often the disk is looked at.
    pub disk_every: Duration,
    /// Rows in one transaction.
    pub batch_rows: u32,
    /// Pages of a table in one transaction.
    pub batch_pages: u32,
    /// The share of the time that it works.
    pub share: f64,
}

/// What must stay free on a file system.
#[derive(Debug, Clone)]
pub struct MinFree {
    /// Anything on it.
    pub path: PathBuf,
    /// How much.
    pub bytes: u64,
}

/// Whether media wait for their copy in the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UntilCopied {
    /// As the cloud says of itself; while it has said nothing, they wait.
    Auto,
    /// They wait.
    Always,
    /// They do not.
    Never,
}

impl UntilCopied {
    const WORDS: &'static [&'static str] = &["auto", "always", "never"];

    fn read(word: &str) -> UntilCopied {
        match word {
            "always" => UntilCopied::Always,
            "never" => UntilCopied::Never,
            _ => UntilCopied::Auto,
        }
    }
}

const SECOND: u64 = 1_000;
const DAY: u64 = 24 * 3_600 * SECOND;
const DAYS: Kind = Kind::Integer { min: 1, max: 36_500 };
/// Less than this is an empty database.
const LEAST_DATABASE: u64 = 16 << 20;
const SIZE: Kind = Kind::Size { min: LEAST_DATABASE, max: 1 << 50 };

pub(super) const KEYS: [Key; 15] = [
    Key::new("retention.telemetry_raw_days", DAYS, "Days that raw telemetry stays at the site.")
        .default("90")
        .alias(&["TELEMETRY_RAW_RETENTION_DAYS"]),
    Key::new("retention.telemetry_agg_days", DAYS, "Days that aggregates stay at the site.")
        .default("365")
        .alias(&["TELEMETRY_AGG_RETENTION_DAYS"]),
    Key::new("retention.media_days", DAYS, "Days that images stay at the site.")
        .default("90")
        .alias(&["MEDIA_RETENTION_DAYS"]),
    Key::new(
        "retention.outbox_days",
        DAYS,
        "Days that events stay in the outbox after the cloud has them, and dead letters before they are archived.",
    )
    .default("30")
    .alias(&["OUTBOX_RETENTION_DAYS"]),
    Key::new(
        "retention.media_of_open_sessions",
        Kind::Flag,
        "Whether images of a session that is not finalized may go.",
    )
    .default("false"),
    Key::new(
        "retention.media_until_copied",
        Kind::Choice(UntilCopied::WORDS),
        "Whether images stay until the cloud has a copy of them: auto, as the cloud says of itself; always; never.",
    )
    .default("auto"),
    Key::new(
        "retention.max_media_bytes",
        Kind::Size { min: 1 << 20, max: 1 << 50 },
        "What the site's images may take in the object store. Beyond it those that the cloud has go first, then others, and each of these is declared; no limit when absent.",
    ),
    Key::new(
        "retention.max_database_bytes",
        SIZE,
        "What the database may use. Beyond it what was not delivered is dropped, and declared; no limit when absent.",
    ),
    Key::new(
        "retention.min_free_bytes",
        SIZE,
        "What must stay free where retention.disk_path is; no limit when absent.",
    ),
    Key::new(
        "retention.disk_path",
        Kind::Text,
        "A folder on the file system of the database, if that is on this machine.",
    ),
    Key::new(
        "retention.every",
        Kind::Duration { min_ms: SECOND, max_ms: 7 * DAY },
        "How often what has expired is removed.",
    )
    .default("6h"),
    Key::new(
        "retention.disk_every",
        Kind::Duration { min_ms: SECOND, max_ms: DAY },
        "How often the disk limits are looked at.",
    )
    .default("1m"),
    Key::new(
        "retention.batch_rows",
        Kind::Integer { min: 1, max: 10_000 },
        "Rows that one transaction removes.",
    )
    .default("1000"),
    Key::new(
        "retention.batch_pages",
        Kind::Integer { min: 1, max: 4_096 },
        "Pages of the outbox that one transaction reads for rows to remove.",
    )
    .default("64"),
    Key::new(
        "retention.share",
        Kind::Number { min: 0.01, max: 1.0 },
        "The share of the time that retention works; it rests between batches.",
    )
    .default("0.2"),
];

impl Retention {
    pub(super) fn from_section(section: &Section) -> Result<Retention, settings::Error> {
        let size = |key| section.find(key)?.map(|value| value.size()).transpose();
        let path = section.find("retention.disk_path")?.map(|value| value.path());
        let min_free = match (size("retention.min_free_bytes")?, path) {
            (Some(bytes), Some(path)) => Some(MinFree { path, bytes }),
            (None, None) => None,
            _ => {
                return Err(section.refuse(
                    "retention.disk_path",
                    "goes together with retention.min_free_bytes: give both or none",
                ));
            }
        };
        Ok(Retention {
            telemetry_raw_days: section.get("retention.telemetry_raw_days")?.parse()?,
            telemetry_agg_days: section.get("retention.telemetry_agg_days")?.parse()?,
            media_days: section.get("retention.media_days")?.parse()?,
            outbox_days: section.get("retention.outbox_days")?.parse()?,
            media_of_open_sessions: section.get("retention.media_of_open_sessions")?.flag()?,
            media_until_copied: UntilCopied::read(
                &section.get("retention.media_until_copied")?.text(),
            ),
            max_media_bytes: size("retention.max_media_bytes")?,
            max_database_bytes: size("retention.max_database_bytes")?,
            min_free,
            every: section.get("retention.every")?.duration()?,
            disk_every: section.get("retention.disk_every")?.duration()?,
            batch_rows: section.get("retention.batch_rows")?.parse()?,
            batch_pages: section.get("retention.batch_pages")?.parse()?,
            share: section.get("retention.share")?.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    fn load(pairs: &[(&str, &str)]) -> Result<Config, settings::Error> {
        Config::load(None, |name| {
            let url = ("DATABASE_URL", "postgres:///farm?host=/run");
            let found = pairs.iter().chain([&url]).find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn the_defaults_are_the_sites_and_its_variables_are_heard() {
        let retention = load(&[]).unwrap().retention;
        let days = |r: &super::Retention| {
            [r.telemetry_raw_days, r.telemetry_agg_days, r.media_days, r.outbox_days]
        };
        assert_eq!(days(&retention), [90, 365, 90, 30]);
        assert!(!retention.media_of_open_sessions && retention.max_database_bytes.is_none());
        let given = load(&[
            ("TELEMETRY_RAW_RETENTION_DAYS", "1"),
            ("TELEMETRY_AGG_RETENTION_DAYS", "2"),
            ("MEDIA_RETENTION_DAYS", "3"),
            ("OUTBOX_RETENTION_DAYS", "4"),
            ("HOLDFAST_EDGE_RETENTION_MAX_DATABASE_BYTES", "2GiB"),
        ]);
        let retention = given.unwrap().retention;
        assert_eq!(days(&retention), [1, 2, 3, 4]);
        assert_eq!(retention.max_database_bytes, Some(2 << 30));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (pair, named) in [
            (("MEDIA_RETENTION_DAYS", "0"), "retention.media_days"),
            (("HOLDFAST_EDGE_RETENTION_MIN_FREE_BYTES", "1GiB"), "retention.disk_path"),
            (("HOLDFAST_EDGE_RETENTION_SHARE", "0"), "retention.share"),
        ] {
            let error = load(&[pair]).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
