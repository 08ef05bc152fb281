//! Mosquitto's password and ACL files: a projection of the registry.
//!
//! Promise: after [`write()`], exactly the enabled nodes and the edge itself can log in; a node can
//! write its own four topics and read its own acks and commands; only the edge can write these. The files follow
//! from the registry alone, so that they can be made again at any time, on any machine. Mosquitto
//! reads them again on SIGHUP.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tokio_postgres::Client;

use super::{Error, disk, secret};
use crate::config::Config;

/// What every user may do; `%u` stands for the user name, which is the node's id.
const ACL: &str = "\
pattern write iot/%u/live
pattern write iot/%u/backfill
pattern write iot/%u/event
pattern write iot/%u/status
pattern read iot/%u/ack
pattern read iot/%u/command
";

/// Writes both files from the registry, if they are configured. Returns whether they are.
pub async fn write(config: &Config, client: &Client) -> Result<bool, Error> {
    let Some(files) = &config.broker_files else {
        return Ok(false);
    };
    let rows = client
        .query(
            "SELECT node_id, broker_hash FROM nodes WHERE disabled_at IS NULL ORDER BY node_id",
            &[],
        )
        .await?;
    let nodes: BTreeMap<String, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let (user, password) = &config.broker_user;
    let password = password.as_ref().ok_or(Error::NoEdgePassword)?;
    let passwords = password_lines(user, &secret::broker_hash(password), &nodes);
    let fail = |path: &std::path::Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    // The ACL goes first: a new password must not be good for anything before the rules are there.
    disk::replace(&files.acl, &acl_lines(user)).map_err(fail(&files.acl))?;
    disk::replace(&files.passwords, &passwords).map_err(fail(&files.passwords))?;
    Ok(true)
}

fn password_lines(user: &str, edge_hash: &str, nodes: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail. Ids have passed their grammar: no colon, no line end.
    let _ = writeln!(text, "{user}:{edge_hash}");
    for (node, hash) in nodes {
        let _ = writeln!(text, "{node}:{hash}");
    }
    text
}

fn acl_lines(user: &str) -> String {
    let mut text = format!("# Written by holdfast edge enroll; changes here do not stay.\n{ACL}\n");
    let _ = writeln!(text, "user {user}");
    for topic in ["live", "backfill", "event", "status"] {
        let _ = writeln!(text, "topic read iot/+/{topic}");
    }
    for topic in ["ack", "command"] {
        let _ = writeln!(text, "topic write iot/+/{topic}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_enabled_node_has_a_line_and_only_the_edge_writes_acks() {
        let nodes = BTreeMap::from([("barn-1".to_owned(), "$7$101$a$b".to_owned())]);
        let lines = password_lines("holdfast-edge", "$7$101$c$d", &nodes);
        assert_eq!(lines, "holdfast-edge:$7$101$c$d\nbarn-1:$7$101$a$b\n");
        let acl = acl_lines("holdfast-edge");
        assert_eq!(acl.matches("write iot/+/ack").count(), 1);
        assert!(acl.find("user holdfast-edge") < acl.find("write iot/+/ack"));
        assert!(!acl.contains("pattern write iot/%u/ack"));
        assert_eq!(acl.matches("write iot/+/command").count(), 1);
        assert!(!acl.contains("pattern write iot/%u/command"));
    }
}
