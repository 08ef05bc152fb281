//! Copies of images, for those who ask about them: which the cloud has, which were given up, how many wait.
//!
//! Promises: an image is called copied only when its bytes were read back from the cloud's store; whether copies are made at all is known to every
//! replica, whichever runs the role media; a retry is recorded in `operator_audit`. docs/spec/cloud-stores.md has the states.
//!
//! It must not know how objects are copied: `consume::media` does that. It fails with the database's errors alone.

mod failed;
mod held;
mod watch;

pub use failed::{FailedCopy, MAX_RETRIED, Selection, failed, retry};
pub use held::{CopyAnswer, HeldCopy, MAX_ASKED, held};
pub(crate) use watch::{Gauges, watch};

/// Says in the database whether copies are made.
pub(crate) async fn declare(pool: &pg::Pool, copies: bool) -> Result<(), pg::Error> {
    let text = match copies {
        true => "INSERT INTO media_copying DEFAULT VALUES ON CONFLICT DO NOTHING",
        false => "DELETE FROM media_copying",
    };
    pool.get().await?.execute(text, &[]).await?;
    Ok(())
}
