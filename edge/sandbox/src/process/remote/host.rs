//! A ward, from the node's side.

use super::WARD;
use super::wire::{CallReport, Expected, Job, Notes, OutputLimits, REPORT_BYTES_MAX, SandboxRequest};
use crate::load::engine::{CompiledModule, Engine, LoadError};
use crate::run::clock::ClockCheck;
use crate::run::host::{LogLine, Patch};
use crate::run::instance::{FAULTS_DESCRIBED, InstanceCounters};
use crate::run::rights::WriteRights;
use crate::run::space::Area;
use crate::run::suspend::{Call, CallStep};
use crate::{Cycles, FuelSlice, News};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_abi::limit;
use weir_os::CpuMeter;
use weir_os::companion::{HelperLimits, HelperProcess};
use weir_os::{Isolation, Launcher};
use weir_units::{Bytes, Nanos};
use {
    weir_admission::{Admitted, ParameterSetting},
    weir_session::{Holding, MemoryReservation, Records},
};

/// What a ward has of its own beside its module's memory, the module and its code: stacks, tables, and what it has to say. It is the session's, as these are.
const BESIDE: Bytes = Bytes(4 << 20);
/// What it may take beyond that: admitting a module takes some, for as long as it lasts, and more for a long one.
const ADMITTING: Bytes = Bytes(128 << 20);
const ADMITTING_PER_BYTE: u64 = 16;
/// Its addresses: a sandbox's, and the rest.
const ADDRESSES: Bytes = Bytes(16 << 30);
/// How long a ward may take to begin: to check its module and to start it,
const BEGINNING: Duration = Duration::from_secs(60);
/// to map something or to give a call up, which takes no time but that of being asked: a core can be kept from others for so long, once, by one that was taken
/// over, and is killed then,
const SETTLING: Duration = Duration::from_secs(2);
/// to answer after its budget is used up, before it is halted: its own clock has told it to be done by then; to take a request, which has a few bytes; and to run
/// where nobody has asked it for anything.
const ALLOWANCE: Duration = Duration::from_millis(2);
/// One that has been waited for so long in one call does not answer any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// A counter grows by no more than that in a call.
const COUNTED_MAX: u64 = 1 << 32;

/// Patches that are refused in a call at most, as they are counted.
const REFUSED_MAX: u64 = 4096;

/// Why a ward is not called any more.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("its process does not answer")]
    Silent,
    #[error("its process has run for {0:?} that it was not called")]
    Restless(Duration),
    #[error("its process has ended: {0}")]
    Gone(io::Error),
    #[error(transparent)]
    Nonsense(#[from] super::wire::Nonsense),
}

impl End {
    fn of(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut { Self::Silent } else { Self::Gone(error) }
    }
}

/// A module in a process of its own. It is killed when this is dropped.
#[derive(Debug)]
pub struct RemoteInstance {
    companion: HelperProcess,
    admitted: Arc<Admitted>,
    /// Its memory, as taken from its session.
    holding: Option<Holding>,
    times_low: u64,
    writes: Arc<WriteRights>,
    /// Patches of it that were refused because of those, as they have been counted.
    refused: u64,
    nanos_per_cycle: f64,
    notes: Notes,
    /// The packets of the call at hand, from this one of the block on; or where in the block it is, if it has none.
    mask: u64,
    first: u32,
    before: u32,
    /// The call at hand is the first.
    is_start: bool,
    /// The processor time that its process had had when it answered last.
    ran: Duration,
    /// Lines of its log that were taken.
    logged: usize,
    /// It was halted before it answered.
    is_halted: bool,
    /// Its call is not at its end.
    is_suspended: bool,
    ended: bool,
    /// And that because its process is no more.
    is_gone: bool,
    /// How long it has been waited for in the call at hand, and since that was asked last.
    patience: Duration,
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
    /// Has a module that was admitted with these settings compiled, and started in a process of its own. All of its memory is taken from the session's, with what the process has beside it. One
    /// that fails at its start is there all the same, but [ended](Self::has_ended). The program that `launcher` starts answers the argument [`WARD`] as it should, and is this very version.
    /// The processor time of the compiler, and that of the new process for admitting and starting the module, is taken off `meter`, also where this fails.
    ///
    /// # Errors
    /// It cannot be compiled, there is no process, or the session has not the memory.
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
        let wanted = [BESIDE.0, held].into_iter().fold(admitted.memory().0, u64::saturating_add);
        let wanted = Bytes(wanted);
        let hold = |reservation: &Arc<MemoryReservation>| {
            let left = reservation.state().left();
            Holding::of(reservation, wanted).ok_or(LoadError::Memory { wanted, left })
        };
        let holding = memory.map(hold).transpose()?;
        let terms = admitted.assessment().terms();
        let job = Job {
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
        let admitting = ADMITTING.0.saturating_add(held.saturating_mul(ADMITTING_PER_BYTE));
        let room = HelperLimits { addresses: ADDRESSES, memory: Bytes(wanted.0.saturating_add(admitting)) };
        let mut companion = HelperProcess::start(launcher, &[WARD], room).map_err(failed)?;
        let said = companion.ask(&job.write(), REPORT_BYTES_MAX, BEGINNING);
        companion.halt();
        let ran = companion.processor_time().unwrap_or_default();
        meter.spend(Nanos(u64::try_from(ran.as_nanos()).unwrap_or(u64::MAX)));
        let said = said.map_err(|error| {
            let how = companion.end().map_or_else(|error| error.to_string(), |how| how.to_string());
            LoadError::Sandbox(format!("a process of its own: {error} ({how})"))
        })?;
        let times_low = memory.map_or(0, |memory| {
            let state = memory.state();
            state.times_low.saturating_sub(state.is_low().into())
        });
        let mut this = Self {
            companion,
            admitted: Arc::new(admitted),
            holding,
            times_low,
            writes: Arc::clone(writes),
            refused: 0,
            nanos_per_cycle: ClockCheck::begin().nanos_per_cycle(),
            notes: Notes::default(),
            mask: 0,
            first: 0,
            before: 0,
            is_start: true,
            ran,
            logged: 0,
            is_halted: false,
            is_suspended: false,
            ended: false,
            is_gone: false,
            patience: Duration::ZERO,
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
        let heard = this.read(&said);
        _ = this.settle(heard);
        this.is_start = false;
        Ok(this)
    }

    /// What was admitted.
    pub fn admitted(&self) -> &Arc<Admitted> {
        &self.admitted
    }

    /// The walls around its process.
    pub fn isolation(&self) -> Isolation {
        self.companion.isolation()
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.companion.id()
    }

    /// How long it was waited for since this was asked last: time of the module's, though not of the thread that asks.
    pub fn take_waited(&mut self) -> Nanos {
        let waited = std::mem::take(&mut self.waited);
        Nanos(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX))
    }

    /// As [`Instance::map_descriptors`](crate::Instance::map_descriptors).
    ///
    /// # Errors
    /// It has ended.
    pub fn map_descriptors(&mut self, area: Area<'_>) -> io::Result<()> {
        self.map(false, area)
    }

    /// As [`Instance::map_packets`](crate::Instance::map_packets). Nothing of it can be kept.
    ///
    /// # Errors
    /// It has ended, or its call is suspended.
    pub fn map_packets(&mut self, area: Area<'_>) -> io::Result<()> {
        self.map(true, area)
    }

    fn map(&mut self, is_packets: bool, area: Area<'_>) -> io::Result<()> {
        if self.ended || self.is_suspended {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let request = SandboxRequest::Map { is_packets, offset: area.offset, len: area.len as u64 };
        let begin = Instant::now();
        let told =
            self.companion.tell(&request.write(), ALLOWANCE).and_then(|()| self.companion.give(area.fd));
        // That it answers is all that there is to say.
        let mapped = self.hear_of(told, SETTLING).and_then(|_| self.account(begin));
        match mapped {
            Ok(()) => Ok(()),
            Err(end) => {
                _ = self.settle(Err(end));
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// Has it go on, and waits for its answer. When there is one it rests, until it is asked for something else: where nobody has asked it, it does not run.
    fn hear_of(&mut self, told: io::Result<()>, wait: Duration) -> Result<Vec<u8>, End> {
        // A request has a few bytes. Who does not take them does not read.
        told.map_err(End::of)?;
        self.companion.go_on();
        let heard = self.companion.hear(REPORT_BYTES_MAX, Instant::now() + wait);
        self.companion.halt();
        heard.map_err(End::of)
    }

    /// Bills what its process has had since it was asked: the time that it was waited for, and what it ran beyond that, where others were waiting for the core.
    fn account(&mut self, begin: Instant) -> Result<(), End> {
        let took = begin.elapsed();
        let ran = self.companion.processor_time().unwrap_or(self.ran);
        let since = ran.saturating_sub(std::mem::replace(&mut self.ran, ran));
        self.waited += took.max(since);
        self.patience += took;
        let beyond = since.saturating_sub(took);
        if beyond > ALLOWANCE { Err(End::Restless(beyond)) } else { Ok(()) }
    }

    /// As [`Instance::begin_block`](crate::Instance::begin_block).
    pub fn begin_block(&mut self) {
        self.notes.begins_block = true;
    }

    /// As [`Instance::open_outputs`](crate::Instance::open_outputs).
    pub fn open_outputs(&mut self, open: u8) {
        self.notes.open = Some(open);
    }

    /// As [`Instance::ignore_patches`](crate::Instance::ignore_patches).
    pub fn ignore_patches(&mut self) {
        self.notes.ignores_patches = true;
    }

    /// As [`Instance::begin`](crate::Instance::begin).
    pub fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        self.finish();
        (self.mask, self.first, self.before, self.patience) = (0, 0, 0, Duration::ZERO);
        match call {
            Call::Batch(batch) => (self.mask, self.first) = (batch.mask, batch.first),
            Call::Tick { before, .. } => self.before = before,
            Call::Start | Call::Stop { .. } | Call::News(_) => {}
        }
        if self.ended {
            self.unserved |= self.mask;
            return CallStep::Done(0);
        }
        let notes = Notes { writes: self.writes.fields(), ..std::mem::take(&mut self.notes) };
        let begin = Instant::now();
        let told = self.companion.tell(&SandboxRequest::Begin(notes, call, budget).write(), ALLOWANCE);
        self.hear(told, begin, budget)
    }

    /// As [`Instance::resume`](crate::Instance::resume).
    pub fn resume(&mut self, budget: FuelSlice) -> CallStep {
        if !self.is_suspended {
            return CallStep::Done(0);
        }
        let begin = Instant::now();
        let told = match std::mem::take(&mut self.is_halted) {
            true => Ok(()),
            false => self.companion.tell(&SandboxRequest::Resume(budget).write(), ALLOWANCE),
        };
        self.hear(told, begin, budget)
    }

    /// As [`Instance::abandon`](crate::Instance::abandon). One that was halted before it answered is killed.
    pub fn abandon(&mut self) -> u64 {
        if !self.is_suspended {
            return 0;
        }
        let step = if self.is_halted {
            self.settle(Err(End::Silent))
        } else {
            let begin = Instant::now();
            let told = self.companion.tell(&SandboxRequest::Abandon.write(), ALLOWANCE);
            self.hear_for(told, begin, SETTLING)
        };
        match step {
            CallStep::Done(drops) => drops,
            // It is to be at its end then, and is not.
            CallStep::Suspended => {
                _ = self.settle(Err(End::Silent));
                0
            }
        }
    }

    /// Whether a call is suspended.
    pub fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    /// Brings a suspended call to its end.
    fn finish(&mut self) {
        while self.is_suspended {
            _ = self.resume(FuelSlice::WHOLE);
        }
    }

    /// Waits for what becomes of a call, as long as the budget lasts.
    fn hear(&mut self, told: io::Result<()>, begin: Instant, budget: FuelSlice) -> CallStep {
        let wait = match budget.until {
            Some(until) => self.time_until(until) + ALLOWANCE,
            None if budget == FuelSlice::WHOLE => PATIENCE,
            // It is to do what is next and no more.
            None => ALLOWANCE,
        };
        self.hear_for(told, begin, wait)
    }

    fn hear_for(&mut self, told: io::Result<()>, begin: Instant, wait: Duration) -> CallStep {
        let wait = wait.min(PATIENCE.saturating_sub(self.patience));
        let was_told = told.is_ok();
        let heard = self.hear_of(told, wait);
        let accounted = self.account(begin);
        let heard = match (heard, accounted) {
            (_, Err(end)) => Err(end),
            (Ok(said), Ok(())) => self.read(&said),
            (Err(End::Silent), Ok(())) if was_told && self.patience < PATIENCE => {
                // It goes on where it is now when it is its turn again.
                (self.is_halted, self.is_suspended) = (true, true);
                return CallStep::Suspended;
            }
            (Err(end), Ok(())) => Err(end),
        };
        self.settle(heard)
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

    fn read(&self, said: &[u8]) -> Result<CallReport, End> {
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
            most: most.with_words(
                (limit::LOG_MESSAGES as usize).saturating_sub(self.logged),
                FAULTS_DESCRIBED.saturating_sub(self.faults.len()),
            ),
            memory: self.admitted.memory(),
            writes: self.writes.fields(),
            frame_bytes: usize::try_from(self.admitted.profile().frame_bytes.0).unwrap_or(usize::MAX),
        };
        Ok(CallReport::read(said, expected)?)
    }

    /// Takes what has come of a call; or ends the ward, which loses the packets of the call.
    fn settle(&mut self, heard: Result<CallReport, End>) -> CallStep {
        let report = match heard {
            Ok(report) => report,
            Err(end) => {
                // How it ended by itself says more than that it is killed now.
                let how = self.companion.end().map(|how| format!(" ({how})")).unwrap_or_default();
                self.faults.push(format!("{end}{how}"));
                self.counters.faults += 1;
                self.counters.lost += u64::from(self.mask.count_ones());
                self.unserved |= self.mask;
                (self.ended, self.is_gone) = (true, true);
                (self.is_suspended, self.is_halted) = (false, false);
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

    /// Counters only grow; that of packets by no more than there were.
    fn count(&mut self, said: InstanceCounters) {
        let packets = u64::from(self.mask.count_ones());
        let grown = |was: u64, is: u64, most: u64| is.clamp(was, was.saturating_add(most));
        let was = self.counters;
        self.counters = InstanceCounters {
            packets: grown(was.packets, said.packets, packets),
            lost: grown(was.lost, said.lost, packets),
            faults: grown(was.faults, said.faults, COUNTED_MAX),
            records_dropped: grown(was.records_dropped, said.records_dropped, COUNTED_MAX),
            frames_dropped: grown(was.frames_dropped, said.frames_dropped, COUNTED_MAX),
            log_dropped: grown(was.log_dropped, said.log_dropped, COUNTED_MAX),
            exceeded: grown(was.exceeded, said.exceeded, COUNTED_MAX),
            // They go down again, too.
            strikes: said.strikes.min(COUNTED_MAX),
        };
    }

    /// As [`Instance::low_memory`](crate::Instance::low_memory).
    pub fn low_memory(&mut self) -> Option<News> {
        let state = self.holding.as_ref()?.reservation().state();
        let is_told = std::mem::replace(&mut self.times_low, state.times_low) == state.times_low;
        let news = News::LowMemory { left: state.left() };
        (!is_told && self.admitted.facts().entries.has(news.entry())).then_some(news)
    }

    /// As [`Instance::take_unserved`](crate::Instance::take_unserved).
    pub fn take_unserved(&mut self) -> u64 {
        std::mem::take(&mut self.unserved)
    }

    /// As [`Instance::counters`](crate::Instance::counters).
    pub fn counters(&self) -> InstanceCounters {
        self.counters
    }

    /// What went wrong, in words.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// As [`Instance::has_ended`](crate::Instance::has_ended).
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether its process has ended, or was killed for what it said or did not say.
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

/// Puts what has come behind what nobody has taken yet.
fn append(to: &mut Records, more: Records) {
    if to.is_empty() {
        *to = more;
        return;
    }
    to.append(&more);
}
