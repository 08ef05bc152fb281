//! From words with boxes to a table: its heading, its columns, its rows.
//!
//! Promises: a line that may be a row is a row or an error, and never a part of another; a word is in one cell.

use std::collections::BTreeMap;

use super::headers;
use super::ink::{Rule, Rules};
use super::lines::{Line, clean, letter_of, lines};
use super::tesseract::Word;
use super::times;
use crate::extract::{Column, Fault, Place};

/// A line nearer to its row than this part of the rows' distance goes on with it.
const GOES_ON_PART: f64 = 0.8;
/// The same in letters, where there is but one row.
const GOES_ON_LETTERS: f64 = 1.9;
/// What is farther below the rows than so many of their distances is no part of the table.
const APART_PITCHES: f64 = 1.8;
/// What of a letter's height is around a cell when it is looked at alone.
const MARGIN_PART: f64 = 0.3;

/// A table on a picture.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    /// The lines above it.
    pub(super) heading: Vec<Line>,
    pub(super) bounds: Vec<Bounds>,
    /// From the leftmost word to the rightmost.
    extent: (f64, f64),
    /// The middle of its header, from the top.
    pub(super) header: f64,
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// The part of a column that can hold its cells: the outermost end near the outermost words.
    pub(super) fn within(&self, bounds: Bounds, letter: f64) -> Bounds {
        let left = bounds.left.max(self.extent.0 - letter);
        Bounds { left, right: bounds.right.min(self.extent.1 + letter), ..bounds }
    }
}

/// Where a column is. None: one that we pass over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bounds {
    pub(super) column: Option<Column>,
    pub(super) left: f64,
    pub(super) right: f64,
}

/// A row of cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row {
    pub(super) top: f64,
    pub(super) bottom: f64,
    pub(super) cells: BTreeMap<Column, Cell>,
}

impl Row {
    /// Whether a word stands in it.
    pub(super) fn has(&self, word: &Word) -> bool {
        (self.top..self.bottom).contains(&word.middle())
    }

    /// Whether one of its times is one.
    fn has_whole_time(&self) -> bool {
        self.cells.iter().any(|(column, cell)| column.is_time() && cell.fits(*column))
    }
}

/// What was read in a cell, and how surely.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) confidence: f64,
}

impl Cell {
    /// Words in reading order.
    pub(super) fn of(words: &[&Word]) -> Cell {
        let letters = |word: &Word| word.text.chars().count() as f64;
        let all: f64 = words.iter().map(|word| letters(word)).sum();
        let sum: f64 = words.iter().map(|word| letters(word) * word.confidence).sum();
        let text = words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ");
        // A dash or a quote at the edge of a cell is what is left of a rule, or a speck.
        let edge = ['-', '–', '—', '\'', '"', '‘', '’', '“', '”', '`', ' '];
        let text = text.trim_matches(edge).to_owned();
        Cell { text, confidence: if all > 0.0 { sum / all } else { 0.0 } }
    }

    /// Whether it is nothing but digits and blanks.
    pub(super) fn is_bare(&self) -> bool {
        self.text.chars().all(|c| c.is_ascii_digit() || c == ' ')
    }

    /// Whether it is what its column must hold.
    pub(super) fn fits(&self, column: Column) -> bool {
        match column {
            Column::Start | Column::End => times::time(&self.text).is_some(),
            Column::Range => times::range(&self.text).is_some(),
            _ => true,
        }
    }
}

/// Finds the table in the words of a picture.
pub(super) fn find(words: Vec<Word>, rules: &Rules) -> Result<Table, (Place, Fault)> {
    let words = clean(words);
    if words.is_empty() {
        return Err((Place::Whole, Fault::Blank));
    }
    let letter = letter_of(&words);
    let lines = lines(words);
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        header(line, letter, &rules.upright).map(|headings| (at, headings))
    });
    let known = |headings: &[Heading]| headings.iter().filter(|h| h.column.is_some()).count();
    // Of equally good ones the first: one that comes again is passed over below.
    let (at, headings) = found
        .rev()
        .max_by_key(|(_, headings)| known(headings))
        .ok_or((Place::Whole, Fault::NoHeader))?;
    let body: Vec<&Line> = lines[at + 1..]
        .iter()
        .filter(|line| header(line, letter, &rules.upright).is_none())
        .collect();
    let bounds = bounds(&headings, &body, &rules.upright, lines[at].middle());
    let frame = Frame { bounds: &bounds, rules, letter, header: lines[at].middle() };
    let rows = frame.rows(&body)?;
    let table = || lines[at..].iter().flat_map(|line| &line.words);
    let extent = (
        table().map(|word| word.left).fold(f64::INFINITY, f64::min),
        table().map(|word| word.right).fold(0.0, f64::max),
    );
    Ok(Table { heading: lines[..at].to_vec(), extent, header: frame.header, rows, bounds })
}

#[derive(Debug, Clone, Copy)]
struct Heading {
    column: Option<Column>,
    left: f64,
    right: f64,
}

/// The headings of a line, if they head a table of shifts.
fn header(line: &Line, letter: f64, upright: &[Rule]) -> Option<Vec<Heading>> {
    let mut headings: Vec<Heading> = Vec::new();
    let mut add = |column: Option<Column>, words: &[Word]| {
        let (Some(first), Some(last)) = (words.first(), words.last()) else { return };
        headings.push(Heading { column, left: first.left, right: last.right });
    };
    for phrase in line.phrases(letter, upright) {
        let text = |words: &[Word]| Line { words: words.to_vec() }.text();
        if let column @ Some(_) = headers::column(&text(phrase)) {
            add(column, phrase);
            continue;
        }
        // Headings that stand close to each other: each word that is known begins one.
        let known = |word: &Word| headers::column(&word.text);
        let mut rest = phrase;
        while let Some(first) = rest.first() {
            let pair = rest.get(..2).filter(|pair| headers::column(&text(pair)).is_some());
            let length = pair.map_or(1, <[Word]>::len);
            let unknown = rest[length..].iter().take_while(|word| known(word).is_none()).count();
            let column = pair.map_or_else(|| known(first), |pair| headers::column(&text(pair)));
            add(column, &rest[..length + unknown]);
            rest = &rest[length + unknown..];
        }
    }
    let count = |headings: &[Heading], column| {
        headings.iter().filter(|heading| heading.column == Some(column)).count()
    };
    let both = count(&headings, Column::Start) > 0 && count(&headings, Column::End) > 0;
    let mut seen = Vec::new();
    for heading in &mut headings {
        let Some(column) = heading.column else { continue };
        // Start and end say more than a column of both; the first of two alike counts.
        if (column == Column::Range && both) || seen.contains(&column) {
            heading.column = None;
        }
        seen.push(column);
    }
    let others = [Column::Title, Column::Location, Column::Customer, Column::Kind];
    let other = others.iter().any(|column| count(&headings, *column) > 0);
    ((both || count(&headings, Column::Range) > 0) && other).then_some(headings)
}

/// Columns part at a rule, or at the emptiest place between two headings.
fn bounds(headings: &[Heading], body: &[&Line], upright: &[Rule], y: f64) -> Vec<Bounds> {
    let words: Vec<&Word> = body.iter().flat_map(|line| &line.words).collect();
    let mut bounds = Vec::new();
    let mut left = f64::NEG_INFINITY;
    for (at, heading) in headings.iter().enumerate() {
        let right = headings.get(at + 1).map_or(f64::INFINITY, |next| {
            let rule = upright.iter().find(|rule| {
                (heading.centre()..next.centre()).contains(&rule.at)
                    && (rule.from..=rule.to).contains(&y)
            });
            rule.map_or_else(|| emptiest(heading.right, next.left, &words), |rule| rule.at)
        });
        bounds.push(Bounds { column: heading.column, left, right });
        left = right;
    }
    bounds
}

impl Heading {
    fn centre(&self) -> f64 {
        f64::midpoint(self.left, self.right)
    }
}

/// The middle of the widest place that the fewest words cross.
fn emptiest(from: f64, to: f64, words: &[&Word]) -> f64 {
    let near: Vec<&&Word> = words.iter().filter(|w| w.left < to && w.right > from).collect();
    let mut edges: Vec<f64> = near.iter().flat_map(|w| [w.left, w.right]).collect();
    edges.extend([from, to]);
    edges.retain(|edge| (from..=to).contains(edge));
    edges.sort_unstable_by(f64::total_cmp);
    let places = edges.windows(2).map(|pair| {
        let middle = f64::midpoint(pair[0], pair[1]);
        let crossing = near.iter().filter(|w| (w.left..w.right).contains(&middle)).count();
        (crossing, pair[1] - pair[0], middle)
    });
    places
        .min_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)))
        .map_or(f64::midpoint(from, to), |(.., middle)| middle)
}

/// What rows are found with.
struct Frame<'a> {
    bounds: &'a [Bounds],
    rules: &'a Rules,
    letter: f64,
    header: f64,
}

impl Frame<'_> {
    fn rows(&self, body: &[&Line]) -> Result<Vec<Row>, (Place, Fault)> {
        let mut groups: Vec<Vec<&Line>> = Vec::new();
        let banded = self.is_banded(body);
        let timed: Vec<f64> =
            body.iter().filter(|l| self.has_time(l)).map(|l| l.middle()).collect();
        if timed.is_empty() {
            return Err((Place::Whole, Fault::NoRows));
        }
        let pitch = timed.windows(2).map(|pair| pair[1] - pair[0]).reduce(f64::min);
        for (at, line) in body.iter().enumerate() {
            let above = at.checked_sub(1).map(|above| body[above]);
            if groups.is_empty() && banded && !self.parted(self.header, line.middle()) {
                // The second line of a header.
                continue;
            }
            let same_band = above.is_some_and(|above| !self.parted(above.middle(), line.middle()));
            if banded && same_band {
                if let Some(group) = groups.last_mut() {
                    group.push(line);
                }
                continue;
            }
            if banded || self.has_time(line) {
                groups.push(vec![line]);
                continue;
            }
            let distance = line.middle() - above.map_or(self.header, Line::middle);
            let near = pitch.map_or(GOES_ON_LETTERS * self.letter, |pitch| GOES_ON_PART * pitch);
            match groups.last_mut() {
                Some(group)
                    if distance <= near
                        && !self.parted(line.middle() - distance, line.middle()) =>
                {
                    group.push(line);
                }
                // The second line of a header here, too.
                None if distance <= near => {}
                _ => groups.push(vec![line]),
            }
        }
        self.checked(groups, pitch)
    }

    /// Groups without a time are errors, unless they stand below the table.
    fn checked(
        &self,
        groups: Vec<Vec<&Line>>,
        pitch: Option<f64>,
    ) -> Result<Vec<Row>, (Place, Fault)> {
        let has_time = |group: &[&Line]| group.iter().any(|line| self.has_time(line));
        // What stands below may begin with a word under the times; it is no row for that.
        let whole = groups.iter().rposition(|group| self.row(group).has_whole_time());
        let last = whole.or_else(|| groups.iter().rposition(|group| has_time(group)));
        let last = last.ok_or((Place::Whole, Fault::NoRows))?;
        let mut rows = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            if at > last && self.stands_below(group, &groups[at - 1], pitch) {
                break;
            }
            if !has_time(group) {
                return Err((Place::Row(rows.len() + 1), Fault::NoTime));
            }
            rows.push(self.row(group));
        }
        Ok(rows)
    }

    /// Whether every row has a band of its own between two rules.
    fn is_banded(&self, body: &[&Line]) -> bool {
        let mut timed = body.iter().filter(|line| self.row(&[line]).has_whole_time()).peekable();
        let mut parted = false;
        while let Some(line) = timed.next() {
            let Some(next) = timed.peek() else { break };
            if !self.parted(line.middle(), next.middle()) {
                return false;
            }
            parted = true;
        }
        parted
    }

    /// Whether a level rule is between two places.
    fn parted(&self, above: f64, below: f64) -> bool {
        self.rules.level.iter().any(|rule| (above..below).contains(&rule.at))
    }

    fn stands_below(&self, group: &[&Line], above: &[&Line], pitch: Option<f64>) -> bool {
        let (Some(first), Some(above)) = (group.first(), above.last()) else { return false };
        let pitch = pitch.unwrap_or(GOES_ON_LETTERS * self.letter);
        let across = first.phrases(self.letter, &self.rules.upright).iter().any(|phrase| {
            let column = |word: &Word| self.bounds.iter().position(|b| b.has(word));
            phrase.first().map(column) != phrase.last().map(column)
        });
        across || first.middle() - above.middle() > APART_PITCHES * pitch
    }

    fn has_time(&self, line: &Line) -> bool {
        self.bounds.iter().filter(|bounds| bounds.is_time()).any(|bounds| {
            let has_letter = |word: &Word| word.text.chars().any(char::is_alphanumeric);
            line.words.iter().any(|word| bounds.has(word) && has_letter(word))
        })
    }

    fn row(&self, group: &[&Line]) -> Row {
        let mut cells = BTreeMap::new();
        let words = || group.iter().flat_map(|line| &line.words);
        for bounds in self.bounds {
            let Some(column) = bounds.column else { continue };
            let words: Vec<&Word> = words().filter(|word| bounds.has(word)).collect();
            cells.insert(column, Cell::of(&words));
        }
        let margin = MARGIN_PART * self.letter;
        Row {
            top: words().map(|word| word.top).fold(f64::INFINITY, f64::min) - margin,
            bottom: words().map(|word| word.bottom).fold(0.0, f64::max) + margin,
            cells,
        }
    }
}

impl Bounds {
    pub(super) fn has(&self, word: &Word) -> bool {
        (self.left..self.right).contains(&word.centre())
    }

    pub(super) fn is_time(&self) -> bool {
        self.column.is_some_and(Column::is_time)
    }
}
