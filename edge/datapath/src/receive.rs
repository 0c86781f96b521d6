//! The thread of one interface: it takes packets, finds the channels that want them, and puts them into queues.

use crate::account::{BlockMeter, charge};
use crate::delay::RunDelay;
use crate::egress::Copies;
use crate::notice::ObservedEvent;
use crate::plan::{ForwardingPlan, PlanReader, Planner, Route, Visibility};
use crate::source::{PacketSource, Poll};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_abi::flag;
use weir_demux::{ChannelSet, FragmentCounters, Fragments, JoinError, JoinLimits, MoreBytes, Packet};
use weir_netio::{Block, DescriptorRing, LiveError, LiveOptions, ReceiveDrops, Selection};
use weir_sandbox::{Cycles, thread_time};
use weir_units::{Bytes, Nanos};
use weir_wire::{LinkType, PEEK, PEEK_MAX};

/// How long to wait for a packet before looking after everything else.
const WAIT: Nanos = Nanos(50 * Nanos::MILLISECOND.0);
/// While the interface's memory is full, readers are given so long before it is looked at again.
const FULL: Duration = Duration::from_micros(200);
/// Events of an interface that are kept for those who ask.
const EVENTS_MAX: usize = 16;
/// Datagrams of which later fragments are expected, and for how long: as Linux waits for them.
const DATAGRAMS: usize = 4096;
const DATAGRAM_LIFETIME: Nanos = Nanos(30 * Nanos::SECOND.0);
/// One block of packets never takes so long: who waits for its end does not wait for ever.
const LONGEST: Duration = Duration::from_secs(1);
/// How often readers of a selection are made to give something up for one block of packets, at most.
const SHEDS_MAX: usize = 64;

/// What an interface did.
#[derive(Clone, Debug, Default)]
pub struct ReceiverState {
    /// Whether it is up.
    pub is_up: bool,
    /// Packets that the node got.
    pub packets: u64,
    /// Their bytes on the link.
    pub bytes: u64,
    /// Packets that the kernel had no room for, by cause.
    pub drops: ReceiveDrops,
    /// Packets that no channel wanted.
    pub unwanted: u64,
    /// What became of fragments.
    pub fragments: FragmentCounters,
    /// Time that its thread was ready to run, and others had the processor.
    pub stolen: Nanos,
    /// Why it is no longer read.
    pub failed: Option<String>,
    /// What happened to it last.
    pub events: VecDeque<String>,
}

#[derive(Debug)]
struct Shared {
    plan: Mutex<Arc<ForwardingPlan>>,
    /// Plans that no longer hold: whoever makes the next one drops them, since that takes long.
    gone: Mutex<Vec<Arc<ForwardingPlan>>>,
    is_new: AtomicBool,
    /// How often the thread has begun or ended to do something by its plan: odd while it does.
    at_work: AtomicU64,
    is_over: AtomicBool,
    state: Mutex<ReceiverState>,
}

/// The thread that receives the packets of one interface. It ends when this is dropped.
#[derive(Debug)]
pub struct Receiver {
    link_type: LinkType,
    ring: DescriptorRing,
    arena: Bytes,
    planner: Mutex<Planner>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Its memory is filled in turn.
    is_filled_in_turn: bool,
}

/// A plan that is not followed yet.
#[derive(Debug)]
pub struct Planned {
    planner: Planner,
    plan: ForwardingPlan,
}

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
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

impl Receiver {
    /// Opens an interface and begins to receive, on a thread that does `first` before anything else. Without a plan no channel wants its packets.
    ///
    /// # Errors
    ///
    /// See [`ReceiveError`].
    pub fn start(
        name: &str,
        options: LiveOptions,
        polls: bool,
        first: impl FnOnce() + Send + 'static,
        notices: Sender<ObservedEvent>,
    ) -> Result<Self, ReceiveError> {
        let source = PacketSource::interface(name, options)?;
        let shared = Arc::new(Shared {
            plan: Mutex::default(),
            gone: Mutex::default(),
            is_new: AtomicBool::new(true),
            at_work: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            state: Mutex::default(),
        });
        let ring = source.descriptors().clone();
        let link_type = source.link_types().first().copied().unwrap_or(LinkType::Ethernet);
        let is_filled_in_turn = source.is_filled_in_turn();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("weir-rx-{name}"))
            .spawn(move || {
                first();
                Receiving::new(source, theirs, notices, polls).run();
            })
            .map_err(|source| ReceiveError::Thread { interface: name.to_owned(), source })?;
        let planner = Mutex::default();
        let (arena, thread) = (options.ring, Some(thread));
        Ok(Self { link_type, ring, arena, planner, shared, thread, is_filled_in_turn })
    }

    /// True where the kernel fills its memory in turn, so that packets cannot wait there for long.
    pub fn is_filled_in_turn(&self) -> bool {
        self.is_filled_in_turn
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

    /// From the next block on packets go to these channels.
    ///
    /// # Errors
    ///
    /// Their filters are too many or too much together; packets then go where they went before.
    pub fn follow(&self, routes: Vec<Route>) -> Result<(), JoinError> {
        let mut planner = lock(&self.planner);
        let plan = planner.plan(routes)?;
        self.publish(plan);
        Ok(())
    }

    /// A plan for these channels, which [takes effect](Self::take_up) later, or never.
    ///
    /// # Errors
    ///
    /// As for [`follow`](Self::follow).
    pub fn plan(&self, routes: Vec<Route>) -> Result<Planned, JoinError> {
        let mut planner = lock(&self.planner).clone();
        let plan = planner.plan(routes)?;
        Ok(Planned { planner, plan })
    }

    /// Follows a plan for this interface, if no other one was followed since it was made.
    pub fn take_up(&self, planned: Planned) {
        let mut planner = lock(&self.planner);
        *planner = planned.planner;
        self.publish(planned.plan);
    }

    /// Joins all filters where some came or went, and it has been quiet since. That can take long; packets go where they should all the while.
    pub fn settle(&self) {
        let Some(filters) = lock(&self.planner).unsettled(Instant::now()) else { return };
        let joined = weir_demux::whole(&filters, &JoinLimits::default());
        let mut planner = lock(&self.planner);
        if let Some(joined) = planner.settle(&filters, joined) {
            let plan = lock(&self.shared.plan).with(joined);
            self.publish(plan);
        }
    }

    /// The plan from the next block on. The planner is held meanwhile, so that of two plans the later one stays. When this returns nothing is done by the
    /// earlier plan any more: what a channel that is gone got or lost is counted, and can be billed.
    fn publish(&self, plan: ForwardingPlan) {
        let before = std::mem::replace(&mut *lock(&self.shared.plan), Arc::new(plan));
        // The thread sees this when it begins something, or is seen to have begun it before.
        self.shared.is_new.store(true, Ordering::SeqCst);
        let (at_work, begin) = (self.shared.at_work.load(Ordering::SeqCst), Instant::now());
        while at_work % 2 == 1
            && self.shared.at_work.load(Ordering::SeqCst) == at_work
            && begin.elapsed() < LONGEST
        {
            std::thread::sleep(Duration::from_micros(50));
        }
        drop(before);
        drop(std::mem::take(&mut *lock(&self.shared.gone)));
    }

    /// Lets go of what the receiver has no use for any more, such as memory and devices of sessions that are gone. False while it still goes by an
    /// earlier plan, and so holds what is only in that.
    pub fn tidy(&self) -> bool {
        // It takes the later one up after it has begun something, and leaves the earlier one behind before it ends that.
        let is_late =
            self.shared.is_new.load(Ordering::SeqCst) || self.shared.at_work.load(Ordering::SeqCst) % 2 == 1;
        drop(std::mem::take(&mut *lock(&self.shared.gone)));
        !is_late
    }

    /// How it is.
    pub fn state(&self) -> ReceiverState {
        lock(&self.shared.state).clone()
    }
}

impl Drop for Receiver {
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

/// The thread does something by its plan, for as long as this is there.
struct AtWork(Arc<Shared>);

impl AtWork {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.at_work.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.at_work.fetch_add(1, Ordering::SeqCst);
    }
}

/// The state of the thread.
struct Receiving {
    source: PacketSource,
    shared: Arc<Shared>,
    notices: Sender<ObservedEvent>,
    polls: bool,
    plan: Arc<ForwardingPlan>,
    /// Bytes of traffic so far.
    position: u64,
    unwanted: u64,
    fragments: Fragments,
    meter: BlockMeter,
    head: Vec<u8>,
    /// Room for a packet that goes on.
    copies: Copies,
    flows: Vec<u16>,
    /// For each channel the masks of the present block's batches, where it is one of those that want some of it.
    masks: Vec<Vec<u64>>,
    touched: ChannelSet,
    /// Channels of which packets of the present block went on without a module.
    passed: ChannelSet,
    delay: RunDelay,
}

impl Receiving {
    fn new(source: PacketSource, shared: Arc<Shared>, notices: Sender<ObservedEvent>, polls: bool) -> Self {
        let plan = Arc::clone(&lock(&shared.plan));
        Self {
            source,
            shared,
            notices,
            polls,
            plan,
            position: 0,
            unwanted: 0,
            // Strangers send the fragments.
            fragments: Fragments::new(DATAGRAMS, DATAGRAM_LIFETIME, RandomState::new().hash_one(DATAGRAMS)),
            meter: BlockMeter::default(),
            head: Vec::new(),
            copies: Copies::default(),
            flows: Vec::new(),
            masks: Vec::new(),
            touched: ChannelSet::NONE,
            passed: ChannelSet::NONE,
            delay: RunDelay::of_this_thread(),
        }
    }

    fn run(mut self) {
        let wait = if self.polls { Nanos(0) } else { WAIT };
        let mut reported = Instant::now();
        while !self.shared.is_over.load(Ordering::Acquire) {
            let asked = thread_time();
            let next = self.source.next(wait);
            let at_work = AtWork::begin(&self.shared);
            // After waiting, so that what arrives after a change goes where that says.
            if self.shared.is_new.swap(false, Ordering::SeqCst) {
                self.adopt();
            }
            match next {
                Ok(Poll::Block(block)) => {
                    // Waiting takes cycles and no time of the thread.
                    let (since, begin) = (thread_time(), Cycles::now());
                    self.distribute(&Arc::new(block));
                    self.settle(Nanos(since.0.saturating_sub(asked.0)), since, begin);
                    self.mop_up(self.position);
                    if self.source.is_running_out() {
                        self.make_way();
                    }
                }
                Ok(Poll::Event(event)) => self.tell(event.to_string()),
                Ok(Poll::Full) => {
                    self.make_way();
                    std::thread::sleep(FULL);
                }
                Ok(Poll::Quiet(_)) => {}
                Ok(Poll::End) => break,
                Err(error) => {
                    lock(&self.shared.state).failed = Some(error.to_string());
                    _ = self.notices.send(ObservedEvent::Failed {
                        interface: self.source.name().to_owned(),
                        what: format!("{}: {error}", self.source.name()),
                    });
                    break;
                }
            }
            let is_due = reported.elapsed() >= Duration::from_millis(50);
            if is_due {
                // On accounts of this plan, which are billed once it is left behind.
                self.give_back();
            }
            drop(at_work);
            if is_due {
                reported = Instant::now();
                self.report();
            }
        }
        self.report();
    }

    fn tell(&mut self, event: String) {
        let mut state = lock(&self.shared.state);
        // With the event: whoever has heard of it and asks is told the same.
        state.is_up = self.source.is_up();
        if state.events.len() == EVENTS_MAX {
            state.events.pop_front();
        }
        state.events.push_back(event.clone());
        drop(state);
        _ = self
            .notices
            .send(ObservedEvent::Interface { interface: self.source.name().to_owned(), what: event });
    }

    fn report(&mut self) {
        let received = self.source.totals();
        let drops = self.source.live_totals().map(|totals| totals.drops);
        let mut state = lock(&self.shared.state);
        state.is_up = self.source.is_up();
        state.packets = received.packets;
        state.bytes = received.bytes.0;
        state.drops = drops.unwrap_or_default();
        state.unwanted = self.unwanted;
        state.fragments = self.fragments.counters();
        state.stolen = self.delay.total().unwrap_or_default();
    }

    /// Gives memory of queues back that they do not need any more, on their readers' accounts.
    fn give_back(&self) {
        let readers = self.plan.routes.iter().flatten().flat_map(|route| &route.readers);
        for reader in readers.filter(|reader| reader.queue.has_made_memory()) {
            let begin = thread_time();
            if reader.queue.give_back() {
                let took = thread_time().0.saturating_sub(begin.0);
                reader.account.charge_receiving(Nanos(took));
            }
        }
    }

    /// Goes over to the latest plan.
    fn adopt(&mut self) {
        let plan = Arc::clone(&lock(&self.shared.plan));
        let gone = plan.gone_since(&self.plan);
        if !gone.is_empty() {
            self.fragments.forget(&gone);
        }
        let before = std::mem::replace(&mut self.plan, plan);
        lock(&self.shared.gone).push(before);
    }

    /// Puts a block's packets into the queues of the channels that want them.
    fn distribute(&mut self, block: &Arc<Block>) {
        let plan = Arc::clone(&self.plan);
        self.meter.begin(plan.routes.len());
        self.masks.resize_with(plan.routes.len(), Vec::new);
        (self.touched, self.passed) = (ChannelSet::NONE, ChannelSet::NONE);
        for index in block.lead()..block.len() {
            self.look_up(&plan, block, index);
        }
        for place in self.passed.iter() {
            let (Some(route), Some(masks)) = (plan.route(place), self.masks.get(place)) else { continue };
            let begin = Cycles::now();
            route.pass(block, masks, &mut self.copies);
            self.meter.spent(&[place], Cycles::now().0.saturating_sub(begin.0));
        }
        for &place in plan.whole.iter().filter(|place| self.touched.contains(**place)) {
            let (Some(route), Some(masks)) = (plan.route(place), self.masks.get(place)) else { continue };
            let begin = Cycles::now();
            route.put(block, masks, self.position, &mut self.head, &mut self.flows);
            self.meter.spent(&[place], Cycles::now().0.saturating_sub(begin.0));
        }
        for (selection, places) in &plan.selections {
            // What one of them wants all want: see `look_up`.
            let Some(place) = places.iter().find(|place| self.touched.contains(**place)) else { continue };
            let Some(masks) = self.masks.get(*place).cloned() else { continue };
            let begin = Cycles::now();
            self.select(&plan, selection, places, block, masks);
            self.meter.spent(places, Cycles::now().0.saturating_sub(begin.0));
        }
        let packets = block.descriptors().iter().skip(block.lead());
        self.position += packets.map(|packet| u64::from(packet.wire_len)).sum::<u64>();
    }

    /// Finds out who wants a packet.
    fn look_up(&mut self, plan: &ForwardingPlan, block: &Block, index: usize) {
        let Some(descriptor) = block.descriptors().get(index) else { return };
        let mut wanted = ChannelSet::NONE;
        let mut enough = PEEK;
        loop {
            block.copy_head(index, enough, &mut self.head);
            let (cap_len, wire_len) = (descriptor.cap_len, descriptor.wire_len);
            let packet = Packet { head: &self.head, cap_len, wire_len };
            match plan.joined.channels(&packet, &mut wanted) {
                Ok(()) => break,
                Err(MoreBytes { enough: more }) => enough = usize::try_from(more).unwrap_or(usize::MAX),
            }
        }
        if self.fragments.follow(descriptor, &self.head, &mut wanted).is_err() {
            block.copy_head(index, PEEK_MAX, &mut self.head);
            // That many are always enough.
            _ = self.fragments.follow(descriptor, &self.head, &mut wanted);
        }
        wanted.keep(&plan.taken);
        if descriptor.flags & flag::LATER_FRAGMENT != 0 {
            plan.complete(&mut wanted);
        }
        self.meter.packet(&wanted);
        self.unwanted += u64::from(wanted.is_empty());
        for place in wanted.iter() {
            let (Some(masks), Some(route)) = (self.masks.get_mut(place), plan.route(place)) else { continue };
            if !route.is_screened {
                route.tally.came(1, descriptor.wire_len.into());
            }
            let touched = if route.is_unattended() { &mut self.passed } else { &mut self.touched };
            if !touched.contains(place) {
                touched.insert(place);
                masks.clear();
                masks.resize(block.batch_count(), 0);
            }
            masks[index / 64] |= 1 << (index % 64);
        }
    }

    /// Copies packets into a selection and puts them into the queues of its readers. Where there is no room for all of them, packets that wait move to
    /// memory of their queue. If that is full, of several readers those who lag lose some: what one has not read yet costs no other one a packet.
    fn select(
        &mut self,
        plan: &ForwardingPlan,
        selection: &Mutex<Selection>,
        places: &[usize],
        block: &Block,
        mut masks: Vec<u64>,
    ) {
        let routes = || places.iter().filter_map(|place| plan.route(*place));
        // Where filters look at what is shown, only what they want is anybody's, and only that is counted: also of what is lost.
        let is_screened = routes().any(|route| route.is_screened);
        let lost = |masks: &[u64]| match is_screened {
            true => lock(selection).wanted(block, masks),
            false => (masks.iter().map(|mask| u64::from(mask.count_ones())).sum(), 0),
        };
        let came = |packets: u64, bytes: u64| {
            routes().filter(|_| is_screened).for_each(|route| route.tally.came(packets, bytes));
        };
        if routes().flat_map(|route| &route.readers).all(|reader| reader.queue.is_full()) {
            // Not worth a copy.
            let (packets, bytes) = lost(&masks);
            came(packets, bytes);
            for route in routes() {
                route.tally.queue_full.fetch_add(packets * route.readers.len() as u64, Ordering::Relaxed);
            }
            return;
        }
        let is_shared = routes().map(|route| route.readers.len()).sum::<usize>() > 1;
        for sheds in 0..=SHEDS_MAX {
            let selected = lock(selection).select(block, &masks);
            if selected.unwanted > 0 {
                for route in routes() {
                    route.tally.unwanted.fetch_add(selected.unwanted, Ordering::Relaxed);
                }
            }
            if let Some(copied) = selected.block.map(Arc::new) {
                came(copied.packets() as u64, selected.bytes);
                let all: Vec<u64> = copied.batches().map(|batch| batch.mask).collect();
                for route in routes() {
                    route.put(&copied, &all, self.position, &mut self.head, &mut self.flows);
                }
            }
            if selected.lost == 0 {
                return;
            }
            // Where moving does not suffice in half of the rounds, those who keep up are not to lose anything.
            let is_late = sheds > SHEDS_MAX / 2 && is_shared;
            let makes_room = || {
                is_late && shed(routes(), self.position)
                    || move_oldest(routes(), self.position)
                    || is_shared && shed(routes(), self.position)
            };
            let has_room = sheds < SHEDS_MAX && makes_room();
            if !has_room {
                if is_shared {
                    release_oldest(routes(), self.position);
                }
                let (packets, bytes) = lost(&selected.rest);
                came(packets, bytes);
                for route in routes() {
                    route.tally.no_memory.fetch_add(packets, Ordering::Relaxed);
                }
                return;
            }
            masks = selected.rest;
        }
    }

    /// Has those pay for a block that it was for: what receiving it took, and all that was done with it since `begin`.
    fn settle(&self, received: Nanos, since: Nanos, begin: Cycles) {
        let cycles = Cycles::now().0.saturating_sub(begin.0);
        let time = Nanos(thread_time().0.saturating_sub(since.0));
        let mut all = self.touched;
        all.insert_all(&self.passed);
        for place in all.iter() {
            let Some(route) = self.plan.route(place) else { continue };
            // Receiving is for all of them, by packets.
            let of_receiving = self.meter.common(place, received);
            let rest = self.meter.share(place, cycles, time);
            charge(route, Nanos(of_receiving.0.saturating_add(rest.0)));
        }
    }

    /// Takes from readers what lies too far behind this position, or has them ended.
    fn mop_up(&self, head: u64) {
        for route in self.plan.whole.iter().filter_map(|place| self.plan.route(*place)) {
            let Visibility::All(lag) = route.sight else { continue };
            let last = head.saturating_sub(lag.most);
            for reader in &route.readers {
                let lags = |oldest: Option<u64>| oldest.is_some_and(|oldest| oldest < last);
                let (waits, works) = (lags(reader.queue.oldest()), lags(reader.queue.in_hand()));
                if lag.ends && (waits || works) {
                    if let Some(lost) = reader.queue.close() {
                        route.tally.ended.fetch_add(lost, Ordering::Relaxed);
                        let (owner, channel) = (route.owner, route.channel);
                        _ = self.notices.send(ObservedEvent::Lagging { owner, channel });
                    }
                    continue;
                }
                if waits {
                    move_before(reader, last);
                    let lost = reader.queue.give_up_before(last);
                    route.tally.lagged.fetch_add(lost, Ordering::Relaxed);
                }
                if works {
                    reader.waker.release(reader.module, last);
                }
            }
        }
    }

    /// The interface's memory is full, or soon will be, of packets that wait for its readers, or that they work on. Those of queues with memory of their own
    /// wait there, as far as they fit. Where the kernel fills memory in turn, only those can make room who hold the oldest; else the one with the lowest priority
    /// does first.
    fn make_way(&self) {
        for _ in 0..SHEDS_MAX {
            if !self.make_some_way() || !self.source.is_running_out() {
                return;
            }
        }
    }

    /// Says whether packets have been moved, and more can be.
    fn make_some_way(&self) -> bool {
        let routes = self.plan.whole.iter().filter_map(|place| self.plan.route(*place));
        let readers = routes.flat_map(|route| route.readers.iter().map(move |reader| (route, reader)));
        let holds = readers.filter_map(|(route, reader)| {
            let oldest = [reader.queue.in_hand(), reader.queue.oldest()].into_iter().flatten().min()?;
            Some((route, reader, oldest))
        });
        let first = |(route, _, oldest): &(&Route, &PlanReader, u64)| {
            let priority = u64::from(route.priority);
            if self.source.is_filled_in_turn() { (*oldest, priority) } else { (priority, *oldest) }
        };
        let Some((route, reader, oldest)) = holds.min_by_key(first) else { return false };
        if reader.queue.in_hand() == Some(oldest) {
            // Nothing has been done with it for a long time; whether it lags too far is another question.
            reader.waker.release(reader.module, oldest.saturating_add(1));
            // Its packets that wait behind these are not to wait until it has.
            move_before(reader, oldest.saturating_add(1));
            return false;
        }
        if move_before(reader, oldest.saturating_add(1)) > 0 {
            return true;
        }
        give_up_half(route, reader, oldest, self.position);
        false
    }
}

/// Memory is full of what its readers have not read: of them, the one that is furthest behind loses the older half of what waits for it, since others hold
/// what comes after that as well; of several, the one with the lowest priority. False where nothing waits for any of them.
fn shed<'a>(routes: impl Iterator<Item = &'a Route>, position: u64) -> bool {
    let waiting = routes.flat_map(|route| {
        route.readers.iter().filter_map(move |reader| Some((route, reader, reader.queue.oldest()?)))
    });
    let first = |(route, _, oldest): &(&Route, &PlanReader, u64)| (*oldest, route.priority);
    let Some((route, reader, oldest)) = waiting.min_by_key(first) else { return false };
    give_up_half(route, reader, oldest, position);
    true
}

/// The memory of a selection is full, and nothing that waits makes room: readers that are suspended have it in hand. The one that has had packets for longest
/// releases them, so that it costs the others no more than what came meanwhile.
fn release_oldest<'a>(routes: impl Iterator<Item = &'a Route>, position: u64) {
    let readers = routes.flat_map(|route| &route.readers);
    let hold = readers.filter_map(|reader| Some((reader.queue.in_hand()?, reader)));
    let oldest = hold.filter(|(oldest, _)| *oldest < position).min_by_key(|(oldest, _)| *oldest);
    if let Some((oldest, reader)) = oldest {
        reader.waker.release(reader.module, oldest.saturating_add(1));
    }
}

/// The memory of a selection is full: the oldest packets that wait for readers whose queues have memory of their own are moved there. A piece of the common memory is free
/// when all of its readers have left it. Says whether any packets were moved.
fn move_oldest<'a>(routes: impl Iterator<Item = &'a Route>, position: u64) -> bool {
    let readers = routes.flat_map(|route| &route.readers).filter(|reader| reader.queue.has_own_memory());
    let readers: Vec<_> = readers.filter_map(|reader| Some((reader.queue.oldest()?, reader))).collect();
    let Some(first) = readers.iter().map(|(oldest, _)| *oldest).min() else { return false };
    // Enough at a time that pieces of the memory become free, and little enough that receiving goes on soon.
    let last = first.saturating_add(position.saturating_sub(first) / 4 + 1);
    let moved = readers.into_iter().filter(|(oldest, _)| *oldest < last);
    moved.map(|(_, reader)| move_before(reader, last)).sum::<u64>() > 0
}

/// Copies packets of a reader before this position to memory of its queue, on its account. Says how many.
fn move_before(reader: &PlanReader, position: u64) -> u64 {
    if !reader.queue.has_own_memory() {
        return 0;
    }
    let begin = thread_time();
    let moved = reader.queue.move_before(position);
    reader.account.charge_receiving(Nanos(thread_time().0.saturating_sub(begin.0)));
    moved
}

/// A reader loses the older half of what waits for it between its oldest packet and this position.
fn give_up_half(route: &Route, reader: &PlanReader, oldest: u64, position: u64) {
    let half = oldest + position.saturating_sub(oldest) / 2;
    // Something goes in any case: what is in one block has one position.
    let lost = reader.queue.give_up_before(half.max(oldest.saturating_add(1)));
    route.tally.shed.fetch_add(lost, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
