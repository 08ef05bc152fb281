//! NOTIFY from Postgres, as a nudge to look.
//!
//! A nudge is only ever a hint to look at the table: many may be one, and one may be for nothing. None
//! is lost for good: after each new LISTEN comes a nudge for those that were missed before it, and
//! the poll comes anyway.

use std::time::Duration;

use tokio::sync::watch;

use crate::worker::said;

const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Calls `nudge` for every notification on `channel`, and after every new connection, until `stop`.
pub(crate) async fn listen(
    options: &pg::Options,
    channel: &'static str,
    mut stop: watch::Receiver<bool>,
    nudge: impl Fn(),
) {
    loop {
        let heard = tokio::select! {
            result = pg::listen(options, channel, &nudge) => result,
            () = said(&mut stop) => return,
        };
        if let Err(error) = heard {
            tracing::warn!(channel, %error, "no notifications from Postgres; polling goes on");
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_EVERY) => {}
            () = said(&mut stop) => return,
        }
    }
}
