//! Evens out light and contrast: afterwards paper is near 255 everywhere and ink near 0.

use image::GrayImage;

/// Ink and paper must differ by so much, of 255, after shadows are gone; less is an empty sheet.
const MIN_CONTRAST: f64 = 14.0;
/// Noise of so large a part of the contrast is smoothed.
const NOISE_PART: f64 = 0.12;
/// So many lonely dark pixels in a thousand are noise, too.
const SPECKS_PER_THOUSAND: usize = 2;
/// Blocks for the paper's brightness along the shorter side.
const BLOCKS: u32 = 32;
/// A block is no smaller than this, so that no letter fills it.
const MIN_BLOCK: u32 = 24;

/// Makes the light even and stretches the contrast. None if there is no contrast to stretch.
pub(super) fn even_out(grey: &GrayImage) -> Option<GrayImage> {
    let mut flat = divide(grey, &Paper::of(grey));
    let (mut ink, mut paper) = levels(&flat)?;
    if noise(&flat) > NOISE_PART * (paper - ink) || specks(&flat, (ink + paper) / 2.0) {
        flat = median(&flat);
        (ink, paper) = levels(&flat)?;
    }
    // Paper is a spread of values: what is in its brighter part becomes white.
    let white = paper - 0.1 * (paper - ink);
    let table: Vec<u8> =
        (0..=255).map(|value| byte(255.0 * (f64::from(value) - ink) / (white - ink))).collect();
    for pixel in flat.pixels_mut() {
        pixel.0[0] = table[usize::from(pixel.0[0])];
    }
    Some(flat)
}

/// The value that parts ink from paper best (Otsu), and how bright each is.
pub(super) fn threshold(grey: &GrayImage) -> (u8, f64, f64) {
    let mut counts = [0_u64; 256];
    for pixel in grey.pixels() {
        counts[usize::from(pixel.0[0])] += 1;
    }
    let sum = |values: &[u64], from: usize| -> (f64, f64) {
        values.iter().enumerate().fold((0.0, 0.0), |(count, total), (at, n)| {
            let n = *n as f64;
            (count + n, total + n * (at + from) as f64)
        })
    };
    let (all, total) = sum(&counts, 0);
    let (mut best, mut found) = (-1.0, (127, 0.0, 255.0));
    let (mut below, mut below_total) = (0.0, 0.0);
    for (value, n) in (0..=255_u8).zip(counts) {
        below += n as f64;
        below_total += n as f64 * f64::from(value);
        let above = all - below;
        if below == 0.0 || above == 0.0 {
            continue;
        }
        let (dark, bright) = (below_total / below, (total - below_total) / above);
        let between = below * above * (bright - dark).powi(2);
        if between > best {
            (best, found) = (between, (value, dark, bright));
        }
    }
    found
}

/// How bright ink and paper are, if they can be told apart.
fn levels(grey: &GrayImage) -> Option<(f64, f64)> {
    let (_, ink, paper) = threshold(grey);
    (paper - ink >= MIN_CONTRAST).then_some((ink, paper))
}

/// The paper's brightness, block by block.
struct Paper {
    block: u32,
    columns: u32,
    rows: u32,
    values: Vec<f64>,
}

impl Paper {
    fn of(grey: &GrayImage) -> Paper {
        let block = (grey.width().min(grey.height()) / BLOCKS).max(MIN_BLOCK);
        let (columns, rows) = (grey.width().div_ceil(block), grey.height().div_ceil(block));
        let mut values = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                values.push(brightness(grey, column * block, row * block, block));
            }
        }
        Paper { block, columns, rows, values }.smoothed()
    }

    /// The brightest of the neighbours, so that a block full of ink gets its paper from beside it, then their mean.
    fn smoothed(mut self) -> Paper {
        self.values = self.around(|near| near.iter().copied().fold(1.0, f64::max));
        self.values = self.around(|near| near.iter().sum::<f64>() / near.len() as f64);
        self
    }

    fn around(&self, of: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        let mut values = Vec::new();
        for row in 0..self.rows {
            for column in 0..self.columns {
                let mut near = Vec::new();
                for y in row.saturating_sub(1)..(row + 2).min(self.rows) {
                    for x in column.saturating_sub(1)..(column + 2).min(self.columns) {
                        near.push(self.values[(y * self.columns + x) as usize]);
                    }
                }
                values.push(of(&near));
            }
        }
        values
    }

    /// Between the centres of the blocks around a pixel.
    fn at(&self, x: u32, y: u32) -> f64 {
        let place = |pixel: u32, blocks: u32| {
            let block = f64::from(self.block);
            let place = ((f64::from(pixel) + 0.5) / block - 0.5).clamp(0.0, f64::from(blocks - 1));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is clamped"
            )]
            let first = place as u32;
            (first, (first + 1).min(blocks - 1), place.fract())
        };
        let (left, right, over) = place(x, self.columns);
        let (top, bottom, down) = place(y, self.rows);
        let value = |column, row| self.values[(row * self.columns + column) as usize];
        let upper = value(left, top) * (1.0 - over) + value(right, top) * over;
        let lower = value(left, bottom) * (1.0 - over) + value(right, bottom) * over;
        upper * (1.0 - down) + lower * down
    }
}

/// What three quarters of a block's pixels are darker than: its paper, with little of its noise.
fn brightness(grey: &GrayImage, left: u32, top: u32, block: u32) -> f64 {
    let mut counts = [0_u32; 256];
    let (right, bottom) = ((left + block).min(grey.width()), (top + block).min(grey.height()));
    for y in top..bottom {
        for x in left..right {
            counts[usize::from(grey.get_pixel(x, y).0[0])] += 1;
        }
    }
    let mut above = (right - left) * (bottom - top) / 4;
    for (value, n) in (0..=255_u8).zip(counts).rev() {
        if n > above {
            return f64::from(value.max(1));
        }
        above -= n;
    }
    1.0
}

fn divide(grey: &GrayImage, paper: &Paper) -> GrayImage {
    GrayImage::from_fn(grey.width(), grey.height(), |x, y| {
        // Paper at 220 leaves room for what is brighter, so that noise stays a spread with a middle.
        image::Luma([byte(220.0 * f64::from(grey.get_pixel(x, y).0[0]) / paper.at(x, y))])
    })
}

/// The noise's standard deviation, by the median of a Laplacian: edges of letters are too few to count.
fn noise(grey: &GrayImage) -> f64 {
    let mut counts = [0_u64; 2048];
    for y in 1..grey.height() - 1 {
        for x in 1..grey.width() - 1 {
            let at = |dx: u32, dy: u32| i32::from(grey.get_pixel(x + dx - 1, y + dy - 1).0[0]);
            let corners = at(0, 0) + at(2, 0) + at(0, 2) + at(2, 2);
            let sides = at(1, 0) + at(0, 1) + at(2, 1) + at(1, 2);
            let value = (corners - 2 * sides + 4 * at(1, 1)).unsigned_abs() as usize;
            counts[value.min(counts.len() - 1)] += 1;
        }
    }
    let half = counts.iter().sum::<u64>() / 2;
    let mut seen = 0;
    let middle = counts.iter().position(|n| {
        seen += n;
        seen > half
    });
    // The filter makes six of a deviation, and the median of a normal distribution's size is 0.6745 of it.
    middle.unwrap_or(0) as f64 / (6.0 * 0.6745)
}

/// Whether dark pixels stand alone too often.
fn specks(grey: &GrayImage, dark: f64) -> bool {
    let dark = byte(dark);
    let mut lonely = 0;
    for y in 1..grey.height() - 1 {
        for x in 1..grey.width() - 1 {
            let is_dark = |x: u32, y: u32| grey.get_pixel(x, y).0[0] < dark;
            lonely += usize::from(
                is_dark(x, y)
                    && !is_dark(x - 1, y)
                    && !is_dark(x + 1, y)
                    && !is_dark(x, y - 1)
                    && !is_dark(x, y + 1),
            );
        }
    }
    lonely * 1000 > SPECKS_PER_THOUSAND * grey.len()
}

/// Each pixel becomes the median of the nine around it.
fn median(grey: &GrayImage) -> GrayImage {
    let mut smooth = grey.clone();
    for y in 1..grey.height() - 1 {
        for x in 1..grey.width() - 1 {
            let mut near = [0; 9];
            for (at, value) in (0..9).zip(near.iter_mut()) {
                *value = grey.get_pixel(x + at % 3 - 1, y + at / 3 - 1).0[0];
            }
            near.sort_unstable();
            smooth.put_pixel(x, y, image::Luma([near[4]]));
        }
    }
    smooth
}

fn byte(value: f64) -> u8 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let byte = value.round().clamp(0.0, 255.0) as u8;
    byte
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_and_low_contrast_go() {
        // Paper falls from 200 to 90 across the picture, ink is a sixth darker.
        let picture = GrayImage::from_fn(400, 300, |x, y| {
            let paper = 200.0 - 110.0 * f64::from(x) / 400.0;
            let ink = x % 40 < 4 && y % 40 < 20;
            image::Luma([byte(if ink { paper * 0.83 } else { paper })])
        });
        let even = even_out(&picture).unwrap();
        for (x, y, pixel) in even.enumerate_pixels() {
            let ink = x % 40 < 4 && y % 40 < 20;
            assert_eq!(pixel.0[0] < 128, ink, "at {x}, {y}: {}", pixel.0[0]);
        }
    }

    #[test]
    fn an_empty_sheet_has_nothing() {
        let sheet =
            GrayImage::from_fn(300, 300, |x, y| image::Luma([180 + u8::from((x + y) % 7 == 0)]));
        assert!(even_out(&sheet).is_none());
    }
}
