//! What operators did with dead letters, in the `operator_audit` of whose letters they are.

use ::scada::historian::audit as plant;
use anyhow::Context as _;
use cloud::dead_letters::audit::{self, Actor, Deed, Outcome};
use cloud::dead_letters::broker;
use pg::Turn;
use serde_json::{Value, json};
use tokio_postgres::Client;

/// The database in which deeds are recorded.
pub(super) struct Records {
    whose: Whose,
    client: Client,
    database: pg::Options,
}

#[derive(Clone, Copy)]
enum Whose {
    Cloud,
    Historian,
}

impl Records {
    pub(super) async fn cloud(database: &pg::Options) -> Result<Records, pg::Error> {
        Records::of(Whose::Cloud, database).await
    }

    pub(super) async fn historian(database: &pg::Options) -> Result<Records, pg::Error> {
        Records::of(Whose::Historian, database).await
    }

    async fn of(whose: Whose, database: &pg::Options) -> Result<Records, pg::Error> {
        let client = pg::connect(database).await?;
        Ok(Records { whose, client, database: database.clone() })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The turn of whoever replays by itself: one at a time, over all that share the database.
    pub(super) async fn turn(&self) -> anyhow::Result<Turn> {
        let kind = match self.whose {
            Whose::Cloud => broker::REPLAYS,
            Whose::Historian => ::scada::historian::dead_letters::REPLAYS,
        };
        Turn::take(&self.database, kind).await?.context(
            "dead letters are being replayed already, one replay at a time: run this again when it has ended",
        )
    }

    /// Before the deed: without its record it is not done.
    pub(super) async fn begin(
        &self,
        action: &str,
        parameters: Value,
        dry_run: bool,
    ) -> anyhow::Result<i64> {
        let user = crate::user::this_user();
        let begun = match self.whose {
            Whose::Cloud => {
                let actor = Actor::User(user);
                audit::begin(&self.client, &Deed { actor: &actor, action, parameters, dry_run })
                    .await
            }
            Whose::Historian => {
                let mut parameters = parameters;
                parameters["dry_run"] = json!(dry_run);
                plant::begin(&self.client, &plant::Actor::User(user), action, parameters).await
            }
        };
        begun.with_context(|| format!("record {action}"))
    }

    /// After it.
    pub(super) async fn finish(&self, id: i64, outcome: &Outcome) -> anyhow::Result<()> {
        let finished = match self.whose {
            Whose::Cloud => audit::finish(&self.client, id, outcome).await,
            Whose::Historian => {
                let (changed, more) = match outcome {
                    Outcome::Done { matched, changed } => {
                        (*changed, json!({"outcome": "done", "matched": matched}))
                    }
                    Outcome::Failed { changed, error } => {
                        (*changed, json!({"outcome": "failed", "error": error}))
                    }
                };
                plant::finish(&self.client, id, changed, more).await
            }
        };
        finished.context("record the outcome")
    }
}
