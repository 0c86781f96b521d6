//! The thread of one link: it sends what its scheduler says, when it says so.

use super::lane::{TxPacketSink, TxQueue};
use super::recorded::{Scheduled, Tracing};
use crate::notice::{ObservedEvent, Tell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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

/// Frames that go with one call.
const BATCH: usize = 64;
/// How long an interface without room is left alone.
const NO_ROOM: Duration = Duration::from_micros(200);
/// How often a link looks after its interface, and after everything else.
const LOOK: Duration = Duration::from_millis(250);
/// What is held for others' sake is waited for, if it comes back within this time.
const HELD: Nanos = Nanos(250 * Nanos::MILLISECOND.0);
/// How long the end of a channel waits for its frames that are under way.
const UNDER_WAY: Duration = Duration::from_millis(200);

/// Why there is no such link. To blame is the operator.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The interface cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The scheduler does not take it.
    #[error("link {interface}: {error}")]
    Config {
        /// Which.
        interface: String,
        /// Why.
        error: LinkConfigError,
    },
    /// What it decides cannot be recorded.
    #[error("what link {interface} decides cannot be recorded: {source}; `trace` in [cpu] names a folder")]
    Trace {
        /// Which.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no thread for it.
    #[error("there is no thread for link {interface}: {source}")]
    Thread {
        /// Which.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// How producers wake a link's thread.
#[derive(Debug, Default)]
pub(super) struct TxDoorbell {
    is_rung: AtomicBool,
    /// Lanes that have something.
    lanes: Mutex<Vec<Arc<TxQueue>>>,
    thread: OnceLock<Thread>,
}

impl TxDoorbell {
    /// There is something in this lane.
    pub(super) fn ring(&self, lane: &Arc<TxQueue>) {
        if !lane.is_told.swap(true, Ordering::AcqRel) {
            lock(&self.lanes).push(Arc::clone(lane));
        }
        self.wake();
    }

    fn wake(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a link does.
#[derive(Clone, Debug, Default)]
pub struct PortState {
    /// Bits on the wire per second.
    pub rate: BitsPerSecond,
    /// How much of that can be reserved.
    pub reservable: BitsPerSecond,
    /// How much is.
    pub reserved: BitsPerSecond,
    /// Whether its interface is there, and up.
    pub is_up: bool,
    /// What the interface took, and what it did not.
    pub sent: SentTotals,
}

struct State {
    link: Scheduled,
    lanes: BTreeMap<ChannelId, Arc<TxQueue>>,
    sent: SentTotals,
    is_up: bool,
}

struct Shared {
    bell: Arc<TxDoorbell>,
    state: Mutex<State>,
    begin: Instant,
    is_over: AtomicBool,
}

/// A link, from outside. It ends when this is dropped.
pub struct TxHandle {
    interface: String,
    link_type: LinkType,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for TxHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl TxHandle {
    /// Opens the interface, and begins to send what comes. All that its scheduler decides is recorded, if there is a record.
    ///
    /// # Errors
    ///
    /// See [`LinkError`].
    pub fn start(
        interface: &str,
        config: LinkSchedulerConfig,
        tell: Tell,
        trace: Option<Tracing<'_>>,
    ) -> Result<Self, LinkError> {
        let sink = LiveSink::open(interface, SocketKind::Packet)?;
        let named = || interface.to_owned();
        let made =
            if trace.is_some() { LinkTraceRecorder::new(config) } else { LinkTraceRecorder::silent(config) };
        let mut recorder = made.map_err(|error| LinkError::Config { interface: named(), error })?;
        let trace = trace.map(|begin| begin(recorder.take().trim_end())).transpose();
        let trace = trace.map_err(|source| LinkError::Trace { interface: named(), source })?;
        let link = Scheduled { recorder, trace };
        let state = State { link, lanes: BTreeMap::new(), sent: SentTotals::default(), is_up: sink.is_up() };
        let shared = Arc::new(Shared {
            bell: Arc::default(),
            state: Mutex::new(state),
            begin: Instant::now(),
            is_over: AtomicBool::new(false),
        });
        let (theirs, link_type) = (Arc::clone(&shared), sink.link_type());
        let thread = std::thread::Builder::new()
            .name(format!("weir-tx-{interface}"))
            .spawn(move || {
                _ = theirs.bell.thread.set(std::thread::current());
                theirs.run(sink, &tell);
            })
            .map_err(|source| LinkError::Thread { interface: named(), source })?;
        Ok(Self { interface: named(), link_type, shared, thread: Some(thread) })
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// What its frames begin with.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Opens a channel, if the link has left what it is to be guaranteed. No more than `queue` waits in it, and only frames that `allowed` selects go out.
    ///
    /// # Errors
    ///
    /// The link has not as much left, or the terms make no sense.
    pub fn open(
        &self,
        terms: ChannelTerms,
        queue: QueueLimit,
        allowed: Option<Arc<Demux>>,
    ) -> Result<TxPacketSink, ChannelRefused> {
        let (mut state, id) = self.shared.patiently(|link, now| link.open(terms, now))?;
        let frame_max = state.link.recorder.link().config().frame_max;
        let frames = (self.link_type, frame_max);
        let lane = Arc::new(TxQueue::new(id, frames, queue, allowed, Arc::clone(&self.shared.bell)));
        state.lanes.insert(id, Arc::clone(&lane));
        Ok(TxPacketSink(lane))
    }

    /// Gives a channel other terms from now on, if the link has left what it is to be guaranteed.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); its terms are then as they were.
    pub fn change(
        &self,
        outlet: &TxPacketSink,
        terms: ChannelTerms,
        queue: QueueLimit,
        allowed: Option<Arc<Demux>>,
    ) -> Result<(), ChannelRefused> {
        let id = outlet.0.id;
        let (state, ()) = self.shared.patiently(|link, now| link.change(id, terms, now))?;
        outlet.0.change(queue, allowed);
        drop(state);
        // It may be that something may go at once.
        self.shared.bell.wake();
        Ok(())
    }

    /// Closes a channel. What it had waiting is lost, and counted.
    pub fn close(&self, outlet: &TxPacketSink) {
        let lane = &outlet.0;
        lane.close();
        let mut state = self.shared.lock();
        state.lanes.remove(&lane.id);
        if let Some(closed) = state.link.ask(|link| link.close(lane.id, self.shared.now())) {
            lane.tally.closed.fetch_add(closed.unsent.len() as u64, Ordering::Relaxed);
            lane.done(closed.unsent);
        }
        drop(state);
        // What is in the thread's hands is counted before anybody reads the last count.
        let begin = Instant::now();
        while outlet.waiting() > 0 && begin.elapsed() < UNDER_WAY {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Gives the link another rate, if what is promised of it can still be kept.
    ///
    /// # Errors
    ///
    /// More than that is promised.
    pub fn set_rate(&self, rate: BitsPerSecond, reservable: BitsPerSecond) -> Result<(), RateRefused> {
        let mut state = self.shared.lock();
        state.link.ask(|link| link.set_rate(rate, reservable, self.shared.now()))?;
        drop(state);
        self.shared.bell.wake();
        Ok(())
    }

    /// The rate that can still be reserved: neither reserved nor held for a while.
    pub fn left(&self) -> BitsPerSecond {
        let state = self.shared.lock();
        state.link.recorder.link().left_at(self.shared.now())
    }

    /// Has so much left for what is reserved next, where what others have just given up is held for a while.
    pub fn forgive(&self, wanted: BitsPerSecond) {
        let mut state = self.shared.lock();
        state.link.ask(|link| link.forgive(wanted, self.shared.now()));
    }

    /// What it does.
    pub fn state(&self) -> PortState {
        let state = self.shared.lock();
        let config = state.link.recorder.link().config();
        PortState {
            rate: config.rate,
            reservable: config.reservable,
            reserved: state.link.recorder.link().reserved(),
            is_up: state.is_up,
            sent: state.sent,
        }
    }

    /// What a channel was sent by its reservation, and with what others left: bytes on the wire, framing included. Nothing where it is closed.
    pub fn counters(&self, outlet: &TxPacketSink) -> ChannelCounters {
        self.shared.lock().link.recorder.link().counters(outlet.0.id).copied().unwrap_or_default()
    }

    /// Ends it. What the interface took until then, and what it did not.
    pub fn end(mut self) -> SentTotals {
        self.join();
        self.shared.lock().sent
    }

    fn join(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.bell.wake();
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

/// A frame that the scheduler has given out, and that the interface has not taken yet.
struct Due {
    lane: Arc<TxQueue>,
    frame: Vec<u8>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The link's clock.
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Asks for what may be refused because a channel that is closed or was lowered has sent ahead of its clock: that comes back soon, and is waited
    /// for.
    fn patiently<R>(
        &self,
        ask: impl Fn(&mut LinkTraceRecorder<Vec<u8>>, Nanos) -> Result<R, ChannelRefused>,
    ) -> Result<(MutexGuard<'_, State>, R), ChannelRefused> {
        let last = self.now().0.saturating_add(HELD.0);
        loop {
            let mut state = self.lock();
            let now = self.now();
            match state.link.ask(|link| ask(link, now)) {
                Ok(answer) => return Ok((state, answer)),
                Err(ChannelRefused::OverReserved { wanted, left, held, until })
                    if until > now && until.0 <= last && wanted.0 <= left.0.saturating_add(held.0) =>
                {
                    drop(state);
                    std::thread::sleep(Duration::from_nanos(until.0 - now.0));
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// What the thread does.
    fn run(&self, mut sink: LiveSink, tell: &Tell) {
        let mut batch: Vec<Due> = Vec::with_capacity(BATCH);
        let mut frames = Vec::new();
        let mut looked = Instant::now();
        while !self.is_over.load(Ordering::Acquire) {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look(&sink, tell);
            }
            let until = self.fill(&mut batch, &mut frames);
            if batch.is_empty() {
                let wait = until.map_or(LOOK, |until| {
                    Duration::from_nanos(until.0.saturating_sub(self.now().0)).min(LOOK)
                });
                if !wait.is_zero() && !self.bell.is_rung.load(Ordering::Acquire) {
                    std::thread::park_timeout(wait);
                }
                continue;
            }
            if self.send(&mut sink, &mut batch) == 0 {
                std::thread::sleep(NO_ROOM);
            }
        }
    }

    /// Notices when the interface has gone or come back.
    fn look(&self, sink: &LiveSink, tell: &Tell) {
        let is_up = sink.is_up();
        let mut state = self.lock();
        let was_up = std::mem::replace(&mut state.is_up, is_up);
        drop(state);
        let name = sink.name();
        let what = match (was_up, is_up) {
            (true, false) => format!("link {name}: its interface is down, and what is sent is lost"),
            (false, true) => format!("link {name}: its interface is up"),
            _ => return,
        };
        tell(ObservedEvent::Interface { interface: name.to_owned(), what });
    }

    /// Gives the scheduler what has come, and adds to the batch what may go now. When to ask again, where something waits that may not; nothing
    /// where nothing waits.
    fn fill(&self, batch: &mut Vec<Due>, frames: &mut Vec<Vec<u8>>) -> Option<Nanos> {
        let mut state = self.lock();
        let state = &mut *state;
        let now = self.now();
        if self.bell.is_rung.swap(false, Ordering::AcqRel) {
            let told = std::mem::take(&mut *lock(&self.bell.lanes));
            for lane in told {
                // First this: what comes from now on is told again.
                lane.is_told.store(false, Ordering::Release);
                lane.take_out(frames);
                for frame in frames.drain(..) {
                    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
                    let queued = state.link.ask(|link| link.enqueue(lane.id, frame, len, now));
                    if let Err(dropped) = queued {
                        // The channel was closed meanwhile; all other causes were looked after when it came in.
                        lane.tally.closed.fetch_add(1, Ordering::Relaxed);
                        lane.done([dropped.packet]);
                    }
                }
            }
        }
        while batch.len() < BATCH {
            match state.link.ask(|link| link.next(now)) {
                LinkDecision::Send { channel, packet, .. } => {
                    // A channel that sends is open, so it has a lane.
                    let Some(lane) = state.lanes.get(&channel) else { continue };
                    batch.push(Due { lane: Arc::clone(lane), frame: packet });
                }
                LinkDecision::Wait { until } => return Some(until),
                LinkDecision::Idle => return None,
            }
        }
        Some(now)
    }

    /// Hands the batch to the interface, as much as it takes. Says how much that is.
    fn send(&self, sink: &mut LiveSink, batch: &mut Vec<Due>) -> usize {
        let mut lost: [Option<Loss>; BATCH] = [None; BATCH];
        let pieces: Vec<&[u8]> = batch.iter().map(|due| due.frame.as_slice()).collect();
        let done = sink.send_telling(&pieces, |place, loss| {
            if let Some(slot) = lost.get_mut(place) {
                *slot = Some(loss);
            }
        });
        let taken = done.taken.min(batch.len());
        for (due, loss) in batch.drain(..taken).zip(lost) {
            match loss {
                None => due.lane.tally.sent(due.frame.len()),
                Some(loss) => due.lane.tally.lost(loss),
            }
            due.lane.done([due.frame]);
        }
        self.lock().sent = sink.totals();
        taken
    }
}
