//! Seeded noise: an observation written another way, with the same meaning. Pure and deterministic.
//!
//! What a worker's fixture mode and the tests of the canonical form stand on: [`disturb`] changes only representation, so the canonical
//! day stays the same. The generator is its own few lines, because the same seed must give the same noise with every version of every library.

use unicode_normalization::UnicodeNormalization;

use crate::canonical::{DAY, MAX_ENTRIES, MAX_FIELD_CHARS, fold, read_ends};
use crate::observation::{Observation, RawEntry};

const DASHES: [&str; 6] = ["-", "–", " – ", "—", " - ", " to "];
const SPACES: [&str; 5] = [" ", "  ", "\u{a0}", "\t", "\u{2009}"];

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `sides`, which is at least 1.
    fn below(&mut self, sides: usize) -> usize {
        usize::try_from(self.roll() % sides.max(1) as u64).unwrap_or_default()
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }
}

/// Writes an observation another way. The same seed gives the same writing.
pub fn disturb(seen: &Observation, seed: u64) -> Observation {
    let mut dice = Dice(seed);
    let mut entries: Vec<RawEntry> =
        seen.entries.iter().map(|entry| disturb_entry(entry, &mut dice)).collect();
    if !entries.is_empty() && entries.len() < MAX_ENTRIES && dice.one_in(3) {
        // Two photographs that overlap show a line twice.
        let again = dice.below(entries.len());
        entries.push(entries[again].clone());
    }
    for last in (1..entries.len()).rev() {
        entries.swap(last, dice.below(last + 1));
    }
    Observation {
        schedule_date: disturb_date(&seen.schedule_date, &mut dice),
        timezone: disturb_text(&seen.timezone, &mut dice),
        entries,
        confidence: seen.confidence,
    }
}

fn disturb_entry(entry: &RawEntry, dice: &mut Dice) -> RawEntry {
    let (start, end) = match read_ends(&fold(&entry.start), &fold(&entry.end)) {
        // What cannot be read is left alone: what it means is not known.
        Err(_) => (entry.start.clone(), entry.end.clone()),
        Ok((start, end)) if dice.one_in(4) => {
            // Both in one field. Only with both halves told, or neither: otherwise a reader must guess.
            let dash = DASHES[dice.below(DASHES.len())];
            let (half, full) = (dice.one_in(2), dice.below(4));
            let (start, end) = match half {
                true => (half_day(start, dice), half_day(end % DAY, dice)),
                false => (full_day(start, full), full_day(end % DAY, full)),
            };
            (format!("{start}{dash}{end}"), String::new())
        }
        Ok((start, end)) => (disturb_time(start, dice), disturb_end(end, dice)),
    };
    RawEntry {
        start,
        end,
        title: disturb_text(&entry.title, dice),
        location: disturb_text(&entry.location, dice),
        customer: disturb_text(&entry.customer, dice),
        kind: disturb_text(&entry.kind, dice),
    }
}

fn disturb_end(end: u16, dice: &mut Dice) -> String {
    if end == DAY && dice.one_in(2) {
        return ["24:00", "midnight", "2400"][dice.below(3)].to_owned();
    }
    disturb_time(end % DAY, dice)
}

fn disturb_time(minutes: u16, dice: &mut Dice) -> String {
    match (dice.below(3), minutes) {
        (0, 0) => "Midnight".to_owned(),
        (0, 720) => "noon".to_owned(),
        (0, _) => half_day(minutes, dice),
        _ => {
            let text = full_day(minutes, dice.below(7));
            if dice.one_in(4) { wide(&text) } else { text }
        }
    }
}

fn full_day(minutes: u16, way: usize) -> String {
    let (hour, minute) = (minutes / 60, minutes % 60);
    match way {
        0 => format!("{hour:02}:{minute:02}"),
        1 => format!("{hour}.{minute:02}"),
        2 if minute == 0 => format!("{hour}"),
        2 => format!("{hour}:{minute:02}"),
        3 => format!("{hour:02}{minute:02}"),
        4 => format!("{hour}h{minute:02}"),
        5 => format!("{hour:02}:{minute:02}:00"),
        _ => format!(" {hour}:{minute:02} Uhr "),
    }
}

fn half_day(minutes: u16, dice: &mut Dice) -> String {
    let (hour, minute) = (minutes / 60, minutes % 60);
    let half = if hour < 12 { ["am", " AM", " a.m."] } else { ["pm", " PM", " p.m."] };
    let half = half[dice.below(3)];
    match (hour + 11) % 12 + 1 {
        hour if minute == 0 && dice.one_in(2) => format!("{hour}{half}"),
        hour => format!("{hour}:{minute:02}{half}"),
    }
}

fn disturb_date(text: &str, dice: &mut Dice) -> String {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return text.to_owned() };
    if year.len() != 4 || month.len() != 2 || day.len() != 2 {
        return text.to_owned();
    }
    match dice.below(5) {
        0 => format!("{year}/{month}/{day}"),
        1 => format!("{day}.{month}.{year}"),
        2 => format!("{year}{month}{day}"),
        3 => format!(" {year}–{month}–{day} "),
        _ => text.to_owned(),
    }
}

fn disturb_text(text: &str, dice: &mut Dice) -> String {
    let mut noisy = match dice.below(5) {
        0 => text.to_uppercase(),
        1 => text.to_lowercase(),
        2 => text.nfd().collect(),
        3 => wide(text),
        _ => text.to_owned(),
    };
    if dice.one_in(2) {
        let space = SPACES[dice.below(SPACES.len())];
        noisy = noisy.replace(' ', space);
    }
    if dice.one_in(3) {
        noisy = format!("{}{noisy}{}", SPACES[dice.below(5)], SPACES[dice.below(5)]);
    }
    if dice.one_in(4) {
        noisy = noisy.replace('-', "–").replace('\'', "’");
    }
    // Noise must not make a text longer than a field may be.
    if noisy.chars().count() > MAX_FIELD_CHARS { text.to_owned() } else { noisy }
}

/// The full-width forms of ASCII, as some keyboards and fonts give them.
fn wide(text: &str) -> String {
    let widen = |c: char| match c {
        '!'..='~' => char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c),
        other => other,
    };
    text.chars().map(widen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Observation {
        let entry = |start: &str, title: &str| RawEntry {
            start: start.to_owned(),
            end: "16:00".to_owned(),
            title: title.to_owned(),
            ..RawEntry::default()
        };
        Observation {
            schedule_date: "2026-11-16".to_owned(),
            entries: vec![entry("08:00", "Night watch"), entry("what", "Fire-drill")],
            ..Observation::default()
        }
    }

    #[test]
    fn the_same_seed_is_the_same_noise() {
        assert_eq!(disturb(&seen(), 7), disturb(&seen(), 7));
        let different = (0..50).filter(|seed| disturb(&seen(), *seed) != seen()).count();
        assert!(different > 40, "only {different} of 50 seeds did anything");
    }

    #[test]
    fn the_generator_is_splitmix() {
        // The published first outputs for the seed 1234567.
        let mut dice = Dice(1_234_567);
        assert_eq!(dice.roll(), 6_457_827_717_110_365_317);
        assert_eq!(dice.roll(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        for seed in 0..50 {
            let starts = disturb(&seen(), seed).entries.into_iter().map(|entry| entry.start);
            assert!(starts.into_iter().any(|start| start == "what"));
        }
    }
}
