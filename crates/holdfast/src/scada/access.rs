//! `holdfast scada access …`: users and access rules on a Kafka cluster, no more than each role needs.
//!
//! What the roles may do stands once, in [`Roles::grants`]; comparing, making and the commands of Kafka's own tools come from it. Passwords are
//! read from the administrator's section, which takes them from files or the environment, and are shown nowhere.

use anyhow::ensure;
use bus::kafka::DEAD_LETTER_READER;
use bus::kafka::access::{
    self, Applied, Drift, ITERATIONS, Login, Operation, Options, Pattern, Permission, Resource,
    Rule, User, Wanted,
};
use clap::Subcommand;
use event::names::kafka::Topic;
use serde_json::{Value, json};
use settings::{Key, Kind, Section};

use super::topics::Administrator;
use crate::output::say;
use crate::table;

const PRODUCER_PASSWORD: &str = "access.producer_password";
const HISTORIAN_PASSWORD: &str = "access.historian_password";
const OPERATOR_PASSWORD: &str = "access.operator_password";

/// The passwords that `access apply` sets.
pub(super) const PASSWORDS: &[Key] = &[
    Key::new(
        PRODUCER_PASSWORD,
        Kind::Text,
        "The password that `holdfast scada access apply` gives to the nodes' user.",
    )
    .secret(),
    Key::new(HISTORIAN_PASSWORD, Kind::Text, "The same for the historians' user.").secret(),
    Key::new(OPERATOR_PASSWORD, Kind::Text, "The same for the user of who replays dead letters.")
        .secret(),
];

/// `holdfast scada access …`
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare users and access rules with what SCADA wants, and change nothing. Exits with 1 when something differs.
    #[command(
        after_help = "Rules of these users, and of everybody, on these topics and groups or on the cluster are too much \
when they are not wanted. Whether a password is right cannot be seen.

Examples:
  holdfast scada access diff --config admin.toml
  holdfast scada access diff --brokers kafka-1:9093 --operator plant-operator --json"
    )]
    Diff(DiffArgs),
    /// Make users and access rules as SCADA wants them: producers may write, historians may read. Doing it again changes nothing.
    #[command(after_help = "Passwords are those of scada_admin: access.producer_password_file or \
HOLDFAST_SCADA_ADMIN_ACCESS_PRODUCER_PASSWORD, and the same for historian and operator. A user that has one keeps it, \
unless --set-passwords is given.

Examples:
  holdfast scada access apply --config admin.toml --dry-run
  holdfast scada access apply --config admin.toml --operator plant-operator
  holdfast scada access apply --config admin.toml --prune
  holdfast scada access apply --config admin.toml --set-passwords     after a password has leaked")]
    Apply(ApplyArgs),
    /// Write the commands of Kafka's own tools that would do the same, for clusters that only they may change.
    #[command(after_help = "Examples:
  holdfast scada access print --brokers kafka-1:9093 --command-config admin.properties
  holdfast scada access print --producer node --historian central --operator plant-operator --json")]
    Print(PrintArgs),
}

/// Who has which role.
#[derive(Debug, clap::Args)]
struct Roles {
    /// The user of the nodes.
    #[arg(long, default_value = "producer", value_parser = name)]
    producer: String,
    /// The user of the historians.
    #[arg(long, default_value = "historian", value_parser = name)]
    historian: String,
    /// The user of who looks at dead letters and replays them (`holdfast dlq --scada`); none unless named.
    #[arg(long, value_parser = name)]
    operator: Option<String>,
    /// The historians' consumer group.
    #[arg(long, default_value = ::scada::historian::GROUP, value_parser = name)]
    group: String,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    roles: Roles,
    /// Leave users' passwords alone: they log in some other way.
    #[arg(long)]
    rules_only: bool,
    #[command(flatten)]
    administrator: Administrator,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    what: DiffArgs,
    /// Delete rules of these users that are too much. Rules for everybody are left and named.
    #[arg(long)]
    prune: bool,
    /// Set the passwords that are given also where users have one.
    #[arg(long, conflicts_with = "rules_only")]
    set_passwords: bool,
    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PrintArgs {
    #[command(flatten)]
    roles: Roles,
    /// host:port,host:port of the cluster.
    #[arg(long, default_value = "127.0.0.1:9092")]
    brokers: String,
    /// The file with the administrator's login, for Kafka's tools.
    #[arg(long)]
    command_config: Option<String>,
}

/// Names that need no quoting in a shell, nor in a rule.
fn name(text: &str) -> Result<String, String> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=64).contains(&text.len()) && text.bytes().all(sound) {
        return Ok(text.to_owned());
    }
    Err("expected 1 to 64 letters, digits, dots, dashes or underscores".to_owned())
}

/// Runs an `access` command.
pub(super) async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Diff(args) => diff(&args).await,
        Command::Apply(args) => apply(&args).await,
        Command::Print(args) => print(&args),
    }
}

/// What a user may do with some resources of one kind, and why.
struct Grant<'a> {
    user: &'a str,
    why: &'static str,
    operation: Operation,
    resource: Resource,
    names: Vec<&'a str>,
}

impl Roles {
    /// The users, with the key of each one's password.
    fn users(&self) -> anyhow::Result<Vec<(&str, &'static str)>> {
        let mut users = vec![
            (self.producer.as_str(), PRODUCER_PASSWORD),
            (self.historian.as_str(), HISTORIAN_PASSWORD),
        ];
        users.extend(self.operator.as_deref().map(|user| (user, OPERATOR_PASSWORD)));
        for (at, (user, _)) in users.iter().enumerate() {
            let twice = users[..at].iter().any(|(other, _)| other == user);
            ensure!(!twice, "{user} is named twice: each role has a user of its own");
        }
        Ok(users)
    }

    /// What the roles may do, and no more. `docs/spec/bus.md` has the table.
    fn grants(&self) -> Vec<Grant<'_>> {
        let five = Topic::ALL.into_iter().filter(|topic| *topic != Topic::Dlq);
        let five: Vec<&str> = five.map(|topic| topic.name()).collect();
        let letters = || vec![Topic::Dlq.name()];
        let grant =
            |user, why, operation, resource, names| Grant { user, why, operation, resource, names };
        let (read, write, topic) = (Operation::Read, Operation::Write, Resource::Topic);
        let (producer, historian) = (self.producer.as_str(), self.historian.as_str());
        let own = vec![self.group.as_str()];
        let mut grants = vec![
            grant(producer, "writes the five topics", write, topic, five.clone()),
            grant(historian, "reads the five topics", read, topic, five.clone()),
            grant(historian, "is in its group", read, Resource::Group, own),
            grant(historian, "writes dead letters", write, topic, letters()),
        ];
        if let Some(operator) = self.operator.as_deref() {
            let ask = "may ask about the group that it never joins";
            let group = vec![DEAD_LETTER_READER];
            grants.extend([
                grant(operator, "reads dead letters", read, topic, letters()),
                grant(operator, ask, Operation::Describe, Resource::Group, group),
                grant(operator, "marks what was replayed", write, topic, letters()),
                grant(operator, "replays to the five topics", write, topic, five),
            ]);
        }
        grants
    }
}

impl DiffArgs {
    fn wanted(&self, section: &Section) -> anyhow::Result<Wanted> {
        let grants = self.roles.grants();
        let rules = grants.iter().flat_map(|grant| {
            let rule = |name: &&str| Rule::allow(grant.user, grant.operation, grant.resource, name);
            grant.names.iter().map(rule)
        });
        let mut users = Vec::new();
        for (user, key) in self.roles.users()? {
            let login = match section.find(key)? {
                _ if self.rules_only => Login::Elsewhere,
                Some(password) => Login::Password(password.secret().expose().to_owned()),
                None => Login::Kept,
            };
            users.push(User { name: user.to_owned(), login });
        }
        Ok(Wanted { rules: rules.collect(), users })
    }
}

/// Whose it is, what differs, what there is, what is wanted.
fn words(drift: &Drift) -> [String; 4] {
    let cells = |user: &str, what: &str, is: &str, wanted: &str| {
        [user, what, is, wanted].map(str::to_owned)
    };
    match drift {
        Drift::Missing(rule) => cells(owner(rule), &shown(rule), "missing", "there"),
        Drift::TooMuch(rule) => cells(owner(rule), &shown(rule), "there", "not there"),
        Drift::NoPassword(user) => cells(user, "password", "missing", "there"),
        Drift::WeakPassword { user, iterations } => {
            let times = |number: u32| format!("hashed {number} times");
            cells(user, "password", &times(*iterations), &times(ITERATIONS))
        }
        Drift::Password(user) => cells(user, "password", "there", "set again"),
    }
}

fn owner(rule: &Rule) -> &str {
    rule.principal.strip_prefix("User:").unwrap_or(&rule.principal)
}

/// A rule without its user, in the words of Kafka's tools.
fn shown(rule: &Rule) -> String {
    let mut text = format!("{} {} {}", rule.operation, rule.resource, rule.name);
    if rule.pattern != Pattern::Literal {
        text.push_str(&format!(" ({})", rule.pattern));
    }
    if rule.host != "*" {
        text.push_str(&format!(" from {}", rule.host));
    }
    if rule.permission == Permission::Deny {
        text.insert_str(0, "deny ");
    }
    text
}

fn as_json(drifts: &[Drift]) -> Vec<Value> {
    let one = |drift: &Drift| {
        let [user, what, is, wanted] = words(drift);
        let mut value = json!({"user": user, "what": what, "is": is, "wanted": wanted});
        if let Drift::Missing(rule) | Drift::TooMuch(rule) = drift {
            value["rule"] = json!({
                "principal": rule.principal,
                "resource": rule.resource.to_string(),
                "name": rule.name,
                "pattern": rule.pattern.to_string(),
                "operation": rule.operation.to_string(),
                "permission": rule.permission.to_string(),
                "host": rule.host,
            });
        }
        value
    };
    drifts.iter().map(one).collect()
}

fn sound(wanted: &Wanted, verb: &str) -> String {
    let (rules, users) = (wanted.rules.len(), wanted.users.len());
    format!("All {rules} rules of {users} users {verb} as they should be.\n")
}

async fn diff(args: &DiffArgs) -> anyhow::Result<()> {
    let section = args.administrator.section()?;
    let wanted = args.wanted(&section)?;
    let drifts = access::diff(&::scada::kafka::cluster(&section)?, &wanted).await?;
    if args.roles.json {
        say(&format!("{}\n", serde_json::to_string_pretty(&as_json(&drifts))?))?;
    } else if drifts.is_empty() {
        say(&sound(&wanted, "are"))?;
    } else {
        let mut table = table::new(&["user", "what", "is", "wanted"], &[]);
        for drift in &drifts {
            table.add_row(words(drift));
        }
        say(&format!("{table}\n"))?;
    }
    let count = drifts.len();
    let prune = drifts.iter().any(|drift| matches!(drift, Drift::TooMuch(_)));
    let how = if prune { ", with --prune also what is too much" } else { "" };
    ensure!(count == 0, "{count} differences; `holdfast scada access apply` makes them so{how}");
    Ok(())
}

async fn apply(args: &ApplyArgs) -> anyhow::Result<()> {
    let section = args.what.administrator.section()?;
    let wanted = args.what.wanted(&section)?;
    let options =
        Options { prune: args.prune, set_passwords: args.set_passwords, dry_run: args.dry_run };
    let cluster = ::scada::kafka::cluster(&section)?;
    let Applied { changed, left } = access::apply(&cluster, &wanted, options).await?;
    if args.what.roles.json {
        let done = json!({
            "changed": as_json(&changed),
            "left": as_json(&left),
            "dry_run": args.dry_run,
        });
        say(&format!("{}\n", serde_json::to_string_pretty(&done)?))?;
    } else if changed.is_empty() && left.is_empty() {
        say(&sound(&wanted, "were"))?;
    } else {
        let mut table = table::new(&["user", "what", "was", "wanted", "state"], &[]);
        let done = if args.dry_run { "would be done" } else { "done" };
        let changed = changed.iter().map(|drift| (drift, done));
        for (drift, state) in changed.chain(left.iter().map(|drift| (drift, "left"))) {
            table.add_row(words(drift).into_iter().chain([state.to_owned()]));
        }
        say(&format!("{table}\n"))?;
    }
    ensure!(
        left.is_empty(),
        "{} differences are left: --prune deletes rules of these users, a rule for everybody (*) is deleted with Kafka's own \
         kafka-acls because others may live by it, and a password is set where scada_admin has one ({PRODUCER_PASSWORD}_file …)",
        left.len()
    );
    Ok(())
}

/// A command of Kafka's own tools.
struct Tool {
    name: &'static str,
    arguments: Vec<String>,
    why: String,
}

fn tools(args: &PrintArgs) -> anyhow::Result<Vec<Tool>> {
    let tool = |name, why: String, arguments: &[&str]| {
        let mut all = vec!["--bootstrap-server", args.brokers.as_str()];
        if let Some(file) = &args.command_config {
            all.extend(["--command-config", file]);
        }
        all.extend(arguments);
        Tool { name, arguments: all.into_iter().map(str::to_owned).collect(), why }
    };
    let mut tools = Vec::new();
    for (user, _) in args.roles.users()? {
        let file = format!("{user}.properties");
        let why = format!("{user} may log in; {file} has the line SCRAM-SHA-512=password=…");
        let who = ["--alter", "--entity-type", "users", "--entity-name", user];
        tools.push(tool("kafka-configs", why, &[&who[..], &["--add-config-file", &file]].concat()));
    }
    for grant in args.roles.grants() {
        let principal = format!("User:{}", grant.user);
        let (operation, option) = (grant.operation.to_string(), format!("--{}", grant.resource));
        let mut add = vec!["--add", "--allow-principal", &principal, "--operation", &operation];
        add.extend(grant.names.iter().flat_map(|name| [option.as_str(), name]));
        tools.push(tool("kafka-acls", format!("{} {}", grant.user, grant.why), &add));
    }
    Ok(tools)
}

fn print(args: &PrintArgs) -> anyhow::Result<()> {
    let tools = tools(args)?;
    if args.roles.json {
        let all: Vec<_> = tools
            .iter()
            .map(|one| json!({"tool": one.name, "arguments": one.arguments, "why": one.why}))
            .collect();
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    let mut text = String::from(
        "# Run these with Kafka's own tools. They need an authorizer on the brokers (authorizer.class.name).\n\
         # A password goes by a file that only you can read, not by the command line.\n",
    );
    for one in tools {
        text.push_str(&format!("\n# {}\n{}.sh {}\n", one.why, one.name, one.arguments.join(" ")));
    }
    say(&text)
}
