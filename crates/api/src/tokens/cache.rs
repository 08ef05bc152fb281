//! Tokens as requests ask for them: many times a second, for the same few.
//!
//! Promise: an answer is at most `TTL` old. What nobody has is remembered too, so that a sender
//! with a wrong token does not keep the database busy; both memories are bounded, and so is the
//! number of lookups under way, so that guesses cannot take every connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::{COLUMNS, Error, Token, TokenHash, token};

/// How old an answer may be.
const TTL: Duration = Duration::from_secs(2);
/// Answers remembered; beyond it the old ones go.
const MAX_REMEMBERED: usize = 4_096;
/// Lookups under way at once.
const MAX_LOOKUPS: usize = 2;

/// What is known of a presented token.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// It may be used.
    Valid(Arc<Token>),
    /// It was stopped.
    Revoked,
    /// Its time is over.
    Expired,
    /// Nobody has it.
    Unknown,
}

/// The tokens, read through a cache.
#[derive(Debug)]
pub struct Tokens {
    pool: pg::Pool,
    known: Mutex<HashMap<TokenHash, (Lookup, Instant)>>,
    lookups: Semaphore,
}

impl Tokens {
    /// The tokens of the database of this pool.
    pub fn new(pool: pg::Pool) -> Tokens {
        Tokens { pool, known: Mutex::new(HashMap::new()), lookups: Semaphore::new(MAX_LOOKUPS) }
    }

    /// What is known of a token.
    pub async fn find(&self, hash: &TokenHash) -> Result<Lookup, Error> {
        if let Some(found) = self.remembered(hash) {
            return Ok(found);
        }
        // The semaphore is never closed; a permit that could not be had changes only the bound.
        let _permit = self.lookups.acquire().await.ok();
        // Another request with the same token may have asked meanwhile.
        if let Some(found) = self.remembered(hash) {
            return Ok(found);
        }
        let found = self.read(hash).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, (_, read)| read.elapsed() < TTL);
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
        }
        known.insert(*hash, (found.clone(), Instant::now()));
        Ok(found)
    }

    fn remembered(&self, hash: &TokenHash) -> Option<Lookup> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(hash).filter(|(_, read)| read.elapsed() < TTL).map(|(found, _)| found.clone())
    }

    async fn read(&self, hash: &TokenHash) -> Result<Lookup, Error> {
        let client = self.pool.get().await?;
        let query = format!(
            "SELECT {COLUMNS}, coalesce(expires_at <= now(), false),
                    coalesce(last_used_at < now() - interval '1 minute', true)
             FROM api_tokens WHERE hash = $1"
        );
        let statement = client.prepare_cached(&query).await?;
        let row = client.query_opt(&statement, &[&hash.bytes()]).await?;
        // The index has found it already; this makes sure that it did so for the whole hash.
        let Some(row) = row.filter(|row| hash.matches(row.get(8))) else {
            return Ok(Lookup::Unknown);
        };
        let token = token(&row)?;
        if token.revoked_at.is_some() {
            return Ok(Lookup::Revoked);
        }
        if row.get::<_, bool>(9) {
            return Ok(Lookup::Expired);
        }
        if row.get::<_, bool>(10) {
            let note = client
                .prepare_cached("UPDATE api_tokens SET last_used_at = now() WHERE id = $1")
                .await?;
            client.execute(&note, &[&token.id]).await?;
        }
        Ok(Lookup::Valid(Arc::new(token)))
    }
}
