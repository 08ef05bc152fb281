//! Files that are followed: what is in use, and what takes its place.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::material::Material;
use crate::{Error, Files};

/// Whoever names the same files follows them together: one look serves all, and a bad file is said once. There are as many as the settings of the
/// process name. It lasts as long as the process, so that a client that is made anew for each connection has what the last one had.
static FOLLOWED: LazyLock<Mutex<HashMap<Files, Arc<Live>>>> = LazyLock::new(Mutex::default);

/// Files, and what they came to when they last could be used.
#[derive(Debug)]
pub struct Live {
    files: Files,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_use: Option<InUse>,
    /// It did not work, and that has been said.
    refused: Option<[u8; 32]>,
}

#[derive(Debug)]
struct InUse {
    material: Material,
    digest: [u8; 32],
}

impl Files {
    /// Follows them. Nothing is read yet.
    pub fn follow(&self) -> Arc<Live> {
        let mut followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
        let live = followed
            .entry(self.clone())
            .or_insert_with(|| Arc::new(Live { files: self.clone(), state: Mutex::default() }));
        Arc::clone(live)
    }
}

impl Live {
    /// What the files come to now, or did when they last could be used. Reads small files. Fails only while they never could be used.
    pub fn current(&self) -> Result<Material, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { in_use, refused } = &mut *state;
        let look = self.files.look();
        let digest = look.digest;
        let Some(held) = in_use else {
            let material = self.files.judge(look)?;
            *in_use = Some(InUse { material: material.clone(), digest });
            return Ok(material);
        };
        if digest == held.digest {
            *refused = None;
        } else if *refused != Some(digest) {
            match self.files.judge(look) {
                Ok(material) => {
                    tracing::info!(files = %self.files, "new certificates are in use");
                    *held = InUse { material, digest };
                    *refused = None;
                }
                Err(error) => {
                    tracing::warn!(%error, "new certificates cannot be used; the old ones stay");
                    *refused = Some(digest);
                }
            }
        }
        Ok(held.material.clone())
    }
}

impl std::fmt::Display for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (cert, key) = self.client.as_ref().map(|(cert, key)| (cert, key)).unzip();
        let named = [self.ca_file.as_ref(), cert, key].into_iter().flatten();
        let named: Vec<_> = named.map(|file| file.display().to_string()).collect();
        f.write_str(&named.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig::certificates::Authority;
    use std::io::Read as _;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    #[test]
    fn what_is_new_is_taken_and_what_is_bad_changes_nothing_and_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let until = SystemTime::now() + Duration::from_secs(3600);
        let authority = Authority::make(folder.path(), "ca").unwrap();
        let [old, new] = ["old", "new"].map(|name| authority.issue(name, &[], until).unwrap());
        let [ca, cert, key] = ["a", "b", "c"].map(|name| folder.path().join(name));
        let put = |from: &Path, to| std::fs::copy(from, to).map(drop).unwrap();
        put(&authority.certificate(), &ca);
        let client = Some((cert.clone(), key.clone()));
        let files = Files { ca_file: Some(ca.clone()), system: false, client };
        let live = files.follow();
        let shown = || live.current().map(|material| material.shown.unwrap().cert.clone());
        assert_eq!(shown().unwrap_err().key, "client_cert");
        put(&old.certificate, &cert);
        put(&new.key, &key);
        assert_eq!(shown().unwrap_err().key, "client_key");
        put(&old.key, &key);
        let first = shown().unwrap();
        assert!(Arc::ptr_eq(&live, &files.follow()), "the same files are followed twice");

        let mut log = tempfile::tempfile().unwrap();
        let said = tracing_subscriber::fmt().with_writer(Mutex::new(log.try_clone().unwrap()));
        tracing::subscriber::with_default(said.finish(), || {
            put(&new.certificate, &cert);
            assert_eq!(shown().unwrap(), first, "half of a change");
            std::fs::write(&cert, "nonsense").unwrap();
            assert_eq!(shown().unwrap(), first, "no certificate");
            assert_eq!(shown().unwrap(), first, "no certificate, still");
            std::fs::remove_file(&ca).unwrap();
            assert_eq!(shown().unwrap(), first, "no authority");
            put(&new.certificate, &cert);
            put(&new.key, &key);
            put(&authority.certificate(), &ca);
            assert_ne!(shown().unwrap(), first);
        });
        let mut text = String::new();
        std::io::Seek::rewind(&mut log).unwrap();
        log.read_to_string(&mut text).unwrap();
        let warnings: Vec<&str> = text.lines().filter(|line| line.contains("WARN")).collect();
        assert_eq!(warnings.len(), 3, "{text}");
        for ((file, fault), line) in
            [(&key, "is not the key"), (&cert, "no certificate"), (&ca, "No such file")]
                .iter()
                .zip(warnings)
        {
            assert!(line.contains(file.to_str().unwrap()) && line.contains(fault), "{line}");
        }
        assert_eq!(text.matches("new certificates are in use").count(), 1, "{text}");
    }
}
