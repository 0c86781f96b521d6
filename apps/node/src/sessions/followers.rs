//! Followers of a module's record stream: clients that get the rows of the stream when the module emits them.
//!
//! No module waits for a follower. The rows that wait for a follower are limited in number and in bytes. A slow follower
//! misses rows, and gets a message with the number of missed rows instead.

use crate::control::spec::TomlValue;
use crate::core_thread::record_sender::BytesInFlight;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use weir_units::Bytes;
use {
    weir_admission::{DeclaredStream, FieldValue, StreamField},
    weir_session::Record,
};

/// Maximum number of rows that wait for a follower.
const ROWS_MAX: usize = 4096;
/// Maximum number of bytes of the rows that wait for a follower. A single row may be longer.
const BYTES_MAX: Bytes = Bytes(1 << 20);
/// The approximate memory overhead of a row, and of each of its fields, in bytes.
const OVERHEAD: u64 = 64;

/// The records thread's end of a follower: sends rows to it.
#[derive(Debug)]
pub(crate) struct Follower {
    stream: u16,
    rows: SyncSender<FollowedRecord>,
    waiting: Arc<AtomicU64>,
    missed: Arc<AtomicU64>,
}

/// The content of a message to a follower.
#[derive(Debug)]
pub(crate) enum FollowedItem {
    /// A row: its fields by name.
    Row(BTreeMap<String, TomlValue>),
    /// The number of rows that the follower has missed since the previous row.
    Missed(u64),
}

/// A message to a follower. Its bytes count as waiting until the message is dropped.
#[derive(Debug)]
pub struct FollowedRecord {
    /// A row, or the number of missed rows.
    pub(crate) item: FollowedItem,
    /// Guard that counts the bytes of the message as waiting.
    pub(crate) in_flight: BytesInFlight,
}

/// The client's end of a follower: receives rows, and the number of missed rows.
#[derive(Debug)]
pub struct Following {
    rows: Receiver<FollowedRecord>,
    missed: Arc<AtomicU64>,
}

impl Following {
    /// Returns the next message.
    ///
    /// # Errors
    ///
    /// No message came within this time, or the stream has ended.
    pub(crate) fn next(&self, within: Duration) -> Result<FollowedRecord, RecvTimeoutError> {
        self.rows.recv_timeout(within)
    }

    /// Returns the number of missed rows that no message has reported yet.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// The result of sending a message to a follower.
enum SendOutcome {
    /// The message was sent.
    Accepted,
    /// The follower has too many waiting rows.
    Full,
    /// The client's end has been dropped.
    Gone,
}

impl Follower {
    /// Creates a follower of this stream of a module.
    pub(crate) fn new(stream: u16) -> (Self, Following) {
        let (sender, rows) = sync_channel(ROWS_MAX);
        let (waiting, missed) = (Arc::default(), Arc::<AtomicU64>::default());
        let following = Following { rows, missed: Arc::clone(&missed) };
        (Self { stream, rows: sender, waiting, missed }, following)
    }

    /// Sends a row of a stream, if the follower follows this stream and has capacity. Without capacity, the row counts
    /// as missed. Returns false if the client's end has been dropped.
    pub(crate) fn offer(&self, stream: u16, row: impl FnOnce() -> BTreeMap<String, TomlValue>) -> bool {
        if self.stream != stream {
            return true;
        }
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            // The number of missed rows is sent only when half of the capacity is free. Otherwise a slow follower
            // would get such a message after each row.
            let is_behind = self.waiting.load(Ordering::Relaxed) > BYTES_MAX.0 / 2;
            let sent =
                if is_behind { SendOutcome::Full } else { self.send(FollowedItem::Missed(missed), OVERHEAD) };
            match sent {
                SendOutcome::Accepted => self.missed.store(0, Ordering::Relaxed),
                SendOutcome::Full => return self.miss(),
                SendOutcome::Gone => return false,
            }
        }
        let row = row();
        let bytes = row.iter().map(|(name, value)| OVERHEAD + name.len() as u64 + size(value)).sum::<u64>()
            + OVERHEAD;
        match self.send(FollowedItem::Row(row), bytes) {
            SendOutcome::Accepted => true,
            SendOutcome::Full => self.miss(),
            SendOutcome::Gone => false,
        }
    }

    /// Counts a missed row. Returns true, since the follower still exists.
    fn miss(&self) -> bool {
        self.missed.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn send(&self, item: FollowedItem, bytes: u64) -> SendOutcome {
        // Only this thread raises the count, so the check stays valid.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > OVERHEAD && waiting.saturating_add(bytes) > BYTES_MAX.0 {
            return SendOutcome::Full;
        }
        match self.rows.try_send(FollowedRecord { item, in_flight: BytesInFlight::new(&self.waiting, bytes) })
        {
            Ok(()) => SendOutcome::Accepted,
            Err(TrySendError::Full(_)) => SendOutcome::Full,
            Err(TrySendError::Disconnected(_)) => SendOutcome::Gone,
        }
    }
}

/// Returns the memory of a value in bytes, without the overhead of its field.
fn size(value: &TomlValue) -> u64 {
    match value {
        TomlValue::Text(text) => text.len() as u64,
        TomlValue::List(values) => values.iter().map(|value| OVERHEAD + size(value)).sum(),
        TomlValue::Bool(_) | TomlValue::Whole(_) | TomlValue::Number(_) => 0,
    }
}

/// Returns the fields of a row by name, without those that are null. Bytes become hexadecimal digits, and integers beyond the range of `i64` become
/// text.
pub(crate) fn fields(stream: &DeclaredStream, record: &Record<'_>) -> BTreeMap<String, TomlValue> {
    let value = |field: &StreamField, value: FieldValue<'_>| {
        Some(match value {
            FieldValue::Unsigned(value) => {
                i64::try_from(value).map_or_else(|_| TomlValue::Text(value.to_string()), TomlValue::Whole)
            }
            FieldValue::Signed(value) => TomlValue::Whole(value),
            FieldValue::Float(value) if value.is_finite() => TomlValue::Number(value),
            FieldValue::Float(value) => TomlValue::Text(value.to_string()),
            FieldValue::Bool(value) => TomlValue::Bool(value),
            FieldValue::Ip(address) => TomlValue::Text(
                address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string()),
            ),
            FieldValue::Bytes(bytes) => TomlValue::Text(field.text(bytes)),
            FieldValue::Null => return None,
        })
    };
    let named = |field: &StreamField| {
        Some((field.name.to_string(), value(field, field.read(record.row, record.tail)?)?))
    };
    stream.fields.iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: i64, len: usize) -> BTreeMap<String, TomlValue> {
        let fields = [("number", TomlValue::Whole(number)), ("text", TomlValue::Text("x".repeat(len)))];
        fields.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// The number of waiting rows, each compared with the rows before it.
    fn taken(following: &Following, before: &mut i64) -> usize {
        let mut rows = 0;
        while let Ok(sent) = following.next(Duration::ZERO) {
            match sent.item {
                FollowedItem::Missed(rows) => *before += i64::try_from(rows).unwrap(),
                FollowedItem::Row(row) => {
                    assert_eq!(row["number"], TomlValue::Whole(*before));
                    *before += 1;
                    rows += 1;
                }
            }
        }
        rows
    }

    #[test]
    fn bytes_are_shown_as_hexadecimal_digits_whatever_they_contain() {
        let text = "name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n[[stream]]\nname='s'\n\
                    [[stream.field]]\nname='b'\ntype='bytes'\n[[stream.field]]\nname='s'\ntype='string'\n";
        let stream = weir_admission::Manifest::parse(text.as_bytes()).unwrap().streams.remove(0);
        for (tail, digits, string) in [
            (b"GET /", "4745", "T /"),
            (b"\x00\xff\x1b[m", "00ff", "\u{1b}[m"),
            (b"aba\xffb", "6162", "a\u{fffd}b"),
        ] {
            let row: Vec<u8> = [0u32, 2, 2, 3].into_iter().flat_map(u32::to_le_bytes).collect();
            let record = Record { order: weir_session::RecordOrder::packet(0), stream: 0, row: &row, tail };
            let expected = [("b", digits), ("s", string)]
                .map(|(name, text)| (name.to_owned(), TomlValue::Text(text.to_owned())));
            assert_eq!(super::fields(&stream, &record), expected.into());
        }
    }

    #[test]
    fn rows_that_wait_for_a_slow_follower_are_bounded_in_bytes_and_missed_rows_are_reported() {
        for (len, most) in [(0, 4096), (4000, 260), (16_000, 66), (3 << 20, 1)] {
            let (follower, following) = Follower::new(7);
            let (mut number, mut before) = (0, 0);
            let mut offer = |count: i64| {
                for _ in 0..count {
                    assert!(follower.offer(7, || row(number, len)));
                    number += 1;
                }
                number
            };
            let offered = offer(5000);
            let rows = taken(&following, &mut before);
            assert!(rows <= most && rows * 10 >= most * 9, "{len}: {rows}");
            assert_eq!(before + i64::try_from(following.missed()).unwrap(), offered);
            // With room again it is sent what is missing, before the next row.
            let offered = offer(1);
            assert_eq!(taken(&following, &mut before), 1);
            assert_eq!((before, following.missed()), (offered, 0));
        }
    }

    #[test]
    fn a_follower_gets_only_its_stream_and_none_after_it_has_left() {
        let (follower, following) = Follower::new(7);
        assert!(follower.offer(8, || unreachable!("it is not asked for")));
        assert!(following.next(Duration::ZERO).is_err());
        assert!((0..1000).all(|number| follower.offer(7, || row(number, 4000))));
        drop(following);
        assert!(!follower.offer(7, || row(0, 4000)));
    }
}
