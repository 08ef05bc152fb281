//! One Postgres for all test processes of a run; how it is shared, and how it ends, is in `shared.rs`.
//!
//! The data is in a folder of its own under the system's temporary folder, because the user that
//! runs Postgres must be able to enter it.

use std::path::Path;

use anyhow::Result;
use rig::{Postgres, PostgresOptions};
use tokio::sync::OnceCell;

use crate::run;
use crate::shared::{self, Ending, Shared, Started};

const MAX_CONNECTIONS: u16 = 300;
/// The database that always exists, from which others are made.
const MAINTENANCE: &str = "postgres";

/// The shared server, as one of its users sees it.
#[derive(Debug)]
pub struct Server {
    shared: Shared,
}

impl Server {
    /// The address of a database of the server.
    pub fn url(&self, database: &str) -> String {
        self.shared.address.replacen("///postgres?", &format!("///{database}?"), 1)
    }

    /// The address of the database that always exists.
    pub fn maintenance_url(&self) -> String {
        self.shared.address.clone()
    }
}

/// The shared server; the first caller of the run starts it.
pub async fn postgres() -> Result<&'static Server> {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    let join = async || {
        let answers = async |base: &str| pg::connect(&pg::Options::new(base)).await.is_ok();
        let shared = shared::join(run::folder()?, answers, start).await?;
        anyhow::Ok(Server { shared })
    };
    SERVER.get_or_try_init(join).await
}

async fn start() -> Result<Started> {
    let folder = tempfile::Builder::new().prefix("holdfast-test-").tempdir()?;
    open_to_others(folder.path())?;
    let options = PostgresOptions { durable: false, max_connections: MAX_CONNECTIONS };
    let server = Postgres::start(folder.path(), options).await?;
    let address = server.url(MAINTENANCE);
    server.detach();
    let folder = folder.keep();
    let data = folder.join("data");
    let word = data.display().to_string();
    let pid_file = data.join("postmaster.pid");
    Ok(Started { folder, address, processes: vec![Ending { signal: "QUIT", pid_file, word }] })
}

/// A temporary folder is closed to the user that runs Postgres; what matters inside it is closed by
/// itself.
fn open_to_others(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?)
}
