//! One RabbitMQ for all test processes of a run, and a virtual host per test.
//!
//! It starts in some fifteen seconds, so it is shared as the Postgres of [`crate::server`] is, in the folder
//! `rabbitmq` of the run's folder and with the same files: `lock` while somebody starts or stops it, `users` held
//! shared by every process that uses it, `server` naming its folder. A keeper stops it when nobody has used it
//! for a while.
//!
//! A test that stops the broker, or that brings it to its limits, needs one of its own:
//! [`private_rabbitmq`].

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rig::RabbitMq;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::run;

const KEEPER: &str = include_str!("rabbitmq_keeper.sh");
/// Longer than cargo takes from one test binary to the next.
const GRACE_SECONDS: u32 = 20;
/// The virtual host that always exists.
const DEFAULT_VHOST: &str = "/";

/// A virtual host of one test on the shared broker.
#[derive(Debug)]
pub struct Vhost {
    url: String,
    name: String,
    folder: PathBuf,
}

impl Vhost {
    /// Its address, credentials included.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name on the broker.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `rabbitmqctl` on the shared broker. What it changes must be of this virtual host.
    pub async fn ctl(&self, arguments: &[&str]) -> Result<String> {
        Ok(rig::rabbitmq::ctl(&self.folder, arguments).await?)
    }
}

impl Drop for Vhost {
    fn drop(&mut self) {
        let (folder, name) = (std::mem::take(&mut self.folder), std::mem::take(&mut self.name));
        // A thread, because the test's own runtime may be ending. Nobody waits for it: what it does
        // not reach goes with the broker.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                let delete = ["delete_vhost", name.as_str()];
                let _ = runtime.block_on(rig::rabbitmq::ctl(&folder, &delete));
            }
        });
    }
}

/// A virtual host on the shared broker; the first caller of the run starts the broker.
pub async fn rabbitmq() -> Result<Vhost> {
    static SHARED: OnceCell<Shared> = OnceCell::const_new();
    let shared = SHARED.get_or_try_init(join).await?;
    let name = format!("test-{}", Uuid::now_v7().simple());
    rig::rabbitmq::add_vhost(&shared.folder, &name).await?;
    let base = shared.url.strip_suffix("%2f").context("the default vhost's address")?;
    Ok(Vhost { url: format!("{base}{name}"), name, folder: shared.folder.clone() })
}

/// A RabbitMQ of one test's own, in a temporary folder. Both go when this is dropped.
#[derive(Debug)]
pub struct PrivateRabbitMq {
    // Dropped in this order: the server is gone before its folder is deleted.
    broker: RabbitMq,
    _folder: TempDir,
}

/// Starts one.
pub async fn private_rabbitmq() -> Result<PrivateRabbitMq> {
    let folder = tempfile::Builder::new().prefix("holdfast-rabbitmq-").tempdir()?;
    let broker = RabbitMq::start(folder.path()).await.context("start a RabbitMQ")?;
    Ok(PrivateRabbitMq { broker, _folder: folder })
}

impl Deref for PrivateRabbitMq {
    type Target = RabbitMq;

    fn deref(&self) -> &RabbitMq {
        &self.broker
    }
}

impl DerefMut for PrivateRabbitMq {
    fn deref_mut(&mut self) -> &mut RabbitMq {
        &mut self.broker
    }
}

/// The shared broker, as one of its users sees it.
struct Shared {
    folder: PathBuf,
    url: String,
    _user: File,
}

async fn join() -> Result<Shared> {
    let run = run::folder()?.join("rabbitmq");
    std::fs::create_dir_all(&run)?;
    let lock = open(&run.join("lock"))?;
    let user = open(&run.join("users"))?;
    // Blocking locks, for seconds while another process starts the broker.
    let (lock, user) = tokio::task::spawn_blocking(move || {
        lock.lock()?;
        user.lock_shared()?;
        std::io::Result::Ok((lock, user))
    })
    .await?
    .context("lock the run folder")?;
    let note = run.join("server");
    let (folder, url) = match running(&note).await {
        Some(found) => found,
        None => start(&run, &note).await?,
    };
    drop(lock);
    Ok(Shared { folder, url, _user: user })
}

fn open(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open {}", path.display()))
}

/// The broker that the note speaks of, if it answers.
async fn running(note: &Path) -> Option<(PathBuf, String)> {
    let text = std::fs::read_to_string(note).ok()?;
    let (folder, url) = text.split_once('\n')?;
    let addr = url.split_once('@')?.1.split_once('/')?.0;
    TcpStream::connect(addr).await.ok()?;
    Some((PathBuf::from(folder), url.to_owned()))
}

async fn start(run: &Path, note: &Path) -> Result<(PathBuf, String)> {
    if let Ok(text) = std::fs::read_to_string(note)
        && let Some((old, _)) = text.split_once('\n')
    {
        // Its broker does not answer: the machine was restarted, or its keeper was killed.
        let _ = std::fs::remove_dir_all(old);
    }
    let folder = tempfile::Builder::new().prefix("holdfast-test-rabbitmq-").tempdir()?;
    let broker = RabbitMq::start(folder.path()).await?;
    let url = broker.url(DEFAULT_VHOST);
    std::fs::write(note, format!("{}\n{url}", folder.path().display()))?;
    spawn_keeper(run, folder.path())?;
    broker.detach();
    Ok((folder.keep(), url))
}

/// Called with `lock` held, which the keeper takes before it stops the broker.
fn spawn_keeper(run: &Path, server: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;
    Command::new("sh")
        .args(["-c", KEEPER, "keeper"])
        .args([run, server])
        .arg(GRACE_SECONDS.to_string())
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("start the keeper")?;
    Ok(())
}
