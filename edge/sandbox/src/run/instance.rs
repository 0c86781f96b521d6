//! [`Instance`]: a module in its sandbox in this process. Callers map packets into it, call it with batches, and take its
//! records, frames and patches. The calls themselves are in `suspend.rs`.

use crate::back_end::{BackEnd, NativeSlot};
use crate::engine::{Engine, Instantiation, LoadError, LoadedModule};
use crate::load::rewrite::Checks;
use crate::run::entry::{Exports, Globals, Wasm};
use crate::run::event::InstanceContext;
use crate::run::fault::{CallFault, FaultKind, FunctionIndices, Interrupted};
use crate::run::guest_memory::PrivateMemory;
use crate::run::host::{HostState, LogLine, order_of};
use crate::run::interrupt::CodeMap;
use crate::run::native::NativeInstance;
use crate::run::patching::Patch;
use crate::run::sandbox_memory::{OwnMemory, SandboxMemory};
use crate::run::slice::{SandboxView, SliceState, lock};
use crate::run::source_lines::SourceLines;
use crate::run::space::{Area, map_areas, release_pages};
use crate::run::stop::StopProgress;
use crate::run::streams::InstanceStreams;
use crate::run::strikes::StrikeCounter;
use crate::run::suspend::{Call, SuspendedCall, poll_ready};
use crate::run::trace::TraceStep;
use crate::watchdog::{OverrunAction, WatchedSandbox};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use wasmtime::Store;
use weir_abi::host::HostFunction;
use weir_abi::{ARENA_BASE, ARENA_MAX, DESCRIPTORS_BASE, DESCRIPTORS_MAX, lost};
use weir_admission::Tier;
use weir_bounds::{CostTable, EntryPoint};
use weir_session::{HeldMemory, Records};
use weir_units::{Bytes, Timestamp};
use weir_wire::stream::{StreamLayer, TcpStreamCounters};

/// The most faults of an instance that are described. Further faults are only counted.
pub(crate) const FAULTS_DESCRIBED: usize = 8;

/// A batch of up to 64 packets.
#[derive(Clone, Copy, Debug)]
pub struct BatchInput {
    /// Guest address of the first descriptor.
    pub descriptors: u32,
    /// The packets for this module: bit i is packet i of the batch.
    pub mask: u64,
    /// Index of the batch's first packet in its block.
    pub first: u32,
}

/// Counters of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounters {
    /// Packets processed to completion.
    pub packets: u64,
    /// Packets lost by an aborted call.
    pub lost: u64,
    /// The part of [`lost`](Self::lost) whose call exceeded its limit, or was [aborted](Instance::abort) while it was
    /// suspended. The other lost packets are those of calls that trapped.
    pub over_limit: u64,
    /// Faults: calls of any kind that trapped or were aborted.
    pub faults: u64,
    /// Records refused because of a limit.
    pub records_dropped: u64,
    /// Records of aborted calls, which are discarded.
    pub records_discarded: u64,
    /// Frames refused because of a limit.
    pub frames_dropped: u64,
    /// Log lines refused because of a limit.
    pub log_dropped: u64,
    /// Packets and other calls over their limit: aborted in a metered module, completed in a supervised one.
    pub exceeded: u64,
    /// Current strikes against the module, over all of its instances. At the profile's number of strikes the module ends.
    pub strikes: u64,
}

/// A fault with the call in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incident {
    /// The fault.
    pub fault: CallFault,
    /// The kind of the call.
    pub during: During,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// Instantiation, `_initialize` or `weir_start`.
    Start,
    /// A packet, by its index in the block.
    Packet(u32),
    /// `weir_tick`.
    Tick,
    /// `weir_stream`, for events of TCP streams without a packet.
    StreamEvents,
    /// `weir_stop`, or `weir_rest` after it.
    Stop,
    /// `weir_lost`, which tells the module about an aborted call.
    Lost,
    /// An event, by its entry point.
    Event(EntryPoint),
    /// No call: between two batches.
    Idle,
}

/// A module in its sandbox. The module can access its private memory, read the mapped memory and call host functions. It
/// has effects only by host functions and by its verdicts.
pub struct Instance {
    // The first field, so that this value is dropped before the store, which owns the poll page that the watchdog changes.
    pub(crate) watch: Option<WatchedSandbox>,
    pub(crate) checks: Checks,
    /// The layout of the module's function indices.
    indices: FunctionIndices,
    /// The machine code, if the module runs in it. Dropped before the store, which owns the address space.
    pub(crate) native: Option<NativeInstance>,
    pub(crate) back_end: BackEnd,
    /// The slot for machine code, if this instance has to follow its changes, and the instance of Cranelift's code.
    pub(crate) slot: Option<(NativeSlot, Option<wasmtime::Instance>)>,
    /// `None` while a call is suspended, because the call then owns the store.
    pub(crate) store: Option<Store<HostState>>,
    /// `None` if instantiation failed.
    pub(crate) wasm: Option<Wasm>,
    /// The beginning of the sandbox's address space; null if instantiation failed.
    pub(crate) base: *mut u8,
    /// The suspended call, if there is one.
    pub(crate) task: Option<SuspendedCall>,
    /// The state that this instance shares with a suspended call.
    pub(crate) slice: Arc<Mutex<SliceState>>,
    pub(crate) call_limit: Duration,
    pub(crate) counters: InstanceCounters,
    /// The mask of packets that [`Self::take_unserved`] returns.
    pub(crate) unserved: u64,
    incidents: Vec<Incident>,
    code_map: Arc<CodeMap>,
    lines: Arc<OnceLock<SourceLines>>,
    /// The strikes against the module, over all of its instances.
    pub(crate) strike_counter: Arc<StrikeCounter>,
    /// The profile's number of strikes at which a module ends.
    strikes_max: u32,
    /// The cause of the last aborted call, an argument of `weir_lost`. `None` once `weir_lost` has been called.
    pub(crate) unreported_loss: Option<i32>,
    /// The resources from the module's session.
    pub(crate) context: InstanceContext,
    /// The number of times that the session's memory had become low at the last [`Self::low_memory`].
    pub(crate) times_low: u64,
    /// True if the start of this instance failed or was aborted. No function of it is called any more.
    pub(crate) start_failed: bool,
    pub(crate) stop_progress: StopProgress,
}

// SAFETY: `base` points to the address space that the store owns, which does not move with the store. The store may move
// between threads, and the pointer is used only through `&mut self`.
unsafe impl Send for Instance {}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("counters", &self.counters)
            .field("start_failed", &self.start_failed)
            .finish_non_exhaustive()
    }
}

impl Instance {
    /// Creates a sandbox and starts the module in it. If the module fails at its start, the returned instance has
    /// [ended](Self::has_ended).
    ///
    /// # Errors
    /// [`LoadError`] for failures of the node, not of the module.
    pub fn start(engine: &Engine, module: &LoadedModule) -> Result<Self, LoadError> {
        Self::start_with(engine, module, InstanceContext::default())
    }

    /// Creates a sandbox for a module of a session, and starts the module in it, as [`Self::start`] does.
    ///
    /// # Errors
    /// [`LoadError`] for failures of the node, if the session lacks the module's initial memory, and if the module's only code was
    /// withdrawn.
    pub fn start_with(
        engine: &Engine,
        module: &LoadedModule,
        context: InstanceContext,
    ) -> Result<Self, LoadError> {
        let mut this = Self::make_with(engine, module, context)?;
        this.run_to_completion(Call::Start);
        Ok(this)
    }

    /// Creates a sandbox without starting the module in it: its first call is [`Call::Start`].
    ///
    /// # Errors
    /// [`LoadError`] for failures of the node, not of the module.
    pub fn make(engine: &Engine, module: &LoadedModule) -> Result<Self, LoadError> {
        Self::make_with(engine, module, InstanceContext::default())
    }

    fn make_with(
        engine: &Engine,
        module: &LoadedModule,
        mut context: InstanceContext,
    ) -> Result<Self, LoadError> {
        // Read once, because another thread can withdraw the code at any time.
        let native = module.native.code();
        if let (None, Instantiation::OwnMemory(_)) = (native, &module.instantiation)
            && let Some(refusal) = module.native.refusal(&module.admitted)
        {
            return Err(refusal);
        }
        let limits = module.admitted.limits();
        let slice = Arc::default();
        let mut host = HostState::new(Arc::clone(&module.admitted));
        host.continues_over_limit = module.checks.refill().is_some();
        host.trace = engine.options().traces.then(Vec::new);
        host.slice = Arc::clone(&slice);
        host.kept.session_limit.clone_from(&context.kept);
        host.rights.clone_from(&context.writes);
        host.messages.clone_from(&context.messages);
        host.publisher.clone_from(&context.publisher);
        // The initial tables are not stored in the context, because the instance would keep them after their replacement.
        let tables = std::mem::take(&mut context.tables);
        if let Some(reservation) = &context.memory {
            let wanted = Bytes(module.admitted.info().memory.0.saturating_add(host.stream_memory().0));
            host.held_memory = Some(
                HeldMemory::take(reservation, wanted)
                    .ok_or_else(|| LoadError::Memory { wanted, left: reservation.state().left() })?,
            );
        }
        let mut store = Store::new(module.runtime(), host);
        store.limiter(|host| host);
        engine.disable_wasmtime_checks(&mut store).map_err(|e| LoadError::Sandbox(format!("{e:#}")))?;
        let made = match &module.instantiation {
            Instantiation::Wasmtime(pre) if module.checks.has_suspendable_calls() => {
                poll_ready(pre.instantiate_async(&mut store)).map(Some)
            }
            Instantiation::Wasmtime(pre) => pre.instantiate(&mut store).map(Some),
            Instantiation::OwnMemory(initial) => {
                OwnMemory::make(&mut store, engine.spaces(), initial, &module.rewritten).map(|()| None)
            }
        };
        let mut this = Self {
            watch: None,
            native: None,
            back_end: BackEnd::Cranelift,
            slot: None,
            checks: module.checks,
            indices: module.indices,
            store: None,
            wasm: None,
            base: std::ptr::null_mut(),
            task: None,
            slice,
            call_limit: engine.call_limit(),
            counters: InstanceCounters::default(),
            unserved: 0,
            incidents: Vec::new(),
            code_map: Arc::clone(&module.code_map),
            lines: Arc::clone(&module.lines),
            strike_counter: Arc::clone(&module.strike_counter),
            strikes_max: limits.strikes,
            unreported_loss: None,
            // If memory is low now, the first call of `low_memory` returns the event.
            times_low: context.memory.as_ref().map_or(0, |memory| {
                let state = memory.state();
                state.times_low.saturating_sub(state.is_low().into())
            }),
            context,
            start_failed: false,
            stop_progress: StopProgress::default(),
        };
        let instance = match made {
            Ok(instance) => instance,
            Err(error) => {
                let fault = CallFault::from_error(&error, module.indices, &module.code_map);
                if fault.kind == FaultKind::Other && error.downcast_ref::<wasmtime::Trap>().is_none() {
                    return Err(LoadError::Sandbox(format!("{error:#}")));
                }
                this.store = Some(store);
                this.record_fault(fault, During::Start);
                this.start_failed = true;
                return Ok(this);
            }
        };
        let unexpected = |e: wasmtime::Error| LoadError::Sandbox(format!("{e:#}"));
        let memory = match instance {
            None => SandboxMemory::Own,
            Some(instance) => {
                let exported = instance.get_memory(&mut store, weir_abi::export::MEMORY);
                let missing = || LoadError::Sandbox("the rewritten module exports no memory".into());
                SandboxMemory::Wasmtime(exported.ok_or_else(missing)?)
            }
        };
        let exports = Exports { instance, memory, store: &mut store, native: native.map(Arc::as_ref) };
        let wasm = Wasm::find_exports(exports, module.admitted(), module.checks).map_err(unexpected)?;
        this.base = memory.base(&store);
        let private = memory.size(&store);
        if !engine.spaces().contains(this.base) {
            return Err(LoadError::Sandbox("the engine did not use weir's address space".into()));
        }
        let polls = module.checks.is_charged();
        // SAFETY: the store owns the space. This instance owns both, and drops `watch` before the store.
        let watch = unsafe { engine.watchdog().guard(this.base, &module.admitted, &module.code_map, polls) };
        let host = store.data_mut();
        host.must_interrupt = watch.must_interrupt();
        // SAFETY: `base` is the space of the store, which owns the host's state. wasmtime accesses the memory only for
        // instructions of the module, which do not run during a host function.
        host.private = unsafe { PrivateMemory::new(this.base, private) };
        host.counter = wasm.counter;
        if let Some(settings) = module.admitted.tcp() {
            // SAFETY: `base` is the space of the store, which is live, and this is its only window.
            let (streams, window) = unsafe { InstanceStreams::new(settings, this.base) }
                .map_err(|error| LoadError::Sandbox(format!("its TCP streams: {error}")))?;
            host.streams = Some(Box::new(streams));
            host.stream_window = window;
        }
        if let Some(native) = native {
            // SAFETY: the space is that of the store, and `native` is dropped before the store.
            let native = unsafe { NativeInstance::new(this.base, native) };
            let failed = |error| LoadError::Sandbox(format!("its stack: {error}"));
            this.native = Some(native.map_err(failed)?);
        }
        if native.is_some() {
            this.back_end = BackEnd::Llvm;
        }
        if native.is_none() || module.can_be_withdrawn {
            this.slot = Some((module.native.clone(), instance));
        }
        this.watch = Some(watch);
        this.store = Some(store);
        this.wasm = Some(wasm);
        this.map_initial_tables(&tables)
            .map_err(|error| LoadError::Sandbox(format!("its tables: {error}")))?;
        Ok(this)
    }

    /// Returns the compiler of the code in which the instance runs.
    pub fn back_end(&self) -> BackEnd {
        self.back_end
    }

    /// Discards the effects of a start that failed, and ends the instance.
    #[cold]
    pub(crate) fn handle_start_fault(&mut self, error: &wasmtime::Error) {
        // An aborted call leaves no effects.
        if let Some(host) = self.host_mut() {
            host.records.clear();
        }
        self.record_fault(self.fault(error), During::Start);
        self.start_failed = true;
    }

    /// Discards the count of calls over their limit after the start, so that the start does not count against the packets.
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

    /// Returns the fuel that the last call used; for a batch, the fuel that its last packet used. `None` without
    /// [`CheckMode::Exact`](crate::CheckMode::Exact).
    pub fn fuel_used(&mut self) -> Option<u64> {
        let Checks::Charged { allowance: Some(allowance), exact: true, .. } = self.checks else {
            return None;
        };
        let (wasm, store) = (self.wasm.as_ref()?, self.store.as_mut()?);
        let mut globals = Globals::new(store, self.native.as_mut());
        let left = match wasm.counter {
            Some(counter) => counter.allowance(&mut globals),
            None => globals.get(wasm.fuel?),
        };
        let strings = store
            .data()
            .string_bytes
            .saturating_mul(CostTable::standard().host(HostFunction::Emit).per_byte.into());
        let used = allowance.cast_signed().saturating_sub(left);
        Some(used.max(0).cast_unsigned().saturating_add(strings))
    }

    pub(crate) fn fault(&self, error: &wasmtime::Error) -> CallFault {
        CallFault::from_error(error, self.indices, &self.code_map)
    }

    /// Counts how many of the last `calls` calls of a supervised module were over their limit. To be called between two
    /// batches, because this function can unload the module.
    #[inline]
    pub(crate) fn count_exceeded(&mut self, calls: u32) {
        if self.checks.refill().is_some() {
            self.count_supervised(calls);
        }
    }

    fn count_supervised(&mut self, calls: u32) {
        let over = u64::from(self.host_mut().map_or(0, HostState::take_exceeded));
        self.counters.exceeded += over;
        let within = u64::from(calls).saturating_sub(over);
        if self.strike_counter.count_calls(over, within, self.strikes_max) {
            self.release_kept();
            self.describe(CallFault::without_place(FaultKind::Unloaded), During::Idle);
        }
    }

    /// Discards log lines, records and faults of the start, which another instance of the module produced too.
    pub fn forget_start(&mut self) {
        self.counters = InstanceCounters::default();
        self.incidents.clear();
        if let Some(host) = self.host_mut() {
            host.forget_start();
        }
    }

    /// Returns an error while a call is suspended, because the memory that is mapped for the call must not change.
    pub(crate) fn check_not_suspended(&self) -> io::Result<()> {
        if self.is_suspended() { Err(io::ErrorKind::ResourceBusy.into()) } else { Ok(()) }
    }

    /// Maps the descriptors of all blocks, in place of the previous mapping. Returns the host addresses of the mapping.
    ///
    /// # Errors
    /// A call [is suspended](Self::is_suspended), or the system refuses the mapping.
    pub fn map_descriptors(&mut self, area: Area<'_>) -> io::Result<Range<usize>> {
        if self.base.is_null() {
            return Ok(0..0);
        }
        self.check_not_suspended()?;
        let Some(store) = &mut self.store else { return Ok(0..0) };
        let mapped = &mut store.data_mut().descriptors;
        // SAFETY: `base` is this instance's live space, and the range is that of descriptors in it. No slice of the
        // mapping is in use: only calls lend slices, and by `&mut self` no call is in progress.
        unsafe { map_areas(self.base, DESCRIPTORS_BASE, DESCRIPTORS_MAX, &[area], mapped)? };
        Ok(mapped.clone())
    }

    /// Maps memory with packets, in place of the previous mapping. Releases all kept packets, and removes the
    /// [pinner](Self::set_packet_pinner). Returns the host addresses of the mapping, by which the host can recognise
    /// accesses to a truncated capture file.
    ///
    /// # Errors
    /// A call [is suspended](Self::is_suspended), or the system refuses the mapping.
    pub fn map_packets(&mut self, area: Area<'_>) -> io::Result<Range<usize>> {
        self.map_packet_areas(&[area])
    }

    /// As [`map_packets`](Self::map_packets), for several areas one behind the other. The length of each but the last must
    /// be a multiple of the page size.
    ///
    /// # Errors
    /// As for [`map_packets`](Self::map_packets). If one of the areas cannot be mapped, none is.
    pub fn map_packet_areas(&mut self, areas: &[Area<'_>]) -> io::Result<Range<usize>> {
        if self.base.is_null() {
            return Ok(0..0);
        }
        self.check_not_suspended()?;
        let Some(store) = &mut self.store else { return Ok(0..0) };
        store.data_mut().set_packet_pinner(None);
        let mapped = &mut store.data_mut().packets;
        // SAFETY: `base` is this instance's live space, and the range is that of packets in it. No slice of the mapping
        // is in use: only calls lend slices, and by `&mut self` no call is in progress.
        unsafe { map_areas(self.base, ARENA_BASE, ARENA_MAX, areas, mapped)? };
        let mapped = mapped.clone();
        store.data_mut().has_fixed_packets = areas.iter().all(|area| area.is_fixed);
        Ok(mapped)
    }

    /// Gives back the pages of a part of the packets that [`map_packets`](Self::map_packets) mapped, so that they no
    /// longer count as resident. `part` is in bytes from the first mapped byte; both ends are rounded down to pages. The
    /// bytes stay readable: an access maps the file's page again.
    pub fn release_packets(&mut self, part: Range<usize>) {
        let Some(store) = &mut self.store else { return };
        release_pages(&store.data_mut().packets, part);
    }

    /// Sets the number of the block's first packet in the capture, which the watchdog's message about a call that
    /// cannot be ended contains.
    pub fn set_first_packet(&mut self, number: u64) {
        if let Some(watch) = &self.watch {
            watch.set_block(number);
        }
    }

    /// Begins a block of packets. All ticks of the block share the limit on records of one call without packets, because
    /// there can be a tick before each packet.
    pub fn begin_block(&mut self) {
        if let Some(host) = self.host_mut() {
            host.begin_block();
        }
    }

    /// Calls the module with a batch. Returns the mask of packets to drop. A packet whose call is aborted is lost for this
    /// module, but not dropped, and the batch continues with the next packet.
    #[inline]
    pub fn run(&mut self, batch: BatchInput) -> u64 {
        self.run_to_completion(Call::Batch(batch))
    }

    /// Handles a fault in a batch's call: discards the effects of the current packet, and counts the fault. Returns the mask
    /// of remaining packets.
    #[cold]
    pub(crate) fn handle_batch_fault(
        &mut self,
        error: &wasmtime::Error,
        batch: BatchInput,
        mask: u64,
        drops: &mut u64,
    ) -> u64 {
        let fault = self.fault(error);
        let (packet, after) = self.lose_current_packet(batch, mask, drops, fault.is_over_limit());
        self.record_fault(fault, During::Packet(packet));
        after
    }

    /// Discards the effects of the current packet. Returns its index in the block, and the mask of remaining packets.
    pub(crate) fn lose_current_packet(
        &mut self,
        batch: BatchInput,
        mask: u64,
        drops: &mut u64,
        is_over_limit: bool,
    ) -> (u32, u64) {
        let (Some(wasm), Some(store)) = (&self.wasm, &mut self.store) else { return (batch.first, 0) };
        let phase = store.data().phase;
        let (lost, after) = if wasm.has_packet_function {
            let mut globals = Globals::new(store, self.native.as_mut());
            let rest = globals.get(wasm.remaining).cast_unsigned() & mask;
            *drops |= globals.get(wasm.drops).cast_unsigned() & mask;
            // The lowest bit is the current packet. An empty mask means that the loop itself was interrupted after
            // its last packet.
            (rest & rest.wrapping_neg(), rest & rest.wrapping_sub(1))
        } else {
            (mask, 0)
        };
        let done = mask & !lost & !after;
        self.counters.packets += u64::from(done.count_ones());
        let index = (lost != 0).then(|| lost.trailing_zeros());
        let packet = batch.first + index.unwrap_or(0);
        let host = store.data_mut();
        if !wasm.has_packet_function {
            // All records of such a batch have the order of its first packet.
            host.discard(order_of(phase, None));
            while host.patches.pop_if(|patch| patch.packet >= packet).is_some() {}
        } else if index.is_some() {
            host.discard(order_of(phase, index));
            while host.patches.pop_if(|patch| patch.packet == packet).is_some() {}
        }
        self.count_lost(lost, is_over_limit);
        (packet, after)
    }

    /// Counts the packets that are lost by an aborted call.
    pub(crate) fn count_lost(&mut self, mask: u64, is_over_limit: bool) {
        let lost = u64::from(mask.count_ones());
        self.counters.lost += lost;
        self.counters.over_limit += if is_over_limit { lost } else { 0 };
        self.unserved |= mask;
    }

    /// Calls the module's `weir_tick`, because packet time has reached `now`, after this number of periods. In the block,
    /// records of the tick come before the records of packet `before`.
    pub fn tick(&mut self, now: Timestamp, periods: u64, before: u32) {
        self.run_to_completion(Call::Tick { now, periods, before });
    }

    /// Stops the module, because no more packets follow: runs all parts of its stop. A caller that takes the output
    /// between two parts uses less memory.
    pub fn stop(&mut self, now: Timestamp) {
        while !self.is_stopped() {
            self.run_to_completion(Call::Stop { now });
        }
    }

    /// Handles a fault in a call without packets: discards the effects of the call, and counts the fault.
    #[cold]
    pub(crate) fn handle_periodic_fault(&mut self, error: &wasmtime::Error, during: During) {
        self.discard_call_effects();
        self.record_fault(self.fault(error), during);
    }

    /// Discards the effects of a call without packets.
    pub(crate) fn discard_call_effects(&mut self) {
        if let Some(host) = self.host_mut() {
            let order = order_of(host.phase, None);
            host.discard(order);
        }
    }

    /// Counts a fault, and resets the shadow stack for the next call.
    fn record_fault(&mut self, mut fault: CallFault, during: During) {
        self.counters.faults += 1;
        let is_over = fault.is_over_limit();
        if is_over {
            self.counters.exceeded += 1;
            // A fault at the start is no strike: it ends each instance of the module in any event.
            if during != During::Start {
                self.strike_counter.strike(self.strikes_max);
            }
        }
        if fault.kind == FaultKind::TimeOverrun {
            if self.host().is_some_and(|host| host.admitted.tier() == Tier::Unmetered) {
                fault.kind = FaultKind::UnmeteredOverrun;
            }
            self.strike_counter.end();
        }
        self.unreported_loss = Some(if is_over { lost::LIMIT } else { lost::TRAP });
        self.describe(fault, during);
        self.empty_stack();
        if self.is_terminated() {
            self.release_kept();
        }
    }

    /// Empties the module's shadow stack, which an aborted call has left in use.
    pub(crate) fn empty_stack(&mut self) {
        let stack = self.wasm.as_ref().and_then(|wasm| wasm.stack);
        if let (Some((pointer, empty)), Some(store)) = (stack, &mut self.store) {
            Globals::new(store, self.native.as_mut()).set(pointer, empty);
        }
    }

    pub(crate) fn describe(&mut self, fault: CallFault, during: During) {
        if self.incidents.len() < FAULTS_DESCRIBED {
            self.incidents.push(Incident { fault, during });
        }
    }

    /// Returns the mask of packets that the module has not processed to completion since the last call of this function:
    /// packets lost by aborted calls, and packets for an ended module. Each bit is a packet's index in its batch.
    pub fn take_unserved(&mut self) -> u64 {
        std::mem::take(&mut self.unserved)
    }

    /// Returns the counters.
    pub fn counters(&self) -> InstanceCounters {
        let view = self.view();
        InstanceCounters {
            records_dropped: view.records_dropped,
            records_discarded: view.records_discarded,
            frames_dropped: view.frames_dropped,
            log_dropped: view.log_dropped,
            strikes: self.strike_counter.strikes(),
            ..self.counters
        }
    }

    /// Returns the first faults of the instance. Later faults are only counted.
    pub fn incidents(&self) -> &[Incident] {
        &self.incidents
    }

    /// Returns the messages of the first faults without the first `skipped`, with lines of the author's source if these have
    /// been [read](LoadedModule::read_source_lines).
    pub fn fault_messages(&self, skipped: usize) -> Vec<String> {
        let message = |fault: &CallFault| {
            let line = self.lines.get().and_then(|lines| lines.line(fault.offset?));
            line.map_or_else(|| fault.to_string(), |line| format!("{fault} ({}:{})", line.file, line.line))
        };
        self.incidents.iter().skip(skipped).map(|incident| message(&incident.fault)).collect()
    }

    /// Returns true if the module gets no more packets, because it failed to start or exceeded its limits too often. An
    /// unloaded supervised module can still be [stopped](Self::stop), so that its results are not lost.
    pub fn has_ended(&self) -> bool {
        self.is_terminated() || self.strike_counter.is_unloaded()
    }

    /// Returns whether the host no longer calls any function of the module.
    pub(crate) fn is_terminated(&self) -> bool {
        self.start_failed || self.strike_counter.has_ended()
    }

    /// Returns the layer of the packets whose flows the module follows.
    pub fn layer(&self) -> StreamLayer {
        self.host().map_or(StreamLayer::Outer, |host| host.admitted.layer())
    }

    /// Returns true if the module follows TCP streams.
    pub fn has_streams(&self) -> bool {
        self.wasm.as_ref().is_some_and(|wasm| wasm.events.is_some())
    }

    /// Returns the counters of the TCP streams; all 0 for a module without streams.
    pub fn stream_counters(&self) -> TcpStreamCounters {
        self.view().streams
    }

    /// Returns the size of the private memory and of the TCP streams.
    pub fn memory(&self) -> Bytes {
        Bytes(self.view().memory as u64)
    }

    /// Returns the observable state of the sandbox; during a suspended call, the state at its suspension.
    pub(crate) fn view(&self) -> SandboxView {
        let Some(store) = &self.store else { return lock(&self.slice).view };
        let host = store.data();
        SandboxView {
            memory: self.wasm.as_ref().map_or(0, |wasm| wasm.memory.size(store))
                + usize::try_from(host.stream_memory().0).unwrap_or(usize::MAX),
            streams: host.streams.as_ref().map(|streams| streams.counters()).unwrap_or_default(),
            records_dropped: host.records_dropped,
            records_discarded: host.records_discarded,
            frames_dropped: host.outgoing.dropped,
            kept: host.kept.bytes(),
            log_dropped: host.log_dropped,
        }
    }

    /// Takes the records emitted since the last call of this function. `empty` becomes the new buffer. While a call is
    /// suspended, returns no records.
    pub fn take_records(&mut self, empty: Records) -> Records {
        match self.host_mut() {
            Some(host) => std::mem::replace(&mut host.records, empty),
            None => empty,
        }
    }

    /// Returns whether [`Self::take_records`] would return records.
    pub fn has_records(&self) -> bool {
        self.host().is_some_and(|host| !host.records.is_empty())
    }

    /// Discards further patches. To be called if packets are not forwarded, so that patches have no effect. The module
    /// cannot observe whether patches are discarded.
    pub fn ignore_patches(&mut self) {
        if let Some(host) = self.host_mut() {
            host.keeps_patches = false;
        }
    }

    /// Takes the patches made since the last call of this function.
    pub fn take_patches(&mut self) -> Vec<Patch> {
        let take = |host: &mut HostState| {
            // The next batches probably make about as many patches.
            let empty = Vec::with_capacity(host.patches.len());
            std::mem::replace(&mut host.patches, empty)
        };
        self.host_mut().map(take).unwrap_or_default()
    }

    /// Takes the steps of the instance since the last call of this function; none if its engine does not
    /// [trace](crate::EngineOptions::traces).
    pub fn take_trace(&mut self) -> Vec<TraceStep> {
        self.host_mut().and_then(|host| host.trace.as_mut()).map(std::mem::take).unwrap_or_default()
    }

    /// Takes the log lines since the last call of this function.
    pub fn take_log(&mut self) -> Vec<LogLine> {
        self.host_mut().map(|host| std::mem::take(&mut host.log)).unwrap_or_default()
    }
}

/// Returns the error of a call that failed after the watchdog acted on it. `error` is wasmtime's error.
#[cold]
pub(crate) fn overrun_error(error: wasmtime::Error, action: OverrunAction) -> wasmtime::Error {
    match action.interrupted_at {
        // Machine code knows where it was interrupted.
        _ if FaultKind::of(&error) == Some(FaultKind::TimeOverrun) => error,
        Some(at) => Interrupted { at }.into(),
        // wasmtime reports a poll that traps as an out-of-bounds access. Such an access by the module itself, at the same
        // time, would look the same.
        None if action.closed_poll_page => FaultKind::TimeOut.into(),
        None => error,
    }
}
