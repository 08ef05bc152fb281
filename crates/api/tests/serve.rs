//! A listener of a role, with real connections: in plain and by TLS, while its certificate changes, and as it stops.

#![expect(clippy::unwrap_used, reason = "helpers of tests stand outside #[test] functions")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::serve::{Listener, Tls};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use reqwest::Client;
use tempfile::TempDir;
use testkit::eventually;
use testkit::rig::certificates::{Authority, Issued};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const SOON: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Loopback, and a port that is free.
const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A listener that tells each client which port it comes from, and so which connection it is on.
struct Served {
    address: SocketAddr,
    metrics: PrometheusHandle,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    /// Requests to `/slow` are answered when this is said.
    slow: Arc<Notify>,
    /// Said by each request to `/slow` that has arrived.
    arrived: Arc<Notify>,
}

impl Served {
    fn start(tls: Option<&Tls>, goodbye: Duration) -> Served {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let listener =
            metrics::with_local_recorder(&recorder, || Listener::bind(ANYWHERE, tls)).unwrap();
        let address = listener.address();
        let (slow, arrived) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (release, come) = (Arc::clone(&slow), Arc::clone(&arrived));
        let router = Router::new()
            .route(
                "/",
                get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.port().to_string()),
            )
            .route(
                "/slow",
                get(async move || {
                    come.notify_one();
                    release.notified().await;
                    "done"
                }),
            );
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(listener.serve(
            router,
            async {
                let _ = stopped.await;
            },
            goodbye,
        ));
        Served { address, metrics, stop: Some(stop), task, slow, arrived }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }

    fn has_counted(&self, line: &str) -> bool {
        self.metrics.render().lines().any(|found| found == line)
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(SOON, self.task).await.unwrap().unwrap();
    }
}

/// A folder with an authority and the certificate that is served, looked at often.
struct Ground {
    folder: TempDir,
    authority: Authority,
    tls: Tls,
}

fn ground() -> Ground {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::make(folder.path(), "ca").unwrap();
    let served = issue(&authority, "served");
    let look_every = Duration::from_millis(30);
    let tls = Tls { look_every, ..Tls::new(served.certificate, served.key) };
    Ground { folder, authority, tls }
}

fn issue(authority: &Authority, name: &str) -> Issued {
    authority.issue(name, &[], SystemTime::now() + 2 * DAY).unwrap()
}

/// Trusts an authority, and shows a certificate if it has one.
fn client(trusts: &Path, shows: Option<&Issued>) -> Client {
    let tls = api::client::Tls {
        ca_file: Some(trusts.to_owned()),
        client: shows.map(|issued| (issued.certificate.clone(), issued.key.clone())),
    };
    tls.apply(Client::builder().timeout(SOON).no_proxy()).unwrap().build().unwrap()
}

/// One connection that stays open. A client with a pool does not promise that: it opens another when the first is not back in the pool yet.
struct Steady(BufReader<TlsStream<TcpStream>>);

impl Steady {
    async fn open(trusts: &Path, address: SocketAddr) -> Steady {
        let files = trust::Files { ca_file: Some(trusts.to_owned()), system: false, client: None };
        let connector = TlsConnector::from(Arc::new(files.client_config().unwrap()));
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = connector.connect(address.ip().into(), stream).await.unwrap();
        Steady(BufReader::new(stream))
    }

    async fn ask(&mut self) {
        let request = "GET / HTTP/1.1\r\nhost: steady\r\n\r\n";
        self.0.write_all(request.as_bytes()).await.unwrap();
        let (mut status, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).await.unwrap(), 0, "the connection was dropped");
            match line.trim_end().split_once(": ") {
                None if line.trim_end().is_empty() => break,
                None => status = line,
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
            }
        }
        assert_eq!(status.trim_end(), "HTTP/1.1 200 OK");
        self.0.read_exact(&mut vec![0; length]).await.unwrap();
    }
}

async fn ask(client: &Client, url: &str) -> Result<String, reqwest::Error> {
    client.get(url).send().await?.error_for_status()?.text().await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_listener_serves_plain_and_another_by_tls_only() {
    let ground = ground();
    let trusting = client(&ground.authority.certificate(), None);
    let plain = Served::start(None, SOON);
    assert!(ask(&trusting, &plain.url("http")).await.is_ok());
    assert!(ask(&trusting, &plain.url("https")).await.is_err());
    assert!(!plain.metrics.render().contains("holdfast_http_certificate_expiry"));

    let closed = Served::start(Some(&ground.tls), SOON);
    let port: u16 = ask(&trusting, &closed.url("https")).await.unwrap().parse().unwrap();
    assert_ne!(port, 0);
    assert!(ask(&trusting, &closed.url("http")).await.is_err());
    let stranger = Authority::make(&ground.folder.path().join("other"), "ca").unwrap();
    let misled = client(&stranger.certificate(), None);
    assert!(ask(&misled, &closed.url("https")).await.is_err());
    eventually(SOON, "the failed handshakes counted", async || {
        closed.has_counted("holdfast_http_handshakes_failed_total 2")
    })
    .await
    .unwrap();
    let ends = ground.tls.examine().unwrap().as_second();
    let gauge = format!("holdfast_http_certificate_expiry_timestamp_seconds {ends}");
    assert!(closed.has_counted(&gauge), "{}", closed.metrics.render());
    plain.stop().await;
    closed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_is_used_and_no_connection_is_dropped() {
    let ground = ground();
    let served = Served::start(Some(&ground.tls), SOON);
    let url = served.url("https");
    let mut steady = Steady::open(&ground.authority.certificate(), served.address).await;
    steady.ask().await;

    // Another authority has signed the new one: only who trusts that can come in anew.
    let next = Authority::make(&ground.folder.path().join("next"), "ca").unwrap();
    let renewed = issue(&next, "renewed");
    std::fs::copy(&renewed.certificate, &ground.tls.cert).unwrap();
    std::fs::copy(&renewed.key, &ground.tls.key).unwrap();
    eventually(SOON, "the new certificate", async || {
        // Requests go on all the while, on the connection from before.
        steady.ask().await;
        ask(&client(&next.certificate(), None), &url).await.map(drop)
    })
    .await
    .unwrap();
    steady.ask().await;
    let anew = client(&ground.authority.certificate(), None);
    assert!(ask(&anew, &url).await.is_err(), "the old certificate is still shown");
    drop(steady);
    let taken = "holdfast_http_certificate_reloads_total{result=\"taken\"} 1";
    assert!(served.has_counted(taken), "{}", served.metrics.render());
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_change_leaves_the_old_certificate_in_use_and_is_counted_once() {
    let ground = ground();
    let served = Served::start(Some(&ground.tls), SOON);
    let url = served.url("https");
    let ended = ground.authority.issue("ended", &[], SystemTime::now() - DAY).unwrap();
    let other = issue(&ground.authority, "other");
    type Change<'a> = Box<dyn Fn() + 'a>;
    let bad: [(&str, Change<'_>); 4] = [
        ("no certificate", Box::new(|| std::fs::write(&ground.tls.cert, "nonsense").unwrap())),
        (
            "another's key",
            Box::new(|| assert!(std::fs::copy(&other.certificate, &ground.tls.cert).is_ok())),
        ),
        (
            "one that has ended",
            Box::new(|| {
                std::fs::copy(&ended.certificate, &ground.tls.cert).unwrap();
                std::fs::copy(&ended.key, &ground.tls.key).unwrap();
            }),
        ),
        ("no file", Box::new(|| std::fs::remove_file(&ground.tls.cert).unwrap())),
    ];
    for (count, (what, change)) in (1..).zip(&bad) {
        change();
        let line = format!("holdfast_http_certificate_reloads_total{{result=\"refused\"}} {count}");
        let counted = async || served.has_counted(&line);
        eventually(SOON, what, counted).await.unwrap();
        let anew = client(&ground.authority.certificate(), None);
        ask(&anew, &url).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
    // And what is good again is taken.
    std::fs::copy(&other.certificate, &ground.tls.cert).unwrap();
    std::fs::copy(&other.key, &ground.tls.key).unwrap();
    eventually(SOON, "the good one", async || {
        served.has_counted("holdfast_http_certificate_reloads_total{result=\"taken\"} 1")
    })
    .await
    .unwrap();
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_a_certificate_of_the_authority_is_refused() {
    let ground = ground();
    let sites = Authority::make(&ground.folder.path().join("sites"), "ca").unwrap();
    let tls = Tls { client_ca: Some(sites.certificate()), ..ground.tls.clone() };
    let served = Served::start(Some(&tls), SOON);
    let url = served.url("https");
    let trusts = ground.authority.certificate();
    let (site, stranger) = (issue(&sites, "site"), issue(&ground.authority, "stranger"));
    ask(&client(&trusts, Some(&site)), &url).await.unwrap();
    assert!(ask(&client(&trusts, None), &url).await.is_err(), "it came without a certificate");
    assert!(ask(&client(&trusts, Some(&stranger)), &url).await.is_err(), "it is a stranger");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_requests_end_and_cuts_off_those_that_do_not() {
    let ground = ground();
    for tls in [None, Some(&ground.tls)] {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let asker = client(&ground.authority.certificate(), None);
        let mut patient = Served::start(tls, SOON);
        let url = format!("{}/slow", patient.url(scheme));
        let (asking, at) = (asker.clone(), url.clone());
        let answer = tokio::spawn(async move { ask(&asking, &at).await });
        patient.arrived.notified().await;
        drop(patient.stop.take());
        eventually(SOON, "no more connections", async || {
            TcpStream::connect(patient.address).await.is_err()
        })
        .await
        .unwrap();
        patient.slow.notify_one();
        assert_eq!(answer.await.unwrap().unwrap(), "done");
        patient.stop().await;

        let hasty = Served::start(tls, Duration::from_millis(1));
        let url = format!("{}/slow", hasty.url(scheme));
        let answer = tokio::spawn(async move { ask(&asker, &url).await });
        hasty.arrived.notified().await;
        hasty.stop().await;
        assert!(answer.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_at_the_start_by_its_key() {
    let ground = ground();
    let other = issue(&ground.authority, "other");
    let empty = ground.folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let gone = ground.folder.path().join("gone");
    let good = ground.tls.clone();
    for (tls, said) in [
        (Tls { cert: gone.clone(), ..good.clone() }, ["tls.cert", "gone"]),
        (Tls { cert: empty.clone(), ..good.clone() }, ["tls.cert", "no certificate"]),
        (Tls { key: empty.clone(), ..good.clone() }, ["tls.key", "no private key"]),
        (Tls { key: other.key, ..good.clone() }, ["tls.key", "not the key of tls.cert"]),
        (Tls { client_ca: Some(empty), ..good.clone() }, ["tls.client_ca", "no certificate"]),
    ] {
        let error = Listener::bind(ANYWHERE, Some(&tls)).unwrap_err().to_string();
        assert!(said.iter().all(|word| error.contains(word)), "{error}");
    }
    let taken = Listener::bind(ANYWHERE, None).unwrap();
    let error = Listener::bind(taken.address(), Some(&good)).unwrap_err().to_string();
    assert!(error.starts_with("http.listen 127.0.0.1:"), "{error}");
    let trust = api::client::Tls { ca_file: Some(gone), client: None };
    let error = trust.apply(Client::builder()).unwrap_err().to_string();
    assert!(error.contains("ca_file") && error.contains("gone"), "{error}");
}
