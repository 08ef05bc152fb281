//! Schedules in `up`: intake, a worker that delivers, a few simulated people whose weeks change, and a webhook here that hears what they are told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::schedule::extract::ocr::{Ocr, OcrSettings};
use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use jiff::Zoned;
use objects::Bucket;
use rig::Postgres;
use serde::{Deserialize, Serialize};
use settings::Secret;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::children::Role;
use super::site::{Site, write_private};
use crate::schedule::submit::intake;
use crate::sim::people::{PEOPLE, People};

const DATABASE: &str = "schedule";
/// Time from one change of somebody's week to the next.
const A_CHANGE_EVERY: Duration = Duration::from_secs(6);
/// The largest message that is heard.
const MAX_MESSAGE_BYTES: usize = 256 << 10;
/// How much of a message the summary shows.
const SHOWN_CHARS: usize = 72;

/// What is chosen once for the schedules of a data folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Minted {
    intake_port: u16,
    webhook_port: u16,
    webhook_secret: String,
}

/// What people were told, as far as it is shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Option<String>>>);

impl Heard {
    /// The last message.
    pub(super) fn last(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Schedules while they run.
pub(super) struct Schedules {
    pub(super) heard: Heard,
    people: JoinHandle<()>,
    webhook: JoinHandle<()>,
}

impl Schedules {
    /// Nobody's week changes any more. The webhook still hears what is on its way.
    pub(super) fn rest(&self) {
        self.people.abort();
    }

    pub(super) fn stop(self) {
        self.people.abort();
        self.webhook.abort();
    }
}

impl Site {
    /// Makes the database with its tables, and the configuration for this run. The object store is prepared before.
    pub(super) async fn prepare_schedule(
        &self,
        postgres: &Postgres,
    ) -> anyhow::Result<::schedule::Config> {
        self.make_database(postgres, DATABASE).await?;
        let minted = match self.minted_schedule()? {
            Some(minted) => minted,
            None => {
                let minted = Minted {
                    intake_port: rig::free_port()?,
                    webhook_port: rig::free_port()?,
                    webhook_secret: uuid::Uuid::new_v4().simple().to_string(),
                };
                self.remember_schedule(&minted)?;
                minted
            }
        };
        let objects = self.minted_objects()?.context("the object store is prepared before")?;
        // Photographs can be sent to it where Tesseract is there; the people of the simulation send none.
        let sees = Ocr::new(&OcrSettings::default()).await.is_ok();
        let method = if sees { "ocr" } else { "none" };
        let text = format!(
            "[schedule]\nextract.method = {method:?}\ndatabase.url = {:?}\nworker.poll_seconds = 1\nworker.idle_timeout = \"1s\"\n\
             extract.noise_seed = 7\nhttp.listen = \"127.0.0.1:{}\"\n\
             deliver.to = \"webhook\"\ndeliver.webhook_url = \"http://127.0.0.1:{}/messages\"\n\
             deliver.webhook_secret = {:?}\n{}",
            postgres.url(DATABASE),
            minted.intake_port,
            minted.webhook_port,
            minted.webhook_secret,
            objects.schedule_keys(),
        );
        let file = self.schedule_config();
        write_private(&file, &text)?;
        let config = ::schedule::Config::load(Some(&file), |_| None)
            .with_context(|| format!("{} cannot be used", file.display()))?;
        ::schedule::migration::migrate(&config.database).await?;
        Ok(config)
    }

    pub(super) fn schedule_config(&self) -> std::path::PathBuf {
        self.folder().join("schedule/schedule.toml")
    }

    /// Intake and the worker.
    pub(super) fn schedule_roles(&self) -> anyhow::Result<Vec<Role>> {
        let role = |word: &str| {
            let config = self.schedule_config();
            anyhow::Ok(Role {
                name: format!("schedule {word}"),
                program: std::env::current_exe()?,
                arguments: vec![
                    "schedule".into(),
                    word.into(),
                    "--config".into(),
                    config.clone().into(),
                ],
                log: self.folder().join(format!("schedule/{word}.log")),
                pid_file: self.folder().join(format!("schedule/{word}.pid")),
                mark: config,
            })
        };
        Ok(vec![role("serve")?, role("run")?])
    }

    /// Starts the webhook and the people. The object store runs.
    pub(super) async fn start_people(
        &self,
        config: &::schedule::Config,
    ) -> anyhow::Result<Schedules> {
        let minted = self.minted_schedule()?.context("schedules are not prepared")?;
        let store = config.store.as_ref().context("schedules have no object store")?;
        Bucket::new(&store.inside)?.ensure().await.context("the bucket cannot be made")?;
        let heard = Heard::default();
        let listener = TcpListener::bind(("127.0.0.1", minted.webhook_port)).await?;
        let hears = Hears { heard: heard.clone(), secret: Secret::new(minted.webhook_secret) };
        let router = Router::new()
            .route("/messages", post(hear))
            .layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES))
            .with_state(hears);
        let webhook = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the webhook ended");
            }
        });
        let today = Zoned::now().date();
        let since_monday = i64::from(today.weekday().to_monday_zero_offset());
        let people = People {
            intake: intake(config)?,
            database: config.database.clone(),
            every: A_CHANGE_EVERY,
            monday: today.checked_sub(jiff::Span::new().days(since_monday))?,
        };
        Ok(Schedules { heard, people: tokio::spawn(people.run()), webhook })
    }
}

#[derive(Clone)]
struct Hears {
    heard: Heard,
    secret: Secret,
}

#[derive(Deserialize)]
struct Told {
    user_id: i64,
    message: String,
}

/// Hears a message that is signed as ours are.
async fn hear(State(hears): State<Hears>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let signature =
        headers.get("holdfast-signature").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let seconds = signature.strip_prefix("t=").and_then(|rest| rest.split(',').next());
    let Some(seconds) = seconds.and_then(|text| text.parse().ok()) else {
        return StatusCode::UNAUTHORIZED;
    };
    if ::schedule::deliver::sign(&hears.secret, seconds, &body) != signature {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(told) = serde_json::from_slice::<Told>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    let name = PEOPLE.iter().find(|(user, _)| *user == told.user_id).map_or("?", |(_, name)| name);
    // One line, and nothing that a terminal would take for a command.
    let words: String =
        told.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut text = format!("{name}: {words}");
    if let Some((cut, _)) = text.char_indices().nth(SHOWN_CHARS) {
        text.truncate(cut);
        text.push('…');
    }
    *hears.heard.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    StatusCode::NO_CONTENT
}

/// How schedules stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) days: i64,
    pub(super) versions: i64,
    pub(super) events: i64,
    pub(super) sent: i64,
    pub(super) waiting: i64,
}

/// What the database has.
pub(super) async fn standing(client: &Client) -> Result<Standing, tokio_postgres::Error> {
    let query = "SELECT (SELECT count(*) FROM schedule_ingest.day_schedule),
        (SELECT count(*) FROM schedule_ingest.schedule_version),
        (SELECT count(*) FROM schedule_ingest.schedule_event),
        count(*) FILTER (WHERE status = 'sent'), count(*) FILTER (WHERE status = 'pending')
        FROM schedule_ingest.schedule_notification";
    let row = client.query_one(query, &[]).await?;
    Ok(Standing {
        days: row.get(0),
        versions: row.get(1),
        events: row.get(2),
        sent: row.get(3),
        waiting: row.get(4),
    })
}
