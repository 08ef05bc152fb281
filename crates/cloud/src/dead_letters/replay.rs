//! Works off the replays that were asked for on the inline bus.
//!
//! Promises: a letter goes to the group that gave it up, and to no other; its row goes only after that group has settled it,
//! and stays, with the new cause, when the group gave it up again. One replica at a time is at it. Killed in the
//! middle, it delivers again, which consumers do not mind.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{About, inline};
use jiff::Timestamp;
use tokio_postgres::Client;

use super::rows::{COLUMNS, Kept, kept};

/// The most letters delivered together.
const CHUNK: i64 = 100;
/// How often the table is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After an error of the database.
const PAUSE: Duration = Duration::from_secs(5);
/// One replica at a time, whoever it is.
const LOCK: i64 = 0x636c_6472;

/// What one turn did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turn {
    /// Delivered and stored: their rows are gone.
    pub stored: u64,
    /// Given up again by their group.
    pub again: u64,
    /// Not delivered: the group does not exist. They are no longer marked.
    pub refused: u64,
    /// Not settled this time; they stay due.
    pub waiting: u64,
}

/// Runs until `shutdown` is done. Ending in the middle of a delivery is safe.
pub async fn run(options: pg::Options, bus: &inline::Bus, shutdown: impl Future<Output = ()>) {
    let working = async {
        loop {
            if let Err(error) = hold(&options, bus).await {
                tracing::warn!(%error, "dead letters cannot be replayed now");
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    tokio::select! {
        () = working => {}
        () = shutdown => {}
    }
}

/// Replays for as long as the connection lives. The lock belongs to it, so that it goes with a replica that is killed.
async fn hold(options: &pg::Options, bus: &inline::Bus) -> Result<(), pg::Error> {
    let client = pg::connect(options).await?;
    loop {
        let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?;
        if row.get(0) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    loop {
        let turn = turn(&client, bus).await?;
        if turn != Turn::default() {
            let Turn { stored, again, refused, waiting } = turn;
            tracing::info!(stored, again, refused, waiting, "dead letters replayed");
        }
        if turn.stored + turn.again < CHUNK.unsigned_abs() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Delivers the letters that are due, up to a hundred.
pub async fn turn(client: &Client, bus: &inline::Bus) -> Result<Turn, pg::Error> {
    let query = format!(
        "SELECT {COLUMNS} FROM bus_dead_letter WHERE replay_at <= now() ORDER BY replay_at, id LIMIT $1"
    );
    let mut by_group: BTreeMap<String, Vec<Kept>> = BTreeMap::new();
    for letter in client.query(&query, &[&CHUNK]).await?.iter().map(kept) {
        by_group.entry(letter.letter.queue.clone().unwrap_or_default()).or_default().push(letter);
    }
    let mut turn = Turn::default();
    for (group, letters) in by_group {
        let messages = letters
            .iter()
            .map(|kept| (kept.letter.message.clone(), kept.letter.replayed.saturating_add(1)))
            .collect();
        let results = bus.deliver_to(&group, messages).await;
        for (kept, result) in letters.into_iter().zip(results) {
            match result {
                Ok(()) if remove(client, kept.id, kept.replay_at).await? => turn.stored += 1,
                Ok(()) => turn.again += 1,
                Err(error) if error.about() == About::Destination => {
                    tracing::warn!(%group, %error, "a dead letter was not settled; it stays due");
                    turn.waiting += 1;
                }
                Err(error) => {
                    tracing::error!(%group, %error, "a dead letter cannot be replayed");
                    forget(client, kept.id).await?;
                    turn.refused += 1;
                }
            }
        }
    }
    Ok(turn)
}

/// Removes a letter that its group has stored. The store takes the mark off a letter that was given up again, so the
/// mark tells the two apart.
async fn remove(client: &Client, id: i64, replay_at: Option<Timestamp>) -> Result<bool, pg::Error> {
    let query = "DELETE FROM bus_dead_letter WHERE id = $1 AND replay_at = $2";
    Ok(client.execute(query, &[&id, &replay_at]).await? == 1)
}

async fn forget(client: &Client, id: i64) -> Result<(), pg::Error> {
    let query = "UPDATE bus_dead_letter SET replay_at = NULL, replay_audit_id = NULL WHERE id = $1";
    client.execute(query, &[&id]).await?;
    Ok(())
}
