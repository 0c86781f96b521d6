//! Packets on their way out through another interface.
//!
//! The collector puts them into the queue of a link, and a thread of its own sends them when the link's scheduler says so: modules never
//! wait for a link. What does not fit into the queue is lost and counted.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_netio::{Kind, LiveError, SentTotals, Sink};
use weir_sched::link::{
    ChannelId, ChannelTerms, ConfigError, Counters, Decision, Framing, Link, LinkConfig, Pacing,
    QUEUE_PACKETS_MAX, QueueLimit, Refused,
};
use weir_units::{BitsPerSecond, Bytes, Nanos, Shown as _};
use weir_wire::LinkType;

/// Longer ones are none that were captured whole.
const FRAME_MAX: u32 = 262_144;
/// Where nobody says how fast, the interface says it. More than any has.
const NO_LIMIT: BitsPerSecond = BitsPerSecond(1 << 44);
/// The most that waits, and the least room for it.
const QUEUE_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=16 << 20;
/// What waits is at most what goes in a second divided by this.
const QUEUE_PART: u64 = 10;
/// Threads are woken late; so much is made up for.
const CATCH_UP: Nanos = Nanos(2_000_000);
/// Packets that go with one call.
const BATCH: usize = 64;
/// How many packets' room is kept, and how much of each.
const SPARE: usize = 4096;
const SPARE_BYTES: usize = 2048;
/// How long an interface without room is left alone.
const NO_ROOM: Duration = Duration::from_micros(200);
/// How long the end of a run waits for what is still in the queue.
const LAST: Duration = Duration::from_secs(1);

/// Why packets cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The interface.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The rate.
    #[error("--rate: {0}")]
    Rate(#[from] ConfigError),
    /// The queue.
    #[error("--rate: {0}")]
    Queue(#[from] Refused),
    /// One has a link header and the other has not, or another.
    #[error(
        "{}: its packets are {theirs:?}, and those that are read {ours:?}: they cannot be sent there",
        interface.shown()
    )]
    LinkType {
        /// The interface.
        interface: String,
        /// What it takes.
        theirs: LinkType,
        /// What there is.
        ours: LinkType,
    },
    /// What is sent would be read again.
    #[error("{}: the packets are read from there; --send takes another interface", .0.shown())]
    Same(String),
    /// No thread.
    #[error("there is no thread for sending: {0}")]
    Thread(std::io::Error),
}

impl ForwardError {
    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Rate(_) | Self::Queue(_) | Self::LinkType { .. } | Self::Same(_))
    }
}

/// What became of packets that were to be sent.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The interface.
    pub interface: String,
    /// Packets that it took.
    pub packets: u64,
    /// Their bytes.
    pub bytes: Bytes,
    /// Packets that were lost, by cause; also the causes that there were not.
    pub lost: [(&'static str, u64); 8],
}

impl Forwarded {
    /// Packets lost, for whatever cause.
    pub fn lost(&self) -> u64 {
        self.lost.iter().map(|(_, packets)| packets).sum()
    }

    /// Returns true where packets were longer than the interface takes.
    pub fn is_too_long(&self) -> bool {
        self.lost.iter().any(|(cause, packets)| *cause == "too_long" && *packets > 0)
    }

    /// The same by cause, in words.
    pub fn losses(&self) -> String {
        let causes = self.lost.iter().filter(|(_, packets)| *packets > 0);
        let causes: Vec<String> =
            causes.map(|(cause, packets)| format!("{packets} {}", cause.replace('_', " "))).collect();
        if causes.is_empty() { "none lost".to_owned() } else { format!("lost: {}", causes.join(", ")) }
    }
}

struct State {
    link: Link<Vec<u8>>,
    channel: ChannelId,
    /// Room of packets that were sent.
    spare: Vec<Vec<u8>>,
    /// Packets that were captured in part only.
    cut: u64,
    /// No more come, and the thread ends at the latest then.
    ends: Option<Instant>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    begin: Instant,
}

/// A way out through an interface.
pub struct Forwarder {
    interface: String,
    link_type: LinkType,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<SentTotals>>,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forwarder").field("interface", &self.interface).finish_non_exhaustive()
    }
}

/// The queue, while packets are put into it.
pub struct Queue<'a> {
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    now: Nanos,
}

impl Forwarder {
    /// Sends packets of this link type, that are read from `from`, on an interface; no faster than `rate`.
    pub fn start(
        interface: &str,
        from: &str,
        link_type: LinkType,
        rate: Option<BitsPerSecond>,
    ) -> Result<Self, ForwardError> {
        if interface == from {
            return Err(ForwardError::Same(interface.to_owned()));
        }
        let sink = Sink::open(interface, Kind::Packet)?;
        let (theirs, ours) = (sink.link_type(), link_type);
        if theirs != ours {
            return Err(ForwardError::LinkType { interface: interface.to_owned(), theirs, ours });
        }
        let config = LinkConfig {
            rate: rate.unwrap_or(NO_LIMIT),
            reservable: BitsPerSecond(0),
            framing: if ours == LinkType::Ethernet { Framing::ETHERNET } else { Framing::NONE },
            frame_max: FRAME_MAX,
            pacing: rate.map_or(Pacing::Device, |_| Pacing::Link { catch_up: CATCH_UP }),
            channels_max: 1,
        };
        let mut link = Link::new(config)?;
        let bytes = (config.rate.0 / 8 / QUEUE_PART).clamp(*QUEUE_BYTES.start(), *QUEUE_BYTES.end());
        let queue = QueueLimit { packets: QUEUE_PACKETS_MAX, bytes: Bytes(bytes) };
        let terms = ChannelTerms { reservation: None, cap: None, weight: 1, queue };
        let channel = link.open(terms, Nanos(0))?;
        let state = State { link, channel, spare: Vec::new(), cut: 0, ends: None };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), wake: Condvar::new(), begin: Instant::now() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("weir-tx-{interface}"))
            .spawn(move || theirs.send(sink))
            .map_err(ForwardError::Thread)?;
        Ok(Self { interface: interface.to_owned(), link_type, shared, thread: Some(thread) })
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// What it takes.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// For putting packets in. They are sent when this is dropped, at the latest.
    pub fn queue(&self) -> Queue<'_> {
        Queue { shared: &self.shared, state: self.shared.lock(), now: self.shared.now() }
    }

    /// Ends, after what waits was sent, or a second.
    pub fn finish(mut self) -> Forwarded {
        let sent = self.end().unwrap_or_default();
        let mut state = self.shared.lock();
        let channel = state.channel;
        let closed = state.link.close(channel, self.shared.now());
        let (counters, unsent) =
            closed.map_or((Counters::default(), 0), |closed| (closed.counters, closed.unsent.len() as u64));
        let full = counters.dropped_queue_packets.packets + counters.dropped_queue_bytes.packets;
        // The sink takes what the queue has given out. Between the two stands what it had no room for at the end.
        let given = counters.reserved.packets + counters.excess.packets;
        let held = given.saturating_sub(sent.packets + sent.lost());
        Forwarded {
            interface: std::mem::take(&mut self.interface),
            packets: sent.packets,
            bytes: sent.bytes,
            lost: [
                ("queue_full", full),
                ("cut", state.cut + sent.cut),
                ("too_long", counters.dropped_too_long.packets + sent.too_long),
                ("malformed", sent.malformed),
                ("interface_down", sent.down),
                ("interface_gone", sent.gone),
                ("refused", sent.refused),
                ("unsent_at_end", unsent + held),
            ],
        }
    }

    fn end(&mut self) -> Option<SentTotals> {
        let thread = self.thread.take()?;
        self.shared.lock().ends = Some(Instant::now() + LAST);
        self.shared.wake.notify_all();
        thread.join().ok()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue<'_> {
    /// Puts a packet in, if there is room.
    pub fn put(&mut self, packet: &[u8], is_cut: bool) {
        let state = &mut *self.state;
        if is_cut {
            state.cut += 1;
            return;
        }
        let mut copy = state.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(packet);
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        if let Err(dropped) = state.link.enqueue(state.channel, copy, len, self.now) {
            // The link has counted it.
            state.keep(dropped.packet);
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link's clock.
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What the thread does.
    fn send(&self, mut sink: Sink) -> SentTotals {
        // What the link has given out and the interface has not taken yet.
        let mut batch: Vec<Vec<u8>> = Vec::with_capacity(BATCH);
        let mut state = self.lock();
        loop {
            let until = state.fill(&mut batch, self.now());
            let (is_over, ends) =
                state.ends.map_or((false, None), |ends| (Instant::now() >= ends, Some(ends)));
            if is_over || (ends.is_some() && batch.is_empty() && until.is_none()) {
                break;
            }
            if batch.is_empty() {
                let wait = until.map_or(Duration::MAX, |until| {
                    Duration::from_nanos(until.0.saturating_sub(self.now().0))
                });
                let most = ends.map_or(Duration::MAX, |ends| ends.saturating_duration_since(Instant::now()));
                let wait = wait.min(most).min(LAST);
                state = self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            drop(state);
            let packets: Vec<&[u8]> = batch.iter().map(Vec::as_slice).collect();
            let taken = sink.send(&packets).taken;
            if taken == 0 {
                std::thread::sleep(NO_ROOM);
            }
            state = self.lock();
            batch.drain(..taken.min(batch.len())).for_each(|packet| state.keep(packet));
        }
        sink.totals()
    }
}

impl State {
    /// Keeps a packet's room for another, if it is of the usual size.
    fn keep(&mut self, packet: Vec<u8>) {
        if self.spare.len() < SPARE && packet.capacity() <= SPARE_BYTES {
            self.spare.push(packet);
        }
    }

    /// Adds what may go now to the batch. When to ask again, where something waits that may not; never where nothing waits.
    fn fill(&mut self, batch: &mut Vec<Vec<u8>>, now: Nanos) -> Option<Nanos> {
        while batch.len() < BATCH {
            match self.link.next(now) {
                Decision::Send { packet, .. } => batch.push(packet),
                Decision::Wait { until } => return Some(until),
                Decision::Idle => return None,
            }
        }
        Some(now)
    }
}
