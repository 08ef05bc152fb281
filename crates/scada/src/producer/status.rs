//! How a node stands, asked from outside: of its database and of its spool's folder. Changes nothing.

use serde::Serialize;
use spool::Spool;

use super::config::Config;
use crate::outbox::{self, Level, Warning, warnings};

/// How a node stands.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The documented metrics; nothing while Postgres is away.
    pub outbox: Option<outbox::Metrics>,
    /// Why there are none.
    pub database_problem: Option<String>,
    /// The documented thresholds that are passed.
    pub warnings: Vec<Warning>,
    /// Cycles that were given up by the spool, in all.
    pub given_up_cycles: Option<u64>,
    /// What waits on the disk; nothing where there is no spool.
    pub spool: Option<SpoolStatus>,
}

impl Status {
    /// Whether somebody must look now.
    pub fn is_critical(&self) -> bool {
        self.outbox.is_none() || self.warnings.iter().any(|one| one.level == Level::Critical)
    }
}

/// What a node's spool holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpoolStatus {
    /// Cycles that have not reached the outbox; as of the last saved cursor, so a running node may be further.
    pub cycles: u64,
    /// Its size.
    pub bytes: u64,
}

/// Asks. A spool that cannot be read is an error; a database that is away is told.
pub async fn status(config: &Config) -> Result<Status, spool::Error> {
    let asked = async {
        let pool = pg::Pool::new(&pg::Options { max_connections: 1, ..config.database.clone() })?;
        let client = pool.get().await?;
        let told = outbox::metrics(&client, "status").await?;
        let gaps = "SELECT coalesce(sum(cycles), 0)::int8 FROM spool_gaps";
        let gaps: i64 = client.query_one(gaps, &[]).await?.get(0);
        Ok::<_, pg::Error>((told, gaps))
    };
    let (told, problem) = match asked.await {
        Ok(told) => (Some(told), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let batch = u64::from(config.outbox.batch);
    Ok(Status {
        warnings: told.as_ref().map(|(told, _)| warnings(told, batch)).unwrap_or_default(),
        given_up_cycles: told.as_ref().map(|(_, gaps)| u64::try_from(*gaps).unwrap_or_default()),
        outbox: told.map(|(told, _)| told),
        database_problem: problem,
        spool: spooled(config.spool.dir.clone()).await?,
    })
}

async fn spooled(dir: std::path::PathBuf) -> Result<Option<SpoolStatus>, spool::Error> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let looking = tokio::task::spawn_blocking(move || {
        let report = Spool::open_read_only(&dir)?.inspect()?;
        let bytes = report.segments.iter().map(|segment| segment.bytes).sum();
        Ok(SpoolStatus { cycles: report.head.saturating_sub(report.acked), bytes })
    });
    looking.await.unwrap_or(Err(spool::Error::Closed)).map(Some)
}
