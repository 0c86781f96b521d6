//! Amounts of resources in configurations and messages, as further keys of a structure.
//!
//! Keys and units are those of the [table of resources](Resource). The structure has one field of type [`Amounts`].
//! Keys of the table are read into this field, and all other keys are read as the structure's own keys. The macro
//! `deserialize_with_amounts!` implements the reading.

use serde::de::value::StrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use std::fmt;
use weir_trust::grant::{Amounts, Resource};

/// The two sets of keys for amounts.
#[derive(Clone, Copy)]
pub(crate) enum AmountKeys {
    /// Keys of a session's limits, such as `kept_packets`.
    Session,
    /// Keys of a grant, such as `kept-packets`.
    Grant,
}

impl AmountKeys {
    fn resource(self, key: &str) -> Option<Resource> {
        match self {
            Self::Session => Resource::by_limit_key(key),
            Self::Grant => Resource::by_name(key),
        }
    }

    fn all(self) -> Vec<&'static str> {
        match self {
            Self::Session => Resource::limits().map(|(_, limit)| limit.key).collect(),
            Self::Grant => Resource::ALL.iter().map(|resource| resource.definition().name).collect(),
        }
    }
}

/// Implements `Deserialize` for a structure with `#[serde(remote = "Self")]`, which reads amounts into `$field` and
/// all other keys as the structure's own. With `and written`, also implements `Serialize`.
macro_rules! deserialize_with_amounts {
    ($type:ident, $field:ident, $keys:expr, and written) => {
        $crate::control::resource_keys::deserialize_with_amounts!($type, $field, $keys);

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                Self::serialize(self, to)
            }
        }
    };
    ($type:ident, $field:ident, $keys:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let mut amounts = weir_trust::grant::Amounts::default();
                let rest = Self::deserialize($crate::control::resource_keys::WithoutAmounts {
                    from,
                    keys: $keys,
                    amounts: &mut amounts,
                })?;
                Ok(Self { $field: amounts, ..rest })
            }
        }
    };
}

pub(crate) use deserialize_with_amounts;

/// Writes the limits of a session, for
/// `#[serde(flatten, skip_deserializing, serialize_with = "resource_keys::session")]`.
pub(crate) fn session<S: Serializer>(amounts: &Amounts, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(None)?;
    for (resource, amount) in amounts.stated() {
        let definition = resource.definition();
        let Some(limit) = &definition.limit else { continue };
        match definition.unit.exact(amount) {
            Some(text) => map.serialize_entry(limit.key, &text)?,
            None => map.serialize_entry(limit.key, &amount)?,
        }
    }
    map.end()
}

/// A deserializer of a structure that reads amounts into `amounts`, and passes only the other keys on.
pub(crate) struct WithoutAmounts<'a, D> {
    pub(crate) from: D,
    pub(crate) keys: AmountKeys,
    pub(crate) amounts: &'a mut Amounts,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for WithoutAmounts<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.from.deserialize_any(Split { inner: visitor, keys: self.keys, amounts: self.amounts })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let split = Split { inner: visitor, keys: self.keys, amounts: self.amounts };
        self.from.deserialize_struct(name, fields, split)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// A visitor or map access that hides the keys of amounts from the structure.
struct Split<'a, T> {
    inner: T,
    keys: AmountKeys,
    amounts: &'a mut Amounts,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Split<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(Split { inner: map, keys: self.keys, amounts: self.amounts })
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(list)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Split<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let mut seed = Some(seed);
        loop {
            let key = KeySeed { seed: &mut seed, keys: self.keys };
            match self.inner.next_key_seed(key)? {
                None => return Ok(None),
                Some(Key::Own(key)) => return Ok(Some(key)),
                Some(Key::Amount(resource)) => {
                    let amount = self.inner.next_value_seed(AmountSeed(resource))?;
                    if self.amounts.get(resource).is_some() {
                        return Err(A::Error::custom(format!(
                            "duplicate field of {}",
                            resource.definition().title
                        )));
                    }
                    self.amounts.set(resource, amount);
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// A key of the structure (`Own`) or of an amount.
enum Key<T> {
    Own(T),
    Amount(Resource),
}

/// Seed for reading a key. An amount's key does not consume the structure's seed, which is used for the next key.
struct KeySeed<'a, K> {
    seed: &'a mut Option<K>,
    keys: AmountKeys,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for KeySeed<'_, K> {
    type Value = Key<K::Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for KeySeed<'_, K> {
    type Value = Key<K::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        if let Some(resource) = self.keys.resource(key) {
            return Ok(Key::Amount(resource));
        }
        let Some(seed) = self.seed.take() else { return Err(E::custom("a key is read twice")) };
        let own = seed.deserialize(StrDeserializer::<KeyError>::new(key));
        own.map(Key::Own).map_err(|KeyError(why)| {
            let more: Vec<String> = self.keys.all().iter().map(|key| format!("`{key}`")).collect();
            E::custom(format_args!("{why}, {}", more.join(", ")))
        })
    }
}

/// The structure's error about a key, to which the keys of amounts are added.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct KeyError(String);

impl de::Error for KeyError {
    fn custom<T: fmt::Display>(why: T) -> Self {
        Self(why.to_string())
    }
}

/// Seed for reading an amount: a number, or a text with a unit.
struct AmountSeed(Resource);

impl<'de> DeserializeSeed<'de> for AmountSeed {
    type Value = Option<u64>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<u64>, D::Error> {
        let unit = self.0.definition().unit;
        if unit.exact(0).is_none() {
            return Option::<u64>::deserialize(from);
        }
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| self.0.read_limit(&text).map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
    #[serde(remote = "Self", deny_unknown_fields)]
    struct Thing {
        name: String,
        #[serde(flatten, skip_deserializing, serialize_with = "session")]
        limits: Amounts,
    }

    deserialize_with_amounts!(Thing, limits, AmountKeys::Session, and written);

    #[test]
    fn amounts_are_written_and_read_among_the_structures_own_keys() {
        let limits = Resource::limits().map(|(resource, _)| (resource, 7 + resource as u64)).collect();
        let thing = Thing { name: "a".to_owned(), limits };
        let text = serde_json::to_string(&thing).unwrap();
        assert_eq!(serde_json::from_str::<Thing>(&text).unwrap(), thing);
        let toml = "kept_packets = 5\nname = \"a\"\nrecords_per_second = 6";
        let limits = toml::from_str::<Thing>(toml).unwrap().limits;
        assert_eq!([Resource::Kept, Resource::Records].map(|of| limits.get(of)), [Some(5), Some(6)]);
    }

    #[test]
    fn errors_of_keys_and_values_name_their_place() {
        for (text, says, at) in [
            ("name = \"a\"\nkept = 1", "unknown field `kept`, expected `name`, `records_per_second`", 2),
            ("kept_packets = -1\nname = \"a\"", "invalid value", 1),
            ("name = \"a\"\n\nkept_packets = \"5\"", "invalid type", 3),
        ] {
            let error = toml::from_str::<Thing>(text).unwrap_err();
            assert!(error.message().contains(says), "{error}");
            let line = text[..error.span().unwrap().start].matches('\n').count() + 1;
            assert_eq!(line, at, "{error}");
        }
        let twice = r#"{"name": "a", "kept_packets": 1, "kept_packets": 2}"#;
        assert!(serde_json::from_str::<Thing>(twice).unwrap_err().to_string().contains("duplicate"));
    }
}
