//! An output channel as its producers see it: frames go in, and nobody ever waits.

use super::port::TxDoorbell;
use super::tally::OutputCounters;
use crate::effects;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_demux::{ChannelSet, Demux, Packet};
use weir_netio::Loss;
use weir_sched::link::{ChannelId, QueueLimit};
use weir_units::Bytes;
use weir_wire::LinkType;

/// How much room of frames that were sent is kept for the next ones: so many, each of at most so many bytes.
const SPARE: usize = 4096;
const SPARE_BYTES: usize = 2048;

/// A way out through an output channel of a session. Clones are the same way; they are cheap, and may be used on any thread.
#[derive(Clone, Debug)]
pub struct TxPacketSink(pub(super) Arc<TxQueue>);

/// Why a frame does not go. It is counted in the channel's [tally](OutputCounters) already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The channel's queue is full: the session sends faster than it may.
    #[error("the output channel's queue is full")]
    QueueFull,
    /// Longer than the link's longest frame.
    #[error("the frame is longer than the link takes")]
    TooLong,
    /// The channel's filter does not let it out.
    #[error("the output channel's filter does not let the frame out")]
    Refused,
    /// The session is closed, or is about to be.
    #[error("the output channel is closed")]
    Closed,
}

impl TxPacketSink {
    /// Has a frame, with its link header, go out when its channel may send. Copies it; never waits.
    ///
    /// # Errors
    ///
    /// It does not go, and is counted. A frame that is taken can still be lost at the interface; then it is counted there.
    pub fn offer(&self, frame: &[u8]) -> Result<(), Lost> {
        self.offers().offer(frame)
    }

    /// The same for a frame that a module made. It may be a copy of a packet whose checksum a host left to its network card, so that is computed.
    ///
    /// # Errors
    ///
    /// As for [`offer`](Self::offer).
    pub fn offer_made(&self, frame: &[u8]) -> Result<(), Lost> {
        let link_type = self.0.link_type;
        self.offers().take(frame, |copy| effects::complete_frame(copy, link_type))
    }

    /// For many frames that go out one after the other. The link's thread learns of them when this is dropped, at the latest.
    pub fn offers(&self) -> Offers<'_> {
        Offers { lane: &self.0, inbox: Some(self.0.lock()), has_any: false }
    }

    /// Returns true if frames go the same way through both.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A frame that was to go out was captured only in part, so that there is nothing to send.
    pub fn cut(&self) {
        self.0.tally.lost(Loss::Cut);
    }

    /// What it sent and lost.
    pub fn tally(&self) -> &OutputCounters {
        &self.0.tally
    }

    /// Frames that have been taken and have not been sent yet.
    pub fn waiting(&self) -> u32 {
        self.0.lock().waiting
    }
}

/// An output channel whose queue is open for frames.
#[derive(Debug)]
pub struct Offers<'a> {
    lane: &'a Arc<TxQueue>,
    /// Given back before the link's thread is woken.
    inbox: Option<MutexGuard<'a, Inbox>>,
    has_any: bool,
}

impl Offers<'_> {
    /// As [`TxPacketSink::offer`].
    ///
    /// # Errors
    ///
    /// It does not go, and is counted.
    pub fn offer(&mut self, frame: &[u8]) -> Result<(), Lost> {
        self.take(frame, |_| {})
    }

    fn take(&mut self, frame: &[u8], finish: impl FnOnce(&mut [u8])) -> Result<(), Lost> {
        let lane = &**self.lane;
        let taken = match &mut self.inbox {
            Some(inbox) => inbox.take_in(frame, lane.frame_max, finish),
            None => Err(Lost::Closed),
        };
        match taken {
            Ok(()) => self.has_any = true,
            Err(lost) => {
                let counter = match lost {
                    Lost::QueueFull => &lane.tally.queue_full,
                    Lost::TooLong => &lane.tally.too_long,
                    Lost::Refused => &lane.tally.refused,
                    Lost::Closed => &lane.tally.closed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        taken
    }

    /// As [`TxPacketSink::cut`].
    pub fn cut(&self) {
        self.lane.tally.lost(Loss::Cut);
    }
}

impl Drop for Offers<'_> {
    fn drop(&mut self) {
        drop(self.inbox.take());
        if self.has_any {
            self.lane.bell.ring(self.lane);
        }
    }
}

/// An output channel between its producers and its link.
#[derive(Debug)]
pub(crate) struct TxQueue {
    /// The link's name for it.
    pub(super) id: ChannelId,
    /// The longest frame.
    frame_max: u32,
    /// What frames begin with.
    link_type: LinkType,
    inbox: Mutex<Inbox>,
    /// The link's thread knows that there is something in the inbox.
    pub(super) is_told: AtomicBool,
    bell: Arc<TxDoorbell>,
    pub(super) tally: OutputCounters,
}

#[derive(Debug)]
struct Inbox {
    /// Not yet given to the scheduler.
    frames: Vec<Vec<u8>>,
    /// Those, those that the scheduler has, and those under way.
    waiting: u32,
    /// Their bytes.
    waiting_bytes: Bytes,
    queue: QueueLimit,
    /// What may go out; None: everything.
    allowed: Option<Arc<Demux>>,
    is_closed: bool,
    spare: Vec<Vec<u8>>,
}

impl TxQueue {
    pub(super) fn new(
        id: ChannelId,
        (link_type, frame_max): (LinkType, u32),
        queue: QueueLimit,
        allowed: Option<Arc<Demux>>,
        bell: Arc<TxDoorbell>,
    ) -> Self {
        let inbox = Inbox {
            frames: Vec::new(),
            waiting: 0,
            waiting_bytes: Bytes(0),
            queue,
            allowed,
            is_closed: false,
            spare: Vec::new(),
        };
        let (inbox, is_told) = (Mutex::new(inbox), AtomicBool::new(false));
        Self { id, frame_max, link_type, inbox, is_told, bell, tally: OutputCounters::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has come since.
    pub(super) fn take_out(&self, into: &mut Vec<Vec<u8>>) {
        into.append(&mut self.lock().frames);
    }

    /// So many frames are done with, however that went; their room is given back.
    pub(super) fn done(&self, rooms: impl IntoIterator<Item = Vec<u8>>) {
        let mut inbox = self.lock();
        for room in rooms {
            inbox.waiting = inbox.waiting.saturating_sub(1);
            inbox.waiting_bytes.0 = inbox.waiting_bytes.0.saturating_sub(room.len() as u64);
            if !inbox.is_closed && inbox.spare.len() < SPARE && room.capacity() <= SPARE_BYTES {
                inbox.spare.push(room);
            }
        }
    }

    /// Other limits from now on. What waits already stays.
    pub(super) fn change(&self, queue: QueueLimit, allowed: Option<Arc<Demux>>) {
        let mut inbox = self.lock();
        (inbox.queue, inbox.allowed) = (queue, allowed);
    }

    /// Takes nothing more, and gives up what the scheduler does not have yet.
    pub(super) fn close(&self) {
        let mut inbox = self.lock();
        inbox.is_closed = true;
        let given_up = std::mem::take(&mut inbox.frames);
        inbox.spare = Vec::new();
        drop(inbox);
        self.tally.closed.fetch_add(given_up.len() as u64, Ordering::Relaxed);
        self.done(given_up);
    }
}

impl Inbox {
    fn take_in(&mut self, frame: &[u8], frame_max: u32, finish: impl FnOnce(&mut [u8])) -> Result<(), Lost> {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        if self.is_closed {
            return Err(Lost::Closed);
        }
        if len > frame_max {
            return Err(Lost::TooLong);
        }
        let bytes = self.waiting_bytes.0.saturating_add(len.into());
        if self.waiting >= self.queue.packets || bytes > self.queue.bytes.0 {
            return Err(Lost::QueueFull);
        }
        if let Some(allowed) = &self.allowed
            && !lets_out(allowed, frame, len)
        {
            return Err(Lost::Refused);
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        finish(&mut copy);
        self.frames.push(copy);
        self.waiting += 1;
        self.waiting_bytes = Bytes(bytes);
        Ok(())
    }
}

/// Whether a filter selects this frame.
fn lets_out(allowed: &Demux, frame: &[u8], len: u32) -> bool {
    let mut wanted = ChannelSet::NONE;
    let packet = Packet { head: frame, cap_len: len, wire_len: len };
    // All of it is there, so no more bytes can be asked for.
    allowed.channels(&packet, &mut wanted).is_ok() && !wanted.is_empty()
}
