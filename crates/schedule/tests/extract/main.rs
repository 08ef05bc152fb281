//! Extraction against docs/spec/schedule-extraction.md: real commands, real Tesseract, pictures that are drawn here.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "helpers of tests stand outside #[test] functions, pixels are small, and what was measured is shown"
)]

mod accuracy;
mod captures;
mod command;
mod draw;
mod ocr;
mod spoiled;

use std::path::Path;

use image::GrayImage;
use schedule::extract::ocr::{Ocr, OcrSettings};
use schedule::extract::{Error, Extractor, ImageFile, Request};
use schedule::observation::Observation;
use uuid::Uuid;

/// A request for images in a folder, by their names in order.
fn request(folder: &Path, images: &[&str]) -> Request {
    let images = (1..).zip(images);
    let image = |(sequence, name): (i32, &&str)| ImageFile { sequence, path: folder.join(name) };
    Request {
        session_id: Uuid::nil(),
        user_id: 42,
        images: images.map(image).collect(),
        timezone: "Europe/Berlin".to_owned(),
    }
}

async fn ocr(languages: &[&str]) -> Extractor {
    let languages = languages.iter().map(|name| (*name).to_owned()).collect();
    let settings = OcrSettings { languages, ..OcrSettings::default() };
    Extractor::Ocr(Ocr::new(&settings).await.unwrap())
}

/// Reads sheets as the images of one session.
async fn read(sheets: &[GrayImage], languages: &[&str]) -> Result<Observation, Error> {
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (1..=sheets.len()).map(|at| format!("{at}.png")).collect();
    for (sheet, name) in sheets.iter().zip(&names) {
        sheet.save(folder.path().join(name)).unwrap();
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    ocr(languages).await.extract(&request(folder.path(), &names)).await
}
