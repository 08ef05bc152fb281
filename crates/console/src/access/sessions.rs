//! Sessions: a random id in a cookie stands for a token.
//!
//! Promises: an id has 256 random bits and is kept only as its SHA-256; a session ends with its life; there are never more than
//! [`MAX_SESSIONS`], nor more than [`MAX_OF_ONE`] of one token: the oldest goes. Time is passed in. A restart ends every session.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::tokens::TokenHash;
use jiff::{SignedDuration, Timestamp};
use rand::RngExt as _;
use settings::Secret;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The most sessions.
pub(crate) const MAX_SESSIONS: usize = 1_000;
/// The most of one token.
pub(crate) const MAX_OF_ONE: usize = 20;
/// The digits of an id.
const DIGITS: usize = 64;

type Key = [u8; 32];

/// A session that is held.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    key: Key,
    /// The token it stands for; it is looked up again with every request.
    pub(crate) token: TokenHash,
    token_id: Uuid,
    started: Instant,
    /// When it ends.
    pub(crate) expires_at: Timestamp,
}

/// Every session.
#[derive(Debug)]
pub(crate) struct Sessions {
    life: Duration,
    held: Mutex<HashMap<Key, Held>>,
}

impl Sessions {
    pub(crate) fn new(life: Duration) -> Sessions {
        Sessions { life, held: Mutex::new(HashMap::new()) }
    }

    pub(crate) fn life(&self) -> Duration {
        self.life
    }

    /// Opens a session, and gives the id that only the browser keeps.
    pub(crate) fn open(&self, token: TokenHash, token_id: Uuid, now: Instant) -> (Secret, Held) {
        let id = mint();
        let span = SignedDuration::try_from(self.life).unwrap_or(SignedDuration::MAX);
        let expires_at = Timestamp::now().checked_add(span).unwrap_or(Timestamp::MAX);
        let key = key(id.expose());
        let session = Held { key, token, token_id, started: now, expires_at };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, session| !self.is_over(session, now));
        let of_one = |one: &Held| one.token_id == token_id;
        if held.values().filter(|one| of_one(one)).count() >= MAX_OF_ONE {
            drop_oldest(&mut held, of_one);
        }
        if held.len() >= MAX_SESSIONS {
            drop_oldest(&mut held, |_| true);
        }
        held.insert(session.key, session.clone());
        (id, session)
    }

    /// The session of an id, while it lasts.
    pub(crate) fn find(&self, id: &str, now: Instant) -> Option<Held> {
        let sound = id.len() == DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
        sound.then_some(())?;
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(&key(id)).filter(|session| !self.is_over(session, now)).cloned()
    }

    /// Whether a session that was found before is still there.
    pub(crate) fn lasts(&self, session: &Held, now: Instant) -> bool {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.contains_key(&session.key) && !self.is_over(session, now)
    }

    /// How many last.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.values().filter(|session| !self.is_over(session, now)).count()
    }

    /// Ends a session.
    pub(crate) fn close(&self, session: &Held) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&session.key);
    }

    fn is_over(&self, session: &Held, now: Instant) -> bool {
        now.saturating_duration_since(session.started) >= self.life
    }
}

fn drop_oldest(held: &mut HashMap<Key, Held>, of: impl Fn(&Held) -> bool) {
    let oldest = held.values().filter(|one| of(one)).min_by_key(|one| one.started);
    if let Some(key) = oldest.map(|one| one.key) {
        held.remove(&key);
    }
}

fn key(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

fn mint() -> Secret {
    let bytes: [u8; 32] = rand::rng().random();
    let mut text = String::with_capacity(DIGITS);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Secret::new(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Duration = Duration::from_secs(60);

    #[test]
    fn a_session_lasts_for_its_life_and_no_longer() {
        let (sessions, start) = (Sessions::new(LIFE), Instant::now());
        let (id, held) = sessions.open(TokenHash::of("t"), Uuid::now_v7(), start);
        assert!(sessions.find(id.expose(), start + LIFE / 2).is_some());
        assert_eq!((sessions.count(start), sessions.count(start + LIFE)), (1, 0));
        assert!(sessions.find(id.expose(), start + LIFE).is_none(), "its time is over");
        assert!(!sessions.lasts(&held, start + LIFE));
        for wrong in ["", "guess", &id.expose()[1..], &format!("{}0", id.expose())] {
            assert!(sessions.find(wrong, start).is_none(), "{wrong}");
        }
        sessions.close(&held);
        assert!(sessions.find(id.expose(), start).is_none(), "it was ended");
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many_and_others_are_left_alone() {
        let (sessions, start) = (Sessions::new(LIFE * 1_000), Instant::now());
        let (other, _) = sessions.open(TokenHash::of("o"), Uuid::now_v7(), start);
        let mine = Uuid::now_v7();
        let ids: Vec<_> = (0..=MAX_OF_ONE)
            .map(|n| {
                let at = start + Duration::from_millis(u64::try_from(n).unwrap() + 1);
                sessions.open(TokenHash::of("t"), mine, at).0
            })
            .collect();
        let last = start + Duration::from_secs(1);
        assert!(sessions.find(ids[0].expose(), last).is_none(), "the oldest of this token");
        assert!(ids[1..].iter().all(|id| sessions.find(id.expose(), last).is_some()));
        assert!(sessions.find(other.expose(), last).is_some());
        for _ in 0..MAX_SESSIONS {
            sessions.open(TokenHash::of("x"), Uuid::now_v7(), last);
        }
        assert!(sessions.find(other.expose(), last).is_none(), "the oldest of all");
        assert_eq!(sessions.held.lock().unwrap().len(), MAX_SESSIONS);
    }
}
