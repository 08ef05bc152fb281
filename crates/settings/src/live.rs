//! A secret that may change while the role runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Secret;
use crate::secret::HIDDEN;

/// How old the value may be that [`LiveSecret::current`] gives.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A secret that was given as a value, and stays, or as a file, and follows it.
///
/// Promise: a file that is gone, empty or unreadable for a while changes nothing; the last good value stays. Clones follow together.
#[derive(Clone)]
pub struct LiveSecret(Arc<Held>);

struct Held {
    file: Option<PathBuf>,
    state: Mutex<State>,
}

struct State {
    secret: Secret,
    looked: Instant,
}

impl LiveSecret {
    /// Reads a file, and again whenever it has changed.
    pub fn of_file(file: &Path) -> std::io::Result<LiveSecret> {
        Ok(LiveSecret::held(read(file)?, Some(file.to_owned())))
    }

    pub(crate) fn held(secret: Secret, file: Option<PathBuf>) -> LiveSecret {
        let state = Mutex::new(State { secret, looked: Instant::now() });
        LiveSecret(Arc::new(Held { file, state }))
    }

    /// The value as it is now, or was a second ago. Reads a small file at times.
    pub fn current(&self) -> Secret {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.0.file
            && state.looked.elapsed() >= LOOK_EVERY
        {
            state.looked = Instant::now();
            match read(file) {
                Ok(secret) if !secret.expose().is_empty() => state.secret = secret,
                // It may be half-way through being replaced.
                _ => {}
            }
        }
        state.secret.clone()
    }
}

impl From<Secret> for LiveSecret {
    fn from(secret: Secret) -> LiveSecret {
        LiveSecret::held(secret, None)
    }
}

impl fmt::Debug for LiveSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// The secret of a file: its text without the white space at the end, where editors put a line feed.
pub(crate) fn read(file: &Path) -> std::io::Result<Secret> {
    Ok(Secret::new(std::fs::read_to_string(file)?.trim_end()))
}
