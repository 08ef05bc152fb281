//! Asking the cloud which of the site's images it has copied, and keeping what it says.
//!
//! Promises: an image is `copied` here only after the cloud has said so of one with the same size and, where the site knows it, the same SHA-256. What
//! is not an answer changes nothing. It asks only while the link is up, and never takes it down. docs/spec/media.md has the states.
//!
//! It must not know why somebody waits for a copy: retention reads the columns.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::line::Line;
use crate::signal::Signal;

/// Images in one request; the cloud takes twice as many.
const IMAGES: i64 = 500;
/// The longest time between two questions about one image.
const LONGEST_SECONDS: f64 = 3_600.0;
const VERSION: u64 = 1;

const DUE: &str = "SELECT id, tenant_id, size_bytes, encode(sha256, 'hex') FROM media_objects
WHERE status = 'stored' AND cloud_copied_at IS NULL AND cloud_ask_at <= now()
ORDER BY cloud_ask_at LIMIT $1";

const COPYING: &str = "INSERT INTO cloud_copying (copies, said_at) VALUES ($1, now())
ON CONFLICT (id) DO UPDATE SET copies = excluded.copies, said_at = excluded.said_at";

// In the order of ids, so that replicas wait for each other and do not deadlock.
const HEARD: &str = "UPDATE media_objects m SET cloud_copy = n.copy, cloud_asked_at = now(),
    cloud_copied_at = n.copied_at,
    cloud_ask_at = now() + least($5 * interval '1 s', greatest($4 * interval '1 s',
        (now() - coalesce(m.stored_at, m.created_at)) / 4))
FROM unnest($1::uuid[], $2::text[], $3::timestamptz[]) AS n (id, copy, copied_at)
WHERE m.id = n.id AND m.cloud_copied_at IS NULL
    AND m.id IN (SELECT id FROM media_objects WHERE id = ANY($1) ORDER BY id FOR UPDATE)";

/// What the cloud answers.
#[derive(Debug, Deserialize)]
struct Answer {
    v: u64,
    copies: bool,
    media: Vec<Copy>,
}

#[derive(Debug, Deserialize)]
struct Copy {
    tenant_id: Uuid,
    media_id: Uuid,
    copy_status: String,
    size_bytes: i64,
    copied_at: Option<Timestamp>,
    sha256: Option<String>,
}

/// An image of the site that the cloud is not known to have.
#[derive(Debug)]
struct Image {
    id: Uuid,
    tenant: Uuid,
    size: i64,
    sha256: Option<String>,
}

impl Image {
    /// The word for what the cloud said, and when it made its copy.
    fn judge(&self, said: Option<&Copy>) -> (&'static str, Option<Timestamp>) {
        let Some(said) = said else { return ("unknown", None) };
        match said.copy_status.as_str() {
            "copied" => {
                let same = said.size_bytes == self.size
                    && (self.sha256.is_none() || self.sha256 == said.sha256);
                match said.copied_at.filter(|_| same) {
                    Some(at) => ("copied", Some(at)),
                    None => ("differs", None),
                }
            }
            "failed" => ("failed", None),
            _ => ("pending", None),
        }
    }
}

/// Runs until told to stop.
pub(super) async fn run(line: Arc<Line>, every: Duration, mut stop: Signal) {
    let mut wait = Duration::ZERO;
    loop {
        tokio::select! {
            () = stop.heard() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = every;
        if line.up_since().is_none() {
            continue;
        }
        tokio::select! {
            () = stop.heard() => return,
            asked = ask(&line, every) => match asked {
                Ok(full) if full => wait = Duration::ZERO,
                Ok(_) => {}
                Err(why) => tracing::debug!(why, "the cloud did not say which images it has"),
            },
        }
    }
}

/// Asks about some images; true when there may be more.
async fn ask(line: &Line, every: Duration) -> Result<bool, String> {
    let database = |error: pg::Error| error.to_string();
    let due = due(&line.store.pool).await.map_err(database)?;
    if due.is_empty() {
        return Ok(false);
    }
    let images = due.iter().map(|one| json!({"tenant_id": one.tenant, "media_id": one.id}));
    let body = json!({"v": VERSION, "media": images.collect::<Vec<_>>()});
    let (status, bytes) = line.cloud.post_json("media", &body).await?;
    if status != StatusCode::OK {
        return Err(format!("the cloud answers {}", status.as_u16()));
    }
    let unreadable = || "the cloud's answer cannot be read".to_owned();
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
    if answer.v != VERSION {
        return Err(unreadable());
    }
    keep(&line.store.pool, &due, &answer, every).await.map_err(database)?;
    Ok(i64::try_from(due.len()).is_ok_and(|count| count == IMAGES))
}

async fn due(pool: &pg::Pool) -> Result<Vec<Image>, pg::Error> {
    let client = pool.get().await?;
    let statement = client.prepare_cached(DUE).await?;
    let rows = client.query(&statement, &[&IMAGES]).await?;
    let each = rows.iter().map(|row| {
        Ok(Image {
            id: row.try_get(0)?,
            tenant: row.try_get(1)?,
            size: row.try_get(2)?,
            sha256: row.try_get(3)?,
        })
    });
    each.collect()
}

async fn keep(
    pool: &pg::Pool,
    due: &[Image],
    answer: &Answer,
    every: Duration,
) -> Result<(), pg::Error> {
    let each = answer.media.iter().map(|one| ((one.tenant_id, one.media_id), one));
    let said: HashMap<(Uuid, Uuid), &Copy> = each.collect();
    let ids: Vec<Uuid> = due.iter().map(|one| one.id).collect();
    let judged = due.iter().map(|one| one.judge(said.get(&(one.tenant, one.id)).copied()));
    let (words, times): (Vec<&str>, Vec<Option<Timestamp>>) = judged.unzip();
    let differing = words.iter().filter(|word| **word == "differs").count();
    if differing > 0 {
        tracing::error!(differing, "the cloud's copies of some images are not what is here");
    }
    // One without a copy to wait for is only asked about because the cloud may begin to make them.
    let least = if answer.copies { every.as_secs_f64() } else { LONGEST_SECONDS };
    let mut client = pool.get().await?;
    let transaction = client.transaction().await?;
    transaction.execute(COPYING, &[&answer.copies]).await?;
    transaction.execute(HEARD, &[&ids, &words, &times, &least, &LONGEST_SECONDS]).await?;
    transaction.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(status: &str, size: i64, sha256: &str) -> Copy {
        let copied_at = (status == "copied").then_some(Timestamp::UNIX_EPOCH);
        Copy {
            tenant_id: Uuid::nil(),
            media_id: Uuid::nil(),
            copy_status: status.to_owned(),
            size_bytes: size,
            copied_at,
            sha256: Some(sha256.to_owned()),
        }
    }

    #[test]
    fn only_the_same_image_counts_as_copied() {
        let image = |sha256: Option<&str>| Image {
            id: Uuid::nil(),
            tenant: Uuid::nil(),
            size: 7,
            sha256: sha256.map(str::to_owned),
        };
        let word = |image: &Image, said: Option<&Copy>| image.judge(said).0;
        let (hashed, plain) = (image(Some("ab")), image(None));
        assert_eq!(word(&hashed, Some(&copy("copied", 7, "ab"))), "copied");
        assert_eq!(word(&plain, Some(&copy("copied", 7, "cd"))), "copied", "no hash to compare");
        assert_eq!(word(&hashed, Some(&copy("copied", 7, "cd"))), "differs");
        assert_eq!(word(&plain, Some(&copy("copied", 8, "ab"))), "differs");
        assert_eq!(word(&hashed, Some(&copy("copying", 7, "ab"))), "pending");
        assert_eq!(word(&hashed, Some(&copy("failed", 7, "ab"))), "failed");
        assert_eq!(word(&hashed, None), "unknown");
    }
}
