//! Randomness that can be repeated.

use std::sync::OnceLock;

use anyhow::{Context, Result};
use uuid::Uuid;

const SEED_VARIABLE: &str = "HOLDFAST_SEED";

/// The seed of this test process: the number in `HOLDFAST_SEED`, else a new one. It is printed, so
/// that a failed test says how to repeat it.
#[expect(clippy::print_stderr, reason = "the test harness shows it with the test that failed")]
pub fn seed() -> Result<u64> {
    static NEW: OnceLock<u64> = OnceLock::new();
    let seed = match std::env::var(SEED_VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{SEED_VARIABLE}={text}"))?,
        Err(_) => {
            *NEW.get_or_init(|| Uuid::new_v4().as_u64_pair().1 ^ Uuid::new_v4().as_u64_pair().0)
        }
    };
    eprintln!("{SEED_VARIABLE}={seed}");
    Ok(seed)
}
