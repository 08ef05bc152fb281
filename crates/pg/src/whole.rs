//! A database as a whole: what is in it, and making, emptying and dropping one. For backups and drills.
//!
//! Names of tables come from the server's catalogue and are quoted by the server.

use std::collections::BTreeMap;

use tokio_postgres::config::Host;
use tokio_postgres::{Client, Transaction};

use crate::{Error, Options};

/// How old and how large a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The server's version, as it says it.
    pub server_version: String,
    /// Its number, such as 150004.
    pub server_version_number: i32,
    /// The database's name.
    pub name: String,
    /// Its size on disk.
    pub bytes: i64,
}

/// Asks the server about the database.
pub async fn about(client: &Client) -> Result<About, Error> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::int,
                 current_database()::text, pg_database_size(current_database())",
            &[],
        )
        .await?;
    Ok(About {
        server_version: row.try_get(0)?,
        server_version_number: row.try_get(1)?,
        name: row.try_get(2)?,
        bytes: row.try_get(3)?,
    })
}

/// Makes the transaction's snapshot one that others can take: the name is good while the transaction lasts.
pub async fn export_snapshot(transaction: &Transaction<'_>) -> Result<String, Error> {
    Ok(transaction.query_one("SELECT pg_export_snapshot()", &[]).await?.try_get(0)?)
}

const COUNTS: &str =
    "SELECT c.relname::text, format('SELECT count(*) FROM %I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1";

/// How many rows each table has; a partitioned one is one table.
pub async fn table_rows(transaction: &Transaction<'_>) -> Result<BTreeMap<String, i64>, Error> {
    let mut counts = BTreeMap::new();
    for row in transaction.query(COUNTS, &[]).await? {
        let (name, count): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        counts.insert(name, transaction.query_one(&count, &[]).await?.try_get(0)?);
    }
    Ok(counts)
}

/// Whether the database holds no table.
pub async fn is_empty(client: &Client) -> Result<bool, Error> {
    let tables = "SELECT NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%'
            AND c.relkind IN ('r', 'p', 'v', 'm', 'S'))";
    Ok(client.query_one(tables, &[]).await?.try_get(0)?)
}

/// Whether Postgres' own `pg_restore` is at work in this database, be it that of a command that was killed.
pub async fn is_being_restored(client: &Client) -> Result<bool, Error> {
    let sql = "SELECT EXISTS (SELECT FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'pg_restore')";
    Ok(client.query_one(sql, &[]).await?.try_get(0)?)
}

/// Removes everything that the schema `public` holds.
pub async fn clear(client: &Client) -> Result<(), Error> {
    Ok(client.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await?)
}

/// Makes an empty database. The name is quoted by the server.
pub async fn create_database(client: &Client, name: &str) -> Result<(), Error> {
    let statement = quoted(client, "CREATE DATABASE %I TEMPLATE template0", name).await?;
    Ok(client.batch_execute(&statement).await?)
}

/// Drops a database, with whoever is connected to it, if it is there.
pub async fn drop_database(client: &Client, name: &str) -> Result<(), Error> {
    let statement = quoted(client, "DROP DATABASE IF EXISTS %I WITH (FORCE)", name).await?;
    Ok(client.batch_execute(&statement).await?)
}

/// Drops the databases whose names begin with `prefix` and sort before `before`, and to which nobody is connected; returns their
/// names.
pub async fn drop_unused(
    client: &Client,
    prefix: &str,
    before: &str,
) -> Result<Vec<String>, Error> {
    let unused = r#"SELECT datname::text FROM pg_database d
        WHERE starts_with(datname::text, $1) AND datname::text COLLATE "C" < $2
            AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datid = d.oid) ORDER BY 1"#;
    let mut dropped = Vec::new();
    for row in client.query(unused, &[&prefix, &before]).await? {
        let name: String = row.try_get(0)?;
        // Not by force: whoever has connected meanwhile keeps it.
        let statement = quoted(client, "DROP DATABASE IF EXISTS %I", &name).await?;
        if client.batch_execute(&statement).await.is_ok() {
            dropped.push(name);
        }
    }
    Ok(dropped)
}

async fn quoted(client: &Client, form: &str, name: &str) -> Result<String, Error> {
    let row = client.query_one("SELECT format($1::text, $2::text)", &[&form, &name]).await?;
    Ok(row.try_get(0)?)
}

impl Options {
    /// The variables by which Postgres' own programs find the same database. The password is among them, and so on no
    /// command line.
    pub fn environment(&self) -> Result<Vec<(&'static str, String)>, Error> {
        let config: tokio_postgres::Config = self.url.parse().map_err(Error::Address)?;
        let mut variables = Vec::new();
        if let Some(host) = config.get_hosts().first() {
            let host = match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(folder) => folder.display().to_string(),
            };
            variables.push(("PGHOST", host));
        }
        variables.extend(config.get_ports().first().map(|port| ("PGPORT", port.to_string())));
        variables.extend(config.get_user().map(|user| ("PGUSER", user.to_owned())));
        variables.extend(config.get_dbname().map(|name| ("PGDATABASE", name.to_owned())));
        let password = config.get_password().map(|word| String::from_utf8_lossy(word).into_owned());
        variables.extend(password.map(|password| ("PGPASSWORD", password)));
        if let Some(file) = &self.ca_file {
            variables.push(("PGSSLMODE", "verify-full".to_owned()));
            variables.push(("PGSSLROOTCERT", file.display().to_string()));
        }
        Ok(variables)
    }

    /// The same server, another database.
    pub fn on_database(&self, name: &str) -> Result<Options, Error> {
        let config: tokio_postgres::Config = self.url.parse().map_err(Error::Address)?;
        let quote = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
        let mut url = format!("dbname={}", quote(name));
        for (key, value) in self.environment()? {
            let key = match key {
                "PGHOST" => "host",
                "PGPORT" => "port",
                "PGUSER" => "user",
                "PGPASSWORD" => "password",
                _ => continue,
            };
            url.push_str(&format!(" {key}={}", quote(&value)));
        }
        if config.get_ssl_mode() == tokio_postgres::config::SslMode::Disable {
            url.push_str(" sslmode=disable");
        }
        Ok(Options { url, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_the_same_database_and_no_password_in_words() {
        let options = Options::new("postgres://anna:pa%27ss@db.example:5433/site");
        let variables = options.environment().unwrap();
        for pair in [
            ("PGHOST", "db.example"),
            ("PGPORT", "5433"),
            ("PGUSER", "anna"),
            ("PGDATABASE", "site"),
            ("PGPASSWORD", "pa'ss"),
        ] {
            assert!(variables.contains(&(pair.0, pair.1.to_owned())), "{pair:?}");
        }
        let other = options.on_database("dr'ill").unwrap().environment().unwrap();
        assert!(other.contains(&("PGDATABASE", "dr'ill".to_owned())));
        assert!(other.contains(&("PGPASSWORD", "pa'ss".to_owned())));
        let socket = Options::new("postgres:///site?host=/run/pg&user=postgres");
        let variables = socket.on_database("x").unwrap().environment().unwrap();
        assert!(variables.contains(&("PGHOST", "/run/pg".to_owned())));
    }
}
