//! Who may do what on a cluster: access rules and users as they should be.
//!
//! Purpose: [`diff`] compares, [`apply`] makes it so. The rules and users that are wanted come from the caller; `docs/spec/bus.md`,
//! section *Security*, says what counts as too much.
//!
//! Promises: done twice, [`apply`] changes nothing the second time. Nothing is taken away unless that is asked for, and never from anybody
//! but the users that are named. What is wanted is there before what is too much goes, so that nobody is shut out in between. A password
//! is never shown.
//!
//! It must not know which topics or roles there are. It fails with [`WireError`]; what was done until then stays, and is found done by the
//! next run.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cluster::Cluster;
pub use super::wire::acls::{Operation, Pattern, Permission, Resource, Rule};
use super::wire::{Connection, check_secret};
pub use super::wire::{ITERATIONS, InvalidSecret, Refusal, WireError};

/// Everybody, as rules name it.
const EVERYBODY: &str = "User:*";
/// A broker shows a change when it has followed the controller.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// Rules and users as they should be.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// What is allowed. The topics and groups in them are those that are watched for rules beside them.
    pub rules: BTreeSet<Rule>,
    /// Whose rules these are.
    pub users: Vec<User>,
}

/// A user, and how it logs in.
#[derive(Clone)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its login.
    pub login: Login,
}

/// How a user logs in.
#[derive(Clone)]
pub enum Login {
    /// By a password that the cluster keeps, which is not ours to set.
    Kept,
    /// By this password.
    Password(String),
    /// In a way that the cluster does not keep, like a certificate.
    Elsewhere,
}

/// Without the password.
impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("User").field(&self.name).finish()
    }
}

impl User {
    fn password(&self) -> Option<&str> {
        match &self.login {
            Login::Password(password) => Some(password),
            Login::Kept | Login::Elsewhere => None,
        }
    }
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drift {
    /// A rule is not there.
    Missing(Rule),
    /// A rule gives or takes more than is wanted.
    TooMuch(Rule),
    /// A user has no password.
    NoPassword(String),
    /// A user's password is hashed too few times.
    WeakPassword {
        /// The user.
        user: String,
        /// So many times.
        iterations: u32,
    },
    /// A user's password is to be set again, whatever it is.
    Password(String),
}

/// What [`apply`] may do beside adding what is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Delete rules of the named users that are too much.
    pub prune: bool,
    /// Set every password that is given: one that is there cannot be compared.
    pub set_passwords: bool,
    /// Only say what would be done.
    pub dry_run: bool,
}

/// What [`apply`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was different and is no more.
    pub changed: Vec<Drift>,
    /// What was left as it is.
    pub left: Vec<Drift>,
}

/// Compares rules and users with what is wanted and changes nothing.
pub async fn diff(cluster: &Cluster, wanted: &Wanted) -> Result<Vec<Drift>, WireError> {
    drifts(&mut Connection::open(cluster).await?, wanted).await
}

/// Makes rules and users as they are wanted.
pub async fn apply(
    cluster: &Cluster,
    wanted: &Wanted,
    options: Options,
) -> Result<Applied, WireError> {
    // One bad password is found before anything is changed.
    for user in &wanted.users {
        if let Some(password) = user.password() {
            check_secret(&format!("the password of {}", user.name), password)?;
        }
    }
    let mut connection = Connection::open(cluster).await?;
    let planned = plan(drifts(&mut connection, wanted).await?, wanted, options);
    if options.dry_run || planned.changed.is_empty() {
        return Ok(planned);
    }
    let (mut create, mut delete, mut logins) = (Vec::new(), Vec::new(), Vec::new());
    for drift in &planned.changed {
        match drift {
            Drift::Missing(rule) => create.push(rule.clone()),
            Drift::TooMuch(rule) => delete.push(rule.clone()),
            Drift::NoPassword(user) | Drift::WeakPassword { user, .. } | Drift::Password(user) => {
                logins.extend(password_of(wanted, user).map(|password| (user.as_str(), password)));
            }
        }
    }
    // First what may be refused for want of TLS, so that nothing is half done then.
    if !logins.is_empty() {
        connection.set_passwords(&logins).await?;
    }
    if !create.is_empty() {
        connection.create_rules(&create).await?;
    }
    if !delete.is_empty() {
        connection.delete_rules(&delete).await?;
    }
    wait_until_shown(&mut connection, wanted, &planned.changed).await?;
    Ok(planned)
}

fn password_of<'a>(wanted: &'a Wanted, user: &str) -> Option<&'a str> {
    wanted.users.iter().find(|one| one.name == user)?.password()
}

/// Parts what can and may be changed from what is left.
fn plan(drifts: Vec<Drift>, wanted: &Wanted, options: Options) -> Applied {
    let mut again: BTreeSet<&str> = BTreeSet::new();
    if options.set_passwords {
        again = wanted
            .users
            .iter()
            .filter(|user| user.password().is_some())
            .map(|user| user.name.as_str())
            .collect();
    }
    let mut planned = Applied::default();
    for drift in drifts {
        let may = match &drift {
            Drift::Missing(_) => true,
            // Somebody else may live by a rule for everybody.
            Drift::TooMuch(rule) => options.prune && rule.principal != EVERYBODY,
            Drift::NoPassword(user) | Drift::WeakPassword { user, .. } | Drift::Password(user) => {
                again.remove(user.as_str());
                password_of(wanted, user).is_some()
            }
        };
        if may { planned.changed.push(drift) } else { planned.left.push(drift) }
    }
    planned.changed.extend(again.into_iter().map(|user| Drift::Password(user.to_owned())));
    planned
}

async fn drifts(connection: &mut Connection, wanted: &Wanted) -> Result<Vec<Drift>, WireError> {
    let mut there = BTreeSet::new();
    for user in &wanted.users {
        there.extend(connection.rules_of(&format!("User:{}", user.name)).await?);
    }
    there.extend(connection.rules_of(EVERYBODY).await?);
    let mut drifts = compare(&there, &wanted.rules);
    let kept = |user: &&User| !matches!(user.login, Login::Elsewhere);
    let users: Vec<&str> =
        wanted.users.iter().filter(kept).map(|user| user.name.as_str()).collect();
    let hashed = connection.iterations_of(&users).await?;
    for user in users {
        match hashed.get(user).copied() {
            None => drifts.push(Drift::NoPassword(user.to_owned())),
            Some(iterations) if iterations < ITERATIONS => {
                drifts.push(Drift::WeakPassword { user: user.to_owned(), iterations });
            }
            Some(_) => {}
        }
    }
    Ok(drifts)
}

/// What is missing, then what is too much: other rules that touch the cluster itself or a resource of ours.
fn compare(there: &BTreeSet<Rule>, wanted: &BTreeSet<Rule>) -> Vec<Drift> {
    let missing = wanted.difference(there).cloned().map(Drift::Missing);
    let touches = |rule: &Rule| {
        rule.resource == Resource::Cluster
            || wanted.iter().any(|ours| rule.covers(ours.resource, &ours.name))
    };
    let extra = there.difference(wanted).filter(|rule| touches(rule));
    missing.chain(extra.cloned().map(Drift::TooMuch)).collect()
}

/// A change is taken by the controller; the broker that we ask follows a moment later.
async fn wait_until_shown(
    connection: &mut Connection,
    wanted: &Wanted,
    changed: &[Drift],
) -> Result<(), WireError> {
    let deadline = tokio::time::Instant::now() + SHOWN_WITHIN;
    loop {
        let found = drifts(connection, wanted).await?;
        if !changed.iter().any(|drift| found.contains(drift)) {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            let broker = connection.broker().to_owned();
            return Err(WireError::NotShown { broker, seconds: SHOWN_WITHIN.as_secs() });
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(user: &str, topic: &str) -> Rule {
        Rule::allow(user, Operation::Read, Resource::Topic, topic)
    }

    #[test]
    fn rules_elsewhere_are_nobodys_business() {
        let wanted = BTreeSet::from([read("ada", "ours")]);
        let wide = Rule { pattern: Pattern::Prefixed, ..read("ada", "ou") };
        let admin = Rule::allow("ada", Operation::Alter, Resource::Cluster, "kafka-cluster");
        let denied = Rule { permission: Permission::Deny, ..read("ada", "ours") };
        let there = [read("ada", "theirs"), wide.clone(), admin.clone(), denied.clone()];
        let found = compare(&there.into(), &wanted);
        assert_eq!(found[0], Drift::Missing(read("ada", "ours")));
        let rest: Vec<_> = [wide, denied, admin].map(Drift::TooMuch).into();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(rest.iter().all(|drift| found.contains(drift)), "{found:?}");
        assert_eq!(compare(&wanted, &wanted), []);
    }

    #[test]
    fn nothing_is_taken_away_unasked_and_nothing_from_everybody() {
        let user = |name: &str, login| User { name: name.to_owned(), login };
        let users = vec![
            user("ada", Login::Password("canary".to_owned())),
            user("bob", Login::Kept),
            user("eve", Login::Password("canary".to_owned())),
        ];
        let wanted = Wanted { rules: BTreeSet::new(), users };
        assert!(!format!("{wanted:?}").contains("canary"));
        let own = Drift::TooMuch(read("ada", "*"));
        let of_all = Drift::TooMuch(read("*", "*"));
        let ada = Drift::NoPassword("ada".to_owned());
        let bob = Drift::WeakPassword { user: "bob".to_owned(), iterations: 4096 };
        let all = || vec![own.clone(), of_all.clone(), ada.clone(), bob.clone()];
        let done = plan(all(), &wanted, Options::default());
        assert_eq!(done.changed, std::slice::from_ref(&ada));
        assert_eq!(done.left, [own.clone(), of_all.clone(), bob.clone()]);
        let options = Options { prune: true, set_passwords: true, dry_run: false };
        let done = plan(all(), &wanted, options);
        assert_eq!(done.changed, [own.clone(), ada.clone(), Drift::Password("eve".to_owned())]);
        assert_eq!(done.left, [of_all.clone(), bob.clone()]);
    }
}
