//! Other job queues on Postgres, on the same server: graphile-worker and pg-boss, in Node.js, with no-op handlers and jobs that were
//! enqueued before. They know no order per key here, so that none of their jobs waits for another.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use rig::Postgres;
use tokio_postgres::config::Host;

use crate::place::Place;

const FILES: [(&str, &str); 3] = [
    ("package.json", include_str!("../peers/package.json")),
    ("package-lock.json", include_str!("../peers/package-lock.json")),
    ("peer.mjs", include_str!("../peers/peer.mjs")),
];

/// The peers, installed under the target folder.
pub(crate) struct Peers {
    folder: PathBuf,
    sockets: PathBuf,
    admin: pg::Options,
}

impl Peers {
    /// Installs exactly what the lock file names, unless that is there already.
    pub(crate) fn install(place: &Place, server: &Postgres) -> Result<Peers> {
        let folder = place.target.join("bench-peers");
        std::fs::create_dir_all(&folder)?;
        let installed = folder.join("installed.json");
        let [_, (_, lock), _] = FILES;
        let fresh = std::fs::read_to_string(&installed).is_ok_and(|text| text == lock);
        for (name, text) in FILES {
            std::fs::write(folder.join(name), text)?;
        }
        if !fresh {
            let npm = Command::new("npm")
                .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
                .current_dir(&folder)
                .output()
                .context("run npm; ./dev bench installs it")?;
            if !npm.status.success() {
                bail!("npm ci: {}", String::from_utf8_lossy(&npm.stderr).trim());
            }
            std::fs::write(&installed, lock)?;
        }
        let admin = pg::Options::new(server.url("postgres"));
        let config: tokio_postgres::Config = admin.url.parse()?;
        let [Host::Unix(sockets)] = config.get_hosts() else { bail!("no socket in {}", admin.url) };
        Ok(Peers { folder, sockets: sockets.clone(), admin })
    }

    /// Jobs a second of a peer, in a database of its own.
    pub(crate) async fn run(&self, peer: &str, jobs: u64) -> Result<f64> {
        let client = pg::connect(&self.admin).await?;
        client.batch_execute("DROP DATABASE IF EXISTS peers WITH (FORCE)").await?;
        client.batch_execute("CREATE DATABASE peers").await?;
        let output = tokio::process::Command::new("node")
            .args(["peer.mjs", peer, &jobs.to_string()])
            .current_dir(&self.folder)
            .env("PGHOST", &self.sockets)
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "peers")
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(super::outbox_drain::TOO_LONG, output)
            .await
            .with_context(|| format!("{peer} does not end"))??;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("{peer}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        text.trim().parse().with_context(|| format!("{peer} said {text:?}"))
    }
}
