//! From a file to a grey picture that lies as it was taken: bounded, and turned as its EXIF data says.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageDecoder as _, ImageFormat, ImageReader, Limits};

use crate::extract::Fault;

/// The most pixels of a picture.
const MAX_PIXELS: u64 = 64_000_000;
/// The longest side.
const MAX_SIDE: u32 = 16_384;
/// The shortest side that could hold a table.
const MIN_SIDE: u32 = 50;
/// What decoding may take: four bytes for each pixel, and the decoder's own.
const MAX_DECODER_BYTES: u64 = 4 * MAX_PIXELS + (64 << 20);
/// The most pixels that are worked on; a larger picture is made smaller first.
const MAX_WORKED_PIXELS: f64 = 12_000_000.0;

/// Decodes a PNG or JPEG file.
pub(super) fn load(file: &[u8]) -> Result<GrayImage, Fault> {
    let reader = ImageReader::new(Cursor::new(file)).with_guessed_format();
    let mut reader = reader.map_err(|_| Fault::NoPicture)?;
    if !matches!(reader.format(), Some(ImageFormat::Png | ImageFormat::Jpeg)) {
        return Err(Fault::NoPicture);
    }
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODER_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|_| Fault::NoPicture)?;
    let (width, height) = decoder.dimensions();
    if width.max(height) > MAX_SIDE || u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(Fault::TooLarge(format!("{width} by {height} pixels")));
    }
    if width.min(height) < MIN_SIDE {
        return Err(Fault::TooSmall(width, height));
    }
    // Orientation that cannot be read is as good as none.
    let orientation = decoder.orientation().unwrap_or(image::metadata::Orientation::NoTransforms);
    let picture = DynamicImage::from_decoder(decoder).map_err(|_| Fault::NoPicture)?;
    // A screenshot may be transparent where it means white.
    let grey = if picture.color().has_alpha() { on_white(&picture) } else { picture.into_luma8() };
    let mut turned = DynamicImage::ImageLuma8(grey);
    turned.apply_orientation(orientation);
    Ok(fit(turned.into_luma8()))
}

fn on_white(picture: &DynamicImage) -> GrayImage {
    let mut grey = GrayImage::new(picture.width(), picture.height());
    for (to, from) in grey.pixels_mut().zip(picture.to_luma_alpha8().pixels()) {
        let [luma, alpha] = from.0.map(u16::from);
        to.0 = [u8::try_from((luma * alpha + 255 * (255 - alpha)) / 255).unwrap_or(255)];
    }
    grey
}

fn fit(grey: GrayImage) -> GrayImage {
    let pixels = f64::from(grey.width()) * f64::from(grey.height());
    if pixels <= MAX_WORKED_PIXELS {
        return grey;
    }
    scale(&grey, (MAX_WORKED_PIXELS / pixels).sqrt())
}

/// The picture, larger or smaller by a factor.
pub(super) fn scale(grey: &GrayImage, factor: f64) -> GrayImage {
    let side = |pixels: u32| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is clamped"
        )]
        let side = (f64::from(pixels) * factor).round().clamp(1.0, f64::from(MAX_SIDE)) as u32;
        side
    };
    let filter = if factor < 1.0 {
        image::imageops::FilterType::Triangle
    } else {
        image::imageops::FilterType::CatmullRom
    };
    image::imageops::resize(grey, side(grey.width()), side(grey.height()), filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        GrayImage::new(width, height).write_to(&mut file, ImageFormat::Png).unwrap();
        file.into_inner()
    }

    #[test]
    fn only_pictures_of_a_sound_size_are_read() {
        assert_eq!(load(b"no picture").unwrap_err(), Fault::NoPicture);
        assert_eq!(load(&png(60, 60)[..40]).unwrap_err(), Fault::NoPicture);
        assert_eq!(load(&png(49, 500)).unwrap_err(), Fault::TooSmall(49, 500));
        assert!(matches!(load(&png(17_000, 60)), Err(Fault::TooLarge(_))));
        assert_eq!(load(&png(60, 50)).unwrap().dimensions(), (60, 50));
    }

    #[test]
    fn what_is_transparent_is_paper() {
        let clear = image::RgbaImage::new(60, 60);
        let mut file = Cursor::new(Vec::new());
        clear.write_to(&mut file, ImageFormat::Png).unwrap();
        assert!(load(&file.into_inner()).unwrap().pixels().all(|pixel| pixel.0 == [255]));
    }
}
