//! TLS to a real server over TCP: verified or refused, never skipped.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pg::{Error, Options, Pool};
use testkit::rig::{Postgres, PostgresOptions, free_port};

const SOON: Duration = Duration::from_secs(30);

/// A certificate that signs itself, for `localhost`.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let cert = folder.join(format!("{name}.pem"));
    let key = folder.join(format!("{name}.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .args([&key, Path::new("-out"), &cert])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    (cert, key)
}

/// One for the server: it insists that the key is its own and closed to others.
fn served(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (cert, key) = certificate(folder, name);
    let data = folder.join("data");
    let owner = std::os::unix::fs::MetadataExt::uid(&data.metadata().unwrap());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(&key, Some(owner), None).unwrap();
    (cert, key)
}

/// A server that also listens on loopback, with TLS.
async fn server(folder: &Path) -> (Postgres, u16, PathBuf) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = PostgresOptions { durable: false, max_connections: 20 };
    let mut server = Postgres::start(folder, options).await.unwrap();
    let (cert, key) = served(folder, "server");
    let client = pg::connect(&Options::new(server.url("postgres"))).await.unwrap();
    let port = free_port().unwrap();
    for (setting, value) in [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("ssl", "on".to_owned()),
        ("ssl_cert_file", cert.display().to_string()),
        ("ssl_key_file", key.display().to_string()),
    ] {
        client.batch_execute(&format!("ALTER SYSTEM SET {setting} = '{value}'")).await.unwrap();
    }
    server.restart().await.unwrap();
    (server, port, cert)
}

async fn encrypted(options: &Options) -> Result<bool, Error> {
    let statement = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let alone: bool = pg::connect(options).await?.query_one(statement, &[]).await?.get(0);
    let pooled: bool = Pool::new(options)?.get().await?.query_one(statement, &[]).await?.get(0);
    assert_eq!(alone, pooled);
    // A listener notices the same server in the same way.
    let listening = tokio::sync::Notify::new();
    tokio::select! {
        ended = pg::listen(options, "tls", || listening.notify_one()) => ended?,
        () = listening.notified() => {}
    }
    Ok(alone)
}

#[tokio::test]
async fn a_server_is_verified_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, port, ca) = server(folder.path()).await;
    let (other_ca, _) = certificate(folder.path(), "other");
    let url = format!("postgres://postgres@localhost:{port}/postgres");
    let with = |url: &str, ca: &Path| Options { ca_file: Some(ca.to_owned()), ..Options::new(url) };

    assert!(encrypted(&with(&url, &ca)).await.unwrap());
    assert!(encrypted(&with(&format!("{url}?sslmode=require"), &ca)).await.unwrap());
    // Whom to trust is not known, and TLS was not asked for.
    assert!(!encrypted(&Options::new(&url)).await.unwrap());
    assert!(!encrypted(&with(&format!("{url}?sslmode=disable"), &ca)).await.unwrap());

    let stranger = encrypted(&with(&url, &other_ca)).await.unwrap_err();
    assert!(stranger.to_string().contains("certificate"), "{stranger}");
    let by_number = url.replace("localhost", "127.0.0.1");
    let misnamed = encrypted(&with(&by_number, &ca)).await.unwrap_err();
    assert!(misnamed.to_string().contains("certificate"), "{misnamed}");

    // The server's certificate changes under a pool, and with it the file that the pool trusts.
    let trusted = folder.path().join("trusted.pem");
    std::fs::copy(&ca, &trusted).unwrap();
    let options = Options { max_connections: 1, ..with(&url, &trusted) };
    let pool = Pool::new(&options).unwrap();
    let connected = async || {
        // The one connection is ended, so that the next is new.
        let client = pool.get().await?;
        let _ = client.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await;
        Ok::<_, Error>(())
    };
    connected().await.unwrap();
    std::fs::write(&trusted, "nonsense").unwrap();
    connected().await.unwrap();
    let admin = pg::connect(&Options::new(&url)).await.unwrap();
    let (cert, key) = served(folder.path(), "renewed");
    for (setting, file) in [("ssl_cert_file", &cert), ("ssl_key_file", &key)] {
        let change = format!("ALTER SYSTEM SET {setting} = '{}'", file.display());
        admin.batch_execute(&change).await.unwrap();
    }
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    testkit::eventually(SOON, "the pool trusts the old one alone", async || {
        connected().await.is_err()
    })
    .await
    .unwrap();
    std::fs::copy(&cert, &trusted).unwrap();
    connected().await.unwrap();
    assert!(encrypted(&options).await.unwrap());
}

#[test]
fn what_cannot_be_verified_is_refused_before_connecting() {
    let folder = tempfile::tempdir().unwrap();
    let url = "postgres://x@localhost/x?sslmode=require";
    let error = Pool::new(&Options::new(url)).unwrap_err();
    assert!(matches!(error, Error::NoCertificateAuthority), "{error}");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for path in [empty, folder.path().join("missing.pem")] {
        let options = Options { ca_file: Some(path.clone()), ..Options::new(url) };
        let error = Pool::new(&options).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[tokio::test]
async fn a_socket_file_needs_no_tls_though_a_ca_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, _) = certificate(folder.path(), "ca");
    let database = testkit::Database::empty("tls").await.unwrap();
    let options = Options { ca_file: Some(ca), ..Options::new(database.url()) };
    assert!(!encrypted(&options).await.unwrap());
}
