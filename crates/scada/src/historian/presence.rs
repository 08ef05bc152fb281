//! Who of a group is running, where offsets are kept here.
//!
//! A replica knows its place in each partition by heart and writes it with its next batch, so that a replay beside it would be undone at
//! once. It therefore holds a shared lock of its group for as long as it consumes, on a connection of its own, and a replay wants the lock
//! alone. The lock goes with a process that is killed; one that is halted has it still.
//!
//! While the database is away nobody has a lock, and nothing can be replayed. After that a replica takes it again within
//! moments; a replay in between is undone by that replica's next batch, and its `updated_at` says so.

use std::time::Duration;

use tokio_postgres::Transaction;

/// The kind of this lock; the group is the number.
const KIND: i32 = 0x7363_6864;
/// How often it is looked whether the connection is there, and the pause after a failure.
#[cfg(feature = "kafka")]
const LOOK: Duration = Duration::from_millis(500);
/// A replica that has just ended, or was killed, is gone within this time.
const GONE_WITHIN: Duration = Duration::from_secs(2);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// That a replica is here, for as long as it lives.
#[cfg(feature = "kafka")]
pub(super) struct Presence {
    database: pg::Options,
    group: String,
    client: tokio_postgres::Client,
}

#[cfg(feature = "kafka")]
impl Presence {
    /// Takes the group's lock, however long the database is away or a replay is under way.
    pub(super) async fn announce(database: &pg::Options, group: &str) -> Presence {
        let database = pg::Options {
            application_name: "holdfast-historian-replica".to_owned(),
            ..database.clone()
        };
        let client = lock(&database, group).await;
        Presence { database, group: group.to_owned(), client }
    }

    /// Keeps it: takes it again when the connection is lost. It never ends by itself.
    pub(super) async fn keep(&mut self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if self.client.is_closed() {
                self.client = lock(&self.database, &self.group).await;
            }
        }
    }

    /// Says goodbye.
    pub(super) async fn end(self) {
        // Without an answer the connection's end does it.
        let query = "SELECT pg_advisory_unlock_all()";
        let _ = tokio::time::timeout(GONE_WITHIN, self.client.execute(query, &[])).await;
    }
}

#[cfg(feature = "kafka")]
async fn lock(database: &pg::Options, group: &str) -> tokio_postgres::Client {
    loop {
        let locked = async {
            let client = pg::connect(database).await?;
            let query = "SELECT pg_advisory_lock_shared($1, hashtext($2))";
            client.execute(query, &[&KIND, &group]).await?;
            Ok::<_, pg::Error>(client)
        };
        match locked.await {
            Ok(client) => return client,
            Err(error) => tracing::warn!(%error, "the group's lock could not be taken yet"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Takes the lock alone until the transaction ends. Otherwise who holds it, in words; never empty.
pub(super) async fn none_running(
    transaction: &Transaction<'_>,
    group: &str,
) -> Result<Result<(), Vec<String>>, pg::Error> {
    let lock = "SELECT pg_try_advisory_xact_lock($1, hashtext($2))";
    let holders = "SELECT format('%s, process %s of the database, since %s',
            coalesce('from ' || host(a.client_addr), 'on the database''s machine'), a.pid,
            to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC')
        FROM pg_locks l JOIN pg_stat_activity a USING (pid)
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND l.classid = $1::int4::oid AND l.objid = hashtext($2)::oid
        ORDER BY a.backend_start";
    let deadline = tokio::time::Instant::now() + GONE_WITHIN;
    loop {
        if transaction.query_one(lock, &[&KIND, &group]).await?.get(0) {
            return Ok(Ok(()));
        }
        if tokio::time::Instant::now() >= deadline {
            let rows = transaction.query(holders, &[&KIND, &group]).await?;
            if !rows.is_empty() {
                return Ok(Err(rows.iter().map(|row| row.get(0)).collect()));
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}
