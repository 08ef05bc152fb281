//! The images of a site in its backup: a list of them, and with `--objects copy` their bytes.
//!
//! `objects.jsonl` has a line for each image that is `stored` in the dump's snapshot. Copies are at `objects/KEY`, in the
//! folder or the bucket of the backup; their hashes stand in the lines, so the manifest stays small. Nothing that is in a site's
//! store is ever overwritten.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use objects::Bucket;
use serde::{Deserialize, Serialize};
use tokio_postgres::Transaction;

use super::disk;
use super::manifest::{Objects, hash, hex, walk};
use super::place::Fetched;
use super::progress::Progress;
use super::remote::Remote;

/// The list's name.
pub(super) const LIST: &str = "objects.jsonl";
/// The folder of copies.
pub(super) const COPIES: &str = "objects";
/// Problems that are named.
const NAMED: usize = 20;

/// What a backup has of the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Nothing.
    None,
    /// Which objects there are, with size and hash as the database knows them.
    List,
    /// The same, and the objects themselves.
    Copy,
}

impl Mode {
    fn as_str(self) -> &'static str {
        match self {
            Mode::None => "none",
            Mode::List => "list",
            Mode::Copy => "copy",
        }
    }
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) key: String,
    pub(super) bytes: u64,
    pub(super) etag: Option<String>,
    pub(super) mime_type: String,
    pub(super) sha256: Option<String>,
    pub(super) state: State,
}

/// What became of its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// None was made.
    Listed,
    /// It is in the backup, with the size and hash of the line.
    Copied,
    /// The object was not there.
    Missing,
    /// The object is not the one that the database knows.
    Differs,
}

/// Where copies are.
#[derive(Clone, Copy)]
pub(super) enum Copies<'a> {
    Folder(&'a Path),
    Bucket { remote: &'a Remote, id: &'a str, scratch: &'a Path },
}

/// Lists the images of a snapshot.
pub(super) async fn list(
    transaction: &Transaction<'_>,
    bucket: &Bucket,
    folder: &Path,
) -> anyhow::Result<Objects> {
    let mut file = BufWriter::new(File::create(folder.join(LIST))?);
    let (mode, name) = (Mode::List.as_str().to_owned(), bucket.name().to_owned());
    let mut sum = Objects { mode, bucket: name, ..Objects::default() };
    let mut after = String::new();
    loop {
        let page = edge::media::stored(transaction, bucket.name(), &after).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.key);
        for one in page {
            objects::key::check(&one.key).context("media_objects has a key that is not sound")?;
            let line = Line {
                bytes: one.size_bytes.unsigned_abs(),
                sha256: one.sha256.as_deref().map(hex),
                state: State::Listed,
                key: one.key,
                etag: one.etag,
                mime_type: one.mime_type,
            };
            sum.count += 1;
            sum.bytes += line.bytes;
            write(&mut file, &line)?;
        }
    }
    file.flush()?;
    Ok(sum)
}

fn write(file: &mut impl std::io::Write, line: &Line) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *file, line)?;
    Ok(file.write_all(b"\n")?)
}

/// The lines of a backup's list, one at a time; none where there is no list.
pub(super) fn lines(
    folder: &Path,
) -> anyhow::Result<Box<dyn Iterator<Item = anyhow::Result<Line>>>> {
    let file = match File::open(folder.join(LIST)) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Box::new(std::iter::empty()));
        }
        Err(error) => return Err(error).with_context(|| format!("read {LIST}")),
    };
    let each = BufReader::new(file).lines().map(|line| {
        let line: Line = serde_json::from_str(&line?).with_context(|| format!("read {LIST}"))?;
        // A list from elsewhere must not lead out of the folder.
        objects::key::check(&line.key).with_context(|| format!("{LIST} has an unsound key"))?;
        Ok(line)
    });
    Ok(Box::new(each))
}

/// Copies every listed image, and writes down what became of each.
pub(super) async fn copy(
    bucket: &Bucket,
    folder: &Path,
    into: Copies<'_>,
    sum: &mut Objects,
) -> anyhow::Result<()> {
    sum.mode = Mode::Copy.as_str().to_owned();
    let progress = Progress::bytes("copying objects", sum.bytes);
    let new = folder.join("objects.jsonl.new");
    let mut file = BufWriter::new(File::create(&new)?);
    for line in lines(folder)? {
        let line = one_copy(bucket, line?, into).await?;
        match line.state {
            State::Copied => sum.copied += 1,
            State::Missing => sum.missing += 1,
            State::Listed | State::Differs => sum.differing += 1,
        }
        progress.add(line.bytes);
        write(&mut file, &line)?;
    }
    file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    disk::rename(&new, &folder.join(LIST))?;
    if let Copies::Folder(folder) = into {
        sync_folders(&folder.join(COPIES))?;
    }
    progress.done();
    Ok(())
}

async fn one_copy(bucket: &Bucket, line: Line, into: Copies<'_>) -> anyhow::Result<Line> {
    let local = match into {
        Copies::Folder(folder) => folder.join(COPIES).join(&line.key),
        Copies::Bucket { scratch, .. } => scratch.join("object"),
    };
    if let Some(parent) = local.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let (bytes, sha256) = match bucket.get_to_file(&line.key, &local, line.bytes).await {
        Ok((bytes, sha256)) => (bytes, hex(&sha256)),
        Err(objects::Error::NotFound) => return Ok(Line { state: State::Missing, ..line }),
        Err(objects::Error::TooLarge { .. }) => {
            return Ok(Line { state: State::Differs, ..line });
        }
        Err(error) => return Err(error).context("copy an object"),
    };
    let known = line.sha256.as_ref().is_none_or(|known| *known == sha256);
    if bytes != line.bytes || !known {
        std::fs::remove_file(&local)?;
        return Ok(Line { state: State::Differs, ..line });
    }
    if let Copies::Bucket { remote, id, .. } = into {
        let sent = remote.put(id, &format!("{COPIES}/{}", line.key), &local).await?;
        std::fs::remove_file(&local)?;
        anyhow::ensure!(sent == (bytes, sha256.clone()), "a copy changed while it was uploaded");
    }
    Ok(Line { state: State::Copied, sha256: Some(sha256), ..line })
}

fn sync_folders(top: &Path) -> anyhow::Result<()> {
    let mut folders = vec![top.to_owned()];
    while let Some(one) = folders.pop() {
        if !one.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&one)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
        File::open(&one)?.sync_all()?;
    }
    Ok(())
}

/// What is wrong with the copies: missing, changed, or not in the list.
pub(super) async fn check(backup: &Fetched) -> anyhow::Result<Vec<String>> {
    let copies = backup.copies();
    let mut problems = Vec::new();
    let mut listed = BTreeSet::new();
    let mut lines_found = 0;
    let progress = Progress::bytes("checking objects", backup.manifest.objects.bytes);
    for line in lines(&backup.folder)? {
        let line = line?;
        lines_found += 1;
        if line.state != State::Copied {
            continue;
        }
        match held(copies, &line).await? {
            Some(found) if Some(&found.1) == line.sha256.as_ref() && found.0 == line.bytes => {}
            Some(_) => problems.push(format!("the copy of {} was changed", line.key)),
            None => problems.push(format!("the copy of {} is missing", line.key)),
        }
        progress.add(line.bytes);
        listed.insert(line.key);
    }
    progress.done();
    if lines_found != backup.manifest.objects.count {
        let expected = backup.manifest.objects.count;
        problems.push(format!("{LIST} has {lines_found} lines: expected {expected}"));
    }
    if let Copies::Folder(folder) = copies
        && folder.join(COPIES).is_dir()
    {
        for path in walk(&folder.join(COPIES))? {
            let key = super::manifest::relative(&folder.join(COPIES), &path)?;
            if !listed.contains(&key) {
                problems.push(format!("the copy of {key} is not in {LIST}"));
            }
        }
    }
    let more = problems.len().saturating_sub(NAMED);
    problems.truncate(NAMED);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    Ok(problems)
}

/// The size and hash of a copy, if it is there.
async fn held(copies: Copies<'_>, line: &Line) -> anyhow::Result<Option<(u64, String)>> {
    match copies {
        Copies::Folder(folder) => {
            let path = folder.join(COPIES).join(&line.key);
            let hashed = tokio::task::spawn_blocking(move || hash(&path, None)).await?;
            match hashed {
                Ok(found) => Ok(Some(found)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).context("read a copy"),
            }
        }
        Copies::Bucket { remote, id, .. } => {
            let key = remote.key(id, &format!("{COPIES}/{}", line.key));
            match remote.bucket.hash(&key, line.bytes).await {
                Ok((bytes, sha256)) => Ok(Some((bytes, hex(&sha256)))),
                Err(objects::Error::NotFound) => Ok(None),
                Err(objects::Error::TooLarge { limit }) => Ok(Some((limit + 1, String::new()))),
                Err(error) => Err(error).context("read a copy"),
            }
        }
    }
}

/// What was put back into a site's store.
#[derive(Debug, Default, Serialize)]
pub(super) struct PutBack {
    pub(super) put: u64,
    pub(super) there: u64,
    /// Keys under which the store has another object, which is left alone.
    pub(super) others: Vec<String>,
}

/// Puts the copies into a site's store, where nothing is.
pub(super) async fn put_back(backup: &Fetched, bucket: &Bucket) -> anyhow::Result<PutBack> {
    let mut done = PutBack::default();
    let progress = Progress::bytes("restoring objects", backup.manifest.objects.bytes);
    for line in lines(&backup.folder)? {
        let line = line?;
        if line.state != State::Copied {
            continue;
        }
        progress.add(line.bytes);
        match bucket.head(&line.key).await {
            Ok(head) if head.size == line.bytes && is_same(&head, &line) => {
                done.there += 1;
                continue;
            }
            Ok(_) => {
                done.others.push(line.key);
                continue;
            }
            Err(objects::Error::NotFound) => {}
            Err(error) => return Err(error).context("look at the site's object store"),
        }
        let (path, temporary) = taken(backup.copies(), &line).await?;
        let sent = bucket.put_file(&line.key, &line.mime_type, &path).await;
        if temporary {
            std::fs::remove_file(&path)?;
        }
        match sent {
            Ok((_, sha256)) if Some(hex(&sha256)) == line.sha256 => done.put += 1,
            Ok(_) => {
                bucket.delete(&line.key).await?;
                anyhow::bail!("the copy of {} was changed: it is not put back", line.key);
            }
            // Whoever came first has it; the sweep compares it with its row.
            Err(objects::Error::AlreadyThere) => done.there += 1,
            Err(error) => return Err(error).context("write to the site's object store"),
        }
    }
    progress.done();
    Ok(done)
}

/// Whether an object may be the copied one, as far as the store tells hashes.
fn is_same(head: &objects::Head, line: &Line) -> bool {
    head.sha256.is_none_or(|hash| Some(hex(&hash)) == line.sha256)
}

/// A copy as a file, and whether that is to be removed.
async fn taken(copies: Copies<'_>, line: &Line) -> anyhow::Result<(PathBuf, bool)> {
    match copies {
        Copies::Folder(folder) => Ok((folder.join(COPIES).join(&line.key), false)),
        Copies::Bucket { remote, id, scratch } => {
            let path = scratch.join("object");
            let key = remote.key(id, &format!("{COPIES}/{}", line.key));
            let got = remote.bucket.get_to_file(&key, &path, line.bytes).await;
            got.with_context(|| format!("download the copy of {}", line.key))?;
            Ok((path, true))
        }
    }
}
