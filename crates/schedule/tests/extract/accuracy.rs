//! How many cells are read right, over fonts, sizes, angles and noises. The spec page has the measured number.

use image::GrayImage;
use jiff::civil::date;
use schedule::observation::RawEntry;

use crate::draw::{
    ARIAL, BOLD, MONO, Rules, SANS, SERIF, Sheet, TIMES, grainy, shaded, specked, turned,
};
use crate::read;

/// Cells read right, of a thousand, must not fall below this; what is measured is in the spec.
const FLOOR_PER_THOUSAND: usize = 970;
/// Pictures that must be read, of all of them; the others are refused.
const FLOOR_PICTURES: usize = 18;

pub(crate) fn sheet<'a>() -> Sheet<'a> {
    Sheet {
        heading: "Monday 16 November 2026",
        headers: vec!["Start", "End", "Task", "Place", "Customer", "Type"],
        rows: vec![
            vec!["06:00", "08:30", "Cleaning", "North Hall", "Harbour Ltd", "early"],
            vec!["08:45", "12:15", "Window service", "Pier 4", "Miller & Sons", "day"],
            vec!["13:00", "15:30", "Garden work", "Rose Street 17", "City Council", "day"],
            vec!["15:45", "17:00", "Key handover", "Main Office", "Brightwater", "day"],
            vec!["17:30", "21:45", "Reception", "Grand Hotel", "Grand Hotel", "late"],
            vec!["22:00", "06:00", "Night guard", "Depot 9", "Northern Rail", "night"],
        ],
        footer: "",
        font: SANS,
        size: 28.0,
        rules: Rules::All,
        ink: 20,
        paper: 245,
    }
}

/// The pictures: what is unusual about each, and the picture.
fn pictures() -> Vec<(&'static str, GrayImage)> {
    let with = |change: &dyn Fn(&mut Sheet<'_>)| {
        let mut sheet = sheet();
        change(&mut sheet);
        sheet.draw()
    };
    let plain = |font: &'static str, size: f32, rules: Rules| {
        with(&|sheet| {
            (sheet.font, sheet.size, sheet.rules) = (font, size, rules);
        })
    };
    let faint = |ink: u8, paper: u8| with(&|sheet| (sheet.ink, sheet.paper) = (ink, paper));
    vec![
        ("sans", plain(SANS, 28.0, Rules::All)),
        ("serif, no rules", plain(SERIF, 28.0, Rules::None)),
        ("bold, few rules", plain(BOLD, 26.0, Rules::Few)),
        ("mono", plain(MONO, 24.0, Rules::All)),
        ("like Arial, no rules", plain(ARIAL, 30.0, Rules::None)),
        ("like Times", plain(TIMES, 32.0, Rules::All)),
        ("small", plain(SANS, 16.0, Rules::All)),
        ("small, no rules", plain(ARIAL, 17.0, Rules::None)),
        ("large", plain(SERIF, 64.0, Rules::All)),
        ("5 degrees to the right", turned(&plain(SANS, 28.0, Rules::All), 5.0)),
        ("5 degrees to the left", turned(&plain(ARIAL, 28.0, Rules::None), -5.0)),
        ("2 degrees to the left", turned(&plain(TIMES, 34.0, Rules::Few), -2.0)),
        ("10 degrees to the right", turned(&plain(SERIF, 30.0, Rules::All), 10.0)),
        ("grainy", grainy(plain(SANS, 30.0, Rules::All), 18.0, 7)),
        ("very grainy", grainy(plain(ARIAL, 34.0, Rules::None), 35.0, 8)),
        ("specked", specked(plain(SANS, 34.0, Rules::All), 0.02, 9)),
        ("low contrast", faint(130, 175)),
        ("low contrast, grainy", grainy(faint(100, 180), 8.0, 10)),
        ("shadow", shaded(plain(SANS, 28.0, Rules::All))),
        (
            "shadow, grainy, 3 degrees",
            grainy(shaded(turned(&plain(SERIF, 32.0, Rules::All), 3.0)), 8.0, 11),
        ),
    ]
}

fn cells(entry: &RawEntry) -> [&str; 6] {
    let RawEntry { start, end, title, location, customer, kind } = entry;
    [start, end, title, location, customer, kind].map(String::as_str)
}

/// What came of some pictures.
#[derive(Debug, Default)]
struct Score {
    pictures: usize,
    cells: usize,
    right: usize,
    wrong_times: Vec<String>,
}

async fn score(pictures: Vec<(&'static str, GrayImage)>) -> Score {
    let expected = sheet().rows;
    let mut score = Score::default();
    for (name, picture) in pictures {
        let observation = match read(&[picture], &["eng"]).await {
            Ok(observation) => observation,
            Err(error) => {
                println!("{name}: refused: {error}");
                continue;
            }
        };
        score.pictures += 1;
        assert_eq!(observation.schedule_date, date(2026, 11, 16), "{name}");
        assert_eq!(observation.entries.len(), expected.len(), "{name}: {observation:?}");
        let mut missed = Vec::new();
        for (entry, row) in observation.entries.iter().zip(&expected) {
            for (column, (read, written)) in cells(entry).iter().zip(row).enumerate() {
                score.cells += 1;
                if read == written {
                    score.right += 1;
                    continue;
                }
                missed.push(format!("{read:?} for {written:?}"));
                if column < 2 {
                    score.wrong_times.push(format!("{name}: {read:?} for {written:?}"));
                }
            }
        }
        println!("{name}: confidence {:.3}, missed {missed:?}", observation.confidence.unwrap());
    }
    score
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_are_read_right_over_fonts_sizes_angles_and_noises() {
    let mut pictures = pictures();
    let half = pictures.split_off(pictures.len() / 2);
    let halves = (tokio::spawn(score(pictures)), tokio::spawn(score(half)));
    let (a, b) = (halves.0.await.unwrap(), halves.1.await.unwrap());
    let (read, right, all) = (a.pictures + b.pictures, a.right + b.right, a.cells + b.cells);
    println!("{right} of {all} cells right in {read} pictures that were read");
    // A wrong time that is taken for sure is the one thing that must not happen.
    let wrong_times = [a.wrong_times, b.wrong_times].concat();
    assert!(wrong_times.is_empty(), "{wrong_times:?}");
    assert!(read >= FLOOR_PICTURES, "only {read} were read");
    assert!(right * 1000 >= all * FLOOR_PER_THOUSAND, "{right} of {all}");
}
