//! The last line of defence: what ends a call that runs too long though it was proved not to, or is charged for what it does.
//!
//! 1. A charged module that has been in one call for longer than the limit loses its poll page: the next read of it that the loader put there traps.
//! 2. A call of any module that has taken [`GRACE`] times what it may is broken off in the middle of the module's code (`interrupt.rs`). A host function
//!    that it is in ends it by itself.
//! 3. Where that did not help for as long again, weir ends, and says which module it was: a thread that cannot be had back would stop the run all the same.
//!
//! What counts is the processor time of the calling thread, so that a busy machine or a hypervisor that takes time away is not held against a module.
//! A call that is suspended is another one for this thread each time that it is resumed. What it takes all in all is counted where that happens
//! (`suspend.rs`), with the same limits.

use crate::run::caller::{self, Thread};
use crate::run::host::HostPhase;
use crate::run::interrupt::{self, CodeMap};
use crate::run::space::set_poll_page;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_admission::Admitted;
use weir_units::Nanos;

/// When a call is to be broken off, it is tried so many times in a row, with such pauses: together less than [`PERIOD_MIN`].
const BURST: usize = 32;
const BETWEEN: Duration = Duration::from_micros(100);
/// In so many parts of the limit, and within these bounds, the watchdog looks whether a thread is in a call. If one has been in the same call since, it
/// looks at sandboxes: so twice that is the grain of the limit.
const PARTS: u32 = 16;
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_millis(50);

/// How many times its limit a call may take until it is broken off, whatever was proved. A bound is in fuel, and fuel is not time: a slow node, cold
/// memory and a guess for a calibration are not held against a module.
const GRACE: u32 = 10;

/// The captured length of packets that a batch's time is reckoned with: the greatest of IP. The grace covers longer ones.
const PACKET_BYTES: u64 = 65_535;

/// weir's exit status where it ends because a call cannot be ended.
pub const EXIT_STUCK: u8 = 70;

/// Instead of the first packet: what else a call can be.
const STARTING: u32 = u32::MAX;
const PERIODIC: u32 = u32::MAX - 1;

/// What the profile grants one call.
#[derive(Clone, Copy)]
struct Grant {
    start: Duration,
    batch: Duration,
    periodic: Duration,
}

impl Grant {
    fn of(admitted: &Admitted) -> Self {
        let profile = admitted.profile();
        let time = |nanos: Nanos| Duration::from_nanos(nanos.0);
        let packet = profile.packet.0.saturating_add(profile.per_byte.0.saturating_mul(PACKET_BYTES));
        Self {
            start: time(profile.start),
            batch: time(Nanos(packet.saturating_mul(weir_abi::BATCH_PACKETS as u64))),
            periodic: time(profile.tick.max(profile.stop)),
        }
    }
}

/// One sandbox under watch.
pub(crate) struct WatchEntry {
    base: *mut u8,
    /// Its module's name and code, and whether it reads the poll page.
    name: String,
    code: Arc<CodeMap>,
    polls: bool,
    grant: Grant,
    /// Even between calls, odd in one; never the same twice.
    call: AtomicU64,
    /// The calling thread, and the clock of its processor time.
    thread: AtomicU64,
    clock: AtomicI32,
    /// What the call is: a batch, by its first packet in the block, or something else.
    doing: AtomicU32,
    /// The number of the block's first packet in the capture.
    block: AtomicU64,
    /// Whether anything was done about the call, or is about to be.
    tripped: AtomicBool,
    /// Whether the call is to be broken off.
    overrun: Arc<AtomicBool>,
    /// The instruction at which it was.
    at: AtomicUsize,
    /// Held while something is done about the call.
    page: Mutex<()>,
}

// SAFETY: the pointer is used only to change the protection of the poll page, in a call or under `page`.
unsafe impl Send for WatchEntry {}
// SAFETY: as above; everything else is atomic or does not change.
unsafe impl Sync for WatchEntry {}

/// What was done about a call that took too long.
#[derive(Clone, Copy)]
pub(crate) struct OverrunAction {
    /// Its poll page was taken away.
    pub(crate) polled: bool,
    /// It was broken off at this instruction.
    pub(crate) at: Option<usize>,
}

impl WatchEntry {
    /// A call begins on this thread.
    #[inline]
    pub(crate) fn begin(&self, phase: HostPhase) -> UnderWay<'_> {
        let Thread { handle, clock } = caller::enter();
        self.thread.store(handle, Ordering::Relaxed);
        self.clock.store(clock, Ordering::Relaxed);
        let doing = match phase {
            HostPhase::Start => STARTING,
            HostPhase::Batch { first, .. } => first,
            HostPhase::Periodic { .. } => PERIODIC,
        };
        self.doing.store(doing, Ordering::Relaxed);
        // Nobody else writes to it.
        self.call.store(self.call.load(Ordering::Relaxed) + 1, Ordering::Release);
        interrupt::set_under_way(Some(self));
        UnderWay(self)
    }

    #[inline]
    fn end(&self) -> Option<OverrunAction> {
        interrupt::set_under_way(None);
        caller::leave();
        // With the watchdog's store and load in the other order: one of the two sees the other.
        self.call.fetch_add(1, Ordering::SeqCst);
        if self.tripped.load(Ordering::SeqCst) { self.give_back() } else { None }
    }

    #[cold]
    fn give_back(&self) -> Option<OverrunAction> {
        let _page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.tripped.swap(false, Ordering::SeqCst) {
            return None;
        }
        self.overrun.store(false, Ordering::SeqCst);
        let at = self.at.swap(0, Ordering::SeqCst);
        if self.polls {
            // SAFETY: the space is alive, for its instance is in this call. Should it fail, the module's next check traps: it loses calls, no more.
            let _ = unsafe { set_poll_page(self.base, true) };
        }
        Some(OverrunAction { polled: self.polls, at: (at != 0).then_some(at) })
    }

    /// Does something about a call if it is still under way. It cannot end meanwhile, and so its thread and its space cannot go, before it has seen
    /// `tripped` and then had the lock that is held here.
    fn hold(&self, call: u64, act: impl FnOnce()) {
        let _page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.tripped.swap(true, Ordering::SeqCst);
        if self.call.load(Ordering::SeqCst) == call {
            act();
        } else {
            // What was done before has still to be undone by the end of the call.
            self.tripped.store(before, Ordering::SeqCst);
        }
    }

    /// How much processor time the call under way, or the last one, may take until it is broken off.
    pub(crate) fn patience(&self, limit: Duration) -> Duration {
        let grant = match self.doing.load(Ordering::Relaxed) {
            STARTING => self.grant.start,
            PERIODIC => self.grant.periodic,
            _ => self.grant.batch,
        };
        limit.max(grant).saturating_mul(GRACE)
    }

    /// Does about a call what is due after so much processor time. `broken` is when it was told to break off for the first time: the process ends only
    /// where that has not helped for as long again, however late this thread came to look.
    fn look(&self, call: u64, took: Duration, limit: Duration, broken: &mut Option<Duration>) {
        let doing = self.doing.load(Ordering::Relaxed);
        let patience = self.patience(limit);
        if broken.is_some_and(|at| took >= at.saturating_add(patience)) {
            self.hold(call, || self.give_up(doing, took));
        } else if took >= patience {
            broken.get_or_insert(took);
            self.hold(call, || {
                self.overrun.store(true, Ordering::SeqCst);
                let (thread, at) = (self.thread.load(Ordering::Relaxed), self.at.load(Ordering::SeqCst));
                // A call that is mostly in small bulk operations is seldom found in its own code.
                for _ in 0..BURST {
                    // SAFETY: the thread is in the call, which cannot end here.
                    unsafe { interrupt::send(thread) };
                    std::thread::sleep(BETWEEN);
                    if self.at.load(Ordering::SeqCst) != at {
                        break;
                    }
                }
            });
        } else if self.polls && took >= limit {
            // SAFETY: the space is alive, for the call cannot end here.
            self.hold(call, || _ = unsafe { set_poll_page(self.base, false) });
        }
    }

    /// Ends the process: nothing else is left. What is in files stays as it is, as where weir is killed.
    fn give_up(&self, doing: u32, took: Duration) {
        let call = match doing {
            STARTING => "starting".to_owned(),
            PERIODIC => "in a tick or its stop".to_owned(),
            first => {
                let first = self.block.load(Ordering::Relaxed).saturating_add(first.into());
                let last = first.saturating_add(weir_abi::BATCH_PACKETS as u64 - 1);
                format!("in one of the packets {first} to {last}")
            }
        };
        let _ = writeln!(
            io::stderr(),
            "weir: {}: {call}, it has taken {:.1} s of processor time, and cannot be stopped. weir took it for a module that ends in time, which is \
             a fault in weir: please report it, with the module. weir ends here; records that are written already are in the .part files",
            self.name,
            took.as_secs_f64()
        );
        // SAFETY: it does not return, and leaves nothing that anybody could still use. No handler for the end of a process may wait for that thread.
        unsafe { libc::_exit(EXIT_STUCK.into()) };
    }

    /// What host functions look at: whether the call is to be broken off.
    pub(crate) fn overrun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.overrun)
    }

    /// Packets are numbered from here, in what is said about a call.
    pub(crate) fn set_block(&self, first_packet: u64) {
        self.block.store(first_packet, Ordering::Relaxed);
    }

    /// The code of the call, if it is to be broken off. For a signal handler.
    pub(crate) fn to_break(&self) -> Option<&CodeMap> {
        self.overrun.load(Ordering::SeqCst).then_some(&*self.code)
    }

    /// The call is broken off at this instruction. For a signal handler.
    pub(crate) fn broken_at(&self, pc: usize) {
        self.at.store(pc, Ordering::SeqCst);
    }
}

/// A call under way. It ends also when a panic of the host unwinds through it, so that the watchdog never acts on a sandbox that is gone.
pub(crate) struct UnderWay<'a>(&'a WatchEntry);

impl UnderWay<'_> {
    /// The call has ended; says what was done about it meanwhile.
    #[inline]
    pub(crate) fn end(self) -> Option<OverrunAction> {
        let watch = self.0;
        std::mem::forget(self);
        watch.end()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A sandbox, and the call that it was last seen in.
struct Seen {
    watch: Arc<WatchEntry>,
    call: u64,
    since: Duration,
    /// How long that call had taken when it was first told to break off.
    broken: Option<Duration>,
}

/// All sandboxes of an engine, by numbers of their own.
type All = Arc<Mutex<BTreeMap<u64, Seen>>>;

/// A sandbox is watched for as long as this is there.
pub(crate) struct WatchedSandbox {
    watch: Arc<WatchEntry>,
    number: u64,
    all: All,
}

impl Deref for WatchedSandbox {
    type Target = WatchEntry;

    #[inline]
    fn deref(&self) -> &WatchEntry {
        &self.watch
    }
}

impl Drop for WatchedSandbox {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

/// The thread that looks after all sandboxes of an engine.
pub(crate) struct Watchdog {
    all: All,
    next: AtomicU64,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Begins to watch; calls may take so much processor time.
    pub(crate) fn start(limit: Duration) -> io::Result<Self> {
        interrupt::prepare()?;
        let all = All::default();
        let theirs = Arc::clone(&all);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("weir-watchdog".into()).spawn(move || {
            let mut callers = caller::SeenCalls::default();
            let period = (limit / PARTS).clamp(PERIOD_MIN, PERIOD_MAX);
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                if callers.look() {
                    let mut all = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                    all.values_mut().for_each(|seen| look(seen, limit));
                }
            }
        })?;
        Ok(Self { all, next: AtomicU64::new(0), stop: Some(stop), thread: Some(thread) })
    }

    /// Watches a module's sandbox for as long as the result is kept. `polls`: it reads the poll page.
    ///
    /// # Safety
    /// `base` is a live space, and stays so until the result is dropped.
    pub(crate) unsafe fn guard(
        &self,
        base: *mut u8,
        admitted: &Admitted,
        code: &Arc<CodeMap>,
        polls: bool,
    ) -> WatchedSandbox {
        let watch = Arc::new(WatchEntry {
            base,
            name: admitted.manifest().name.as_str().to_owned(),
            code: Arc::clone(code),
            polls,
            grant: Grant::of(admitted),
            call: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            clock: AtomicI32::new(0),
            doing: AtomicU32::new(0),
            block: AtomicU64::new(0),
            tripped: AtomicBool::new(false),
            overrun: Arc::default(),
            at: AtomicUsize::new(0),
            page: Mutex::new(()),
        });
        let seen = Seen { watch: Arc::clone(&watch), call: 0, since: Duration::ZERO, broken: None };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(number, seen);
        WatchedSandbox { watch, number, all: Arc::clone(&self.all) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Looks at one sandbox.
fn look(seen: &mut Seen, limit: Duration) {
    let watch = &seen.watch;
    let call = watch.call.load(Ordering::Acquire);
    let is_under_way = call % 2 == 1;
    if is_under_way && let Some(now) = time_of(watch.clock.load(Ordering::Relaxed)) {
        if seen.call != call {
            // Seen for the first time: it has run for less than two periods.
            (seen.call, seen.since, seen.broken) = (call, now, None);
        } else {
            watch.look(call, now.saturating_sub(seen.since), limit, &mut seen.broken);
        }
    }
}

/// What a thread's clock shows; nothing if the thread is gone.
fn time_of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local; a clock that does not exist is an error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec).ok()?);
    Some(seconds + Duration::from_nanos(u64::try_from(time.tv_nsec).ok()?))
}
