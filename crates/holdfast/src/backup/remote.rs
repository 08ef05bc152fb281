//! Backups in a bucket: the same files as in a folder, under `PREFIX/ID/`, and the manifest last.
//!
//! A bucket has no lock. Keys of an id without a manifest are work under way for a day after the id's time, and a leftover
//! from then on. A backup that is removed loses its manifest first.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use objects::Bucket;

use super::Role;
use super::config::Config;
use super::folder::{Found, Partial, Store, Unfinished, summary};
use super::manifest::{Listed, MANIFEST, Manifest, is_copy, is_plain};
use super::progress::Progress;

/// An upload takes less than this, or has died.
const UNDER_WAY_FOR: Duration = Duration::from_hours(24);
/// The most backups that are looked at.
const MAX_BACKUPS: usize = 10_000;
/// The largest manifest.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;
/// Keys on a page when a backup is removed.
const PAGE: usize = 1_000;
const MIME_TYPE: &str = "application/octet-stream";

/// A bucket with backups, and the folder where they are made and unpacked.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    pub(super) bucket: Bucket,
    prefix: String,
    pub(super) scratch: Store,
}

impl Remote {
    /// Opens the scratch folder and removes what crashes left in it. The bucket is not asked yet.
    pub(super) fn new(config: &Config) -> anyhow::Result<Remote> {
        let scratch = Store::open(&config.scratch)
            .context("the scratch folder of backups in S3: set backup.scratch to another one")?;
        scratch.clean()?;
        Ok(Remote { bucket: config.bucket.clone(), prefix: config.prefix.clone(), scratch })
    }

    /// The key of a backup's file.
    pub(super) fn key(&self, id: &str, path: &str) -> String {
        format!("{}/{id}/{path}", self.prefix)
    }

    /// Where it is, for people.
    pub(super) fn name(&self) -> String {
        format!("{}/{} in S3", self.bucket.name(), self.prefix)
    }

    /// The ids that have keys, by one small request each.
    async fn ids(&self) -> anyhow::Result<Vec<String>> {
        let prefix = format!("{}/", self.prefix);
        let mut ids = Vec::new();
        let mut after: Option<String> = None;
        for _ in 0..MAX_BACKUPS {
            let page = self.bucket.list(&prefix, after.as_deref(), 1).await;
            let page = page.with_context(|| format!("list {}", self.name()))?;
            let Some(first) = page.objects.first() else { return Ok(ids) };
            let inside = first.key.strip_prefix(&prefix).unwrap_or_default();
            let id = inside.split('/').next().unwrap_or_default();
            if made_at(id).is_some() {
                ids.push(id.to_owned());
            }
            // The sign after the slash: beyond every key of this id.
            after = Some(format!("{prefix}{id}0"));
        }
        anyhow::bail!("{} holds more than {MAX_BACKUPS} folders", self.name())
    }

    async fn manifest(&self, id: &str) -> anyhow::Result<Option<Manifest>> {
        let key = self.key(id, MANIFEST);
        let text = match self.bucket.get(&key, MAX_MANIFEST_BYTES).await {
            Ok(text) => text,
            Err(objects::Error::NotFound) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read the manifest of {id}")),
        };
        let manifest = Manifest::parse(&text, &key)?;
        anyhow::ensure!(manifest.id == id, "the manifest of {id} is that of {}", manifest.id);
        Ok(Some(manifest))
    }

    /// Everything there.
    pub(super) async fn list(&self) -> anyhow::Result<Found> {
        let mut found = Found::default();
        for id in self.ids().await? {
            match self.manifest(&id).await {
                Ok(Some(manifest)) => found.backups.push(summary(&manifest)),
                Ok(None) => {
                    let under_way = is_under_way(&id);
                    found.unfinished.push(Unfinished { name: id, under_way });
                }
                // A store that is away says nothing of a backup.
                Err(error) if error.is::<objects::Error>() => return Err(error),
                Err(error) => found.damaged.push(format!("{error:#}")),
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes leftovers that are old enough; returns their ids.
    pub(super) async fn clean(&self) -> anyhow::Result<Vec<String>> {
        let mut removed = Vec::new();
        for one in self.list().await?.unfinished {
            if !one.under_way {
                self.remove(&one.name).await?;
                removed.push(one.name);
            }
        }
        Ok(removed)
    }

    /// Writes the files of a backup, and then its manifest.
    pub(super) async fn upload(&self, folder: &Path, manifest: &Manifest) -> anyhow::Result<()> {
        let progress = Progress::bytes("uploading", manifest.bytes());
        for file in &manifest.files {
            let sent = self.put(&manifest.id, &file.path, &folder.join(&file.path)).await?;
            anyhow::ensure!(
                sent == (file.bytes, file.sha256.clone()),
                "{} changed while it was uploaded",
                file.path
            );
            progress.add(file.bytes);
        }
        progress.done();
        self.check_uploaded(manifest).await?;
        let text = serde_json::to_vec_pretty(manifest)?;
        let key = self.key(&manifest.id, MANIFEST);
        match self.bucket.put(&key, "application/json", text.clone().into()).await {
            Err(objects::Error::AlreadyThere) => {
                let there = self.bucket.get(&key, MAX_MANIFEST_BYTES).await?;
                anyhow::ensure!(there == text, "another manifest is there");
                Ok(())
            }
            written => written.context("write the manifest"),
        }
    }

    /// Everything is still there: an upload that took longer than work may be under way may have been removed as a leftover.
    async fn check_uploaded(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let prefix = self.key(&manifest.id, "");
        let mut files: BTreeMap<&str, u64> =
            manifest.files.iter().map(|file| (file.path.as_str(), file.bytes)).collect();
        let (mut copies, mut after) = (0, None);
        loop {
            let page = self.bucket.list(&prefix, after.as_deref(), PAGE).await?;
            for object in &page.objects {
                let path = object.key.strip_prefix(&prefix).unwrap_or_default();
                match files.get(path) {
                    Some(bytes) if *bytes == object.size => drop(files.remove(path)),
                    Some(_) => {}
                    None => copies += u64::from(is_copy(path)),
                }
            }
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        anyhow::ensure!(
            files.is_empty() && copies == manifest.objects.copied,
            "what was uploaded is no longer there whole: it took so long that another create may have removed it \
             as a leftover; make the backup again"
        );
        Ok(())
    }

    /// Writes one file of a backup; returns its size and hash.
    pub(super) async fn put(
        &self,
        id: &str,
        path: &str,
        file: &Path,
    ) -> anyhow::Result<(u64, String)> {
        let key = self.key(id, path);
        let sent = match self.bucket.put_file(&key, MIME_TYPE, file).await {
            // Nobody else writes under this id: an answer was lost, and the second attempt met the first.
            Err(objects::Error::AlreadyThere) => {
                self.bucket.hash(&key, file.metadata()?.len()).await
            }
            sent => sent,
        };
        let (bytes, sha256) = sent.with_context(|| format!("upload {path}"))?;
        Ok((bytes, super::manifest::hex(&sha256)))
    }

    /// Removes whole backups of a role that are older, and never the newest.
    pub(super) async fn prune(
        &self,
        role: Role,
        older_than: Timestamp,
    ) -> anyhow::Result<Vec<String>> {
        let expired = self.list().await?.expired(role, older_than);
        for id in &expired {
            self.remove(id).await?;
        }
        Ok(expired)
    }

    /// It stops being a backup before the first file goes.
    async fn remove(&self, id: &str) -> anyhow::Result<()> {
        let gone = async {
            self.bucket.delete(&self.key(id, MANIFEST)).await?;
            loop {
                let page = self.bucket.list(&self.key(id, ""), None, PAGE).await?;
                for object in &page.objects {
                    self.bucket.delete(&object.key).await?;
                }
                if page.next.is_none() {
                    return Ok::<(), objects::Error>(());
                }
            }
        };
        gone.await.with_context(|| format!("remove {id} from {}", self.name()))
    }

    /// Brings a backup's files, but not its copied objects, into the scratch folder.
    pub(super) async fn fetch(&self, id: &str) -> anyhow::Result<(Manifest, Partial)> {
        let manifest = self.manifest(id).await?;
        let manifest = manifest.with_context(|| format!("{id} has lost its manifest"))?;
        let partial = self.scratch.begin(&format!("{id}-{:08x}", rand::random::<u32>()))?;
        let progress = Progress::bytes("downloading", manifest.bytes());
        for file in &manifest.files {
            // A manifest from elsewhere must not lead out of the folder.
            anyhow::ensure!(is_plain(&file.path), "{:?} is no path inside a backup", file.path);
            let path = partial.path.join(&file.path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            self.bring(id, file, &path).await?;
            progress.add(file.bytes);
        }
        progress.done();
        manifest.write(&partial.path)?;
        Ok((manifest, partial))
    }

    /// A file that is gone or too large is left out: the check names it.
    async fn bring(&self, id: &str, file: &Listed, path: &Path) -> anyhow::Result<()> {
        match self.bucket.get_to_file(&self.key(id, &file.path), path, file.bytes).await {
            Ok(_) | Err(objects::Error::NotFound | objects::Error::TooLarge { .. }) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("download {}", file.path)),
        }
    }
}

fn is_under_way(id: &str) -> bool {
    let age = made_at(id).map(|at| Timestamp::now().duration_since(at));
    age.is_some_and(|age| age < SignedDuration::try_from(UNDER_WAY_FOR).unwrap_or_default())
}

/// When a backup of this id was begun; `None` if it is no id of a backup.
fn made_at(id: &str) -> Option<Timestamp> {
    let (role, rest) = id.split_once('-')?;
    let (stamp, random) = rest.split_once('-')?;
    let known = [Role::Edge, Role::Cloud].iter().any(|one| one.as_str() == role);
    let hex = random.len() == 4 && random.bytes().all(|b| b.is_ascii_hexdigit());
    if !known || !hex {
        return None;
    }
    let at = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp).ok()?;
    Some(at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_when_it_was_begun_and_nothing_else_is_one() {
        let at = made_at("edge-20260201T100000Z-1f3a").unwrap();
        assert_eq!(at.to_string(), "2026-02-01T10:00:00Z");
        for other in
            ["reports", "edge-x-1f3a", "node-20260201T100000Z-1f3a", "edge-20260201T100000Z-"]
        {
            assert_eq!(made_at(other), None, "{other}");
        }
        let now = Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        assert!(is_under_way(&format!("edge-{now}-0000")));
        assert!(!is_under_way("edge-20260201T100000Z-1f3a"));
    }
}
