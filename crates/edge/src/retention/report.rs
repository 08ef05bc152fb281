//! What a turn did, or would do, and what it left and why.

use serde::Serialize;

use super::Disk;

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Job {
    /// Raw telemetry.
    Raw,
    /// Aggregates.
    Aggregates,
    /// Dead letters of the outbox.
    DeadLetters,
    /// Delivered rows of the outbox.
    Acked,
    /// Images.
    Media,
    /// Event ids of the dedupe cache.
    Dedupe,
    /// What the disk limit forces.
    Disk,
}

impl Job {
    /// Every job.
    pub const ALL: [Job; 7] = [
        Job::Raw,
        Job::Aggregates,
        Job::DeadLetters,
        Job::Acked,
        Job::Media,
        Job::Dedupe,
        Job::Disk,
    ];

    /// The job as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Job::Raw => "raw",
            Job::Aggregates => "aggregates",
            Job::DeadLetters => "dead_letters",
            Job::Acked => "acked",
            Job::Media => "media",
            Job::Dedupe => "dedupe",
            Job::Disk => "disk",
        }
    }
}

/// What became of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It has expired and went.
    Gone,
    /// It would go.
    WouldGo,
    /// It has expired and stays.
    Held,
    /// It was not delivered, and was given up.
    Dropped,
    /// It would be given up.
    WouldDrop,
}

impl Fate {
    /// As a person reads it.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Gone => "gone",
            Fate::WouldGo => "would go",
            Fate::Held => "held",
            Fate::Dropped => "DROPPED",
            Fate::WouldDrop => "WOULD DROP",
        }
    }
}

/// One thing that went or stayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Whose work it is.
    pub job: Job,
    /// A table, a partition, or what else it is.
    pub what: String,
    /// What became of it.
    pub fate: Fate,
    /// How many rows or objects; of a large partition about how many.
    pub rows: u64,
    /// How many bytes, where that is known.
    pub bytes: Option<u64>,
    /// Why it went or stayed.
    pub why: String,
}

/// A job that ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Whose work it is.
    pub job: Job,
    /// What it met.
    pub why: String,
}

/// What a turn did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Nothing was changed.
    pub dry_run: bool,
    /// The disk at the end.
    pub disk: Option<Disk>,
    /// Everything that went or stayed.
    pub lines: Vec<Line>,
    /// Jobs that ended early; the next turn does the rest of them.
    pub failures: Vec<Failure>,
}

impl Report {
    pub(super) fn new(dry_run: bool) -> Report {
        Report { dry_run, disk: None, lines: Vec::new(), failures: Vec::new() }
    }

    /// Rows of a job with this fate.
    pub fn rows(&self, job: Job, fate: Fate) -> u64 {
        let lines = self.lines.iter().filter(|line| line.job == job && line.fate == fate);
        lines.map(|line| line.rows).sum()
    }

    pub(super) fn add(
        &mut self,
        job: Job,
        what: impl Into<String>,
        fate: Fate,
        (rows, bytes): (u64, Option<u64>),
        why: impl Into<String>,
    ) {
        if rows > 0 || bytes.is_some() {
            let (what, why) = (what.into(), why.into());
            self.lines.push(Line { job, what, fate, rows, bytes, why });
        }
    }

    /// Gone, or would go.
    pub(super) fn leaving(&self) -> Fate {
        if self.dry_run { Fate::WouldGo } else { Fate::Gone }
    }
}
