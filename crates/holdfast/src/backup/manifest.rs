//! What a backup says of itself: the last file to be written, without which there is no backup.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use event::ledger::LedgerSummary;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Role;
use super::disk;
use super::objects::COPIES;
use super::progress::Progress;

/// The file's name.
pub(super) const MANIFEST: &str = "manifest.json";
/// The format that this reads and writes.
pub(super) const FORMAT: u32 = 1;
/// Bytes hashed at a time.
const CHUNK: usize = 1 << 20;

/// A backup, as docs/spec/backup.md has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    pub(super) id: String,
    pub(super) role: Role,
    pub(super) started_at: Timestamp,
    pub(super) finished_at: Timestamp,
    pub(super) holdfast_version: String,
    pub(super) postgres_version: String,
    pub(super) pg_dump_version: String,
    pub(super) database_bytes: i64,
    pub(super) tables: BTreeMap<String, i64>,
    pub(super) ledger: LedgerSummary,
    pub(super) objects: Objects,
    pub(super) files: Vec<Listed>,
}

/// What is known of the object store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Objects {
    pub(super) mode: String,
    /// The site's bucket.
    #[serde(default)]
    pub(super) bucket: String,
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Copies in the backup.
    #[serde(default)]
    pub(super) copied: u64,
    /// Objects that were to be copied and were not there.
    #[serde(default)]
    pub(super) missing: u64,
    /// Objects that were to be copied and are not those that the database knows.
    #[serde(default)]
    pub(super) differing: u64,
}

/// A file of the backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Manifest {
    /// Reads the manifest of a backup's folder.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Manifest> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Manifest::parse(&text, &path.display().to_string())
    }

    /// Reads a manifest's text.
    pub(super) fn parse(text: &[u8], name: &str) -> anyhow::Result<Manifest> {
        let manifest: Manifest =
            serde_json::from_slice(text).with_context(|| format!("read {name}"))?;
        anyhow::ensure!(
            manifest.format == FORMAT,
            "{name} has format {}: this version of holdfast reads {FORMAT}",
            manifest.format
        );
        Ok(manifest)
    }

    /// Writes it so that it is there whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let (path, temporary) = (folder.join(MANIFEST), folder.join("manifest.json.new"));
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        Ok(disk::rename(&temporary, &path)?)
    }

    /// The bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// What is wrong with the files: missing, changed, or not named.
    pub(super) fn check_files(&self, folder: &Path) -> anyhow::Result<Vec<String>> {
        let mut problems = Vec::new();
        let progress = Progress::bytes("checking", self.bytes());
        let named: BTreeSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        for path in walk(folder)? {
            let relative = relative(folder, &path)?;
            let known = relative == MANIFEST || named.contains(relative.as_str());
            if !known && !is_copy(&relative) {
                problems.push(format!("{relative} is not in the manifest"));
            }
        }
        for file in &self.files {
            // A manifest from elsewhere must not lead out of the folder.
            if !is_plain(&file.path) {
                problems.push(format!("{:?} is no path inside a backup", file.path));
                continue;
            }
            match hash(&folder.join(&file.path), Some(&progress)) {
                Ok((bytes, sha256)) if bytes == file.bytes && sha256 == file.sha256 => {}
                Ok((bytes, _)) if bytes != file.bytes => problems
                    .push(format!("{} has {bytes} bytes: expected {}", file.path, file.bytes)),
                Ok(_) => problems.push(format!("{} was changed: its hash differs", file.path)),
                Err(error) => problems.push(format!("{}: {error}", file.path)),
            }
        }
        progress.done();
        Ok(problems)
    }
}

/// Hashes and syncs every file of a folder, and syncs its folders.
pub(super) fn list_files(folder: &Path) -> anyhow::Result<Vec<Listed>> {
    let mut files = walk(folder)?;
    // Copied objects are synced, and have their hashes in the list of objects.
    files.retain(|path| !path.starts_with(folder.join(COPIES)));
    let total = files.iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum();
    let progress = Progress::bytes("hashing", total);
    let mut listed = Vec::new();
    let mut folders = BTreeSet::from([folder.to_owned()]);
    for path in files {
        let (bytes, sha256) = hash(&path, Some(&progress))?;
        File::open(&path)?.sync_all()?;
        folders.extend(path.parent().map(Path::to_owned));
        listed.push(Listed { path: relative(folder, &path)?, bytes, sha256 });
    }
    for folder in folders {
        File::open(folder)?.sync_all()?;
    }
    progress.done();
    Ok(listed)
}

/// Whether a path of a manifest stays inside its folder.
pub(super) fn is_plain(path: &str) -> bool {
    path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether a path inside a backup is that of a copied object.
pub(super) fn is_copy(relative: &str) -> bool {
    relative.strip_prefix(COPIES).is_some_and(|rest| rest.starts_with('/'))
}

/// The path inside a folder.
pub(super) fn relative(folder: &Path, path: &Path) -> anyhow::Result<String> {
    let inside = path.strip_prefix(folder)?;
    Ok(inside.to_str().context("a file's name is not UTF-8")?.to_owned())
}

/// Every file below a folder but the lock, in order.
pub(super) fn walk(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(one) = folders.pop() {
        for entry in std::fs::read_dir(&one).with_context(|| format!("read {}", one.display()))? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                _ if entry.file_name() == super::folder::LOCK => {}
                _ => found.push(entry.path()),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The size and hash of a file.
pub(super) fn hash(path: &Path, progress: Option<&Progress>) -> std::io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        bytes += read as u64;
        if let Some(progress) = progress {
            progress.add(read as u64);
        }
    }
    Ok((bytes, hex(&hasher.finalize())))
}

/// Bytes as text.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
