//! From the images of a capture session to an observation of one day. docs/spec/schedule-extraction.md is the contract.
//!
//! Promises: an extraction takes bounded time and memory; nothing that it started goes on after it; what
//! cannot be read surely is refused and never guessed. Errors hold nothing of what an image or a command says.
//!
//! It must not know tables or leases, and only [`captures`] knows the object store: for the extractors images are files, and
//! the answer is a value. It fails with [`Error`], whose [`Blame`] tells the worker what to do next.

pub mod captures;
pub mod command;
pub mod ocr;
mod process;

use std::path::PathBuf;
use std::time::Duration;

use jiff::civil::Date;
use uuid::Uuid;

use crate::canonical::{MAX_ENTRIES, MAX_FIELD_CHARS};
use crate::observation::Observation;
use crate::worker::MAX_IMAGES;

/// One image of a session, as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// Its place in the session, as in `capture_image.sequence`. Errors name the image by it.
    pub sequence: i32,
    /// Where the file is.
    pub path: PathBuf,
}

/// What an extractor is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The capture session.
    pub session_id: Uuid,
    /// Whose it is.
    pub user_id: i64,
    /// The images, in order.
    pub images: Vec<ImageFile>,
    /// Where the clock of the images stands: an IANA name, an offset, or nothing for UTC.
    pub timezone: String,
}

/// One of the ways to read images.
#[derive(Debug, Clone)]
pub enum Extractor {
    /// A program of the operator's.
    Command(command::Command),
    /// Tesseract.
    Ocr(ocr::Ocr),
}

impl Extractor {
    /// Reads the images of a session.
    pub async fn extract(&self, request: &Request) -> Result<Observation, Error> {
        if request.images.is_empty() {
            return Err(Error::NoImages);
        }
        if request.images.len() > MAX_IMAGES {
            return Err(Error::TooManyImages(request.images.len()));
        }
        match self {
            Extractor::Command(command) => command.extract(request).await,
            Extractor::Ocr(ocr) => ocr.extract(request).await,
        }
    }
}

/// For folders that nobody else may look into.
fn private() -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o700)
}

/// Whose fault a failure is; that alone decides what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The images: the session fails, and its error tells a person what to do.
    Images,
    /// This run: it may go well next time, and counts as an attempt.
    Run,
    /// The setup: no session is at fault, and none can be read until somebody repairs it.
    Setup,
}

/// Why there is no observation. The words are for the person who took the pictures, or who runs the worker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is nothing to read.
    #[error("the session has no images: photograph the schedule and send it again")]
    NoImages,
    /// More images than a session may have.
    #[error(
        "the session has {0} images, and {MAX_IMAGES} is the most: send fewer pictures, each with more rows"
    )]
    TooManyImages(usize),
    /// An image cannot be read, or not surely enough.
    #[error("image {image}{place}: {fault}")]
    Image {
        /// The image's sequence.
        image: i32,
        /// The part of it that is at fault.
        place: Place,
        /// What is wrong, and what to do.
        fault: Fault,
    },
    /// No image names the day.
    #[error(
        "no image shows the day: photograph the heading with the full date as well, such as 16 November 2026"
    )]
    NoDate,
    /// The command is not sure enough.
    #[error(
        "the schedule was read with a confidence of {confidence:.2}, and {least:.2} is needed: photograph it again, closer and in even light"
    )]
    Unsure {
        /// What it said.
        confidence: f64,
        /// What is needed.
        least: f64,
    },
    /// An image's file is not there, or cannot be read.
    #[error("image {image}: its file cannot be read: {source}")]
    File {
        /// The image's sequence.
        image: i32,
        /// What the system said.
        source: std::io::Error,
    },
    /// A program cannot be started, or is not what we need.
    #[error("{0}")]
    Setup(String),
    /// A program took too long and was killed.
    #[error(
        "{program} took longer than {limit:?} and was killed: give it more time, or look why it hangs"
    )]
    Timeout {
        /// Its name.
        program: String,
        /// How long it might.
        limit: Duration,
    },
    /// A program wrote too much and was killed.
    #[error(
        "{program} wrote more than {limit} bytes and was killed: its output is not what was asked for"
    )]
    Flood {
        /// Its name.
        program: String,
        /// How much it might.
        limit: u64,
    },
    /// A program ended badly.
    #[error("{program} failed: {status}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The last it wrote to its standard error. It may hold what was read: never log it.
        stderr: String,
    },
    /// A program's answer breaks the protocol.
    #[error("the answer of {program} is not right: {wrong}")]
    Answer {
        /// Its name.
        program: String,
        /// What is wrong with it, without what it says.
        wrong: String,
    },
}

impl Error {
    /// Whose fault it is.
    pub fn blame(&self) -> Blame {
        match self {
            Error::NoImages
            | Error::TooManyImages(_)
            | Error::Image { .. }
            | Error::NoDate
            | Error::Unsure { .. } => Blame::Images,
            Error::Setup(_) => Blame::Setup,
            Error::File { .. }
            | Error::Timeout { .. }
            | Error::Flood { .. }
            | Error::Failed { .. }
            | Error::Answer { .. } => Blame::Run,
        }
    }
}

/// The part of an image that is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All of it.
    Whole,
    /// A row, counted from 1 below the header.
    Row(usize),
    /// A cell: the row as above, and the column.
    Cell(usize, Column),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Whole => Ok(()),
            Place::Row(row) => write!(f, ", row {row}"),
            Place::Cell(row, column) => write!(f, ", row {row}, column {column}"),
        }
    }
}

/// What a column of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Column {
    /// When a shift starts.
    Start,
    /// When it ends.
    End,
    /// Both in one.
    Range,
    /// What is to be done.
    Title,
    /// Where.
    Location,
    /// For whom.
    Customer,
    /// What kind of shift it is.
    Kind,
}

impl Column {
    /// Whether it holds times.
    fn is_time(self) -> bool {
        matches!(self, Column::Start | Column::End | Column::Range)
    }
}

impl std::fmt::Display for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Column::Start => "start",
            Column::End => "end",
            Column::Range => "time",
            Column::Title => "title",
            Column::Location => "location",
            Column::Customer => "customer",
            Column::Kind => "kind",
        })
    }
}

/// What is wrong with an image, and what a person can do about it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Fault {
    /// No picture that we read.
    #[error(
        "this is no PNG or JPEG picture that can be opened. Send a photograph or a scan as PNG or JPEG"
    )]
    NoPicture,
    /// Too large a file or picture.
    #[error("the picture is too large ({0}). Send it smaller: 12 million pixels are plenty")]
    TooLarge(String),
    /// Too small a picture.
    #[error("the picture is only {0} by {1} pixels. Send the photograph itself, not its thumbnail")]
    TooSmall(u32, u32),
    /// Nothing is on it.
    #[error(
        "nothing can be read on it. Photograph the schedule again, sharp, in even light, and upright"
    )]
    Blank,
    /// There are words, and no header.
    #[error(
        "no table with a header row was found. Photograph the whole table upright, with its row of headings such as start, end, task, place"
    )]
    NoHeader,
    /// There is a header and nothing below it.
    #[error("there is no row below the headings. Photograph the whole table")]
    NoRows,
    /// More rows than a day may have.
    #[error("there are more than {MAX_ENTRIES} rows. Send one day only")]
    TooManyRows,
    /// A row without a time.
    #[error(
        "this row has no time. Photograph this part again, closer and in even light, or write the time clearly"
    )]
    NoTime,
    /// A row that was not there each time it was looked for.
    #[error(
        "a row here could not be read surely. Photograph this part again, closer and in even light"
    )]
    LostRow,
    /// A time cell that is no time.
    #[error(
        "this is not a time. Photograph this part again, closer and in even light, or write the time clearly"
    )]
    NotATime,
    /// A text that is longer than any cell may be.
    #[error(
        "the text has more than {MAX_FIELD_CHARS} characters. Photograph the table without what stands around it"
    )]
    TooLong,
    /// A cell that is not sure enough.
    #[error(
        "this could not be read surely (confidence {confidence:.2}, {least:.2} is needed). Photograph this part again, closer and in even light"
    )]
    UnsureCell {
        /// How sure it is.
        confidence: f64,
        /// What is needed.
        least: f64,
    },
    /// The schedule as a whole is not sure enough; this is its worst cell.
    #[error(
        "the schedule could not be read surely (confidence {confidence:.2}, {least:.2} is needed), and this cell is the worst. Photograph it again, closer and in even light"
    )]
    UnsureTable {
        /// How sure it is.
        confidence: f64,
        /// What is needed.
        least: f64,
    },
    /// The day could be read in two ways.
    #[error("the date in the heading could be two days. Write the month as a word")]
    AmbiguousDate,
    /// The day is not sure enough.
    #[error("the date in the heading could not be read surely. Photograph the heading again")]
    UnsureDate,
    /// The weekday is not that of the date.
    #[error("the weekday in the heading is not that of its date. Correct the heading")]
    WrongWeekday,
    /// Another image names another day.
    #[error(
        "it shows {0} and an image before it {1}. Send the pictures of one day together, and other days apart"
    )]
    OtherDay(Date, Date),
}
