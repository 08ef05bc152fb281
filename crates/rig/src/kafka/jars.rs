//! The programs of a Kafka: Java archives from Maven Central, fetched once.
//!
//! They lie in a folder of their own under the cache: `HOLDFAST_CACHE` when it is set, else `holdfast` in the user's
//! cache folder. It is filled under another name and renamed when complete, so that it is whole or not there.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::{Error, installed};

/// The version of Apache Kafka that is run.
pub const VERSION: &str = "4.1.2";
const POM: &str = include_str!("pom.xml");
const CACHE_VARIABLE: &str = "HOLDFAST_CACHE";
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
/// Some 55 MB over a slow line.
const FETCH_WITHIN: Duration = Duration::from_secs(900);
/// How much of what Maven wrote goes into an error.
const TAIL_CHARS: usize = 2000;

/// The folder with the archives; the first caller fetches them, which needs Maven and a way to Maven Central.
pub async fn jars() -> Result<PathBuf, Error> {
    let cache = cache_folder();
    let folder = cache.join(format!("kafka-{VERSION}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&cache).map_err(Error::file("make", &cache))?;
    let path = cache.join(format!("kafka-{VERSION}.lock"));
    let lock = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(Error::file("open", &path))?;
    let locking = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await;
    let _held = locking
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(Error::file("lock", &path))?;
    if !folder.is_dir() {
        fetch(&cache, &folder).await?;
    }
    Ok(folder)
}

fn cache_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os(CACHE_VARIABLE) {
        return folder.into();
    }
    let user = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    user.or_else(home).unwrap_or_else(std::env::temp_dir).join("holdfast")
}

/// Called with the lock held.
async fn fetch(cache: &Path, folder: &Path) -> Result<(), Error> {
    let maven = installed::program("mvn", "maven")?;
    let part = cache.join(format!("kafka-{VERSION}.part"));
    // What a fetch that was broken off has left.
    let _ = std::fs::remove_dir_all(&part);
    std::fs::create_dir_all(&part).map_err(Error::file("make", &part))?;
    let pom = cache.join(format!("kafka-{VERSION}.pom.xml"));
    std::fs::write(&pom, POM).map_err(Error::file("write", &pom))?;
    tracing::info!(version = VERSION, "fetching Apache Kafka from Maven Central");
    let mut command = tokio::process::Command::new(&maven);
    command.args(["-q", "-B", "-f"]).arg(&pom).arg(COPY).arg("-DincludeScope=runtime");
    command.arg(format!("-DoutputDirectory={}", part.display()));
    command.current_dir(cache).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(FETCH_WITHIN, command.output()).await;
    let output = output
        .map_err(|_| Error::TooLate {
            what: "fetching Apache Kafka from Maven Central".to_owned(),
            within: FETCH_WITHIN,
            detail: "Maven is still at it".to_owned(),
        })?
        .map_err(Error::file("run", &maven))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        let from = said.char_indices().rev().nth(TAIL_CHARS).map_or(0, |(at, _)| at);
        return Err(Error::Failed {
            program: "mvn (Apache Kafka from Maven Central)".to_owned(),
            status: output.status.to_string(),
            output: said[from..].trim().to_owned(),
        });
    }
    complete(&part, folder)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a cache for development: what a power cut damages is deleted and fetched again"
)]
fn complete(part: &Path, folder: &Path) -> Result<(), Error> {
    std::fs::rename(part, folder).map_err(Error::file("rename", part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fetched_is_the_version_that_is_named() {
        let wanted = format!("<version>{VERSION}</version>");
        assert_eq!(POM.matches(&wanted).count(), 2, "the broker and its tools");
    }
}
