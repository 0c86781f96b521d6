//! One link, on which frames are sent in the order and at the times that the scheduler decides: by the link's thread, or
//! by the producer of a few frames, if the thread has nothing to do. Waking a thread takes longer than sending a frame.

use super::traced::{BeginTrace, TracedScheduler};
use super::tx_queue::{TxPacketSink, TxQueue};
use crate::event::{EventSink, ObservedEvent};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use weir_demux::Demux;
use weir_netio::{LiveError, LiveSink, Loss, SentTotals, SocketKind};
use weir_sched::link::trace::LinkTraceRecorder;
use weir_sched::link::{
    ChannelCounters, ChannelId, ChannelRefused, ChannelTerms, LinkConfigError, LinkDecision,
    LinkSchedulerConfig, QueueLimit, RateRefused,
};
use weir_units::{BitsPerSecond, Nanos};
use weir_wire::LinkType;

/// The most frames sent with one system call.
const BATCH: usize = 64;
/// The most frames that a producer sends itself. Further frames would keep the producer from its work for too long.
const AT_ONCE_MAX: usize = 4;
/// The pause before an interface without buffer space is tried again.
const NO_BUFFER_PAUSE: Duration = Duration::from_micros(200);
/// The interval at which a link checks its interface, and the longest time that its thread sleeps.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The longest wait for rate that is held because closed or lowered channels have sent ahead of their clocks.
const HELD_WAIT_MAX: Nanos = Nanos(250 * Nanos::MILLISECOND.0);
/// The longest wait, when a channel is closed, for frames that the thread is sending.
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(200);

/// The reason why a link could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The interface cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The scheduler refuses the configuration.
    #[error("link {interface}: {error}")]
    Config {
        /// The interface of the link.
        interface: String,
        /// The scheduler's reason.
        error: LinkConfigError,
    },
    /// The trace of the scheduler's decisions could not be created.
    #[error(
        "link {interface}: the trace of its scheduler cannot be written: {source}; check the folder named by `trace` in [cpu]"
    )]
    Trace {
        /// The interface of the link.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The link's thread could not be started.
    #[error("link {interface}: its thread cannot be started: {source}")]
    Thread {
        /// The interface of the link.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The doorbell by which the producers of frames wake a link's thread.
#[derive(Default)]
pub(super) struct TxDoorbell {
    is_rung: AtomicBool,
    /// Transmit queues that have frames in their inbox.
    queues: Mutex<Vec<Arc<TxQueue>>>,
    thread: OnceLock<Thread>,
    link: OnceLock<Weak<Shared>>,
}

impl TxDoorbell {
    /// Marks a transmit queue, to which `added` frames were added, as ready. Sends a few frames that are due. For all
    /// others, wakes the link's thread.
    pub(super) fn ring(&self, queue: &Arc<TxQueue>, added: usize) {
        if !queue.is_signalled.swap(true, Ordering::AcqRel) {
            lock(&self.queues).push(Arc::clone(queue));
        }
        let link = if added <= AT_ONCE_MAX { self.link.get().and_then(Weak::upgrade) } else { None };
        if !link.is_some_and(|link| link.send_at_once(queue)) {
            self.wake();
        }
    }

    fn wake(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkState {
    /// The link's rate in bits on the wire per second.
    pub rate: BitsPerSecond,
    /// The part of the rate that can be reserved.
    pub reservable: BitsPerSecond,
    /// The part of the rate that is reserved.
    pub reserved: BitsPerSecond,
    /// True if the interface exists and is up.
    pub is_up: bool,
    /// Numbers of frames that the interface accepted and lost.
    pub sent: SentTotals,
}

/// The state of a link that its thread and its handle share.
struct State {
    link: TracedScheduler,
    queues: BTreeMap<ChannelId, Arc<TxQueue>>,
    sent: SentTotals,
    is_up: bool,
}

/// The data that a link's thread and its [`TxHandle`] share.
struct Shared {
    doorbell: Arc<TxDoorbell>,
    /// Locked before `state`.
    transmitter: Mutex<Transmitter>,
    state: Mutex<State>,
    begin: Instant,
    is_over: AtomicBool,
}

/// The interface of a link, and the frames that it has not accepted yet.
struct Transmitter {
    sink: LiveSink,
    batch: Vec<DueFrame>,
    /// A buffer for frames on their way to the scheduler.
    frames: Vec<Vec<u8>>,
}

/// A handle of a link's thread. Dropping the handle ends the thread.
pub struct TxHandle {
    interface: String,
    link_type: LinkType,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for TxDoorbell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxDoorbell").field("is_rung", &self.is_rung).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TxHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxHandle").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl TxHandle {
    /// Opens the interface and starts the thread that sends on it. With `trace`, all inputs and decisions of the
    /// scheduler are recorded.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the interface, the scheduler, the trace or the thread cannot be set up.
    pub fn start(
        interface: &str,
        config: LinkSchedulerConfig,
        events: EventSink,
        trace: Option<BeginTrace<'_>>,
    ) -> Result<Self, LinkError> {
        let sink = LiveSink::open(interface, SocketKind::Packet)?;
        let name = || interface.to_owned();
        let recorder =
            if trace.is_some() { LinkTraceRecorder::new(config) } else { LinkTraceRecorder::silent(config) };
        let mut recorder = recorder.map_err(|error| LinkError::Config { interface: name(), error })?;
        let trace = trace.map(|begin| begin(recorder.take().trim_end())).transpose();
        let trace = trace.map_err(|source| LinkError::Trace { interface: name(), source })?;
        let link = TracedScheduler { recorder, trace };
        let state = State { link, queues: BTreeMap::new(), sent: SentTotals::default(), is_up: sink.is_up() };
        let link_type = sink.link_type();
        let transmitter = Transmitter { sink, batch: Vec::with_capacity(BATCH), frames: Vec::new() };
        let shared = Arc::new(Shared {
            doorbell: Arc::default(),
            transmitter: Mutex::new(transmitter),
            state: Mutex::new(state),
            begin: Instant::now(),
            is_over: AtomicBool::new(false),
        });
        _ = shared.doorbell.link.set(Arc::downgrade(&shared));
        let thread_shared = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("weir-tx-{interface}"))
            .spawn(move || {
                _ = thread_shared.doorbell.thread.set(std::thread::current());
                thread_shared.run(&events);
            })
            .map_err(|source| LinkError::Thread { interface: name(), source })?;
        Ok(Self { interface: name(), link_type, shared, thread: Some(thread) })
    }

    /// The name of the interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The link type of the link's frames.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Opens an output channel if its reservation fits the link. `queue` limits its waiting frames, and only frames
    /// that the filter `allowed` selects are sent.
    ///
    /// # Errors
    ///
    /// [`ChannelRefused`] if the link has too little unreserved rate, or the terms are invalid.
    pub fn open(
        &self,
        terms: ChannelTerms,
        queue: QueueLimit,
        allowed: Option<Arc<Demux>>,
    ) -> Result<TxPacketSink, ChannelRefused> {
        let (mut state, id) = self.shared.retry_while_held(|link, now| link.open(terms, now))?;
        let frame_max = state.link.recorder.link().config().frame_max;
        let frames = (self.link_type, frame_max);
        let queue = Arc::new(TxQueue::new(id, frames, queue, allowed, Arc::clone(&self.shared.doorbell)));
        state.queues.insert(id, Arc::clone(&queue));
        Ok(TxPacketSink(queue))
    }

    /// Changes the terms of a channel if the new reservation fits the link.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); the old terms then stay in force.
    pub fn change(
        &self,
        tx: &TxPacketSink,
        terms: ChannelTerms,
        queue: QueueLimit,
        allowed: Option<Arc<Demux>>,
    ) -> Result<(), ChannelRefused> {
        let id = tx.0.id;
        let (state, ()) = self.shared.retry_while_held(|link, now| link.change(id, terms, now))?;
        tx.0.change(queue, allowed);
        drop(state);
        // With the new terms a waiting frame may be due now.
        self.shared.doorbell.wake();
        Ok(())
    }

    /// Closes a channel. Frames that wait in the channel are lost, and counted.
    pub fn close(&self, tx: &TxPacketSink) {
        let queue = &tx.0;
        queue.close();
        let mut state = self.shared.lock();
        state.queues.remove(&queue.id);
        if let Some(closed) = state.link.call(|link| link.close(queue.id, self.shared.now())) {
            queue.counters.closed.fetch_add(closed.unsent.len() as u64, Ordering::Relaxed);
            queue.release(closed.unsent);
        }
        drop(state);
        // The caller reads the counters next, so frames that the thread is sending are awaited.
        let begin = Instant::now();
        while tx.waiting() > 0 && begin.elapsed() < CLOSE_WAIT_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Changes the link's rate, if all reservations still fit.
    ///
    /// # Errors
    ///
    /// [`RateRefused`] if more is reserved than the new rate allows.
    pub fn set_rate(&self, rate: BitsPerSecond, reservable: BitsPerSecond) -> Result<(), RateRefused> {
        let mut state = self.shared.lock();
        state.link.call(|link| link.set_rate(rate, reservable, self.shared.now()))?;
        drop(state);
        self.shared.doorbell.wake();
        Ok(())
    }

    /// The rate that can be reserved now, without the rate that is held for closed or lowered channels.
    pub fn unreserved(&self) -> BitsPerSecond {
        let state = self.shared.lock();
        state.link.recorder.link().unreserved_at(self.shared.now())
    }

    /// Releases rate that is held for closed or lowered channels, until `wanted` can be reserved or no rate is held.
    pub fn release_held(&self, wanted: BitsPerSecond) {
        let mut state = self.shared.lock();
        state.link.call(|link| link.release_held(wanted, self.shared.now()));
    }

    /// The present state of the link.
    pub fn state(&self) -> LinkState {
        let state = self.shared.lock();
        let config = state.link.recorder.link().config();
        LinkState {
            rate: config.rate,
            reservable: config.reservable,
            reserved: state.link.recorder.link().reserved(),
            is_up: state.is_up,
            sent: state.sent,
        }
    }

    /// The scheduler's counters of a channel, in bytes on the wire, framing included; zeros for a closed channel.
    pub fn counters(&self, tx: &TxPacketSink) -> ChannelCounters {
        self.shared.lock().link.recorder.link().counters(tx.0.id).copied().unwrap_or_default()
    }

    /// Ends the thread. Returns the numbers of frames that the interface accepted and lost.
    pub fn end(mut self) -> SentTotals {
        self.join();
        self.shared.lock().sent
    }

    fn join(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.doorbell.wake();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}

impl Drop for TxHandle {
    fn drop(&mut self) {
        self.join();
    }
}

/// A frame that the scheduler has released and the interface has not accepted yet.
struct DueFrame {
    queue: Arc<TxQueue>,
    frame: Vec<u8>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The link's clock: time since the link was started.
    fn now(&self) -> Nanos {
        Nanos::from(self.begin.elapsed())
    }

    /// Makes a request to the scheduler. If the request is refused because rate is held that will be free within
    /// [`HELD_WAIT_MAX`], repeats the request then. Rate is held when a channel that has sent ahead of its clock is
    /// closed or lowered.
    fn retry_while_held<R>(
        &self,
        call: impl Fn(&mut LinkTraceRecorder<Vec<u8>>, Nanos) -> Result<R, ChannelRefused>,
    ) -> Result<(MutexGuard<'_, State>, R), ChannelRefused> {
        let last = self.now().0.saturating_add(HELD_WAIT_MAX.0);
        loop {
            let mut state = self.lock();
            let now = self.now();
            match state.link.call(|link| call(link, now)) {
                Ok(answer) => return Ok((state, answer)),
                Err(ChannelRefused::OverReserved { wanted, unreserved, held, until })
                    if until > now && until.0 <= last && wanted.0 <= unreserved.0.saturating_add(held.0) =>
                {
                    drop(state);
                    std::thread::sleep(Duration::from_nanos(until.0 - now.0));
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// The loop of the link's thread.
    fn run(&self, events: &EventSink) {
        let mut checked = Instant::now();
        while !self.is_over.load(Ordering::Acquire) {
            let mut transmitter = lock(&self.transmitter);
            if checked.elapsed() >= CHECK_INTERVAL {
                checked = Instant::now();
                self.check_interface(&transmitter.sink, events);
            }
            let until = self.fill(&mut transmitter, BATCH);
            if !transmitter.batch.is_empty() {
                let accepted = self.send(&mut transmitter);
                drop(transmitter);
                if accepted == 0 {
                    std::thread::sleep(NO_BUFFER_PAUSE);
                }
                continue;
            }
            drop(transmitter);
            let wait = until.map_or(CHECK_INTERVAL, |until| {
                Duration::from_nanos(until.0.saturating_sub(self.now().0)).min(CHECK_INTERVAL)
            });
            if !wait.is_zero() && !self.doorbell.is_rung.load(Ordering::Acquire) {
                std::thread::park_timeout(wait);
            }
        }
    }

    /// Sends the frames of a queue on the thread that has queued them, which pays for that. Returns false, and does nothing,
    /// if the link is not idle: its thread then sends the frames of all queues in their order.
    fn send_at_once(&self, queue: &Arc<TxQueue>) -> bool {
        let mut transmitter = match self.transmitter.try_lock() {
            Ok(transmitter) => transmitter,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let is_only_queue =
            || matches!(lock(&self.doorbell.queues).as_slice(), [ready] if Arc::ptr_eq(ready, queue));
        let is_idle = || self.lock().link.recorder.link().is_idle();
        if !transmitter.batch.is_empty() || !is_only_queue() || !is_idle() {
            return false;
        }
        self.doorbell.is_rung.store(true, Ordering::Release);
        // The checks hold for the frames of this queue. Those that another producer adds meanwhile are few.
        let until = self.fill(&mut transmitter, AT_ONCE_MAX);
        if !transmitter.batch.is_empty() {
            self.send(&mut transmitter);
        }
        let has_more = until.is_some() || !transmitter.batch.is_empty();
        drop(transmitter);
        // Another producer may have found the transmitter locked.
        if has_more || self.doorbell.is_rung.load(Ordering::Acquire) {
            self.doorbell.is_rung.store(true, Ordering::Release);
            self.doorbell.unpark();
        }
        true
    }

    /// Reports when the interface goes down or comes up.
    fn check_interface(&self, sink: &LiveSink, events: &EventSink) {
        let is_up = sink.is_up();
        let mut state = self.lock();
        let was_up = std::mem::replace(&mut state.is_up, is_up);
        drop(state);
        let name = sink.name();
        let what = match (was_up, is_up) {
            (true, false) => {
                format!("link {name}: its interface is down, and frames sent through it are lost")
            }
            (false, true) => format!("link {name}: its interface is up"),
            _ => return,
        };
        events(ObservedEvent::Interface { interface: name.to_owned(), what });
    }

    /// Hands newly queued frames to the scheduler, and adds the frames that are due now to the batch, up to `most`.
    /// Returns the time at which to ask again, or `None` if no frame waits.
    fn fill(&self, transmitter: &mut Transmitter, most: usize) -> Option<Nanos> {
        let Transmitter { batch, frames, .. } = transmitter;
        let mut state = self.lock();
        let state = &mut *state;
        let now = self.now();
        if self.doorbell.is_rung.swap(false, Ordering::AcqRel) {
            let ready = std::mem::take(&mut *lock(&self.doorbell.queues));
            for queue in ready {
                // Cleared before the inbox is drained, so that a frame that comes later rings the doorbell again.
                queue.is_signalled.store(false, Ordering::Release);
                queue.drain_into(frames);
                for frame in frames.drain(..) {
                    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
                    let queued = state.link.call(|link| link.enqueue(queue.id, frame, len, now));
                    if let Err(dropped) = queued {
                        // The channel was closed meanwhile. All other reasons were checked when the frame was queued.
                        queue.counters.closed.fetch_add(1, Ordering::Relaxed);
                        queue.release([dropped.packet]);
                    }
                }
            }
        }
        while batch.len() < most {
            match state.link.call(|link| link.next(now)) {
                LinkDecision::Send { channel, packet, .. } => {
                    // Only an open channel sends, so it has a queue.
                    let Some(queue) = state.queues.get(&channel) else { continue };
                    batch.push(DueFrame { queue: Arc::clone(queue), frame: packet });
                }
                LinkDecision::Wait { until } => return Some(until),
                LinkDecision::Idle => return None,
            }
        }
        Some(now)
    }

    /// Hands the batch to the interface and removes the frames that it accepted or lost. Returns their number.
    fn send(&self, transmitter: &mut Transmitter) -> usize {
        let Transmitter { sink, batch, .. } = transmitter;
        let mut lost: [Option<Loss>; BATCH] = [None; BATCH];
        let pieces: Vec<&[u8]> = batch.iter().map(|due| due.frame.as_slice()).collect();
        let done = sink.send_reporting(&pieces, |place, loss| {
            if let Some(slot) = lost.get_mut(place) {
                *slot = Some(loss);
            }
        });
        let handled = done.consumed.min(batch.len());
        for (due, loss) in batch.drain(..handled).zip(lost) {
            match loss {
                None => due.queue.counters.sent(due.frame.len()),
                Some(loss) => due.queue.counters.lost(loss),
            }
            due.queue.release([due.frame]);
        }
        self.lock().sent = sink.totals();
        handled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sched::link::{Cap, Framing, Pacing};
    use weir_units::Bytes;

    /// A link on the loopback interface without a rate of its own; `None` without root.
    fn loopback() -> Option<TxHandle> {
        let config = LinkSchedulerConfig {
            reservable: BitsPerSecond(0),
            framing: Framing::NONE,
            pacing: Pacing::Device,
            ..LinkSchedulerConfig::ethernet(BitsPerSecond(100_000_000_000))
        };
        match TxHandle::start("lo", config, Box::new(|_| {}), None) {
            Ok(link) => Some(link),
            Err(error) => {
                let _ = std::io::Write::write_fmt(
                    &mut std::io::stderr(),
                    format_args!("skipped: needs root ({error})\n"),
                );
                None
            }
        }
    }

    fn open(link: &TxHandle, cap: Option<Cap>) -> TxPacketSink {
        let queue = QueueLimit { packets: 1000, bytes: Bytes(1 << 20) };
        link.open(ChannelTerms { reservation: None, cap, weight: 1, queue }, queue, None).unwrap()
    }

    /// A frame with empty addresses, of the first protocol for local experiments (IEEE 802).
    fn frame() -> [u8; 60] {
        let mut frame = [0; 60];
        frame[12..14].copy_from_slice(&0x88b5_u16.to_be_bytes());
        frame
    }

    #[test]
    fn the_producer_of_a_few_frames_sends_them_if_the_link_is_idle() {
        let Some(link) = loopback() else { return };
        let sink = open(&link, None);
        let (mut offered, mut sent_at_once) = (0, 0);
        while sent_at_once < 50 {
            // The thread has the link when it starts, and when it checks the interface. It may be preempted then.
            assert!(offered < 1000, "{sent_at_once} of {offered} frames were sent at once");
            sink.offer(&frame()).unwrap();
            offered += 1;
            sent_at_once += u64::from(sink.waiting() == 0);
            while sink.waiting() > 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(link.end().packets, offered);
    }

    #[test]
    fn frames_that_wait_for_their_cap_do_not_hold_up_another_channel() {
        let Some(link) = loopback() else { return };
        // Two frames a second are due.
        let (slow, other) = (open(&link, Cap::strict(BitsPerSecond(1000))), open(&link, None));
        for _ in 0..3 {
            slow.offer(&frame()).unwrap();
        }
        for _ in 0..100 {
            other.offer(&frame()).unwrap();
            while other.waiting() > 0 {
                std::thread::yield_now();
            }
        }
        assert!(slow.waiting() > 0, "the cap of the first channel holds");
        assert_eq!(other.counters().packets.load(Ordering::Relaxed), 100);
    }
}
