//! Tells letters and digits that look alike apart by their shape: `A1` from `Al`, `Q0` from `QO`.
//!
//! Tesseract goes by what usually stands in a text, and a code is nothing usual. The times of the same picture are sure
//! by now, and so their digits are samples of how a digit looks there.
//!
//! Promises: only words that may be codes are looked at; one that cannot be told is refused and never guessed.

use std::collections::BTreeMap;

use image::GrayImage;

use super::ink::{self, Piece};

/// Ink lower than this part of a letter is a dot or a dash.
const LEAST_GLYPH: f64 = 0.45;
/// Ink lower than this is a speck.
const LEAST_DOT: f64 = 0.08;
/// Shapes nearer than this are the same digit.
const SAME: f64 = 0.13;
/// Shapes farther than this are another sign.
const OTHER: f64 = 0.17;
/// What a difference in proportion weighs beside one in ink.
const PROPORTION_WEIGHT: f64 = 0.5;
/// A shape is compared in so many columns and rows.
const GRID: (u32, u32) = (10, 14);
/// The most samples of a digit.
const MAX_SAMPLES: usize = 24;

/// A glyph's ink in a grid, and its proportion.
#[derive(Debug, Clone)]
struct Shape {
    ink: Vec<f64>,
    proportion: f64,
}

impl Shape {
    fn of(part: &GrayImage, piece: &Piece) -> Shape {
        let (width, height) = (piece.right - piece.left + 1, piece.bottom - piece.top + 1);
        let glyph = image::imageops::crop_imm(part, piece.left, piece.top, width, height);
        let filter = image::imageops::FilterType::Triangle;
        let grid = image::imageops::resize(&glyph.to_image(), GRID.0, GRID.1, filter);
        Shape {
            ink: grid.pixels().map(|pixel| f64::from(pixel.0[0]) / 255.0).collect(),
            proportion: f64::from(width) / f64::from(height),
        }
    }

    /// By squares, so that a dot in a zero counts for more than a blurred edge all around.
    fn distance(&self, other: &Shape) -> f64 {
        let ink: f64 = self.ink.iter().zip(&other.ink).map(|(a, b)| (a - b).powi(2)).sum();
        let proportion = (self.proportion - other.proportion).abs();
        (ink / self.ink.len() as f64).sqrt() + PROPORTION_WEIGHT * proportion
    }
}

/// The digits of a picture's times.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<char, Vec<Shape>>);

impl Samples {
    /// Takes the digits of a cell that is sure.
    pub(super) fn add(&mut self, part: &GrayImage, letter: f64, text: &str) {
        let words = words(text);
        for (word, glyphs) in words.iter().zip(glyphs(part, letter, words.len())) {
            if word.len() != glyphs.len() {
                continue;
            }
            for (sign, piece) in word.iter().zip(&glyphs).filter(|(sign, _)| sign.is_ascii_digit())
            {
                let samples = self.0.entry(*sign).or_default();
                if samples.len() < MAX_SAMPLES {
                    samples.push(Shape::of(part, piece));
                }
            }
        }
    }

    /// The text with digits and letters as their shapes are. None: they cannot be told apart.
    pub(super) fn settle(&self, part: &GrayImage, letter: f64, text: &str) -> Option<String> {
        let said = words(text);
        // Hardly a word begins so: it is a misread capital I, which no digit can tell.
        if said.iter().any(|word| matches!(word[..], ['l', 'l' | 'I', ..])) {
            return None;
        }
        let written = text.split_whitespace().filter(|word| word.contains(is_glyph));
        let initials = |word: &str| {
            let mut signs = word.chars();
            signs.all(|sign| sign.is_uppercase() || sign == '.') && word.contains('.')
        };
        let doubts: Vec<Doubt> = written
            .zip(&said)
            .map(|(written, word)| if initials(written) { Doubt::None } else { doubt(word) })
            .collect();
        if doubts.iter().all(|doubt| *doubt == Doubt::None) {
            return Some(text.to_owned());
        }
        let seen = glyphs(part, letter, said.len());
        let mut settled = Vec::new();
        for (at, word) in said.iter().enumerate() {
            let glyphs = seen.get(at).filter(|glyphs| glyphs.len() == word.len());
            match (doubts[at], glyphs) {
                (Doubt::None, _) | (Doubt::Some, None) => settled.extend(word),
                (Doubt::Great, None) => return None,
                (doubt, Some(glyphs)) => {
                    for (sign, piece) in word.iter().zip(glyphs) {
                        settled.push(match digit_like(*sign) {
                            None => *sign,
                            Some(digit) => {
                                self.tell(*sign, digit, &Shape::of(part, piece), doubt)?
                            }
                        });
                    }
                }
            }
        }
        let mut settled = settled.into_iter();
        let signs = text.chars().map(|c| if is_glyph(c) { settled.next().unwrap_or(c) } else { c });
        Some(signs.collect())
    }

    /// Whether a sign is the digit that it looks like.
    fn tell(&self, sign: char, digit: char, shape: &Shape, doubt: Doubt) -> Option<char> {
        let unknown = (doubt != Doubt::Great).then_some(sign);
        let Some(samples) = self.0.get(&digit) else { return unknown };
        let nearest = samples.iter().map(|sample| sample.distance(shape)).fold(f64::MAX, f64::min);
        if nearest <= SAME {
            return Some(digit);
        }
        if nearest >= OTHER {
            return (sign != digit).then_some(sign);
        }
        unknown
    }
}

/// The digit that a sign may be, or is.
fn digit_like(sign: char) -> Option<char> {
    Some(match sign {
        '0' | 'O' | 'o' | 'D' => '0',
        '1' | 'l' | 'I' | '|' | '!' => '1',
        '2' | 'Z' | 'z' => '2',
        '5' | 'S' | 's' | '$' => '5',
        '8' | 'B' => '8',
        _ => return None,
    })
}

/// How much a word may be another than was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// Letters and digits together: a code, in which a digit was seen as such.
    Some,
    /// A digit may be among what was read as letters, or the other way round.
    Great,
}

fn doubt(word: &[char]) -> Doubt {
    let digits = word.iter().filter(|sign| sign.is_ascii_digit()).count();
    let strange = word.iter().any(|sign| matches!(sign, '$' | '|' | '!'));
    let capitals = word.iter().all(|sign| !sign.is_lowercase() || matches!(sign, 'l' | 'o'));
    let alike = word.iter().any(|sign| digit_like(*sign).is_some());
    if strange {
        return Doubt::Great;
    }
    match (digits, word.len()) {
        _ if !alike => Doubt::None,
        (0, 1..=3) if capitals => Doubt::Great,
        (1, 1) => Doubt::Great,
        (digits, all) if digits > 0 && digits < all => Doubt::Some,
        _ => Doubt::None,
    }
}

/// Signs that are as high as letters; dots, dashes and quotes are not.
fn is_glyph(sign: char) -> bool {
    sign.is_alphanumeric()
        || matches!(sign, '&' | '$' | '|' | '!' | '/' | '(' | ')' | '%' | '+' | '#')
}

fn words(text: &str) -> Vec<Vec<char>> {
    let words = text.split_whitespace().map(|word| word.chars().filter(|c| is_glyph(*c)).collect());
    words.filter(|word: &Vec<char>| !word.is_empty()).collect()
}

/// The glyphs of each of so many words in a part of the picture that has one line: they part at the widest gaps.
fn glyphs(part: &GrayImage, letter: f64, words: usize) -> Vec<Vec<Piece>> {
    let height = |piece: &Piece| f64::from(piece.bottom - piece.top + 1) / letter;
    let mut pieces = ink::pieces(part, 128);
    pieces.retain(|piece| height(piece) >= LEAST_DOT);
    pieces.sort_by_key(|piece| piece.left);
    let mut gaps = Vec::new();
    let mut right = None;
    for (at, piece) in pieces.iter().enumerate() {
        if let Some(right) = right {
            gaps.push((piece.left.saturating_sub(right), at));
        }
        right = right.max(Some(piece.right));
    }
    gaps.sort_unstable_by_key(|(gap, _)| std::cmp::Reverse(*gap));
    let parts: Vec<usize> = gaps.iter().take(words.saturating_sub(1)).map(|(_, at)| *at).collect();
    let mut found = vec![Vec::new()];
    for (at, piece) in pieces.into_iter().enumerate() {
        if parts.contains(&at) {
            found.push(Vec::new());
        }
        if let Some(word) = found.last_mut()
            && height(&piece) >= LEAST_GLYPH
        {
            word.push(piece);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zero is a ring, an O is a wider one, a 1 is a bar.
    fn draw(text: &str) -> GrayImage {
        let mut picture = GrayImage::from_pixel(400, 60, image::Luma([255]));
        let mut left = 20;
        for sign in text.chars() {
            let width = match sign {
                ' ' => 30,
                '1' => 4,
                '0' => 16,
                _ => 26,
            };
            for (x, y) in (0..width).flat_map(|x| (0..30).map(move |y| (x, y))) {
                let edge = x < 4 || x >= width - 4 || !(4..26).contains(&y);
                if edge && sign != ' ' {
                    picture.put_pixel(left + x, 15 + y, image::Luma([0]));
                }
            }
            left += width + 6;
        }
        picture
    }

    fn settled(drawn: &str, read: &str) -> Option<String> {
        let mut samples = Samples::default();
        samples.add(&draw("1010"), 30.0, "10:10");
        samples.settle(&draw(drawn), 30.0, read)
    }

    #[test]
    fn codes_are_as_their_shapes_are() {
        assert_eq!(settled("OO X0", "HH QO").as_deref(), Some("HH Q0"));
        assert_eq!(settled("OO XO", "HH QO").as_deref(), Some("HH QO"));
        assert_eq!(settled("O1", "Al").as_deref(), Some("A1"));
        assert_eq!(settled("O", "0"), None, "read as a digit, and is none");
        assert_eq!(settled("X", "S"), None, "there is no 5 to compare with");
        assert_eq!(settled("XX", "S.A.").as_deref(), Some("S.A."));
        assert_eq!(settled("O", "QO"), None, "two letters, and one is there");
    }

    #[test]
    fn words_and_numbers_are_left_alone() {
        for text in ["Hall", "Oslo", "118", "on", "Illing", "4", "late 17"] {
            assert_eq!(settled("XXX", text).as_deref(), Some(text));
        }
        assert_eq!(settled("XXXXX", "lliad"), None);
    }
}
