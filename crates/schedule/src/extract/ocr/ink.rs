//! What the ink on a level picture is: how high its letters are, and which of it are a table's rules.

use image::{GrayImage, Luma};

use super::light;

/// A run of ink so many letters long is a rule and no letter.
const RULE_LETTERS: f64 = 3.0;
/// Rules go on over holes of this part of a letter's height.
const HOLE_PART: f64 = 0.12;
/// So much around a rule is painted over, as part of a letter's height: its blurred edge.
const EDGE_PART: f64 = 0.07;
/// Rules that are nearer than this part of a letter's height are one.
const SAME_PART: f64 = 0.6;
/// A rule that parts columns or rows is so many letters long in all.
const PARTING_LETTERS: f64 = 3.0;

/// A piece of ink between these, as parts of a letter's height, may be a letter.
const LEAST_LETTER: f64 = 0.5;
const MOST_LETTER: f64 = 1.6;

/// Where a table's rules were: the vertical ones by x, the others by y, with what they span.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rules {
    pub(super) upright: Vec<Rule>,
    pub(super) level: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rule {
    /// Across its direction.
    pub(super) at: f64,
    /// Along it.
    pub(super) from: f64,
    /// Along it.
    pub(super) to: f64,
}

/// The height of most letters, if there are letters.
pub(super) fn letter_height(grey: &GrayImage) -> Option<f64> {
    let (dark, ..) = light::threshold(grey);
    let mut heights: Vec<u32> = pieces(grey, dark)
        .into_iter()
        .filter(|piece| {
            let (width, height) = (piece.right - piece.left + 1, piece.bottom - piece.top + 1);
            // Dots and noise are lower, rules and frames longer than letters are.
            height >= 5 && height <= grey.height() / 4 && width <= 4 * height && height <= 6 * width
        })
        .map(|piece| piece.bottom - piece.top + 1)
        .collect();
    heights.sort_unstable();
    // The median would be between small letters and capitals; this is mostly a capital's.
    (heights.len() >= 8).then(|| f64::from(heights[heights.len() * 7 / 10]))
}

/// Whether there is a piece of ink that may be a letter, and no dot, dash or speck.
pub(super) fn has_letters(grey: &GrayImage, letter: f64) -> bool {
    pieces(grey, 128).iter().any(|piece| {
        let height = f64::from(piece.bottom - piece.top + 1) / letter;
        (LEAST_LETTER..=MOST_LETTER).contains(&height)
    })
}

/// A connected piece of ink.
pub(super) struct Piece {
    pub(super) left: u32,
    pub(super) right: u32,
    pub(super) top: u32,
    pub(super) bottom: u32,
}

/// All connected pieces: runs of a line are joined with those above that they touch.
pub(super) fn pieces(grey: &GrayImage, dark: u8) -> Vec<Piece> {
    let mut found: Vec<Piece> = Vec::new();
    // Which piece each became a part of; a piece that is its own is whole.
    let mut whole: Vec<usize> = Vec::new();
    let mut above: Vec<(u32, u32, usize)> = Vec::new();
    for y in 0..grey.height() {
        let mut line = Vec::new();
        let mut first = 0;
        for (left, right) in runs(grey.width(), |x| grey.get_pixel(x, y).0[0] <= dark, 0) {
            while above.get(first).is_some_and(|(_, end, _)| end + 1 < left) {
                first += 1;
            }
            let mut mine = None;
            for (_, _, other) in above[first..].iter().take_while(|(start, ..)| *start <= right + 1)
            {
                let other = root(&mut whole, *other);
                let Some(into) = mine else {
                    mine = Some(other);
                    continue;
                };
                if into != other {
                    whole[other] = into;
                    let Piece { left, right, top, bottom } = found[other];
                    found[into].grow(left, right, top, bottom);
                }
            }
            let mine = mine.unwrap_or_else(|| {
                whole.push(found.len());
                found.push(Piece { left, right, top: y, bottom: y });
                found.len() - 1
            });
            found[mine].grow(left, right, y, y);
            line.push((left, right, mine));
        }
        above = line;
    }
    found
        .into_iter()
        .zip(whole)
        .enumerate()
        .filter(|(at, (_, w))| at == w)
        .map(|(_, (p, _))| p)
        .collect()
}

impl Piece {
    fn grow(&mut self, left: u32, right: u32, top: u32, bottom: u32) {
        self.left = self.left.min(left);
        self.right = self.right.max(right);
        self.top = self.top.min(top);
        self.bottom = self.bottom.max(bottom);
    }
}

fn root(whole: &mut [usize], mut at: usize) -> usize {
    while whole[at] != at {
        whole[at] = whole[whole[at]];
        at = whole[at];
    }
    at
}

/// From where to where something is, with holes up to a length passed over.
fn runs(length: u32, is: impl Fn(u32) -> bool, hole: u32) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for at in (0..length).filter(|at| is(*at)) {
        match runs.last_mut() {
            Some((_, end)) if at <= *end + 1 + hole => *end = at,
            _ => runs.push((at, at)),
        }
    }
    runs
}

/// Paints the rules over, and tells where they were.
pub(super) fn take_rules(grey: &mut GrayImage, letter: f64) -> Rules {
    let (dark, ..) = light::threshold(grey);
    // Lines of a scan are grey at their edges: somewhat brighter than ink is still rule.
    let dark = dark.max(150);
    let pixels = |part: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few pixels")]
        let pixels = (part * letter).round().max(1.0) as u32;
        pixels
    };
    let (long, hole, edge) = (pixels(RULE_LETTERS), pixels(HOLE_PART), pixels(EDGE_PART));
    let (width, height) = grey.dimensions();
    let mut upright = Vec::new();
    let mut level = Vec::new();
    for y in 0..height {
        let found = runs(width, |x| grey.get_pixel(x, y).0[0] <= dark, hole);
        level.extend(found.into_iter().filter(|(a, b)| b - a >= long).map(|(a, b)| (y, a, b)));
    }
    for x in 0..width {
        let found = runs(height, |y| grey.get_pixel(x, y).0[0] <= dark, hole);
        upright.extend(found.into_iter().filter(|(a, b)| b - a >= long).map(|(a, b)| (x, a, b)));
    }
    for (y, from, to) in &level {
        for y in y.saturating_sub(edge)..(y + edge + 1).min(height) {
            (*from..=*to).for_each(|x| grey.put_pixel(x, y, Luma([255])));
        }
    }
    for (x, from, to) in &upright {
        for x in x.saturating_sub(edge)..(x + edge + 1).min(width) {
            (*from..=*to).for_each(|y| grey.put_pixel(x, y, Luma([255])));
        }
    }
    Rules { upright: gathered(upright, letter), level: gathered(level, letter) }
}

/// Runs beside each other are one rule, be it thick or slightly askew.
fn gathered(runs: Vec<(u32, u32, u32)>, letter: f64) -> Vec<Rule> {
    // Runs come in the order of their place, so a rule's runs follow each other.
    let mut rules: Vec<(f64, f64, f64, f64)> = Vec::new();
    for (at, from, to) in runs {
        let (at, from, to) = (f64::from(at), f64::from(from), f64::from(to));
        match rules.last_mut() {
            Some((_, last, start, end)) if at - *last <= SAME_PART * letter => {
                *last = at;
                *start = start.min(from);
                *end = end.max(to);
            }
            _ => rules.push((at, at, from, to)),
        }
    }
    let rules = rules.into_iter().filter(|(.., from, to)| to - from >= PARTING_LETTERS * letter);
    rules.map(|(first, last, from, to)| Rule { at: (first + last) / 2.0, from, to }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters_in_a_grid() -> GrayImage {
        GrayImage::from_fn(400, 300, |x, y| {
            let rule = (x % 130 < 2 || y % 60 < 2) && x < 392 && y < 242;
            let letter = (20..34).contains(&(y % 60)) && x % 130 > 20 && x % 12 < 6;
            Luma([if rule || (letter && y < 240) { 0 } else { 255 }])
        })
    }

    #[test]
    fn the_height_of_letters_is_not_that_of_the_frame() {
        assert_eq!(letter_height(&letters_in_a_grid()), Some(14.0));
        assert_eq!(letter_height(&GrayImage::from_pixel(300, 300, Luma([255]))), None);
    }

    #[test]
    fn rules_go_and_letters_stay() {
        let mut picture = letters_in_a_grid();
        let rules = take_rules(&mut picture, 14.0);
        let at = |rules: &[Rule]| rules.iter().map(|rule| rule.at).collect::<Vec<_>>();
        assert_eq!(at(&rules.upright), [0.5, 130.5, 260.5, 390.5]);
        assert_eq!(at(&rules.level), [0.5, 60.5, 120.5, 180.5, 240.5]);
        for (x, y, pixel) in picture.enumerate_pixels() {
            let letter = (20..34).contains(&(y % 60)) && x % 130 > 20 && x % 12 < 6 && y < 240;
            // The letters right beside a rule may lose their edge.
            if x % 130 > 3 && x % 130 < 127 {
                assert_eq!(pixel.0[0] == 0, letter, "at {x}, {y}");
            }
        }
    }
}
