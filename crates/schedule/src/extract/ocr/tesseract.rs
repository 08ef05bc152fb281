//! Tesseract as a child process: a picture in, words with boxes and confidences out.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use image::{GrayImage, ImageFormat};

use crate::extract::Error;
use crate::extract::process::Run;

/// The longest output.
const MAX_OUTPUT_BYTES: u64 = 8 << 20;
/// The most words of a picture.
const MAX_WORDS: usize = 20_000;
/// The most address space.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// What a cell of times may hold.
const TIME_SIGNS: &str = "tessedit_char_whitelist=0123456789:.-–amphurAMPHU ";
/// How errors call it.
const NAME: &str = "tesseract";
/// What to do when it is not there.
const ADVICE: &str = "Install the package tesseract-ocr, or set the path of the program.";

/// How Tesseract is to look at a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Pieces of text anywhere on it.
    Page,
    /// One line of text.
    Line,
    /// A few lines of text.
    Lines,
    /// One line that holds digits and what stands between them.
    Time,
    /// Lines of such.
    Times,
}

/// A word on a picture.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    pub(super) text: String,
    /// From 0 to 1.
    pub(super) confidence: f64,
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Word {
    /// Where it is on the picture that this one was scaled from.
    pub(super) fn unscaled(mut self, factor: f64) -> Word {
        for side in [&mut self.left, &mut self.top, &mut self.right, &mut self.bottom] {
            *side /= factor;
        }
        self
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(super) fn middle(&self) -> f64 {
        f64::midpoint(self.top, self.bottom)
    }

    pub(super) fn centre(&self) -> f64 {
        f64::midpoint(self.left, self.right)
    }
}

/// The program and its languages.
#[derive(Debug, Clone)]
pub(super) struct Tesseract {
    program: String,
    languages: String,
    timeout: Duration,
}

impl Tesseract {
    /// Looks whether the program is there and has the languages.
    pub(super) async fn find(
        program: &str,
        languages: &[String],
        timeout: Duration,
    ) -> Result<Tesseract, Error> {
        if languages.is_empty() {
            return Err(Error::Setup(
                "no language is set for OCR: set one, such as eng".to_owned(),
            ));
        }
        if let Some(wrong) = languages.iter().find(|language| !is_language(language)) {
            return Err(Error::Setup(format!(
                "{wrong:?} is no language of tesseract: use its short names, such as eng, deu, rus"
            )));
        }
        let joined = languages.join("+");
        let found = Tesseract { program: program.to_owned(), languages: joined, timeout };
        let listed = found.run(&["--list-langs".to_owned()], &[]).await?;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        let listed: BTreeSet<&str> = listed.lines().map(str::trim).collect();
        match languages.iter().find(|language| !listed.contains(language.as_str())) {
            None => Ok(found),
            Some(missing) => Err(Error::Setup(format!(
                "tesseract does not have the language {missing}: install the package tesseract-ocr-{}",
                missing.replace('_', "-").to_lowercase()
            ))),
        }
    }

    /// The words of a picture.
    pub(super) async fn read(&self, picture: &GrayImage, look: Look) -> Result<Vec<Word>, Error> {
        let mut file = Cursor::new(Vec::new());
        picture.write_to(&mut file, ImageFormat::Png).map_err(|error| {
            Error::Setup(format!("the picture for tesseract cannot be written: {error}"))
        })?;
        let mut arguments = vec!["stdin", "stdout", "-l", &self.languages, "--dpi", "300"];
        match look {
            // Sparse text: where lines are read whole, the wide gaps of a table swallow the blanks in its cells.
            Look::Page => arguments.extend(["--psm", "11"]),
            Look::Line => arguments.extend(["--psm", "7"]),
            Look::Lines => arguments.extend(["--psm", "6"]),
            Look::Time => arguments.extend(["--psm", "7", "-c", TIME_SIGNS]),
            Look::Times => arguments.extend(["--psm", "6", "-c", TIME_SIGNS]),
        }
        arguments.push("tsv");
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let output = self.run(&arguments, &file.into_inner()).await?;
        read_words(&String::from_utf8_lossy(&output))
            .map_err(|wrong| Error::Answer { program: NAME.to_owned(), wrong })
    }

    async fn run(&self, arguments: &[String], input: &[u8]) -> Result<Vec<u8>, Error> {
        let run = Run {
            name: NAME,
            program: &self.program,
            arguments,
            directory: Path::new("/"),
            prefix: "TESSDATA_",
            // Its threads gain little on a page and disturb others a lot.
            set: &[("OMP_THREAD_LIMIT", "1")],
            limit: self.timeout,
            max_output: MAX_OUTPUT_BYTES,
            max_memory: Some(MAX_MEMORY_BYTES),
            advice: ADVICE,
        };
        run.run(input).await
    }
}

fn is_language(name: &str) -> bool {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default();
    first.len() == 3
        && first.bytes().all(|b| b.is_ascii_lowercase())
        && parts.all(|part| {
            (1..=12).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_alphabetic())
        })
}

/// Reads the lines of `tsv` that are words.
fn read_words(tsv: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    for (at, line) in tsv.lines().enumerate().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields.first() != Some(&"5") {
            continue;
        }
        let wrong = || format!("line {} of its tsv is not as expected", at + 1);
        let [_, _, _, _, _, _, left, top, width, height, confidence, text @ ..] = &fields[..]
        else {
            return Err(wrong());
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite());
        let (Some(left), Some(top), Some(width), Some(height), Some(confidence)) =
            (number(left), number(top), number(width), number(height), number(confidence))
        else {
            return Err(wrong());
        };
        let text = text.join(" ");
        if text.trim().is_empty() || confidence < 0.0 {
            continue;
        }
        if words.len() == MAX_WORDS {
            return Err(format!("there are more than {MAX_WORDS} words"));
        }
        words.push(Word {
            text: text.trim().to_owned(),
            confidence: (confidence / 100.0).min(1.0),
            left,
            top,
            right: left + width,
            bottom: top + height,
        });
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_lines_of_level_five() {
        let tsv = "level\tpage_num\t…\n\
            4\t1\t1\t1\t1\t0\t36\t92\t582\t57\t-1\t\n\
            5\t1\t1\t1\t1\t1\t36\t92\t60\t20\t96.5\t08:00\n\
            5\t1\t1\t1\t1\t2\t100\t92\t60\t20\t95\t \n";
        let words = read_words(tsv).unwrap();
        assert_eq!(words.len(), 1);
        assert_eq!((words[0].text.as_str(), words[0].right), ("08:00", 96.0));
        assert!((words[0].confidence - 0.965).abs() < 1e-9);
        assert!(read_words("head\n5\t1\tx\n").unwrap_err().contains("line 2"));
    }

    #[test]
    fn only_names_of_languages_become_arguments() {
        for name in ["eng", "deu", "chi_sim", "deu_latf"] {
            assert!(is_language(name), "{name}");
        }
        for name in ["", "en", "english", "eng+deu", "--eng", "../x", "eng_", "eng_1"] {
            assert!(!is_language(name), "{name}");
        }
    }
}
