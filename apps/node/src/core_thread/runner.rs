//! The loop of a core thread: it runs the virtual CPU that the scheduler chooses, for as long as the scheduler allows.
//!
//! All state of a core belongs to its one thread. Other threads put requests into its mailbox, which it reads between
//! two runs. So no lock is held while a module runs, and the scheduler sees all events in one order.

mod deferred_terms;
mod mailbox;
mod replace;

use crate::core_thread::cpu_clock::{CpuClock, LateWakeup};
use crate::core_thread::task::{ModuleTask, Progress};
use crate::core_thread::trace::{Recorder, SharedTrace, Trace, recorder};
use deferred_terms::DeferredTerms;
use mailbox::Mailbox;
pub use mailbox::Waker;
pub(crate) use replace::ModuleTrial;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_datapath::clock::{ClockReading, monotonic_clock};
use weir_datapath::egress::TxPacketSink;
use weir_sandbox::thread_time;
use weir_sched::cpu::trace::{self, TracedCore, first_line};
use weir_sched::cpu::{
    CoreConfig, CpuAllocation, CpuDecision, CpuTerms, DebitKind, LoadShedder, PoolDepth, PoolId, Pools, Ppm,
    QueueLoad, ReservationRefusal, RunOutcome, Stats, VcpuId, VcpuWork,
};
use weir_units::Nanos;

/// Longest time for an answer of a core thread. A run is far shorter, so a thread that takes longer is stuck.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest sleep of an idle thread.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Most pending work items of a module: one for all packets, one for all events, and one tick.
const WORK_ITEMS_MAX: u16 = 3;

/// Handle of a core thread, which ends when the handle is dropped.
pub struct CoreThread {
    number: u16,
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

/// The error of a core thread that does not answer, although no module can keep it that long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("core {core} does not answer: the module that it runs exceeds its bounds, which is a fault in weir")]
pub struct Stuck {
    /// Number of the core.
    pub core: u16,
}

/// Error of the start of a core thread.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The operating system refuses a thread.
    #[error("the thread of core {core} cannot be started: {source}")]
    Thread {
        /// Number of the core.
        core: u16,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The trace file cannot be written.
    #[error("the trace of core {core} cannot be written: {source}; `trace` in [cpu] names its folder")]
    Trace {
        /// Number of the core.
        core: u16,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The thread cannot be bound to its core.
    #[error(
        "no thread can be bound to core {core}: {source}; `cores` in [cpu] names cores that this process may use"
    )]
    Bind {
        /// Number of the core.
        core: u16,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl std::fmt::Debug for CoreThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreThread").field("number", &self.number).finish_non_exhaustive()
    }
}

impl CoreThread {
    /// Starts a thread and binds it to its core. With a folder, a trace of the scheduler is written to a file in it.
    pub fn start(number: u16, config: CoreConfig, folder: Option<&Path>) -> Result<Self, StartError> {
        let failed = |source| StartError::Trace { core: number, source };
        let name = format!("core-{number}");
        let trace = folder.map(|folder| Trace::create(folder, &name, &first_line(&config)));
        let trace = trace.transpose().map_err(failed)?;
        let mailbox = Arc::new(Mailbox::default());
        let (sender, receiver) = channel();
        let mailbox_of_thread = Arc::clone(&mailbox);
        let thread = std::thread::Builder::new()
            .name(format!("weir-core-{number}"))
            .spawn(move || {
                let bound = bind(number);
                let is_bound = bound.is_ok();
                _ = mailbox_of_thread.thread.set(std::thread::current());
                _ = sender.send(bound);
                if is_bound {
                    Runner::new(config, mailbox_of_thread, trace).run();
                }
            })
            .map_err(|source| StartError::Thread { core: number, source })?;
        let bound = receiver.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread is gone")));
        bound.map_err(|source| StartError::Bind { core: number, source })?;
        Ok(Self { number, mailbox, thread: Some(thread) })
    }

    /// Returns the core's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns a waker for the modules of this core.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.mailbox))
    }

    /// Runs a job on the thread between two runs, and waits for its result.
    pub fn execute<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Runner) -> R + Send + 'static,
    ) -> Result<R, Stuck> {
        let (sender, receiver) = channel();
        self.submit(move |runner| _ = sender.send(job(runner)));
        receiver.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected => Stuck { core: self.number },
        })
    }

    /// Runs a job on the thread between two runs, without waiting for it.
    pub fn submit(&self, job: impl FnOnce(&mut Runner) + Send + 'static) {
        self.waker().submit(job);
    }
}

impl Drop for CoreThread {
    fn drop(&mut self) {
        self.submit(|runner| runner.has_ended = true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Binds the calling thread to a core.
pub(crate) fn bind(core: u16) -> std::io::Result<()> {
    let core = usize::from(core);
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::Error::other(format!(
            "core numbers are below {}",
            rustix::thread::CpuSet::MAX_CPU
        )));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// A unit of work of a virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkItem {
    /// Packets of a module.
    Packets(u64),
    /// A tick of a module.
    Tick(u64),
    /// An event of a module.
    Event(u64),
    /// A part of the stop of a module.
    Stop,
}

/// A module's task on a virtual CPU.
#[derive(Debug)]
struct VcpuTask {
    task: ModuleTask,
    pool: PoolId,
    /// True while a work item for the module's packets is pending.
    has_packet_item: bool,
    /// True while a work item for the module's events is pending.
    has_event_item: bool,
    /// The deadline of the module's earliest service call, as registered with the runner.
    deadline: Option<Instant>,
    /// Gets the task after its stop; set while the module stops.
    stop_receiver: Option<Sender<ModuleTask>>,
    /// Gets the task once it is idle; set while a newer version waits for its place.
    idle_receiver: Option<Sender<ModuleTask>>,
    /// The trial of a newer version, which leaves the core if it fails.
    trial: Option<ModuleTrial>,
}

impl VcpuTask {
    /// Queues the next work of a module after a run, and registers its timers.
    fn queue_next_work(
        &mut self,
        progress: Progress,
        pools: &mut Pools<WorkItem>,
        ticks: &mut BinaryHeap<Reverse<(Nanos, u64)>>,
        deadlines: &mut BTreeSet<(Instant, u64)>,
    ) {
        let task = &mut self.task;
        // The first packet fixes the time of the first tick.
        if !task.has_tick_timer
            && let Some(at) = task.next_tick(ClockReading::now())
        {
            task.has_tick_timer = true;
            ticks.push(Reverse((at, task.number)));
        }
        if progress == Progress::More && !self.has_packet_item {
            self.has_packet_item = pools.push(self.pool, WorkItem::Packets(task.number)).is_ok();
        }
        if progress != Progress::Suspended && !self.has_event_item && task.has_event() {
            self.has_event_item = pools.push(self.pool, WorkItem::Event(task.number)).is_ok();
        }
        let deadline = task.next_deadline();
        if deadline != self.deadline {
            if let Some(old) = std::mem::replace(&mut self.deadline, deadline) {
                deadlines.remove(&(old, task.number));
            }
            deadlines.extend(deadline.map(|at| (at, task.number)));
        }
    }
}

/// A virtual CPU with the work and the modules on it.
#[derive(Debug, Default)]
struct Vcpu {
    pools: Pools<WorkItem>,
    tasks: BTreeMap<u64, VcpuTask>,
    settlement: TimeSettlement,
}

/// Processor time that a virtual CPU pays to and gets from others for calls of services, and its stolen time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSettlement {
    /// CPU time of other virtual CPUs that this virtual CPU pays for.
    pub debit: Nanos,
    /// CPU time of this virtual CPU that others pay for.
    pub credit: Nanos,
    /// Time for which this virtual CPU had work and programs outside the node had the core.
    pub stolen: Nanos,
}

/// Statistics of a core.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreStats {
    /// Reserved share of the core.
    pub reserved: Ppm,
    /// Reservable share of the core.
    pub reservable: Ppm,
    /// Sums over all virtual CPUs.
    pub total: Stats,
    /// CPU time of the core thread. Its excess over the sums is the cost of scheduling and waking.
    pub thread: Nanos,
    /// Time for which the thread was ready to run and programs outside the node had the core.
    pub stolen: Nanos,
}

/// State of a core thread.
pub struct Runner {
    core: TracedCore<Recorder>,
    trace: SharedTrace,
    overload: LoadShedder,
    mailbox: Arc<Mailbox>,
    vcpus: BTreeMap<VcpuId, Vcpu>,
    /// The virtual CPU of each module.
    vcpu_of_module: BTreeMap<u64, VcpuId>,
    /// Tick timers, by the monotonic clock, since the wall clock can be set.
    ticks: BinaryHeap<Reverse<(Nanos, u64)>>,
    /// Deadlines of service calls, at most one for each module.
    deadlines: BTreeSet<(Instant, u64)>,
    deferred_terms: DeferredTerms,
    origin: Instant,
    clock: CpuClock,
    late_wakeup: LateWakeup,
    has_ended: bool,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("core", self.core.core()).finish_non_exhaustive()
    }
}

impl Runner {
    fn new(config: CoreConfig, mailbox: Arc<Mailbox>, trace: Option<Trace<trace::TraceEvent>>) -> Self {
        let origin = Instant::now();
        let trace = SharedTrace::new(RefCell::new(trace));
        Self {
            core: TracedCore::new(config, recorder(&trace)),
            trace,
            overload: LoadShedder::default(),
            mailbox,
            vcpus: BTreeMap::new(),
            vcpu_of_module: BTreeMap::new(),
            ticks: BinaryHeap::new(),
            deadlines: BTreeSet::new(),
            deferred_terms: DeferredTerms::default(),
            origin,
            clock: CpuClock::start(),
            late_wakeup: LateWakeup::default(),
            has_ended: false,
        }
    }

    fn run(mut self) {
        while !self.has_ended {
            if self.mailbox.has_requests.swap(false, Ordering::AcqRel) {
                self.read_mailbox();
                continue;
            }
            self.fire_timers();
            self.apply_deferred_terms();
            let begin = self.now();
            match self.core.next(begin) {
                CpuDecision::Run { vcpu_id, budget, .. } => {
                    // The virtual CPU had work while the thread slept: it waited for its next period.
                    self.add_stolen(vcpu_id, self.late_wakeup.delay);
                    self.late_wakeup = LateWakeup::default();
                    self.run_vcpu(vcpu_id, budget, begin);
                }
                CpuDecision::Idle { until } => {
                    // No virtual CPU had work, so this time is stolen from none of them.
                    _ = self.clock.take_stolen_between_runs();
                    let asleep = self.now();
                    self.wait(until);
                    // Sleep is not stolen time, but the delay between waking and running is.
                    self.late_wakeup = LateWakeup::new(self.clock.record_sleep(asleep, self.now()));
                }
            }
        }
    }

    fn now(&self) -> Nanos {
        self.origin.elapsed().into()
    }

    fn read_mailbox(&mut self) {
        let woken = self.mailbox.woken.take();
        let events = self.mailbox.events.take();
        let lagging = self.mailbox.lagging.take();
        let debts = self.mailbox.debts.take();
        let jobs = self.mailbox.jobs.take();
        // Requests are handled in their order of arrival and with their time of arrival, so a late wake-up of the
        // thread does not hide a waiting time.
        let events = events.into_iter().map(|(module, at)| (at, module, true));
        let mut all: Vec<_> =
            woken.into_iter().map(|(at, module)| (at, module, false)).chain(events).collect();
        all.sort_unstable();
        for (at, module, is_event) in all {
            let at = Nanos::from(at.saturating_duration_since(self.origin));
            if is_event { self.queue_event(module, at) } else { self.queue_packets(module, at) }
        }
        lagging.into_iter().for_each(|(module, position)| self.evict_packets(module, position));
        debts.into_iter().for_each(|(module, time)| self.debit_requested(module, Nanos(time)));
        jobs.into_iter().for_each(|job| job(self));
    }

    /// Adds time for which a virtual CPU had work while programs outside the node had the core.
    fn add_stolen(&mut self, id: VcpuId, time: Nanos) {
        if time.0 > 0
            && self.late_wakeup.is_first_for(id)
            && let Some(vcpu) = self.vcpus.get_mut(&id)
        {
            vcpu.settlement.stolen.0 = vcpu.settlement.stolen.0.saturating_add(time.0);
        }
    }

    /// Queues work for a module that has had packets since `at`, if it is still on this core.
    fn queue_packets(&mut self, module: u64, at: Nanos) {
        let Some(&id) = self.vcpu_of_module.get(&module) else { return };
        let Some(vcpu) = self.vcpus.get_mut(&id) else { return };
        let Some(entry) = vcpu.tasks.get_mut(&module) else { return };
        let debit = entry.task.take_debit();
        let is_new = !entry.has_packet_item;
        if is_new {
            entry.has_packet_item = vcpu.pools.push(entry.pool, WorkItem::Packets(module)).is_ok();
        }
        self.debit_unrequested(id, debit, at);
        if is_new {
            _ = self.core.wake(id, at);
            self.add_stolen(id, self.late_wakeup.delay.min(Nanos(self.now().0.saturating_sub(at.0))));
        }
        self.shed_overload(id, module);
    }

    /// Sheds the packets of modules with the lowest priority while the core is overloaded.
    fn shed_overload(&mut self, id: VcpuId, module: u64) {
        let fill = |entry: &VcpuTask| entry.task.queue_fill();
        let entry = self.vcpus.get(&id).and_then(|vcpu| vcpu.tasks.get(&module));
        if !self.overload.is_shedding() && entry.is_none_or(|entry| fill(entry) * 2 < 1000) {
            return;
        }
        let loads: Vec<QueueLoad> = self.loads_and_tasks().map(|(load, _)| load).collect();
        self.overload.update(&loads);
        for (_, entry) in self.loads_and_tasks().filter(|(load, _)| self.overload.sheds(load)) {
            entry.task.shed();
        }
    }

    fn loads_and_tasks(&self) -> impl Iterator<Item = (QueueLoad, &VcpuTask)> {
        self.vcpus.iter().flat_map(|(id, vcpu)| {
            let share = self.core.core().terms(*id).map(|terms| terms.share);
            let is_best_effort = matches!(share, Some(CpuAllocation::BestEffort(_)));
            let takes_spare = matches!(share, Some(CpuAllocation::Reserved(of)) if of.spare.is_some());
            let load = move |entry: &VcpuTask| QueueLoad {
                priority: entry.task.priority(),
                filled: entry.task.queue_fill(),
                takes_unreserved: is_best_effort || takes_spare,
                is_best_effort,
            };
            vcpu.tasks.values().map(move |entry| (load(entry), entry))
        })
    }

    /// Debits a virtual CPU for work that it did not request: other threads did it for its packets and records.
    fn debit_unrequested(&mut self, id: VcpuId, debit: Nanos, now: Nanos) {
        if debit.0 > 0 {
            _ = self.core.debit(id, debit, DebitKind::Unrequested, now);
        }
    }

    /// Debits a virtual CPU for work that other threads did at its session's request. The session's usage includes that
    /// time already.
    pub(crate) fn charge(&mut self, id: VcpuId, used: Nanos) {
        let now = self.now();
        _ = self.core.debit(id, used, DebitKind::Requested, now);
    }

    /// Queues work for a module that has had an event since `at`, if it is still on this core.
    fn queue_event(&mut self, module: u64, at: Nanos) {
        let Some(&id) = self.vcpu_of_module.get(&module) else { return };
        let Some(vcpu) = self.vcpus.get_mut(&id) else { return };
        let Some(entry) = vcpu.tasks.get_mut(&module) else { return };
        if !entry.has_event_item {
            entry.has_event_item = vcpu.pools.push(entry.pool, WorkItem::Event(module)).is_ok();
            _ = self.core.wake(id, at);
            self.add_stolen(id, self.late_wakeup.delay.min(Nanos(self.now().0.saturating_sub(at.0))));
        }
    }

    /// Releases the packets of a module before this position of its channel. A call that is suspended on one of these
    /// packets is aborted.
    fn evict_packets(&mut self, module: u64, position: u64) {
        let vcpu = self.vcpu_of_module.get(&module).and_then(|id| self.vcpus.get_mut(id));
        if let Some(entry) = vcpu.and_then(|vcpu| vcpu.tasks.get_mut(&module)) {
            entry.task.evict_packets(position);
        }
    }

    /// Debits a module's virtual CPU for work that another module did at its request.
    fn debit_requested(&mut self, module: u64, time: Nanos) {
        let Some(&id) = self.vcpu_of_module.get(&module) else { return };
        let now = self.now();
        if let Some(vcpu) = self.vcpus.get_mut(&id)
            && self.core.debit(id, time, DebitKind::Requested, now).is_ok()
        {
            vcpu.settlement.debit.0 = vcpu.settlement.debit.0.saturating_add(time.0);
        }
    }

    fn fire_timers(&mut self) {
        while let Some(&(at, module)) = self.deadlines.first()
            && at <= Instant::now()
        {
            self.deadlines.pop_first();
            let vcpu = self.vcpu_of_module.get(&module).and_then(|id| self.vcpus.get_mut(id));
            if let Some(entry) = vcpu.and_then(|vcpu| vcpu.tasks.get_mut(&module)) {
                entry.deadline = None;
            }
            self.queue_event(module, self.now());
        }
        if self.ticks.is_empty() {
            return;
        }
        let now = monotonic_clock();
        while let Some(&Reverse((at, module))) = self.ticks.peek()
            && at <= now
        {
            self.ticks.pop();
            let Some(&id) = self.vcpu_of_module.get(&module) else { continue };
            let Some(vcpu) = self.vcpus.get_mut(&id) else { continue };
            let Some(entry) = vcpu.tasks.get(&module) else { continue };
            // One pending tick stands for all: the module is told how many periods have passed.
            _ = vcpu.pools.push(entry.pool, WorkItem::Tick(module));
            let now = self.now();
            _ = self.core.wake(id, now);
        }
    }

    fn run_vcpu(&mut self, id: VcpuId, budget: Nanos, begin: Nanos) {
        let (mut outcome, mut debit, mut ran_module, mut stopped_task) =
            (RunOutcome::Idle, Nanos(0), None, None);
        let mut has_stopped = false;
        if let Some(vcpu) = self.vcpus.get_mut(&id)
            && let Some(work) = vcpu.pools.take()
        {
            let (VcpuWork::Begin { thread, .. } | VcpuWork::Resume(thread)) = work;
            let entry = vcpu.tasks.values_mut().find(|entry| entry.pool == thread.pool);
            let mut progress = Progress::Done;
            if let Some(entry) = entry {
                let task = &mut entry.task;
                progress = match work {
                    VcpuWork::Begin { event: WorkItem::Packets(_), .. } => {
                        entry.has_packet_item = false;
                        task.serve(budget)
                    }
                    VcpuWork::Begin { event: WorkItem::Tick(_), .. } => {
                        task.has_tick_timer = false;
                        task.tick(ClockReading::now(), budget)
                    }
                    VcpuWork::Begin { event: WorkItem::Event(_), .. } => {
                        entry.has_event_item = false;
                        task.handle_event(budget)
                    }
                    VcpuWork::Begin { event: WorkItem::Stop, .. } => task.stop(budget),
                    VcpuWork::Resume(_) => task.resume(budget),
                };
                debit = task.take_debit();
                ran_module = Some(task.number);
                // The sandbox process works while the thread waits for it, so that time is not stolen.
                self.clock.skip(Nanos(0), task.take_waited());
                if progress != Progress::Suspended
                    && entry.stop_receiver.is_none()
                    && let Some(receiver) = entry.departure()
                {
                    entry.stop_receiver = Some(receiver);
                    has_stopped = true;
                } else if entry.stop_receiver.is_none() {
                    entry.queue_next_work(progress, &mut vcpu.pools, &mut self.ticks, &mut self.deadlines);
                } else if progress != Progress::Suspended {
                    has_stopped =
                        entry.task.is_stopped() || vcpu.pools.push(entry.pool, WorkItem::Stop).is_err();
                }
            }
            let used = Nanos(Nanos::from(self.origin.elapsed()).0.saturating_sub(begin.0));
            if progress == Progress::Suspended {
                vcpu.pools.suspend(thread, used);
                outcome = RunOutcome::Suspended;
            } else {
                vcpu.pools.done(thread, used);
            }
            if has_stopped && let Some(entry) = ran_module.and_then(|module| vcpu.tasks.remove(&module)) {
                vcpu.pools.close(entry.pool);
                if let Some(at) = entry.deadline {
                    self.deadlines.remove(&(at, entry.task.number));
                }
                self.vcpu_of_module.remove(&entry.task.number);
                stopped_task = Some(entry);
            }
            if outcome == RunOutcome::Idle && vcpu.pools.has_work() {
                outcome = RunOutcome::Ready;
            }
        }
        let end = self.now();
        let used = self.clock.cpu_time(begin, end, budget);
        let stolen_before = self.clock.take_stolen_between_runs();
        if let Some(vcpu) = self.vcpus.get_mut(&id) {
            vcpu.settlement.stolen.0 = vcpu.settlement.stolen.0.saturating_add(stolen_before.0);
        }
        if let Some(vcpu) = self.vcpus.get_mut(&id)
            && let Some(entry) = ran_module.and_then(|module| vcpu.tasks.get_mut(&module))
        {
            let paid = entry.task.charge_payer(used);
            vcpu.settlement.credit.0 = vcpu.settlement.credit.0.saturating_add(paid.0);
        }
        _ = self.core.charge(used, end, outcome);
        self.debit_unrequested(id, debit, end);
        if let Some(module) = ran_module {
            self.shed_overload(id, module);
        }
        // The task leaves only after its last run is charged.
        if let Some(VcpuTask { task, stop_receiver: Some(receiver), .. }) = stopped_task {
            _ = receiver.send(task);
        }
    }

    fn wait(&self, until: Option<Nanos>) {
        let until = until.into_iter().chain(self.deferred_terms.next_due()).min();
        let until =
            until.map_or(SLEEP_MAX, |until| Duration::from_nanos(until.0.saturating_sub(self.now().0)));
        let next_tick = self.ticks.peek();
        let next_tick =
            next_tick.map(|Reverse((at, _))| Duration::from_nanos(at.0.saturating_sub(monotonic_clock().0)));
        let deadline = self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let time =
            until.min(SLEEP_MAX).min(next_tick.unwrap_or(SLEEP_MAX)).min(deadline.unwrap_or(SLEEP_MAX));
        if !time.is_zero() && !self.mailbox.has_requests.load(Ordering::Acquire) {
            std::thread::park_timeout(time);
        }
    }
}

/// Requests of other threads.
impl Runner {
    /// Admits a virtual CPU.
    pub fn create(&mut self, terms: CpuTerms) -> Result<VcpuId, ReservationRefusal> {
        let id = self.core.create(terms, self.now())?;
        self.vcpus.insert(id, Vcpu::default());
        Ok(id)
    }

    /// Changes the share of a virtual CPU. The overrun of the virtual CPU stays the same.
    pub fn change(&mut self, id: VcpuId, share: CpuAllocation) -> Result<(), ReservationRefusal> {
        let overrun = self.overrun(id).ok_or(ReservationRefusal::Unknown(id))?;
        self.core.change(id, CpuTerms { share, overrun }, self.now())?;
        self.deferred_terms.forget(id);
        Ok(())
    }

    /// Closes a virtual CPU without modules.
    pub fn close(&mut self, id: VcpuId) -> Result<Stats, ReservationRefusal> {
        let stats = self.core.close(id, self.now())?;
        self.vcpus.remove(&id);
        self.deferred_terms.forget(id);
        Ok(stats)
    }

    /// Raises the overrun of a virtual CPU to that of a module's calls, if it is lower.
    pub fn allow_overrun(
        &mut self,
        id: VcpuId,
        share: CpuAllocation,
        overrun: Nanos,
    ) -> Result<(), ReservationRefusal> {
        if overrun <= self.overrun(id).ok_or(ReservationRefusal::Unknown(id))? {
            return Ok(());
        }
        self.core.change(id, CpuTerms { share, overrun }, self.now())?;
        self.deferred_terms.forget(id);
        Ok(())
    }

    /// Adds a module to a virtual CPU. Returns the task as an error if the virtual CPU is gone or full.
    pub fn add_task(&mut self, id: VcpuId, task: ModuleTask) -> Result<(), Box<ModuleTask>> {
        let number = task.number;
        let Some(cpu) = self.vcpus.get_mut(&id) else { return Err(Box::new(task)) };
        let Some(pool) = cpu.pools.open(PoolDepth { events: WORK_ITEMS_MAX, concurrency: 1 }) else {
            return Err(Box::new(task));
        };
        cpu.tasks.insert(
            number,
            VcpuTask {
                task,
                pool,
                has_packet_item: false,
                has_event_item: false,
                deadline: None,
                stop_receiver: None,
                idle_receiver: None,
                trial: None,
            },
        );
        self.vcpu_of_module.insert(number, id);
        // Packets and events may have arrived before the task was on this core.
        if cpu.tasks.get(&number).is_some_and(|entry| entry.task.has_packets()) {
            self.queue_packets(number, self.now());
        }
        self.queue_event(number, self.now());
        Ok(())
    }

    /// Replaces the outputs of a module from its next call on, if it is still on this core.
    pub fn set_outputs(&mut self, module: u64, outputs: Vec<Option<TxPacketSink>>) {
        let vcpu = self.vcpu_of_module.get(&module).and_then(|id| self.vcpus.get_mut(id));
        if let Some(entry) = vcpu.and_then(|vcpu| vcpu.tasks.get_mut(&module)) {
            entry.task.set_outputs(outputs);
        }
    }

    /// Stops a module: its running call is aborted, and it gets no more packets and events. The task is sent to
    /// `receiver` after the stop call; or at once, before the stop call, if that call would keep the core for too long.
    pub fn stop_task(&mut self, module: u64, receiver: Sender<ModuleTask>) {
        let Some(&id) = self.vcpu_of_module.get(&module) else { return };
        let stops_here = self.vcpus.get_mut(&id).and_then(|vcpu| {
            let entry = vcpu.tasks.get_mut(&module)?;
            entry.task.abort();
            vcpu.pools.close(entry.pool);
            // Replaces the pool closed above.
            entry.pool = vcpu.pools.open(PoolDepth { events: WORK_ITEMS_MAX, concurrency: 1 })?;
            entry.task.stops_in_slices().then_some(())?;
            vcpu.pools.push(entry.pool, WorkItem::Stop).ok()?;
            entry.stop_receiver = Some(receiver.clone());
            Some(())
        });
        if stops_here.is_none() {
            if let Some(task) = self.remove_task(module) {
                _ = receiver.send(task);
            }
            return;
        }
        self.vcpu_of_module.remove(&module);
        let deadline = self.vcpus.get_mut(&id).and_then(|vcpu| vcpu.tasks.get_mut(&module)?.deadline.take());
        deadline.map(|at| self.deadlines.remove(&(at, module)));
        let now = self.now();
        _ = self.core.wake(id, now);
    }

    /// Removes a module at once, without a stop call. Returns its task, or `None` if the module is not on this core.
    pub fn remove_task(&mut self, module: u64) -> Option<ModuleTask> {
        self.vcpu_of_module.remove(&module);
        let (&id, vcpu) = self.vcpus.iter_mut().find(|(_, vcpu)| vcpu.tasks.contains_key(&module))?;
        let entry = vcpu.tasks.remove(&module)?;
        if let Some(at) = entry.deadline {
            self.deadlines.remove(&(at, module));
        }
        vcpu.pools.close(entry.pool);
        if !vcpu.pools.has_work() {
            let now = self.now();
            _ = self.core.sleep(id, now);
        }
        Some(entry.task)
    }

    /// Ends the trace file, if there is one, after all its events are written.
    pub fn finish_trace(&mut self) {
        drop(self.trace.borrow_mut().take());
    }

    /// Returns the statistics of a virtual CPU.
    pub fn stats(&self, id: VcpuId) -> Option<Stats> {
        self.core.core().stats(id)
    }

    /// Returns the settlement of a virtual CPU.
    pub fn settlement(&self, id: VcpuId) -> TimeSettlement {
        self.vcpus.get(&id).map(|vcpu| vcpu.settlement).unwrap_or_default()
    }

    /// Returns the statistics of the core.
    pub fn core_stats(&mut self) -> CoreStats {
        let now = self.now();
        CoreStats {
            reserved: self.core.reserved_share(now),
            reservable: self.core.core().config().cap,
            total: self.core.core().totals(),
            thread: thread_time(),
            stolen: self.clock.stolen_total(now),
        }
    }
}

#[cfg(test)]
mod tests;
