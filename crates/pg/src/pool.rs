//! Connections: how many, how long to wait for one, and how a dead link is noticed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, RecyclingMethod, Runtime};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::Error;

/// A peer that answers no probe within about this time is taken for dead. Without it a half-open
/// link would hold a connection for hours.
const PEER_SILENCE: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// How to reach Postgres.
#[derive(Clone)]
pub struct Options {
    /// A URL (`postgres://user@host/name`, `postgres:///name?host=/folder&user=name`) or a list of
    /// `key=value` (`host=/folder user=name dbname=name`). `sslmode` may be `disable`, `prefer` or
    /// `require`.
    pub url: String,
    /// The most connections the pool opens.
    pub max_connections: usize,
    /// The longest to wait for a connection, new or returned to the pool.
    pub connect_timeout: Duration,
    /// The longest the server may work on one statement; `None` leaves the server's own setting.
    pub statement_timeout: Option<Duration>,
    /// The name the server shows for these connections.
    pub application_name: String,
    /// Further settings of the server for these connections, by name.
    pub settings: &'static [(&'static str, &'static str)],
    /// PEM certificates to trust. When set, a connection over TCP must use TLS and the server's
    /// certificate must match its name; when not, TLS is not used. New connections follow the file.
    pub ca_file: Option<PathBuf>,
}

impl Options {
    /// Options with the usual bounds: 8 connections, 5 seconds to get one, no limit to a statement.
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            max_connections: 8,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: None,
            application_name: "holdfast".to_owned(),
            settings: &[],
            ca_file: None,
        }
    }

    /// Checks the options and makes the client's configuration and TLS from them.
    pub(crate) fn resolve(&self) -> Result<(Config, Tls), Error> {
        let mut config: Config = self.url.parse().map_err(Error::Address)?;
        config
            .application_name(self.application_name.as_str())
            .connect_timeout(self.connect_timeout)
            .tcp_user_timeout(PEER_SILENCE)
            .keepalives_idle(PEER_SILENCE)
            .keepalives_interval(PROBE_EVERY)
            .keepalives_retries(PROBES);
        let mut options = config.get_options().unwrap_or_default().to_owned();
        if let Some(limit) = self.statement_timeout {
            options += &format!(" -c statement_timeout={}", limit.as_millis());
        }
        for (name, value) in self.settings {
            options += &format!(" -c {name}={value}");
        }
        if !options.is_empty() {
            config.options(options.trim());
        }
        let tls = match (&self.ca_file, config.get_ssl_mode()) {
            (_, SslMode::Disable) => Tls::Off,
            (Some(path), _) => {
                // A socket file has no TLS; over TCP a fallback to plain text would make the CA
                // file an empty promise.
                if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_))) {
                    config.ssl_mode(SslMode::Require);
                }
                Tls::On(MakeRustlsConnect::new(client_tls(path)?))
            }
            (None, SslMode::Require) => return Err(Error::NoCertificateAuthority),
            (None, _) => Tls::Off,
        };
        Ok((config, tls))
    }
}

impl std::fmt::Debug for Options {
    /// The URL is left out because it may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("max_connections", &self.max_connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("application_name", &self.application_name)
            .field("settings", &self.settings)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

pub(crate) enum Tls {
    Off,
    On(MakeRustlsConnect),
}

fn client_tls(path: &Path) -> Result<rustls::ClientConfig, Error> {
    let files = trust::Files { ca_file: Some(path.to_owned()), ..trust::Files::default() };
    files.client_config().map_err(|trust::Error { file, problem, .. }| {
        Error::CertificateAuthority { path: file, problem }
    })
}

/// A bounded pool of connections. Cloning it shares it.
///
/// Statements prepared with `prepare_cached` on a [`crate::Client`] or a [`crate::Transaction`]
/// stay prepared for the connection's life.
#[derive(Clone)]
pub struct Pool {
    inner: deadpool_postgres::Pool,
    wait: Duration,
}

impl Pool {
    /// Checks the options and makes an empty pool. The server need not be there yet: the first
    /// connection is made by the first [`Pool::get`].
    pub fn new(options: &Options) -> Result<Pool, Error> {
        let (config, tls) = options.resolve()?;
        // A closed connection is noticed without a round trip; a broken one shows at first use.
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = match tls {
            Tls::Off => Manager::from_config(config, NoTls, manager_config),
            Tls::On(tls) => Manager::from_config(config, tls, manager_config),
        };
        let inner = deadpool_postgres::Pool::builder(manager)
            .max_size(options.max_connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.connect_timeout))
            .create_timeout(Some(options.connect_timeout))
            .build()
            .map_err(|error| Error::Pool(error.to_string()))?;
        Ok(Pool { inner, wait: options.connect_timeout })
    }

    /// A connection, from the pool or new. It goes back to the pool when dropped.
    pub async fn get(&self) -> Result<crate::Client, Error> {
        self.inner.get().await.map_err(|error| Error::from_pool(error, self.wait))
    }

    /// Closes the pool: idle connections end now, lent ones when they are returned.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("status", &self.inner.status()).finish_non_exhaustive()
    }
}

/// One connection of its own, outside any pool, for work that belongs to a session: a migration, a
/// session lock. It ends when the client is dropped.
pub async fn connect(options: &Options) -> Result<tokio_postgres::Client, Error> {
    let (config, tls) = options.resolve()?;
    let connecting = async {
        match tls {
            Tls::Off => {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(serve(connection));
                Ok(client)
            }
            Tls::On(tls) => {
                let (client, connection) = config.connect(tls).await?;
                tokio::spawn(serve(connection));
                Ok(client)
            }
        }
    };
    // The client's own timeout covers the socket alone; this one covers the handshake too.
    match tokio::time::timeout(options.connect_timeout, connecting).await {
        Ok(result) => result.map_err(Error::Postgres),
        Err(_) => Err(Error::Timeout(options.connect_timeout)),
    }
}

async fn serve<F>(connection: F)
where
    F: Future<Output = Result<(), tokio_postgres::Error>>,
{
    // The same error reaches whoever holds the client, and is handled and logged there.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "connection to Postgres ended");
    }
}
