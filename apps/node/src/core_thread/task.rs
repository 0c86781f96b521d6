//! A module's task on a core thread: packets and events in, records and forwarded packets out.

mod replaced;

use crate::control::config::PACKET_BYTES_MAX;
use crate::core_thread::record_sender::{BytesInFlight, RecordSender};
use crate::core_thread::sandbox::SandboxInstance;
use crate::core_thread::service_bus::{ServiceEndpoint, ServiceMessage};
use crate::core_thread::session_part::{RecordLimits, TableUpdates};
use crate::sync::LeafMutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Instant;
use weir_abi::BATCH_PACKETS;
use weir_abi::entry::WorkLimit;
use weir_bounds::EntryPoint;
use weir_datapath::account::DeferredCharges;
use weir_datapath::clock::ClockReading;
use weir_datapath::driver::{BatchDriver, Sandbox};
use weir_datapath::effects::Patches;
use weir_datapath::egress::{CopyBuffers, Egress, TxPacketSink};
use weir_datapath::plan::ChannelPlanCounters;
use weir_datapath::preprocess::Preprocessor;
use weir_datapath::queue::{PacketQueue, QueueEntry};
use weir_ledger::Usage;
use weir_sandbox::{Cycles, FuelSlice, LogLine, ModuleEvent, thread_time};
use weir_session::services::{EndpointId, ServiceCall};
use weir_units::Nanos;
use {
    weir_admission::{Admitted, Calibration, Tier},
    weir_session::Records,
};

/// Maximum number of packets of one call.
const BATCH: u32 = 64;
const _: () = assert!(BATCH as usize == BATCH_PACKETS);

/// Counters of a module, for status and ledger, with its present memory and state. Counters only grow.
#[derive(Debug, Default)]
pub struct TaskCounters {
    /// Packets that the module has seen.
    pub packets: AtomicU64,
    /// Captured bytes of the packets that the module has seen.
    pub bytes: AtomicU64,
    /// Packets that the module dropped on a channel that forwards.
    pub dropped: AtomicU64,
    /// Packets that were forwarded without the module's patch, because their memory had changed meanwhile.
    pub unpatched: AtomicU64,
    /// Packets of calls that trapped.
    pub trapped: AtomicU64,
    /// Packets of calls that were aborted at a limit, or while they were suspended.
    pub over_limit: AtomicU64,
    /// Packets that could not be mapped into the sandbox.
    pub unseen: AtomicU64,
    /// Calls that trapped or were aborted.
    pub faults: AtomicU64,
    /// Calls that counted as strikes.
    pub strikes: AtomicU64,
    /// Records that were emitted and accepted.
    pub records: AtomicU64,
    /// Records that the module's own limits refused.
    pub refused: AtomicU64,
    /// Records of aborted calls.
    pub discarded: AtomicU64,
    /// Effect of the session's record limits: refused records, and bytes of accepted records.
    pub limited: LeafMutex<Usage>,
    /// Records lost because the records thread was behind.
    pub unwritten: AtomicU64,
    /// Time in the module, in ns.
    pub used: AtomicU64,
    /// Present private memory with that of kept packets, in bytes.
    pub memory: AtomicU64,
    /// State of the sandbox: 0 running, 1 stopped by its limits, 2 its process has ended.
    pub ended: AtomicU64,
    /// Message of the last fault.
    pub last_fault: LeafMutex<Option<String>>,
}

/// Output of a module for the records thread.
#[derive(Debug)]
pub struct BatchOutput {
    /// Number of the module on this node.
    pub module: u64,
    pub records: Records,
    pub log: Vec<LogLine>,
    /// Messages of new faults.
    pub faults: Vec<String>,
    /// End of the module's output. The records thread closes the files and then signals here.
    pub end: Option<Sender<()>>,
    /// Guard that counts the output's bytes as in flight until the output is dropped.
    pub in_flight: Option<BytesInFlight>,
}

/// Longest times for which a module keeps a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// Time of a packet, or of a batch for a module with a batch entry point. `None` for a module whose calls can be
    /// suspended.
    pub packet: Option<PacketTime>,
    /// Time of any call, with a packet of [`PACKET_BYTES_MAX`]; between two suspension points for a module whose calls
    /// can be suspended.
    pub call: Nanos,
    /// True if the stop call takes no longer than `call` without a suspension.
    pub stops_in_slices: bool,
}

/// Longest time of a packet: a linear function of its captured bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTime {
    /// Time of a packet of length 0.
    pub empty: Nanos,
    /// Time of a packet of [`PACKET_BYTES_MAX`].
    pub longest: Nanos,
}

impl PacketTime {
    fn for_bytes(self, bytes: u32) -> u64 {
        let slope = self.longest.0.saturating_sub(self.empty.0);
        let bytes = u64::from(bytes.min(PACKET_BYTES_MAX));
        self.empty.0.saturating_add(slope.saturating_mul(bytes).div_ceil(PACKET_BYTES_MAX.into()))
    }

    /// Returns a mask of the first packets of a queue entry that take at most `left` together; at least one packet.
    fn packets_within(self, queued: &QueueEntry, left: Nanos) -> u64 {
        if self.longest.0.saturating_mul(BATCH.into()) <= left.0 {
            return queued.mask;
        }
        let descriptors = queued.block.descriptors().get(queued.batch * BATCH_PACKETS..).unwrap_or_default();
        let (mut fits, mut rest, mut time) = (0, queued.mask, 0_u64);
        while rest != 0 {
            let packet = descriptors.get(rest.trailing_zeros() as usize);
            time = time.saturating_add(self.for_bytes(packet.map_or(0, |packet| packet.cap_len)));
            if fits != 0 && time > left.0 {
                break;
            }
            fits |= rest & rest.wrapping_neg();
            rest &= rest.wrapping_sub(1);
        }
        fits
    }
}

impl CallTimes {
    /// Returns the times by the bounds of a proved module, or by the limits of another module.
    pub fn from_bounds(admitted: &Admitted) -> Self {
        let calibration = admitted.assessment().calibrated_profile().calibration();
        let time = |entry, bytes: u32| {
            let Some(bound) = admitted.analysis().entry(entry) else { return Nanos(0) };
            let fuel = if admitted.tier() == Tier::Proved {
                bound.usage.fuel
            } else {
                admitted.limits().for_entry(entry)
            };
            calibration.time(fuel.at(bytes.into()))
        };
        let entries = || admitted.info().entries.iter();
        let entry = entries().find(|entry| entry.packets() > 0).unwrap_or(EntryPoint::Packet);
        let packet = PacketTime { empty: time(entry, 0), longest: time(entry, PACKET_BYTES_MAX) };
        let runs_between_packets = |entry: &EntryPoint| {
            matches!(entry.definition().work_limit, WorkLimit::LostPacket | WorkLimit::Tick)
        };
        let others = entries().filter(runs_between_packets).map(|entry| time(entry, PACKET_BYTES_MAX));
        let call = others.fold(packet.longest, Nanos::max);
        let stops_in_slices = time(EntryPoint::Stop, PACKET_BYTES_MAX) <= call;
        Self { packet: Some(packet), call, stops_in_slices }
    }

    /// Returns the times of a module whose calls can be suspended. A running host function is completed first, so a
    /// suspension can take two pieces.
    pub fn suspendable(admitted: &Admitted) -> Self {
        let calibration = admitted.assessment().calibrated_profile().calibration();
        let piece = calibration.time(admitted.limits().check_interval);
        Self { packet: None, call: Nanos(piece.0.saturating_mul(2)), stops_in_slices: true }
    }
}

/// Rates by which CPU time is converted to fuel and to cycles.
#[derive(Clone, Debug)]
pub struct FuelRate {
    /// Calibration of this node: time for each unit of fuel.
    pub calibration: Calibration,
    /// Nanoseconds for each cycle of the CPU's counter.
    pub nanos_per_cycle: f64,
}

impl FuelRate {
    /// Converts the time `left` to a budget: an amount of fuel, and the value of the cycle counter at the end of that time.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a time of less than a second"
    )]
    fn budget(&self, left: Nanos) -> FuelSlice {
        let cycles = (left.0 as f64 / self.nanos_per_cycle) as u64;
        let until = Cycles(Cycles::now().0.saturating_add(cycles));
        FuelSlice { fuel: self.calibration.fuel(left).max(1), until: Some(until) }
    }
}

/// A running time slice.
struct Slice {
    begin: Instant,
    budget: Nanos,
    fuel_rate: Arc<FuelRate>,
}

impl Slice {
    fn left(&self) -> Nanos {
        Nanos(self.budget.0.saturating_sub(Nanos::from(self.begin.elapsed()).0))
    }

    /// Returns a budget for one call, or `None` at the end of the slice.
    fn part(&self) -> Option<FuelSlice> {
        let left = self.left();
        (left.0 > 0).then(|| self.fuel_rate.budget(left))
    }
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No work is left.
    Done,
    /// Work is left that has not begun.
    More,
    /// A call has begun and is suspended.
    Suspended,
}

/// Inputs of a module.
#[derive(Debug)]
pub struct Inbox {
    pub queue: Arc<PacketQueue>,
    /// Preprocessing of packets, if the channel has any.
    pub preprocessor: Option<Preprocessor>,
    /// Calls of other modules, and answers to the module's own calls.
    pub endpoint: Arc<ServiceEndpoint>,
}

/// State of a module whose channel forwards packets.
#[derive(Debug)]
struct ForwardState {
    egress: Egress,
    /// Batch that the module handles now.
    queued: Option<QueueEntry>,
    copies: CopyBuffers,
}

/// Order in which a module loses packets under overload.
#[derive(Clone, Debug)]
pub struct ShedPriority {
    /// Priority of the module's session.
    pub priority: Arc<AtomicU8>,
    /// Counters for the packets that are shed.
    pub channel: Arc<ChannelPlanCounters>,
}

/// A module with its inputs and outputs, as its core thread runs it.
#[derive(Debug)]
pub struct ModuleTask {
    /// Number of the module on this node.
    pub number: u64,
    driver: BatchDriver<SandboxInstance>,
    queue: Arc<PacketQueue>,
    preprocessor: Option<Preprocessor>,
    shed_priority: ShedPriority,
    counters: Arc<TaskCounters>,
    charges: Arc<DeferredCharges>,
    record_sender: RecordSender,
    call_times: CallTimes,
    fuel_rate: Arc<FuelRate>,
    /// Packets taken from the queue that did not fit into the slice.
    deferred_packets: Option<QueueEntry>,
    forward: Option<ForwardState>,
    /// Queue of each output of the manifest, by its index; `None` for an output that is not connected.
    outputs: Vec<Option<TxPacketSink>>,
    /// Queues that replace `outputs` before the next call.
    next_outputs: Option<Vec<Option<TxPacketSink>>>,
    tables: Option<Box<dyn TableUpdates>>,
    /// Record limits that all modules of the session share.
    limits: Option<Arc<dyn RecordLimits>>,
    /// Arena and number of the last block.
    block: Option<(u64, u64)>,
    faults_sent: usize,
    /// Emitted records that the records thread has not accepted yet.
    unsent: Records,
    /// True while the core thread has a timer for the next tick.
    pub(crate) has_tick_timer: bool,
    endpoint: Arc<ServiceEndpoint>,
    /// Call of another module that is being served.
    serving: Option<Serving>,
    /// Caller that pays for the present work, and the time for which it still pays.
    payer: Option<(EndpointId, Nanos)>,
    /// True once the core thread has begun the stop.
    has_begun_stop: bool,
    /// True while the module takes no more packets from its queue, because a newer version is about to.
    is_draining: bool,
    /// True while the module is on trial: it begins no further batch after a fault.
    is_on_trial: bool,
}

/// A call of another module that is being served.
#[derive(Debug)]
struct Serving {
    call: u64,
    /// Faults of the module before the call.
    faults: u64,
}

impl ModuleTask {
    /// Creates the task. Its outputs are closed until [`with_outputs`](Self::with_outputs).
    #[expect(clippy::too_many_arguments, reason = "a module has so many inputs and outputs")]
    pub fn new(
        number: u64,
        mut driver: BatchDriver<SandboxInstance>,
        inbox: Inbox,
        shed_priority: ShedPriority,
        counters: Arc<TaskCounters>,
        charges: Arc<DeferredCharges>,
        record_sender: RecordSender,
        call_times: CallTimes,
        fuel_rate: Arc<FuelRate>,
    ) -> Self {
        driver.instance.connect_outputs(0);
        Self {
            number,
            driver,
            queue: inbox.queue,
            preprocessor: inbox.preprocessor,
            shed_priority,
            counters,
            charges,
            record_sender,
            call_times,
            fuel_rate,
            deferred_packets: None,
            forward: None,
            outputs: Vec::new(),
            next_outputs: None,
            tables: None,
            limits: None,
            block: None,
            faults_sent: 0,
            unsent: Records::default(),
            has_tick_timer: false,
            endpoint: inbox.endpoint,
            serving: None,
            payer: None,
            has_begun_stop: false,
            is_draining: false,
            is_on_trial: false,
        }
    }

    /// Connects the outputs of the manifest, by index. A module is told which of its outputs are connected.
    pub(crate) fn with_outputs(mut self, outputs: Vec<Option<TxPacketSink>>) -> Self {
        self.connect_outputs(outputs);
        self
    }

    /// Replaces the outputs from the next call on.
    pub(crate) fn set_outputs(&mut self, outputs: Vec<Option<TxPacketSink>>) {
        self.next_outputs = Some(outputs);
    }

    fn connect_outputs(&mut self, outputs: Vec<Option<TxPacketSink>>) {
        let open =
            outputs.iter().take(8).enumerate().map(|(i, output_queue)| u8::from(output_queue.is_some()) << i);
        self.driver.instance.connect_outputs(open.fold(0, |all, bit| all | bit));
        self.outputs = outputs;
    }

    /// Adds the readable tables. Each call sees the newest version of each table.
    pub(crate) fn with_tables(mut self, tables: Box<dyn TableUpdates>) -> Self {
        self.tables = Some(tables);
        self
    }

    /// Applies the session's limits to emitted records.
    pub(crate) fn with_limits(mut self, limits: Arc<dyn RecordLimits>) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Applies changes that are visible from the next call on: outputs, and versions of tables.
    fn apply_updates(&mut self) {
        if let Some(outputs) = self.next_outputs.take() {
            self.connect_outputs(outputs);
        }
        if let Some(tables) = &mut self.tables {
            self.driver.instance.refresh(&mut **tables);
        }
    }

    /// Sets the egress of the packets that the module lets through, if its channel forwards.
    pub(crate) fn with_egress(mut self, egress: Option<Egress>) -> Self {
        if egress.is_none() {
            // Patches have no effect without an egress.
            self.driver.instance.ignore_patches();
        }
        self.forward =
            egress.map(|egress| ForwardState { egress, queued: None, copies: CopyBuffers::default() });
        self
    }

    /// Returns the session's priority under overload.
    pub fn priority(&self) -> u8 {
        self.shed_priority.priority.load(Ordering::Relaxed)
    }

    /// Returns the fill level of the queue, in thousandths.
    pub fn queue_fill(&self) -> u32 {
        self.queue.filled()
    }

    /// Discards all waiting packets in favour of modules with a higher priority.
    pub fn shed(&self) {
        let lost = self.queue.evict_all();
        self.shed_priority.channel.shed.fetch_add(lost, Ordering::Relaxed);
    }

    /// Returns the time that other threads spent for this module since the last call.
    pub fn take_debit(&self) -> Nanos {
        self.charges.collect()
    }

    /// Returns true if packets wait for the module.
    pub fn has_packets(&self) -> bool {
        self.queue.waiting() > 0 || self.has_packets_in_hand()
    }

    /// Returns true if packets have been taken from the queue that the module has not seen.
    pub(super) fn has_packets_in_hand(&self) -> bool {
        self.deferred_packets.is_some() || self.preprocessor.as_ref().is_some_and(Preprocessor::has_packets)
    }

    /// Releases the memory of packets before a position of the channel, because the arena is about to be reused.
    /// Packets taken from the queue are copied if the queue has memory of its own, and lost otherwise. A suspended call
    /// loses its packets that are not done.
    pub fn evict_packets(&mut self, position: u64) {
        if self.queue.in_hand().is_none_or(|at| at >= position) {
            return;
        }
        let mut lost =
            self.preprocessor.as_mut().map_or(0, |preprocessor| preprocessor.move_to_overflow(&self.queue));
        if let Some(rest) = self.deferred_packets.take() {
            self.deferred_packets = self.queue.copy_to_own_memory(&rest);
            lost += if self.deferred_packets.is_some() { 0 } else { u64::from(rest.packets()) };
        }
        if self.driver.has_begun_packets() {
            lost += self.driver.abort();
            self.forward_packets();
        }
        self.shed_priority.channel.lagged.fetch_add(lost, Ordering::Relaxed);
        self.queue.release();
    }

    /// Discards the packets in hand. Returns their number.
    fn drop_packets_in_hand(&mut self) -> u64 {
        let rest = self.deferred_packets.take().map_or(0, |rest| rest.packets().into());
        rest + self.preprocessor.as_mut().map_or(0, Preprocessor::discard)
    }

    /// Handles waiting packets until the budget is used up or no packet is left. The last call may exceed the budget by
    /// [`CallTimes::call`].
    pub fn serve(&mut self, budget: Nanos) -> Progress {
        let slice = self.slice(budget);
        let mut is_done = true;
        while let Some(queued) = self.next_entry(&slice) {
            self.apply_updates();
            let (block, batch) = (&queued.block, queued.block.batch(queued.batch));
            if self.driver.map_block(block).is_err() {
                // The address space is used up, so this batch is lost. Later batches may find space.
                self.counters.unseen.fetch_add(queued.packets().into(), Ordering::Relaxed);
                continue;
            }
            // Block numbers are unique only within one arena.
            let number = (block.window().id(), block.number());
            if self.block.replace(number) != Some(number) {
                self.driver.instance.begin_block();
            }
            let seen = block.descriptors().iter().skip(batch.first).take(batch.count).enumerate();
            let bytes =
                seen.filter(|(i, _)| queued.mask >> i & 1 == 1).map(|(_, d)| u64::from(d.cap_len)).sum();
            self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            is_done = self.driver.begin(block, queued.batch, queued.mask, &|| slice.part());
            if let Some(forward) = &mut self.forward {
                forward.queued = Some(queued);
            }
            if is_done {
                self.forward_packets();
            }
            if !is_done || slice.left().0 == 0 || self.driver.instance.has_ended() || self.has_failed_trial()
            {
                break;
            }
        }
        self.finish_run(is_done, &slice)
    }

    /// Resumes a suspended call.
    pub fn resume(&mut self, budget: Nanos) -> Progress {
        let slice = self.slice(budget);
        let is_done = self.driver.resume_calls(&|| slice.part());
        if is_done {
            self.forward_packets();
        }
        self.finish_run(is_done, &slice)
    }

    /// Calls the tick entry point.
    pub fn tick(&mut self, at: ClockReading, budget: Nanos) -> Progress {
        let slice = self.slice(budget);
        self.apply_updates();
        // On a node, ticks follow the clock, so each tick has an allowance of its own.
        self.driver.instance.begin_block();
        let is_done = self.driver.begin_tick(at, &|| slice.part());
        self.finish_run(is_done, &slice)
    }

    /// Delivers the next event: low memory, an answer, or a call of another module.
    pub fn handle_event(&mut self, budget: Nanos) -> Progress {
        let slice = self.slice(budget);
        self.apply_updates();
        let event = match self.driver.instance.low_memory() {
            Some(event) => event,
            None => match self.endpoint.next_message() {
                None => return self.finish_run(true, &slice),
                Some(ServiceMessage::Answer(answer)) => {
                    let event = ModuleEvent::Answer { ticket: answer.ticket, status: answer.outcome.code() };
                    self.driver.instance.set_message(answer.message);
                    event
                }
                Some(ServiceMessage::Serve(request)) => {
                    let ServiceCall { call, service, message, paid } = request;
                    self.serving = Some(Serving { call, faults: self.driver.instance.counters().faults });
                    self.payer = paid;
                    self.driver.instance.set_message(message);
                    ModuleEvent::Serve { call, service }
                }
            },
        };
        let is_done = self.driver.begin_event(event, &|| slice.part());
        self.finish_run(is_done, &slice)
    }

    /// Returns true if an event waits.
    pub fn has_event(&self) -> bool {
        self.endpoint.has_message()
    }

    /// Returns the deadline of the earliest pending service call.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.endpoint.next_deadline()
    }

    /// Returns the time for which the core thread waited for the sandbox process since the last call. The process used
    /// the core in that time, not the thread.
    pub fn take_waited(&mut self) -> Nanos {
        self.driver.instance.take_waited()
    }

    /// Charges `used` to the caller that pays for the present work, up to the amount that it agreed to. Returns the
    /// time that the caller pays.
    pub fn charge_payer(&mut self, used: Nanos) -> Nanos {
        let Some((payer, most)) = &mut self.payer else { return Nanos(0) };
        let paid = used.min(*most);
        most.0 -= paid.0;
        if paid.0 > 0 {
            self.endpoint.bus().debit(*payer, paid);
        }
        if self.serving.is_none() {
            self.payer = None;
        }
        paid
    }

    /// Forwards the packets that the module has seen to the end and not dropped. A packet of an aborted call is not
    /// forwarded: otherwise a fault would let packets through.
    fn forward_packets(&mut self) {
        let Some(forward) = &mut self.forward else { return };
        let Some(queued) = forward.queued.take() else { return };
        let verdict = self.driver.verdict();
        let patches = self.driver.instance.take_patches();
        let mut patches = Patches::new(patches.iter());
        let dropped = (verdict.dropped & queued.mask & !verdict.unserved).count_ones();
        self.counters.dropped.fetch_add(dropped.into(), Ordering::Relaxed);
        let mask = queued.mask & !verdict.dropped & !verdict.unserved;
        let egress = std::slice::from_ref(&forward.egress);
        let unpatched = forward.copies.forward(egress, &queued.block, queued.batch, mask, &mut patches);
        self.counters.unpatched.fetch_add(unpatched, Ordering::Relaxed);
    }

    /// Returns the next packets, preprocessed.
    fn next_entry(&mut self, slice: &Slice) -> Option<QueueEntry> {
        let mut queued = match (self.deferred_packets.take(), &mut self.preprocessor) {
            (Some(rest), _) => rest,
            (None, Some(preprocessor)) if self.is_draining && !preprocessor.has_packets() => return None,
            (None, Some(preprocessor)) => preprocessor.next(&self.queue, BATCH, &|| slice.left())?,
            (None, None) if self.is_draining => return None,
            (None, None) => self.queue.take(BATCH)?,
        };
        if let Some(time) = self.call_times.packet {
            let now = time.packets_within(&queued, slice.left());
            let later = queued.mask & !now;
            self.deferred_packets = (later != 0).then(|| QueueEntry { mask: later, ..queued.clone() });
            queued.mask = now;
        }
        Some(queued)
    }

    fn slice(&self, budget: Nanos) -> Slice {
        Slice { begin: Instant::now(), budget, fuel_rate: Arc::clone(&self.fuel_rate) }
    }

    fn finish_run(&mut self, is_done: bool, slice: &Slice) -> Progress {
        if is_done && let Some(serving) = self.serving.take() {
            let has_ended = self.driver.instance.has_ended();
            if has_ended || self.driver.instance.counters().faults > serving.faults {
                self.endpoint.fail(serving.call);
            }
        }
        if !is_done {
            // Output of a suspended call is not accessible.
            self.update_counters(slice.begin.elapsed().into());
            return Progress::Suspended;
        }
        if !self.has_packets_in_hand() {
            self.queue.release();
        }
        self.send_output(slice.begin.elapsed().into());
        if self.has_packets() { Progress::More } else { Progress::Done }
    }

    /// Returns the monotonic time of the next tick, if the module has ticks.
    pub fn next_tick(&mut self, at: ClockReading) -> Option<Nanos> {
        self.driver.next_tick(at)
    }

    /// Ends all packet work: the running call is aborted, and packets in hand are discarded.
    pub fn abort(&mut self) {
        let unseen = self.driver.abort();
        self.counters.unseen.fetch_add(unseen, Ordering::Relaxed);
        self.forward_packets();
        let lost = self.drop_packets_in_hand();
        self.shed_priority.channel.closed.fetch_add(lost, Ordering::Relaxed);
        self.queue.release();
        (self.serving, self.payer) = (None, None);
    }

    /// Returns true if the stop call keeps the core no longer than any other call, so that it can run on the core thread.
    pub fn stops_in_slices(&self) -> bool {
        self.call_times.stops_in_slices
    }

    /// Runs the next part of the module's stop. The stop has further parts until [`is_stopped`](Self::is_stopped).
    pub fn stop(&mut self, budget: Nanos) -> Progress {
        let slice = self.slice(budget);
        self.has_begun_stop = true;
        // Another part would lose its output while the records thread has not accepted that of the part before.
        let is_done = !self.unsent.is_empty() || self.driver.begin_stop(&|| slice.part());
        self.finish_run(is_done, &slice)
    }

    /// Returns true if the stop is complete.
    pub fn is_stopped(&self) -> bool {
        self.driver.instance.is_stopped()
    }

    /// Ends the task. Its last output is sent; it is lost if the records thread does not accept it within a second. A stop that is too
    /// long for the core thread runs on the calling thread, until `until`; its time is charged as well. Returns true if the stop is
    /// complete.
    pub fn finish(mut self, until: Instant) -> bool {
        self.abort();
        // A stop that has taken too long on the core thread is not continued.
        while !self.has_begun_stop && !self.is_stopped() && Instant::now() < until {
            let begin = thread_time();
            self.driver.stop();
            let used = Nanos(thread_time().0.saturating_sub(begin.0));
            self.charges.charge(used);
            self.send_output(used);
            self.send_rest();
        }
        self.send_rest();
        self.is_stopped()
    }

    /// Sends the output that the records thread has not accepted yet, for a second at most.
    fn send_rest(&mut self) {
        for _ in 0..100 {
            if self.unsent.is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            self.send_output(Nanos(0));
        }
        let lost = std::mem::take(&mut self.unsent);
        self.counters.unwritten.fetch_add(lost.iter().count() as u64, Ordering::Relaxed);
    }

    /// Sends the output to the records thread and updates the counters.
    fn send_output(&mut self, used: Nanos) {
        let instance = &mut self.driver.instance;
        match instance.take_records() {
            Some(emitted) if self.unsent.is_empty() => {
                self.unsent = emitted;
                // Limits apply before any other code sees the records.
                if let Some(limits) = &self.limits {
                    let limited = limits.enforce(&mut self.unsent);
                    self.counters.limited.with(|all| all.merge(&limited));
                }
            }
            // The records thread has not accepted the previous output yet.
            Some(emitted) => _ = self.counters.unwritten.fetch_add(emitted.len() as u64, Ordering::Relaxed),
            None => {}
        }
        for frame in instance.take_frames().iter().flat_map(Records::iter) {
            if let Some(Some(output_queue)) = self.outputs.get(usize::from(frame.stream)) {
                // The queue counts the frames that it refuses.
                _ = output_queue.offer_from_module(frame.row);
            }
        }
        let log = instance.take_log();
        let faults = instance.faults(self.faults_sent);
        self.faults_sent += faults.len();
        if let Some(last) = faults.last() {
            self.counters.last_fault.set(Some(last.clone()));
        }
        if !self.unsent.is_empty() || !log.is_empty() || !faults.is_empty() {
            let records = std::mem::take(&mut self.unsent);
            let count = records.iter().count() as u64;
            let output =
                BatchOutput { module: self.number, records, log, faults, end: None, in_flight: None };
            match self.record_sender.offer(output) {
                Ok(()) => _ = self.counters.records.fetch_add(count, Ordering::Relaxed),
                Err(output) => self.unsent = output.records,
            }
        }
        self.update_counters(used);
    }

    fn update_counters(&self, used: Nanos) {
        let (counters, instance) = (&self.counters, &self.driver.instance);
        let instance_counters = instance.counters();
        let set = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        set(&counters.packets, instance_counters.packets);
        set(&counters.trapped, instance_counters.lost - instance_counters.over_limit);
        set(&counters.over_limit, instance_counters.over_limit);
        set(&counters.faults, instance_counters.faults);
        set(&counters.strikes, instance_counters.strikes);
        set(&counters.refused, instance_counters.records_dropped);
        set(&counters.discarded, instance_counters.records_discarded);
        set(&counters.memory, instance.memory().0);
        set(&counters.ended, instance.end_state());
        counters.used.fetch_add(used.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
