//! Waiting for a server that was just started.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::{Error, Process, log};

const POLL: Duration = Duration::from_millis(20);

/// True when somebody listens there; else what the system says.
pub(crate) async fn answers(addr: SocketAddr) -> Result<(), String> {
    TcpStream::connect(addr).await.map(drop).map_err(|error| error.to_string())
}

/// Waits until `probe` succeeds, the process ends or the time is up.
pub(crate) async fn wait(
    process: &mut Process,
    name: &str,
    log: &Path,
    within: Duration,
    probe: impl AsyncFn() -> Result<(), String>,
) -> Result<(), Error> {
    let deadline = Instant::now() + within;
    loop {
        let answered = probe().await;
        if !process.is_running() {
            let status = process.wait().await?.to_string();
            return Err(Error::Failed { program: name.to_owned(), status, output: log::tail(log) });
        }
        match answered {
            Ok(()) => return Ok(()),
            Err(detail) if Instant::now() >= deadline => {
                return Err(Error::TooLate {
                    what: format!("the start of {name}"),
                    within,
                    detail: format!("{detail}\n{}", log::tail(log)),
                });
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}
