//! Quantities and names in configuration and messages: text in, checked values out; and out again without losing anything.

use crate::share::Share;
use crate::tables::TableGrant;
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::str::FromStr;
use weir_session::Name;
use weir_trust::grant::{Filter, Interface, ModuleHash, NodeName, NodePattern, Second, View};
use weir_trust::key::PublicKey;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// A quantity that is written as text.
pub(crate) trait Exact: Sized {
    /// As it reads back to the same value.
    fn exact(&self) -> String;
    /// What the text says, or why it says nothing.
    fn read(text: &str) -> Result<Self, String>;
}

/// Types that [`FromStr`] reads, with the text that it reads back to the same value.
macro_rules! exact {
    ($($of:ty: $value:ident => $text:expr;)+) => {$(
        impl Exact for $of {
            fn exact(&self) -> String {
                let $value = self;
                $text
            }
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: <Self as FromStr>::Err| error.to_string())
            }
        }
    )+};
}

exact! {
    Nanos: it => format!("{}ns", it.0);
    Bytes: it => it.0.to_string();
    BitsPerSecond: it => format!("{}bit/s", it.0);
    NodeName: it => it.to_string();
    PublicKey: it => it.to_string();
    ModuleHash: it => it.to_string();
    TableGrant: it => it.to_string();
    Share: it => it.to_string();
    Filter: it => it.to_string();
    Interface: it => it.to_string();
    View: it => it.to_string();
    NodePattern: it => it.to_string();
    Second: it => it.to_string();
}

impl Exact for Name {
    fn exact(&self) -> String {
        self.to_string()
    }
    fn read(text: &str) -> Result<Self, String> {
        Name::new(text).map_err(|error| error.to_string())
    }
}

/// For `#[serde(skip_serializing_if = "quantity::is_default")]`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A quantity in a list or a map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text<T>(pub(crate) T);

impl<'de, T: Exact> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        text::deserialize(from).map(Self)
    }
}

/// For `#[serde(with = "quantity::text")]`.
pub(crate) mod text {
    use super::*;

    pub(crate) fn serialize<T: Exact, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.exact())
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// For `#[serde(with = "quantity::texts")]`: several.
pub(crate) mod texts {
    use super::*;
    use serde::ser::SerializeSeq;

    pub(crate) fn serialize<T: Exact, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(Some(values.len()))?;
        values.iter().try_for_each(|value| list.serialize_element(&value.exact()))?;
        list.end()
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        Ok(Vec::deserialize(from)?.into_iter().map(|Text(value)| value).collect())
    }
}

/// For `#[serde(default, with = "quantity::maybe")]`: a key that may be missing.
pub(crate) mod maybe {
    use super::*;

    #[expect(clippy::ref_option, reason = "what serde calls it with")]
    pub(crate) fn serialize<T: Exact, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(&value.exact()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T: Exact, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        Ok(Option::deserialize(from)?.map(|Text(value)| value))
    }
}
