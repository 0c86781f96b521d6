//! A module at work in its sandbox.

use crate::load::engine::{Engine, LoadError, LoadedModule};
use crate::load::rewrite::{self, Checks};
use crate::run::entry::{Starting, entered};
use crate::run::event::{EventHandlers, InstanceContext};
use crate::run::fault::{BrokenOff, CallFault, FaultKind, Indices};
use crate::run::host::{HostState, LogLine, Patch, order_of};
use crate::run::interrupt::CodeMap;
use crate::run::slice::{CallCounter, SandboxView, SliceState, lock};
use crate::run::space::{Area, map_area};
use crate::run::suspend::{Call, SuspendedCall, at_once};
use crate::run::tally::StrikeCounter;
use crate::watchdog::{OverrunAction, WatchedSandbox};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wasmtime::{Global, Instance as WasmInstance, Memory, Store, TypedFunc, Val};
use weir_abi::host::{self, HostFunction};
use weir_abi::{ARENA_BASE, ARENA_MAX, DESCRIPTORS_BASE, DESCRIPTORS_MAX, export, lost};
use weir_bounds::{CostTable, EntryPoint};
use weir_units::{Bytes, Timestamp};
use {
    weir_admission::{Admitted, EntryKind},
    weir_session::{Holding, Records},
};

/// How many faults are described; further ones are only counted.
pub(crate) const FAULTS_DESCRIBED: usize = 8;

/// A batch of up to 64 packets.
#[derive(Clone, Copy, Debug)]
pub struct BatchInput {
    /// Guest address of the first descriptor.
    pub descriptors: u32,
    /// Bit i: packet i is for this module.
    pub mask: u64,
    /// Index of the batch's first packet in its block.
    pub first: u32,
}

/// What an instance has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounters {
    /// Packets that it saw to the end.
    pub packets: u64,
    /// Packets whose call was lost.
    pub lost: u64,
    /// Calls lost: packets, batches, ticks, start and stop.
    pub faults: u64,
    /// Records that were not taken because of a limit.
    pub records_dropped: u64,
    /// Frames that were not sent because of a limit.
    pub frames_dropped: u64,
    /// Log lines that were not taken because of a limit.
    pub log_dropped: u64,
    /// Packets and other calls that were over their limit: abandoned in a metered module, gone to their end in a supervised one.
    pub exceeded: u64,
    /// How much of that still counts against it, for all of its instances: it is unloaded for as many as its profile says.
    pub strikes: u64,
}

/// A lost call and where it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// What happened.
    pub fault: CallFault,
    /// Which call.
    pub during: During,
}

/// Which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// Instantiation, `_initialize` or `weir_start`.
    Start,
    /// A packet, by its index in the block.
    Packet(u32),
    /// `weir_tick`.
    Tick,
    /// `weir_stop`.
    Stop,
    /// `weir_lost`, which tells the module of a call that it lost before.
    Lost,
    /// This, which tells the module of something else than packets and time.
    News(EntryPoint),
    /// Between two batches.
    Idle,
}

/// A module in its sandbox. It reads what is mapped, emits records, and can do nothing else.
pub struct Instance {
    // Before the store, which owns the page that it guards.
    pub(crate) watch: Option<WatchedSandbox>,
    pub(crate) checks: Checks,
    /// Where the module's functions are.
    indices: Indices,
    /// Not here while a call is suspended: the call has it.
    pub(crate) store: Option<Store<HostState>>,
    pub(crate) wasm: Option<Wasm>,
    pub(crate) base: *mut u8,
    /// The call that is suspended, and what it and the world outside tell each other.
    pub(crate) task: Option<SuspendedCall>,
    pub(crate) slice: Arc<Mutex<SliceState>>,
    pub(crate) call_limit: Duration,
    pub(crate) counters: InstanceCounters,
    /// Packets of batches that it has not seen to their end.
    pub(crate) unserved: u64,
    incidents: Vec<Incident>,
    code: Arc<CodeMap>,
    /// What counts against the module, and how many strikes it has.
    tally: Arc<StrikeCounter>,
    strikes: u32,
    /// Why the last call was lost, if the module has yet to be told.
    pub(crate) untold: Option<i32>,
    /// What it has of its session.
    pub(crate) means: InstanceContext,
    /// How often its session's memory had been low when that was looked at last.
    pub(crate) times_low: u64,
    pub(crate) ended: bool,
}

// SAFETY: `base` points into the reservation that the store owns, wherever that is; the store may move between threads, and the pointer is used
// only through `&mut self`.
unsafe impl Send for Instance {}

/// The parts of a live instance.
pub(crate) struct Wasm {
    memory: Memory,
    /// What is called before the first packet, in order.
    pub(crate) starts: Vec<Starting>,
    pub(crate) run: TypedFunc<(i32, i64), i64>,
    pub(crate) tick: Option<TypedFunc<(i64, i64), ()>>,
    pub(crate) stop: Option<TypedFunc<i64, ()>>,
    pub(crate) lost: Option<TypedFunc<i32, ()>>,
    pub(crate) ears: EventHandlers,
    fuel: Option<Global>,
    pub(crate) counter: Option<CallCounter>,
    rest: Global,
    drops: Global,
    stack: Option<(Global, Val)>,
    pub(crate) one_by_one: bool,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("counters", &self.counters)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// Makes a sandbox and starts the module in it. A module that fails here is there all the same, but [ended](Self::has_ended).
    ///
    /// # Errors
    /// Only what the node is to blame for.
    pub fn start(engine: &Engine, program: &LoadedModule) -> Result<Self, LoadError> {
        Self::start_with(engine, program, InstanceContext::default())
    }

    /// The same for a module of a session.
    ///
    /// # Errors
    /// Only what the node is to blame for, and that the session has not the memory that the module begins with.
    pub fn start_with(
        engine: &Engine,
        program: &LoadedModule,
        means: InstanceContext,
    ) -> Result<Self, LoadError> {
        let mut this = Self::make_with(engine, program, means)?;
        this.whole(Call::Start);
        Ok(this)
    }

    /// Makes a sandbox. The module in it is not started: its first call is [`Call::Start`].
    ///
    /// # Errors
    /// Only what the node is to blame for.
    pub fn make(engine: &Engine, program: &LoadedModule) -> Result<Self, LoadError> {
        Self::make_with(engine, program, InstanceContext::default())
    }

    fn make_with(
        engine: &Engine,
        program: &LoadedModule,
        mut means: InstanceContext,
    ) -> Result<Self, LoadError> {
        let limits = program.admitted.limits();
        let slice = Arc::default();
        let mut host = HostState::new(Arc::clone(&program.admitted));
        host.goes_on = program.checks.piece().is_some();
        host.slice = Arc::clone(&slice);
        host.kept.together.clone_from(&means.kept);
        host.rights.clone_from(&means.writes);
        host.post.clone_from(&means.post);
        host.press.clone_from(&means.press);
        // It is shown others later, so these are not held any longer than they are to be seen.
        let tables = std::mem::take(&mut means.tables);
        if let Some(reservation) = &means.memory {
            let wanted = program.admitted.facts().memory;
            host.holding = Some(
                Holding::of(reservation, wanted)
                    .ok_or_else(|| LoadError::Memory { wanted, left: reservation.state().left() })?,
            );
        }
        let mut store = Store::new(program.runtime(), host);
        store.limiter(|host| host);
        engine.satisfy(&mut store).map_err(|e| LoadError::Sandbox(format!("{e:#}")))?;
        let made = match program.checks.is_sliced() {
            true => at_once(program.ready.instantiate_async(&mut store)),
            false => program.ready.instantiate(&mut store),
        };
        let mut this = Self {
            watch: None,
            checks: program.checks,
            indices: program.indices,
            store: None,
            wasm: None,
            base: std::ptr::null_mut(),
            task: None,
            slice,
            call_limit: engine.call_limit(),
            counters: InstanceCounters::default(),
            unserved: 0,
            incidents: Vec::new(),
            code: Arc::clone(&program.code),
            tally: Arc::clone(&program.tally),
            strikes: limits.strikes,
            untold: None,
            // One that comes when memory is low is told so.
            times_low: means.memory.as_ref().map_or(0, |memory| {
                let state = memory.state();
                state.times_low.saturating_sub(state.is_low().into())
            }),
            means,
            ended: false,
        };
        let instance = match made {
            Ok(instance) => instance,
            Err(error) => {
                let fault = CallFault::of(&error, program.indices, &program.code);
                if fault.kind == FaultKind::Other && error.downcast_ref::<wasmtime::Trap>().is_none() {
                    return Err(LoadError::Sandbox(format!("{error:#}")));
                }
                this.store = Some(store);
                this.fail(fault, During::Start);
                this.ended = true;
                return Ok(this);
            }
        };
        let unexpected = |e: wasmtime::Error| LoadError::Sandbox(format!("{e:#}"));
        let wasm = Wasm::of(instance, &mut store, program.admitted(), program.checks).map_err(unexpected)?;
        this.base = wasm.memory.data_ptr(&store);
        if !engine.spaces().made(this.base) {
            return Err(LoadError::Sandbox("the engine did not use weir's address space".into()));
        }
        let polls = program.checks.is_charged();
        // SAFETY: the space is alive for as long as the store, which this instance owns and drops after the watch.
        let watch = unsafe { engine.watchdog().guard(this.base, &program.admitted, &program.code, polls) };
        let host = store.data_mut();
        host.overrun = watch.overrun();
        host.memory = Some(wasm.memory);
        host.counter = wasm.counter;
        this.watch = Some(watch);
        this.store = Some(store);
        this.wasm = Some(wasm);
        this.show_first(&tables).map_err(|error| LoadError::Sandbox(format!("its tables: {error}")))?;
        Ok(this)
    }

    #[cold]
    pub(crate) fn lose_start(&mut self, error: &wasmtime::Error) {
        // A lost call leaves nothing behind.
        if let Some(host) = self.host_mut() {
            host.records.clear();
        }
        self.fail(self.fault(error), During::Start);
        self.ended = true;
    }

    /// What a start is over its limit says nothing about what packets will be.
    pub(crate) fn forget_exceeded(&mut self) {
        if let Some(host) = self.host_mut() {
            host.take_exceeded();
        }
    }

    pub(crate) fn host(&self) -> Option<&HostState> {
        self.store.as_ref().map(Store::data)
    }

    pub(crate) fn host_mut(&mut self) -> Option<&mut HostState> {
        self.store.as_mut().map(Store::data_mut)
    }

    /// What the last call used, in fuel; of a batch, its last packet. Only where [`Control::Exact`](crate::Control::Exact) counts it.
    pub fn fuel_used(&mut self) -> Option<u64> {
        let Checks::Charged { most: Some(most), exact: true, .. } = self.checks else { return None };
        let (wasm, store) = (self.wasm.as_ref()?, self.store.as_mut()?);
        let left = match wasm.counter {
            Some(counter) => counter.allowance(&mut *store),
            None => wasm.fuel?.get(&mut *store).i64()?,
        };
        let strings = store
            .data()
            .strings
            .saturating_mul(CostTable::standard().host(HostFunction::Emit).per_byte.into());
        let used = most.cast_signed().saturating_sub(left);
        Some(used.max(0).cast_unsigned().saturating_add(strings))
    }

    pub(crate) fn fault(&self, error: &wasmtime::Error) -> CallFault {
        CallFault::of(error, self.indices, &self.code)
    }

    /// Between two batches: sees how many of the last calls were over their limit, of a module that goes on then.
    #[inline]
    pub(crate) fn weigh(&mut self, calls: u32) {
        if self.checks.piece().is_some() {
            self.weigh_supervised(calls);
        }
    }

    fn weigh_supervised(&mut self, calls: u32) {
        let over = u64::from(self.host_mut().map_or(0, HostState::take_exceeded));
        self.counters.exceeded += over;
        let within = u64::from(calls).saturating_sub(over);
        if self.tally.weigh(over, within, self.strikes) {
            self.let_go();
            self.describe(CallFault::without_place(FaultKind::Unloaded), During::Idle);
        }
    }

    /// Forgets what the module said, emitted and suffered at its start, where another instance of it has done the same.
    pub fn forget_start(&mut self) {
        self.counters = InstanceCounters::default();
        self.incidents.clear();
        if let Some(host) = self.host_mut() {
            host.forget_start();
        }
    }

    /// What a call that is suspended has seen stays where it is.
    pub(crate) fn is_at_rest(&self) -> io::Result<()> {
        if self.is_suspended() { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
    }

    /// Maps the descriptors of all blocks. Returns the host addresses. Not while a call [is suspended](Self::is_suspended).
    pub fn map_descriptors(&mut self, area: Area<'_>) -> io::Result<Range<usize>> {
        if self.base.is_null() {
            return Ok(0..0);
        }
        self.is_at_rest()?;
        let Some(store) = &mut self.store else { return Ok(0..0) };
        let mapped = &mut store.data_mut().descriptors;
        // SAFETY: `base` is this instance's live space, the room is the descriptors' in the module's address space, and `&mut self` says
        // that no call is under way that could have lent out a slice.
        unsafe { map_area(self.base, DESCRIPTORS_BASE, DESCRIPTORS_MAX, area, mapped)? };
        Ok(mapped.clone())
    }

    /// Maps a window on the packets in place of the last one, with whatever the module has kept there, and [nobody](Self::keep_by) keeps any of it.
    /// Returns the host addresses, for whoever watches over the file. Not while a call [is suspended](Self::is_suspended).
    pub fn map_packets(&mut self, area: Area<'_>) -> io::Result<Range<usize>> {
        if self.base.is_null() {
            return Ok(0..0);
        }
        self.is_at_rest()?;
        let Some(store) = &mut self.store else { return Ok(0..0) };
        store.data_mut().keep_by(None);
        let mapped = &mut store.data_mut().packets;
        // SAFETY: as in `map_descriptors`, with the packets' room.
        unsafe { map_area(self.base, ARENA_BASE, ARENA_MAX, area, mapped)? };
        Ok(mapped.clone())
    }

    /// The number of the block's first packet in the capture, for what is said about a call that cannot be ended.
    pub fn set_first_packet(&mut self, number: u64) {
        if let Some(watch) = &self.watch {
            watch.set_block(number);
        }
    }

    /// Begins a block of packets. What ticks may emit is limited for all ticks of a block together, because a capture can have one before each
    /// packet.
    pub fn begin_block(&mut self) {
        if let Some(host) = self.host_mut() {
            host.begin_block();
        }
    }

    /// Has the module process a batch. Returns the mask of the packets that it drops. A packet in which the module traps is lost
    /// for this module and not dropped; the batch goes on after it.
    #[inline]
    pub fn run(&mut self, batch: BatchInput) -> u64 {
        self.whole(Call::Batch(batch))
    }

    /// After a trap: which packets are still to do.
    #[cold]
    pub(crate) fn lose(
        &mut self,
        error: &wasmtime::Error,
        batch: BatchInput,
        mask: u64,
        drops: &mut u64,
    ) -> u64 {
        let (packet, after) = self.lose_packet(batch, mask, drops);
        self.fail(self.fault(error), During::Packet(packet));
        after
    }

    /// Takes back what was done for the packet under way. Says which it is in the block, and which packets are still to do.
    pub(crate) fn lose_packet(&mut self, batch: BatchInput, mask: u64, drops: &mut u64) -> (u32, u64) {
        let (Some(wasm), Some(store)) = (&self.wasm, &mut self.store) else { return (batch.first, 0) };
        let phase = store.data().phase;
        let (lost, after) = if wasm.one_by_one {
            let rest = wasm.rest.get(&mut *store).i64().map_or(0, i64::cast_unsigned) & mask;
            *drops |= wasm.drops.get(&mut *store).i64().map_or(0, i64::cast_unsigned) & mask;
            // The lowest bit is the packet that was under way. None left means that the loop itself was interrupted after its last packet.
            (rest & rest.wrapping_neg(), rest & rest.wrapping_sub(1))
        } else {
            (mask, 0)
        };
        let done = mask & !lost & !after;
        self.counters.packets += u64::from(done.count_ones());
        self.counters.lost += u64::from(lost.count_ones());
        self.unserved |= lost;
        let index = (lost != 0).then(|| lost.trailing_zeros());
        let packet = batch.first + index.unwrap_or(0);
        let host = store.data_mut();
        if !wasm.one_by_one {
            // All records of a batch have the order of its first packet.
            host.abandon(order_of(phase, None));
            while host.patches.pop_if(|patch| patch.packet >= packet).is_some() {}
        } else if index.is_some() {
            host.abandon(order_of(phase, index));
            while host.patches.pop_if(|patch| patch.packet == packet).is_some() {}
        }
        (packet, after)
    }

    /// Tells the module that packet time has reached `now`. Whatever it emits is ordered before packet `before` of the block.
    pub fn tick(&mut self, now: Timestamp, periods: u64, before: u32) {
        self.whole(Call::Tick { now, periods, before });
    }

    /// Tells the module that no more packets come.
    pub fn stop(&mut self, now: Timestamp) {
        self.whole(Call::Stop { now });
    }

    #[cold]
    pub(crate) fn lose_periodic(&mut self, error: &wasmtime::Error, during: During) {
        self.take_back();
        self.fail(self.fault(error), during);
    }

    /// Takes back what was emitted in a call without packets.
    pub(crate) fn take_back(&mut self) {
        if let Some(host) = self.host_mut() {
            let order = order_of(host.phase, None);
            host.abandon(order);
        }
    }

    /// Counts a fault and makes the sandbox ready for the next call: the shadow stack is empty again.
    fn fail(&mut self, fault: CallFault, during: During) {
        self.counters.faults += 1;
        let is_over = matches!(fault.kind, FaultKind::Limit | FaultKind::TimeOut);
        if is_over {
            self.counters.exceeded += 1;
            // What happens at the start ends the instance, and happens to all of them.
            if during != During::Start {
                self.tally.strike(self.strikes);
            }
        }
        if fault.kind == FaultKind::Overrun {
            self.tally.end();
        }
        self.untold = Some(if is_over { lost::LIMIT } else { lost::TRAP });
        self.describe(fault, during);
        self.empty_stack();
        if self.is_over() {
            self.let_go();
        }
    }

    pub(crate) fn empty_stack(&mut self) {
        let stack = self.wasm.as_ref().and_then(|wasm| wasm.stack);
        if let (Some((global, empty)), Some(store)) = (stack, &mut self.store) {
            // It is a mutable i32 and so is the value, so this cannot fail.
            let _ = global.set(store, empty);
        }
    }

    fn describe(&mut self, fault: CallFault, during: During) {
        if self.incidents.len() < FAULTS_DESCRIBED {
            self.incidents.push(Incident { fault, during });
        }
    }

    /// Packets of the calls since this was asked last that it has not seen to their end: those whose call was lost, and those that came after it had
    /// ended. A bit of each packet's place in its batch.
    pub fn take_unserved(&mut self) -> u64 {
        std::mem::take(&mut self.unserved)
    }

    /// What it has done so far.
    pub fn counters(&self) -> InstanceCounters {
        let seen = self.seen();
        InstanceCounters {
            records_dropped: seen.records_dropped,
            frames_dropped: seen.frames_dropped,
            log_dropped: seen.log_dropped,
            strikes: self.tally.strikes(),
            ..self.counters
        }
    }

    /// The first faults, described.
    pub fn incidents(&self) -> &[Incident] {
        &self.incidents
    }

    /// Whether it gets no more packets: it did not start, or was over its limits too often. One that was unloaded between two batches can still
    /// be [stopped](Self::stop), so that it loses nothing.
    pub fn has_ended(&self) -> bool {
        self.is_over() || self.tally.is_unloaded()
    }

    /// Whether nothing of it is called any more.
    pub(crate) fn is_over(&self) -> bool {
        self.ended || self.tally.has_ended()
    }

    /// Its private memory now.
    pub fn memory(&self) -> Bytes {
        Bytes(self.seen().memory as u64)
    }

    /// What can be seen of the sandbox; while a call is suspended, as it was then.
    pub(crate) fn seen(&self) -> SandboxView {
        let Some(store) = &self.store else { return lock(&self.slice).seen };
        let host = store.data();
        SandboxView {
            memory: self.wasm.as_ref().map_or(0, |wasm| wasm.memory.data_size(store)),
            records_dropped: host.records_dropped,
            frames_dropped: host.outgoing.dropped,
            kept: host.kept.bytes(),
            log_dropped: host.log_dropped,
        }
    }

    /// What it emitted since the last call of this function; `empty` is used from then on. While a call is suspended, nothing can be taken.
    pub fn take_records(&mut self, empty: Records) -> Records {
        match self.host_mut() {
            Some(host) => std::mem::replace(&mut host.records, empty),
            None => empty,
        }
    }

    /// Whether there is anything for [`Self::take_records`] to take.
    pub fn has_records(&self) -> bool {
        self.host().is_some_and(|host| !host.records.is_empty())
    }

    /// Patches are no longer kept, because nothing is written that they could change. The module notices nothing of that.
    pub fn ignore_patches(&mut self) {
        if let Some(host) = self.host_mut() {
            host.keeps_patches = false;
        }
    }

    /// The patches that it made since the last call of this function.
    pub fn take_patches(&mut self) -> Vec<Patch> {
        self.host_mut().map(|host| std::mem::take(&mut host.patches)).unwrap_or_default()
    }

    /// The lines that it logged since the last call of this function.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        self.host_mut().map(|host| std::mem::take(&mut host.log)).unwrap_or_default()
    }
}

/// Why a call was lost that the watchdog did something about.
#[cold]
pub(crate) fn late_error(error: wasmtime::Error, late: OverrunAction) -> wasmtime::Error {
    match late.at {
        Some(at) => BrokenOff { at }.into(),
        None if error.downcast_ref() == Some(&FaultKind::Overrun) => error,
        // The trap at a check is a memory access out of bounds; so is what happens to be one at the same time.
        None if late.polled => FaultKind::TimeOut.into(),
        None => error,
    }
}

impl Wasm {
    fn of(
        instance: WasmInstance,
        store: &mut Store<HostState>,
        admitted: &Admitted,
        checks: Checks,
    ) -> wasmtime::Result<Self> {
        let facts = admitted.facts();
        let missing =
            |name: &str| wasmtime::Error::msg(format!("the rewritten module has no export `{name}`"));
        let memory =
            instance.get_memory(&mut *store, export::MEMORY).ok_or_else(|| missing(export::MEMORY))?;
        let mut global = |name: &str| instance.get_global(&mut *store, name).ok_or_else(|| missing(name));
        let rest = global(rewrite::REST)?;
        let drops = global(rewrite::DROPS)?;
        let fuel = checks.is_charged().then(|| global(rewrite::FUEL)).transpose()?;
        let stack = facts.stack_pointer.map(|_| global(rewrite::STACK_POINTER)).transpose()?;
        let stack = stack.map(|global| (global, global.get(&mut *store)));
        let counter =
            checks.is_sliced().then(|| CallCounter::of(instance, &mut *store, checks)).transpose()?;
        let starts = facts.entries.iter().filter(|entry| entry.phase() == host::CallPhase::Start);
        let starts =
            starts.map(|entry| Starting::of(instance, &mut *store, entry)).collect::<Result<_, _>>()?;
        Ok(Self {
            memory,
            starts,
            run: instance.get_typed_func(&mut *store, rewrite::RUN)?,
            tick: entered(instance, &mut *store, facts, EntryPoint::Tick)?,
            stop: entered(instance, &mut *store, facts, EntryPoint::Stop)?,
            lost: entered(instance, &mut *store, facts, EntryPoint::Lost)?,
            ears: EventHandlers::of(instance, store, facts)?,
            fuel,
            counter,
            rest,
            drops,
            stack,
            one_by_one: facts.entry() == EntryKind::Packet,
        })
    }
}
