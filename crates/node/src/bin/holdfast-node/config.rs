//! Finding and checking the configuration.

use crate::screen;
use anyhow::Result;
use node::Config;
use settings::Section;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where a configuration is looked for when none is named.
const USUAL_PLACE: &str = "/etc/holdfast/holdfast.toml";

/// The named file, or the usual one if it is there.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    let usual = Path::new(USUAL_PLACE);
    named.map(Path::to_owned).or_else(|| usual.exists().then(|| usual.to_owned()))
}

pub(crate) fn load(named: Option<&Path>) -> Result<(Config, Section)> {
    let env = |name: &str| std::env::var(name).ok();
    Ok(Config::load(file(named).as_deref(), env)?)
}

/// Prints the effective values. What only shows when it is used, such as certificates, is tried as well.
pub(crate) fn check(named: Option<&Path>) -> Result<ExitCode> {
    let (config, section) = load(named)?;
    screen::say(&section.render())?;
    config.spool.check()?;
    let client_id = config.identity.node_id.to_string();
    config.broker.options(&mqtt::Session { client_id, ..mqtt::Session::default() })?;
    Ok(ExitCode::SUCCESS)
}
