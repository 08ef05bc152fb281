//! Pictures of a simulated animal from above: a dark ellipse on a light floor, the larger the heavier. The reference model reads the weight
//! back from how much of the picture is dark.

use anyhow::Context;
use rand::RngExt;
use rand::rngs::StdRng;

const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;
/// Pixels of an animal of one kilogram. The area grows with the weight to the power of two thirds.
const PIXELS_OF_A_KILOGRAM: f64 = 250.0;
/// How long an animal is beside its width.
const LENGTH: f64 = 1.8;
/// Darker than this is animal.
const DARK: u8 = 128;

/// Draws an animal of this weight, as a PNG.
pub(super) fn draw(weight_kg: f64, rng: &mut StdRng) -> anyhow::Result<Vec<u8>> {
    let area = PIXELS_OF_A_KILOGRAM * weight_kg.max(0.0).powf(2.0 / 3.0);
    let across = (area / (std::f64::consts::PI * LENGTH)).sqrt();
    let along = across * LENGTH;
    let angle = rng.random_range(0.0..std::f64::consts::PI);
    let (sin, cos) = angle.sin_cos();
    let mut pixels = Vec::with_capacity((WIDTH * HEIGHT) as usize);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let (dx, dy) =
                (f64::from(x) - f64::from(WIDTH) / 2.0, f64::from(y) - f64::from(HEIGHT) / 2.0);
            let (u, v) = ((dx * cos + dy * sin) / along, (dy * cos - dx * sin) / across);
            let noise = rng.random_range(0..40u8);
            pixels.push(if u * u + v * v < 1.0 { 40 + noise } else { 180 + noise });
        }
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file)
}

/// The weight that a picture shows, and how far that can be trusted.
pub(super) fn weigh(file: &[u8]) -> anyhow::Result<(f64, f64)> {
    let decoder = png::Decoder::new(std::io::Cursor::new(file));
    let mut reader = decoder.read_info().context("the image is no PNG")?;
    let size = reader.output_buffer_size().context("the image is too large")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).context("the image is damaged")?;
    anyhow::ensure!(
        frame.color_type == png::ColorType::Grayscale && frame.bit_depth == png::BitDepth::Eight,
        "the image is not 8-bit greyscale"
    );
    let pixels = &pixels[..frame.buffer_size()];
    anyhow::ensure!(!pixels.is_empty(), "the image is empty");
    let dark = pixels.iter().filter(|pixel| **pixel < DARK).count();
    #[expect(clippy::cast_precision_loss, reason = "some thousands of pixels")]
    let (dark, all) = (dark as f64, pixels.len() as f64);
    let weight = (dark / PIXELS_OF_A_KILOGRAM).powf(1.5);
    // An animal that fills the picture, or is hardly there, is not seen well.
    let share = dark / all;
    let confidence = (1.0 - (share - 0.2).abs()).clamp(0.05, 0.99);
    Ok(((weight * 1000.0).round() / 1000.0, (confidence * 100.0).round() / 100.0))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_picture_shows_its_weight() {
        let mut rng = StdRng::seed_from_u64(3);
        for weight in [0.8, 1.5, 2.4, 3.2] {
            let (seen, confidence) = weigh(&draw(weight, &mut rng).unwrap()).unwrap();
            assert!((seen / weight - 1.0).abs() < 0.05, "{weight} is seen as {seen}");
            assert!((0.0..=1.0).contains(&confidence));
        }
        assert!(weigh(b"no picture").is_err());
    }
}
