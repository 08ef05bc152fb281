//! What every service's handlers ask first: who is it, what may they, what did they send.

use std::time::Duration;

use api::Refused;
use api::tokens::{Caller, Role, Token};
use axum::body::{Body, to_bytes};
use axum::extract::Extension;
use axum::response::Response;
use event::id::TenantId;

/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// What a handler answers.
pub(crate) type Answer = Result<Response, Refused>;
/// Who asks: the guard has put it there.
pub(crate) type Asker = Extension<Caller>;

/// A body of a request, of `limit` bytes at the most.
pub(crate) async fn read(body: Body, limit: usize) -> Result<axum::body::Bytes, Refused> {
    let message = format!("the body is more than the limit of {limit} bytes");
    let whole = tokio::time::timeout(BODY_WITHIN, to_bytes(body, limit)).await;
    let slow = |_| Refused::malformed(None, "the body did not arrive in time");
    whole.map_err(slow)?.map_err(|_| Refused::too_large(message))
}

/// Whether the token may look at what its tenants have.
pub(crate) fn may_look(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator | Role::Viewer => Ok(()),
        Role::Edge => Err(Refused::forbidden("this needs the role viewer, operator or admin")),
    }
}

/// Whether the token may change what its tenants have.
pub(crate) fn may_act(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator => Ok(()),
        Role::Edge | Role::Viewer => {
            Err(Refused::forbidden("this needs the role operator or admin"))
        }
    }
}

/// Whether the token may write what devices, cameras and vision services write.
pub(crate) fn may_write(token: &Token) -> Result<(), Refused> {
    match token.role {
        Role::Admin | Role::Operator | Role::Edge => Ok(()),
        Role::Viewer => Err(Refused::forbidden("this needs the role edge, operator or admin")),
    }
}

/// Whether the token is good for a tenant that a request names.
pub(crate) fn may_see(token: &Token, tenant: Option<TenantId>) -> Result<(), Refused> {
    match tenant {
        Some(tenant) if !token.tenants.allow(tenant) => {
            let message = "tenant_id is not among the tenants of this token";
            Err(Refused::forbidden(message).about(Some("tenant_id".to_owned())))
        }
        _ => Ok(()),
    }
}

/// What a caller hears of a fault of the database: the details are for the log.
pub(crate) fn unavailable(error: pg::Error) -> Refused {
    tracing::warn!(%error, "a request could not be answered");
    Refused::unavailable("unavailable", "the database cannot be asked at the moment")
}
