//! The `extract.*` keys: how images are read. One more way is one more word here and one more variant of [`Extraction`].

use std::time::Duration;

use objects::Bucket;
use settings::{Section, Value};

use crate::extract::captures::Captures;
use crate::extract::command::Command;
use crate::extract::ocr::{Ocr, OcrSettings};
use crate::extract::{Error, Extractor};
use crate::worker::{Fixture, Photographs, Reader, Stored};

/// The words of `extract.method`.
pub(super) const METHODS: &[&str] = &["none", "fixture", "command", "ocr"];

/// How images are read.
#[derive(Debug, Clone)]
pub struct Extraction {
    way: Way,
    bucket: Option<Bucket>,
    noise: Option<u64>,
    timezone: String,
}

#[derive(Debug, Clone)]
enum Way {
    None,
    Fixture(Fixture),
    Command(Bucket, Command),
    Ocr(Bucket, OcrSettings),
}

impl Extraction {
    pub(super) fn from_section(
        section: &Section,
        bucket: Option<Bucket>,
    ) -> Result<Extraction, settings::Error> {
        let noise = section.find("extract.noise_seed")?.map(|value| value.parse()).transpose()?;
        let method = section.get("extract.method")?.text();
        let missing = |key: &'static str| {
            section.refuse(key, format!("is missing: extract.method is {method}"))
        };
        let images = || bucket.clone().ok_or_else(|| missing("store.s3_endpoint"));
        let timeout: Duration = section.get("extract.timeout")?.duration()?;
        let min_confidence = section.get("worker.min_confidence")?.parse()?;
        let way = match method.as_str() {
            "fixture" => {
                let key = "extract.fixture_file";
                let path = section.find(key)?.ok_or_else(|| missing(key))?.path();
                Way::Fixture(Fixture { path, noise })
            }
            "command" => {
                let key = "extract.command";
                let words = section.find(key)?.as_ref().map(Value::list).unwrap_or_default();
                let command = Command::new(&words, timeout, min_confidence);
                Way::Command(
                    images()?,
                    command.map_err(|why| section.refuse(key, why.to_string()))?,
                )
            }
            "ocr" => Way::Ocr(
                images()?,
                OcrSettings {
                    program: section.get("extract.tesseract")?.text(),
                    languages: section.get("extract.languages")?.list(),
                    timeout,
                    min_confidence,
                },
            ),
            _ => Way::None,
        };
        let timezone = section.find("extract.timezone")?.map(|value| value.text());
        Ok(Extraction { way, bucket, noise, timezone: timezone.unwrap_or_default() })
    }

    /// What reads the sessions. Fails when the program that is needed for it is not there.
    pub async fn reader(&self) -> Result<Reader, Error> {
        let captures = |bucket: &Bucket, extractor| {
            let (bucket, timezone) = (bucket.clone(), self.timezone.clone());
            Photographs::Captures(Captures { bucket, extractor, timezone })
        };
        let photographs = match &self.way {
            Way::None => Photographs::Unread,
            Way::Fixture(fixture) => Photographs::Fixture(fixture.clone()),
            Way::Command(bucket, command) => captures(bucket, Extractor::Command(command.clone())),
            Way::Ocr(bucket, settings) => {
                captures(bucket, Extractor::Ocr(Ocr::new(settings).await?))
            }
        };
        let stored = self.bucket.clone().map(|bucket| Stored { bucket, noise: self.noise });
        Ok(Reader { stored, photographs })
    }
}
