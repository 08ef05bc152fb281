//! What a worker reads its sessions with: observations from the object store, photographs by one of the ways there are.

use objects::{About, Bucket};

use super::extract::{Extract, ExtractError, Fixture, Session};
use crate::extract::captures::Captures;
use crate::noise;
use crate::observation::{MAX_FIXTURE_BYTES, Observation};

/// The end of an observation's key.
const OBSERVATION: &str = ".json";

/// Reads sessions. One that consists of observations is read from the store, any other as photographs.
#[derive(Debug, Clone)]
pub struct Reader {
    /// The store, where there is one.
    pub stored: Option<Stored>,
    /// How photographs are read.
    pub photographs: Photographs,
}

/// How photographs are read.
#[derive(Debug, Clone)]
pub enum Photographs {
    /// Not at all.
    Unread,
    /// Every session shows what one file says.
    Fixture(Fixture),
    /// By a command, or by OCR.
    Captures(Captures),
}

impl Extract for Reader {
    async fn extract(&self, session: &Session) -> Result<Observation, ExtractError> {
        let told = |key: &String| key.ends_with(OBSERVATION);
        if !session.images.is_empty() && session.images.iter().all(told) {
            return match &self.stored {
                Some(stored) => stored.extract(session).await,
                None => Err(unreachable("no object store: set schedule.store.s3_endpoint")),
            };
        }
        match &self.photographs {
            Photographs::Fixture(fixture) => fixture.extract(session).await,
            Photographs::Captures(captures) => captures.extract(session).await,
            Photographs::Unread => {
                Err(unreachable("nothing here reads photographs: set schedule.extract.method"))
            }
        }
    }
}

fn unreachable(why: &str) -> ExtractError {
    ExtractError::Unreachable(why.to_owned())
}

/// Reads observations that were uploaded instead of photographs, with noise or without.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Where they are.
    pub bucket: Bucket,
    /// The seed of the noise; each session has noise of its own.
    pub noise: Option<u64>,
}

impl Extract for Stored {
    /// Several observations are one: of the first's day and zone, with the lines of all, as sure as the least sure.
    async fn extract(&self, session: &Session) -> Result<Observation, ExtractError> {
        let mut whole: Option<Observation> = None;
        for (number, key) in (1..).zip(&session.images) {
            let unreadable = |why: &str| ExtractError::Unreadable(format!("image {number}: {why}"));
            let bytes =
                self.bucket.get(key, MAX_FIXTURE_BYTES).await.map_err(|error| {
                    match error.about() {
                        About::Object => unreadable(&error.to_string()),
                        About::Destination | About::Us => {
                            ExtractError::Unreachable(error.to_string())
                        }
                    }
                })?;
            let text = std::str::from_utf8(&bytes).map_err(|_| unreadable("it is not UTF-8"))?;
            let seen =
                Observation::from_json(text).map_err(|error| unreadable(&error.to_string()))?;
            whole = Some(match whole {
                None => seen,
                Some(whole) if whole.schedule_date != seen.schedule_date => {
                    return Err(unreadable("it is of another day than the first"));
                }
                Some(mut whole) => {
                    whole.entries.extend(seen.entries);
                    whole.confidence = match (whole.confidence, seen.confidence) {
                        (Some(one), Some(other)) => Some(one.min(other)),
                        (one, other) => one.or(other),
                    };
                    whole
                }
            });
        }
        let whole =
            whole.ok_or_else(|| ExtractError::Unreadable("there is no image".to_owned()))?;
        Ok(match self.noise {
            Some(seed) => noise::disturb(&whole, seed ^ session.id.as_u64_pair().1),
            None => whole,
        })
    }
}
