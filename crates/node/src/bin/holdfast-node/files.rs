//! Files that a person names: written whole or not at all, compressed by their name.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

const LEVEL: i32 = 3;
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Writes a new file with what `write` gives, and syncs it. An existing file is left alone.
pub(crate) fn write_new(
    path: &Path,
    zstd: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let file = File::options().write(true).create_new(true).open(path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    let written = fill(file, zstd, write);
    if written.is_err() {
        // Half an export would only be mistaken for a whole one.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(|| format!("{} was not written", path.display()))
}

fn fill(file: File, zstd: bool, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(file);
    if zstd {
        let mut encoder = zstd::Encoder::new(&mut out, LEVEL)?;
        write(&mut encoder)?;
        encoder.finish()?;
    } else {
        write(&mut out)?;
    }
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(())
}

/// Opens a file for reading; a compressed one is known by its first bytes.
pub(crate) fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut input = BufReader::new(file);
    let mut start = [0; 4];
    let filled = (&mut input).take(4).read(&mut start)?;
    input.seek_relative(-i64::try_from(filled)?)?;
    if filled == 4 && start == MAGIC {
        return Ok(Box::new(BufReader::new(zstd::Decoder::with_buffer(input)?)));
    }
    Ok(Box::new(input))
}
