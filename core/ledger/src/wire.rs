//! The JSON forms of values in a line, for `#[serde(with = …)]`.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};
use weir_admission::{Name, Tier};
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp, parse_time, time_text};

/// A text of exactly `N` ASCII characters.
pub(super) struct Ascii<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Ascii<N> {
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl<const N: usize> Serialize for Ascii<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Returns true for zero. Lines leave out counters of zero, because most counters of a session are zero.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Returns true for one. Lines leave out a count of one, because most counts are one.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(super) fn is_one(count: &u64) -> bool {
    *count == 1
}

pub(super) fn one() -> u64 {
    1
}

/// Defines a module for `#[serde(with = …)]`, with the functions that write and read a type.
macro_rules! with {
    ($name:ident, $type:ty, $raw:ty, $write:expr, $read:expr) => {
        pub(super) mod $name {
            use super::*;

            #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
            pub(in super::super) fn serialize<S: Serializer>(
                value: &$type,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                serde::Serialize::serialize(&$write(value), serializer)
            }

            pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
                deserializer: D,
            ) -> Result<$type, D::Error> {
                let raw = <$raw>::deserialize(deserializer)?;
                $read(&raw).ok_or_else(|| D::Error::custom(concat!("no ", stringify!($name))))
            }
        }
    };
}

with!(name, Name, String, Name::as_str, |raw: &String| Name::new(raw).ok());
with!(nanos, Nanos, u64, |time: &Nanos| time.0, |raw: &u64| Some(Nanos(*raw)));
with!(bytes, Bytes, u64, |amount: &Bytes| amount.0, |raw: &u64| Some(Bytes(*raw)));
with!(rate, BitsPerSecond, u64, |rate: &BitsPerSecond| rate.0, |raw: &u64| Some(BitsPerSecond(*raw)));
with!(time, Timestamp, String, |at: &Timestamp| Ascii(time_text(*at)), |raw: &String| parse_time(raw).ok());
with!(tier, Tier, String, |tier: &Tier| tier.name(), |raw: &String| {
    Tier::ALL.iter().copied().chain([Tier::Unmetered]).find(|tier| tier.name() == raw)
});
