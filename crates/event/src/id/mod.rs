//! Typed identifiers.
//!
//! A UUID that names a tenant cannot be passed where one that names a device is wanted. Every id is
//! of version 4 or 7 in the RFC 9562 variant, written as 36 characters with hyphens; new ones are of
//! version 7. Whoever holds an id may put it into a key or a path: its text is hexadecimal and hyphens.

mod node_id;

pub use node_id::NodeId;

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{Uuid, Variant};

/// Why a text or a UUID is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is not a UUID in its hyphenated form.
    #[error("is not a UUID of 36 characters with hyphens: expected UUID version 4 or 7")]
    NotAUuid,
    /// The UUID is of a variant other than that of RFC 9562.
    #[error("is a UUID of another variant: expected UUID version 4 or 7 of RFC 9562")]
    Variant,
    /// The UUID is of another version.
    #[error("is a UUID of version {0}: expected version 4 or 7")]
    Version(usize),
}

fn check(uuid: Uuid) -> Result<Uuid, IdError> {
    if uuid.is_nil() || uuid.is_max() {
        return Err(IdError::Version(uuid.get_version_num()));
    }
    if uuid.get_variant() != Variant::RFC4122 {
        return Err(IdError::Variant);
    }
    match uuid.get_version_num() {
        4 | 7 => Ok(uuid),
        other => Err(IdError::Version(other)),
    }
}

fn parse(text: &str) -> Result<Uuid, IdError> {
    // The library also reads braces, `urn:uuid:` and 32 bare digits; a contract has one form.
    if text.len() != 36 {
        return Err(IdError::NotAUuid);
    }
    check(Uuid::try_parse(text).map_err(|_| IdError::NotAUuid)?)
}

struct Text<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err = IdError>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a UUID of version 4 or 7")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident,)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, of version 7.
            pub fn mint() -> $name {
                $name(Uuid::now_v7())
            }

            /// Takes a UUID of version 4 or 7.
            pub fn from_uuid(uuid: Uuid) -> Result<$name, IdError> {
                check(uuid).map($name)
            }

            /// The UUID.
            pub fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<$name, IdError> {
                parse(text).map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut text = Uuid::encode_buffer();
                serializer.serialize_str(self.0.hyphenated().encode_lower(&mut text))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                deserializer.deserialize_str(Text(std::marker::PhantomData))
            }
        }
    )+};
}

ids! {
    /// One event; with the tenant, the key of every dedupe.
    EventId,
    /// Whose data it is.
    TenantId,
    /// A farm of a tenant.
    FarmId,
    /// A barn of a farm.
    BarnId,
    /// A device: a sensor, a scale, a camera.
    DeviceId,
    /// A weighing session.
    SessionId,
    /// An image.
    MediaId,
    /// A batch of animals.
    BatchId,
    /// A result of inference on images.
    InferenceResultId,
    /// One life of a spool; minted with it, so that a re-imaged node never collides with its past.
    Epoch,
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "7d444840-9dc0-41d1-b245-5ffdce74fad2";
    const V7: &str = "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001";

    #[test]
    fn versions_4_and_7_are_accepted_and_round_trip() {
        for text in [V4, V7] {
            let id: EventId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            assert_eq!(EventId::from_uuid(id.uuid()), Ok(id));
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<EventId>(&json).unwrap(), id);
        }
        let upper: EventId = V7.to_uppercase().parse().unwrap();
        assert_eq!(upper.to_string(), V7);
    }

    #[test]
    fn other_versions_variants_and_forms_are_refused_by_name() {
        let fault = |text: &str| text.parse::<TenantId>().unwrap_err();
        assert_eq!(fault("c232ab00-9414-11ec-b3c8-9f6bdeced846"), IdError::Version(1));
        assert_eq!(fault("00000000-0000-0000-0000-000000000000"), IdError::Version(0));
        assert_eq!(fault("ffffffff-ffff-ffff-ffff-ffffffffffff"), IdError::Version(15));
        assert_eq!(fault("018f1a84-bb0e-7d3f-c2e4-9e8b5f8e0001"), IdError::Variant);
        for text in [
            "",
            "uuid-v7",
            "018f1a84bb0e7d3fb2e49e8b5f8e0001",
            "{018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001}",
            "urn:uuid:018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001",
            "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e000g",
            "018f1a84/bb0e-7d3f-b2e4-9e8b5f8e0001",
            " 18f1a84-bb0e-7d3f-b2e4-9e8b5f8e0001",
        ] {
            assert_eq!(fault(text), IdError::NotAUuid, "{text:?}");
        }
    }

    #[test]
    fn minted_ids_are_version_7_and_ascend() {
        let ids: Vec<Epoch> = (0..100).map(|_| Epoch::mint()).collect();
        assert!(ids.iter().all(|id| id.uuid().get_version_num() == 7));
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
