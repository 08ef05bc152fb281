//! A database with the schema, and what a backend does in it.

use tokio_postgres::Client;
use uuid::Uuid;

pub(crate) const USER: i64 = 4_711;

/// A migrated database of one test.
pub(crate) struct Site {
    pub(crate) address: pg::Options,
    pub(crate) client: Client,
    // Dropped last: it takes the database along.
    database: testkit::Database,
}

impl Site {
    pub(crate) async fn new(name: &str) -> Site {
        let database = testkit::database(name, "schedule", async |url| {
            schedule::migration::migrate(&pg::Options::new(url)).await
        })
        .await
        .unwrap();
        let address = pg::Options::new(database.url());
        let client = database.connect().await.unwrap();
        Site { address, client, database }
    }

    /// Opens a session as a backend does, with the documented columns alone.
    pub(crate) async fn session(&self, user: i64) -> Uuid {
        let id = Uuid::now_v7();
        let insert = "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
            VALUES ($1, $2, 'pending', clock_timestamp())";
        self.client.execute(insert, &[&id, &user]).await.unwrap();
        id
    }

    pub(crate) async fn image(&self, session: Uuid, sequence: i32) -> Result<(), String> {
        let key = format!("captures/{session}/{sequence}.jpg");
        let insert = "INSERT INTO schedule_ingest.capture_image (id, session_id, sequence, r2_key, created_at)
            VALUES ($1, $2, $3, $4, now())";
        let sent = self.client.execute(insert, &[&Uuid::now_v7(), &session, &sequence, &key]).await;
        sent.map(|_| ()).map_err(|error| code(&error))
    }

    /// One more connection.
    pub(crate) async fn another(&self) -> Client {
        self.database.connect().await.unwrap()
    }

    /// State and error.
    pub(crate) async fn state(&self, session: Uuid) -> (String, Option<String>) {
        let select = "SELECT state::text, error FROM schedule_ingest.capture_session WHERE id = $1";
        let row = self.client.query_one(select, &[&session]).await.unwrap();
        (row.get(0), row.get(1))
    }

    /// One number.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Runs a statement whose `$1` is a session, and says how many rows it changed or with which SQLSTATE it was refused.
    pub(crate) async fn on(&self, session: Uuid, statement: &str) -> Result<u64, String> {
        self.client.execute(statement, &[&session]).await.map_err(|error| code(&error))
    }

    /// The same for a statement without parameters.
    pub(crate) async fn run(&self, statement: &str) -> Result<(), String> {
        self.client.batch_execute(statement).await.map_err(|error| code(&error))
    }
}

fn code(error: &tokio_postgres::Error) -> String {
    error.code().map_or_else(|| error.to_string(), |state| state.code().to_owned())
}
