//! Object stores for tests: one that is not ours, and the embedded one.
//!
//! The foreign one is S3Proxy over a folder. It checks signatures and their expiry, and starts in some three seconds, so it is shared as
//! Postgres is (`shared.rs`), with a bucket per test. `./dev` puts its jars under the target folder.
//!
//! The embedded one runs in the test's own process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use objects::server::{Credentials, serve};
use objects::{Address, Bucket, Style};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::run;
use crate::shared::{self, Ending, Shared, Started};

const ACCESS_KEY: &str = "test-access";
const SECRET_KEY: &str = "canary-secret";
/// Where `./dev` puts the jars, under the target folder.
const JARS: &str = "tools/s3proxy";
const STARTS_WITHIN: Duration = Duration::from_secs(60);
const LOGBACK: &str = r#"<configuration><appender name="A" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %level %msg%n</pattern></encoder></appender><root level="warn"><appender-ref ref="A"/></root></configuration>"#;

/// A new bucket of the shared store that is not ours; the first caller of the run starts it.
pub async fn foreign_bucket() -> Result<Address> {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let join = async || shared::join(run::folder()?.join("s3proxy"), answers, start).await;
    let shared = SHARED.get_or_try_init(join).await?;
    let address = address(&format!("http://{}", shared.address))?;
    Bucket::new(&address)?.ensure().await.context("make a bucket")?;
    Ok(address)
}

/// The address of a bucket with a name of its own.
fn address(url: &str) -> Result<Address> {
    Ok(Address {
        url: url.parse().context("the store's address")?,
        bucket: format!("test-{}", Uuid::now_v7().simple()),
        region: "us-east-1".to_owned(),
        access_key: ACCESS_KEY.to_owned(),
        secret_key: SECRET_KEY.to_owned(),
        style: Style::Path,
    })
}

async fn answers(address: &str) -> bool {
    TcpStream::connect(address).await.is_ok()
}

async fn start() -> Result<Started> {
    let jars = run::profile_folder()?.parent().map(|target| target.join(JARS));
    let jars = jars.filter(|jars| jars.is_dir());
    let jars = jars.with_context(|| format!("no target/{JARS}: `./dev test` installs it"))?;
    let folder = tempfile::Builder::new().prefix("holdfast-test-s3proxy-").tempdir()?;
    let at = folder.path();
    let data = at.join("data");
    std::fs::create_dir(&data)?;
    let port = rig::free_port()?;
    let properties = at.join("s3proxy.properties");
    std::fs::write(
        &properties,
        format!(
            "s3proxy.endpoint=http://127.0.0.1:{port}\ns3proxy.authorization=aws-v2-or-v4\n\
             s3proxy.identity={ACCESS_KEY}\ns3proxy.credential={SECRET_KEY}\n\
             jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={}\n\
             jclouds.identity=none\njclouds.credential=none\n",
            data.display()
        ),
    )?;
    std::fs::write(at.join("logback.xml"), LOGBACK)?;
    let address = format!("127.0.0.1:{port}");
    java(at, &jars, &properties, &address).await?;
    let folder = folder.keep();
    let word = properties.display().to_string();
    let processes = vec![Ending { signal: "KILL", pid_file: folder.join("pid"), word }];
    Ok(Started { folder, address, processes })
}

/// Starts the server and leaves it running when it answers; its keeper ends it.
async fn java(at: &Path, jars: &Path, properties: &Path, address: &str) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let log = std::fs::File::create(at.join("log"))?;
    let mut child = Command::new("java")
        .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(format!("-Dlogback.configurationFile={}", at.join("logback.xml").display()))
        .arg(format!("-Djava.io.tmpdir={}", at.display()))
        .args(["-cp".as_ref(), jars.join("*").as_os_str()])
        .args(["org.gaul.s3proxy.Main", "--properties"])
        .arg(properties)
        .current_dir(at)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("run java")?;
    std::fs::write(at.join("pid"), child.id().to_string())?;
    let deadline = Instant::now() + STARTS_WITHIN;
    while !answers(address).await {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() >= deadline {
            let _ = child.kill();
            let said = std::fs::read_to_string(at.join("log")).unwrap_or_default();
            bail!("S3Proxy did not start: {ended:?} {said}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The embedded store in this process, over a folder.
#[derive(Debug)]
pub struct EmbeddedStore {
    address: Address,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
    folder: PathBuf,
    _own: Option<TempDir>,
}

impl EmbeddedStore {
    /// Starts one over a folder of its own, with one bucket.
    pub async fn start() -> Result<EmbeddedStore> {
        let own = tempfile::Builder::new().prefix("holdfast-objects-").tempdir()?;
        let mut store = EmbeddedStore::over(own.path()).await?;
        store._own = Some(own);
        Ok(store)
    }

    /// Starts one over a folder.
    pub async fn over(folder: &Path) -> Result<EmbeddedStore> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = address(&format!("http://{}", listener.local_addr()?))?;
        let stop = CancellationToken::new();
        let (at, stopping) = (folder.to_owned(), stop.clone());
        let credentials = EmbeddedStore::credentials();
        let serving =
            tokio::spawn(async move { serve(&at, listener, credentials, stopping).await });
        Bucket::new(&address)?.ensure().await.context("make a bucket")?;
        Ok(EmbeddedStore { address, stop, serving, folder: folder.to_owned(), _own: None })
    }

    /// What it is served with.
    pub fn credentials() -> Credentials {
        Credentials { access_key: ACCESS_KEY.to_owned(), secret_key: SECRET_KEY.to_owned() }
    }

    /// Its bucket.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.serving.await??)
    }
}
