//! Finds how far a picture is askew, and turns it back.
//!
//! Rows of text and rules are dark bands; the angle at which they are sharpest in the sum along lines (the
//! projection profile) is the one to turn by.

use image::{GrayImage, Luma};

/// The most degrees to either side that are looked at.
const MAX_DEGREES: f64 = 12.0;
/// From the first look to the last, in degrees.
const STEPS: [f64; 3] = [0.5, 0.1, 0.025];
/// The picture is looked at in about this width: enough for the angle, and quick.
const LOOKED_WIDTH: u32 = 1000;
/// The most dark pixels that are summed.
const MAX_POINTS: usize = 200_000;
/// Less than this is left as it is: turning blurs.
const LEAST_DEGREES: f64 = 0.08;

/// The picture turned so that its rows lie level.
pub(super) fn level(grey: GrayImage) -> GrayImage {
    let degrees = askew(&grey);
    if degrees.abs() < LEAST_DEGREES { grey } else { rotate(&grey, degrees) }
}

/// How many degrees the rows fall to the right.
fn askew(grey: &GrayImage) -> f64 {
    let step = grey.width().div_ceil(LOOKED_WIDTH).max(1);
    let mut points = Vec::new();
    for y in (0..grey.height()).step_by(step as usize) {
        for x in (0..grey.width()).step_by(step as usize) {
            if grey.get_pixel(x, y).0[0] < 128 {
                points.push((f64::from(x / step), f64::from(y / step)));
            }
        }
    }
    let every = points.len().div_ceil(MAX_POINTS).max(1);
    let points: Vec<(f64, f64)> = points.into_iter().step_by(every).collect();
    let (mut middle, mut reach) = (0.0, MAX_DEGREES);
    let mut bins = vec![0_u32; (grey.width() / step + grey.height() / step + 2) as usize];
    for by in STEPS {
        let mut best = (0.0, middle);
        let mut degrees: f64 = middle - reach;
        while degrees <= middle + reach + 1e-9 {
            let sharp = sharpness(&points, degrees, f64::from(grey.width() / step), &mut bins);
            if sharp > best.0 {
                best = (sharp, degrees);
            }
            degrees += by;
        }
        (middle, reach) = (best.1, by);
    }
    middle
}

/// How much the sums of neighbouring lines at this angle differ.
fn sharpness(points: &[(f64, f64)], degrees: f64, width: f64, bins: &mut [u32]) -> f64 {
    let slope = degrees.to_radians().tan();
    // The least that is taken from a place, so that no bin is below 0.
    let least = -(width * slope).max(0.0);
    bins.fill(0);
    for (x, y) in points {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
        let bin = (y - x * slope - least) as usize;
        if let Some(bin) = bins.get_mut(bin) {
            *bin += 1;
        }
    }
    bins.windows(2).map(|pair| (f64::from(pair[0]) - f64::from(pair[1])).powi(2)).sum()
}

/// Turns the picture so that rows which fall by so many degrees lie level. It grows, so that no corner is lost.
pub(super) fn rotate(grey: &GrayImage, degrees: f64) -> GrayImage {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (width, height) = (f64::from(grey.width()), f64::from(grey.height()));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a size, and small"
    )]
    let grown = |a: f64, b: f64| (a * cos.abs() + b * sin.abs()).ceil() as u32;
    let (to_width, to_height) = (grown(width, height), grown(height, width));
    let (middle_x, middle_y) = (f64::from(to_width) / 2.0, f64::from(to_height) / 2.0);
    GrayImage::from_fn(to_width, to_height, |x, y| {
        let (dx, dy) = (f64::from(x) - middle_x, f64::from(y) - middle_y);
        Luma([between(grey, width / 2.0 + dx * cos - dy * sin, height / 2.0 + dx * sin + dy * cos)])
    })
}

/// The value between four pixels; outside is paper.
fn between(grey: &GrayImage, x: f64, y: f64) -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "a place within a picture, or near it")]
    let (left, top) = (x.floor() as i64, y.floor() as i64);
    let value = |x: i64, y: i64| {
        let pixel = u32::try_from(x).ok().zip(u32::try_from(y).ok());
        let pixel = pixel.and_then(|(x, y)| grey.get_pixel_checked(x, y));
        pixel.map_or(255.0, |pixel| f64::from(pixel.0[0]))
    };
    let (over, down) = (x - left as f64, y - top as f64);
    let upper = value(left, top) * (1.0 - over) + value(left + 1, top) * over;
    let lower = value(left, top + 1) * (1.0 - over) + value(left + 1, top + 1) * over;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between bytes")]
    let value = (upper * (1.0 - down) + lower * down).round() as u8;
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_angle_is_found_to_a_fraction_of_a_degree() {
        // Rows of dashes, as text is.
        let rows = GrayImage::from_fn(900, 600, |x, y| {
            let ink = y % 40 < 12 && x % 17 < 9 && (60..840).contains(&x) && (60..540).contains(&y);
            Luma([if ink { 0 } else { 255 }])
        });
        assert!(askew(&rows).abs() < 0.06);
        for degrees in [-10.0, -5.0, -1.3, 0.7, 5.0, 10.0] {
            let turned = rotate(&rows, -degrees);
            let found = askew(&turned);
            assert!((found - degrees).abs() < 0.15, "{degrees}: {found}");
            let left = askew(&rotate(&turned, found));
            assert!(left.abs() < 0.25, "{degrees}: {left}");
        }
    }
}
