//! Amounts of memory x time, for which sessions are charged.

use serde::{Deserialize, Serialize};
use std::fmt;
use weir_units::{Bytes, Nanos};

const PER_SECOND: u128 = 1_000_000_000;
const MIB_HOUR: u128 = (1 << 20) * 3_600 * PER_SECOND;

/// An amount of memory held for a time. It is exact to the byte and nanosecond, so the parts of a split interval add up
/// to the whole. It saturates at 2^64 byte-seconds, which are 544 years of 1 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "SerializedAmount", into = "SerializedAmount")]
pub struct ByteSeconds {
    byte_nanos: u128,
}

impl ByteSeconds {
    /// The largest amount: 2^64 byte-seconds, less a byte-nanosecond.
    pub const MAX: ByteSeconds = ByteSeconds { byte_nanos: (u64::MAX as u128) * PER_SECOND + PER_SECOND - 1 };

    /// Returns the amount for `memory` held for `time`.
    pub fn held_for(memory: Bytes, time: Nanos) -> Self {
        Self::saturated(u128::from(memory.0) * u128::from(time.0))
    }

    /// Returns the sum, at most [`Self::MAX`].
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self::saturated(self.byte_nanos.saturating_add(other.byte_nanos))
    }

    /// Returns millionths of a MiB·h, rounded down.
    pub fn micro_mib_hours(self) -> u128 {
        // At most 2^64 * 10^9 * 10^6 < 2^114.
        self.byte_nanos * 1_000_000 / MIB_HOUR
    }

    /// Returns whole byte-seconds, rounded down.
    pub fn whole(self) -> u64 {
        u64::try_from(self.byte_nanos / PER_SECOND).unwrap_or(u64::MAX)
    }

    fn saturated(byte_nanos: u128) -> Self {
        Self { byte_nanos: byte_nanos.min(Self::MAX.byte_nanos) }
    }
}

impl fmt::Display for ByteSeconds {
    /// Writes MiB·h with six decimals, rounded down.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.micro_mib_hours();
        write!(f, "{}.{:06} MiB·h", micros / 1_000_000, micros % 1_000_000)
    }
}

/// The form in a line: whole byte-seconds and the remainder in byte-nanoseconds, both small enough for JSON's numbers.
#[derive(Serialize, Deserialize)]
struct SerializedAmount {
    #[serde(rename = "memory_byte_s", default, skip_serializing_if = "super::wire::is_zero")]
    seconds: u64,
    #[serde(rename = "memory_byte_ns", default, skip_serializing_if = "super::wire::is_zero")]
    nanos: u64,
}

impl From<SerializedAmount> for ByteSeconds {
    fn from(raw: SerializedAmount) -> Self {
        Self::saturated(u128::from(raw.seconds) * PER_SECOND + u128::from(raw.nanos))
    }
}

impl From<ByteSeconds> for SerializedAmount {
    fn from(amount: ByteSeconds) -> Self {
        // The remainder is below 10^9.
        let nanos = u64::try_from(amount.byte_nanos % PER_SECOND).unwrap_or(0);
        Self { seconds: amount.whole(), nanos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact_and_saturate() {
        let hour = ByteSeconds::held_for(Bytes(1 << 20), Nanos(3_600_000_000_000));
        assert_eq!((hour.to_string().as_str(), hour.whole()), ("1.000000 MiB·h", 3_600 << 20));
        let odd = ByteSeconds::held_for(Bytes(3), Nanos(500_000_001));
        assert_eq!(serde_json::to_string(&odd).unwrap(), r#"{"memory_byte_s":1,"memory_byte_ns":500000003}"#);
        let most = ByteSeconds::held_for(Bytes(u64::MAX), Nanos(u64::MAX));
        assert_eq!(
            (most, most.saturating_add(odd), most.whole()),
            (ByteSeconds::MAX, ByteSeconds::MAX, u64::MAX)
        );
        for amount in [hour, odd, most, ByteSeconds::default()] {
            let text = serde_json::to_string(&amount).unwrap();
            assert_eq!(serde_json::from_str::<ByteSeconds>(&text).unwrap(), amount);
        }
    }
}
