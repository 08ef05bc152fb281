//! How many cells are read right, over fonts, sizes, angles and noises. The spec page has the measured number.

use image::GrayImage;
use jiff::civil::date;
use schedule::observation::RawEntry;

use crate::draw::{
    ARIAL, BOLD, HEAVY, MONO, Rules, SANS, SERIF, SLANTED, Sheet, TIMES, TYPEWRITER, grainy,
    shaded, specked, turned,
};
use crate::read;

/// What must be reached; what is measured is in the spec.
struct Floor {
    /// Pictures that are read; the others are refused.
    pictures: usize,
    /// Cells read right, of a thousand.
    per_thousand: usize,
}

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

/// Another table, with words that are no English and signs that are easily mistaken.
fn hard_sheet<'a>() -> Sheet<'a> {
    Sheet {
        heading: "Schedule: 16.11.2026",
        headers: vec!["From", "Until", "Activity", "Location", "Client", "Kind"],
        rows: vec![
            vec!["5.50", "9.15", "Forklift B12", "Kaiserstr. 118", "O. Illing", "A1"],
            vec!["09:30", "11:05", "Stock count", "Gate 16/17", "Zwick & Roell", "B"],
            vec!["11:20", "13:55", "Pallet wrap", "Hall Q0", "S5 Logistics", "A1"],
            vec!["14:10", "18:38", "First aid", "Oslo", "Iliad S.A.", "C3"],
            vec!["7:05pm", "11:59pm", "Lock up", "Wharf 31", "Vvan Rijn", "N"],
        ],
        ..sheet()
    }
}

/// Harder pictures, which nothing was tuned on.
fn hard_pictures() -> Vec<(&'static str, GrayImage)> {
    let plain = |font: &'static str, size: f32, rules: Rules| {
        Sheet { font, size, rules, ..hard_sheet() }.draw()
    };
    let blurred = |picture: &GrayImage, by: f32| image::imageops::blur(picture, by);
    vec![
        ("heavy", plain(HEAVY, 24.0, Rules::All)),
        ("typewriter, 4 degrees", turned(&plain(TYPEWRITER, 26.0, Rules::None), 4.0)),
        ("slanted", plain(SLANTED, 26.0, Rules::Few)),
        ("tiny", plain(SANS, 13.0, Rules::All)),
        ("blurred", blurred(&plain(ARIAL, 30.0, Rules::All), 2.0)),
        ("blurred, grainy, -7 degrees", {
            let picture = blurred(&turned(&plain(TIMES, 34.0, Rules::All), -7.0), 1.2);
            grainy(shaded(picture), 12.0, 21)
        }),
        ("faint, no rules", {
            let faint = Sheet { ink: 150, paper: 182, rules: Rules::None, ..hard_sheet() };
            grainy(faint.draw(), 4.0, 22)
        }),
        ("many specks", specked(plain(SERIF, 36.0, Rules::None), 0.05, 23)),
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

async fn score(pictures: Vec<(&'static str, GrayImage)>, expected: Vec<Vec<&str>>) -> Score {
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

/// Reads the pictures, two at once, and compares.
async fn check(mut pictures: Vec<(&'static str, GrayImage)>, sheet: Sheet<'static>, floor: Floor) {
    let half = pictures.split_off(pictures.len() / 2);
    let halves =
        (tokio::spawn(score(pictures, sheet.rows.clone())), tokio::spawn(score(half, sheet.rows)));
    let (a, b) = (halves.0.await.unwrap(), halves.1.await.unwrap());
    let (read, right, all) = (a.pictures + b.pictures, a.right + b.right, a.cells + b.cells);
    println!("{right} of {all} cells right in {read} pictures that were read");
    // A wrong time that is taken for sure is the one thing that must not happen.
    let wrong_times = [a.wrong_times, b.wrong_times].concat();
    assert!(wrong_times.is_empty(), "{wrong_times:?}");
    assert!(read >= floor.pictures, "only {read} were read");
    assert!(right * 1000 >= all * floor.per_thousand, "{right} of {all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cells_are_read_right_over_fonts_sizes_angles_and_noises() {
    check(pictures(), sheet(), Floor { pictures: 18, per_thousand: 980 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hard_pictures_are_read_or_refused() {
    check(hard_pictures(), hard_sheet(), Floor { pictures: 4, per_thousand: 850 }).await;
}
