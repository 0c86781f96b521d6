//! The node's side of a sandbox process.

use super::SANDBOX_ARGUMENT;
use super::wire::{
    CallReport, Expected, OutputLimits, PendingChanges, REPORT_BYTES_MAX, SandboxRequest, StartRequest,
};
use crate::engine::{CompiledModule, Engine, LoadError};
use crate::run::clock::ClockCheck;
use crate::run::host::{LogLine, Patch};
use crate::run::instance::{FAULTS_DESCRIBED, InstanceCounters};
use crate::run::rights::WriteRights;
use crate::run::space::Area;
use crate::run::suspend::{Call, CallStep};
use crate::{Cycles, FuelSlice, ModuleEvent};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::limit;
use weir_os::CpuMeter;
use weir_os::helper::{HelperLimits, HelperProcess};
use weir_os::{Isolation, Launcher};
use weir_units::{Bytes, Nanos};
use {
    weir_admission::{Admitted, ParameterSetting},
    weir_session::{HeldMemory, MemoryReservation, Records},
};

/// Memory of a sandbox process beside its module's memory, the module and its code: stacks, tables and reports. It is
/// charged to the session.
const PROCESS_MEMORY: Bytes = Bytes(4 << 20);
/// Further memory that the process may use while it admits the module: a constant part, and a part for each byte of
/// the module and its code.
const ADMISSION_MEMORY: Bytes = Bytes(128 << 20);
const ADMISSION_MEMORY_PER_BYTE: u64 = 16;
/// Address space of the process: that of a sandbox, and the rest.
const ADDRESS_SPACE: Bytes = Bytes(16 << 30);
/// Time limit for checking and starting the module.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for mapping memory or aborting a call, which take almost no time. A process that was taken over can
/// hold a core for this long once, and is killed then.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time that a process may take to answer after its slice is used up, before it is stopped: its own clock ends the
/// call by then. Also the limit for reading a request of a few bytes, and for running without a request.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(2);
/// Total waiting time in one call after which the process counts as unresponsive.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(10);
/// Largest growth of a counter in one call.
const COUNTED_MAX: u64 = 1 << 32;

/// Largest number of refused patches that is counted for a call.
const REFUSED_MAX: u64 = 4096;

/// The reason why a sandbox process is not called any more.
#[derive(Debug, thiserror::Error)]
enum EndReason {
    #[error("its process does not answer")]
    Unresponsive,
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
    /// The process's memory, as reserved from the session.
    holding: Option<HeldMemory>,
    times_low: u64,
    writes: Arc<WriteRights>,
    /// The module's refused patches that `writes` has counted already.
    refused: u64,
    nanos_per_cycle: f64,
    changes: PendingChanges,
    /// The packets of the current call: a mask from packet `first` of the block on.
    mask: u64,
    first: u32,
    before: u32,
    /// True if the current call is the start.
    is_start: bool,
    /// Processor time of the process at its last answer.
    ran: Duration,
    /// Log lines received so far.
    logged: usize,
    /// True if the process was stopped before it answered.
    is_paused: bool,
    /// True if the current call is suspended.
    is_suspended: bool,
    ended: bool,
    /// True if the module ended because its process is gone.
    is_gone: bool,
    /// Waiting time in the current call, and since [`Self::take_waited`].
    waited_in_call: Duration,
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
    /// Compiles an admitted module and starts it in a process of its own. `settings` are the settings that it was
    /// admitted with. Reserves from the session the module's whole memory and the process's own. A module that fails
    /// at its start is returned too, but has [ended](Self::has_ended). The program that `launcher` starts must be
    /// this same version and answer [`SANDBOX_ARGUMENT`]. Charges `meter` for the processor time of the compiler and
    /// of the new process until the module has started, also on failure.
    ///
    /// # Errors
    /// [`LoadError`] if the module cannot be compiled, no process can be started, or the session lacks the memory.
    pub fn start(
        launcher: &Launcher,
        engine: &Engine,
        admitted: Admitted,
        settings: &[ParameterSetting],
        is_suspendable: bool,
        (memory, writes): (Option<&Arc<MemoryReservation>>, &Arc<WriteRights>),
        meter: &mut dyn CpuMeter,
    ) -> Result<Self, LoadError> {
        let checks = engine.checks(&admitted, is_suspendable);
        let CompiledModule { code, indices, .. } = engine.compile(&admitted, checks, meter)?;
        let held = admitted.bytes().len() as u64 + code.len() as u64;
        let wanted = [PROCESS_MEMORY.0, held].into_iter().fold(admitted.memory().0, u64::saturating_add);
        let wanted = Bytes(wanted);
        let hold = |reservation: &Arc<MemoryReservation>| {
            let left = reservation.state().left();
            HeldMemory::take(reservation, wanted).ok_or(LoadError::Memory { wanted, left })
        };
        let holding = memory.map(hold).transpose()?;
        let terms = admitted.assessment().calibrated_profile();
        let request = StartRequest {
            module: admitted.bytes().to_vec(),
            settings: settings.to_vec(),
            profile: terms.profile.to_toml(),
            calibration: terms.calibration.to_toml(),
            is_suspendable,
            imported: indices.imported.into(),
            functions: indices.functions.into(),
            is_shifted: indices.is_shifted,
            call_limit: u64::try_from(engine.call_limit().as_nanos()).unwrap_or(u64::MAX),
            code,
        };
        let failed = |error: io::Error| LoadError::Sandbox(format!("a process of its own: {error}"));
        let admitting = ADMISSION_MEMORY.0.saturating_add(held.saturating_mul(ADMISSION_MEMORY_PER_BYTE));
        let limits =
            HelperLimits { addresses: ADDRESS_SPACE, memory: Bytes(wanted.0.saturating_add(admitting)) };
        let mut process = HelperProcess::start(launcher, &[SANDBOX_ARGUMENT], limits).map_err(failed)?;
        let reported = process.ask(&request.write(), REPORT_BYTES_MAX, START_TIMEOUT);
        process.pause();
        let ran = process.processor_time().unwrap_or_default();
        meter.spend(Nanos::from(ran));
        let reported = reported.map_err(|error| {
            let how = process.end().map_or_else(|error| error.to_string(), |how| how.to_string());
            LoadError::Sandbox(format!("a process of its own: {error} ({how})"))
        })?;
        let times_low = memory.map_or(0, |memory| {
            let state = memory.state();
            state.times_low.saturating_sub(state.is_low().into())
        });
        let mut this = Self {
            process,
            admitted: Arc::new(admitted),
            holding,
            times_low,
            writes: Arc::clone(writes),
            refused: 0,
            nanos_per_cycle: ClockCheck::begin().nanos_per_cycle(),
            changes: PendingChanges::default(),
            mask: 0,
            first: 0,
            before: 0,
            is_start: true,
            ran,
            logged: 0,
            is_paused: false,
            is_suspended: false,
            ended: false,
            is_gone: false,
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
        let received = this.read(&reported);
        _ = this.apply_report(received);
        this.is_start = false;
        Ok(this)
    }

    /// Returns the admitted module.
    pub fn admitted(&self) -> &Arc<Admitted> {
        &self.admitted
    }

    /// Returns the isolation of the process.
    pub fn isolation(&self) -> Isolation {
        self.process.isolation()
    }

    /// Returns the process id.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Returns the waiting time since the last call of this function. It is charged to the module, though the calling
    /// thread did not use it.
    pub fn take_waited(&mut self) -> Nanos {
        let waited = std::mem::take(&mut self.waited);
        Nanos::from(waited)
    }

    /// As [`Instance::map_descriptors`](crate::Instance::map_descriptors).
    ///
    /// # Errors
    /// An error if the module has ended.
    pub fn map_descriptors(&mut self, area: Area<'_>) -> io::Result<()> {
        self.map(false, area)
    }

    /// As [`Instance::map_packets`](crate::Instance::map_packets). Packets in it cannot be kept.
    ///
    /// # Errors
    /// An error if the module has ended or its call is suspended.
    pub fn map_packets(&mut self, area: Area<'_>) -> io::Result<()> {
        self.map(true, area)
    }

    fn map(&mut self, is_packets: bool, area: Area<'_>) -> io::Result<()> {
        if self.ended || self.is_suspended {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let request = SandboxRequest::Map { is_packets, offset: area.offset, len: area.len as u64 };
        let begin = Instant::now();
        let sent = self
            .process
            .send(&request.write(), ANSWER_TIMEOUT)
            .and_then(|()| self.process.send_descriptor(area.fd));
        // The answer to a mapping has no content.
        let mapped = self.receive(sent, CONTROL_TIMEOUT).and_then(|_| self.account_time(begin));
        match mapped {
            Ok(()) => Ok(()),
            Err(end) => {
                _ = self.apply_report(Err(end));
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Lets the process run and waits for its answer. The process is stopped again afterwards: it runs only while it
    /// works on a request.
    fn receive(&mut self, sent: io::Result<()>, wait: Duration) -> Result<Vec<u8>, EndReason> {
        // A request has a few bytes, so a process that does not take them does not read.
        sent.map_err(EndReason::from_io)?;
        self.process.resume();
        let received = self.process.receive(REPORT_BYTES_MAX, Instant::now() + wait);
        self.process.pause();
        received.map_err(EndReason::from_io)
    }

    /// Accounts for the time since `begin`: the waiting time, and processor time beyond it that the process used
    /// while other work waited for the core.
    fn account_time(&mut self, begin: Instant) -> Result<(), EndReason> {
        let took = begin.elapsed();
        let ran = self.process.processor_time().unwrap_or(self.ran);
        let since = ran.saturating_sub(std::mem::replace(&mut self.ran, ran));
        self.waited += took.max(since);
        self.waited_in_call += took;
        let beyond = since.saturating_sub(took);
        if beyond > ANSWER_TIMEOUT { Err(EndReason::RanUncalled(beyond)) } else { Ok(()) }
    }

    /// As [`Instance::begin_block`](crate::Instance::begin_block).
    pub fn begin_block(&mut self) {
        self.changes.begins_block = true;
    }

    /// As [`Instance::open_outputs`](crate::Instance::open_outputs).
    pub fn open_outputs(&mut self, open: u8) {
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
            Call::Tick { before, .. } => self.before = before,
            Call::Start | Call::Stop { .. } | Call::Event(_) => {}
        }
        if self.ended {
            self.unserved |= self.mask;
            return CallStep::Done(0);
        }
        let changes = PendingChanges { writes: self.writes.fields(), ..std::mem::take(&mut self.changes) };
        let begin = Instant::now();
        let sent = self.process.send(&SandboxRequest::Begin(changes, call, slice).write(), ANSWER_TIMEOUT);
        self.await_report(sent, begin, slice)
    }

    /// As [`Instance::resume`](crate::Instance::resume).
    pub fn resume(&mut self, slice: FuelSlice) -> CallStep {
        if !self.is_suspended {
            return CallStep::Done(0);
        }
        let begin = Instant::now();
        let sent = match std::mem::take(&mut self.is_paused) {
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
            self.apply_report(Err(EndReason::Unresponsive))
        } else {
            let begin = Instant::now();
            let sent = self.process.send(&SandboxRequest::Abandon.write(), ANSWER_TIMEOUT);
            self.await_report_for(sent, begin, CONTROL_TIMEOUT)
        };
        match step {
            CallStep::Done(drops) => drops,
            // The process should have reported the end of the call.
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

    /// Waits for the result of a call for as long as the slice lasts.
    fn await_report(&mut self, sent: io::Result<()>, begin: Instant, slice: FuelSlice) -> CallStep {
        let wait = match slice.until {
            Some(until) => self.time_until(until) + ANSWER_TIMEOUT,
            None if slice == FuelSlice::UNLIMITED => UNRESPONSIVE_AFTER,
            // The process is to do the next step and no more.
            None => ANSWER_TIMEOUT,
        };
        self.await_report_for(sent, begin, wait)
    }

    fn await_report_for(&mut self, sent: io::Result<()>, begin: Instant, wait: Duration) -> CallStep {
        let wait = wait.min(UNRESPONSIVE_AFTER.saturating_sub(self.waited_in_call));
        let was_sent = sent.is_ok();
        let received = self.receive(sent, wait);
        let accounted = self.account_time(begin);
        let received = match (received, accounted) {
            (_, Err(end)) => Err(end),
            (Ok(reported), Ok(())) => self.read(&reported),
            (Err(EndReason::Unresponsive), Ok(()))
                if was_sent && self.waited_in_call < UNRESPONSIVE_AFTER =>
            {
                // The process continues from here when it is resumed.
                (self.is_paused, self.is_suspended) = (true, true);
                return CallStep::Suspended;
            }
            (Err(end), Ok(())) => Err(end),
        };
        self.apply_report(received)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a time of seconds at most"
    )]
    fn time_until(&self, until: Cycles) -> Duration {
        Duration::from_nanos((until.since(Cycles::now()).0 as f64 * self.nanos_per_cycle) as u64)
    }

    fn read(&self, reported: &[u8]) -> Result<CallReport, EndReason> {
        let profile = self.admitted.profile();
        let most = match self.mask {
            0 => OutputLimits::of_call(profile, self.is_start),
            mask => OutputLimits::of_batch(profile, mask.count_ones()),
        };
        let expected = Expected {
            manifest: self.admitted.manifest(),
            mask: self.mask,
            first: self.first,
            before: self.before,
            most: most.with_texts(
                (limit::LOG_MESSAGES as usize).saturating_sub(self.logged),
                FAULTS_DESCRIBED.saturating_sub(self.faults.len()),
            ),
            memory: self.admitted.memory(),
            writes: self.writes.fields(),
            frame_bytes: usize::try_from(self.admitted.profile().frame_bytes.0).unwrap_or(usize::MAX),
        };
        Ok(CallReport::read(reported, expected)?)
    }

    /// Records the result of a call. On an error, ends the process: the packets of the call are lost.
    fn apply_report(&mut self, received: Result<CallReport, EndReason>) -> CallStep {
        let report = match received {
            Ok(report) => report,
            Err(end) => {
                // The exit status of a process that ended by itself says more than that it is killed now.
                let how = self.process.end().map(|how| format!(" ({how})")).unwrap_or_default();
                self.faults.push(format!("{end}{how}"));
                self.counters.faults += 1;
                self.counters.lost += u64::from(self.mask.count_ones());
                self.unserved |= self.mask;
                (self.ended, self.is_gone) = (true, true);
                (self.is_suspended, self.is_paused) = (false, false);
                return CallStep::Done(0);
            }
        };
        self.is_suspended = report.is_suspended;
        self.memory = report.memory;
        self.count(report.counters);
        let refused = report.refused.clamp(self.refused, self.refused.saturating_add(REFUSED_MAX));
        (self.refused..refused).for_each(|_| self.writes.refuse());
        self.refused = refused;
        if report.is_suspended {
            return CallStep::Suspended;
        }
        self.unserved |= report.unserved;
        self.ended = report.has_ended;
        append(&mut self.records, report.records);
        append(&mut self.frames, report.frames);
        self.patches.extend(report.patches);
        self.logged += report.log.len();
        self.log.extend(report.log);
        self.faults.extend(report.faults);
        CallStep::Done(report.drops)
    }

    /// Updates the counters: they only grow, the packet counters by at most the packets of the call.
    fn count(&mut self, reported: InstanceCounters) {
        let packets = u64::from(self.mask.count_ones());
        let grown = |was: u64, is: u64, most: u64| is.clamp(was, was.saturating_add(most));
        let was = self.counters;
        let lost = grown(was.lost, reported.lost, packets);
        self.counters = InstanceCounters {
            packets: grown(was.packets, reported.packets, packets),
            lost,
            over_limit: grown(was.over_limit, reported.over_limit, lost - was.lost),
            faults: grown(was.faults, reported.faults, COUNTED_MAX),
            records_dropped: grown(was.records_dropped, reported.records_dropped, COUNTED_MAX),
            records_discarded: grown(was.records_discarded, reported.records_discarded, COUNTED_MAX),
            frames_dropped: grown(was.frames_dropped, reported.frames_dropped, COUNTED_MAX),
            log_dropped: grown(was.log_dropped, reported.log_dropped, COUNTED_MAX),
            exceeded: grown(was.exceeded, reported.exceeded, COUNTED_MAX),
            // Strikes can also go down.
            strikes: reported.strikes.min(COUNTED_MAX),
        };
    }

    /// As [`Instance::low_memory`](crate::Instance::low_memory).
    pub fn low_memory(&mut self) -> Option<ModuleEvent> {
        let state = self.holding.as_ref()?.reservation().state();
        let is_known = std::mem::replace(&mut self.times_low, state.times_low) == state.times_low;
        let event = ModuleEvent::LowMemory { left: state.left() };
        (!is_known && self.admitted.info().entries.has(event.entry())).then_some(event)
    }

    /// As [`Instance::take_unserved`](crate::Instance::take_unserved).
    pub fn take_unserved(&mut self) -> u64 {
        std::mem::take(&mut self.unserved)
    }

    /// As [`Instance::counters`](crate::Instance::counters).
    pub fn counters(&self) -> InstanceCounters {
        self.counters
    }

    /// Returns descriptions of the module's faults.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// As [`Instance::has_ended`](crate::Instance::has_ended).
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the process has ended by itself, or was killed because of an invalid report or no report.
    pub fn is_gone(&self) -> bool {
        self.is_gone
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

/// Appends new rows to rows that were not taken yet.
fn append(to: &mut Records, more: Records) {
    if to.is_empty() {
        *to = more;
        return;
    }
    to.append(&more);
}
