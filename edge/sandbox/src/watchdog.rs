//! The last line of defence: what ends a call that runs too long though it is charged for what it does. Proved modules are not watched.
//!
//! A module that has been in one call for longer than the limit loses its poll page: the next read of it that the loader put there traps. What counts is
//! the processor time of the calling thread, so that a busy machine or a hypervisor that takes time away is not held against a module.

use crate::space::set_poll_page;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the watchdog looks: the grain of the limit.
const PERIOD: Duration = Duration::from_millis(10);

/// One sandbox under watch.
pub(crate) struct Watch {
    base: *mut u8,
    /// Even between calls, odd in one; never the same twice.
    call: AtomicU64,
    /// The clock of the calling thread's processor time.
    clock: AtomicI32,
    /// Whether the page has been taken away, or is about to be.
    tripped: AtomicBool,
    /// Held while the page changes.
    page: Mutex<()>,
}

// SAFETY: the pointer is used only to change the protection of the poll page, in a call or under `page`.
unsafe impl Send for Watch {}
// SAFETY: as above; everything else is atomic.
unsafe impl Sync for Watch {}

impl Watch {
    /// A call begins on this thread.
    #[inline]
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.clock.store(clock_of_thread(), Ordering::Relaxed);
        // Nobody else writes to it.
        self.call.store(self.call.load(Ordering::Relaxed) + 1, Ordering::Release);
        UnderWay(self)
    }

    #[inline]
    fn end(&self) -> bool {
        // With the watchdog's store and load in the other order: one of the two sees the other.
        self.call.fetch_add(1, Ordering::SeqCst);
        self.tripped.load(Ordering::SeqCst) && self.give_back()
    }

    #[cold]
    fn give_back(&self) -> bool {
        let _page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.tripped.swap(false, Ordering::SeqCst) {
            return false;
        }
        // SAFETY: the space is alive, for its instance is in this call. Should it fail, the module's next check traps: it loses calls, no more.
        let _ = unsafe { set_poll_page(self.base, true) };
        true
    }

    /// Takes the page away if the same call is still under way.
    fn trip(&self, call: u64) {
        let _page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        self.tripped.store(true, Ordering::SeqCst);
        if self.call.load(Ordering::SeqCst) != call {
            self.tripped.store(false, Ordering::SeqCst);
            return;
        }
        // SAFETY: the call was still under way after `tripped` was set, so it cannot end, and its space cannot go, before it has seen `tripped`
        // and then had the lock that is held here.
        let _ = unsafe { set_poll_page(self.base, false) };
    }
}

/// A call under way. It ends also when a panic of the host unwinds through it, so that the watchdog never acts on a sandbox that is gone.
pub(crate) struct UnderWay<'a>(&'a Watch);

impl UnderWay<'_> {
    /// The call has ended; says whether its time was over.
    #[inline]
    pub(crate) fn end(self) -> bool {
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
    watch: Weak<Watch>,
    call: u64,
    since: Duration,
}

/// The thread that looks after all sandboxes of an engine.
pub(crate) struct Watchdog {
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Begins to watch; calls may take so much processor time.
    pub(crate) fn start(limit: Duration) -> io::Result<Self> {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let all = Arc::clone(&seen);
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("weir-watchdog".into()).spawn(move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                all.lock().unwrap_or_else(PoisonError::into_inner).retain_mut(|seen| look(seen, limit));
            }
        })?;
        Ok(Self { seen, stop: Some(stop), thread: Some(thread) })
    }

    /// Watches a sandbox for as long as the result is kept.
    ///
    /// # Safety
    /// `base` is a live space, and stays so until the result is dropped.
    pub(crate) unsafe fn guard(&self, base: *mut u8) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            base,
            call: AtomicU64::new(0),
            clock: AtomicI32::new(0),
            tripped: AtomicBool::new(false),
            page: Mutex::new(()),
        });
        let seen = Seen { watch: Arc::downgrade(&watch), call: 0, since: Duration::ZERO };
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        watch
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

/// Looks at one sandbox; says whether it is still there.
fn look(seen: &mut Seen, limit: Duration) -> bool {
    let Some(watch) = seen.watch.upgrade() else { return false };
    let call = watch.call.load(Ordering::Acquire);
    let is_under_way = call % 2 == 1;
    if is_under_way && let Some(now) = time_of(watch.clock.load(Ordering::Relaxed)) {
        if seen.call != call {
            // Seen for the first time: it has run for less than a period.
            (seen.call, seen.since) = (call, now);
        } else if now.saturating_sub(seen.since) >= limit {
            watch.trip(call);
        }
    }
    true
}

/// The clock of the calling thread's processor time, which other threads can read.
fn clock_of_thread() -> libc::clockid_t {
    thread_local! {
        static CLOCK: Cell<libc::clockid_t> = const { Cell::new(0) };
    }
    let known = CLOCK.get();
    if known != 0 {
        return known;
    }
    let mut clock = libc::CLOCK_THREAD_CPUTIME_ID;
    // SAFETY: the pointer is to a live local, and a thread's own handle is always valid.
    unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    CLOCK.set(clock);
    clock
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
