//! A list of objects, in the order of their keys, read from the folders it needs only.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::record::{self, Metadata};

/// What is asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    /// Keys that go on after a slash behind the prefix are told as one.
    pub(super) folded: bool,
    pub(super) limit: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) objects: Vec<(u64, Metadata)>,
    pub(super) folded: Vec<String>,
    /// The last key or folded prefix, when there is more.
    pub(super) next: Option<String>,
}

impl Found {
    fn count(&self) -> usize {
        self.objects.len() + self.folded.len()
    }
}

/// Walks the objects of a bucket.
pub(super) fn walk(root: &Path, asked: &Asked) -> io::Result<Found> {
    let mut found = Found::default();
    let mut last = String::new();
    let whole = visit(root, "", asked, &mut found, &mut last)?;
    found.next = (!whole).then_some(last);
    Ok(found)
}

/// Returns false when the limit was met with something left.
fn visit(
    folder: &Path,
    begins: &str,
    asked: &Asked,
    found: &mut Found,
    last: &mut String,
) -> io::Result<bool> {
    for (name, path) in entries(folder)? {
        let key = format!("{begins}{name}");
        let is_folder = key.ends_with('/');
        let wanted =
            key.starts_with(&asked.prefix) || (is_folder && asked.prefix.starts_with(key.as_str()));
        let passed = asked.after.as_deref().is_some_and(|after| {
            after >= key.as_str() && !(is_folder && !asked.folded && after.starts_with(&key))
        });
        let folds = asked.folded && is_folder && key.len() > asked.prefix.len();
        // A folder above the prefix is entered even when the list goes on after its own name.
        let above = is_folder && !folds && asked.prefix.starts_with(key.as_str());
        if !wanted || (passed && !above) {
            continue;
        }
        if is_folder && !folds {
            if !visit(&path, &key, asked, found, last)? {
                return Ok(false);
            }
            continue;
        }
        if found.count() >= asked.limit {
            return Ok(false);
        }
        if folds {
            found.folded.push(key.clone());
        } else {
            match File::open(&path).and_then(|mut file| record::read(&mut file)) {
                Ok(object) => found.objects.push(object),
                // Removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            }
        }
        *last = key;
    }
    Ok(true)
}

/// The names in a folder in the order of keys: a folder's with a slash, as it stands in a key.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read?,
    };
    let mut names = Vec::new();
    for entry in read {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let name = match (name.strip_suffix(".d"), name.strip_suffix(".o")) {
            (Some(part), _) => format!("{part}/"),
            (None, Some(part)) => part.to_owned(),
            (None, None) => continue,
        };
        names.push((name, entry.path()));
    }
    names.sort();
    Ok(names)
}
