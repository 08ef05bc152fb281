//! The registry as ingress asks it: many times a second, for the same few nodes.
//!
//! Promise: an answer is at most [`TTL`] old, so a node that was shut out is shut out within that
//! time; a node that was just enrolled, or has a new secret, is known at once. Only registered
//! nodes are kept, so that made-up ids do not fill the memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use event::id::NodeId;

use super::{ENTRY_COLUMNS, Entry, Error, SecretHash};

/// How old an answer may be.
const TTL: Duration = Duration::from_secs(2);

/// The registry, read through a cache.
#[derive(Debug)]
pub(crate) struct Registry {
    pool: pg::Pool,
    known: Mutex<HashMap<NodeId, (Arc<Entry>, Instant)>>,
}

impl Registry {
    pub(crate) fn new(pool: pg::Pool) -> Registry {
        Registry { pool, known: Mutex::new(HashMap::new()) }
    }

    /// The entry of a node, if it is registered.
    pub(crate) async fn find(&self, node: &NodeId) -> Result<Option<Arc<Entry>>, Error> {
        let remembered = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known
                .get(node)
                .filter(|(_, read)| read.elapsed() < TTL)
                .map(|(entry, _)| Arc::clone(entry))
        };
        match remembered {
            Some(entry) => Ok(Some(entry)),
            None => self.read(node).await,
        }
    }

    /// The entry as the database has it now.
    pub(crate) async fn read(&self, node: &NodeId) -> Result<Option<Arc<Entry>>, Error> {
        let client = self.pool.get().await?;
        let query = format!("SELECT {ENTRY_COLUMNS} FROM nodes WHERE node_id = $1");
        let statement = client.prepare_cached(&query).await?;
        let row = client.query_opt(&statement, &[&node.as_str()]).await?;
        let entry = row.as_ref().map(|row| Entry::from_row(row).map(Arc::new)).transpose()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &entry {
            Some(entry) => drop(known.insert(node.clone(), (Arc::clone(entry), Instant::now()))),
            // A node that is gone from the table must not live on here.
            None => drop(known.remove(node)),
        }
        Ok(entry)
    }

    /// The node that has this secret.
    pub(crate) async fn find_by_secret(&self, hash: &SecretHash) -> Result<Option<NodeId>, Error> {
        let client = self.pool.get().await?;
        let statement =
            client.prepare_cached("SELECT node_id FROM nodes WHERE secret_hash = $1").await?;
        let row = client.query_opt(&statement, &[&hash.bytes()]).await?;
        Ok(row.and_then(|row| row.get::<_, String>(0).parse().ok()))
    }
}
