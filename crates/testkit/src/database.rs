//! A database per test, copied from a template that is migrated once.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Context, Result, anyhow};
use pg::Options;
use uuid::Uuid;

use crate::{postgres, run};

/// A database of one test on the shared server. It is dropped, with whoever is still connected,
/// when this is.
#[derive(Debug)]
pub struct Database {
    url: String,
    name: String,
    maintenance: String,
}

impl Database {
    /// An empty database. `name` makes it recognisable.
    pub async fn empty(name: &str) -> Result<Database> {
        create(name, "template0").await
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name on the server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection of its own to it.
    pub async fn connect(&self) -> Result<tokio_postgres::Client> {
        Ok(pg::connect(&Options::new(&self.url)).await?)
    }
}

/// A database with the schema that `migrate` makes, given the address of an empty one.
///
/// `name` makes it recognisable. The first caller with a `template` key runs `migrate`; all others
/// of the same test executable, in this process or another, get a copy of the result, which takes
/// some milliseconds. A newly built executable starts afresh, so that a changed migration is seen.
pub async fn database<M, F, E>(name: &str, template: &str, migrate: M) -> Result<Database>
where
    M: FnOnce(String) -> F,
    F: Future<Output = std::result::Result<(), E>>,
    E: Display,
{
    let template = ensure_template(template, migrate).await?;
    create(name, &template).await
}

async fn create(name: &str, template: &str) -> Result<Database> {
    let server = postgres().await?;
    let maintenance = server.maintenance_url();
    let name = format!("{}_{}", identifier(name), Uuid::now_v7().simple());
    let client = pg::connect(&Options::new(&maintenance)).await?;
    client
        .batch_execute(&format!("CREATE DATABASE {name} TEMPLATE {template}"))
        .await
        .map_err(pg::Error::from)
        .with_context(|| format!("make a database from {template}"))?;
    Ok(Database { url: server.url(&name), name, maintenance })
}

async fn ensure_template<M, F, E>(key: &str, migrate: M) -> Result<String>
where
    M: FnOnce(String) -> F,
    F: Future<Output = std::result::Result<(), E>>,
    E: Display,
{
    let mut hasher = DefaultHasher::new();
    (key, run::executable_stamp()?).hash(&mut hasher);
    let stamp = hasher.finish();
    let template = format!("template_{}_{stamp:016x}", identifier(key));
    let unfinished = format!("{template}_new");

    let server = postgres().await?;
    let client = pg::connect(&Options::new(server.maintenance_url())).await?;
    // The lock belongs to this connection: whoever is killed in the middle lets the next one try.
    client.execute("SELECT pg_advisory_lock($1)", &[&stamp.cast_signed()]).await?;
    let found =
        client.query_opt("SELECT FROM pg_database WHERE datname = $1::text", &[&template]).await?;
    if found.is_some() {
        return Ok(template);
    }
    client.batch_execute(&format!("DROP DATABASE IF EXISTS {unfinished} WITH (FORCE)")).await?;
    client.batch_execute(&format!("CREATE DATABASE {unfinished} TEMPLATE template0")).await?;
    migrate(server.url(&unfinished))
        .await
        .map_err(|error| anyhow!("migrate the template {key}: {error}"))?;
    // A database with sessions can be neither renamed nor copied, and a pool takes its time to go.
    client.batch_execute(&format!("ALTER DATABASE {unfinished} ALLOW_CONNECTIONS false")).await?;
    client
        .execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1::text",
            &[&unfinished],
        )
        .await?;
    client.batch_execute(&format!("ALTER DATABASE {unfinished} RENAME TO {template}")).await?;
    Ok(template)
}

/// A short part of a database name, whatever the test calls itself.
fn identifier(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    plain.take(20).collect::<String>().to_ascii_lowercase()
}

impl Drop for Database {
    fn drop(&mut self) {
        let maintenance = std::mem::take(&mut self.maintenance);
        let statement = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // A thread, because the test's own runtime may be ending. Nobody waits for it: what it does
        // not reach goes with the server.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async {
                    if let Ok(client) = pg::connect(&Options::new(maintenance)).await {
                        let _ = client.batch_execute(&statement).await;
                    }
                });
            }
        });
    }
}
