//! Who asks: sign-in, sessions, and what each may see and do.

mod attempts;
mod origin;
mod sessions;
mod sign_in;

use std::collections::BTreeSet;
use std::sync::Arc;

use api::Refused;
use api::tokens::{Role, Tenants, Token};
use axum::http::HeaderValue;
use jiff::Timestamp;
use uuid::Uuid;

pub(crate) use attempts::Attempts;
pub(crate) use origin::check as same_origin;
pub(crate) use sessions::{Held, Sessions};
pub(crate) use sign_in::{
    __path_me, __path_sign_in, __path_sign_out, cookie, look_up, me, sign_in, sign_out,
};

/// Whose data somebody may see.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Everyone's.
    All,
    /// These tenants'.
    Only(BTreeSet<Uuid>),
}

impl Scope {
    pub(crate) fn of(tenants: &Tenants) -> Scope {
        match tenants {
            Tenants::All => Scope::All,
            Tenants::Only(list) => Scope::Only(list.iter().map(|tenant| tenant.uuid()).collect()),
        }
    }

    pub(crate) fn allows(&self, tenant: Uuid) -> bool {
        match self {
            Scope::All => true,
            Scope::Only(tenants) => tenants.contains(&tenant),
        }
    }

    /// Whether what belongs to no tenant may be seen.
    pub(crate) fn is_all(&self) -> bool {
        matches!(self, Scope::All)
    }
}

/// Somebody who is signed in. The guard puts it into the request.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) token: Arc<Token>,
    pub(crate) scope: Scope,
    /// The session's end.
    pub(crate) expires_at: Timestamp,
    /// Which session, for what must end with it.
    pub(crate) session: Held,
}

/// Who acts, as the tiers are told it: the name of the token that was signed in with.
#[derive(Debug, Clone)]
pub(crate) struct Person(pub(crate) HeaderValue);

impl User {
    /// Who it is, for the audits of those that are asked to do something.
    pub(crate) fn person(&self) -> Person {
        // HTTP drops spaces at the ends, and a name that has nothing else would be none.
        let name = self.token.name.trim();
        let value = HeaderValue::from_bytes(name.as_bytes()).ok().filter(|_| !name.is_empty());
        let id = || HeaderValue::from_str(&self.token.id.to_string()).ok();
        Person(value.or_else(id).unwrap_or_else(|| HeaderValue::from_static("unknown")))
    }

    pub(crate) fn can_act(&self) -> bool {
        matches!(self.token.role, Role::Operator | Role::Admin)
    }

    /// Refuses whoever may only look.
    pub(crate) fn may_act(&self) -> Result<(), Refused> {
        match self.can_act() {
            true => Ok(()),
            false => Err(Refused::forbidden("this needs a token of role operator or admin")),
        }
    }

    /// Refuses a tenant that the user may not see.
    pub(crate) fn may_see(&self, tenant: Uuid) -> Result<(), Refused> {
        match self.scope.allows(tenant) {
            true => Ok(()),
            false => {
                let message = "this tenant is not among those of your token";
                Err(Refused::forbidden(message).about(Some("tenant_id".to_owned())))
            }
        }
    }

    /// Refuses whoever does not see everything, for what belongs to no tenant.
    pub(crate) fn may_see_everything(&self) -> Result<(), Refused> {
        match self.scope.is_all() {
            true => Ok(()),
            false => Err(Refused::forbidden("this is for tokens of all tenants")),
        }
    }
}
