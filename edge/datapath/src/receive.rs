//! The receive threads of an interface: they take packets, match them against the channels' filters, and fill the
//! queues.

mod matching;
mod meter;
mod shared;

use crate::account::{BlockCharges, charge_readers};
use crate::delay::RunDelay;
use crate::egress::CopyBuffers;
use crate::event::ObservedEvent;
use crate::plan::{ForwardingPlan, PlanReader, Planner, Route, Visibility, Wakeups};
use crate::source::{PacketSource, Poll};
use matching::BlockMatcher;
use meter::ThreadMeter;
use shared::{BusyGuard, Shared, ThreadShared};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_demux::{JoinError, JoinLimits};
use weir_netio::{Block, DescriptorRing, LiveError, LiveEvent, LiveOptions, Selection};
use weir_sandbox::{Cycles, thread_time};
use weir_units::{Bytes, Nanos};
use weir_wire::LinkType;

pub use shared::ReceiverState;

/// The longest wait for a packet, after which the thread reports its state and checks whether it is to end.
const WAIT: Nanos = Nanos(50 * Nanos::MILLISECOND.0);
/// The most packets that are gathered at once.
const GATHERED_MAX: u32 = 4096;
/// The number of packets after which modules are woken, even if more packets have arrived.
const UNANNOUNCED_MAX: usize = 1024;
/// The interval at which the thread reports its state.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// The pause while the interface's memory is full. Readers can release packets meanwhile.
const FULL_PAUSE: Duration = Duration::from_micros(200);
/// The number of recent interface events that the state shows.
const EVENTS_MAX: usize = 16;
/// The time after which charges are divided among the channels. Reading the thread's clock is a system call, which a
/// block of few packets does not warrant.
const CHARGE_INTERVAL: Duration = Duration::from_millis(1);
/// The longest time for which a change of plan waits for the thread, which may be processing a block.
const PLAN_CHANGE_WAIT_MAX: Duration = Duration::from_secs(1);
/// The most rounds of making space for one block. In each round, readers move or lose packets.
const SHEDS_MAX: usize = 64;

/// A handle of the receive threads of one interface. Dropping the handle ends the threads.
#[derive(Debug)]
pub struct Receiver {
    link_type: LinkType,
    ring: DescriptorRing,
    /// The size of the memory for packets.
    arena: Bytes,
    planner: Mutex<Planner>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// True if the kernel fills the interface's memory in ring order.
    is_filled_in_turn: bool,
}

/// A plan that is not in effect yet.
#[derive(Debug)]
pub struct PreparedPlan {
    planner: Planner,
    plan: ForwardingPlan,
}

/// The time at which packets are delivered to channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// At once while a channel forwards packets, otherwise after packets have been gathered.
    #[default]
    WhenForwarding,
    /// As soon as a packet arrives.
    AtOnce,
    /// After packets have been gathered, which takes less processor time.
    Gathered,
}

/// The receive threads of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveThreads {
    /// The number of threads, which share the interface's queues.
    pub count: usize,
    /// The time at which packets are delivered. It has no effect on a packet socket whose ring is not
    /// [`immediate`](LiveOptions::immediate).
    pub delivery: Delivery,
    /// True if the threads poll without waiting.
    pub polls: bool,
}

/// The reason why an interface cannot be received from.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The interface cannot be opened.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The receive thread could not be started.
    #[error("interface {interface}: its receive thread cannot be started: {source}")]
    Thread {
        /// The name of the interface.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Receiver {
    /// Opens an interface and starts its receive threads. Each thread calls `on_start` with its number before anything
    /// else. No channel gets packets before [`set_routes`](Self::set_routes) is called.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`] if the interface cannot be opened or a thread cannot be started.
    pub fn start(
        name: &str,
        options: LiveOptions,
        threads: ReceiveThreads,
        on_start: impl Fn(usize) + Clone + Send + 'static,
        events: Sender<ObservedEvent>,
    ) -> Result<Self, ReceiveError> {
        let sources = PacketSource::interface_group(name, options, threads.count)?;
        let Some(first) = sources.first() else {
            return Err(LiveError::Option { interface: name.to_owned(), what: "it has no source" }.into());
        };
        let mut this = Self {
            link_type: first.link_types().first().copied().unwrap_or(LinkType::Ethernet),
            ring: first.descriptors().clone(),
            arena: options.ring,
            planner: Mutex::default(),
            shared: Shared::new(Arc::default(), sources.len()),
            threads: Vec::new(),
            is_filled_in_turn: first.is_filled_in_turn(),
        };
        for (number, source) in sources.into_iter().enumerate() {
            let (shared, events, on_start) = (Arc::clone(&this.shared), events.clone(), on_start.clone());
            let thread = std::thread::Builder::new()
                .name(format!("weir-rx-{name}"))
                .spawn(move || {
                    on_start(number);
                    Receiving::new(source, shared, number, events, threads).run();
                })
                .map_err(|source| ReceiveError::Thread { interface: name.to_owned(), source })?;
            // If another thread cannot be started, dropping the handle ends this one.
            this.threads.push(thread);
        }
        Ok(this)
    }

    /// Returns true if the kernel fills the packet memory in ring order, so that packets cannot wait there for long.
    pub fn is_filled_in_turn(&self) -> bool {
        self.is_filled_in_turn
    }

    /// The link type of the interface's packets.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The ring of the interface's descriptors.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// The size of the memory for packets.
    pub fn arena(&self) -> Bytes {
        self.arena
    }

    /// Sets the channels that packets go to, from the next block on.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if there are too many channels, or their filters are too large together. The present plan then
    /// stays.
    pub fn set_routes(&self, routes: Vec<Route>) -> Result<(), JoinError> {
        let mut planner = lock(&self.planner);
        let plan = planner.plan(routes)?;
        self.publish(plan);
        Ok(())
    }

    /// Makes a plan for these channels, which can be put [into effect](Self::activate) later.
    ///
    /// # Errors
    ///
    /// As for [`set_routes`](Self::set_routes).
    pub fn plan(&self, routes: Vec<Route>) -> Result<PreparedPlan, JoinError> {
        let mut planner = lock(&self.planner).clone();
        let plan = planner.plan(routes)?;
        Ok(PreparedPlan { planner, plan })
    }

    /// Puts a plan into effect. The plan must be of this interface, and be based on the plan that is in effect.
    pub fn activate(&self, planned: PreparedPlan) {
        let mut planner = lock(&self.planner);
        *planner = planned.planner;
        self.publish(planned.plan);
    }

    /// Joins all filters if some are not joined yet and no filter has changed for a while. Joining can take long;
    /// packets follow the present plan meanwhile.
    pub fn join_filters(&self) {
        let Some(filters) = lock(&self.planner).filters_to_join(Instant::now()) else { return };
        let joined = weir_demux::join_all(&filters, &JoinLimits::default());
        let mut planner = lock(&self.planner);
        if let Some(joined) = planner.adopt_joined(&filters, joined) {
            let plan = lock(&self.shared.plan).with_joined(joined);
            self.publish(plan);
        }
    }

    /// Puts a plan into effect from the next block on. The caller holds the planner, so that of two plans the later
    /// plan stays.
    ///
    /// On return no thread uses the earlier plan any longer, unless it has worked on a block for longer than
    /// [`PLAN_CHANGE_WAIT_MAX`]. So the counters of a removed channel are final.
    fn publish(&self, plan: ForwardingPlan) {
        let before = std::mem::replace(&mut *lock(&self.shared.plan), Arc::new(plan));
        // A thread that starts work after this store sees the flag. Of one that started before, `activity` is odd.
        let threads = &self.shared.threads;
        threads.iter().for_each(|thread| thread.is_new.store(true, Ordering::SeqCst));
        let begin = Instant::now();
        let activities: Vec<u64> =
            threads.iter().map(|thread| thread.activity.load(Ordering::SeqCst)).collect();
        for (thread, activity) in threads.iter().zip(activities) {
            while activity % 2 == 1
                && thread.activity.load(Ordering::SeqCst) == activity
                && begin.elapsed() < PLAN_CHANGE_WAIT_MAX
            {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        drop(before);
        drop(std::mem::take(&mut *lock(&self.shared.retired)));
    }

    /// Drops plans that are no longer in use, and with them memory and devices of closed sessions. Returns false while
    /// a thread still uses an earlier plan.
    pub fn release_unused(&self) -> bool {
        // A thread adopts a new plan after it starts work, and retires the earlier plan before it finishes that work.
        let is_late = self.shared.threads.iter().any(|thread| {
            thread.is_new.load(Ordering::SeqCst) || thread.activity.load(Ordering::SeqCst) % 2 == 1
        });
        drop(std::mem::take(&mut *lock(&self.shared.retired)));
        !is_late
    }

    /// The present state of the interface.
    pub fn state(&self) -> ReceiverState {
        let mut states = self.shared.threads.iter().map(|thread| lock(&thread.state).clone());
        let first = states.next().unwrap_or_default();
        states.fold(first, |sum, state| sum.plus(&state))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of a receive thread.
struct Receiving {
    source: PacketSource,
    shared: Arc<Shared>,
    /// The number of the thread. Only thread 0 reports the events that all threads see.
    number: usize,
    events: Sender<ObservedEvent>,
    /// True if the thread polls without waiting.
    polls: bool,
    delivery: Delivery,
    /// True if packets are to reach modules as soon as they arrive.
    delivers_at_once: bool,
    /// The plan that the thread follows.
    plan: Arc<ForwardingPlan>,
    /// The position of the present block: the number of bytes that the interface's threads received before it.
    position: u64,
    matcher: BlockMatcher,
    charges: BlockCharges,
    meter: ThreadMeter,
    /// A buffer for the first bytes of a packet.
    head: Vec<u8>,
    /// Buffers for packets that are forwarded.
    copies: CopyBuffers,
    /// A buffer for the sub-flows of a block's packets.
    flows: Vec<u16>,
    /// A buffer for the masks of copied packets.
    copied: Vec<u64>,
    /// Modules that have to be woken, and the packets received since modules were last woken.
    wakeups: Wakeups,
    unannounced: usize,
    delay: RunDelay,
}

impl Receiving {
    fn new(
        source: PacketSource,
        shared: Arc<Shared>,
        number: usize,
        events: Sender<ObservedEvent>,
        ReceiveThreads { delivery, polls, .. }: ReceiveThreads,
    ) -> Self {
        let plan = Arc::clone(&lock(&shared.plan));
        let mut receiving = Self {
            source,
            shared,
            number,
            events,
            polls,
            delivery,
            delivers_at_once: false,
            matcher: BlockMatcher::new(&plan),
            plan,
            position: 0,
            charges: BlockCharges::default(),
            meter: ThreadMeter::new(),
            head: Vec::new(),
            copies: CopyBuffers::default(),
            flows: Vec::new(),
            copied: Vec::new(),
            wakeups: Wakeups::default(),
            unannounced: 0,
            delay: RunDelay::of_this_thread(),
        };
        receiving.begin_plan();
        receiving
    }

    fn run(mut self) {
        let wait = if self.polls { Nanos(0) } else { WAIT };
        let mut reported = Instant::now();
        while !self.shared.is_over.load(Ordering::Acquire) {
            let polled = Cycles::now();
            // While modules have to be woken, packets that have arrived are taken, but none are waited for.
            let next = self.source.next(if self.wakeups.is_empty() { wait } else { Nanos(0) });
            let activity = BusyGuard::begin(&self.shared, self.number);
            // Checked after waiting, so that packets that arrive after a change follow the new plan.
            if self.this().is_some_and(|this| this.is_new.swap(false, Ordering::SeqCst)) {
                self.adopt_plan();
            }
            let mut is_quiet = false;
            match next {
                Ok(Poll::Block(block)) => {
                    let begin = Cycles::now();
                    self.unannounced += block.packets();
                    self.distribute(&Arc::new(block));
                    if self.delivers_at_once || self.unannounced >= UNANNOUNCED_MAX {
                        self.wake_modules();
                    }
                    self.meter.polling += begin.since(polled).0;
                    self.meter.distributing += Cycles::now().since(begin).0;
                    self.enforce_lag_limits(self.position);
                    if self.source.is_running_out() {
                        self.free_memory();
                    }
                }
                Ok(Poll::Event(event)) if self.reports(&event) => self.notify(event.to_string()),
                Ok(Poll::Event(_)) => {}
                Ok(Poll::Full) => {
                    self.wake_modules();
                    self.free_memory();
                    std::thread::sleep(FULL_PAUSE);
                }
                Ok(Poll::Quiet(_)) if !self.wakeups.is_empty() => self.wake_modules(),
                Ok(Poll::Quiet(_)) => is_quiet = true,
                Ok(Poll::End) => break,
                Err(error) => {
                    self.update(|state| state.failed = Some(error.to_string()));
                    _ = self.events.send(ObservedEvent::Failed {
                        interface: self.source.name().to_owned(),
                        what: format!("{}: {error}", self.source.name()),
                    });
                    break;
                }
            }
            let now = Instant::now();
            let is_due = now.saturating_duration_since(reported) >= REPORT_INTERVAL;
            if is_quiet && !self.polls || now.saturating_duration_since(self.meter.charged) >= CHARGE_INTERVAL
            {
                self.charge(now);
            }
            if is_due {
                // Charged by this plan: the usage of its channels is final once the plan is retired.
                self.release_queue_memory();
            }
            drop(activity);
            if is_due {
                reported = now;
                self.report();
            }
        }
        self.wake_modules();
        self.charge(Instant::now());
        self.report();
    }

    /// Wakes the modules for which packets have arrived.
    fn wake_modules(&mut self) {
        self.wakeups.send();
        self.unannounced = 0;
    }

    /// The state that this thread shares with the handle.
    fn this(&self) -> Option<&ThreadShared> {
        self.shared.threads.get(self.number)
    }

    /// Updates the state that [`Receiver::state`] returns.
    fn update(&self, change: impl FnOnce(&mut ReceiverState)) {
        if let Some(this) = self.this() {
            change(&mut lock(&this.state));
        }
    }

    /// Returns true if this thread reports the event. Other threads see the same changes of the interface, but each
    /// opens its own queues.
    fn reports(&self, event: &LiveEvent) -> bool {
        self.number == 0 || matches!(event, LiveEvent::NotReopened { .. })
    }

    /// Reports an event of the interface, in the state and to the event handler.
    fn notify(&mut self, event: String) {
        let is_up = self.source.is_up();
        self.update(|state| {
            // Updated together with the event, so that a client that reads the state after the event sees the state
            // that the event reports.
            state.is_up = is_up;
            if state.events.len() == EVENTS_MAX {
                state.events.pop_front();
            }
            state.events.push_back(event.clone());
        });
        _ = self
            .events
            .send(ObservedEvent::Interface { interface: self.source.name().to_owned(), what: event });
    }

    /// Reports the counters.
    fn report(&mut self) {
        let received = self.source.totals();
        let drops = self.source.live_totals().map(|totals| totals.drops);
        let stolen = self.delay.total().unwrap_or_default();
        self.update(|state| {
            state.is_up = self.source.is_up();
            state.packets = received.packets;
            state.bytes = received.bytes.0;
            state.drops = drops.unwrap_or_default();
            state.unwanted = self.matcher.unwanted();
            state.fragments = self.matcher.fragments();
            state.stolen = stolen;
        });
    }

    /// Releases memory of queues that is no longer needed, and charges the time to the queues' readers.
    fn release_queue_memory(&self) {
        let readers = self.plan.routes.iter().flatten().flat_map(|route| &route.readers);
        for reader in readers.filter(|reader| reader.queue.has_mapped_memory()) {
            let begin = thread_time();
            if reader.queue.release_memory() {
                let time = Nanos(thread_time().0.saturating_sub(begin.0));
                reader.account.charge_receiving(time);
                self.meter.exclude(time);
            }
        }
    }

    /// Switches to the latest plan.
    fn adopt_plan(&mut self) {
        // The usage of removed channels is final once their plan is retired.
        self.charge(Instant::now());
        let plan = Arc::clone(&lock(&self.shared.plan));
        self.matcher.adopt(&plan, &self.plan);
        let before = std::mem::replace(&mut self.plan, plan);
        lock(&self.shared.retired).push(before);
        self.begin_plan();
    }

    /// Prepares for the packets of a new plan.
    fn begin_plan(&mut self) {
        self.charges.begin(self.plan.routes.len());
        self.delivers_at_once = match self.delivery {
            Delivery::WhenForwarding => self.plan.forwards(),
            Delivery::AtOnce => true,
            Delivery::Gathered => false,
        };
        // Gathered packets arrive all at once, and every queue should have room for them beside others.
        let gathered_max = self.plan.queue_min().map_or(GATHERED_MAX, |queue| (queue / 4).max(1));
        self.source.gather(if self.delivers_at_once { 0 } else { gathered_max.min(GATHERED_MAX) });
    }

    /// Puts a block's packets into the queues of the channels that want them.
    fn distribute(&mut self, block: &Arc<Block>) {
        let plan = Arc::clone(&self.plan);
        self.position = self.shared.position.load(Ordering::Relaxed);
        let bytes = self.matcher.match_block(&plan, block, &mut self.charges);
        for place in self.matcher.passed().iter() {
            let Some(route) = plan.route(place) else { continue };
            let begin = Cycles::now();
            route.forward(block, self.matcher.masks(place), &mut self.copies);
            self.charges.charge_channels(&[place], Cycles::now().since(begin).0);
        }
        for &place in plan.direct.iter().filter(|place| self.matcher.touched().contains(**place)) {
            let Some(route) = plan.route(place) else { continue };
            let begin = Cycles::now();
            let masks = self.matcher.masks(place);
            route.put(block, masks, self.position, &mut self.head, &mut self.flows, &mut self.wakeups);
            self.charges.charge_channels(&[place], Cycles::now().since(begin).0);
        }
        for (selection, places) in &plan.selections {
            // If one of these channels wants a packet, all of them want it: see `BlockMatcher`.
            let Some(place) = places.iter().find(|place| self.matcher.touched().contains(**place)) else {
                continue;
            };
            let begin = Cycles::now();
            self.select(&plan, selection, places, block, *place);
            self.charges.charge_channels(places, Cycles::now().since(begin).0);
        }
        self.position = self.shared.position.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
    }

    /// Copies packets into a selection and puts them into the queues of the selection's readers.
    ///
    /// If the packets do not all fit, waiting packets are moved to memory of their queues. If the memory of the queues
    /// is full, too, and the selection has several readers, the readers that lag most lose packets. So a slow reader
    /// costs other readers no packets.
    fn select(
        &mut self,
        plan: &ForwardingPlan,
        selection: &Mutex<Selection>,
        places: &[usize],
        block: &Block,
        place: usize,
    ) {
        let routes = || places.iter().filter_map(|place| plan.route(*place));
        // If filters read packets after the view, only packets that these filters select are counted, also as lost.
        let filters_view = routes().any(|route| route.filters_view);
        let lost = |masks: &[u64]| match filters_view {
            true => lock(selection).wanted(block, masks),
            false => (masks.iter().map(|mask| u64::from(mask.count_ones())).sum(), 0),
        };
        let count_selected = |packets: u64, bytes: u64| {
            routes().filter(|_| filters_view).for_each(|route| route.counters.count_selected(packets, bytes));
        };
        if routes().flat_map(|route| &route.readers).all(|reader| reader.queue.is_full()) {
            // A copy would be wasted.
            let (packets, bytes) = lost(self.matcher.masks(place));
            count_selected(packets, bytes);
            for route in routes() {
                route.counters.queue_full.fetch_add(packets * route.readers.len() as u64, Ordering::Relaxed);
            }
            return;
        }
        let is_shared = routes().map(|route| route.readers.len()).sum::<usize>() > 1;
        let mut rest: Option<Vec<u64>> = None;
        for sheds in 0..=SHEDS_MAX {
            let masks = rest.as_deref().unwrap_or_else(|| self.matcher.masks(place));
            let selected = lock(selection).select(block, masks);
            if selected.unwanted > 0 {
                for route in routes() {
                    route.counters.unwanted.fetch_add(selected.unwanted, Ordering::Relaxed);
                }
            }
            if let Some(copied) = selected.block.map(Arc::new) {
                count_selected(copied.packets() as u64, selected.bytes);
                self.copied.clear();
                self.copied.extend(copied.batches().map(|batch| batch.mask));
                for route in routes() {
                    let (head, flows) = (&mut self.head, &mut self.flows);
                    route.put(&copied, &self.copied, self.position, head, flows, &mut self.wakeups);
                }
            }
            if selected.lost == 0 {
                return;
            }
            // After half of the rounds, the readers that lag most lose packets first, so that readers that keep up lose
            // none.
            let sheds_first = sheds > SHEDS_MAX / 2 && is_shared;
            let makes_space = || {
                sheds_first && shed(routes(), self.position)
                    || move_oldest(routes(), self.position)
                    || is_shared && shed(routes(), self.position)
            };
            let has_space = sheds < SHEDS_MAX && makes_space();
            if !has_space {
                if is_shared {
                    release_oldest(routes(), self.position);
                }
                let (packets, bytes) = lost(&selected.rest);
                count_selected(packets, bytes);
                for route in routes() {
                    route.counters.no_memory.fetch_add(packets, Ordering::Relaxed);
                }
                return;
            }
            rest = Some(selected.rest);
        }
    }

    /// Charges the work since the last charge to the channels whose packets it was for.
    fn charge(&mut self, now: Instant) {
        let (received, time, cycles) = self.meter.take(self.polls, now);
        for place in self.charges.charged() {
            let Some(route) = self.plan.route(place) else { continue };
            // Receiving is done for all channels, so its time is divided by packets.
            let receiving = self.charges.common_charge(place, received);
            let rest = self.charges.total_charge(place, cycles, time);
            charge_readers(route, Nanos(receiving.0.saturating_add(rest.0)));
        }
        self.charges.begin(self.plan.routes.len());
    }

    /// Applies the lag limits when the interface's traffic is at position `head`. A reader that exceeds its limit loses
    /// the packets beyond the limit, or its session is closed.
    fn enforce_lag_limits(&self, head: u64) {
        for route in self.plan.direct.iter().filter_map(|place| self.plan.route(*place)) {
            let Visibility::All(lag) = route.visibility else { continue };
            let limit = head.saturating_sub(lag.lag_max);
            for reader in &route.readers {
                let lags = |oldest: Option<u64>| oldest.is_some_and(|oldest| oldest < limit);
                let (waits, works) = (lags(reader.queue.oldest()), lags(reader.queue.in_hand()));
                if lag.closes_session && (waits || works) {
                    if let Some(lost) = reader.queue.close() {
                        route.counters.ended.fetch_add(lost, Ordering::Relaxed);
                        let (owner, channel) = (route.owner, route.channel);
                        _ = self.events.send(ObservedEvent::Lagging { owner, channel });
                    }
                    continue;
                }
                if waits {
                    self.move_before(reader, limit);
                    let lost = reader.queue.evict_before(limit);
                    route.counters.lagged.fetch_add(lost, Ordering::Relaxed);
                }
                if works {
                    reader.waker.release(reader.module, limit);
                }
            }
        }
    }

    /// Frees packet memory of the interface, which is full or soon will be. Packets in this memory wait in queues, or
    /// are in hand: readers have taken them and still process them.
    ///
    /// Packets of queues with memory of their own are moved there, as far as they fit. If the kernel fills memory in
    /// ring order, the reader with the oldest packets has to release them; otherwise the reader with the lowest
    /// priority goes first.
    fn free_memory(&self) {
        for _ in 0..SHEDS_MAX {
            if !self.free_some_memory() || !self.source.is_running_out() {
                return;
            }
        }
    }

    /// Frees memory of the reader that comes first. Returns true if packets were moved, so that a further call can move
    /// more.
    fn free_some_memory(&self) -> bool {
        let routes = self.plan.direct.iter().filter_map(|place| self.plan.route(*place));
        let readers = routes.flat_map(|route| route.readers.iter().map(move |reader| (route, reader)));
        let holding = readers.filter_map(|(route, reader)| {
            let oldest = [reader.queue.in_hand(), reader.queue.oldest()].into_iter().flatten().min()?;
            Some((route, reader, oldest))
        });
        let first = |(route, _, oldest): &(&Route, &PlanReader, u64)| {
            let priority = u64::from(route.priority);
            if self.source.is_filled_in_turn() { (*oldest, priority) } else { (priority, *oldest) }
        };
        let Some((route, reader, oldest)) = holding.min_by_key(first) else { return false };
        if reader.queue.in_hand() == Some(oldest) {
            // The reader has made no progress for long, so it has to release the packets in hand.
            reader.waker.release(reader.module, oldest.saturating_add(1));
            // Packets that wait behind the in-hand ones are moved at once, as the reader may take a while to release.
            self.move_before(reader, oldest.saturating_add(1));
            return false;
        }
        if self.move_before(reader, oldest.saturating_add(1)) > 0 {
            return true;
        }
        evict_half(route, reader, oldest, self.position);
        false
    }

    /// Moves a reader's packets as the function [`move_before`] does, whose time is charged to this reader only.
    fn move_before(&self, reader: &PlanReader, position: u64) -> u64 {
        let (moved, time) = move_before(reader, position);
        self.meter.exclude(time);
        moved
    }
}

/// Evicts the older half of the waiting packets of the reader that lags most. If several readers lag equally, this is
/// the one with the lowest priority. The later half stays, because other readers hold these packets, too. Returns false
/// if no packet waits for any reader.
fn shed<'a>(routes: impl Iterator<Item = &'a Route>, position: u64) -> bool {
    let waiting = routes.flat_map(|route| {
        route.readers.iter().filter_map(move |reader| Some((route, reader, reader.queue.oldest()?)))
    });
    let first = |(route, _, oldest): &(&Route, &PlanReader, u64)| (*oldest, route.priority);
    let Some((route, reader, oldest)) = waiting.min_by_key(first) else { return false };
    evict_half(route, reader, oldest, position);
    true
}

/// Makes the reader with the oldest in-hand packets release them. This is for a selection whose memory cannot be freed
/// by moving or evicting waiting packets.
fn release_oldest<'a>(routes: impl Iterator<Item = &'a Route>, position: u64) {
    let readers = routes.flat_map(|route| &route.readers);
    let hold = readers.filter_map(|reader| Some((reader.queue.in_hand()?, reader)));
    let oldest = hold.filter(|(oldest, _)| *oldest < position).min_by_key(|(oldest, _)| *oldest);
    if let Some((oldest, reader)) = oldest {
        reader.waker.release(reader.module, oldest.saturating_add(1));
    }
}

/// Moves the oldest waiting packets of a full selection to memory of their queues, for queues that have such memory.
/// A chunk of the selection's arena is free when no packet of any reader is left in it. Returns true if packets were
/// moved.
fn move_oldest<'a>(routes: impl Iterator<Item = &'a Route>, position: u64) -> bool {
    let readers = routes.flat_map(|route| &route.readers).filter(|reader| reader.queue.has_own_memory());
    let readers: Vec<_> = readers.filter_map(|reader| Some((reader.queue.oldest()?, reader))).collect();
    let Some(first) = readers.iter().map(|(oldest, _)| *oldest).min() else { return false };
    // A quarter of the range: enough to free chunks, and few enough that receiving goes on soon.
    let last = first.saturating_add(position.saturating_sub(first) / 4 + 1);
    let moved = readers.into_iter().filter(|(oldest, _)| *oldest < last);
    moved.map(|(_, reader)| move_before(reader, last).0).sum::<u64>() > 0
}

/// Copies a reader's packets before `position` to memory of its queue, and charges the reader. Returns the number of
/// packets moved, and the time.
fn move_before(reader: &PlanReader, position: u64) -> (u64, Nanos) {
    if !reader.queue.has_own_memory() {
        return (0, Nanos(0));
    }
    let begin = thread_time();
    let moved = reader.queue.move_before(position);
    let time = Nanos(thread_time().0.saturating_sub(begin.0));
    reader.account.charge_receiving(time);
    (moved, time)
}

/// Evicts the older half of a reader's waiting packets between its oldest one and `position`.
fn evict_half(route: &Route, reader: &PlanReader, oldest: u64, position: u64) {
    let half = oldest + position.saturating_sub(oldest) / 2;
    // All packets of a block have the same position, so at least the oldest block's packets are evicted.
    let lost = reader.queue.evict_before(half.max(oldest.saturating_add(1)));
    route.counters.shed.fetch_add(lost, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
