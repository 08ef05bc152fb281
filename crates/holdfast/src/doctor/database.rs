//! A role's database: reachable, of a version we know, its tables up to date, its clock near ours, and somebody may use the API.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio_postgres::Client;

use super::check::Check;

/// The oldest major version that the tests run on.
const KNOWN_VERSION: i32 = 15;
/// Clocks that differ by more make ages and leases look wrong.
const CLOCKS_DIFFER_SECONDS: i64 = 5;
/// A token that stops sooner is worth a warning.
const SOON_DAYS: i32 = 14;

mod edge_schema {
    refinery::embed_migrations!("../edge/migrations");
}
mod cloud_schema {
    refinery::embed_migrations!("../cloud/migrations");
}
mod producer_schema {
    refinery::embed_migrations!("../scada/migrations/producer");
}
mod historian_schema {
    refinery::embed_migrations!("../scada/migrations/historian");
}
mod schedule_schema {
    refinery::embed_migrations!("../schedule/migrations");
}

/// What is expected of a database.
pub(super) struct Schema {
    /// What its checks are called.
    name: &'static str,
    /// Where applied migrations are recorded.
    history: &'static str,
    wanted: fn() -> refinery::Runner,
    /// What makes a token, where there is an API.
    token: Option<&'static str>,
}

pub(super) const EDGE: Schema = Schema {
    name: "database",
    history: "edge_migrations",
    wanted: edge_schema::migrations::runner,
    token: Some("holdfast token create NAME --edge --role operator --all-tenants"),
};
pub(super) const CLOUD: Schema = Schema {
    name: "database",
    history: "cloud_migrations",
    wanted: cloud_schema::migrations::runner,
    token: Some("holdfast token create SITE --role edge --tenant TENANT"),
};
pub(super) const PRODUCER: Schema = Schema {
    name: "node database",
    history: "scada_producer_migrations",
    wanted: producer_schema::migrations::runner,
    token: None,
};
pub(super) const HISTORIAN: Schema = Schema {
    name: "historian database",
    history: "scada_historian_migrations",
    wanted: historian_schema::migrations::runner,
    token: Some("holdfast token create NAME --historian --role viewer --all-tenants"),
};
pub(super) const SCHEDULE: Schema = Schema {
    name: "database",
    history: "schedule_migrations",
    wanted: schedule_schema::migrations::runner,
    token: Some("holdfast token create NAME --schedule --role operator --all-tenants"),
};

/// Examines it. Changes nothing.
pub(super) async fn examine(
    role: &'static str,
    options: pg::Options,
    schema: &'static Schema,
) -> Vec<Check> {
    let name = schema.name;
    let client = match pg::connect(&options).await {
        Ok(client) => client,
        Err(error) => {
            let advice = match error.about() {
                pg::About::Destination => "see whether Postgres runs and its address is right",
                _ => {
                    "mend database.url: the user, its password, the database's name, or the CA file"
                }
            };
            return vec![Check::fail(role, name, error.to_string(), advice)];
        }
    };
    let mut checks = Vec::new();
    let parts = [
        version(&client, role, name).await,
        tables(&client, role, schema).await,
        clocks(&client, role, name).await,
    ];
    for part in parts {
        checks.push(part.unwrap_or_else(|error| {
            Check::fail(role, name, pg::Error::from(error).to_string(), "see Postgres' own log")
        }));
    }
    if let Some(command) = schema.token {
        // Without tables there is no token either, and that has been said.
        checks.extend(tokens(&client, role, name, command).await.ok());
    }
    checks
}

async fn version(
    client: &Client,
    role: &'static str,
    name: &str,
) -> Result<Check, tokio_postgres::Error> {
    let query = "SELECT current_setting('server_version_num')::int4 / 10000, current_setting('server_version')";
    let row = client.query_one(query, &[]).await?;
    let (major, version): (i32, String) = (row.get(0), row.get(1));
    let found = format!("Postgres {version}");
    Ok(match major >= KNOWN_VERSION {
        true => Check::ok(role, name, found),
        false => Check::warn(
            role,
            name,
            found,
            format!("it is older than what is tested: go to {KNOWN_VERSION} or newer"),
        ),
    })
}

async fn tables(
    client: &Client,
    role: &'static str,
    schema: &Schema,
) -> Result<Check, tokio_postgres::Error> {
    let name = format!("{} tables", schema.name);
    let start = "they are made when the role starts; its user must be allowed to";
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&schema.history]).await?;
    if !there.get::<_, bool>(0) {
        return Ok(Check::warn(role, name, "there are none yet", start));
    }
    // The name of the table is a constant of ours.
    let query = format!("SELECT version::int8 FROM {}", schema.history);
    let rows = client.query(&query, &[]).await?;
    let applied: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
    let runner = (schema.wanted)();
    let wanted: BTreeSet<i64> =
        runner.get_migrations().iter().map(|one| i64::from(one.version())).collect();
    let (missing, foreign) =
        (wanted.difference(&applied).count(), applied.difference(&wanted).count());
    Ok(match (missing, foreign) {
        (_, 1..) => Check::fail(
            role,
            name,
            format!("{foreign} migrations are there that this program does not know"),
            "a newer program has been here: use that one, or a backup from before",
        ),
        (0, _) => Check::ok(role, name, format!("{} migrations, all there", wanted.len())),
        (missing, _) => Check::warn(role, name, format!("{missing} migrations are to come"), start),
    })
}

async fn clocks(
    client: &Client,
    role: &'static str,
    name: &str,
) -> Result<Check, tokio_postgres::Error> {
    let row = client.query_one("SELECT clock_timestamp()", &[]).await?;
    let theirs: Timestamp = row.get(0);
    let differ = Timestamp::now().duration_since(theirs).as_secs().abs();
    let name = format!("{name} clock");
    Ok(match differ <= CLOCKS_DIFFER_SECONDS {
        true => Check::ok(role, name, "near ours"),
        false => Check::warn(
            role,
            name,
            format!("differs from ours by {}", crate::table::span(differ)),
            "synchronise both machines (chrony or systemd-timesyncd)",
        ),
    })
}

async fn tokens(
    client: &Client,
    role: &'static str,
    name: &str,
    command: &str,
) -> Result<Check, tokio_postgres::Error> {
    let query =
        "SELECT count(*), count(*) FILTER (WHERE expires_at < now() + make_interval(days => $1))
        FROM api_tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())";
    let row = client.query_one(query, &[&SOON_DAYS]).await?;
    let (good, soon): (i64, i64) = (row.get(0), row.get(1));
    let name = format!("{name} tokens");
    Ok(match (good, soon) {
        (0, _) => Check::warn(
            role,
            name,
            "nobody may use the API",
            format!("make one if somebody should: {command}"),
        ),
        (_, 0) => Check::ok(role, name, format!("{good} that work")),
        (_, soon) => Check::warn(
            role,
            name,
            format!("{soon} of {good} stop within {SOON_DAYS} days"),
            format!("make new ones in time: {command}"),
        ),
    })
}
