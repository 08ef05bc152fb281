//! `holdfast sim model`: a reference for the model command of an edge. It speaks the protocol of docs/spec/inference.md, and understands the
//! simulated scale's pictures only.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;

use super::picture;
use crate::output::say;

/// What it calls itself.
const VERSION: &str = "holdfast-sim-1";
/// A request is one line.
const MAX_REQUEST_BYTES: u64 = 64 << 10;

#[derive(Deserialize)]
struct Request {
    image: PathBuf,
}

/// Reads one request from standard input and answers it on standard output.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut line = Vec::new();
    std::io::stdin().take(MAX_REQUEST_BYTES).read_to_end(&mut line)?;
    let request: Request =
        serde_json::from_slice(&line).context("standard input is no request: see --help")?;
    let file = std::fs::read(&request.image).context("the image cannot be read")?;
    let (weight, confidence) = picture::weigh(&file)?;
    let size = match weight {
        weight if weight < 1.2 => "small",
        weight if weight < 2.2 => "medium",
        _ => "large",
    };
    let answer = serde_json::json!({
        "predicted_weight_kg": weight,
        "predicted_size": size,
        "confidence": confidence,
        "model_version": VERSION,
    });
    say(&format!("{answer}\n"))
}
