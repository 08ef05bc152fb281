//! What a process of the edge does: all of it by default, or some roles, so that they can run apart.

use std::collections::BTreeSet;
use std::fmt;

use settings::Section;

/// One of the things that a process of the edge may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Takes in what nodes send.
    Ingress,
    /// Aggregates readings and answers questions about them.
    Telemetry,
    /// Weighing sessions.
    Sessions,
    /// Images and their objects.
    Media,
    /// Results of inference, and the worker that makes them.
    Inference,
    /// Forwards to the cloud.
    Sync,
    /// Keeps disks within bounds.
    Retention,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 7] = [
        Role::Ingress,
        Role::Telemetry,
        Role::Sessions,
        Role::Media,
        Role::Inference,
        Role::Sync,
        Role::Retention,
    ];

    /// As an operator writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Ingress => "ingress",
            Role::Telemetry => "telemetry",
            Role::Sessions => "sessions",
            Role::Media => "media",
            Role::Inference => "inference",
            Role::Sync => "sync",
            Role::Retention => "retention",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

pub(super) fn roles(section: &Section) -> Result<BTreeSet<Role>, settings::Error> {
    let known = || Role::ALL.map(Role::as_str).join(", ");
    let mut roles = BTreeSet::new();
    for name in section.get("roles")?.list() {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == name);
        roles.insert(role.ok_or_else(|| {
            section.refuse("roles", format!("{name:?} is no role: expected some of {}", known()))
        })?);
    }
    if roles.is_empty() {
        return Err(section.refuse("roles", format!("is empty: expected some of {}", known())));
    }
    Ok(roles)
}
