//! Schedules: sessions a second of one worker, two and four on one database, each worker with one slot, from claim to `done` with version, events, snapshot
//! and message; and canonicalizing plus comparing days beside `serde_json` that parses the same bytes into a plain `Value`.

use std::hint::black_box;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rig::{Postgres, PostgresOptions};
use schedule::canonical::{Day, canonicalize};
use schedule::diff::diff;
use schedule::noise::disturb;
use schedule::observation::{Observation, RawEntry};
use schedule::worker::{Extract, ExtractError, Session, Settings, Worker};
use tokio::runtime::Runtime;

use crate::measure::{interleaved, median, per_second};
use crate::place::Place;
use crate::row::Row;

const ROUNDS: usize = 3;
/// Sessions of one measurement: each of another user, so that workers do not wait for each other's day.
const SESSIONS: i64 = 1_500;
const TOO_LONG: Duration = Duration::from_secs(120);
/// Days of the comparison without a database.
const DAYS: usize = 2_000;
const PURE_ROUNDS: usize = 9;

pub(crate) fn run(place: &Place) -> Result<Vec<Row>> {
    let mut rows = vec![pure()?];
    place.say("schedule", "starting Postgres");
    let runtime = Runtime::new()?;
    // The user that runs Postgres must be able to enter, which the target folder does not promise.
    let folder = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711))?;
    let mut server =
        runtime.block_on(Postgres::start(folder.path(), PostgresOptions::default()))?;
    let measured = runtime.block_on(workers(place, &server));
    runtime.block_on(server.stop())?;
    rows.extend(measured?);
    Ok(rows)
}

/// A day of five shifts, and the same a little later with two of them changed.
fn observations(number: usize) -> (Observation, Observation) {
    let entry = |shift: usize, later: usize| RawEntry {
        start: format!("{}:{:02}", 6 + shift * 3, (number + later) % 60),
        end: format!("{}:30", 8 + shift * 3),
        title: format!("Care {}", (number + shift) % 7),
        location: format!("Ward {}", (number + shift + later) % 9),
        customer: "St. Anna".to_owned(),
        kind: String::new(),
    };
    let day = |changed: usize| Observation {
        schedule_date: "2026-11-16".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        entries: (0..5).map(|shift| entry(shift, usize::from(shift < changed))).collect(),
        confidence: None,
    };
    (disturb(&day(0), number as u64), disturb(&day(2), !(number as u64)))
}

fn pure() -> Result<Row> {
    let pairs: Vec<(Observation, Observation)> = (0..DAYS).map(observations).collect();
    let texts = pairs
        .iter()
        .map(|(old, new)| Ok((serde_json::to_string(old)?, serde_json::to_string(new)?)))
        .collect::<Result<Vec<_>>>()?;
    // From the same bytes: reading them, canonical form, hash, difference.
    let ours = || {
        let start = Instant::now();
        for (old, new) in &texts {
            let old: Day = canonicalize(&Observation::from_json(old)?)?;
            let new: Day = canonicalize(&Observation::from_json(new)?)?;
            let changes = diff(&old.shifts, &new.shifts);
            ensure!(!changes.is_empty(), "a changed day has changes");
            black_box((old.hash(), new.hash(), changes));
        }
        Ok(per_second(DAYS, start))
    };
    let theirs = || {
        let start = Instant::now();
        for (old, new) in &texts {
            black_box(serde_json::from_str::<serde_json::Value>(old)?);
            black_box(serde_json::from_str::<serde_json::Value>(new)?);
        }
        Ok(per_second(DAYS, start))
    };
    let (ours, theirs) = interleaved(PURE_ROUNDS, ours, theirs)?;
    Ok(Row::more("schedule/canonical_diff_beside_json_value", "pairs of days/s", ours, theirs))
}

/// Shows every session the same day.
struct Shown(Observation);

impl Extract for Shown {
    async fn extract(&self, _: &Session) -> Result<Observation, ExtractError> {
        Ok(self.0.clone())
    }
}

async fn workers(place: &Place, server: &Postgres) -> Result<Vec<Row>> {
    let admin = pg::connect(&pg::Options::new(server.url("postgres"))).await?;
    admin.batch_execute("CREATE DATABASE schedule").await?;
    let address = pg::Options::new(server.url("schedule"));
    schedule::migration::migrate(&address).await?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    let mut first_user = 1_i64;
    for round in 0..ROUNDS {
        for (count, rates) in [1, 2, 4].into_iter().zip(&mut rates) {
            place.say("schedule", &format!("round {} with {count} workers", round + 1));
            rates.push(drain(&address, count, first_user).await?);
            first_user += SESSIONS;
        }
    }
    let [one, two, four] = rates.map(median);
    Ok(vec![
        Row::more("schedule/two_workers_beside_one", "sessions/s", two, one),
        Row::more("schedule/four_workers_beside_one", "sessions/s", four, one),
    ])
}

/// Sessions a second of so many workers.
async fn drain(address: &pg::Options, workers: usize, first_user: i64) -> Result<f64> {
    let client = pg::connect(address).await?;
    let fill = "INSERT INTO schedule_ingest.capture_session (id, user_id, state, created_at)
        SELECT gen_random_uuid(), u, 'pending', now() FROM generate_series($1::int8, $2::int8) u";
    client.execute(fill, &[&first_user, &(first_user + SESSIONS - 1)]).await?;
    schedule::worker::finalize(&client, Duration::ZERO).await?;
    client.batch_execute("ANALYZE schedule_ingest.capture_session").await?;
    client.batch_execute("CHECKPOINT").await?;
    let start = Instant::now();
    let mut running = Vec::new();
    for number in 0..workers {
        let settings = Settings {
            slots: 1,
            poll: Duration::from_millis(50),
            ..Settings::new(format!("bench-{number}"))
        };
        running.push(Worker::start(address, &settings, Shown(observations(number).0))?);
    }
    let done = |running: &[Worker]| running.iter().map(|worker| worker.counts().done).sum::<u64>();
    while done(&running) < SESSIONS.unsigned_abs() {
        ensure!(start.elapsed() < TOO_LONG, "{} of {SESSIONS} sessions are done", done(&running));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = per_second(usize::try_from(SESSIONS).context("a count")?, start);
    for worker in running {
        let counts = worker.counts();
        ensure!(counts.fenced == 0 && counts.retried == 0, "not a clean drain: {counts:?}");
        worker.stop().await;
    }
    Ok(rate)
}
