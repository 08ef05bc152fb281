//! What is configured here: from files, from the environment, or from the data folder of an `up`.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::config::environment;
use crate::up::links::DEFAULT_DATA;

/// The most nodes of a data folder that are asked by their own socket.
const MAX_NODES: usize = 200;

/// Where to look for configurations.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PlaceArgs {
    /// A configuration; every section it has is used. May be given several times. The environment wins over it.
    #[arg(long, env = "HOLDFAST_CONFIG")]
    config: Vec<PathBuf>,
    /// The data folder of an `up`, and nothing else; the one here is taken when nothing is configured.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// A role's configuration, and the file it is from.
#[derive(Debug, Clone)]
pub(crate) struct Found<T> {
    pub(crate) config: T,
    pub(crate) file: Option<PathBuf>,
}

impl<T> Found<T> {
    /// What a command for this role is followed by.
    pub(crate) fn option(&self) -> String {
        self.file.as_ref().map(|file| format!(" --config {}", file.display())).unwrap_or_default()
    }
}

/// A section that cannot be used.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) section: &'static str,
    pub(crate) file: Option<PathBuf>,
    pub(crate) why: String,
}

/// Everything that is configured.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The data folder, where that is what was asked for.
    pub(crate) folder: Option<PathBuf>,
    /// The files that were read.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) nodes: Vec<Found<node::Config>>,
    pub(crate) edge: Option<Found<edge::Config>>,
    pub(crate) cloud: Option<Found<cloud::Config>>,
    pub(crate) producer: Option<Found<scada::producer::Config>>,
    pub(crate) historian: Option<Found<scada::historian::Config>>,
    pub(crate) schedule: Option<Found<schedule::Config>>,
    pub(crate) console: Option<Found<console::Config>>,
    pub(crate) refused: Vec<Refused>,
}

type Environment = fn(&str) -> Option<String>;

impl Places {
    /// Finds them. A section that cannot be used is remembered; a file that cannot be read is an error.
    pub(crate) fn find(args: &PlaceArgs) -> anyhow::Result<Places> {
        if let Some(folder) = &args.data {
            return Places::in_folder(folder);
        }
        let mut places = Places::default();
        for file in &args.config {
            places.read(file, environment)?;
        }
        places.take_environment();
        if places.is_empty() && args.config.is_empty() {
            let here = Path::new(DEFAULT_DATA);
            anyhow::ensure!(
                here.is_dir(),
                "nothing is configured here: give --config with a file, --data with the folder of an `up`, or start one \
                 with `holdfast up`"
            );
            return Places::in_folder(here);
        }
        Ok(places)
    }

    fn is_empty(&self) -> bool {
        let parts = [
            self.edge.is_some(),
            self.cloud.is_some(),
            self.producer.is_some(),
            self.historian.is_some(),
            self.schedule.is_some(),
            self.console.is_some(),
        ];
        self.nodes.is_empty() && self.refused.is_empty() && !parts.contains(&true)
    }

    fn in_folder(folder: &Path) -> anyhow::Result<Places> {
        let mut places = Places { folder: Some(folder.to_owned()), ..Places::default() };
        let files = [
            "edge/edge.toml",
            "cloud/cloud.toml",
            "scada/scada.toml",
            "schedule/schedule.toml",
            "console/console.toml",
        ];
        let there: Vec<PathBuf> =
            files.iter().map(|file| folder.join(file)).filter(|file| file.exists()).collect();
        anyhow::ensure!(
            !there.is_empty(),
            "no `up` has run in {}: start it with `holdfast up --data {}`, or name another folder",
            folder.display(),
            folder.display()
        );
        let mut nodes: Vec<PathBuf> = std::fs::read_dir(folder.join("nodes"))
            .map(|found| found.flatten().map(|one| one.path().join("node.toml")).collect())
            .unwrap_or_default();
        nodes.retain(|file| file.exists());
        nodes.sort();
        nodes.truncate(MAX_NODES);
        for file in there.iter().chain(&nodes) {
            places.read(file, super::nothing)?;
        }
        Ok(places)
    }

    /// Takes every section of a file.
    fn read(&mut self, file: &Path, env: Environment) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let sections: toml::Table =
            text.parse().with_context(|| format!("{} is not TOML", file.display()))?;
        self.files.push(file.to_owned());
        let has = |section: &str| sections.contains_key(section);
        let refused = &mut self.refused;
        if has(node::SECTION) {
            let loaded = node::Config::load(Some(file), env).map(|(config, _)| config);
            self.nodes.extend(found(node::SECTION, file, loaded, refused));
        }
        if has(edge::config::SECTION) {
            let loaded = edge::Config::load(Some(file), env);
            self.edge = found(edge::config::SECTION, file, loaded, refused);
        }
        if has(cloud::config::SECTION) {
            let loaded = cloud::Config::load(Some(file), env);
            self.cloud = found(cloud::config::SECTION, file, loaded, refused);
        }
        if has(scada::producer::config::SECTION) {
            let loaded = scada::producer::Config::load(Some(file), env);
            self.producer = found(scada::producer::config::SECTION, file, loaded, refused);
        }
        if has(scada::historian::config::SECTION) {
            let loaded = scada::historian::Config::load(Some(file), env);
            self.historian = found(scada::historian::config::SECTION, file, loaded, refused);
        }
        if has(schedule::config::SECTION) {
            let loaded = schedule::Config::load(Some(file), env);
            self.schedule = found(schedule::config::SECTION, file, loaded, refused);
        }
        if has(console::config::SECTION) {
            let loaded = console::Config::load(Some(file), env);
            self.console = found(console::config::SECTION, file, loaded, refused);
        }
        Ok(())
    }

    /// Takes the roles that the environment alone configures, where no file did.
    fn take_environment(&mut self) {
        let taken = |section: &str| self.refused.iter().any(|one| one.section == section);
        if self.nodes.is_empty() && !taken(node::SECTION) {
            self.nodes.extend(alone(node::Config::load(None, environment).map(|(it, _)| it)));
        }
        let taken: Vec<_> = self.refused.iter().map(|one| one.section).collect();
        let free = |section: &str| !taken.contains(&section);
        if self.edge.is_none() && free(edge::config::SECTION) {
            self.edge = alone(edge::Config::load(None, environment));
        }
        if self.cloud.is_none() && free(cloud::config::SECTION) {
            self.cloud = alone(cloud::Config::load(None, environment));
        }
        if self.producer.is_none() && free(scada::producer::config::SECTION) {
            self.producer = alone(scada::producer::Config::load(None, environment));
        }
        if self.historian.is_none() && free(scada::historian::config::SECTION) {
            self.historian = alone(scada::historian::Config::load(None, environment));
        }
        if self.schedule.is_none() && free(schedule::config::SECTION) {
            self.schedule = alone(schedule::Config::load(None, environment));
        }
        if self.console.is_none() && free(console::config::SECTION) {
            self.console = alone(console::Config::load(None, environment));
        }
    }
}

fn found<T>(
    section: &'static str,
    file: &Path,
    loaded: Result<T, settings::Error>,
    refused: &mut Vec<Refused>,
) -> Option<Found<T>> {
    match loaded {
        Ok(config) => Some(Found { config, file: Some(file.to_owned()) }),
        Err(error) => {
            refused.push(Refused { section, file: Some(file.to_owned()), why: error.to_string() });
            None
        }
    }
}

/// Without a file, a role that lacks something is one that is not here.
fn alone<T>(loaded: Result<T, settings::Error>) -> Option<Found<T>> {
    loaded.ok().map(|config| Found { config, file: None })
}
