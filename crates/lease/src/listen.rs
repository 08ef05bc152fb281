//! NOTIFY from Postgres, as a nudge to look.
//!
//! A nudge is only ever a hint to look at the table: many may be one, and one may be for nothing. None
//! is lost for good: after each new LISTEN comes a nudge for those that were missed before it, and
//! the poll comes anyway.

use std::future::poll_fn;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::watch;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Config, NoTls, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::Error;
use crate::worker::said;

const RETRY_EVERY: Duration = Duration::from_secs(1);
/// The server is asked for a sign of life this often, because a dead peer sends no notification.
const QUIET: Duration = Duration::from_secs(10);

/// Calls `nudge` for every notification on `channel`, and after every new connection, until `stop`.
pub(crate) async fn listen(
    options: &pg::Options,
    channel: &str,
    mut stop: watch::Receiver<bool>,
    nudge: impl Fn(),
) {
    loop {
        let heard = tokio::select! {
            result = hear(options, channel, &nudge) => result,
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

async fn hear(options: &pg::Options, channel: &str, nudge: &impl Fn()) -> Result<(), Error> {
    let mut config: Config = options.url.parse().map_err(pg::Error::Address)?;
    config.application_name(options.application_name.as_str());
    config.connect_timeout(options.connect_timeout).tcp_user_timeout(QUIET).keepalives_idle(QUIET);
    let tcp = config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
    match &options.ca_file {
        Some(path) if tcp && config.get_ssl_mode() != SslMode::Disable => {
            config.ssl_mode(SslMode::Require);
            let refuse = |problem: String| {
                Error::from(pg::Error::CertificateAuthority { path: path.clone(), problem })
            };
            let mut trusted = rustls::RootCertStore::empty();
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|e| refuse(e.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|e| refuse(e.to_string()))?;
                trusted.add(certificate).map_err(|e| refuse(e.to_string()))?;
            }
            let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
            let tls = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|e| refuse(e.to_string()))?
                .with_root_certificates(trusted)
                .with_no_client_auth();
            hear_over(&config, MakeRustlsConnect::new(tls), options.connect_timeout, channel, nudge)
                .await
        }
        _ => hear_over(&config, NoTls, options.connect_timeout, channel, nudge).await,
    }
}

async fn hear_over<M>(
    config: &Config,
    tls: M,
    within: Duration,
    channel: &str,
    nudge: &impl Fn(),
) -> Result<(), Error>
where
    M: MakeTlsConnect<Socket>,
{
    let connecting = tokio::time::timeout(within, config.connect(tls)).await;
    let (client, mut connection) = connecting.map_err(|_| pg::Error::Timeout(within))??;
    let mut messages = std::pin::pin!(async {
        loop {
            match poll_fn(|context| connection.poll_message(context)).await {
                Some(Ok(AsyncMessage::Notification(_))) => nudge(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Error::from(error)),
                None => return Ok(()),
            }
        }
    });
    let mut asking = std::pin::pin!(async {
        client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        // What was notified before this connection listened was missed.
        nudge();
        loop {
            tokio::time::sleep(QUIET).await;
            let alive = tokio::time::timeout(within, client.batch_execute("")).await;
            alive.map_err(|_| pg::Error::Timeout(within))??;
        }
    });
    tokio::select! {
        ended = &mut messages => ended,
        failed = &mut asking => failed,
    }
}
