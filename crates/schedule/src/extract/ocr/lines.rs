//! Words that stand beside each other: lines, and phrases within a line.

use super::ink::Rule;
use super::tesseract::Word;

/// Words whose middles are nearer than this part of a letter are in one line.
const SAME_LINE_PART: f64 = 0.5;
/// A gap of so much of a letter's height parts two phrases; between words it is a third.
const PHRASE_GAP_PART: f64 = 0.9;
/// Words lower than this part of a letter, but for dashes, are specks.
const SPECK_PART: f64 = 0.35;
/// Words higher than so many letters are no words.
const GIANT_LETTERS: f64 = 3.0;

/// Words in a line, from left to right.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) words: Vec<Word>,
}

impl Line {
    pub(super) fn middle(&self) -> f64 {
        self.words.iter().map(Word::middle).sum::<f64>() / self.words.len().max(1) as f64
    }

    pub(super) fn text(&self) -> String {
        self.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Words with no wide gap and no rule between them.
    pub(super) fn phrases(&self, letter: f64, upright: &[Rule]) -> Vec<&[Word]> {
        self.words
            .chunk_by(|a, b| {
                let middle = a.middle();
                let parted = upright.iter().any(|rule| {
                    (rule.from..=rule.to).contains(&middle)
                        && (a.centre()..b.centre()).contains(&rule.at)
                });
                !parted && b.left - a.right < PHRASE_GAP_PART * letter
            })
            .collect()
    }
}

/// The height of most words.
pub(super) fn letter_of(words: &[Word]) -> f64 {
    let mut heights: Vec<f64> = words.iter().map(Word::height).collect();
    heights.sort_unstable_by(f64::total_cmp);
    heights.get(heights.len() / 2).copied().unwrap_or(1.0).max(1.0)
}

/// Leaves out what rules and specks of dirt become when they are read as letters.
pub(super) fn clean(words: Vec<Word>) -> Vec<Word> {
    let letter = letter_of(&words);
    let mut kept = Vec::new();
    for mut word in words {
        word.text = word.text.trim_matches(['|', '_', '[', ']', '{', '}', '¦', '~']).to_owned();
        let dash = !word.text.is_empty() && word.text.chars().all(is_dash);
        let letters = word.text.chars().any(char::is_alphanumeric);
        let height = word.height() / letter;
        let sound = (SPECK_PART..=GIANT_LETTERS).contains(&height);
        if dash || (letters && sound) || (word.text == "&" && sound) {
            kept.push(word);
        }
    }
    kept
}

fn is_dash(c: char) -> bool {
    matches!(c, '-' | '–' | '—' | '−')
}

/// The lines, from the top.
pub(super) fn lines(mut words: Vec<Word>) -> Vec<Line> {
    let letter = letter_of(&words);
    words.sort_by(|a, b| a.middle().total_cmp(&b.middle()));
    let mut lines: Vec<Line> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if word.middle() - line.middle() < SAME_LINE_PART * letter => {
                line.words.push(word);
            }
            _ => lines.push(Line { words: vec![word] }),
        }
    }
    for line in &mut lines {
        line.words.sort_by(|a, b| a.left.total_cmp(&b.left));
    }
    lines
}
