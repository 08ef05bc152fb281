//! The id of a row: what its table has it as.

use std::error::Error;
use std::sync::Arc;

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::table::Kind;

/// An id, in the order that the database has it in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowId {
    /// [`Kind::Bigint`].
    Number(i64),
    /// [`Kind::Uuid`].
    Uuid(Uuid),
    /// [`Kind::Text`], in byte order.
    Text(Arc<str>),
}

impl RowId {
    /// The id that this text is the form of; `None` when it is of none of this kind.
    pub(crate) fn parse(kind: Kind, text: &str) -> Option<RowId> {
        match kind {
            Kind::Bigint => text.parse().ok().map(RowId::Number),
            Kind::Uuid => text.parse().ok().map(RowId::Uuid),
            Kind::Text => Some(RowId::Text(text.into())),
        }
    }
}

impl std::fmt::Display for RowId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RowId::Number(number) => number.fmt(f),
            RowId::Uuid(uuid) => uuid.fmt(f),
            RowId::Text(text) => text.fmt(f),
        }
    }
}

impl<'a> FromSql<'a> for RowId {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<RowId, Box<dyn Error + Sync + Send>> {
        match *kind {
            Type::INT8 => i64::from_sql(kind, raw).map(RowId::Number),
            Type::UUID => Uuid::from_sql(kind, raw).map(RowId::Uuid),
            _ => <&str>::from_sql(kind, raw).map(|text| RowId::Text(text.into())),
        }
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::UUID) || <&str as FromSql>::accepts(kind)
    }
}

impl ToSql for RowId {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            RowId::Number(number) => number.to_sql_checked(kind, out),
            RowId::Uuid(uuid) => uuid.to_sql_checked(kind, out),
            RowId::Text(text) => (&**text).to_sql_checked(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        <RowId as FromSql>::accepts(kind)
    }

    to_sql_checked!();
}
