//! Where the servers' programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

const POSTGRES_PACKAGES: &str = "/usr/lib/postgresql";

/// The folder with `initdb`, `pg_ctl` and `postgres`: what pg_config names, else the newest version
/// of the packages, else the one on the PATH.
pub(crate) fn postgres_folder() -> Result<PathBuf, Error> {
    // pg_config may belong to the client library alone, so the answer is checked like any other.
    let configured = Command::new("pg_config")
        .arg("--bindir")
        .output()
        .ok()
        .map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    configured
        .into_iter()
        .chain(packaged_versions())
        .chain(path_folders())
        .find(|folder| ["initdb", "pg_ctl", "postgres"].iter().all(|p| folder.join(p).is_file()))
        .ok_or(Error::NotInstalled { program: "initdb", package: "postgresql" })
}

/// One of Postgres' own programs, such as `pg_dump`: beside the server's, or on the PATH.
pub fn postgres_program(name: &'static str) -> Result<PathBuf, Error> {
    let folders = postgres_folder().into_iter().chain(packaged_versions()).chain(path_folders());
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or(Error::NotInstalled { program: name, package: "postgresql-client" })
}

/// A program on the PATH or in a folder for administrators, which is not on everybody's PATH.
pub(crate) fn program(name: &'static str, package: &'static str) -> Result<PathBuf, Error> {
    path_folders()
        .chain(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or(Error::NotInstalled { program: name, package })
}

fn packaged_versions() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(POSTGRES_PACKAGES) else {
        return Vec::new();
    };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, folder)| folder.join("bin")).collect()
}

fn path_folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute() && folder != Path::new("/"))
        .collect::<Vec<_>>()
        .into_iter()
}
