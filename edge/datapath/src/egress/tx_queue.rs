//! The transmit queue of an output channel, as its producers use it. Enqueuing never blocks.

use super::counters::OutputCounters;
use super::link::TxDoorbell;
use crate::effects;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_demux::{ChannelSet, Demux, Packet};
use weir_netio::Loss;
use weir_sched::link::{ChannelId, QueueLimit};
use weir_units::Bytes;
use weir_wire::LinkType;

/// The number of buffers of sent frames that are kept for reuse.
const SPARE_BUFFERS_MAX: usize = 4096;
/// The greatest capacity in bytes of a buffer that is kept for reuse.
const SPARE_BYTES: usize = 2048;

/// A handle by which producers send through an output channel. Clones share the channel; they are cheap and can be
/// used on any thread.
#[derive(Clone, Debug)]
pub struct TxPacketSink(pub(super) Arc<TxQueue>);

/// The reason why a frame was not queued. The channel's [counters](OutputCounters) already include it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxRejection {
    /// The channel's queue is full: the session sends faster than its share allows.
    #[error("the output channel's queue is full")]
    QueueFull,
    /// The frame is longer than the link's longest frame.
    #[error("the frame is longer than the link's longest frame")]
    TooLong,
    /// The channel's filter refuses the frame.
    #[error("the output channel's filter refuses the frame")]
    Filtered,
    /// The session is closed, or is being closed.
    #[error("the output channel is closed")]
    Closed,
}

impl TxPacketSink {
    /// Queues a copy of a frame, including its link header, and sends it if it is due and the link is idle. Never waits.
    ///
    /// # Errors
    ///
    /// [`TxRejection`]: the frame is not queued, and is counted. A queued frame that is lost at the interface later is
    /// counted then.
    pub fn offer(&self, frame: &[u8]) -> Result<(), TxRejection> {
        self.begin_batch().offer(frame)
    }

    /// Queues a copy of a frame that a module built, and completes its checksum. The frame may be a copy of a packet
    /// whose checksum was left to a network card.
    ///
    /// # Errors
    ///
    /// As for [`offer`](Self::offer).
    pub fn offer_from_module(&self, frame: &[u8]) -> Result<(), TxRejection> {
        let link_type = self.0.link_type;
        self.begin_batch().enqueue(frame, |copy| effects::complete_frame(copy, link_type))
    }

    /// Starts a batch of frames. When the batch is dropped, the frames are sent, or the link's thread is woken.
    pub fn begin_batch(&self) -> TxBatch<'_> {
        TxBatch { queue: &self.0, inbox: Some(self.0.lock()), queued: 0 }
    }

    /// Returns true if both handles send through the same output channel.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Counts a frame of this length that cannot be sent because it was captured only in part.
    pub fn count_truncated(&self, len: u32) {
        self.0.count_truncated(len);
    }

    /// Frames sent and lost.
    pub fn counters(&self) -> &OutputCounters {
        &self.0.counters
    }

    /// The number of frames that were queued and have not been sent yet.
    pub fn waiting(&self) -> u32 {
        self.0.lock().waiting
    }
}

/// An output channel whose queue is locked for a batch of frames.
#[derive(Debug)]
pub struct TxBatch<'a> {
    queue: &'a Arc<TxQueue>,
    /// The locked inbox, which is released before the link's thread is woken.
    inbox: Option<MutexGuard<'a, Inbox>>,
    /// The number of frames that were queued.
    queued: usize,
}

impl TxBatch<'_> {
    /// Queues a frame, as [`TxPacketSink::offer`] does.
    ///
    /// # Errors
    ///
    /// [`TxRejection`]: the frame is not queued, and is counted.
    pub fn offer(&mut self, frame: &[u8]) -> Result<(), TxRejection> {
        self.enqueue(frame, |_| {})
    }

    /// Queues a copy of a frame, which `finish` completes first.
    fn enqueue(&mut self, frame: &[u8], finish: impl FnOnce(&mut [u8])) -> Result<(), TxRejection> {
        let queue = &**self.queue;
        let result = match &mut self.inbox {
            Some(inbox) => inbox.accept(frame, queue.frame_max, finish),
            None => Err(TxRejection::Closed),
        };
        match result {
            Ok(()) => self.queued += 1,
            Err(rejection) => {
                let counter = match rejection {
                    TxRejection::QueueFull => &queue.counters.queue_full,
                    TxRejection::TooLong => &queue.counters.too_long,
                    TxRejection::Filtered => &queue.counters.filtered,
                    TxRejection::Closed => &queue.counters.closed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
        result
    }

    /// Counts a frame of this length that was captured only in part.
    pub fn count_truncated(&self, len: u32) {
        self.queue.count_truncated(len);
    }
}

impl Drop for TxBatch<'_> {
    fn drop(&mut self) {
        drop(self.inbox.take());
        if self.queued > 0 {
            self.queue.doorbell.ring(self.queue, self.queued);
        }
    }
}

/// An output channel between its producers and its link.
#[derive(Debug)]
pub(crate) struct TxQueue {
    /// The channel's identifier at the link's scheduler.
    pub(super) id: ChannelId,
    /// The length of the longest frame, in bytes.
    frame_max: u32,
    /// The link type of frames.
    link_type: LinkType,
    inbox: Mutex<Inbox>,
    /// True while the link's thread knows that the inbox has frames.
    pub(super) is_signalled: AtomicBool,
    doorbell: Arc<TxDoorbell>,
    pub(super) counters: OutputCounters,
}

/// The frames that producers have queued, and the limits of the channel.
#[derive(Debug)]
struct Inbox {
    /// Frames that have not been handed to the scheduler yet.
    frames: Vec<Vec<u8>>,
    /// The number of frames in the inbox, in the scheduler and under way.
    waiting: u32,
    /// The bytes of the waiting frames.
    waiting_bytes: Bytes,
    /// The limits of the waiting frames.
    limit: QueueLimit,
    /// The filter of frames that may be sent; `None` allows all.
    allowed: Option<Arc<Demux>>,
    is_closed: bool,
    /// Buffers of sent frames, for reuse.
    spare_buffers: Vec<Vec<u8>>,
}

impl TxQueue {
    pub(super) fn new(
        id: ChannelId,
        (link_type, frame_max): (LinkType, u32),
        queue: QueueLimit,
        allowed: Option<Arc<Demux>>,
        doorbell: Arc<TxDoorbell>,
    ) -> Self {
        let inbox = Inbox {
            frames: Vec::new(),
            waiting: 0,
            waiting_bytes: Bytes(0),
            limit: queue,
            allowed,
            is_closed: false,
            spare_buffers: Vec::new(),
        };
        let (inbox, is_signalled) = (Mutex::new(inbox), AtomicBool::new(false));
        Self { id, frame_max, link_type, inbox, is_signalled, doorbell, counters: OutputCounters::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a frame of this length that was captured only in part. If the whole frame could not have been sent, this is
    /// the cause that is counted.
    fn count_truncated(&self, len: u32) {
        if len > self.frame_max {
            self.counters.too_long.fetch_add(1, Ordering::Relaxed);
        } else {
            self.counters.lost(Loss::Cut);
        }
    }

    /// Moves the queued frames to the end of `into`.
    pub(super) fn drain_into(&self, into: &mut Vec<Vec<u8>>) {
        into.append(&mut self.lock().frames);
    }

    /// Releases frames that were sent or lost, and keeps their buffers for reuse.
    pub(super) fn release(&self, buffers: impl IntoIterator<Item = Vec<u8>>) {
        let mut inbox = self.lock();
        for buffer in buffers {
            inbox.waiting = inbox.waiting.saturating_sub(1);
            inbox.waiting_bytes.0 = inbox.waiting_bytes.0.saturating_sub(buffer.len() as u64);
            if !inbox.is_closed
                && inbox.spare_buffers.len() < SPARE_BUFFERS_MAX
                && buffer.capacity() <= SPARE_BYTES
            {
                inbox.spare_buffers.push(buffer);
            }
        }
    }

    /// Sets other limits. Frames that are queued already stay.
    pub(super) fn change(&self, queue: QueueLimit, allowed: Option<Arc<Demux>>) {
        let mut inbox = self.lock();
        (inbox.limit, inbox.allowed) = (queue, allowed);
    }

    /// Closes the channel and drops the frames that have not been handed to the scheduler yet.
    pub(super) fn close(&self) {
        let mut inbox = self.lock();
        inbox.is_closed = true;
        let dropped = std::mem::take(&mut inbox.frames);
        inbox.spare_buffers = Vec::new();
        drop(inbox);
        self.counters.closed.fetch_add(dropped.len() as u64, Ordering::Relaxed);
        self.release(dropped);
    }
}

impl Inbox {
    /// Checks the limits and the filter, and appends a copy of the frame, which `finish` completes first.
    fn accept(
        &mut self,
        frame: &[u8],
        frame_max: u32,
        finish: impl FnOnce(&mut [u8]),
    ) -> Result<(), TxRejection> {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        if self.is_closed {
            return Err(TxRejection::Closed);
        }
        if len > frame_max {
            return Err(TxRejection::TooLong);
        }
        let bytes = self.waiting_bytes.0.saturating_add(len.into());
        if self.waiting >= self.limit.packets || bytes > self.limit.bytes.0 {
            return Err(TxRejection::QueueFull);
        }
        if let Some(allowed) = &self.allowed
            && !is_selected(allowed, frame, len)
        {
            return Err(TxRejection::Filtered);
        }
        let mut copy = self.spare_buffers.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(frame);
        finish(&mut copy);
        self.frames.push(copy);
        self.waiting += 1;
        self.waiting_bytes = Bytes(bytes);
        Ok(())
    }
}

/// Returns true if a filter selects this frame.
fn is_selected(allowed: &Demux, frame: &[u8], len: u32) -> bool {
    let mut wanted = ChannelSet::NONE;
    let packet = Packet { head: frame, cap_len: len, wire_len: len };
    // The frame is complete, so the filter cannot ask for more bytes.
    allowed.channels(&packet, &mut wanted).is_ok() && !wanted.is_empty()
}
