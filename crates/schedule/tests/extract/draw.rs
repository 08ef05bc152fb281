//! Draws schedules as people print them, and spoils them as cameras do.

use std::path::Path;

use ab_glyph::{Font as _, FontVec, PxScale, ScaleFont as _, point};
use image::{GrayImage, Luma};

/// Fonts of Debian's `fonts-dejavu-core` and `fonts-liberation2`.
pub(crate) const SANS: &str = "dejavu/DejaVuSans.ttf";
pub(crate) const SERIF: &str = "dejavu/DejaVuSerif.ttf";
pub(crate) const BOLD: &str = "dejavu/DejaVuSans-Bold.ttf";
pub(crate) const MONO: &str = "dejavu/DejaVuSansMono.ttf";
pub(crate) const HEAVY: &str = "liberation2/LiberationSans-Bold.ttf";
pub(crate) const TYPEWRITER: &str = "liberation2/LiberationMono-Regular.ttf";
pub(crate) const SLANTED: &str = "liberation2/LiberationSerif-Italic.ttf";
pub(crate) const ARIAL: &str = "liberation2/LiberationSans-Regular.ttf";
pub(crate) const TIMES: &str = "liberation2/LiberationSerif-Regular.ttf";

/// A sheet of paper with a heading and a table.
#[derive(Debug, Clone)]
pub(crate) struct Sheet<'a> {
    pub(crate) heading: &'a str,
    pub(crate) headers: Vec<&'a str>,
    pub(crate) rows: Vec<Vec<&'a str>>,
    pub(crate) footer: &'a str,
    pub(crate) font: &'a str,
    /// Pixels from the top of a letter to the bottom, with what is below the line.
    pub(crate) size: f32,
    pub(crate) rules: Rules,
    pub(crate) ink: u8,
    pub(crate) paper: u8,
}

/// Which rules a table has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    None,
    /// Under the header and at the end.
    Few,
    All,
}

fn load(font: &str) -> FontVec {
    let path = Path::new("/usr/share/fonts/truetype").join(font);
    let file = std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}: install fonts-dejavu-core and fonts-liberation2", path.display())
    });
    FontVec::try_from_vec(file).unwrap()
}

fn pixels(length: f32) -> u32 {
    length.round() as u32
}

struct Pen {
    font: FontVec,
    size: f32,
    ink: u8,
}

impl Pen {
    fn width(&self, text: &str) -> f32 {
        let font = self.font.as_scaled(PxScale::from(self.size));
        text.chars().map(|c| font.h_advance(font.glyph_id(c))).sum()
    }

    fn write(&self, sheet: &mut GrayImage, text: &str, left: f32, top: f32) {
        let font = self.font.as_scaled(PxScale::from(self.size));
        let mut x = left;
        for c in text.chars() {
            let id = font.glyph_id(c);
            let glyph = id.with_scale_and_position(self.size, point(x, top + font.ascent()));
            x += font.h_advance(id);
            let Some(outline) = self.font.outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            outline.draw(|dx, dy, cover| {
                let (px, py) = (corner.x as u32 + dx, corner.y as u32 + dy);
                if let Some(pixel) = sheet.get_pixel_mut_checked(px, py) {
                    let (old, ink) = (f32::from(pixel.0[0]), f32::from(self.ink));
                    pixel.0[0] = (old + (ink - old) * cover.min(1.0)) as u8;
                }
            });
        }
    }
}

fn fill(sheet: &mut GrayImage, left: f32, top: f32, width: f32, height: f32, ink: u8) {
    for y in pixels(top)..pixels(top + height) {
        for x in pixels(left)..pixels(left + width) {
            sheet.put_pixel(x, y, Luma([ink]));
        }
    }
}

impl Sheet<'_> {
    /// The sheet, sharp and straight. A `\n` in a cell is a new line in it.
    pub(crate) fn draw(&self) -> GrayImage {
        let pen = Pen { font: load(self.font), size: self.size, ink: self.ink };
        let (size, pad) = (self.size, self.size * 0.6);
        let lines =
            |row: &[&str]| row.iter().map(|cell| cell.lines().count()).max().unwrap_or(1).max(1);
        let all: Vec<&[&str]> =
            std::iter::once(&self.headers[..]).chain(self.rows.iter().map(Vec::as_slice)).collect();
        let widths: Vec<f32> = (0..self.headers.len())
            .map(|column| {
                let cells = all.iter().flat_map(|row| row[column].lines());
                cells.map(|line| pen.width(line)).fold(0.0, f32::max) + 2.0 * pad
            })
            .collect();
        let table: f32 = widths.iter().sum();
        let margin = 2.5 * size;
        let heights: Vec<f32> =
            all.iter().map(|row| 1.05 * size * lines(row) as f32 + 1.4 * pad).collect();
        let width = table.max(pen.width(self.heading)).max(pen.width(self.footer)) + 2.0 * margin;
        let height = heights.iter().sum::<f32>() + 2.0 * margin + 5.0 * size;
        let mut sheet = GrayImage::from_pixel(pixels(width), pixels(height), Luma([self.paper]));
        pen.write(&mut sheet, self.heading, margin, margin);
        let thick = (size / 14.0).max(1.0);
        let top = margin + 2.2 * size;
        let mut y = top;
        for (at, row) in all.iter().enumerate() {
            if self.rules == Rules::All || (self.rules == Rules::Few && at == 1) {
                fill(&mut sheet, margin, y - thick / 2.0, table, thick, self.ink);
            }
            let mut x = margin;
            for (cell, width) in row.iter().zip(&widths) {
                for (line, text) in cell.lines().enumerate() {
                    let down = 0.7 * pad + 1.05 * size * line as f32;
                    pen.write(&mut sheet, text, x + pad, y + down);
                }
                x += width;
            }
            y += heights[at];
        }
        if self.rules != Rules::None {
            fill(&mut sheet, margin, y - thick / 2.0, table, thick, self.ink);
        }
        if self.rules == Rules::All {
            let mut x = margin;
            for width in widths.iter().chain([&0.0]) {
                fill(&mut sheet, x - thick / 2.0, top, thick, y - top, self.ink);
                x += width;
            }
        }
        pen.write(&mut sheet, self.footer, margin, y + 2.0 * size);
        sheet
    }
}

/// The sheet turned clockwise on a table as bright as its paper.
pub(crate) fn turned(sheet: &GrayImage, degrees: f32) -> GrayImage {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (width, height) = (sheet.width() as f32, sheet.height() as f32);
    let paper = *sheet.get_pixel(0, 0);
    let to = (width * cos + height * sin.abs(), height * cos + width * sin.abs());
    GrayImage::from_fn(pixels(to.0), pixels(to.1), |x, y| {
        let (dx, dy) = (x as f32 - to.0 / 2.0, y as f32 - to.1 / 2.0);
        let (x, y) = (width / 2.0 + dx * cos + dy * sin, height / 2.0 - dx * sin + dy * cos);
        image::imageops::interpolate_bilinear(sheet, x, y).unwrap_or(paper)
    })
}

/// The sheet seen from one side and from below: what is farther away is smaller.
pub(crate) fn slanted_away(sheet: &GrayImage, across: f32, down: f32) -> GrayImage {
    let (width, height) = (sheet.width() as f32, sheet.height() as f32);
    let paper = *sheet.get_pixel(0, 0);
    GrayImage::from_fn(sheet.width(), sheet.height(), |x, y| {
        let (dx, dy) = (x as f32 / width - 0.5, y as f32 / height - 0.5);
        let far = 1.0 + across * dx + down * dy;
        let (x, y) = (width * (0.5 + dx / far), height * (0.5 + dy / far));
        image::imageops::interpolate_bilinear(sheet, x, y).unwrap_or(paper)
    })
}

/// The sheet after a JPEG file of this quality, of 100.
pub(crate) fn compressed(sheet: &GrayImage, quality: u8) -> GrayImage {
    let mut file = std::io::Cursor::new(Vec::new());
    let encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut file, quality);
    sheet.write_with_encoder(encoder).unwrap();
    image::load_from_memory(file.get_ref()).unwrap().into_luma8()
}

/// A sequence of numbers that is the same on every machine.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// From 0 to 1.
    pub(crate) fn roll(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1_u64 << 24) as f32
    }
}

/// Noise of a sensor, with about this standard deviation.
pub(crate) fn grainy(mut sheet: GrayImage, deviation: f32, seed: u64) -> GrayImage {
    let mut dice = Dice(seed);
    for pixel in sheet.pixels_mut() {
        // Four rolls are near enough to a normal distribution; their deviation is the root of a third.
        let noise = (0..4).map(|_| dice.roll()).sum::<f32>() - 2.0;
        pixel.0[0] = (f32::from(pixel.0[0]) + noise * deviation * 1.732).clamp(0.0, 255.0) as u8;
    }
    sheet
}

/// Black and white specks on so large a part of the sheet.
pub(crate) fn specked(mut sheet: GrayImage, part: f32, seed: u64) -> GrayImage {
    let mut dice = Dice(seed);
    for pixel in sheet.pixels_mut() {
        if dice.roll() < part {
            pixel.0[0] = if dice.roll() < 0.5 { 0 } else { 255 };
        }
    }
    sheet
}

/// A shadow over the right of the sheet.
pub(crate) fn shaded(mut sheet: GrayImage) -> GrayImage {
    let width = sheet.width() as f32;
    for (x, _, pixel) in sheet.enumerate_pixels_mut() {
        let light = 1.0 - 0.55 * (x as f32 / width).powi(2);
        pixel.0[0] = (f32::from(pixel.0[0]) * light) as u8;
    }
    sheet
}
