//! Who stands behind a request: its token, and the person that the token's holder acts for.
//!
//! A console asks every tier with a token of its own, so the tier's audit would name the console
//! alone. The header says which person pressed the button. It is a word of a token that may act
//! itself: it gives nobody a right, it is only written down.

use std::ops::Deref;
use std::sync::Arc;

use axum::http::HeaderMap;

use super::{Role, Token, is_name};
use crate::Refused;

/// The header with the name of the person that a service acts for: UTF-8, 1 to 100 characters.
pub const ACTING_FOR: &str = "holdfast-acting-for";

/// A request's token, and for whom it acts.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The token, which is what may or may not.
    pub token: Arc<Token>,
    acting_for: Option<Arc<str>>,
}

impl Caller {
    /// Reads the header: 400 when it is no name, 403 from a token that may not act.
    pub(super) fn new(token: Arc<Token>, headers: &HeaderMap) -> Result<Caller, Refused> {
        let mut values = headers.get_all(ACTING_FOR).iter();
        let Some(value) = values.next() else { return Ok(Caller { token, acting_for: None }) };
        let name = std::str::from_utf8(value.as_bytes()).ok().filter(|name| is_name(name));
        let name = name.filter(|_| values.next().is_none()).ok_or_else(|| {
            let message = format!(
                "{ACTING_FOR} is not understood: expected one name of 1 to 100 characters, none of them a control character"
            );
            Refused::malformed(Some(ACTING_FOR), message)
        })?;
        match token.role {
            Role::Operator | Role::Admin => Ok(Caller { acting_for: Some(Arc::from(name)), token }),
            Role::Edge | Role::Viewer => {
                let message = format!("{ACTING_FOR} is for tokens of role operator or admin");
                Err(Refused::forbidden(message).about(Some(ACTING_FOR.to_owned())))
            }
        }
    }

    /// The person's name, where the request gave one.
    pub fn acting_for(&self) -> Option<&str> {
        self.acting_for.as_deref()
    }
}

impl Deref for Caller {
    type Target = Token;

    fn deref(&self) -> &Token {
        &self.token
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, StatusCode};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::tokens::Tenants;

    fn caller(
        role: Role,
        values: &[&[u8]],
    ) -> Result<Option<String>, (StatusCode, Option<String>)> {
        let token = Token {
            id: Uuid::now_v7(),
            name: "console".to_owned(),
            role,
            tenants: Tenants::All,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
        };
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACTING_FOR, HeaderValue::from_bytes(value).unwrap());
        }
        let caller = Caller::new(Arc::new(token), &headers);
        let named = caller.map(|caller| caller.acting_for().map(str::to_owned));
        named.map_err(|refused| (refused.status, refused.field))
    }

    #[test]
    fn a_name_is_taken_from_those_who_may_act() {
        for role in Role::ALL {
            assert_eq!(caller(role, &[]), Ok(None), "{role}: nobody has to say a name");
        }
        let long = "ü".repeat(100);
        for name in ["anna", "Zoë of the night shift", &long] {
            for role in [Role::Operator, Role::Admin] {
                assert_eq!(caller(role, &[name.as_bytes()]), Ok(Some(name.to_owned())));
            }
        }
        let field = Some(ACTING_FOR.to_owned());
        for role in [Role::Edge, Role::Viewer] {
            assert_eq!(caller(role, &[b"anna"]), Err((StatusCode::FORBIDDEN, field.clone())));
        }
    }

    #[test]
    fn what_is_no_name_is_refused_by_the_header_s_name() {
        let refused = Err((StatusCode::BAD_REQUEST, Some(ACTING_FOR.to_owned())));
        let long = "ü".repeat(101);
        let next_line = "anna\u{85}".as_bytes();
        for values in [
            &[&b""[..]][..],
            &[long.as_bytes()],
            &[b"an\tna"],
            &[next_line],
            &[b"\xff\xfe"],
            &[b"anna", b"bert"],
        ] {
            assert_eq!(caller(Role::Admin, values), refused, "{values:?}");
        }
    }
}
