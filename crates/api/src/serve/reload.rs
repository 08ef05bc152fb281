//! The certificate in use, and what takes its place when the files change.
//!
//! Promise: what is in use always works; files that do not fit together are left alone until they do. Connections that are open keep what they
//! began with.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::ServerConfig;
use sha2::{Digest as _, Sha256};
use tokio::time::MissedTickBehavior;

use super::Error;
use super::files::{Material, Tls};
use super::meter::CertificateMeter;

/// What a look at the files found: which state they are in, and what that comes to.
struct Look {
    digest: [u8; 32],
    material: Result<Material, Error>,
}

/// A certificate that follows its files.
#[derive(Debug)]
pub(super) struct Certificates {
    files: Tls,
    in_use: RwLock<Arc<ServerConfig>>,
    first: [u8; 32],
    meter: CertificateMeter,
}

/// What is known of the files' states.
#[derive(Debug, Default)]
struct Seen {
    in_use: [u8; 32],
    /// It did not work once, and may be half of a change.
    odd: Option<[u8; 32]>,
    /// It did not work twice, and that has been said.
    refused: Option<[u8; 32]>,
}

/// What to do about a state.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: it is in use, or refused already, or may change at once.
    Leave,
    Take,
    Refuse,
}

impl Seen {
    fn judge(&mut self, digest: [u8; 32], works: bool) -> Verdict {
        if digest == self.in_use {
            (self.odd, self.refused) = (None, None);
            return Verdict::Leave;
        }
        if works {
            *self = Seen { in_use: digest, ..Seen::default() };
            return Verdict::Take;
        }
        if self.refused == Some(digest) {
            return Verdict::Leave;
        }
        if self.odd.replace(digest) != Some(digest) {
            return Verdict::Leave;
        }
        self.refused = Some(digest);
        Verdict::Refuse
    }
}

impl Certificates {
    /// Reads the files for the first time.
    pub(super) fn read(files: Tls) -> Result<Certificates, Error> {
        let meter = CertificateMeter::new();
        let read = files.read()?;
        let material = files.material(&read)?;
        if material.expires <= Timestamp::now().as_second() {
            tracing::warn!(file = %files.cert.display(), "the certificate has ended");
        }
        show(&meter, &material);
        let in_use = RwLock::new(Arc::clone(&material.config));
        Ok(Certificates { files, in_use, first: read.digest(), meter })
    }

    /// What a new connection is spoken to with.
    pub(super) fn in_use(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.in_use.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Follows the files until it is dropped.
    pub(super) async fn keep_fresh(self: Arc<Self>) {
        let mut turn = tokio::time::interval(self.files.look_every);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Seen { in_use: self.first, ..Seen::default() };
        loop {
            turn.tick().await;
            let files = self.files.clone();
            let Ok(look) = tokio::task::spawn_blocking(move || look(&files)).await else {
                return;
            };
            self.follow(&mut seen, look);
        }
    }

    fn follow(&self, seen: &mut Seen, look: Look) {
        match (seen.judge(look.digest, look.material.is_ok()), look.material) {
            (Verdict::Take, Ok(material)) => {
                show(&self.meter, &material);
                *self.in_use.write().unwrap_or_else(PoisonError::into_inner) = material.config;
                self.meter.taken.increment(1);
                tracing::info!(file = %self.files.cert.display(), "a new certificate is in use");
            }
            (Verdict::Refuse, Err(error)) => {
                self.meter.refused.increment(1);
                tracing::error!(%error, "a new certificate is refused; the old one stays in use");
            }
            _ => {}
        }
    }
}

fn look(files: &Tls) -> Look {
    let read = match files.read() {
        Ok(read) => read,
        Err(error) => {
            return Look { digest: Sha256::digest(error.to_string()).into(), material: Err(error) };
        }
    };
    let ended = |material: &Material| material.expires <= Timestamp::now().as_second();
    let material = files.material(&read).and_then(|material| match ended(&material) {
        true => Err(trust::Error::new("tls.cert", &files.cert, "has ended").into()),
        false => Ok(material),
    });
    Look { digest: read.digest(), material }
}

/// A gauge has 53 bits for the seconds, which are enough for long after us.
#[expect(clippy::cast_precision_loss, reason = "seconds of Unix time fit 53 bits")]
fn show(meter: &CertificateMeter, material: &Material) {
    meter.expires.set(material.expires as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_change_is_waited_for_and_a_bad_one_is_said_once() {
        let [old, half, new, bad] = [[1; 32], [2; 32], [3; 32], [4; 32]];
        let mut seen = Seen { in_use: old, ..Seen::default() };
        assert_eq!(seen.judge(old, true), Verdict::Leave);
        // The certificate is there, its key not yet; then both are.
        assert_eq!(seen.judge(half, false), Verdict::Leave);
        assert_eq!(seen.judge(new, true), Verdict::Take);
        assert_eq!(seen.judge(new, true), Verdict::Leave);
        assert_eq!(seen.judge(bad, false), Verdict::Leave);
        assert_eq!(seen.judge(bad, false), Verdict::Refuse);
        assert_eq!(seen.judge(bad, false), Verdict::Leave);
        // Back to what is in use, and bad again: that is said again.
        assert_eq!(seen.judge(new, true), Verdict::Leave);
        assert_eq!(seen.judge(bad, false), Verdict::Leave);
        assert_eq!(seen.judge(bad, false), Verdict::Refuse);
        // The one in use ends while it is served: nothing to change to.
        assert_eq!(seen.judge(new, false), Verdict::Leave);
    }
}
