//! LISTEN, on a connection of its own.

use std::future::poll_fn;
use std::time::Duration;

use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Config, NoTls, Socket};

use crate::pool::Tls;
use crate::{Error, Options};

/// The server is asked for a sign of life this often, because a dead peer sends no notification.
const QUIET: Duration = Duration::from_secs(10);

/// Listens on a channel for as long as the connection lives, and calls `heard` for every
/// notification. It is also called once when the server has begun to listen, for what was notified
/// before that; whoever listens again after an error so misses nothing.
///
/// `channel` is the caller's constant, never input.
pub async fn listen(
    options: &Options,
    channel: &'static str,
    heard: impl Fn(),
) -> Result<(), Error> {
    let (config, tls) = options.resolve()?;
    let within = options.connect_timeout;
    match tls {
        Tls::Off => listen_over(&config, NoTls, within, channel, heard).await,
        Tls::On(tls) => listen_over(&config, tls, within, channel, heard).await,
    }
}

async fn listen_over<M>(
    config: &Config,
    tls: M,
    within: Duration,
    channel: &str,
    heard: impl Fn(),
) -> Result<(), Error>
where
    M: MakeTlsConnect<Socket>,
{
    let connecting = tokio::time::timeout(within, config.connect(tls)).await;
    let (client, mut connection) = connecting.map_err(|_| Error::Timeout(within))??;
    let messages = async {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => heard(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Error::from(error)),
                None => return Ok(()),
            }
        }
    };
    let asking = async {
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        heard();
        loop {
            tokio::time::sleep(QUIET).await;
            let alive = tokio::time::timeout(within, client.batch_execute("")).await;
            alive.map_err(|_| Error::Timeout(within))??;
        }
    };
    tokio::select! {
        ended = messages => ended,
        failed = asking => failed,
    }
}
