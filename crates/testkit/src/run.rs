//! Where the test executable is, and the folder that the processes of a test run share.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Names the folder of a run; set by `./dev test`, so that two runs do not share servers.
const RUN_VARIABLE: &str = "HOLDFAST_TEST_RUN";

/// The folder that every process of this run uses: the one named in the environment, else one under
/// the target folder.
pub(crate) fn folder() -> Result<PathBuf> {
    let folder = match std::env::var_os(RUN_VARIABLE) {
        Some(folder) => PathBuf::from(folder),
        None => profile_folder()?.join("testkit"),
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    folder.canonicalize().with_context(|| format!("find {}", folder.display()))
}

/// The folder of the build profile, `target/debug` for most: where binaries lie, one above the
/// `deps` folder that the test executable is in.
pub(crate) fn profile_folder() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("find the test executable")?;
    executable
        .ancestors()
        .find(|above| above.file_name().is_some_and(|name| name == "deps"))
        .and_then(Path::parent)
        .or_else(|| executable.parent())
        .map(Path::to_owned)
        .context("the test executable is in no folder")
}

/// Names this build of this test executable: another build has another schema, perhaps.
pub(crate) fn executable_stamp() -> Result<String> {
    let executable = std::env::current_exe().context("find the test executable")?;
    let built = executable.metadata().and_then(|metadata| metadata.modified());
    Ok(format!("{} {:?}", executable.display(), built.context("date the test executable")?))
}
