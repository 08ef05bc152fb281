//! Extraction by OCR: a photographed or scanned table of shifts, read with Tesseract.
//!
//! In the order of the data: [`Ocr`] takes a file, `picture` decodes it, `light` evens it out, `turn` levels it,
//! `ink` scales it and takes the rules, `tesseract` reads words, `lines` and `table` make cells of them, `again` checks these, `join`
//! puts the pictures of a session together.
//!
//! Promises: one picture is worked on at a time; a cell that is not sure is looked at again and then refused;
//! nothing is corrected but digits in times. docs/spec/schedule-extraction.md has the rules and the limits.

mod again;
mod dates;
mod headers;
mod ink;
mod join;
mod light;
mod lines;
mod picture;
mod shapes;
mod table;
mod tesseract;
mod times;
mod turn;

use std::time::Duration;

use image::GrayImage;
use jiff::civil::Date;

use super::captures::MAX_IMAGE_BYTES;
use super::{Column, Error, Fault, ImageFile, Place, Request};
use crate::canonical::{MAX_ENTRIES, MAX_FIELD_CHARS};
use crate::observation::{Observation, RawEntry};
use again::Again;
use ink::Rules;
use join::Shift;
use table::{Row, Table};
use tesseract::{Look, Tesseract};

/// The height of letters that Tesseract reads best.
const LETTER_HEIGHT: f64 = 32.0;
/// A picture is made so much larger at most.
const MAX_SCALE: f64 = 4.0;
/// The most pixels after it is made larger.
const MAX_SCALED_PIXELS: f64 = 24_000_000.0;
/// A cell below this is refused.
const MIN_CELL: f64 = 0.30;
/// A time below this is refused, and a day.
const MIN_TIME: f64 = 0.50;

/// How OCR is done.
#[derive(Debug, Clone, PartialEq)]
pub struct OcrSettings {
    /// Tesseract's program; a name without a path is looked for in `PATH`.
    pub program: String,
    /// Its languages by their short names, the likeliest first.
    pub languages: Vec<String>,
    /// How long Tesseract may take for one picture.
    pub timeout: Duration,
    /// An observation that is less sure is refused.
    pub min_confidence: f64,
}

impl Default for OcrSettings {
    fn default() -> OcrSettings {
        OcrSettings {
            program: "tesseract".to_owned(),
            languages: vec!["eng".to_owned()],
            timeout: Duration::from_secs(60),
            min_confidence: 0.70,
        }
    }
}

/// Reads photographed tables.
#[derive(Debug, Clone)]
pub struct Ocr {
    tesseract: Tesseract,
    min_confidence: f64,
}

impl Ocr {
    /// Looks whether Tesseract and its languages are there.
    pub async fn new(settings: &OcrSettings) -> Result<Ocr, Error> {
        let tesseract =
            Tesseract::find(&settings.program, &settings.languages, settings.timeout).await?;
        Ok(Ocr { tesseract, min_confidence: settings.min_confidence })
    }

    /// Reads the images of a session.
    pub(super) async fn extract(&self, request: &Request) -> Result<Observation, Error> {
        let mut pictures = Vec::new();
        let mut day = None;
        for image in &request.images {
            let at = |(place, fault)| Error::Image { image: image.sequence, place, fault };
            let (table, named) = self.read(image).await?;
            day = match (day, named) {
                (Some(before), Some(named)) if before != named => {
                    return Err(at((Place::Whole, Fault::OtherDay(named, before))));
                }
                (before, named) => before.or(named),
            };
            let shifts = table.rows.into_iter().enumerate();
            let shifts = shifts.map(|(row, cells)| shift(image.sequence, row + 1, cells));
            pictures.push(shifts.collect::<Result<Vec<_>, _>>().map_err(at)?);
        }
        let shifts = join::join(pictures);
        if let Some(beyond) = shifts.get(MAX_ENTRIES) {
            let (image, place) = (beyond.image, Place::Row(beyond.row));
            return Err(Error::Image { image, place, fault: Fault::TooManyRows });
        }
        let confidence = self.sure(&shifts)?;
        Ok(Observation {
            schedule_date: day.ok_or(Error::NoDate)?.to_string(),
            timezone: request.timezone.clone(),
            entries: shifts.into_iter().map(|shift| shift.entry).collect(),
            confidence: Some(confidence),
        })
    }

    /// The table on one image, and the day that it names.
    async fn read(&self, image: &ImageFile) -> Result<(Table, Option<Date>), Error> {
        let at = |(place, fault)| Error::Image { image: image.sequence, place, fault };
        let lost = |source| Error::File { image: image.sequence, source };
        let size = tokio::fs::metadata(&image.path).await.map_err(lost)?.len();
        if size > MAX_IMAGE_BYTES {
            return Err(at((Place::Whole, Fault::TooLarge(format!("{size} bytes")))));
        }
        let file = tokio::fs::read(&image.path).await.map_err(lost)?;
        let prepared = tokio::task::spawn_blocking(move || prepare(&file)).await;
        let prepared = prepared.map_err(|error| lost(std::io::Error::other(error)))?;
        let Prepared { grey, other, rules, letter } =
            prepared.map_err(|fault| at((Place::Whole, fault)))?;
        let tesseract = &self.tesseract;
        let words = tesseract.read(&grey, Look::Page).await?;
        let mut table = table::find(words, &rules).map_err(at)?;
        let second = lines::clean(tesseract.read(&other, Look::Page).await?);
        let second = second.into_iter().map(|word| word.unscaled(again::OTHER_SIZE)).collect();
        let again = Again { tesseract, grey: &grey, letter, second };
        let day = again.day(&table).await?.map_err(|fault| at((Place::Whole, fault)))?;
        again.check(&mut table).await?.map_err(at)?;
        Ok((table, day))
    }

    /// How sure the rows are in all; an error names the worst cell.
    fn sure(&self, shifts: &[Shift]) -> Result<f64, Error> {
        let cells = shifts.iter().flat_map(|shift| {
            shift.confidences.iter().map(move |(column, confidence)| (shift, *column, *confidence))
        });
        let cells: Vec<(&Shift, Column, f64)> = cells.collect();
        let confidence = cells.iter().map(|(.., c)| c).sum::<f64>() / cells.len().max(1) as f64;
        let Some((shift, column, worst)) = cells.into_iter().min_by(|a, b| a.2.total_cmp(&b.2))
        else {
            return Ok(0.0);
        };
        let fault = if worst < MIN_CELL {
            Fault::UnsureCell { confidence: worst, least: MIN_CELL }
        } else if confidence < self.min_confidence {
            Fault::UnsureTable { confidence, least: self.min_confidence }
        } else {
            return Ok(confidence);
        };
        Err(Error::Image { image: shift.image, place: Place::Cell(shift.row, column), fault })
    }
}

/// A picture that Tesseract reads well.
struct Prepared {
    grey: GrayImage,
    /// The same in another size.
    other: GrayImage,
    /// The rules that were on it.
    rules: Rules,
    /// Its letters' height.
    letter: f64,
}

fn prepare(file: &[u8]) -> Result<Prepared, Fault> {
    let grey = light::even_out(&picture::load(file)?).ok_or(Fault::Blank)?;
    let grey = turn::level(grey);
    let letter = ink::letter_height(&grey).ok_or(Fault::Blank)?;
    let pixels = f64::from(grey.width()) * f64::from(grey.height());
    let factor = (LETTER_HEIGHT / letter).min(MAX_SCALE).min((MAX_SCALED_PIXELS / pixels).sqrt());
    // A picture that is nearly right is left as it is: scaling blurs.
    let mut grey = if (0.8..1.25).contains(&factor) { grey } else { picture::scale(&grey, factor) };
    let letter = ink::letter_height(&grey).ok_or(Fault::Blank)?;
    let rules = ink::take_rules(&mut grey, letter);
    let other = picture::scale(&grey, again::OTHER_SIZE);
    Ok(Prepared { grey, other, rules, letter })
}

/// A row as a shift.
fn shift(image: i32, row: usize, cells: Row) -> Result<Shift, (Place, Fault)> {
    let mut entry = RawEntry::default();
    let mut confidences = Vec::new();
    for (column, cell) in cells.cells {
        let fault = |fault| (Place::Cell(row, column), fault);
        let not_a_time = || fault(Fault::NotATime);
        if cell.text.chars().count() > MAX_FIELD_CHARS {
            return Err(fault(Fault::TooLong));
        }
        let time = column.is_time();
        if !cell.text.is_empty() || time {
            confidences.push((column, cell.confidence));
        }
        match column {
            Column::Start => entry.start = times::time(&cell.text).ok_or_else(not_a_time)?.text,
            Column::End => entry.end = times::time(&cell.text).ok_or_else(not_a_time)?.text,
            Column::Range => {
                let (first, second) = times::range(&cell.text).ok_or_else(not_a_time)?;
                // Both in one field: `5-9 pm` means another start than `5` and `9 pm` apart.
                entry.start = format!("{} - {}", first.text, second.text);
            }
            Column::Title => entry.title = cell.text,
            Column::Location => entry.location = cell.text,
            Column::Customer => entry.customer = cell.text,
            Column::Kind => entry.kind = cell.text,
        }
        if time && cell.confidence < MIN_TIME {
            let unsure = Fault::UnsureCell { confidence: cell.confidence, least: MIN_TIME };
            return Err(fault(unsure));
        }
    }
    Ok(Shift { entry, image, row, confidences })
}
