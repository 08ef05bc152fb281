//! What a listener counts.

use metrics::{Counter, Gauge, counter, gauge};

/// The handles of every listener, looked up once.
#[derive(Clone)]
pub(super) struct Meter {
    pub(super) handshakes_failed: Counter,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// To be called where the listener is bound, so that the recorder is the one meant.
    pub(super) fn new() -> Meter {
        Meter { handshakes_failed: counter!("holdfast_http_handshakes_failed_total") }
    }
}

/// The handles of a listener with a certificate. One without has no end to show.
pub(super) struct CertificateMeter {
    pub(super) taken: Counter,
    pub(super) refused: Counter,
    pub(super) expires: Gauge,
}

impl std::fmt::Debug for CertificateMeter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateMeter").finish_non_exhaustive()
    }
}

impl CertificateMeter {
    /// As [`Meter::new`].
    pub(super) fn new() -> CertificateMeter {
        let reloads =
            |result| counter!("holdfast_http_certificate_reloads_total", "result" => result);
        CertificateMeter {
            taken: reloads("taken"),
            refused: reloads("refused"),
            expires: gauge!("holdfast_http_certificate_expiry_timestamp_seconds"),
        }
    }
}
