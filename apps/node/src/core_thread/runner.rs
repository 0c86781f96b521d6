//! The thread of one core: it runs whom the scheduler says, for as long as it says.
//!
//! Everything on a core happens on its one thread, between two runs: what others want of it they put into a letter box. So nothing here is locked
//! while a module runs, and the scheduler sees everything in one order.

mod mailbox;
mod promises;

use crate::guest::{ModuleTask, Served};
use crate::laps::{CpuClock, LateWakeup};
use crate::trace::{Recorder, Shared, Trace, recorder};
pub use mailbox::Waker;
use mailbox::{Mailbox, lock};
use promises::Promises;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_datapath::egress::TxPacketSink;
use weir_datapath::moment::{Moment, steady_clock};
use weir_sandbox::thread_time;
use weir_sched::cpu::trace::{self, Traced, head};
use weir_sched::cpu::{
    CoreConfig, CpuDecision, CpuTerms, Debt, Depth, Overload, Placement, PoolId, Pools, Ppm, QueueLoad,
    ReservationRefusal, RunOutcome, Stats, VcpuWork, VpId,
};
use weir_units::Nanos;

/// How long a core's thread may take to answer. A run is far shorter; what takes longer is not answered any more.
const ANSWER: Duration = Duration::from_secs(5);
/// Idle threads look after the time again, at the latest.
const IDLE: Duration = Duration::from_secs(1);
/// Events of a module that wait at most: packets, of which there is one event for all, news, as well, and a tick.
const EVENTS: u16 = 3;

/// A core's thread, from outside. It ends when this is dropped.
pub struct CoreThread {
    number: u16,
    letters: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

/// A core's thread does not answer: something keeps it that should not be able to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("core {core} does not answer; the module that it runs is over its bounds, which is a fault of weir")]
pub struct Stuck {
    /// Which.
    pub core: u16,
}

/// Why a core's thread could not be started. To blame is the node.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gives no thread.
    #[error("there is no thread for core {core}: {source}")]
    Thread {
        /// For which.
        core: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// What it decides cannot be recorded.
    #[error("what core {core} decides cannot be recorded: {source}; `trace` in [cpu] names a folder")]
    Trace {
        /// Which.
        core: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// It cannot be bound to its core.
    #[error(
        "no thread can be bound to core {core}: {source}; `cores` in [cpu] names cores that this process may use"
    )]
    Bind {
        /// To which.
        core: u16,
        /// What the system said.
        source: std::io::Error,
    },
}

impl std::fmt::Debug for CoreThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreThread").field("number", &self.number).finish_non_exhaustive()
    }
}

impl CoreThread {
    /// Starts a thread and binds it to its core.
    pub fn start(number: u16, config: CoreConfig, folder: Option<&Path>) -> Result<Self, StartError> {
        let failed = |source| StartError::Trace { core: number, source };
        let name = format!("core-{number}");
        let trace = folder.map(|folder| Trace::create(folder, &name, &head(&config)));
        let trace = trace.transpose().map_err(failed)?;
        let letters = Arc::new(Mailbox::default());
        let (told, hears) = channel();
        let theirs = Arc::clone(&letters);
        let thread = std::thread::Builder::new()
            .name(format!("weir-core-{number}"))
            .spawn(move || {
                let bound = bind(number);
                let is_bound = bound.is_ok();
                _ = theirs.thread.set(std::thread::current());
                _ = told.send(bound);
                if is_bound {
                    Runner::new(config, theirs, trace).run();
                }
            })
            .map_err(|source| StartError::Thread { core: number, source })?;
        let bound = hears.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread is gone")));
        bound.map_err(|source| StartError::Bind { core: number, source })?;
        Ok(Self { number, letters, thread: Some(thread) })
    }

    /// The core's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Wakes modules on this core.
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.letters))
    }

    /// Has the thread do something between two runs, and waits for what it says.
    pub fn ask<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Runner) -> R + Send + 'static,
    ) -> Result<R, Stuck> {
        let (told, hears) = channel();
        self.tell(move |runner| _ = told.send(job(runner)));
        hears.recv_timeout(ANSWER).map_err(|error| match error {
            RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected => Stuck { core: self.number },
        })
    }

    /// Has the thread do something between two runs.
    pub fn tell(&self, job: impl FnOnce(&mut Runner) + Send + 'static) {
        self.waker().tell(job);
    }
}

impl Drop for CoreThread {
    fn drop(&mut self) {
        self.tell(|runner| runner.is_over = true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

pub(crate) fn bind(core: u16) -> std::io::Result<()> {
    let core = usize::from(core);
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::Error::other(format!(
            "there are no more than {}",
            rustix::thread::CpuSet::MAX_CPU
        )));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// What a virtual processor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A module has packets.
    Serve(u64),
    /// Time has reached a module's tick.
    Tick(u64),
    /// There is something else for a module.
    News(u64),
    /// A module stops.
    Stop,
}

/// A module on a virtual processor.
#[derive(Debug)]
struct VcpuTask {
    guest: ModuleTask,
    pool: PoolId,
    /// An event says already that it has packets.
    is_told: bool,
    /// An event says already that there are news for it.
    has_news: bool,
    /// When the next of its calls of a service is late, as it stands among all.
    deadline: Option<Instant>,
    /// It gets nothing any more, and stops. Where it is sent then.
    leaves: Option<Sender<ModuleTask>>,
}

impl VcpuTask {
    /// After a run: what is there for it to do next, and when.
    fn look_ahead(
        &mut self,
        served: Served,
        pools: &mut Pools<Event>,
        alarms: &mut BinaryHeap<Reverse<(Nanos, u64)>>,
        deadlines: &mut BTreeSet<(Instant, u64)>,
    ) {
        let guest = &mut self.guest;
        // Its first packet tells when its first tick is.
        if !guest.has_alarm
            && let Some(at) = guest.next_tick(Moment::now())
        {
            guest.has_alarm = true;
            alarms.push(Reverse((at, guest.number)));
        }
        if served == Served::More && !self.is_told {
            self.is_told = pools.push(self.pool, Event::Serve(guest.number)).is_ok();
        }
        if served != Served::Suspended && !self.has_news && guest.has_news() {
            self.has_news = pools.push(self.pool, Event::News(guest.number)).is_ok();
        }
        let deadline = guest.next_deadline();
        if deadline != self.deadline {
            if let Some(old) = std::mem::replace(&mut self.deadline, deadline) {
                deadlines.remove(&(old, guest.number));
            }
            deadlines.extend(deadline.map(|at| (at, guest.number)));
        }
    }
}

#[derive(Debug, Default)]
struct Vp {
    pools: Pools<Event>,
    residents: BTreeMap<u64, VcpuTask>,
    account: TimeSettlement,
}

/// What a virtual processor owes for the work of others, and they for its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSettlement {
    /// Time of others that it pays.
    pub owed: Nanos,
    /// Time of its own that others pay.
    pub earned: Nanos,
    /// Time in which it had work, and others outside of the node had the core before it could run.
    pub stolen: Nanos,
}

/// What a core did.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoreStats {
    /// Time that is reserved of it.
    pub promised: Ppm,
    /// Time that can be reserved of it.
    pub cap: Ppm,
    /// What its virtual processors had.
    pub total: Stats,
    /// Processor time of its thread: what is more than they had went into deciding and waking.
    pub thread: Nanos,
    /// Time that its thread was ready to run, and others outside of the node had the core.
    pub stolen: Nanos,
}

/// The state of a core.
pub struct Runner {
    core: Traced<Recorder>,
    trace: Shared,
    overload: Overload,
    letters: Arc<Mailbox>,
    vps: BTreeMap<VpId, Vp>,
    /// On which virtual processor a module is.
    homes: BTreeMap<u64, VpId>,
    /// The times of due ticks, by the monotonic clock: the wall clock can be set.
    alarms: BinaryHeap<Reverse<(Nanos, u64)>>,
    /// When calls of services are late, at most one entry for each module.
    deadlines: BTreeSet<(Instant, u64)>,
    promises: Promises,
    origin: Instant,
    laps: CpuClock,
    late: LateWakeup,
    is_over: bool,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("core", self.core.core()).finish_non_exhaustive()
    }
}

impl Runner {
    fn new(config: CoreConfig, letters: Arc<Mailbox>, trace: Option<Trace<trace::TraceEvent>>) -> Self {
        let origin = Instant::now();
        let trace = Shared::new(RefCell::new(trace));
        Self {
            core: Traced::new(config, recorder(&trace)),
            trace,
            overload: Overload::default(),
            letters,
            vps: BTreeMap::new(),
            homes: BTreeMap::new(),
            alarms: BinaryHeap::new(),
            deadlines: BTreeSet::new(),
            promises: Promises::default(),
            origin,
            laps: CpuClock::begin(),
            late: LateWakeup::default(),
            is_over: false,
        }
    }

    fn run(mut self) {
        while !self.is_over {
            if self.letters.any.swap(false, Ordering::AcqRel) {
                self.read_letters();
                continue;
            }
            self.sound_alarms();
            self.keep_promises();
            let begin = self.now();
            match self.core.next(begin) {
                CpuDecision::Run { vp, budget, .. } => {
                    // It had work all the time, and waited for its next period.
                    self.was_late(vp, self.late.by);
                    self.late = LateWakeup::default();
                    self.perform(vp, budget, begin);
                }
                CpuDecision::Idle { until } => {
                    // No virtual processor waited.
                    _ = self.laps.take_between();
                    let asleep = self.now();
                    self.wait(until);
                    // Waiting is no time that was stolen, but for what came between being woken and running.
                    self.late = LateWakeup::by(self.laps.slept(asleep, self.now()));
                }
            }
        }
    }

    fn now(&self) -> Nanos {
        elapsed(self.origin)
    }

    fn read_letters(&mut self) {
        let woken = std::mem::take(&mut *lock(&self.letters.woken));
        let news = std::mem::take(&mut *lock(&self.letters.news));
        let lagging = std::mem::take(&mut *lock(&self.letters.lagging));
        let debts = std::mem::take(&mut *lock(&self.letters.debts));
        let jobs = std::mem::take(&mut *lock(&self.letters.jobs));
        // In the order in which they came, and as of then: a thread that wakes up late has not kept those waiting any less who wait for it.
        let news = news.into_iter().map(|(guest, at)| (at, guest, true));
        let mut all: Vec<_> = woken.into_iter().map(|(at, guest)| (at, guest, false)).chain(news).collect();
        all.sort_unstable();
        for (at, guest, is_news) in all {
            let at = nanos(at.saturating_duration_since(self.origin));
            if is_news { self.notice_news(guest, at) } else { self.notice(guest, at) }
        }
        lagging.into_iter().for_each(|(guest, position)| self.let_go(guest, position));
        debts.into_iter().for_each(|(guest, time)| self.pay(guest, Nanos(time)));
        jobs.into_iter().for_each(|job| job(self));
    }

    /// A virtual processor had work, and did not run for so long because others had the core.
    fn was_late(&mut self, id: VpId, by: Nanos) {
        if by.0 > 0
            && self.late.is_news_to(id)
            && let Some(vp) = self.vps.get_mut(&id)
        {
            vp.account.stolen.0 = vp.account.stolen.0.saturating_add(by.0);
        }
    }

    /// A module has packets since then, if it is still here.
    fn notice(&mut self, guest: u64, at: Nanos) {
        let Some(&id) = self.homes.get(&guest) else { return };
        let Some(vp) = self.vps.get_mut(&id) else { return };
        let Some(resident) = vp.residents.get_mut(&guest) else { return };
        let owed = resident.guest.owed();
        let is_new = !resident.is_told;
        if is_new {
            resident.is_told = vp.pools.push(resident.pool, Event::Serve(guest)).is_ok();
        }
        self.take_off(id, owed, at);
        if is_new {
            _ = self.core.wake(id, at);
            self.was_late(id, self.late.by.min(Nanos(self.now().0.saturating_sub(at.0))));
        }
        self.balance(id, guest);
    }

    /// Where there is more to do than time, those with the lowest priority make way.
    fn balance(&mut self, id: VpId, guest: u64) {
        let filled = |resident: &VcpuTask| resident.guest.filled();
        let resident = self.vps.get(&id).and_then(|vp| vp.residents.get(&guest));
        if !self.overload.is_on() && resident.is_none_or(|resident| filled(resident) * 2 < 1000) {
            return;
        }
        let loads: Vec<QueueLoad> = self.everybody().map(|(load, _)| load).collect();
        self.overload.look(&loads);
        for (_, resident) in self.everybody().filter(|(load, _)| self.overload.sheds(load)) {
            resident.guest.shed();
        }
    }

    fn everybody(&self) -> impl Iterator<Item = (QueueLoad, &VcpuTask)> {
        self.vps.iter().flat_map(|(id, vp)| {
            let share = self.core.core().terms(*id).map(|terms| terms.share);
            let is_best_effort = matches!(share, Some(Placement::BestEffort(_)));
            let takes_spare = matches!(share, Some(Placement::Reserved(of)) if of.spare.is_some());
            let load = move |resident: &VcpuTask| QueueLoad {
                priority: resident.guest.priority(),
                filled: resident.guest.filled(),
                shares: is_best_effort || takes_spare,
                is_best_effort,
            };
            vp.residents.values().map(move |resident| (load(resident), resident))
        })
    }

    /// What others' threads spent for a virtual processor is missing in its slices.
    fn take_off(&mut self, id: VpId, owed: Nanos, now: Nanos) {
        if owed.0 > 0 {
            _ = self.core.debit(id, owed, Debt::Imposed, now);
        }
    }

    /// What was done elsewhere for a session that asked for it is missing in its slices, all of it. It is on its bill already.
    pub(crate) fn charge(&mut self, id: VpId, used: Nanos) {
        let now = self.now();
        _ = self.core.debit(id, used, Debt::Agreed, now);
    }

    /// There is something else for a module since then, if it is still here.
    fn notice_news(&mut self, guest: u64, at: Nanos) {
        let Some(&id) = self.homes.get(&guest) else { return };
        let Some(vp) = self.vps.get_mut(&id) else { return };
        let Some(resident) = vp.residents.get_mut(&guest) else { return };
        if !resident.has_news {
            resident.has_news = vp.pools.push(resident.pool, Event::News(guest)).is_ok();
            _ = self.core.wake(id, at);
            self.was_late(id, self.late.by.min(Nanos(self.now().0.saturating_sub(at.0))));
        }
    }

    /// A module loses the packets before this position that it has in hand. A call that is suspended with them ends when it is resumed.
    fn let_go(&mut self, guest: u64, position: u64) {
        let vp = self.homes.get(&guest).and_then(|id| self.vps.get_mut(id));
        if let Some(resident) = vp.and_then(|vp| vp.residents.get_mut(&guest)) {
            resident.guest.let_go(position);
        }
    }

    /// A module's virtual processor pays for what others did for it.
    fn pay(&mut self, guest: u64, time: Nanos) {
        let Some(&id) = self.homes.get(&guest) else { return };
        let now = self.now();
        if let Some(vp) = self.vps.get_mut(&id)
            && self.core.debit(id, time, Debt::Agreed, now).is_ok()
        {
            vp.account.owed.0 = vp.account.owed.0.saturating_add(time.0);
        }
    }

    fn sound_alarms(&mut self) {
        while let Some(&(at, guest)) = self.deadlines.first()
            && at <= Instant::now()
        {
            self.deadlines.pop_first();
            let home = self.homes.get(&guest).and_then(|id| self.vps.get_mut(id));
            if let Some(resident) = home.and_then(|vp| vp.residents.get_mut(&guest)) {
                resident.deadline = None;
            }
            self.notice_news(guest, self.now());
        }
        if self.alarms.is_empty() {
            return;
        }
        let now = steady_clock();
        while let Some(&Reverse((at, guest))) = self.alarms.peek()
            && at <= now
        {
            self.alarms.pop();
            let Some(&id) = self.homes.get(&guest) else { continue };
            let Some(vp) = self.vps.get_mut(&id) else { continue };
            let Some(resident) = vp.residents.get(&guest) else { continue };
            // One that is still to come stands for this one too: it is told how many periods have passed.
            _ = vp.pools.push(resident.pool, Event::Tick(guest));
            let now = self.now();
            _ = self.core.wake(id, now);
        }
    }

    fn perform(&mut self, id: VpId, budget: Nanos, begin: Nanos) {
        let (mut outcome, mut owed, mut ran, mut left) = (RunOutcome::Idle, Nanos(0), None, None);
        let mut has_stopped = false;
        if let Some(vp) = self.vps.get_mut(&id)
            && let Some(work) = vp.pools.take()
        {
            let (VcpuWork::Begin { thread, .. } | VcpuWork::Resume(thread)) = work;
            let resident = vp.residents.values_mut().find(|resident| resident.pool == thread.pool);
            let mut served = Served::All;
            if let Some(resident) = resident {
                let guest = &mut resident.guest;
                served = match work {
                    VcpuWork::Begin { event: Event::Serve(_), .. } => {
                        resident.is_told = false;
                        guest.serve(budget)
                    }
                    VcpuWork::Begin { event: Event::Tick(_), .. } => {
                        guest.has_alarm = false;
                        guest.tick(Moment::now(), budget)
                    }
                    VcpuWork::Begin { event: Event::News(_), .. } => {
                        resident.has_news = false;
                        guest.hear(budget)
                    }
                    VcpuWork::Begin { event: Event::Stop, .. } => guest.stop(budget),
                    VcpuWork::Resume(_) => guest.resume(budget),
                };
                owed = guest.owed();
                ran = Some(guest.number);
                // While it is waited for it works: that is no time that was stolen.
                self.laps.skip(Nanos(0), guest.take_waited());
                if resident.leaves.is_none() {
                    resident.look_ahead(served, &mut vp.pools, &mut self.alarms, &mut self.deadlines);
                } else {
                    has_stopped = served != Served::Suspended;
                }
            }
            let used = Nanos(elapsed(self.origin).0.saturating_sub(begin.0));
            if served == Served::Suspended {
                vp.pools.suspend(thread, used);
                outcome = RunOutcome::Suspended;
            } else {
                vp.pools.done(thread, used);
            }
            if has_stopped && let Some(resident) = ran.and_then(|guest| vp.residents.remove(&guest)) {
                vp.pools.close(resident.pool);
                left = Some(resident);
            }
            if outcome == RunOutcome::Idle && vp.pools.has_work() {
                outcome = RunOutcome::Ready;
            }
        }
        let end = self.now();
        let used = self.laps.used(begin, end, budget);
        let between = self.laps.take_between();
        if let Some(vp) = self.vps.get_mut(&id) {
            vp.account.stolen.0 = vp.account.stolen.0.saturating_add(between.0);
        }
        if let Some(vp) = self.vps.get_mut(&id)
            && let Some(resident) = ran.and_then(|guest| vp.residents.get_mut(&guest))
        {
            let paid = resident.guest.bill(used);
            vp.account.earned.0 = vp.account.earned.0.saturating_add(paid.0);
        }
        _ = self.core.charge(used, end, outcome);
        self.take_off(id, owed, end);
        if let Some(guest) = ran {
            self.balance(id, guest);
        }
        // After its last run is on the bill.
        if let Some(VcpuTask { guest, leaves: Some(told), .. }) = left {
            _ = told.send(guest);
        }
    }

    fn wait(&self, until: Option<Nanos>) {
        let until = until.into_iter().chain(self.promises.next()).min();
        let until = until.map_or(IDLE, |until| Duration::from_nanos(until.0.saturating_sub(self.now().0)));
        let alarm = self.alarms.peek();
        let alarm = alarm.map(|Reverse((at, _))| Duration::from_nanos(at.0.saturating_sub(steady_clock().0)));
        let deadline = self.deadlines.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let time = until.min(IDLE).min(alarm.unwrap_or(IDLE)).min(deadline.unwrap_or(IDLE));
        if !time.is_zero() && !self.letters.any.load(Ordering::Acquire) {
            std::thread::park_timeout(time);
        }
    }
}

/// What others ask of a core's thread.
impl Runner {
    /// Admits a virtual processor.
    pub fn create(&mut self, terms: CpuTerms) -> Result<VpId, ReservationRefusal> {
        let id = self.core.create(terms, self.now())?;
        self.vps.insert(id, Vp::default());
        Ok(id)
    }

    /// Gives it another share. What it may exceed its budget by stays.
    pub fn change(&mut self, vp: VpId, share: Placement) -> Result<(), ReservationRefusal> {
        let overrun = self.overrun(vp).ok_or(ReservationRefusal::Unknown(vp))?;
        self.core.change(vp, CpuTerms { share, overrun }, self.now())?;
        self.promises.forget(vp);
        Ok(())
    }

    /// Ends it. Its modules have been taken away before.
    pub fn close(&mut self, vp: VpId) -> Result<Stats, ReservationRefusal> {
        let stats = self.core.close(vp, self.now())?;
        self.vps.remove(&vp);
        self.promises.forget(vp);
        Ok(stats)
    }

    /// Makes room for a module whose calls can exceed a budget by so much.
    pub fn make_room(
        &mut self,
        vp: VpId,
        share: Placement,
        overrun: Nanos,
    ) -> Result<(), ReservationRefusal> {
        if overrun <= self.overrun(vp).ok_or(ReservationRefusal::Unknown(vp))? {
            return Ok(());
        }
        self.core.change(vp, CpuTerms { share, overrun }, self.now())?;
        self.promises.forget(vp);
        Ok(())
    }

    /// Puts a module on a virtual processor. Gives it back where there is no room.
    pub fn settle(&mut self, vp: VpId, guest: ModuleTask) -> Result<(), Box<ModuleTask>> {
        let number = guest.number;
        let Some(home) = self.vps.get_mut(&vp) else { return Err(Box::new(guest)) };
        let Some(pool) = home.pools.open(Depth { events: EVENTS, concurrency: 1 }) else {
            return Err(Box::new(guest));
        };
        home.residents.insert(
            number,
            VcpuTask { guest, pool, is_told: false, has_news: false, deadline: None, leaves: None },
        );
        self.homes.insert(number, vp);
        // Packets and news may have come meanwhile.
        if home.residents.get(&number).is_some_and(|resident| resident.guest.has_packets()) {
            self.notice(number, self.now());
        }
        self.notice_news(number, self.now());
        Ok(())
    }

    /// What a module sends goes these ways from its next call on, if it is still here.
    pub fn lead(&mut self, guest: u64, outlets: Vec<Option<TxPacketSink>>) {
        let vp = self.homes.get(&guest).and_then(|id| self.vps.get_mut(id));
        if let Some(resident) = vp.and_then(|vp| vp.residents.get_mut(&guest)) {
            resident.guest.lead(outlets);
        }
    }

    /// Has a module stop: it gets nothing any more, and what is under way of it is given up. When it has stopped it is sent there; one that would keep
    /// the core for too long by that, at once.
    pub fn end(&mut self, guest: u64, told: Sender<ModuleTask>) {
        let Some(&id) = self.homes.get(&guest) else { return };
        let stops_here = self.vps.get_mut(&id).and_then(|vp| {
            let resident = vp.residents.get_mut(&guest)?;
            resident.guest.give_up();
            vp.pools.close(resident.pool);
            // In the place of the one that was closed.
            resident.pool = vp.pools.open(Depth { events: EVENTS, concurrency: 1 })?;
            resident.guest.stops_in_slices().then_some(())?;
            vp.pools.push(resident.pool, Event::Stop).ok()?;
            resident.leaves = Some(told.clone());
            Some(())
        });
        if stops_here.is_none() {
            if let Some(guest) = self.evict(guest) {
                _ = told.send(guest);
            }
            return;
        }
        self.homes.remove(&guest);
        let deadline = self.vps.get_mut(&id).and_then(|vp| vp.residents.get_mut(&guest)?.deadline.take());
        deadline.map(|at| self.deadlines.remove(&(at, guest)));
        let now = self.now();
        _ = self.core.wake(id, now);
    }

    /// Takes a module away.
    pub fn evict(&mut self, guest: u64) -> Option<ModuleTask> {
        self.homes.remove(&guest);
        let (&id, vp) = self.vps.iter_mut().find(|(_, vp)| vp.residents.contains_key(&guest))?;
        let resident = vp.residents.remove(&guest)?;
        if let Some(at) = resident.deadline {
            self.deadlines.remove(&(at, guest));
        }
        vp.pools.close(resident.pool);
        if !vp.pools.has_work() {
            let now = self.now();
            _ = self.core.sleep(id, now);
        }
        Some(resident.guest)
    }

    /// Ends the record of what it decides, if there is one: all of it is in its file then.
    pub fn end_record(&mut self) {
        drop(self.trace.borrow_mut().take());
    }

    /// What a virtual processor had.
    pub fn stats(&self, vp: VpId) -> Option<Stats> {
        self.core.core().stats(vp)
    }

    /// What it owes others, and they it.
    pub fn account(&self, vp: VpId) -> TimeSettlement {
        self.vps.get(&vp).map(|vp| vp.account).unwrap_or_default()
    }

    /// What the core did.
    pub fn core_stats(&mut self) -> CoreStats {
        let now = self.now();
        CoreStats {
            promised: self.core.promised(now),
            cap: self.core.core().config().cap,
            total: self.core.core().totals(),
            thread: thread_time(),
            stolen: self.laps.stolen(now),
        }
    }
}

fn elapsed(since: Instant) -> Nanos {
    nanos(since.elapsed())
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
