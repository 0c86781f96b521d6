//! The watchdog, the last defence: a thread that ends a call that runs too long although its bound is proved or its fuel is
//! charged. Each engine has one.
//!
//! 1. If a call of a supervised or metered module takes longer than the limit, the watchdog makes the module's poll page inaccessible.
//!    The next read of the page, which the loader has inserted, traps.
//! 2. If a call of any module takes [`GRACE_FACTOR`] times its limit, or a call of a module without a meter takes its limit, the
//!    watchdog interrupts the call in the middle of the module's code (`interrupt.rs`). Host functions check whether their call is to be interrupted, and end it.
//! 3. If the call still runs after as much time again, the watchdog ends weir with a message that names the module: a
//!    thread that cannot be stopped would block the run in any event.
//!
//! Time here is the processor time of the calling thread, so time that other programs or a hypervisor use does not count
//! against a module. The watchdog takes each resumption of a suspended call for a new call; `suspend.rs` applies the same
//! limits to the total time of the suspended call.

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
use weir_admission::{Admitted, Tier};
use weir_units::Nanos;

/// The number of signals that are sent in a row to interrupt a call. With the pauses between them, the signals take less
/// than [`PERIOD_MIN`].
const BURST_SIGNALS: usize = 32;
/// The pause between two signals to the same call.
const BURST_PAUSE: Duration = Duration::from_micros(100);
/// The watchdog's period is the limit of a call divided by this number, within [`PERIOD_MIN`] and [`PERIOD_MAX`].
///
/// In each period the watchdog checks whether any thread is in the same call as in the last period. If so, it examines the
/// sandboxes. So a limit can be exceeded by up to two periods.
const PERIODS_PER_LIMIT: u32 = 16;
/// The shortest period.
const PERIOD_MIN: Duration = Duration::from_millis(10);
/// The longest period.
const PERIOD_MAX: Duration = Duration::from_millis(50);

/// The multiple of its limit at which a call of any tier is interrupted. It is large, because bounds are in fuel: a slow
/// machine, cold caches or an estimated calibration must not count against a module.
const GRACE_FACTOR: u32 = 10;

/// The packet length that is assumed for the time of a batch: the length of the largest IP packet. [`GRACE_FACTOR`] leaves
/// time for longer packets.
const PACKET_BYTES: u64 = 65_535;

/// The exit status of weir if it ends because a call cannot be ended.
pub const EXIT_STUCK: u8 = 70;

/// The value of [`WatchEntry::kind`] for a start.
const STARTING: u32 = u32::MAX;
/// The value of [`WatchEntry::kind`] for a tick, a stop or an event.
const PERIODIC: u32 = u32::MAX - 1;

/// The times that the profile allows for the kinds of calls of a module.
#[derive(Clone, Copy)]
struct CallTimes {
    start: Duration,
    batch: Duration,
    periodic: Duration,
}

impl CallTimes {
    fn from_profile(admitted: &Admitted) -> Self {
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

/// The state of a watched sandbox that its calling thread and the watchdog share.
pub(crate) struct WatchEntry {
    /// The beginning of the sandbox's address space.
    base: *mut u8,
    /// The module's name.
    name: String,
    /// The addresses of the module's functions.
    code_map: Arc<CodeMap>,
    /// True if the module reads the poll page.
    reads_poll_page: bool,
    times: CallTimes,
    /// True if the module runs without a meter, so that its calls have no other limit.
    is_unmetered: bool,
    /// Incremented at the beginning and at the end of each call, so it is odd during a call.
    call_number: AtomicU64,
    /// The handle of the calling thread (pthread_t).
    thread: AtomicU64,
    /// The clock of the calling thread's processor time.
    clock: AtomicI32,
    /// The kind of the call: [`STARTING`], [`PERIODIC`], or for a batch the index of its first packet in the block.
    kind: AtomicU32,
    /// The number of the block's first packet in the capture.
    block: AtomicU64,
    /// True if the watchdog has acted on the call, or is about to act on it.
    acted_on: AtomicBool,
    /// True if the call is to be interrupted.
    must_interrupt: Arc<AtomicBool>,
    /// The address of the instruction at which the call was interrupted; 0 if it was not.
    interrupted_at: AtomicUsize,
    /// Locked while the watchdog acts on the call.
    action_lock: Mutex<()>,
}

// SAFETY: the pointer is used only to change the protection of the poll page, in a call or under `action_lock`.
unsafe impl Send for WatchEntry {}
// SAFETY: the pointer is used as for `Send`; all other fields are atomic or do not change.
unsafe impl Sync for WatchEntry {}

/// The watchdog's actions on a call that took too long.
#[derive(Clone, Copy)]
pub(crate) struct OverrunAction {
    /// True if the poll page may have been made inaccessible.
    pub(crate) closed_poll_page: bool,
    /// The address of the instruction at which the call was interrupted, if it was.
    pub(crate) interrupted_at: Option<usize>,
}

impl WatchEntry {
    /// Records that a call begins on this thread. The call ends when the returned guard is dropped.
    #[inline]
    pub(crate) fn begin(&self, phase: HostPhase) -> CallGuard<'_> {
        let Thread { handle, clock } = caller::enter();
        self.thread.store(handle, Ordering::Relaxed);
        self.clock.store(clock, Ordering::Relaxed);
        let kind = match phase {
            HostPhase::Start => STARTING,
            HostPhase::Batch { first, .. } => first,
            HostPhase::Periodic { .. } => PERIODIC,
        };
        self.kind.store(kind, Ordering::Relaxed);
        // No atomic addition is needed, because only the calling thread writes the number.
        self.call_number.store(self.call_number.load(Ordering::Relaxed) + 1, Ordering::Release);
        interrupt::set_current_call(Some(self));
        CallGuard(self)
    }

    #[inline]
    fn end(&self) -> Option<OverrunAction> {
        interrupt::set_current_call(None);
        caller::leave();
        // `act_on_call` stores `acted_on` before it loads `call_number`. So either the watchdog sees that the call has ended, or
        // this thread sees that the watchdog acts on it.
        self.call_number.fetch_add(1, Ordering::SeqCst);
        if self.acted_on.load(Ordering::SeqCst) { self.undo() } else { None }
    }

    /// Undoes the watchdog's actions on a call that ends, and returns them.
    #[cold]
    fn undo(&self) -> Option<OverrunAction> {
        let _acting = self.action_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.acted_on.swap(false, Ordering::SeqCst) {
            return None;
        }
        self.must_interrupt.store(false, Ordering::SeqCst);
        let at = self.interrupted_at.swap(0, Ordering::SeqCst);
        if self.reads_poll_page {
            // SAFETY: the space is alive, because its instance is in this call. If the page stays inaccessible on an error,
            // further calls of the module trap at their polls and are lost.
            let _ = unsafe { set_poll_page(self.base, true) };
        }
        Some(OverrunAction {
            closed_poll_page: self.reads_poll_page,
            interrupted_at: (at != 0).then_some(at),
        })
    }

    /// Runs `act` if the call with this number is still in progress. The call's thread and space exist until `act` returns:
    /// at its end the call sees `acted_on`, and waits for `action_lock`.
    fn act_on_call(&self, call: u64, act: impl FnOnce()) {
        let _acting = self.action_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.acted_on.swap(true, Ordering::SeqCst);
        if self.call_number.load(Ordering::SeqCst) == call {
            act();
        } else {
            // The call has ended. If the watchdog has acted on the present call, that call must still undo the actions at its
            // end.
            self.acted_on.store(before, Ordering::SeqCst);
        }
    }

    /// Returns the processor time after which a call is interrupted, for the kind of the current or last call. `limit` is the
    /// engine's limit of a call.
    pub(crate) fn interruption_time(&self, limit: Duration) -> Duration {
        if self.is_unmetered {
            return limit;
        }
        let time = match self.kind.load(Ordering::Relaxed) {
            STARTING => self.times.start,
            PERIODIC => self.times.periodic,
            _ => self.times.batch,
        };
        limit.max(time).saturating_mul(GRACE_FACTOR)
    }

    /// Acts on a call that has taken the processor time `took`, if that is too long. `interrupted` is the call's time at its
    /// first interruption. Ends the process if the call has continued for as long again since then.
    fn check_call(&self, call: u64, took: Duration, limit: Duration, interrupted: &mut Option<Duration>) {
        let kind = self.kind.load(Ordering::Relaxed);
        let interruption_time = self.interruption_time(limit);
        if interrupted.is_some_and(|at| took >= at.saturating_add(interruption_time)) {
            self.act_on_call(call, || self.end_process(kind, took));
        } else if took >= interruption_time {
            interrupted.get_or_insert(took);
            self.act_on_call(call, || {
                self.must_interrupt.store(true, Ordering::SeqCst);
                let (thread, at) =
                    (self.thread.load(Ordering::Relaxed), self.interrupted_at.load(Ordering::SeqCst));
                // Several signals are sent, because a call that executes many bulk operations is rarely in the module's own
                // code when a signal arrives.
                for _ in 0..BURST_SIGNALS {
                    // SAFETY: the thread is in the call, which cannot end before `act_on_call` returns.
                    unsafe { interrupt::send(thread) };
                    std::thread::sleep(BURST_PAUSE);
                    if self.interrupted_at.load(Ordering::SeqCst) != at {
                        break;
                    }
                }
            });
        } else if self.reads_poll_page && took >= limit {
            // SAFETY: the space is alive, because the call cannot end before `act_on_call` returns.
            self.act_on_call(call, || _ = unsafe { set_poll_page(self.base, false) });
        }
    }

    /// Ends the process with a message. Files are left as if weir had been killed.
    fn end_process(&self, kind: u32, took: Duration) {
        let call = match kind {
            STARTING => "starting".to_owned(),
            PERIODIC => "in a tick or its stop".to_owned(),
            first => {
                // Packets count from 1, as in Wireshark.
                let first = self.block.load(Ordering::Relaxed).saturating_add(u64::from(first) + 1);
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
        // SAFETY: does not return, so no state is used afterwards. Exit handlers could wait for the thread that cannot be
        // stopped, so they are not run.
        unsafe { libc::_exit(EXIT_STUCK.into()) };
    }

    /// Returns the flag that host functions check, which is true if the call is to be interrupted.
    pub(crate) fn must_interrupt(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.must_interrupt)
    }

    /// Sets the number of the block's first packet, for messages about a call.
    pub(crate) fn set_block(&self, first_packet: u64) {
        self.block.store(first_packet, Ordering::Relaxed);
    }

    /// Returns the module's code if the call is to be interrupted. Async-signal-safe.
    pub(crate) fn code_to_interrupt(&self) -> Option<&CodeMap> {
        self.must_interrupt.load(Ordering::SeqCst).then_some(&*self.code_map)
    }

    /// Records that the call was interrupted at this instruction. Async-signal-safe.
    pub(crate) fn set_interrupted_at(&self, pc: usize) {
        self.interrupted_at.store(pc, Ordering::SeqCst);
    }
}

/// A call in progress. Dropping the guard ends the call, also when a panic of the host unwinds, so that the watchdog
/// never acts on a sandbox that does not exist any more.
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

/// A watched sandbox, with the state in which the watchdog last saw it.
struct Observation {
    watch: Arc<WatchEntry>,
    /// The number of the call in which the sandbox was last seen.
    call: u64,
    /// The thread's processor time when the call was first seen.
    since: Duration,
    /// The time that the call had taken when it was first interrupted.
    interrupted: Option<Duration>,
}

/// All sandboxes of an engine, by number.
type WatchedSandboxes = Arc<Mutex<BTreeMap<u64, Observation>>>;

/// A handle that keeps a sandbox watched until the handle is dropped.
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
    next_number: AtomicU64,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the watchdog's thread. `limit` is the processor time that a call may take.
    pub(crate) fn start(limit: Duration) -> io::Result<Self> {
        interrupt::install_handler()?;
        let all = WatchedSandboxes::default();
        let watched = Arc::clone(&all);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("weir-watchdog".into()).spawn(move || {
            let mut callers = caller::SeenCalls::default();
            let period = (limit / PERIODS_PER_LIMIT).clamp(PERIOD_MIN, PERIOD_MAX);
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                if callers.has_lasting_call() {
                    let mut all = watched.lock().unwrap_or_else(PoisonError::into_inner);
                    all.values_mut().for_each(|observation| check_sandbox(observation, limit));
                }
            }
        })?;
        Ok(Self { all, next_number: AtomicU64::new(0), stop: Some(stop), thread: Some(thread) })
    }

    /// Watches a module's sandbox until the result is dropped. `reads_poll_page` is true if the module reads the poll page.
    ///
    /// # Safety
    /// `base` is the address of a live space, which stays alive until the result is dropped.
    pub(crate) unsafe fn guard(
        &self,
        base: *mut u8,
        admitted: &Admitted,
        code_map: &Arc<CodeMap>,
        reads_poll_page: bool,
    ) -> WatchedSandbox {
        let watch = Arc::new(WatchEntry {
            base,
            name: admitted.manifest().name.as_str().to_owned(),
            code_map: Arc::clone(code_map),
            reads_poll_page,
            times: CallTimes::from_profile(admitted),
            is_unmetered: admitted.tier() == Tier::Unmetered,
            call_number: AtomicU64::new(0),
            thread: AtomicU64::new(0),
            clock: AtomicI32::new(0),
            kind: AtomicU32::new(0),
            block: AtomicU64::new(0),
            acted_on: AtomicBool::new(false),
            must_interrupt: Arc::default(),
            interrupted_at: AtomicUsize::new(0),
            action_lock: Mutex::new(()),
        });
        let observation =
            Observation { watch: Arc::clone(&watch), call: 0, since: Duration::ZERO, interrupted: None };
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(number, observation);
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

/// Examines one sandbox, and acts on its call if the call takes too long.
fn check_sandbox(observation: &mut Observation, limit: Duration) {
    let watch = &observation.watch;
    let call = watch.call_number.load(Ordering::Acquire);
    let is_in_call = call % 2 == 1;
    if is_in_call && let Ok(now) = weir_os::clock_time(watch.clock.load(Ordering::Relaxed)) {
        if observation.call != call {
            // A call that is seen for the first time has run for less than two periods.
            (observation.call, observation.since, observation.interrupted) = (call, now, None);
        } else {
            watch.check_call(
                call,
                now.saturating_sub(observation.since),
                limit,
                &mut observation.interrupted,
            );
        }
    }
}
