//! `holdfast doctor`: checks an installation, says what is wrong and what to do.
//!
//! It looks at what is configured: files and their permissions, certificates, databases, brokers, object stores, the cloud, ports, disks
//! and the clock. Checks run side by side and each has a limit of time. Nothing is changed but a small file in a spool's folder, written
//! to see whether the disk keeps what it is told to keep, and removed again. No secret is printed.
//!
//! The exit code is 1 when a check failed; a warning alone is 0.

mod check;
mod database;
mod files;
mod machine;
mod reach;

use std::time::Duration;

use clap::ValueEnum;
use tokio::task::JoinSet;

use crate::output::say;
use crate::status::places::{self, Places};
use crate::table;
use check::{Check, State};

/// How long one check may take.
const CHECK_WITHIN: Duration = Duration::from_secs(15);

/// `holdfast doctor`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  holdfast doctor --config /etc/holdfast.toml      everything the file configures
  holdfast doctor edge --config edge.toml          one role
  holdfast doctor --data .holdfast                 what an `up` has made
  holdfast doctor --json | jq '.[] | select(.state != \"ok\")'")]
pub(crate) struct Args {
    /// Only this role; all that are configured when absent.
    #[arg(value_enum)]
    role: Option<Role>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    places: places::PlaceArgs,
}

/// What can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    /// A site.
    Edge,
    /// The cloud.
    Cloud,
    /// A field node.
    Node,
    /// A plant: its nodes and its historian.
    Scada,
    /// Captured schedules.
    Schedule,
    /// The operator's page.
    Console,
}

/// Checks, one after the other in the table, side by side in time.
#[derive(Default)]
struct Checks {
    set: JoinSet<(usize, Vec<Check>)>,
    many: usize,
}

impl Checks {
    /// Starts a check. One that takes too long fails as such.
    fn add(
        &mut self,
        role: &'static str,
        what: &'static str,
        check: impl Future<Output = Vec<Check>> + Send + 'static,
    ) {
        let order = self.many;
        self.many += 1;
        self.set.spawn(async move {
            let late = || {
                let said = format!("no answer within {} s", CHECK_WITHIN.as_secs());
                vec![Check::fail(role, what, said, "see whether it runs and can be reached")]
            };
            (order, tokio::time::timeout(CHECK_WITHIN, check).await.unwrap_or_else(|_| late()))
        });
    }

    async fn done(self) -> Vec<Check> {
        let mut done = self.set.join_all().await;
        done.sort_by_key(|(order, _)| *order);
        done.into_iter().flat_map(|(_, checks)| checks).collect()
    }
}

/// Checks what is asked for.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let checks = match Places::find(&args.places) {
        Ok(places) => examine(&args, places).await,
        Err(error) => vec![Check::fail(
            "all",
            "configuration",
            format!("{error:#}"),
            "name a file that can be read with --config, or the folder of an `up` with --data",
        )],
    };
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (failed, warned) = (count(State::Fail), count(State::Warn));
    match args.json {
        true => say(&format!("{}\n", serde_json::to_string_pretty(&checks)?))?,
        false => {
            say(&shown(&checks))?;
            say(&format!(
                "\n{} checks: {} ok, {warned} warnings, {failed} failed\n",
                checks.len(),
                count(State::Ok)
            ))?;
        }
    }
    anyhow::ensure!(failed == 0, "{failed} of {} checks failed", checks.len());
    Ok(())
}

async fn examine(args: &Args, mut places: Places) -> Vec<Check> {
    let wanted = |role| args.role.is_none_or(|only| only == role);
    if !wanted(Role::Edge) {
        places.edge = None;
    }
    if !wanted(Role::Cloud) {
        places.cloud = None;
    }
    if !wanted(Role::Node) {
        places.nodes.clear();
    }
    if !wanted(Role::Scada) {
        (places.producer, places.historian) = (None, None);
    }
    if !wanted(Role::Schedule) {
        places.schedule = None;
    }
    if !wanted(Role::Console) {
        places.console = None;
    }
    let mut checks = Checks::default();
    let refused = files::configuration(&places, args.role.map(sections));
    checks.add("all", "configuration", async move { refused });
    for file in places.files.clone() {
        checks.add("all", "files", async move { files::named_in(&file) });
    }
    checks.add("all", "clock", machine::clock());
    edge(&places, &mut checks);
    cloud(&places, &mut checks);
    nodes(&places, &mut checks);
    scada(&places, &mut checks);
    schedule(&places, &mut checks);
    console(&places, &mut checks);
    checks.add("all", "bus", async move { reach::buses(&places).await });
    checks.done().await
}

/// The sections of a role.
fn sections(role: Role) -> &'static [&'static str] {
    match role {
        Role::Edge => &[::edge::config::SECTION],
        Role::Cloud => &[::cloud::config::SECTION],
        Role::Node => &[::node::SECTION],
        Role::Scada => &[::scada::producer::config::SECTION, ::scada::historian::config::SECTION],
        Role::Schedule => &[::schedule::config::SECTION],
        Role::Console => &[::console::config::SECTION],
    }
}

fn edge(places: &Places, checks: &mut Checks) {
    let Some(found) = &places.edge else { return };
    let config = found.config.clone();
    let role = "edge";
    checks.add(role, "database", database::examine(role, config.database.clone(), &database::EDGE));
    listener(role, config.tls.as_ref(), checks);
    checks.add(role, "port", machine::port(role, config.listen, config.tls.clone()));
    checks.add(role, "broker", async move { vec![reach::broker(role, &config.broker).await] });
    let config = found.config.clone();
    checks.add(role, "object store", async move {
        match config.object_store() {
            Ok(Some(bucket)) => vec![reach::bucket(role, &bucket).await],
            Ok(None) => Vec::new(),
            Err(error) => {
                vec![Check::fail(role, "object store", error.to_string(), "see edge.media")]
            }
        }
    });
    if let Some(sync) = found.config.sync.clone() {
        checks.add(role, "cloud", async move {
            let reached = reach::http(role, "cloud", &sync.cloud_url, &sync.trust).await;
            // Where nobody answers there is nobody to ask about the token.
            match reached.state {
                State::Fail => vec![reached],
                _ => vec![reached, reach::cloud_token(role, &sync).await],
            }
        });
    }
    if let Some(kept) = found.config.retention.min_free.clone() {
        checks.add(role, "disk", async move { vec![machine::disk(role, &kept.path, kept.bytes)] });
    }
}

fn cloud(places: &Places, checks: &mut Checks) {
    let Some(found) = &places.cloud else { return };
    let (role, config) = ("cloud", &found.config);
    checks.add(
        role,
        "database",
        database::examine(role, config.database.clone(), &database::CLOUD),
    );
    listener(role, config.tls.as_ref(), checks);
    checks.add(role, "port", machine::port(role, config.listen, config.tls.clone()));
}

fn nodes(places: &Places, checks: &mut Checks) {
    for found in &places.nodes {
        let config = found.config.clone();
        let role = "node";
        let spool = config.spool.dir.clone();
        checks.add(role, "spool", async move { machine::spool(role, spool).await });
        if let Some(http) = config.http.clone() {
            checks.add(role, "edge", async move {
                let trust = api::client::Tls { ca_file: http.ca_file, client: http.client };
                vec![reach::http(role, "edge", &http.address, &trust).await]
            });
        }
        checks.add(role, "broker", async move { vec![reach::broker(role, &config.broker).await] });
    }
}

fn scada(places: &Places, checks: &mut Checks) {
    let role = "scada";
    if let Some(found) = &places.producer {
        let config = &found.config;
        let database = config.database.clone();
        checks.add(role, "node database", database::examine(role, database, &database::PRODUCER));
        listener(role, config.tls.as_ref(), checks);
        checks.add(role, "port", machine::port(role, config.listen, config.tls.clone()));
        let spool = config.spool.dir.clone();
        checks.add(role, "spool", async move { machine::spool(role, spool).await });
    }
    if let Some(found) = &places.historian {
        let config = &found.config;
        let database = config.database.clone();
        checks.add(
            role,
            "historian database",
            database::examine(role, database, &database::HISTORIAN),
        );
        listener(role, config.tls.as_ref(), checks);
        checks.add(role, "port", machine::port(role, config.listen, config.tls.clone()));
    }
}

fn schedule(places: &Places, checks: &mut Checks) {
    let Some(found) = &places.schedule else { return };
    let (role, config) = ("schedule", &found.config);
    let database = config.database.clone();
    checks.add(role, "database", database::examine(role, database, &database::SCHEDULE));
    listener(role, config.tls.as_ref(), checks);
    checks.add(role, "port", machine::port(role, config.listen, config.tls.clone()));
    if let Some(store) = config.store.clone() {
        checks.add(role, "object store", async move {
            match objects::Bucket::new(&store.inside) {
                Ok(bucket) => vec![reach::bucket(role, &bucket).await],
                Err(error) => {
                    vec![Check::fail(role, "object store", error.to_string(), "see schedule.store")]
                }
            }
        });
    }
}

fn console(places: &Places, checks: &mut Checks) {
    let Some(found) = &places.console else { return };
    let (role, config) = ("console", &found.config);
    let database = config.database.clone();
    checks.add(role, "database", database::examine(role, database, &database::CONSOLE));
    listener(role, config.tls.as_ref(), checks);
    checks.add(role, "port", machine::port(role, config.listen, config.tls.clone()));
    let roles = config.sites.iter().chain(&config.cloud).chain(&config.historian);
    for place in roles.chain(&config.producers).chain(&config.schedule) {
        let (url, trust) = (place.url.clone(), config.trust.clone());
        checks.add(role, "upstream", async move {
            vec![reach::http(role, "upstream", &url, &trust).await]
        });
    }
    let config = config.clone();
    checks.add(role, "tokens", async move { reach::upstream_tokens(role, &config).await });
}

/// The certificate of a role's listener, where it has one.
fn listener(role: &'static str, tls: Option<&api::serve::Tls>, checks: &mut Checks) {
    if let Some(tls) = tls.cloned() {
        checks.add(role, "certificate", async move { files::listener(role, &tls) });
    }
}

fn shown(checks: &[Check]) -> String {
    let mut rows = table::new(&["role", "check", "state", "found"], &[]);
    for check in checks {
        rows.add_row([check.role, &check.check, check.state.as_str(), &check.found]);
    }
    let mut text = format!("{rows}\n");
    for check in checks.iter().filter(|check| check.state != State::Ok) {
        let mark = if check.state == State::Fail { '!' } else { '?' };
        text += &format!(
            "\n{mark} {} {}: {}\n  -> {}\n",
            check.role, check.check, check.found, check.advice
        );
    }
    text
}
