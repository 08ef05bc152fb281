//! Second looks: times are read twice, and a doubtful cell is read alone.
//!
//! Promises: two readings of a time that differ are settled by a third or make the cell unsure; a cell with
//! letters in it is never taken as empty.

use image::GrayImage;

use super::ink;
use super::lines;
use super::table::{Bounds, Cell, Row, Table};
use super::tesseract::{Look, Tesseract, Word};
use super::times;
use super::{MIN_CELL, SURE};
use crate::extract::{Column, Error, Fault, Place};

/// Cells of a picture that are read alone.
const MAX_LOOKS: usize = 24;
/// White paper around a part that is read alone, in pixels.
const AROUND: u32 = 20;
/// A row higher than so many letters has several lines.
const LINE_LETTERS: f64 = 2.2;

/// A picture that is looked at again.
pub(super) struct Again<'a> {
    pub(super) tesseract: &'a Tesseract,
    pub(super) grey: &'a GrayImage,
    pub(super) letter: f64,
    /// The image's sequence, for errors.
    pub(super) image: i32,
}

impl Again<'_> {
    /// Checks the cells of a table, and reads again what is doubtful.
    pub(super) async fn check(&self, table: &mut Table) -> Result<(), Error> {
        let mut looks = 0;
        for bounds in table.bounds.clone() {
            let Some(column) = bounds.column else { continue };
            let bounds = table.within(bounds, self.letter);
            let strip =
                if column.is_time() { self.strip(bounds, &table.rows).await? } else { Vec::new() };
            for at in 0..table.rows.len() {
                let row = &mut table.rows[at];
                let part = cut(self.grey, bounds, row.top, row.bottom);
                let high = row.bottom - row.top > LINE_LETTERS * self.letter;
                let Some(cell) = row.cells.get_mut(&column) else { continue };
                let other = strip.get(at).filter(|other| other.fits(column));
                let differs = match other {
                    Some(other) if !cell.fits(column) => {
                        *cell = other.clone();
                        false
                    }
                    Some(other) => {
                        let same = key(column, cell) == key(column, other);
                        // A bare number may be a time whose sign was lost.
                        if same && cell.is_bare() && !other.is_bare() {
                            *cell = other.clone();
                        }
                        !same
                    }
                    None => false,
                };
                let unread = cell.text.is_empty() && ink::has_letters(&part, self.letter);
                let unsure = !cell.text.is_empty() && cell.confidence < SURE;
                if !(differs || unread || unsure || !cell.fits(column)) {
                    continue;
                }
                if looks < MAX_LOOKS {
                    looks += 1;
                    let look = match (column.is_time(), high) {
                        (true, _) => Look::Time,
                        (false, true) => Look::Lines,
                        (false, false) => Look::Line,
                    };
                    let words = self.tesseract.read(&part, look).await?;
                    let dashes = !words.is_empty();
                    let third = Cell::of(&ordered(&lines::lines(lines::clean(words))));
                    settle(column, cell, other.filter(|_| differs), third);
                    if unread && cell.text.is_empty() && dashes {
                        continue;
                    }
                } else if differs {
                    cell.confidence = 0.0;
                }
                if unread && cell.text.is_empty() && !column.is_time() {
                    let place = Place::Cell(at + 1, column);
                    let fault = Fault::UnsureCell { confidence: 0.0, least: MIN_CELL };
                    return Err(Error::Image { image: self.image, place, fault });
                }
            }
        }
        Ok(())
    }

    /// A column of times read by itself: a cell for each row.
    async fn strip(&self, bounds: Bounds, rows: &[Row]) -> Result<Vec<Cell>, Error> {
        let top = rows.iter().map(|row| row.top).fold(f64::INFINITY, f64::min).max(0.0);
        let bottom = rows.iter().map(|row| row.bottom).fold(0.0, f64::max);
        let part = cut(self.grey, bounds, top, bottom);
        let words = lines::clean(self.tesseract.read(&part, Look::Times).await?);
        let lines = lines::lines(words);
        let cell = |row: &Row| {
            let down = top.round() - f64::from(AROUND);
            let in_row = |word: &&Word| (row.top..row.bottom).contains(&(word.middle() + down));
            Cell::of(&ordered(&lines).into_iter().filter(in_row).collect::<Vec<_>>())
        };
        Ok(rows.iter().map(cell).collect())
    }
}

fn ordered(lines: &[lines::Line]) -> Vec<&Word> {
    lines.iter().flat_map(|line| &line.words).collect()
}

/// Takes what two of three readings say, or else the better of two.
fn settle(column: Column, cell: &mut Cell, second: Option<&Cell>, third: Cell) {
    let Some(second) = second else {
        let worth = |cell: &Cell| (cell.fits(column), !cell.is_bare(), cell.confidence);
        if !third.text.is_empty() && worth(&third) > worth(cell) {
            *cell = third;
        }
        return;
    };
    let read = key(column, &third);
    if read.is_some() && read == key(column, second) {
        *cell = second.clone();
    } else if read.is_none() || read != key(column, cell) {
        cell.confidence = 0.0;
    }
}

/// What a time cell says, without the signs in it.
fn key(column: Column, cell: &Cell) -> Option<String> {
    let plain = |text: String| {
        let text: String = text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
        text.trim_start_matches('0').to_owned()
    };
    if column == Column::Range {
        return times::range(&cell.text).map(|(a, b)| format!("{}-{}", plain(a), plain(b)));
    }
    times::time(&cell.text).map(plain)
}

/// A part of the picture, with paper around it.
fn cut(grey: &GrayImage, bounds: Bounds, top: f64, bottom: f64) -> GrayImage {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let pixel = |place: f64, most: u32| place.round().clamp(0.0, f64::from(most)) as u32;
    let (left, right) = (pixel(bounds.left, grey.width()), pixel(bounds.right, grey.width()));
    let (top, bottom) = (pixel(top, grey.height()), pixel(bottom, grey.height()));
    let (width, height) = (right.saturating_sub(left).max(1), bottom.saturating_sub(top).max(1));
    let paper = image::Luma([255]);
    let mut part = GrayImage::from_pixel(width + 2 * AROUND, height + 2 * AROUND, paper);
    let view = image::imageops::crop_imm(grey, left, top, width, height);
    image::imageops::replace(&mut part, &view.to_image(), i64::from(AROUND), i64::from(AROUND));
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(text: &str, confidence: f64) -> Cell {
        Cell { text: text.to_owned(), confidence }
    }

    #[test]
    fn two_of_three_readings_of_a_time_count() {
        let settled = |third: &str| {
            let mut first = cell("9.25", 0.9);
            settle(Column::Start, &mut first, Some(&cell("9.15", 0.8)), cell(third, 0.7));
            (first.text, first.confidence > 0.0)
        };
        assert_eq!(settled("9:15"), ("9.15".to_owned(), true));
        assert_eq!(settled("09.25"), ("9.25".to_owned(), true));
        assert_eq!(settled("9.75"), ("9.25".to_owned(), false));
        assert_eq!(settled("9.35"), ("9.25".to_owned(), false));
    }
}
