//! `holdfast config …`: one file for every role, checked before it is used.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use settings::{Key, Section};

use crate::backup;
use crate::output::{say, say_json};

/// `holdfast config …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check the sections of a file and print each value with its origin, secrets hidden.
    #[command(after_help = "Examples:
  holdfast config check --config holdfast.toml
  HOLDFAST_EDGE_HTTP_LISTEN=127.0.0.1:9000 holdfast config check --config holdfast.toml
  holdfast config check --config holdfast.toml --json | jq '.[] | select(.origin != \"default\")'     what was set")]
    Check {
        /// The configuration.
        #[arg(long, env = "HOLDFAST_CONFIG")]
        config: PathBuf,
        /// JSON instead of a table: a list of keys with value and origin.
        #[arg(long)]
        json: bool,
    },
    /// Every key of every role: default, environment name and meaning, as Markdown.
    #[command(after_help = "Examples:
  holdfast config reference | less
  holdfast config reference | grep 'sync\\.'     the keys of a part")]
    Reference,
}

/// A role that has a section.
struct Role {
    section: &'static str,
    keys: &'static [Key],
    /// Checks what only all values together can tell.
    check: fn(&Section) -> Result<(), settings::Error>,
}

const ROLES: &[Role] = &[
    Role {
        section: node::SECTION,
        keys: node::KEYS,
        check: |section| node::Config::from_section(section).map(drop),
    },
    Role {
        section: edge::config::SECTION,
        keys: edge::config::KEYS,
        check: |section| edge::Config::from_section(section).map(drop),
    },
    Role {
        section: cloud::config::SECTION,
        keys: cloud::config::KEYS,
        check: |section| cloud::Config::from_section(section).map(drop),
    },
    Role {
        section: backup::config::SECTION,
        keys: backup::config::KEYS,
        check: |section| backup::config::Config::from_section(section).map(drop),
    },
    Role {
        section: ::scada::historian::config::SECTION,
        keys: ::scada::historian::config::KEYS,
        check: |section| ::scada::historian::Config::from_section(section).map(drop),
    },
    Role {
        section: ::console::config::SECTION,
        keys: ::console::config::KEYS,
        check: |section| ::console::Config::from_section(section).map(drop),
    },
    #[cfg(feature = "kafka")]
    Role {
        section: crate::scada::ADMIN_SECTION,
        keys: crate::scada::ADMIN_KEYS,
        check: |section| ::scada::kafka::cluster(section).map(drop),
    },
    Role {
        section: ::scada::producer::config::SECTION,
        keys: ::scada::producer::config::KEYS,
        check: |section| ::scada::producer::Config::from_section(section).map(drop),
    },
    Role {
        section: ::schedule::config::SECTION,
        keys: ::schedule::config::KEYS,
        check: |section| ::schedule::Config::from_section(section).map(drop),
    },
];

/// The process's environment, as the roles read it.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Runs a `config` command.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Check { config, json } => check(&config, json),
        Command::Reference => {
            let pages = ROLES.iter().map(|role| settings::reference(role.section, role.keys));
            say(&pages.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn check(file: &Path, json: bool) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let sections: toml::Table =
        text.parse().with_context(|| format!("{} is not TOML", file.display()))?;
    let known: Vec<_> = ROLES.iter().map(|role| role.section).collect();
    if let Some(name) = sections.keys().find(|name| !known.contains(&name.as_str())) {
        anyhow::bail!("[{name}] is no role; there are [{}]", known.join("], ["));
    }
    let present: Vec<_> = ROLES.iter().filter(|role| sections.contains_key(role.section)).collect();
    anyhow::ensure!(
        !present.is_empty(),
        "{} has no section; there are [{}]",
        file.display(),
        known.join("], [")
    );
    let mut all = Vec::new();
    for role in present {
        let section = Section::load(Some(file), role.section, role.keys, environment)?;
        (role.check)(&section)?;
        match json {
            true => all.extend(section.shown().map(|(key, value, origin)| {
                serde_json::json!({ "key": key, "value": value, "origin": origin })
            })),
            false => say(&format!("[{}]\n{}\n", role.section, section.render()))?,
        }
    }
    if json { say_json(&all) } else { Ok(()) }
}
