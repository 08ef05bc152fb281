//! Pictures of tables, spoiled by the throw of dice as cameras and copiers spoil them. A number makes the same picture on every machine.

use image::GrayImage;

use crate::accuracy::sheet;
use crate::draw::{
    ARIAL, BOLD, Dice, HEAVY, MONO, Rules, SANS, SERIF, SLANTED, Sheet, TIMES, TYPEWRITER,
    compressed, grainy, shaded, slanted_away, specked, turned,
};

/// A picture and what stands on it.
pub(crate) struct Case {
    /// How it was spoiled.
    pub(crate) name: String,
    pub(crate) picture: GrayImage,
    pub(crate) rows: Vec<Vec<String>>,
}

const FONTS: [&str; 9] = [SANS, SERIF, BOLD, MONO, HEAVY, TYPEWRITER, SLANTED, ARIAL, TIMES];
const TASKS: [&str; 12] = [
    "Cleaning",
    "Window service",
    "Garden work",
    "Key handover",
    "Reception",
    "Night guard",
    "Forklift B12",
    "Stock count",
    "Pallet wrap",
    "First aid",
    "Lock up",
    "Boiler check",
];
const PLACES: [&str; 12] = [
    "North Hall",
    "Pier 4",
    "Rose Street 17",
    "Main Office",
    "Grand Hotel",
    "Depot 9",
    "Kaiserstr. 118",
    "Gate 16/17",
    "Hall Q0",
    "Oslo",
    "Wharf 31",
    "Lot 5",
];
const CUSTOMERS: [&str; 10] = [
    "Harbour Ltd",
    "Miller & Sons",
    "City Council",
    "Brightwater",
    "Northern Rail",
    "O. Illing",
    "Zwick & Roell",
    "S5 Logistics",
    "Iliad S.A.",
    "Van Rijn",
];
const KINDS: [&str; 8] = ["early", "day", "late", "night", "on call", "A1", "B", "C3"];

/// A whole number below another.
fn below(dice: &mut Dice, most: usize) -> usize {
    ((dice.roll() * most as f32) as usize).min(most - 1)
}

fn between(dice: &mut Dice, least: f32, most: f32) -> f32 {
    least + dice.roll() * (most - least)
}

fn one<'a>(dice: &mut Dice, of: &[&'a str]) -> &'a str {
    of[below(dice, of.len())]
}

/// A time in one of four ways to write it.
fn time(minutes: usize, way: usize) -> String {
    let (hour, minute) = (minutes / 60 % 24, minutes % 60);
    let half = if hour < 12 { "am" } else { "pm" };
    match way {
        0 => format!("{hour:02}:{minute:02}"),
        1 => format!("{hour}.{minute:02}"),
        2 => format!("{hour}:{minute:02}"),
        _ => format!("{}:{minute:02}{half}", if hour % 12 == 0 { 12 } else { hour % 12 }),
    }
}

fn rows(dice: &mut Dice) -> Vec<Vec<String>> {
    let way = below(dice, 4);
    let mut from = 240 + below(dice, 240);
    let mut rows = Vec::new();
    for _ in 0..5 {
        let to = from + 30 + below(dice, 190);
        let texts = [&TASKS[..], &PLACES[..], &CUSTOMERS[..], &KINDS[..]];
        let mut row = vec![time(from, way), time(to, way)];
        row.extend(texts.map(|texts| one(dice, texts).to_owned()));
        rows.push(row);
        from = to + 5 * below(dice, 8);
    }
    rows
}

/// The picture of a number.
pub(crate) fn case(number: u64) -> Case {
    let mut dice = Dice(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first throws of a small number are small, too.
    for _ in 0..8 {
        dice.roll();
    }
    let dice = &mut dice;
    let rows = rows(dice);
    let font = one(dice, &FONTS);
    let size = between(dice, 14.0, 40.0);
    let rules = [Rules::None, Rules::Few, Rules::All][below(dice, 3)];
    let faint = below(dice, 3) == 0;
    let paper = between(dice, 170.0, 250.0);
    let ink = if faint { paper - between(dice, 30.0, 70.0) } else { between(dice, 10.0, 70.0) };
    let mut name = format!("{number}: {font}, {size:.0}, {rules:?}, ink {ink:.0} on {paper:.0}");
    let sheet = Sheet {
        headers: vec!["From", "Until", "Activity", "Location", "Client", "Kind"],
        heading: "Schedule for Monday 16.11.2026",
        rows: rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect(),
        font,
        size,
        rules,
        ink: ink as u8,
        paper: paper as u8,
        ..sheet()
    };
    let mut picture = sheet.draw();
    let harms = below(dice, 4);
    for _ in 0..harms {
        let much = dice.roll();
        let (harm, spoiled) = match below(dice, 7) {
            0 => ("turned", turned(&picture, 18.0 * (much - 0.5))),
            1 => ("blurred", image::imageops::blur(&picture, 0.5 + much * size / 20.0)),
            2 => ("grainy", grainy(picture, (paper - ink) * (0.03 + 0.17 * much), number + 1)),
            3 => ("specked", specked(picture, 0.03 * much, number + 1)),
            4 => ("shaded", shaded(picture)),
            5 => ("slanted", slanted_away(&picture, 0.12 * (much - 0.5), 0.12 * (much - 0.3))),
            _ => ("compressed", compressed(&picture, 30 + (much * 50.0) as u8)),
        };
        name = format!("{name}, {harm} {much:.2}");
        picture = spoiled;
    }
    Case { name, picture, rows }
}
