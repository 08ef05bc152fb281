//! The workspace's own binaries, as built from the sources that are there now.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::run;

/// The packages whose name is not that of their binary.
const PACKAGES: [(&str, &str); 1] = [("holdfast-node", "node")];
/// Set to 1 by a script that has built every binary just now.
const BUILT_VARIABLE: &str = "HOLDFAST_BINS_BUILT";

/// The path of a binary of this workspace, for example `holdfast-node`, in the profile of the
/// calling test.
///
/// Cargo builds the binaries of the package under test only, so one of another package may be
/// missing or old. The first call in a process has cargo build it, which takes a moment when nothing
/// changed; `HOLDFAST_BINS_BUILT=1` spares that.
pub fn bin(name: &str) -> Result<PathBuf> {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    // Held while cargo runs: other tests of this process wait for it instead of starting their own.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let built = built.get_or_insert_default();
    if let Some(path) = built.get(name) {
        return Ok(path.clone());
    }
    let profile = run::profile_folder()?;
    if !std::env::var(BUILT_VARIABLE).is_ok_and(|value| value == "1") {
        build(name, &profile)?;
    }
    let path = profile.join(name);
    if !path.is_file() {
        bail!("there is no {}; is {BUILT_VARIABLE} set without building it?", path.display());
    }
    built.insert(name.to_owned(), path.clone());
    Ok(path)
}

fn build(name: &str, profile: &std::path::Path) -> Result<()> {
    let package = PACKAGES.iter().find(|(binary, _)| *binary == name).map_or(name, |(_, p)| p);
    let folder = profile.file_name().and_then(|name| name.to_str()).context("a profile's name")?;
    let target = profile.parent().context("a target folder")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["build", "--quiet", "--package", package, "--bin", name])
        .args(["--profile", if folder == "debug" { "dev" } else { folder }])
        .arg("--target-dir")
        .arg(target)
        .output()
        .context("run cargo")?;
    if !output.status.success() {
        bail!("cargo could not build {name}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
