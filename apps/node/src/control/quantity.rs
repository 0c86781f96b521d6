//! Text forms of quantities and names in configurations and messages, for the serde attributes of structures. A
//! written text is read as the same value.

use crate::control::share::ShareGrant;
use crate::control::table_grant::TableGrant;
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::fmt::Display;
use std::str::FromStr;
use weir_admission::Name;
use weir_trust::grant::{
    GrantFilter, InterfaceName, ModuleHash, NodeName, NodePattern, PacketView, UnixSecond,
};
use weir_trust::key::PublicKey;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// A quantity or a name with a text form that loses nothing.
pub(crate) trait Exact: FromStr<Err: Display> + Display {
    /// Returns the text from which [`read`](Self::read) gets the same value.
    fn exact(&self) -> String {
        self.to_string()
    }

    /// Reads a text, or returns the reason why that is impossible.
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|error: Self::Err| error.to_string())
    }
}

// `Display` rounds these three types, so their exact texts differ from it.
impl Exact for Nanos {
    fn exact(&self) -> String {
        format!("{}ns", self.0)
    }
}

impl Exact for Bytes {
    fn exact(&self) -> String {
        self.0.to_string()
    }
}

impl Exact for BitsPerSecond {
    fn exact(&self) -> String {
        format!("{}bit/s", self.0)
    }
}

impl Exact for Name {}
impl Exact for NodeName {}
impl Exact for PublicKey {}
impl Exact for ModuleHash {}
impl Exact for TableGrant {}
impl Exact for ShareGrant {}
impl Exact for GrantFilter {}
impl Exact for InterfaceName {}
impl Exact for PacketView {}
impl Exact for NodePattern {}
impl Exact for UnixSecond {}

/// Returns true for the default value, for `#[serde(skip_serializing_if = "quantity::is_default")]`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A value that serde reads from its text, as an entry of a list or a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AsText<T>(pub(crate) T);

impl<'de, T: Exact> Deserialize<'de> for AsText<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::deserialize(from).map(Self)
    }
}

/// Reads and writes one value as text, for `#[serde(with = "quantity::text")]`.
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<T: Exact, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.exact())
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// Reads and writes a list of values as texts, for `#[serde(with = "quantity::texts")]`.
pub(crate) mod texts {
    use super::*;
    use serde::ser::SerializeSeq;

    pub(crate) fn serialize<T: Exact, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(values.len()))?;
        values.iter().try_for_each(|value| list.serialize_element(&value.exact()))?;
        list.end()
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().map(|AsText(value)| value).collect())
    }
}

/// Reads and writes a value whose key may be missing, for `#[serde(default, with = "quantity::maybe")]`.
pub(crate) mod maybe {
    use super::*;

    #[expect(clippy::ref_option, reason = "serde passes a reference to the option")]
    pub(crate) fn serialize<T: Exact, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&value.exact()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        Ok(Option::deserialize(from)?.map(|AsText(value)| value))
    }
}
