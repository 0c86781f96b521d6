//! Followers of the record streams of modules: clients that get the rows of the streams when the modules emit them.
//!
//! No module waits for a follower. The rows that wait for a follower are limited in number and in bytes. A slow follower
//! misses rows, and gets a message with the number of missed rows of each stream instead.

use crate::control::status::{FollowedModule, FollowedStream};
use crate::core_thread::record_sender::BytesInFlight;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use weir_admission::Name;
use weir_session::Record;
use weir_units::Bytes;

/// Maximum number of rows that wait for a follower.
const ROWS_MAX: usize = 4096;
/// Maximum number of bytes of the rows that wait for a follower. A single row may be longer.
const BYTES_MAX: Bytes = Bytes(1 << 20);
/// The approximate memory overhead of a row, in bytes.
const OVERHEAD: u64 = 128;

/// The records thread's end of a client: sends the rows of all modules that the client follows.
#[derive(Clone, Debug)]
pub(crate) struct FollowerQueue {
    rows: SyncSender<FollowedRecord>,
    waiting: Arc<AtomicU64>,
}

/// The follower of one module: sends the rows of its followed streams to a client.
#[derive(Debug)]
pub(crate) struct Follower {
    queue: FollowerQueue,
    /// Index of the module among those that the client follows.
    module: u16,
    /// Missed rows of each stream that no message has reported yet; `None` for a stream that is not followed.
    missed: Vec<Option<Arc<AtomicU64>>>,
}

/// The content of a message to a follower.
#[derive(Debug)]
pub(crate) enum FollowedItem {
    /// A row.
    Row {
        /// The row as declared.
        row: Box<[u8]>,
        /// The bytes of its string fields.
        tail: Box<[u8]>,
    },
    /// The number of rows of the stream that the follower has missed since the previous such message.
    Missed(u64),
}

/// A message to a follower. Its bytes count as waiting until the message is dropped.
#[derive(Debug)]
pub struct FollowedRecord {
    /// The stream.
    pub(crate) stream: FollowedStream,
    /// A row, or the number of missed rows.
    pub(crate) item: FollowedItem,
    /// Guard that counts the bytes of the message as waiting.
    pub(crate) in_flight: BytesInFlight,
}

/// The client's end of its followers: receives rows, and the numbers of missed rows.
#[derive(Debug)]
pub struct Following {
    /// The followed modules, by their index in messages.
    pub(crate) modules: Vec<FollowedModule>,
    rows: Receiver<FollowedRecord>,
    missed: Vec<(FollowedStream, Arc<AtomicU64>)>,
}

impl Following {
    /// Creates the queue of a client that follows no module yet.
    pub(crate) fn new() -> (FollowerQueue, Self) {
        let (sender, rows) = sync_channel(ROWS_MAX);
        let queue = FollowerQueue { rows: sender, waiting: Arc::default() };
        (queue, Self { modules: Vec::new(), rows, missed: Vec::new() })
    }

    /// Adds a module with these streams, of which the client follows those in `chosen`; all if `chosen` is empty.
    /// Returns its follower, or `None` without a followed stream.
    pub(crate) fn add(
        &mut self,
        queue: &FollowerQueue,
        module: FollowedModule,
        streams: &[Name],
        chosen: &[Name],
    ) -> Option<Follower> {
        let index = u16::try_from(self.modules.len()).ok()?;
        let follow = |(number, name): (usize, &Name)| {
            let stream = FollowedStream { module: index, stream: u16::try_from(number).ok()? };
            let is_followed = chosen.is_empty() || chosen.contains(name);
            is_followed.then(|| (stream, Arc::<AtomicU64>::default()))
        };
        let followed: Vec<_> = streams.iter().enumerate().map(follow).collect();
        if followed.iter().all(Option::is_none) {
            return None;
        }
        self.modules.push(module);
        let missed = followed.iter().map(|it| it.as_ref().map(|(_, missed)| Arc::clone(missed))).collect();
        self.missed.extend(followed.into_iter().flatten());
        Some(Follower { queue: queue.clone(), module: index, missed })
    }

    /// Returns the next message.
    ///
    /// # Errors
    ///
    /// No message came within this time, or all streams have ended.
    pub(crate) fn next(&self, within: Duration) -> Result<FollowedRecord, RecvTimeoutError> {
        self.rows.recv_timeout(within)
    }

    /// Takes the numbers of missed rows that no message has reported yet, for each stream that has any.
    pub(crate) fn take_missed(&self) -> impl Iterator<Item = (FollowedStream, u64)> {
        let counts = self.missed.iter().map(|(stream, missed)| (*stream, missed.swap(0, Ordering::Relaxed)));
        counts.filter(|(_, rows)| *rows > 0)
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
    /// Sends a record, if the follower follows its stream and has capacity. Without capacity, the row counts as missed.
    /// Returns false if the client's end has been dropped.
    pub(crate) fn offer(&self, record: &Record<'_>) -> bool {
        let Some(Some(missed)) = self.missed.get(usize::from(record.stream)) else { return true };
        let stream = FollowedStream { module: self.module, stream: record.stream };
        // The client's end can take the number at the same time, so each takes what it reports.
        let earlier = missed.swap(0, Ordering::Relaxed);
        if earlier > 0 {
            // The number of missed rows is sent only when half of the capacity is free. Otherwise a slow follower
            // would get such a message after each row.
            let is_behind = self.queue.waiting.load(Ordering::Relaxed) > BYTES_MAX.0 / 2;
            let sent = if is_behind {
                SendOutcome::Full
            } else {
                self.queue.send(stream, 0, || FollowedItem::Missed(earlier))
            };
            match sent {
                SendOutcome::Accepted => {}
                SendOutcome::Full => {
                    missed.fetch_add(earlier, Ordering::Relaxed);
                    return miss(missed);
                }
                SendOutcome::Gone => return false,
            }
        }
        let bytes = (record.row.len() + record.tail.len()) as u64;
        let row = || FollowedItem::Row { row: record.row.into(), tail: record.tail.into() };
        match self.queue.send(stream, bytes, row) {
            SendOutcome::Accepted => true,
            SendOutcome::Full => miss(missed),
            SendOutcome::Gone => false,
        }
    }
}

/// Counts a missed row. Returns true, since the follower still exists.
fn miss(missed: &AtomicU64) -> bool {
    missed.fetch_add(1, Ordering::Relaxed);
    true
}

impl FollowerQueue {
    /// Sends a message of this many bytes, which is made only if there is capacity for it.
    fn send(&self, stream: FollowedStream, bytes: u64, item: impl FnOnce() -> FollowedItem) -> SendOutcome {
        let bytes = bytes.saturating_add(OVERHEAD);
        // Only the records thread raises the count, so the check stays valid.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > OVERHEAD && waiting.saturating_add(bytes) > BYTES_MAX.0 {
            return SendOutcome::Full;
        }
        let in_flight = BytesInFlight::new(&self.waiting, bytes);
        match self.rows.try_send(FollowedRecord { stream, item: item(), in_flight }) {
            Ok(()) => SendOutcome::Accepted,
            Err(TrySendError::Full(_)) => SendOutcome::Full,
            Err(TrySendError::Disconnected(_)) => SendOutcome::Gone,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::RecordOrder;

    fn streams() -> [Name; 3] {
        ["a", "b", "c"].map(|name| Name::new(name).unwrap())
    }

    fn followed(chosen: &[&str]) -> (Follower, Following) {
        let chosen: Vec<Name> = chosen.iter().map(|name| Name::new(name).unwrap()).collect();
        let (queue, mut following) = Following::new();
        let follower = following.add(&queue, FollowedModule::default(), &streams(), &chosen).unwrap();
        (follower, following)
    }

    fn offer(follower: &Follower, stream: u16, number: u64, len: usize) -> bool {
        let tail = vec![b'x'; len];
        let order = RecordOrder::packet(0);
        follower.offer(&Record { order, stream, row: &number.to_le_bytes(), tail: &tail })
    }

    /// The number of waiting rows, each compared with the rows before it.
    fn taken(following: &Following, before: &mut u64) -> usize {
        let mut rows = 0;
        while let Ok(sent) = following.next(Duration::ZERO) {
            match sent.item {
                FollowedItem::Missed(rows) => *before += rows,
                FollowedItem::Row { row, .. } => {
                    assert_eq!(*row, before.to_le_bytes());
                    *before += 1;
                    rows += 1;
                }
            }
        }
        rows
    }

    #[test]
    fn rows_that_wait_for_a_slow_follower_are_bounded_in_bytes_and_missed_rows_are_reported() {
        for (len, most) in [(0, 4096), (4000, 260), (16_000, 66), (3 << 20, 1)] {
            let (follower, following) = followed(&["c"]);
            let (mut number, mut before) = (0, 0);
            let mut offer = |count: u64| {
                for _ in 0..count {
                    assert!(offer(&follower, 2, number, len));
                    number += 1;
                }
                number
            };
            offer(5000);
            let rows = taken(&following, &mut before);
            assert!(rows <= most && rows * 10 >= most * 9, "{len}: {rows}");
            // With room again it is sent what is missing, before the next row.
            let offered = offer(1);
            assert_eq!(taken(&following, &mut before), 1);
            assert_eq!((before, following.take_missed().count()), (offered, 0));
            // Without a further row, the client's end takes the number once.
            let offered = offer(5000);
            taken(&following, &mut before);
            let missed: u64 = following.take_missed().map(|(_, rows)| rows).sum();
            assert_eq!((before + missed, following.take_missed().count()), (offered, 0));
        }
    }

    #[test]
    fn a_follower_gets_only_its_streams_and_none_after_it_has_left() {
        let (follower, following) = followed(&["b", "c"]);
        assert!(offer(&follower, 0, 7, 0) && offer(&follower, 9, 7, 0));
        assert!(following.next(Duration::ZERO).is_err());
        assert!((0..1000).all(|number| offer(&follower, 2, number, 4000)));
        assert_eq!(following.next(Duration::ZERO).unwrap().stream, FollowedStream { module: 0, stream: 2 });
        let missed: Vec<FollowedStream> = following.take_missed().map(|(stream, _)| stream).collect();
        assert_eq!(missed, [FollowedStream { module: 0, stream: 2 }], "the other stream has lost nothing");
        drop(following);
        assert!(!offer(&follower, 2, 0, 4000));
    }

    #[test]
    fn the_rows_of_a_client_end_when_the_last_of_its_modules_does() {
        let (queue, mut following) = Following::new();
        let mut add = |chosen: &[Name]| following.add(&queue, FollowedModule::default(), &streams(), chosen);
        let (first, second) = (add(&[]).unwrap(), add(&[]).unwrap());
        assert!(add(&[Name::new("z").unwrap()]).is_none(), "a module without such a stream is not followed");
        drop((queue, first));
        assert!(offer(&second, 1, 5, 0));
        assert_eq!(following.next(Duration::ZERO).unwrap().stream, FollowedStream { module: 1, stream: 1 });
        assert_eq!(following.next(Duration::ZERO).unwrap_err(), RecvTimeoutError::Timeout);
        drop(second);
        assert_eq!(following.next(Duration::ZERO).unwrap_err(), RecvTimeoutError::Disconnected);
    }
}
