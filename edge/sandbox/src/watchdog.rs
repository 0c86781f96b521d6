//! The last line of defence: ends a call that runs too long although its bound was proved or it is charged.
//!
//! 1. A charged module that has been in one call for longer than the limit loses its poll page: the next poll that
//!    the loader inserted traps.
//! 2. A call of any module that has taken [`GRACE_FACTOR`] times its limit is interrupted in the middle of the
//!    module's code (`interrupt.rs`). A host function that it is in ends it by itself.
//! 3. If that fails for as long again, weir ends and names the module: a thread that cannot be stopped would block
//!    the run anyway.
//!
//! The measure is the processor time of the calling thread, so a busy machine or a hypervisor that takes time away
//! does not count against a module. For this thread each resumption of a suspended call is a new call. Its total time
//! is limited where it is resumed (`suspend.rs`), by the same limits.

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

/// Number of signals sent in a row to interrupt a call. With the pauses between them they take less than
/// [`PERIOD_MIN`].
const BURST_SIGNALS: usize = 32;
const BURST_PAUSE: Duration = Duration::from_micros(100);
/// The watchdog's period is the limit divided by `PARTS`, within these bounds. Each period it checks whether a thread
/// is in a call. If one is in the same call as before, it looks at the sandboxes: so the limit's granularity is two
/// periods.
const PARTS: u32 = 16;
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_millis(50);

/// The multiple of its limit at which a call is interrupted, whatever was proved. A bound is in fuel, and fuel is not
/// time: a slow node, cold memory and an estimated calibration do not count against a module.
const GRACE_FACTOR: u32 = 10;

/// The captured packet length assumed for the time of a batch: the largest of IP. The grace covers longer ones.
const PACKET_BYTES: u64 = 65_535;

/// The exit status of weir if it ends because a call cannot be ended.
pub const EXIT_STUCK: u8 = 70;

/// Values of `doing` for calls that are not batches.
const STARTING: u32 = u32::MAX;
const PERIODIC: u32 = u32::MAX - 1;

/// The time that the profile grants each kind of call.
#[derive(Clone, Copy)]
struct CallTimes {
    start: Duration,
    batch: Duration,
    periodic: Duration,
}

impl CallTimes {
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

/// A watched sandbox.
pub(crate) struct WatchEntry {
    base: *mut u8,
    /// The module's name; then its code, and whether it reads the poll page.
    name: String,
    code: Arc<CodeMap>,
    polls: bool,
    times: CallTimes,
    /// Even between calls, odd during one; it only grows.
    call: AtomicU64,
    /// The calling thread, and the clock of its processor time.
    thread: AtomicU64,
    clock: AtomicI32,
    /// The kind of the call: a batch, by its first packet in the block, or another kind.
    doing: AtomicU32,
    /// The capture number of the block's first packet.
    block: AtomicU64,
    /// True if the watchdog has acted on the call, or is about to.
    tripped: AtomicBool,
    /// True if the call is to be interrupted.
    overrun: Arc<AtomicBool>,
    /// The instruction at which it was interrupted; 0 for none.
    at: AtomicUsize,
    /// Locked while the watchdog acts on the call.
    page: Mutex<()>,
}

// SAFETY: the pointer is used only to change the protection of the poll page, in a call or under `page`.
unsafe impl Send for WatchEntry {}
// SAFETY: as above; everything else is atomic or does not change.
unsafe impl Sync for WatchEntry {}

/// The watchdog's actions on a call that took too long.
#[derive(Clone, Copy)]
pub(crate) struct OverrunAction {
    /// The poll page was made inaccessible.
    pub(crate) polled: bool,
    /// The call was interrupted at this instruction.
    pub(crate) at: Option<usize>,
}

impl WatchEntry {
    /// Notes that a call begins on this thread.
    #[inline]
    pub(crate) fn begin(&self, phase: HostPhase) -> CallGuard<'_> {
        let Thread { handle, clock } = caller::enter();
        self.thread.store(handle, Ordering::Relaxed);
        self.clock.store(clock, Ordering::Relaxed);
        let doing = match phase {
            HostPhase::Start => STARTING,
            HostPhase::Batch { first, .. } => first,
            HostPhase::Periodic { .. } => PERIODIC,
        };
        self.doing.store(doing, Ordering::Relaxed);
        // Only this thread writes to it.
        self.call.store(self.call.load(Ordering::Relaxed) + 1, Ordering::Release);
        interrupt::set_current_call(Some(self));
        CallGuard(self)
    }

    #[inline]
    fn end(&self) -> Option<OverrunAction> {
        interrupt::set_current_call(None);
        caller::leave();
        // The watchdog stores and loads in the opposite order, so one of the two sees the other.
        self.call.fetch_add(1, Ordering::SeqCst);
        if self.tripped.load(Ordering::SeqCst) { self.undo() } else { None }
    }

    #[cold]
    fn undo(&self) -> Option<OverrunAction> {
        let _page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.tripped.swap(false, Ordering::SeqCst) {
            return None;
        }
        self.overrun.store(false, Ordering::SeqCst);
        let at = self.at.swap(0, Ordering::SeqCst);
        if self.polls {
            // SAFETY: the space is alive, because its instance is in this call. If this fails, the module's next
            // check traps, which only loses calls.
            let _ = unsafe { set_poll_page(self.base, true) };
        }
        Some(OverrunAction { polled: self.polls, at: (at != 0).then_some(at) })
    }

    /// Acts on a call if it is still in progress. The call cannot end meanwhile, so its thread and space stay: at its
    /// end it sees `tripped` and then waits for the lock held here.
    fn act_on_call(&self, call: u64, act: impl FnOnce()) {
        let _page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.tripped.swap(true, Ordering::SeqCst);
        if self.call.load(Ordering::SeqCst) == call {
            act();
        } else {
            // Earlier actions are still to be undone at the end of the call.
            self.tripped.store(before, Ordering::SeqCst);
        }
    }

    /// Returns the processor time after which the current or last call is interrupted.
    pub(crate) fn patience(&self, limit: Duration) -> Duration {
        let times = match self.doing.load(Ordering::Relaxed) {
            STARTING => self.times.start,
            PERIODIC => self.times.periodic,
            _ => self.times.batch,
        };
        limit.max(times).saturating_mul(GRACE_FACTOR)
    }

    /// Acts on a call by its processor time. `interrupted` is the time of the first interruption: the process ends only if
    /// that has not helped for as long again, however late this thread looks.
    fn check(&self, call: u64, took: Duration, limit: Duration, interrupted: &mut Option<Duration>) {
        let doing = self.doing.load(Ordering::Relaxed);
        let patience = self.patience(limit);
        if interrupted.is_some_and(|at| took >= at.saturating_add(patience)) {
            self.act_on_call(call, || self.end_process(doing, took));
        } else if took >= patience {
            interrupted.get_or_insert(took);
            self.act_on_call(call, || {
                self.overrun.store(true, Ordering::SeqCst);
                let (thread, at) = (self.thread.load(Ordering::Relaxed), self.at.load(Ordering::SeqCst));
                // A call that spends its time in small bulk operations is rarely found in its own code.
                for _ in 0..BURST_SIGNALS {
                    // SAFETY: the thread is in the call, which cannot end here.
                    unsafe { interrupt::send(thread) };
                    std::thread::sleep(BURST_PAUSE);
                    if self.at.load(Ordering::SeqCst) != at {
                        break;
                    }
                }
            });
        } else if self.polls && took >= limit {
            // SAFETY: the space is alive, for the call cannot end here.
            self.act_on_call(call, || _ = unsafe { set_poll_page(self.base, false) });
        }
    }

    /// Ends the process as the last resort. Files stay as they are, as if weir were killed.
    fn end_process(&self, doing: u32, took: Duration) {
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
        // SAFETY: does not return, so no state is used afterwards. Exit handlers must not run, because they could
        // wait for that thread.
        unsafe { libc::_exit(EXIT_STUCK.into()) };
    }

    /// Returns the flag that host functions check: whether the call is to be interrupted.
    pub(crate) fn overrun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.overrun)
    }

    /// Sets the number of the block's first packet, for messages about a call.
    pub(crate) fn set_block(&self, first_packet: u64) {
        self.block.store(first_packet, Ordering::Relaxed);
    }

    /// Returns the code of the call if it is to be interrupted. For a signal handler.
    pub(crate) fn code_to_interrupt(&self) -> Option<&CodeMap> {
        self.overrun.load(Ordering::SeqCst).then_some(&*self.code)
    }

    /// Notes that the call was interrupted at this instruction. For a signal handler.
    pub(crate) fn set_interrupted_at(&self, pc: usize) {
        self.at.store(pc, Ordering::SeqCst);
    }
}

/// A call in progress. It also ends when a host panic unwinds through it, so that the watchdog never acts on a
/// sandbox that is gone.
pub(crate) struct CallGuard<'a>(&'a WatchEntry);

impl CallGuard<'_> {
    /// Ends the call. Returns the watchdog's actions on it.
    #[inline]
    pub(crate) fn end(self) -> Option<OverrunAction> {
        let watch = self.0;
        std::mem::forget(self);
        watch.end()
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A sandbox, and the call that it was last seen in.
struct Observation {
    watch: Arc<WatchEntry>,
    call: u64,
    since: Duration,
    /// The call's time when it was first interrupted.
    interrupted: Option<Duration>,
}

/// All sandboxes of an engine, by number.
type WatchedSandboxes = Arc<Mutex<BTreeMap<u64, Observation>>>;

/// Keeps a sandbox under watch until it is dropped.
pub(crate) struct WatchedSandbox {
    watch: Arc<WatchEntry>,
    number: u64,
    all: WatchedSandboxes,
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

/// The thread that watches all sandboxes of an engine.
pub(crate) struct Watchdog {
    all: WatchedSandboxes,
    next: AtomicU64,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread. `limit` is the processor time of a call.
    pub(crate) fn start(limit: Duration) -> io::Result<Self> {
        interrupt::prepare()?;
        let all = WatchedSandboxes::default();
        let theirs = Arc::clone(&all);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("weir-watchdog".into()).spawn(move || {
            let mut callers = caller::SeenCalls::default();
            let period = (limit / PARTS).clamp(PERIOD_MIN, PERIOD_MAX);
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                if callers.check() {
                    let mut all = theirs.lock().unwrap_or_else(PoisonError::into_inner);
                    all.values_mut().for_each(|seen| check(seen, limit));
                }
            }
        })?;
        Ok(Self { all, next: AtomicU64::new(0), stop: Some(stop), thread: Some(thread) })
    }

    /// Watches a module's sandbox until the result is dropped. `polls`: the module reads the poll page.
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
            times: CallTimes::of(admitted),
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
        let seen =
            Observation { watch: Arc::clone(&watch), call: 0, since: Duration::ZERO, interrupted: None };
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

/// Examines one sandbox.
fn check(seen: &mut Observation, limit: Duration) {
    let watch = &seen.watch;
    let call = watch.call.load(Ordering::Acquire);
    let is_under_way = call % 2 == 1;
    if is_under_way && let Ok(now) = weir_os::clock_time(watch.clock.load(Ordering::Relaxed)) {
        if seen.call != call {
            // A call seen for the first time has run for less than two periods.
            (seen.call, seen.since, seen.interrupted) = (call, now, None);
        } else {
            watch.check(call, now.saturating_sub(seen.since), limit, &mut seen.interrupted);
        }
    }
}
