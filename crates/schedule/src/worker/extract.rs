//! From a session's images to an observation. How is the extractor's business; what its failure means for the session is said here.

use std::path::PathBuf;

use uuid::Uuid;

use crate::noise;
use crate::observation::{FixtureError, Observation};

/// What an extractor gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The session.
    pub id: Uuid,
    /// Whose schedule it shows.
    pub user_id: i64,
    /// Its images' keys in the object store, in order.
    pub images: Vec<String>,
}

/// Why there is no observation. The words are shown to the person who made the capture and must not repeat what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// A verdict on this capture: it will never be read.
    #[error("{0}")]
    Unreadable(String),
    /// A verdict on this capture: it was not read, and may be another time.
    #[error("{0}")]
    Failed(String),
    /// Nothing about this capture: the extractor or the images cannot be reached.
    #[error("{0}")]
    Unreachable(String),
}

/// Reads captures.
pub trait Extract: Send + Sync + 'static {
    /// Reads one. It may be dropped at an await when the worker stops, and called again for the same session.
    fn extract(
        &self,
        session: &Session,
    ) -> impl Future<Output = Result<Observation, ExtractError>> + Send;
}

/// Reads the same file for every session, with noise or without.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The file.
    pub path: PathBuf,
    /// The seed of the noise; each session has noise of its own.
    pub noise: Option<u64>,
}

impl Extract for Fixture {
    async fn extract(&self, session: &Session) -> Result<Observation, ExtractError> {
        let seen = Observation::load(&self.path).await.map_err(|error| match error {
            // A file that is not there says nothing about the capture.
            FixtureError::Unreadable { .. } => ExtractError::Unreachable(error.to_string()),
            _ => ExtractError::Unreadable(error.to_string()),
        })?;
        Ok(match self.noise {
            Some(seed) => noise::disturb(&seen, seed ^ session.id.as_u64_pair().1),
            None => seen,
        })
    }
}
