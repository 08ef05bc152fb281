//! Second looks: everything is read twice or more, and what the readings do not agree on is refused.
//!
//! Promises: a time counts when three readings say it and none says another, a text when two do and no other is said
//! twice; a cell with letters in it is never taken as empty; a row that only one reading has is told.
//!
//! Tesseract's own confidence is not enough for this: it is sure of a wrong digit in a faint picture. Nor is a second
//! reading of the same pixels, which repeats the first; so each reading is of another size.

use image::GrayImage;
use jiff::civil::Date;

use super::lines::{self, Line};
use super::shapes::Samples;
use super::table::{Bounds, Cell, Row, Table};
use super::tesseract::{Look, Tesseract, Word};
use super::{MIN_CELL, dates, ink, picture, times};
use crate::canonical::fold;
use crate::extract::{Column, Error, Fault, Place};

/// The size of the second reading: what is misread by chance is misread otherwise there.
pub(super) const OTHER_SIZE: f64 = 0.75;
/// The sizes of what is read alone.
const LARGER: f64 = 1.3;
const SMALLER: f64 = 0.85;
/// Cells of a picture that are read alone.
const MAX_LOOKS: usize = 24;
/// White paper around a part that is read alone, in pixels.
const AROUND: u32 = 20;
/// A row higher than so many letters has several lines.
const LINE_LETTERS: f64 = 2.2;
/// Readings of a time that must agree.
const TIMES_AGREE: usize = 3;
/// Readings of a text that must agree.
const TEXTS_AGREE: usize = 2;

/// A picture that is looked at again.
pub(super) struct Again<'a> {
    pub(super) tesseract: &'a Tesseract,
    pub(super) grey: &'a GrayImage,
    pub(super) letter: f64,
    /// The words of the second reading, where they are on this picture.
    pub(super) second: Vec<Word>,
}

impl Again<'_> {
    /// The day that the heading names, if two readings say so.
    pub(super) async fn day(&self, table: &Table) -> Result<Result<Option<Date>, Fault>, Error> {
        let first = dates::in_heading(&table.heading);
        let above = self.second.iter().filter(|word| word.bottom < table.header);
        let second = dates::in_heading(&lines::lines(above.cloned().collect()));
        if first == second {
            return Ok(first);
        }
        let right = f64::from(self.grey.width());
        let part = cut(self.grey, (0.0, right), (0.0, table.header - self.letter));
        let third = dates::in_heading(&self.read(&part, Look::Lines).await?);
        let agreed = third == first || third == second;
        Ok(if agreed { third } else { Err(Fault::UnsureDate) })
    }

    /// Checks the cells of a table.
    pub(super) async fn check(
        &self,
        table: &mut Table,
    ) -> Result<Result<(), (Place, Fault)>, Error> {
        if let Some(lost) = self.lost_row(table) {
            return Ok(Err((Place::Row(lost), Fault::LostRow)));
        }
        let mut looks = 0;
        let mut samples = Samples::default();
        // The times first: their digits are the samples for the texts.
        let mut columns = table.bounds.clone();
        columns.sort_by_key(|bounds| !bounds.is_time());
        for bounds in columns {
            let Some(column) = bounds.column else { continue };
            let bounds = table.within(bounds, self.letter);
            let strip =
                if column.is_time() { self.strip(bounds, &table.rows).await? } else { Vec::new() };
            for (at, row) in table.rows.iter_mut().enumerate() {
                let second = self.second.iter().filter(|w| bounds.has(w) && row.has(w)).cloned();
                let second = lines::lines(second.collect());
                let Some(cell) = row.cells.get_mut(&column) else { continue };
                let part = cut(self.grey, (bounds.left, bounds.right), (row.top, row.bottom));
                let mut vote = Vote {
                    column,
                    has_letters: ink::has_letters(&part, self.letter),
                    readings: vec![cell.clone(), Cell::of(&ordered(&second))],
                };
                vote.readings.extend(strip.get(at).cloned());
                let high = row.bottom - row.top > LINE_LETTERS * self.letter;
                let look = match (column.is_time(), high) {
                    (true, _) => Look::Time,
                    (false, true) => Look::Lines,
                    (false, false) => Look::Line,
                };
                let mut sizes = [LARGER, SMALLER].into_iter();
                while vote.settled().is_none() && !vote.is_lost() && looks < MAX_LOOKS {
                    let Some(size) = sizes.next() else { break };
                    looks += 1;
                    let lines = self.read(&picture::scale(&part, size), look).await?;
                    vote.readings.push(Cell::of(&ordered(&lines)));
                }
                let mut settled = vote.settled();
                if column.is_time() {
                    settled.iter().for_each(|cell| samples.add(&part, self.letter, &cell.text));
                } else if let Some(cell) = settled.take() {
                    let text = samples.settle(&part, self.letter, &cell.text);
                    settled = text.map(|text| Cell { text, ..cell });
                }
                match settled {
                    Some(settled) => *cell = settled,
                    // What nobody takes for a time is told as such later.
                    None if !vote.readings.iter().any(|reading| reading.fits(column)) => {}
                    None => {
                        let fault = Fault::UnsureCell { confidence: 0.0, least: MIN_CELL };
                        return Ok(Err((Place::Cell(at + 1, column), fault)));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    async fn read(&self, part: &GrayImage, look: Look) -> Result<Vec<Line>, Error> {
        Ok(lines::lines(lines::clean(self.tesseract.read(part, look).await?)))
    }

    /// A time of the second reading that stands in no row.
    fn lost_row(&self, table: &Table) -> Option<usize> {
        let (first, last) = (table.rows.first()?, table.rows.last()?);
        let pitch = (last.bottom - first.top) / table.rows.len() as f64;
        let lost = self.second.iter().find(|word| {
            let mut columns = table.bounds.iter();
            let timed = columns.any(|bounds| bounds.is_time() && bounds.has(word));
            // What stands farther below is no part of the table.
            timed
                && word.text.contains([':', '.'])
                && times::time(&word.text).is_some()
                && (table.header + self.letter..last.bottom + pitch).contains(&word.middle())
                && !table.rows.iter().any(|row| row.has(word))
        })?;
        Some(table.rows.iter().filter(|row| row.bottom < lost.middle()).count() + 1)
    }

    /// A column of times read by itself: a cell for each row.
    async fn strip(&self, bounds: Bounds, rows: &[Row]) -> Result<Vec<Cell>, Error> {
        let top = rows.iter().map(|row| row.top).fold(f64::INFINITY, f64::min).max(0.0);
        let bottom = rows.iter().map(|row| row.bottom).fold(0.0, f64::max);
        let part = cut(self.grey, (bounds.left, bounds.right), (top, bottom));
        let lines = self.read(&picture::scale(&part, LARGER), Look::Times).await?;
        let cell = |row: &Row| {
            let down = top.round() - f64::from(AROUND);
            let in_row =
                |word: &&Word| (row.top..row.bottom).contains(&(word.middle() / LARGER + down));
            Cell::of(&ordered(&lines).into_iter().filter(in_row).collect::<Vec<_>>())
        };
        Ok(rows.iter().map(cell).collect())
    }
}

fn ordered(lines: &[Line]) -> Vec<&Word> {
    lines.iter().flat_map(|line| &line.words).collect()
}

/// The readings of one cell.
struct Vote {
    column: Column,
    /// Whether there is ink that may be a letter.
    has_letters: bool,
    readings: Vec<Cell>,
}

impl Vote {
    /// What enough readings say.
    fn settled(&self) -> Option<Cell> {
        let needed = if self.column.is_time() { TIMES_AGREE } else { TEXTS_AGREE };
        let said = self.said();
        let (winner, count) = said.first()?;
        let others = said.get(1).map_or(0, |(_, count)| *count);
        // A digit makes another time; a letter that one reading has wrong makes no other text.
        let agreed = if self.column.is_time() { others == 0 } else { others < TEXTS_AGREE };
        if *count < needed || !agreed {
            return None;
        }
        let agreeing = self.readings.iter().filter(|cell| self.key(cell).as_ref() == Some(winner));
        // A bare number may be a time whose sign was lost.
        let worth = |cell: &Cell| (!cell.is_bare(), cell.confidence);
        let best = agreeing.max_by(|a, b| {
            let (a, b) = (worth(a), worth(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        best.cloned()
    }

    /// Whether no further reading can settle it.
    fn is_lost(&self) -> bool {
        self.column.is_time() && self.said().len() > 1
    }

    /// What is said, and by how many readings; the most said first.
    fn said(&self) -> Vec<(String, usize)> {
        let mut said: Vec<(String, usize)> = Vec::new();
        for key in self.readings.iter().filter_map(|cell| self.key(cell)) {
            match said.iter_mut().find(|(other, _)| *other == key) {
                Some((_, count)) => *count += 1,
                None => said.push((key, 1)),
            }
        }
        said.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        said
    }

    /// What a reading says, without the signs in it. None: nothing that counts.
    fn key(&self, cell: &Cell) -> Option<String> {
        match self.column {
            Column::Start | Column::End => {
                times::time(&cell.text).map(|time| format!("{:?}", time.clock))
            }
            Column::Range => {
                times::range(&cell.text).map(|(a, b)| format!("{:?} {:?}", a.clock, b.clock))
            }
            _ => {
                let letters = |c: &char| c.is_alphanumeric() || *c == ' ';
                let plain: String = fold(&cell.text).chars().filter(letters).collect();
                (!plain.is_empty() || !self.has_letters).then_some(plain)
            }
        }
    }
}

/// A part of the picture, with paper around it.
fn cut(grey: &GrayImage, across: (f64, f64), down: (f64, f64)) -> GrayImage {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let pixel = |place: f64, most: u32| place.round().clamp(0.0, f64::from(most)) as u32;
    let (left, right) = (pixel(across.0, grey.width()), pixel(across.1, grey.width()));
    let (top, bottom) = (pixel(down.0, grey.height()), pixel(down.1, grey.height()));
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

    fn settled(column: Column, has_letters: bool, texts: &[&str]) -> Option<String> {
        let cell = |text: &&str| Cell { text: (*text).to_owned(), confidence: 0.9 };
        let readings = texts.iter().map(cell).collect();
        Vote { column, has_letters, readings }.settled().map(|cell| cell.text)
    }

    #[test]
    fn a_time_counts_when_three_readings_agree() {
        let settled = |texts: &[&str]| settled(Column::Start, true, texts);
        assert_eq!(settled(&["0915", "9.15", "0915"]).as_deref(), Some("9.15"));
        assert_eq!(settled(&["9.25", "9.15"]), None);
        assert_eq!(settled(&["9.25", "9.15", "9.15"]), None);
        assert_eq!(settled(&["9.25", "9.15", "9.15", "9.15"]), None);
        assert_eq!(settled(&["9.15", "x", "", "9:15", "09:15"]).as_deref(), Some("09:15"));
        assert_eq!(settled(&["x", "x", "x"]), None);
    }

    #[test]
    fn a_text_counts_when_two_readings_agree() {
        let settled = |has_letters, texts: &[&str]| settled(Column::Title, has_letters, texts);
        assert_eq!(settled(true, &["Pier 4", "Pier 4."]).as_deref(), Some("Pier 4."));
        assert_eq!(settled(true, &["A1", "Al", "A1", "Al"]), None);
        assert_eq!(settled(true, &["", ""]), None);
        assert_eq!(settled(true, &["", "", "B", "B"]).as_deref(), Some("B"));
        assert_eq!(settled(false, &["", ""]).as_deref(), Some(""));
    }
}
