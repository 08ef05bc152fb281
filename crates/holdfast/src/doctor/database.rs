//! A role's database: reachable, of a version we know, its tables up to date, its clock near ours, and somebody may use the API.

use api::tokens::{Role, Token};
use jiff::{SignedDuration, Timestamp};
use pg::schema::{ServerFacts, server_facts};
use tokio_postgres::Client;

use super::check::Check;

/// The oldest major version that the tests run on.
const KNOWN_VERSION: i32 = 15;
/// Clocks that differ by more make ages and leases look wrong.
const CLOCKS_DIFFER_SECONDS: i64 = 5;
/// A token that stops sooner is worth a warning.
const SOON_DAYS: i64 = 14;

/// What is expected of a database.
pub(super) struct Expected {
    /// What its checks are called.
    name: &'static str,
    tables: pg::Schema,
    tokens: Option<Tokens>,
}

/// Who should be able to use the API.
struct Tokens {
    /// Which tokens are of use there.
    of_use: fn(&Token) -> bool,
    /// What it means that there is none.
    none: &'static str,
    /// What makes one.
    command: &'static str,
}

fn any(_: &Token) -> bool {
    true
}

/// Machines send; people sign in.
fn of_people(token: &Token) -> bool {
    token.role != Role::Edge
}

const NOBODY: &str = "nobody may use the API";

pub(super) const EDGE: Expected = Expected {
    name: "database",
    tables: edge::SCHEMA,
    tokens: Some(Tokens {
        of_use: any,
        none: NOBODY,
        command: "holdfast token create NAME --edge --role operator --all-tenants",
    }),
};
pub(super) const CLOUD: Expected = Expected {
    name: "database",
    tables: cloud::SCHEMA,
    tokens: Some(Tokens {
        of_use: any,
        none: NOBODY,
        command: "holdfast token create SITE --role edge --tenant TENANT",
    }),
};
pub(super) const PRODUCER: Expected =
    Expected { name: "node database", tables: scada::PRODUCER, tokens: None };
pub(super) const HISTORIAN: Expected = Expected {
    name: "historian database",
    tables: scada::HISTORIAN,
    tokens: Some(Tokens {
        of_use: any,
        none: NOBODY,
        command: "holdfast token create NAME --historian --role viewer --all-tenants",
    }),
};
pub(super) const SCHEDULE: Expected = Expected {
    name: "database",
    tables: schedule::migration::SCHEMA,
    tokens: Some(Tokens {
        of_use: any,
        none: NOBODY,
        command: "holdfast token create NAME --schedule --role operator --all-tenants",
    }),
};
/// The console has no tables: people sign in with tokens of the cloud.
pub(super) const CONSOLE: Expected = Expected {
    name: "database",
    tables: cloud::SCHEMA,
    tokens: Some(Tokens {
        of_use: of_people,
        none: "nobody can sign in",
        command: "holdfast token create NAME --role operator --all-tenants, at the cloud",
    }),
};

/// Examines it. Changes nothing.
pub(super) async fn examine(
    role: &'static str,
    options: pg::Options,
    expected: &'static Expected,
) -> Vec<Check> {
    let name = expected.name;
    let client = match pg::connect(&options).await {
        Ok(client) => client,
        Err(error) => {
            let advice = match error.about() {
                pg::About::Destination => "see whether Postgres runs and its address is right",
                _ => {
                    "mend database.url: the user, its password, the database's name, or the CA file"
                }
            };
            return vec![Check::fail(role, name, error.to_string(), advice)];
        }
    };
    let odd =
        |error: pg::Error| Check::fail(role, name, error.to_string(), "see Postgres' own log");
    let facts = match server_facts(&client).await {
        Ok(facts) => facts,
        Err(error) => return vec![odd(error)],
    };
    let tables = tables(&client, role, expected).await.unwrap_or_else(odd);
    let mut checks = vec![version(&facts, role, name), tables, clocks(&facts, role, name)];
    if let Some(wanted) = &expected.tokens {
        // Without tables there is no token either, and that has been said.
        checks.extend(tokens(&client, role, name, wanted).await.ok());
    }
    checks
}

fn version(facts: &ServerFacts, role: &'static str, name: &str) -> Check {
    let found = format!("Postgres {}", facts.version);
    match facts.major >= KNOWN_VERSION {
        true => Check::ok(role, name, found),
        false => Check::warn(
            role,
            name,
            found,
            format!("it is older than what is tested: go to {KNOWN_VERSION} or newer"),
        ),
    }
}

async fn tables(
    client: &Client,
    role: &'static str,
    expected: &Expected,
) -> Result<Check, pg::Error> {
    let name = format!("{} tables", expected.name);
    let start = "they are made when the role starts; its user must be allowed to";
    let Some(found) = expected.tables.standing(client).await? else {
        return Ok(Check::warn(role, name, "there are none yet", start));
    };
    Ok(match (found.missing, found.foreign) {
        (_, foreign @ 1..) => Check::fail(
            role,
            name,
            format!("{foreign} migrations are there that this program does not know"),
            "a newer program has been here: use that one, or a backup from before",
        ),
        (0, _) => Check::ok(role, name, format!("{} migrations, all there", found.wanted)),
        (missing, _) => Check::warn(role, name, format!("{missing} migrations are to come"), start),
    })
}

fn clocks(facts: &ServerFacts, role: &'static str, name: &str) -> Check {
    let differ = Timestamp::now().duration_since(facts.now).as_secs().abs();
    let name = format!("{name} clock");
    match differ <= CLOCKS_DIFFER_SECONDS {
        true => Check::ok(role, name, "near ours"),
        false => Check::warn(
            role,
            name,
            format!("differs from ours by {}", crate::table::span(differ)),
            "synchronise both machines (chrony or systemd-timesyncd)",
        ),
    }
}

async fn tokens(
    client: &Client,
    role: &'static str,
    name: &str,
    wanted: &Tokens,
) -> Result<Check, api::tokens::Error> {
    let now = Timestamp::now();
    let ends_after = |token: &Token, at: Timestamp| token.expires_at.is_none_or(|end| end > at);
    let all = api::tokens::list(client).await?;
    let good: Vec<&Token> = all
        .iter()
        .filter(|token| token.revoked_at.is_none() && ends_after(token, now))
        .filter(|token| (wanted.of_use)(token))
        .collect();
    let soon = now + SignedDuration::from_hours(24 * SOON_DAYS);
    let ending = good.iter().filter(|token| !ends_after(token, soon)).count();
    let (name, command) = (format!("{name} tokens"), wanted.command);
    Ok(match (good.len(), ending) {
        (0, _) => {
            Check::warn(role, name, wanted.none, format!("make one if somebody should: {command}"))
        }
        (good, 0) => Check::ok(role, name, format!("{good} that work")),
        (good, ending) => Check::warn(
            role,
            name,
            format!("{ending} of {good} stop within {SOON_DAYS} days"),
            format!("make new ones in time: {command}"),
        ),
    })
}
