//! Tables as people make them, several pictures of one day, and what is refused.

use std::time::Duration;

use image::{GrayImage, Luma};
use jiff::civil::date;
use schedule::extract::ocr::{Ocr, OcrSettings};
use schedule::extract::{Blame, Column, Error, Fault, Place};
use schedule::observation::{Observation, RawEntry};

use crate::accuracy::sheet;
use crate::draw::{ARIAL, Rules, SANS, SERIF, Sheet, grainy, turned};
use crate::{ocr, read, request};

/// `start|end|title|location|customer|kind` of each row.
fn rows(observation: &Observation) -> Vec<String> {
    let row = |entry: &RawEntry| {
        let RawEntry { start, end, title, location, customer, kind } = entry;
        [start, end, title, location, customer, kind].map(String::as_str).join("|")
    };
    observation.entries.iter().map(row).collect()
}

#[tokio::test]
async fn one_column_for_both_times_other_words_and_lines_that_go_on() {
    let table = Sheet {
        heading: "Rota for 2026-11-16",
        headers: vec!["Hours", "Job", "Site", "Client name", "Notes"],
        rows: vec![
            vec!["08:00-12:30", "Cleaning", "North Hall", "Harbour Ltd", "keys"],
            vec!["13:00 - 16:00", "Inventory of\nthe cold store", "Pier 4", "Miller", ""],
            vec!["5:30pm-9pm", "Reception", "Grand Hotel", "Brightwater", ""],
        ],
        footer: "Please tell the office when you cannot come.",
        ..sheet()
    };
    let expected = [
        "08:00 - 12:30||Cleaning|North Hall|Harbour Ltd|",
        "13:00 - 16:00||Inventory of the cold store|Pier 4|Miller|",
        "5:30pm - 9pm||Reception|Grand Hotel|Brightwater|",
    ];
    for rules in [Rules::All, Rules::None] {
        let picture = Sheet { rules, ..table.clone() }.draw();
        let observation = read(&[picture], &["eng"]).await.unwrap();
        assert_eq!(rows(&observation), expected, "{rules:?}");
        assert_eq!(observation.schedule_date, "2026-11-16");
        assert!(observation.confidence.unwrap() > 0.8);
    }
}

#[tokio::test]
async fn german_and_russian_tables() {
    let german = Sheet {
        heading: "Montag, 16. November 2026",
        headers: vec!["Beginn", "Ende", "Tätigkeit", "Ort", "Kunde"],
        rows: vec![
            vec!["08:00", "12:30", "Büroreinigung", "Köln", "Müller"],
            vec!["13:15", "16:45", "Gartenpflege", "Düsseldorf", "Stadtwerke"],
        ],
        font: ARIAL,
        ..sheet()
    };
    let observation = read(&[german.draw()], &["deu"]).await.unwrap();
    assert_eq!(observation.schedule_date, "2026-11-16");
    let expected = [
        "08:00|12:30|Büroreinigung|Köln|Müller|",
        "13:15|16:45|Gartenpflege|Düsseldorf|Stadtwerke|",
    ];
    assert_eq!(rows(&observation), expected);

    let russian = Sheet {
        heading: "16 ноября 2026",
        headers: vec!["Начало", "Конец", "Задача", "Адрес", "Клиент"],
        rows: vec![
            vec!["08:00", "12:30", "Уборка", "Северный зал", "Волна"],
            vec!["13:15", "16:45", "Охрана", "Причал", "Гавань"],
        ],
        ..sheet()
    };
    let observation = read(&[russian.draw()], &["rus"]).await.unwrap();
    assert_eq!(observation.schedule_date, "2026-11-16");
    let expected = ["08:00|12:30|Уборка|Северный зал|Волна|", "13:15|16:45|Охрана|Причал|Гавань|"];
    assert_eq!(rows(&observation), expected);
}

#[tokio::test]
async fn pictures_of_one_day_are_joined_and_what_two_show_is_taken_once() {
    let all = sheet();
    let part = |from: usize, to: usize, heading: &'static str| Sheet {
        heading,
        rows: all.rows[from..to].to_vec(),
        ..all.clone()
    };
    let first = part(0, 3, "Monday 16 November 2026").draw();
    let second = turned(&Sheet { font: SERIF, ..part(2, 5, "") }.draw(), 2.0);
    let third = part(5, 6, "16.11.2026").draw();
    let observation = read(&[first.clone(), second, third], &["eng"]).await.unwrap();
    let expected: Vec<String> = all.rows.iter().map(|row| row.join("|")).collect();
    assert_eq!(rows(&observation), expected);

    let other = part(3, 6, "Tuesday 17 November 2026").draw();
    let error = read(&[first, other], &["eng"]).await.unwrap_err();
    let days = Fault::OtherDay(date(2026, 11, 17), date(2026, 11, 16));
    assert!(
        matches!(&error, Error::Image { image: 2, place: Place::Whole, fault } if *fault == days),
        "{error}"
    );
}

#[tokio::test]
async fn a_day_that_no_picture_names_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    // A photograph: JPEG, whatever its name says.
    let picture = Sheet { heading: "Schedule of the week", ..sheet() }.draw();
    let path = folder.path().join("1.png");
    picture.save_with_format(&path, image::ImageFormat::Jpeg).unwrap();
    let asked = request(folder.path(), &["1.png"]);
    let error = ocr(&["eng"]).await.extract(&asked).await.unwrap_err();
    assert!(matches!(error, Error::NoDate), "{error}");
}

/// Paints a rectangle, in parts of the picture's size.
fn painted(mut sheet: GrayImage, from: (f32, f32), to: (f32, f32), ink: u8) -> GrayImage {
    let (width, height) = (sheet.width() as f32, sheet.height() as f32);
    for y in (from.1 * height) as u32..(to.1 * height) as u32 {
        for x in (from.0 * width) as u32..(to.0 * width) as u32 {
            sheet.put_pixel(x, y, Luma([ink]));
        }
    }
    sheet
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_with_what_to_do() {
    let small =
        image::imageops::resize(&sheet().draw(), 150, 90, image::imageops::FilterType::Triangle);
    let text =
        Sheet { headers: vec!["Notice"], rows: vec![vec!["The office is closed"]], ..sheet() };
    let empty = Sheet { rows: vec![], ..sheet() };
    for (name, picture, faults) in [
        ("paper", GrayImage::from_pixel(800, 600, Luma([240])), "nothing can be read"),
        ("noise", grainy(GrayImage::from_pixel(800, 600, Luma([128])), 60.0, 5), ""),
        ("a picture of a picture", small, ""),
        ("blurred", image::imageops::blur(&sheet().draw(), 9.0), ""),
        ("on its side", image::imageops::rotate90(&sheet().draw()), ""),
        ("no table", text.draw(), "no table with a header row"),
        ("no rows", empty.draw(), "no row below the headings"),
    ] {
        let error = read(&[picture], &["eng"]).await.unwrap_err();
        let said = error.to_string();
        assert_eq!(error.blame(), Blame::Images, "{name}: {said}");
        assert!(said.starts_with("image 1") && said.contains(faults), "{name}: {said}");
        assert!(said.contains("Photograph") || said.contains("Send"), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_cell_that_cannot_be_read_is_named() {
    // Row 2: its start is torn off, and then its end is scribbled over.
    let good = Sheet { font: SANS, ..sheet() }.draw();
    let (width, height) = (good.width() as f32, good.height() as f32);
    // The sheet's own measures: see `Sheet::draw`.
    let (size, pad) = (28.0, 28.0 * 0.6);
    let row = 1.05 * size + 1.4 * pad;
    let top = (2.5 * size + 2.2 * size + 2.0 * row + 5.0) / height;
    let bottom = top + (row - 10.0) / height;
    let left = (2.5 * size + 5.0) / width;
    let torn = painted(good, (left, top), (left + 100.0 / width, bottom), 245);
    for harm in ["torn", "scribbled"] {
        let mut picture = torn.clone();
        if harm == "scribbled" {
            for at in 0..12_u8 {
                let x = left + f32::from(at) * 8.0 / width;
                picture = painted(picture, (x, top), (x + 4.0 / width, bottom), 20);
            }
        }
        let error = read(&[sheet().draw(), picture], &["eng"]).await.unwrap_err();
        let place = Place::Cell(2, Column::Start);
        assert!(matches!(error, Error::Image { image: 2, place: p, .. } if p == place), "{error}");
        assert!(error.to_string().starts_with("image 2, row 2, column start: "), "{error}");
    }
}

#[tokio::test]
async fn a_setup_that_cannot_work_is_told_at_once() {
    let set = |program: &str, languages: &[&str]| OcrSettings {
        program: program.to_owned(),
        languages: languages.iter().map(|name| (*name).to_owned()).collect(),
        timeout: Duration::from_secs(60),
        ..OcrSettings::default()
    };
    for (settings, says) in [
        (set("/no/such/tesseract", &["eng"]), "Install the package tesseract-ocr"),
        (set("tesseract", &["eng", "xho"]), "install the package tesseract-ocr-xho"),
        (set("tesseract", &["eng; rm"]), "is no language of tesseract"),
        (set("tesseract", &[]), "no language is set"),
    ] {
        let error = Ocr::new(&settings).await.unwrap_err();
        assert_eq!(error.blame(), Blame::Setup);
        assert!(error.to_string().contains(says), "{error}");
    }
    let gone = request(std::path::Path::new("/no/such/folder"), &["1.png"]);
    let error = ocr(&["eng"]).await.extract(&gone).await.unwrap_err();
    assert_eq!(error.blame(), Blame::Run);
}
