//! Every wait for the broker has a limit.
//!
//! The client library ends what is asked of a connection when the connection ends, with one gap: a request
//! made in the instant in which its loop stops lies in a queue that nobody reads any more, and is never
//! answered. An acknowledgement kept that queue alive by itself, and its consumer waited for ever. So a wait also
//! looks at the connection, and at the clock.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// The longest wait for an answer of a broker that seems to be there. Longer than a dead link takes to be
/// noticed, and than a busy broker takes to make a queue.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a wait looks at the connection; and how long an answer that is on its way still has when the
/// connection is gone.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Waits for what was asked. After an error other than the broker's own verdict the caller gives the connection
/// up.
pub(crate) async fn answer<T>(
    alive: impl Fn() -> bool,
    asked: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, lapin::Error> {
    answer_within(ANSWER_WITHIN, alive, asked).await
}

async fn answer_within<T>(
    limit: Duration,
    alive: impl Fn() -> bool,
    asked: impl Future<Output = Result<T, lapin::Error>>,
) -> Result<T, lapin::Error> {
    let mut asked = std::pin::pin!(asked);
    let deadline = Instant::now() + limit;
    loop {
        let was_alive = alive();
        if let Ok(answered) = tokio::time::timeout(LOOK, asked.as_mut()).await {
            return answered;
        }
        if !was_alive {
            let lost = io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was lost");
            return Err(lost.into());
        }
        if Instant::now() >= deadline {
            let silent = io::Error::new(io::ErrorKind::TimedOut, "the broker does not answer");
            return Err(silent.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn never() -> Result<(), lapin::Error> {
        std::future::pending().await
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_connection_or_with_the_limit() {
        let lost = answer(|| false, never()).await.unwrap_err().to_string();
        assert!(lost.contains("lost"), "{lost}");
        let silent = answer_within(LOOK, || true, never()).await.unwrap_err().to_string();
        assert!(silent.contains("does not answer"), "{silent}");
        // An answer that is there counts, whatever became of the connection.
        assert!(answer(|| false, std::future::ready(Ok(()))).await.is_ok());
    }
}
