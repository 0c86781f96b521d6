//! The node's side of a sandbox process: [`RemoteInstance`], which has the methods of an [`Instance`](crate::Instance) and
//! executes them by requests to the process.

mod state;

use super::SANDBOX_ARGUMENT;
use super::wire::{
    AreaRange, CallReport, Expected, OutputLimits, PendingChanges, REPORT_BYTES_MAX, SandboxRequest,
    StartRequest,
};
use crate::back_end::{BackEnd, NativeSlot};
use crate::engine::{CompiledModule, Engine, LoadError, ModuleCode};
use crate::run::clock::ClockCheck;
use crate::run::host::LogLine;
use crate::run::instance::{FAULTS_DESCRIBED, InstanceCounters};
use crate::run::patching::Patch;
use crate::run::rights::WriteRights;
use crate::run::space::Area;
use crate::run::suspend::{Call, CallStep};
use crate::{Cycles, FuelSlice, ModuleEvent};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::limit;
use weir_os::ProcessorBudget;
use weir_os::helper::{HelperLimits, HelperProcess};
use weir_os::{Isolation, Launcher};
use weir_units::{Bytes, Nanos};
use weir_wire::stream::TcpStreams;
use {
    weir_admission::{Admitted, ParameterSetting, Tier},
    weir_session::{HeldMemory, MemoryReservation, Records},
};

/// Memory that is reserved from the session for a sandbox process in addition to its module's memory, the module and the
/// code. The process needs it for stacks, tables and reports.
const PROCESS_MEMORY: Bytes = Bytes(4 << 20);
/// The constant part of the further memory that the process may use while it admits the module.
const ADMISSION_MEMORY: Bytes = Bytes(128 << 20);
/// Further memory that the process may use while it admits the module, for each byte of the module and its code.
const ADMISSION_MEMORY_PER_BYTE: u64 = 16;
/// Limit on the process's address space, most of which is that of its sandbox.
const ADDRESS_SPACE: Bytes = Bytes(16 << 30);
/// Time limit for checking and starting the module.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for mapping memory or aborting a call, which take almost no time in a correct process. A process that an
/// attacker controls can occupy a core for this time once, and is then killed.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a process may take to answer after the end of its slice, before it is stopped. A correct process has ended or
/// suspended the call by then. The same limit applies to taking a request from the socket.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2);
/// The least time for which the process of a module without a meter runs in each slice, so that its call goes on.
const UNMETERED_MIN: Duration = Duration::from_micros(UNMETERED_MIN_MICROS);
const UNMETERED_MIN_MICROS: u64 = 30;
/// Total waiting time in one call of a module without a meter, after which its process is killed. Nothing in the process ends such a
/// call.
const UNMETERED_MAX: Duration = Duration::from_secs(2);
/// Processor time beyond the time of its requests that a process may use in all. A correct process uses some, because a
/// virtual machine counts time that its host took away as processor time of the interrupted process.
const UNCALLED_MAX: Duration = Duration::from_millis(100);
/// The part of the process's lifetime by which [`UNCALLED_MAX`] grows: a hundredth.
const UNCALLED_PART: u32 = 100;
/// Total waiting time in one call after which the process counts as unresponsive, and is killed.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(10);
/// The most by which one report can raise a counter. The rest of a larger growth is ignored.
const COUNTER_GROWTH_MAX: u64 = 1 << 32;

/// The most parts of a stop: for streams, of `weir_stop`, and of `weir_rest`.
const STOP_PARTS_MAX: u32 = TcpStreams::STOP_PARTS as u32 + 1 + limit::REST_CALLS;

/// The most refused patches that are counted for a call.
const REFUSED_MAX: u64 = 4096;

/// The reason why a sandbox process was killed or has ended. The texts are faults of the module, "it".
#[derive(Debug, thiserror::Error)]
enum EndReason {
    #[error("its process does not answer")]
    Unresponsive,
    #[error("it took longer than the {UNMETERED_MAX:?} that a call without a meter may take")]
    UnmeteredOverrun,
    #[error("it was unloaded, lost its packets or its machine code in the middle of a call without a meter")]
    UnmeteredAborted,
    #[error("it had no slice left for its stop, which without a meter runs in slices alone")]
    UnmeteredStop,
    #[error("its process ran for {0:?} while it was not called")]
    RanUncalled(Duration),
    #[error("its process has ended: {0}")]
    Exited(io::Error),
    #[error(transparent)]
    InvalidMessage(#[from] super::wire::InvalidMessage),
}

impl EndReason {
    fn from_io(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut { Self::Unresponsive } else { Self::Exited(error) }
    }
}

/// A module in a process of its own, which is killed when this value is dropped.
#[derive(Debug)]
pub struct RemoteInstance {
    process: HelperProcess,
    admitted: Arc<Admitted>,
    /// The memory that is reserved from the session for the process.
    held_memory: Option<HeldMemory>,
    back_end: BackEnd,
    /// The slot for the verified code, if the code can be withdrawn and has not been yet.
    slot: Option<NativeSlot>,
    /// The number of times that the session's memory had become low at the last [`Self::low_memory`].
    times_low: u64,
    writes: Arc<WriteRights>,
    /// The number of the module's refused patches that have been counted in `writes`.
    refused_patches: u64,
    nanos_per_cycle: f64,
    /// Changes that are sent with the next call.
    changes: PendingChanges,
    /// The mask of the current call's packets; bit 0 is the packet with the index `first` in the block.
    mask: u64,
    first: u32,
    /// The position in the block of a call without packets.
    before: u32,
    /// True until the module has started.
    is_start: bool,
    started: Instant,
    /// Processor time of the process when it was last stopped.
    processor_time: Duration,
    uncalled: UncalledTime,
    /// The number of log lines received so far.
    logged: usize,
    /// True if the process was stopped before it answered the last request: the request continues when it is resumed.
    is_paused: bool,
    /// True if the current call is suspended.
    is_suspended: bool,
    has_ended: bool,
    /// The number of parts of the stop that the node has asked for.
    stop_parts: u32,
    /// True if the module's stop is complete.
    is_stopped: bool,
    /// True if the module ended because its process was killed or has ended.
    has_lost_process: bool,
    /// The time for which the core thread has waited for answers in the current call.
    waited_in_call: Duration,
    /// The time for which the core thread has waited for answers since the last [`Self::take_waited`].
    waited: Duration,
    unserved: u64,
    memory: Bytes,
    counters: InstanceCounters,
    records: Records,
    frames: Records,
    patches: Vec<Patch>,
    log: Vec<LogLine>,
    faults: Vec<String>,
}

impl RemoteInstance {
    /// Compiles an admitted module and starts it in a process of its own. If the module fails at its start, the returned
    /// instance has [ended](Self::has_ended).
    ///
    /// `settings` are the parameters' settings with which the module was admitted. The memory of the module and of the
    /// process is reserved from the session. The program that `launcher` starts must be this same version of weir, which
    /// becomes a sandbox process on [`SANDBOX_ARGUMENT`]. `budget` is charged for the processor time of the compiler and of
    /// the new process until the module has started, also on failure.
    ///
    /// # Errors
    /// [`LoadError`] if the module cannot be compiled, no process can be started, or the session lacks the memory.
    pub fn start(
        launcher: &Launcher,
        engine: &Engine,
        code: ModuleCode,
        settings: &[ParameterSetting],
        (memory, writes): (Option<&Arc<MemoryReservation>>, &Arc<WriteRights>),
        budget: &mut dyn ProcessorBudget,
    ) -> Result<Self, LoadError> {
        let ModuleCode { admitted, compiled, is_given } = code;
        let CompiledModule { code, native: slot, indices, checks, .. } = compiled;
        let code = code.unwrap_or_default();
        // The process does not move to other code later, because it can load none after its start.
        let native = slot.code();
        if let (None, true) = (native, code.is_empty())
            && let Some(refusal) = slot.refusal(&admitted)
        {
            return Err(refusal);
        }
        let object = native.map(|native| native.object.clone()).unwrap_or_default();
        let back_end = if native.is_some() { BackEnd::Llvm } else { BackEnd::Cranelift };
        let module_and_code = (admitted.bytes().len() + code.len() + object.len()) as u64;
        let wanted =
            [PROCESS_MEMORY.0, module_and_code].into_iter().fold(admitted.memory().0, u64::saturating_add);
        let wanted = Bytes(wanted);
        let reserve = |reservation: &Arc<MemoryReservation>| {
            let left = reservation.state().left();
            HeldMemory::take(reservation, wanted).ok_or(LoadError::Memory { wanted, left })
        };
        let held_memory = memory.map(reserve).transpose()?;
        let profile = admitted.assessment().calibrated_profile();
        let request = StartRequest {
            module: admitted.bytes().to_vec(),
            settings: settings.to_vec(),
            profile: profile.profile().to_toml(),
            calibration: profile.calibration().to_toml(),
            is_suspendable: checks.has_suspendable_calls(),
            imported: indices.imported.into(),
            functions: indices.functions.into(),
            added: indices.added.into(),
            call_limit: u64::try_from(engine.call_limit().as_nanos()).unwrap_or(u64::MAX),
            is_unmetered: admitted.tier() == Tier::Unmetered,
            is_given,
            code,
            object,
        };
        let failed = |error: io::Error| LoadError::Sandbox(format!("a process of its own: {error}"));
        let admission_memory =
            ADMISSION_MEMORY.0.saturating_add(module_and_code.saturating_mul(ADMISSION_MEMORY_PER_BYTE));
        let limits = HelperLimits {
            address_space: ADDRESS_SPACE,
            memory: Bytes(wanted.0.saturating_add(admission_memory)),
        };
        let mut process = HelperProcess::start(launcher, &[SANDBOX_ARGUMENT], limits).map_err(failed)?;
        let reported = process.request(&request.write(), REPORT_BYTES_MAX, START_TIMEOUT);
        process.pause();
        let processor_time = process.processor_time().unwrap_or_default();
        budget.spend(Nanos::from(processor_time));
        let reported = reported.map_err(|error| {
            let status = process.end().map_or_else(|error| error.to_string(), |status| status.to_string());
            LoadError::Sandbox(format!("a process of its own: {error} ({status})"))
        })?;
        let times_low = memory.map_or(0, |memory| {
            let state = memory.state();
            state.times_low.saturating_sub(state.is_low().into())
        });
        let mut this = Self {
            process,
            admitted: Arc::new(admitted),
            held_memory,
            times_low,
            writes: Arc::clone(writes),
            refused_patches: 0,
            nanos_per_cycle: ClockCheck::begin().nanos_per_cycle(),
            changes: PendingChanges::default(),
            mask: 0,
            first: 0,
            before: 0,
            back_end,
            slot: is_given.then_some(slot),
            is_start: true,
            started: Instant::now(),
            processor_time,
            uncalled: UncalledTime::default(),
            logged: 0,
            is_paused: false,
            is_suspended: false,
            has_ended: false,
            stop_parts: 0,
            is_stopped: false,
            has_lost_process: false,
            waited_in_call: Duration::ZERO,
            waited: Duration::ZERO,
            unserved: 0,
            memory: Bytes(0),
            counters: InstanceCounters::default(),
            records: Records::default(),
            frames: Records::default(),
            patches: Vec::new(),
            log: Vec::new(),
            faults: Vec::new(),
        };
        let received = this.decode_report(&reported);
        _ = this.apply_report(received);
        this.is_start = false;
        Ok(this)
    }

    /// Returns the admitted module.
    pub fn admitted(&self) -> &Arc<Admitted> {
        &self.admitted
    }

    /// Returns the compiler of the code in which the module runs.
    pub fn back_end(&self) -> BackEnd {
        self.back_end
    }

    /// Returns the isolation of the process.
    pub fn isolation(&self) -> Isolation {
        self.process.isolation()
    }

    /// Returns the process id.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Returns the time for which the calling thread has waited for the process since the last call of this function. The
    /// caller charges this time to the module, in place of processor time.
    pub fn take_waited(&mut self) -> Nanos {
        let waited = std::mem::take(&mut self.waited);
        Nanos::from(waited)
    }

    /// As [`Instance::map_descriptors`](crate::Instance::map_descriptors).
    ///
    /// # Errors
    /// An error if the module has ended.
    pub fn map_descriptors(&mut self, area: Area<'_>) -> io::Result<()> {
        self.map(false, &[area])
    }

    /// As [`Instance::map_packet_areas`](crate::Instance::map_packet_areas). The module cannot keep packets of the areas.
    ///
    /// # Errors
    /// An error if the module has ended or its call is suspended.
    pub fn map_packet_areas(&mut self, areas: &[Area<'_>]) -> io::Result<()> {
        self.map(true, areas)
    }

    fn map(&mut self, is_packets: bool, areas: &[Area<'_>]) -> io::Result<()> {
        if self.has_ended || self.is_suspended {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let range = |area: &Area<'_>| AreaRange { offset: area.offset, len: area.len as u64 };
        let request = SandboxRequest::Map {
            is_packets,
            areas: areas.iter().map(range).collect(),
            is_fixed: areas.iter().all(|area| area.is_fixed),
        };
        let begin = Instant::now();
        let sent = self
            .process
            .send(&request.write(), ANSWER_TIMEOUT)
            .and_then(|()| areas.iter().try_for_each(|area| self.process.send_descriptor(area.fd)));
        // The content of the report is ignored, because a mapping has no results.
        let mapped = self.receive(sent, CONTROL_TIMEOUT).and_then(|_| self.account_time(begin));
        match mapped {
            Ok(()) => Ok(()),
            Err(end) => {
                _ = self.apply_report(Err(end));
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Resumes the process, waits for its answer for at most `wait`, and stops the process again, so that the process runs
    /// only while it works on a request. `sent` is the result of sending the request.
    fn receive(&mut self, sent: io::Result<()>, wait: Duration) -> Result<Vec<u8>, EndReason> {
        self.receive_up_to(REPORT_BYTES_MAX, sent, wait)
    }

    /// Receives an answer of at most `bytes_max` bytes, as [`receive`](Self::receive) does.
    fn receive_up_to(
        &mut self,
        bytes_max: usize,
        sent: io::Result<()>,
        wait: Duration,
    ) -> Result<Vec<u8>, EndReason> {
        // A request has a few bytes, so sending it fails only if the process does not read from the socket.
        sent.map_err(EndReason::from_io)?;
        self.process.resume();
        let received = self.process.receive(bytes_max, Instant::now() + wait);
        self.process.pause();
        received.map_err(EndReason::from_io)
    }

    /// Adds the time since `begin` to the waiting time. If the process has used more processor time since its last request,
    /// adds the processor time instead.
    ///
    /// # Errors
    /// The process has used much more processor time than the time of its requests, so it ran while it should have been
    /// stopped, or on several cores.
    fn account_time(&mut self, begin: Instant) -> Result<(), EndReason> {
        let took = begin.elapsed();
        let now = self.process.processor_time().unwrap_or(self.processor_time);
        let used = now.saturating_sub(std::mem::replace(&mut self.processor_time, now));
        self.waited += took.max(used);
        self.waited_in_call += took;
        self.uncalled.add(used.saturating_sub(took), self.started.elapsed())
    }

    /// As [`Instance::begin_block`](crate::Instance::begin_block).
    pub fn begin_block(&mut self) {
        self.changes.begins_block = true;
    }

    /// As [`Instance::connect_outputs`](crate::Instance::connect_outputs).
    pub fn connect_outputs(&mut self, open: u8) {
        self.changes.open = Some(open);
    }

    /// As [`Instance::ignore_patches`](crate::Instance::ignore_patches).
    pub fn ignore_patches(&mut self) {
        self.changes.ignores_patches = true;
    }

    /// As [`Instance::begin`](crate::Instance::begin).
    pub fn begin(&mut self, call: Call, slice: FuelSlice) -> CallStep {
        self.finish();
        (self.mask, self.first, self.before, self.waited_in_call) = (0, 0, 0, Duration::ZERO);
        match call {
            Call::Batch(batch) => (self.mask, self.first) = (batch.mask, batch.first),
            Call::Tick { before, .. } | Call::Sweep { before, .. } => self.before = before,
            Call::Stop { .. } => self.stop_parts += 1,
            Call::Start | Call::Event(_) => {}
        }
        if self.has_ended {
            self.unserved |= self.mask;
            return CallStep::Done(0);
        }
        if matches!(call, Call::Stop { .. }) && slice == FuelSlice::UNLIMITED && self.is_unmetered() {
            return self.apply_report(Err(EndReason::UnmeteredStop));
        }
        let is_withdrawn = self.slot.as_ref().is_some_and(NativeSlot::is_withdrawn);
        if is_withdrawn {
            self.slot = None;
            self.back_end = BackEnd::Cranelift;
        }
        let changes = PendingChanges {
            writes: self.writes.fields(),
            is_withdrawn,
            ..std::mem::take(&mut self.changes)
        };
        let begin = Instant::now();
        let sent = self.process.send(&SandboxRequest::Begin(changes, call, slice).write(), ANSWER_TIMEOUT);
        self.await_report(sent, begin, slice)
    }

    /// As [`Instance::resume`](crate::Instance::resume).
    pub fn resume(&mut self, slice: FuelSlice) -> CallStep {
        if !self.is_suspended {
            return CallStep::Done(0);
        }
        // A process that was stopped before it answered has to finish its work on the last request first.
        // A call without a meter always stops so, and there is no other code for its module.
        let can_abort = !self.is_paused || self.is_unmetered();
        if can_abort && self.slot.as_ref().is_some_and(NativeSlot::is_withdrawn) {
            return CallStep::Done(self.abort());
        }
        let begin = Instant::now();
        let sent = match std::mem::take(&mut self.is_paused) {
            // The process still works on the last request.
            true => Ok(()),
            false => self.process.send(&SandboxRequest::Resume(slice).write(), ANSWER_TIMEOUT),
        };
        self.await_report(sent, begin, slice)
    }

    /// As [`Instance::abort`](crate::Instance::abort). A process that was stopped before it answered is killed.
    pub fn abort(&mut self) -> u64 {
        if !self.is_suspended {
            return 0;
        }
        let step = if self.is_paused {
            let is_unmetered = self.is_unmetered();
            let why = if is_unmetered { EndReason::UnmeteredAborted } else { EndReason::Unresponsive };
            self.apply_report(Err(why))
        } else {
            let begin = Instant::now();
            let sent = self.process.send(&SandboxRequest::Abort.write(), ANSWER_TIMEOUT);
            self.await_report_for(sent, begin, CONTROL_TIMEOUT)
        };
        match step {
            CallStep::Done(drops) => drops,
            // A correct process reports the end of an aborted call. This one reports a suspended call.
            CallStep::Suspended => {
                _ = self.apply_report(Err(EndReason::Unresponsive));
                0
            }
        }
    }

    /// Returns whether a call is suspended.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Runs a suspended call to completion.
    fn finish(&mut self) {
        while self.is_suspended {
            _ = self.resume(FuelSlice::UNLIMITED);
        }
    }

    fn is_unmetered(&self) -> bool {
        self.admitted.tier() == Tier::Unmetered
    }

    /// The longest time for which a call without a meter keeps the core after the end of its slice: the least time in a slice, and
    /// as much again for the signals that resume and stop the process.
    pub const UNMETERED_OVERRUN: Nanos = Nanos(2_000 * UNMETERED_MIN_MICROS);

    /// Waits for the report on a call, until the end of the slice.
    fn await_report(&mut self, sent: io::Result<()>, begin: Instant, slice: FuelSlice) -> CallStep {
        let wait = match slice.until {
            // The module suspends no call itself, so the process is stopped at the end of the slice.
            Some(until) if self.is_unmetered() => self.time_until(until).max(UNMETERED_MIN),
            None if self.is_unmetered() && slice != FuelSlice::UNLIMITED => UNMETERED_MIN,
            Some(until) => self.time_until(until) + ANSWER_TIMEOUT,
            None if slice == FuelSlice::UNLIMITED => UNRESPONSIVE_AFTER,
            // A slice without an end by the clock has little fuel, which the process uses up within this time.
            None => ANSWER_TIMEOUT,
        };
        self.await_report_for(sent, begin, wait)
    }

    /// Waits for the report on a request for at most `wait`. If the process has not answered by then, the call counts as
    /// suspended.
    fn await_report_for(&mut self, sent: io::Result<()>, begin: Instant, wait: Duration) -> CallStep {
        let is_unmetered = self.is_unmetered();
        let most = if is_unmetered { UNMETERED_MAX } else { UNRESPONSIVE_AFTER };
        let wait = wait.min(most.saturating_sub(self.waited_in_call));
        let was_sent = sent.is_ok();
        let received = self.receive(sent, wait);
        let accounted = self.account_time(begin);
        let received = match (received, accounted) {
            (_, Err(end)) => Err(end),
            (Ok(reported), Ok(())) => self.decode_report(&reported),
            (Err(EndReason::Unresponsive), Ok(())) if was_sent && self.waited_in_call < most => {
                // The stopped process continues its work on the request when it is resumed.
                (self.is_paused, self.is_suspended) = (true, true);
                return CallStep::Suspended;
            }
            (Err(EndReason::Unresponsive), Ok(())) if was_sent && is_unmetered => {
                Err(EndReason::UnmeteredOverrun)
            }
            (Err(end), Ok(())) => Err(end),
        };
        self.apply_report(received)
    }

    /// Returns the time until the time stamp counter reaches `until`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a time of seconds at most"
    )]
    fn time_until(&self, until: Cycles) -> Duration {
        Duration::from_nanos((until.since(Cycles::now()).0 as f64 * self.nanos_per_cycle) as u64)
    }

    /// Decodes and checks the report of the current call.
    fn decode_report(&self, reported: &[u8]) -> Result<CallReport, EndReason> {
        let profile = self.admitted.profile();
        let limits = match self.mask {
            0 => OutputLimits::of_call(profile, self.is_start),
            mask => OutputLimits::of_batch(profile, mask.count_ones()),
        };
        let expected = Expected {
            manifest: self.admitted.manifest(),
            mask: self.mask,
            first: self.first,
            before: self.before,
            limits: limits.with_texts(
                (limit::LOG_MESSAGES as usize).saturating_sub(self.logged),
                FAULTS_DESCRIBED.saturating_sub(self.faults.len()),
            ),
            memory: self.admitted.memory(),
            writes: self.writes.fields() & profile.writes,
            frame_bytes: usize::try_from(self.admitted.profile().frame_bytes.0).unwrap_or(usize::MAX),
        };
        Ok(CallReport::read(reported, expected)?)
    }

    /// Takes over the results of a report. On an error, kills the process, and counts the packets of the call as lost.
    fn apply_report(&mut self, received: Result<CallReport, EndReason>) -> CallStep {
        let report = match received {
            Ok(report) => report,
            Err(end) => {
                // If the process ended by itself, its exit status can show the reason.
                let status = self.process.end().map(|status| format!(" ({status})")).unwrap_or_default();
                self.faults.push(format!("{end}{status}"));
                self.counters.faults += 1;
                self.counters.lost += u64::from(self.mask.count_ones());
                self.unserved |= self.mask;
                (self.has_ended, self.has_lost_process) = (true, true);
                (self.is_suspended, self.is_paused) = (false, false);
                return CallStep::Done(0);
            }
        };
        self.is_suspended = report.is_suspended;
        self.memory = report.memory;
        self.update_counters(report.counters);
        let refused = report
            .refused_patches
            .clamp(self.refused_patches, self.refused_patches.saturating_add(REFUSED_MAX));
        (self.refused_patches..refused).for_each(|_| self.writes.refuse());
        self.refused_patches = refused;
        if report.is_suspended {
            return CallStep::Suspended;
        }
        self.unserved |= report.unserved;
        self.has_ended = report.has_ended;
        self.is_stopped = report.is_stopped;
        append(&mut self.records, report.records);
        append(&mut self.frames, report.frames);
        self.patches.extend(report.patches);
        self.logged += report.log.len();
        self.log.extend(report.log);
        self.faults.extend(report.faults);
        CallStep::Done(report.drops)
    }

    /// Updates the counters from a report. A counter never decreases, and increases by at most a plausible number: a packet
    /// counter by at most the number of the call's packets.
    fn update_counters(&mut self, reported: InstanceCounters) {
        let packets = u64::from(self.mask.count_ones());
        let grown = |was: u64, now: u64, most: u64| now.clamp(was, was.saturating_add(most));
        let was = self.counters;
        let lost = grown(was.lost, reported.lost, packets);
        self.counters = InstanceCounters {
            packets: grown(was.packets, reported.packets, packets),
            lost,
            over_limit: grown(was.over_limit, reported.over_limit, lost - was.lost),
            faults: grown(was.faults, reported.faults, COUNTER_GROWTH_MAX),
            records_dropped: grown(was.records_dropped, reported.records_dropped, COUNTER_GROWTH_MAX),
            records_discarded: grown(was.records_discarded, reported.records_discarded, COUNTER_GROWTH_MAX),
            frames_dropped: grown(was.frames_dropped, reported.frames_dropped, COUNTER_GROWTH_MAX),
            log_dropped: grown(was.log_dropped, reported.log_dropped, COUNTER_GROWTH_MAX),
            exceeded: grown(was.exceeded, reported.exceeded, COUNTER_GROWTH_MAX),
            // The number of strikes can also decrease.
            strikes: reported.strikes.min(COUNTER_GROWTH_MAX),
        };
    }

    /// As [`Instance::low_memory`](crate::Instance::low_memory).
    pub fn low_memory(&mut self) -> Option<ModuleEvent> {
        let state = self.held_memory.as_ref()?.reservation().state();
        let is_unchanged = std::mem::replace(&mut self.times_low, state.times_low) == state.times_low;
        let event = ModuleEvent::LowMemory { left: state.left() };
        (!is_unchanged && self.admitted.info().entries.has(event.entry())).then_some(event)
    }

    /// As [`Instance::has_streams`](crate::Instance::has_streams).
    pub fn has_streams(&self) -> bool {
        self.admitted.tcp().is_some()
    }

    /// As [`Instance::take_unserved`](crate::Instance::take_unserved).
    pub fn take_unserved(&mut self) -> u64 {
        std::mem::take(&mut self.unserved)
    }

    /// As [`Instance::counters`](crate::Instance::counters).
    pub fn counters(&self) -> InstanceCounters {
        self.counters
    }

    /// Returns descriptions of the module's first faults.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// As [`Instance::is_stopped`](crate::Instance::is_stopped). A process cannot ask for parts without an end.
    pub fn is_stopped(&self) -> bool {
        self.has_ended || self.is_stopped || self.stop_parts >= STOP_PARTS_MAX
    }

    /// As [`Instance::has_ended`](crate::Instance::has_ended).
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns true if the process has ended by itself, or was killed because its report was invalid or missing.
    pub fn has_lost_process(&self) -> bool {
        self.has_lost_process
    }

    /// As [`Instance::memory`](crate::Instance::memory).
    pub fn memory(&self) -> Bytes {
        self.memory
    }

    /// As [`Instance::has_records`](crate::Instance::has_records).
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// As [`Instance::take_records`](crate::Instance::take_records).
    pub fn take_records(&mut self) -> Records {
        std::mem::take(&mut self.records)
    }

    /// As [`Instance::has_frames`](crate::Instance::has_frames).
    pub fn has_frames(&self) -> bool {
        !self.frames.is_empty()
    }

    /// As [`Instance::take_frames`](crate::Instance::take_frames).
    pub fn take_frames(&mut self) -> Records {
        std::mem::take(&mut self.frames)
    }

    /// As [`Instance::take_patches`](crate::Instance::take_patches).
    pub fn take_patches(&mut self) -> Vec<Patch> {
        std::mem::take(&mut self.patches)
    }

    /// As [`Instance::take_log`](crate::Instance::take_log).
    pub fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.log)
    }
}

/// Processor time that a process used beyond the time of its requests, since its start.
#[derive(Clone, Copy, Debug, Default)]
struct UncalledTime(Duration);

impl UncalledTime {
    /// Adds the time of a request. `lifetime` is the time since the start of the process.
    ///
    /// # Errors
    /// The total exceeds the limit.
    fn add(&mut self, time: Duration, lifetime: Duration) -> Result<(), EndReason> {
        self.0 += time;
        if self.0 > UNCALLED_MAX + lifetime / UNCALLED_PART {
            Err(EndReason::RanUncalled(self.0))
        } else {
            Ok(())
        }
    }
}

/// Appends the rows of a report to rows that have not been taken yet.
fn append(to: &mut Records, more: Records) {
    if to.is_empty() {
        *to = more;
        return;
    }
    to.append(&more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_beyond_requests_is_limited_in_all() {
        let [step, second] = [Duration::from_millis(3), Duration::from_secs(1)];
        let mut uncalled = UncalledTime::default();
        let rounds = (1..).find(|_| uncalled.add(step, second).is_err());
        assert_eq!(rounds, Some(110 / 3 + 1));
        let mut uncalled = UncalledTime::default();
        // A hundredth of the lifetime and the constant part.
        assert!(uncalled.add(Duration::from_millis(1100), 100 * second).is_ok());
        assert!(uncalled.add(step, 100 * second).is_err());
    }
}
