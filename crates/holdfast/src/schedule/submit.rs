//! `holdfast schedule submit`: a capture by hand, the way the intake's API takes one in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::schedule::Config;
use ::schedule::intake::{self, Intake, Kind, NewImage, Session};
use anyhow::{Context, bail, ensure};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::ConfigArg;
use crate::output::say;

/// How often a session is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose schedule it is.
    #[arg(long, allow_negative_numbers = true)]
    user: i64,
    /// Images in order (.jpg, .png), or an observation (.json).
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The same key opens one session, however often it is submitted.
    #[arg(long)]
    key: Option<String>,
    /// Wait until a worker has processed it.
    #[arg(long)]
    wait: bool,
    /// How long to wait.
    #[arg(long, default_value = "5m", value_parser = settings::parse_duration)]
    within: Duration,
    /// JSON instead of words.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

/// Intake without HTTP.
pub(crate) fn intake(config: &Config) -> anyhow::Result<Intake> {
    let store = config.store.as_ref().context(
        "there is no object store for captures: set schedule.store.s3_endpoint and its keys",
    )?;
    let pool = pg::Pool::new(&config.database)?;
    Ok(Intake::new(pool, &store.inside, &store.public, config.limits)?)
}

/// Sends a capture: a session, each image to its place, and its completion.
pub(crate) async fn send(
    intake: &Intake,
    http: &reqwest::Client,
    user: i64,
    key: Option<&str>,
    images: Vec<(Kind, Vec<u8>)>,
) -> anyhow::Result<Uuid> {
    let session = intake.open(user, key).await?.session;
    for (sequence, (kind, bytes)) in (1..).zip(images) {
        let sha256 = Some(Sha256::digest(&bytes).into());
        let image = NewImage { sequence, kind, size_bytes: bytes.len() as u64, sha256 };
        let place = intake.place(session, &image).await?;
        let mut request = http.put(&place.url);
        for (name, value) in &place.headers {
            request = request.header(*name, value);
        }
        // The address holds a signature, so it is in no error.
        let sent = request.body(bytes).send().await.map_err(reqwest::Error::without_url)?;
        let status = sent.status();
        // 412: it is there already, from a try before this one. Completion looks at it.
        ensure!(
            status.is_success() || status.as_u16() == 412,
            "the object store answers {status} to image {sequence}"
        );
        intake.complete(session, sequence, None).await?;
    }
    Ok(session)
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let config = args.config.load()?;
    ::schedule::migration::migrate(&config.database).await?;
    let mut images = Vec::with_capacity(args.files.len());
    for file in &args.files {
        images.push((kind(file)?, read(file, config.limits.max_image_bytes)?));
    }
    let intake = intake(&config)?;
    let http = reqwest::Client::new();
    let session = send(&intake, &http, args.user, args.key.as_deref(), images).await?;
    let client = pg::connect(&config.database).await?;
    let look =
        async || intake::show(&client, session).await?.context("the session is not there any more");
    let mut shown = look().await?;
    if args.wait {
        let ended = tokio::time::timeout(args.within, async {
            while shown.state != "done" && shown.state != "failed" {
                tokio::time::sleep(LOOK_EVERY).await;
                shown = look().await?;
            }
            anyhow::Ok(())
        });
        match ended.await {
            Ok(ended) => ended?,
            Err(_) => bail!(
                "session {session} is {} after {:?}: see whether `holdfast schedule run` runs",
                shown.phase,
                args.within
            ),
        }
    }
    if args.json {
        say(&format!("{}\n", serde_json::to_string_pretty(&shown)?))?;
    } else {
        say(&words(&shown))?;
    }
    if let Some(error) = shown.error {
        bail!("the capture could not be read: {error}");
    }
    Ok(())
}

fn words(session: &Session) -> String {
    let (id, images) = (session.session_id, session.images.len());
    let outcome = match (&session.result, session.phase.as_str()) {
        (Some(made), _) => format!("{} has version {}", made.schedule_date, made.version),
        (None, "done") => "the day was known so, or a later capture had been seen".to_owned(),
        (None, "failed") => "it could not be read".to_owned(),
        (None, phase) => format!("it is {phase}"),
    };
    format!("session {id} of user {} with {images} images: {outcome}\n", session.user_id)
}

fn kind(file: &Path) -> anyhow::Result<Kind> {
    let ext = file.extension().and_then(|ext| ext.to_str()).unwrap_or_default();
    let ends = Kind::ALL.map(Kind::ext).join(", .");
    Kind::of_ext(ext).with_context(|| format!("{} is none of .{ends}", file.display()))
}

fn read(file: &Path, limit: u64) -> anyhow::Result<Vec<u8>> {
    let unread = || format!("cannot read {}", file.display());
    let size = std::fs::metadata(file).with_context(unread)?.len();
    ensure!(
        (1..=limit).contains(&size),
        "{} has {size} bytes: schedule.intake.max_image_size allows 1 to {limit}",
        file.display()
    );
    std::fs::read(file).with_context(unread)
}
