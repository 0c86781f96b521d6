//! The thread of one interface: it takes packets, finds out who wants them, and puts them into queues.

use crate::link::Way;
use crate::queue::Queue;
use crate::runner::Waker;
use crate::spec::Unattended;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_demux::{ChannelSet, Demux, JoinError, Limits, MoreBytes, Packet, Program, ProgramError};
use weir_netio::{
    Block, DescriptorRing, Drops, Filter, FilterError, Live, LiveError, LiveNext, LiveOptions, Selection,
};
use weir_session::ledger::DropCause;
use weir_units::{Bytes, Nanos};
use weir_wire::{LinkType, PEEK};

/// How long to wait for a packet before looking after everything else.
const WAIT: Nanos = Nanos(50 * Nanos::MILLISECOND.0);
/// While the interface's memory is full, readers are given so long before it is looked at again.
const FULL: Duration = Duration::from_micros(200);
/// Events of an interface that are kept for those who ask.
const EVENTS_MAX: usize = 16;

/// What a channel got and lost. Counters only grow.
#[derive(Debug, Default)]
pub struct ChannelTally {
    /// Packets that its filter selected.
    pub packets: AtomicU64,
    /// Their bytes on the link.
    pub bytes: AtomicU64,
    /// Of these, what went on without a module, and its bytes.
    pub passed: AtomicU64,
    /// Bytes on the link of what went on without a module.
    pub passed_bytes: AtomicU64,
    /// Lost because a queue was full.
    pub queue_full: AtomicU64,
    /// Lost because a reader lagged too far behind.
    pub lagged: AtomicU64,
    /// Lost because the channel's own memory was full.
    pub no_memory: AtomicU64,
    /// Lost because the interface's memory was full, and others had a higher priority.
    pub shed: AtomicU64,
    /// Lost because their reader lagged too far behind and was ended.
    pub ended: AtomicU64,
    /// Lost because their session was closed or their module unloaded, and nothing goes on without it.
    pub closed: AtomicU64,
}

impl ChannelTally {
    /// Each cause with its count, as the ledger names them.
    pub fn drops(&self) -> [(DropCause, u64); 6] {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            (DropCause::QueueFull, get(&self.queue_full)),
            (DropCause::Lagged, get(&self.lagged)),
            (DropCause::NoMemory, get(&self.no_memory)),
            (DropCause::Shed, get(&self.shed)),
            (DropCause::ReaderEnded, get(&self.ended)),
            (DropCause::Closed, get(&self.closed)),
        ]
    }
}

/// Who takes a channel's packets.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Which module.
    pub guest: u64,
    /// Where its packets wait.
    pub queue: Arc<Queue>,
    /// Who is to be woken.
    pub waker: Waker,
}

/// How far a reader may lag, and what becomes of it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Bytes of traffic.
    pub most: u64,
    /// Whether its session is to be closed.
    pub ends: bool,
}

/// What a channel's readers see.
#[derive(Clone, Debug)]
pub enum Sight {
    /// The interface's own memory.
    All(Lag),
    /// A copy of what the filter selects. Channels with one filter share it.
    Selected(Arc<Mutex<Selection>>),
}

/// A channel as its interface sees it.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its session, for [`Notice::Lagging`].
    pub session: weir_session::Name,
    /// Of its session.
    pub priority: u8,
    /// Which packets.
    pub program: Program,
    /// What its readers see.
    pub sight: Sight,
    /// Its readers.
    pub readers: Vec<Reader>,
    /// Where its packets go on. With a reader that is the reader's business.
    pub(crate) way: Option<Way>,
    /// What becomes of them where there is no reader.
    pub(crate) unattended: Unattended,
    /// What it got and lost.
    pub tally: Arc<ChannelTally>,
}

/// All channels of an interface.
#[derive(Debug)]
pub struct Plan {
    demux: Demux,
    routes: Vec<Route>,
    /// For each selection, which channels have it.
    selections: Vec<(Arc<Mutex<Selection>>, Vec<usize>)>,
}

/// Why an interface's channels cannot be. To blame is whoever asked for the last one.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The expression is wrong.
    #[error("{0}")]
    Filter(String),
    /// What it compiles to is not what a filter may be.
    #[error("the filter cannot be used: {0}")]
    Program(#[from] ProgramError),
    /// There are too many, or they are too large together.
    #[error("the filters of this interface cannot be joined: {0}")]
    Join(#[from] JoinError),
}

/// Compiles a filter for packets of this link type; an empty one selects all.
pub fn program(expression: &str, link_type: LinkType) -> Result<Program, PlanError> {
    if expression.trim().is_empty() {
        return Ok(Program::everything());
    }
    let wrong = |error: &FilterError| PlanError::Filter(error.to_string());
    let filter = Filter::new(expression).map_err(|error| wrong(&error))?;
    let instructions = filter.instructions(link_type).map_err(wrong)?;
    Ok(Program::new(&instructions)?)
}

impl Plan {
    /// Joins these channels' filters.
    pub fn new(routes: Vec<Route>) -> Result<Self, PlanError> {
        let programs: Vec<Option<&Program>> = routes.iter().map(|route| Some(&route.program)).collect();
        let demux = Demux::new(&programs, &Limits::default())?;
        let mut selections: Vec<(Arc<Mutex<Selection>>, Vec<usize>)> = Vec::new();
        for (number, route) in routes.iter().enumerate() {
            let Sight::Selected(selection) = &route.sight else { continue };
            match selections.iter_mut().find(|(known, _)| Arc::ptr_eq(known, selection)) {
                Some((_, routes)) => routes.push(number),
                None => selections.push((Arc::clone(selection), vec![number])),
            }
        }
        Ok(Self { demux, routes, selections })
    }
}

/// What an interface's thread says by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A session's reader lags further behind than it may, and is to be ended.
    Lagging(weir_session::Name),
    /// Something happened to an interface.
    Interface(String),
    /// An interface can no longer be read.
    Failed(String),
}

/// What an interface did.
#[derive(Clone, Debug, Default)]
pub struct SourceState {
    /// Whether it is up.
    pub is_up: bool,
    /// Packets that the node got.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
    /// Packets that the kernel had no room for, by cause.
    pub drops: Drops,
    /// Packets that no channel wanted.
    pub unwanted: u64,
    /// Why it is no longer read.
    pub failed: Option<String>,
    /// What happened to it last.
    pub events: VecDeque<String>,
}

#[derive(Debug)]
struct Shared {
    plan: Mutex<Arc<Plan>>,
    is_new: AtomicBool,
    is_over: AtomicBool,
    state: Mutex<SourceState>,
}

/// An interface's thread, from outside. It ends when this is dropped.
#[derive(Debug)]
pub struct Source {
    link_type: LinkType,
    ring: DescriptorRing,
    arena: Bytes,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// There is no thread for it.
    #[error("there is no thread for interface {interface}: {source}")]
    Thread {
        /// Which.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Source {
    /// Opens an interface and begins to read. Until it has a plan, nobody wants its packets.
    pub fn start(
        name: &str,
        options: LiveOptions,
        polls: bool,
        core: Option<u16>,
        notices: Sender<Notice>,
    ) -> Result<Self, SourceError> {
        let live = Live::open(name, options)?;
        let shared = Arc::new(Shared {
            plan: Mutex::new(Arc::new(Plan {
                demux: Demux::default(),
                routes: Vec::new(),
                selections: Vec::new(),
            })),
            is_new: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let (link_type, ring) = (live.link_type(), live.descriptors().clone());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("weir-rx-{name}"))
            .spawn(move || {
                if let Some(core) = core {
                    _ = crate::runner::bind(core);
                }
                Receiver::new(live, theirs, notices, polls).run();
            })
            .map_err(|source| SourceError::Thread { interface: name.to_owned(), source })?;
        Ok(Self { link_type, ring, arena: options.ring, shared, thread: Some(thread) })
    }

    /// What its packets begin with.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Where the descriptors of its packets are.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// Memory for its packets.
    pub fn arena(&self) -> Bytes {
        self.arena
    }

    /// From the next block on packets go where this says.
    pub fn follow(&self, plan: Plan) {
        *lock(&self.shared.plan) = Arc::new(plan);
        self.shared.is_new.store(true, Ordering::Release);
    }

    /// How it is.
    pub fn state(&self) -> SourceState {
        lock(&self.shared.state).clone()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Receiver {
    live: Live,
    shared: Arc<Shared>,
    notices: Sender<Notice>,
    polls: bool,
    plan: Arc<Plan>,
    /// Bytes of traffic so far.
    position: u64,
    unwanted: u64,
    head: Vec<u8>,
    /// Room for a packet that goes on.
    frame: Vec<u8>,
    /// For each channel the masks of the present block's batches.
    masks: Vec<Vec<u64>>,
}

impl Receiver {
    fn new(live: Live, shared: Arc<Shared>, notices: Sender<Notice>, polls: bool) -> Self {
        let plan = Arc::clone(&lock(&shared.plan));
        Self {
            live,
            shared,
            notices,
            polls,
            plan,
            position: 0,
            unwanted: 0,
            head: Vec::new(),
            frame: Vec::new(),
            masks: Vec::new(),
        }
    }

    fn run(mut self) {
        let wait = if self.polls { Nanos(0) } else { WAIT };
        let mut reported = std::time::Instant::now();
        while !self.shared.is_over.load(Ordering::Acquire) {
            let next = self.live.next_block(wait);
            // After waiting, so that what arrives after a change goes where that says.
            if self.shared.is_new.swap(false, Ordering::AcqRel) {
                self.plan = Arc::clone(&lock(&self.shared.plan));
            }
            match next {
                Ok(LiveNext::Block(block)) => {
                    self.distribute(&Arc::new(block));
                    self.mop_up(self.position);
                }
                Ok(LiveNext::Event(event)) => self.tell(event.to_string()),
                Ok(LiveNext::Full) => {
                    self.shed();
                    std::thread::sleep(FULL);
                }
                Ok(LiveNext::Quiet) => {}
                Ok(LiveNext::End) => break,
                Err(error) => {
                    lock(&self.shared.state).failed = Some(error.to_string());
                    _ = self.notices.send(Notice::Failed(format!("{}: {error}", self.live.name())));
                    break;
                }
            }
            if reported.elapsed() >= Duration::from_millis(50) {
                reported = std::time::Instant::now();
                self.report();
            }
        }
        self.report();
    }

    fn tell(&mut self, event: String) {
        let mut state = lock(&self.shared.state);
        if state.events.len() == EVENTS_MAX {
            state.events.pop_front();
        }
        state.events.push_back(event.clone());
        drop(state);
        _ = self.notices.send(Notice::Interface(event));
    }

    fn report(&mut self) {
        let totals = self.live.totals();
        let mut state = lock(&self.shared.state);
        state.is_up = self.live.is_up();
        state.packets = totals.received.packets;
        state.bytes = totals.received.bytes.0;
        state.drops = totals.drops;
        state.unwanted = self.unwanted;
    }

    /// Puts a block's packets into the queues of the channels that want them.
    fn distribute(&mut self, block: &Arc<Block>) {
        let plan = Arc::clone(&self.plan);
        let batches = block.batch_count();
        self.masks.resize_with(plan.routes.len(), Vec::new);
        for masks in &mut self.masks {
            masks.clear();
            masks.resize(batches, 0);
        }
        let bytes: u64 = block.descriptors().iter().map(|descriptor| u64::from(descriptor.wire_len)).sum();
        if plan.routes.is_empty() {
            self.unwanted += block.len() as u64;
            self.position += bytes;
            return;
        }
        let mut wanted = ChannelSet::NONE;
        for (index, descriptor) in block.descriptors().iter().enumerate() {
            let mut enough = PEEK;
            loop {
                block.copy_head(index, enough, &mut self.head);
                let (cap_len, wire_len) = (descriptor.cap_len, descriptor.wire_len);
                let packet = Packet { head: &self.head, cap_len, wire_len };
                match plan.demux.channels(&packet, &mut wanted) {
                    Ok(()) => break,
                    Err(MoreBytes { enough: more }) => enough = usize::try_from(more).unwrap_or(usize::MAX),
                }
            }
            let mut is_wanted = false;
            for channel in wanted.iter() {
                let (Some(masks), Some(route)) = (self.masks.get_mut(channel), plan.routes.get(channel))
                else {
                    continue;
                };
                // A channel without a module takes nothing, but for what goes on without one.
                if route.readers.is_empty() && route.way.is_none() {
                    continue;
                }
                is_wanted = true;
                route.tally.packets.fetch_add(1, Ordering::Relaxed);
                route.tally.bytes.fetch_add(descriptor.wire_len.into(), Ordering::Relaxed);
                match &route.way {
                    Some(way) if route.readers.is_empty() => {
                        pass(route, way, block, index, &mut self.frame);
                    }
                    _ => masks[index / 64] |= 1 << (index % 64),
                }
            }
            self.unwanted += u64::from(!is_wanted);
        }
        for (route, masks) in plan.routes.iter().zip(&self.masks) {
            if let Sight::All(_) = route.sight {
                put(route, block, masks, self.position);
            }
        }
        for (selection, routes) in &plan.selections {
            // Channels of one selection have one filter, so what one of them wants all want that have modules.
            let read =
                |route: &&usize| plan.routes.get(**route).is_some_and(|route| !route.readers.is_empty());
            let Some(masks) = routes.iter().find(read).and_then(|route| self.masks.get(*route)) else {
                continue;
            };
            let selected = lock(selection).select(block, masks);
            let copied = selected.block.map(Arc::new);
            for route in routes.iter().filter(read).filter_map(|route| plan.routes.get(*route)) {
                route.tally.no_memory.fetch_add(selected.lost, Ordering::Relaxed);
                if let Some(block) = &copied {
                    let whole: Vec<u64> = block.batches().map(|batch| batch.mask).collect();
                    put(route, block, &whole, self.position);
                }
            }
        }
        self.position += bytes;
    }

    /// Takes from readers what lies too far behind this position, or has them ended.
    fn mop_up(&self, head: u64) {
        for route in &self.plan.routes {
            let Sight::All(lag) = route.sight else { continue };
            let last = head.saturating_sub(lag.most);
            for reader in &route.readers {
                if reader.queue.oldest().is_none_or(|oldest| oldest >= last) {
                    continue;
                }
                if lag.ends {
                    let lost = reader.queue.close();
                    route.tally.ended.fetch_add(lost, Ordering::Relaxed);
                    _ = self.notices.send(Notice::Lagging(route.session.clone()));
                } else {
                    let lost = reader.queue.give_up_before(last);
                    route.tally.lagged.fetch_add(lost, Ordering::Relaxed);
                }
            }
        }
    }

    /// The interface's memory is full of packets that wait: of those who read it, the one with the lowest priority loses the older half of what
    /// waits for it, and of several the one that is furthest behind.
    fn shed(&self) {
        let readers = self.plan.routes.iter().filter(|route| matches!(route.sight, Sight::All(_)));
        let waiting = readers.flat_map(|route| {
            route.readers.iter().filter_map(move |reader| Some((route, reader, reader.queue.oldest()?)))
        });
        let Some((route, reader, oldest)) =
            waiting.min_by_key(|(route, _, oldest)| (route.priority, *oldest))
        else {
            return;
        };
        let half = oldest + (self.position - oldest) / 2;
        // Something goes in any case: what is in one block has one position.
        let lost = reader.queue.give_up_before(half.max(oldest.saturating_add(1)));
        route.tally.shed.fetch_add(lost, Ordering::Relaxed);
    }
}

/// Has a packet go on that no module decides about.
fn pass(route: &Route, way: &Way, block: &Block, packet: usize, frame: &mut Vec<u8>) {
    let tally = &route.tally;
    if route.unattended == Unattended::Drop {
        tally.closed.fetch_add(1, Ordering::Relaxed);
        return;
    }
    way.pass(block, packet, frame);
    let bytes = block.descriptors().get(packet).map_or(0, |descriptor| descriptor.wire_len);
    tally.passed.fetch_add(1, Ordering::Relaxed);
    tally.passed_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
}

fn put(route: &Route, block: &Arc<Block>, masks: &[u64], position: u64) {
    if masks.iter().all(|mask| *mask == 0) {
        return;
    }
    for reader in &route.readers {
        let (lost, wakes) = reader.queue.put(block, masks, position);
        route.tally.queue_full.fetch_add(lost, Ordering::Relaxed);
        if wakes {
            reader.waker.wake(reader.guest);
        }
    }
}
