//! Finding and checking the configuration.

use crate::screen;
use anyhow::{Context, Result};
use node::Config;
use settings::Section;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where a configuration is looked for when none is named: what the package of the node installs, then one file for every role.
const USUAL_PLACES: [&str; 2] = ["/etc/holdfast/node.toml", "/etc/holdfast/holdfast.toml"];

/// The named file, or the first usual one that is there.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    let usual = || USUAL_PLACES.map(Path::new).into_iter().find(|place| place.exists());
    named.or_else(usual).map(Path::to_owned)
}

pub(crate) fn load(named: Option<&Path>) -> Result<(Config, Section)> {
    let env = |name: &str| std::env::var(name).ok();
    let file = file(named);
    let none = || {
        let [own, shared] = USUAL_PLACES;
        format!("neither {own} nor {shared} is there: name the file with --config")
    };
    let loaded = Config::load(file.as_deref(), env);
    match file {
        Some(_) => Ok(loaded?),
        None => loaded.with_context(none),
    }
}

/// Prints the effective values. What only shows when it is used, such as certificates, is tried as well.
pub(crate) fn check(named: Option<&Path>, json: bool) -> Result<ExitCode> {
    let (config, section) = load(named)?;
    if json {
        let all: Vec<_> = section
            .shown()
            .map(|(key, value, origin)| {
                serde_json::json!({ "key": key, "value": value, "origin": origin })
            })
            .collect();
        screen::say(&format!("{}\n", serde_json::to_string_pretty(&all)?))?;
    } else {
        screen::say(&section.render())?;
    }
    config.spool.check()?;
    let client_id = config.identity.node_id.to_string();
    config.broker.options(&mqtt::Session { client_id, ..mqtt::Session::default() })?;
    Ok(ExitCode::SUCCESS)
}
