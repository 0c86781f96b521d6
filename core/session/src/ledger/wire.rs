//! How this crate's types stand in a line of JSON.

use crate::{Name, Tier};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::Serializer;
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

/// Counters of zero are left out: most of a session's are.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Most entries are for one interval, and do not say so.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
pub(super) fn is_one(count: &u64) -> bool {
    *count == 1
}

pub(super) fn one() -> u64 {
    1
}

/// A module for `#[serde(with = …)]`: how a type is written, and how it is read again.
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

with!(name, Name, String, |name: &Name| name.as_str().to_owned(), |raw: &String| Name::new(raw).ok());
with!(nanos, Nanos, u64, |time: &Nanos| time.0, |raw: &u64| Some(Nanos(*raw)));
with!(bytes, Bytes, u64, |amount: &Bytes| amount.0, |raw: &u64| Some(Bytes(*raw)));
with!(rate, BitsPerSecond, u64, |rate: &BitsPerSecond| rate.0, |raw: &u64| Some(BitsPerSecond(*raw)));
with!(time, Timestamp, String, |at: &Timestamp| super::show_time(*at), |raw: &String| super::parse_time(raw)
    .ok());
with!(tier, Tier, String, |tier: &Tier| tier.name(), |raw: &String| {
    Tier::ALL.iter().copied().find(|tier| tier.name() == raw)
});

use super::{parse_time, show_time};
