//! Who follows a stream: its rows as they come, as far as they are taken.
//!
//! Nobody waits for a follower. What waits for one is bounded by its rows and by its bytes, as a row can have long texts; a follower that is slower misses
//! some, and is told how many and where.

use crate::control::protocol::Reply;
use crate::control::spec::TomlValue;
use crate::outbox::BytesInFlight;
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

/// Rows that wait for a follower, at most.
const ROWS_MAX: usize = 4096;
/// Bytes that they take, at most; where no other waits, a row is taken in any case.
const BYTES_MAX: Bytes = Bytes(1 << 20);
/// What a row takes beside its bytes, and so each of its fields, about.
const EACH: u64 = 64;

/// A follower, for whoever has rows.
#[derive(Debug)]
pub(crate) struct Follower {
    stream: u16,
    rows: SyncSender<FollowedRecord>,
    waiting: Arc<AtomicU64>,
    missed: Arc<AtomicU64>,
}

/// What a follower is told. It takes room until this is gone.
#[derive(Debug)]
pub struct FollowedRecord {
    /// A row, or how many are missing here.
    pub reply: Reply,
    /// Its bytes.
    pub(crate) load: BytesInFlight,
}

/// What waits for a follower, and what it missed.
#[derive(Debug)]
pub struct Following {
    rows: Receiver<FollowedRecord>,
    missed: Arc<AtomicU64>,
}

impl Following {
    /// What comes next.
    ///
    /// # Errors
    ///
    /// Nothing has come within that time, or nothing will.
    pub(crate) fn next(&self, within: Duration) -> Result<FollowedRecord, RecvTimeoutError> {
        self.rows.recv_timeout(within)
    }

    /// How many rows are missing since it was told so last.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// What became of something that a follower was to be told.
enum Offered {
    Taken,
    Full,
    Gone,
}

impl Follower {
    /// Who follows this stream of a module, by its number.
    pub(crate) fn of(stream: u16) -> (Self, Following) {
        let (sender, rows) = sync_channel(ROWS_MAX);
        let (waiting, missed) = (Arc::default(), Arc::<AtomicU64>::default());
        let following = Following { rows, missed: Arc::clone(&missed) };
        (Self { stream, rows: sender, waiting, missed }, following)
    }

    /// Tells it of a row of a stream, if it is the one that it follows, and there is room. Says whether it is there still.
    pub(crate) fn offer(&self, stream: u16, row: impl FnOnce() -> BTreeMap<String, TomlValue>) -> bool {
        if self.stream != stream {
            return true;
        }
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            // Not as soon as there is room for one: it would be told of each second one.
            let is_behind = self.waiting.load(Ordering::Relaxed) > BYTES_MAX.0 / 2;
            let told =
                if is_behind { Offered::Full } else { self.tell(Reply::Missed { rows: missed }, EACH) };
            match told {
                Offered::Taken => self.missed.store(0, Ordering::Relaxed),
                Offered::Full => return self.miss(),
                Offered::Gone => return false,
            }
        }
        let row = row();
        let bytes =
            row.iter().map(|(name, value)| EACH + name.len() as u64 + size(value)).sum::<u64>() + EACH;
        match self.tell(Reply::Record(row), bytes) {
            Offered::Taken => true,
            Offered::Full => self.miss(),
            Offered::Gone => false,
        }
    }

    fn miss(&self) -> bool {
        self.missed.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn tell(&self, reply: Reply, bytes: u64) -> Offered {
        // Only this adds to it.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > EACH && waiting.saturating_add(bytes) > BYTES_MAX.0 {
            return Offered::Full;
        }
        match self.rows.try_send(FollowedRecord { reply, load: BytesInFlight::on(&self.waiting, bytes) }) {
            Ok(()) => Offered::Taken,
            Err(TrySendError::Full(_)) => Offered::Full,
            Err(TrySendError::Disconnected(_)) => Offered::Gone,
        }
    }
}

/// What a value takes beside its place, in bytes.
fn size(value: &TomlValue) -> u64 {
    match value {
        TomlValue::Text(text) => text.len() as u64,
        TomlValue::List(values) => values.iter().map(|value| EACH + size(value)).sum(),
        TomlValue::Bool(_) | TomlValue::Whole(_) | TomlValue::Number(_) => 0,
    }
}

/// A row by its fields' names. Bytes are hexadecimal digits; integers beyond JSON's are text.
pub(crate) fn fields(stream: &DeclaredStream, record: &Record<'_>) -> BTreeMap<String, TomlValue> {
    let value = |field: &StreamField, value: FieldValue<'_>| match value {
        FieldValue::Unsigned(value) => {
            i64::try_from(value).map_or_else(|_| TomlValue::Text(value.to_string()), TomlValue::Whole)
        }
        FieldValue::Signed(value) => TomlValue::Whole(value),
        FieldValue::Float(value) if value.is_finite() => TomlValue::Number(value),
        FieldValue::Float(value) => TomlValue::Text(value.to_string()),
        FieldValue::Bool(value) => TomlValue::Bool(value),
        FieldValue::Ip(address) => {
            TomlValue::Text(address.to_ipv4_mapped().map_or_else(|| address.to_string(), |v4| v4.to_string()))
        }
        FieldValue::Bytes(bytes) => TomlValue::Text(field.text(bytes)),
    };
    let named = |field: &StreamField| {
        Some((field.name.to_string(), value(field, field.read(record.row, record.tail)?)))
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

    /// What waits: the numbers of rows, each held against what came and was missed before it.
    fn taken(following: &Following, before: &mut i64) -> usize {
        let mut rows = 0;
        while let Ok(told) = following.next(Duration::ZERO) {
            match told.reply {
                Reply::Missed { rows } => *before += i64::try_from(rows).unwrap(),
                Reply::Record(row) => {
                    assert_eq!(row["number"], TomlValue::Whole(*before));
                    *before += 1;
                    rows += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        rows
    }

    #[test]
    fn bytes_are_hexadecimal_digits_whatever_they_hold() {
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
    fn what_waits_for_who_does_not_read_is_bounded_by_its_bytes_too_and_no_row_is_lost_unsaid() {
        for (len, most) in [(0, 4096), (4000, 260), (16_000, 66), (3 << 20, 1)] {
            let (follower, following) = Follower::of(7);
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
            // With room again it is told what is missing, before the next row.
            let offered = offer(1);
            assert_eq!(taken(&following, &mut before), 1);
            assert_eq!((before, following.missed()), (offered, 0));
        }
    }

    #[test]
    fn other_streams_are_none_of_its_business_and_who_is_gone_is_told_nothing() {
        let (follower, following) = Follower::of(7);
        assert!(follower.offer(8, || unreachable!("it is not asked for")));
        assert!(following.next(Duration::ZERO).is_err());
        assert!((0..1000).all(|number| follower.offer(7, || row(number, 4000))));
        drop(following);
        assert!(!follower.offer(7, || row(0, 4000)));
    }
}
