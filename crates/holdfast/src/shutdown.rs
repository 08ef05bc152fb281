//! The two signals that ask us to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Is done when SIGINT or SIGTERM has come. Listens from the moment of the call, not of the first poll.
pub(crate) fn requested() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
