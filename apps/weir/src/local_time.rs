//! The local time zone.

use chrono::{Local, Offset as _, TimeZone as _};
use weir_units::Timestamp;

/// Returns the offset of local time from UTC at a time, in seconds, by `TZ` or /etc/localtime.
pub fn offset(at: Timestamp) -> i32 {
    let seconds = i64::try_from(at.0 / 1_000_000_000).unwrap_or(i64::MAX);
    Local.timestamp_opt(seconds, 0).single().map_or(0, |time| time.offset().fix().local_minus_utc())
}
