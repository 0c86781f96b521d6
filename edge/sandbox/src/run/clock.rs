//! The processor's time stamp counter, for what a module costs.

use std::time::{Duration, Instant};
use weir_units::Nanos;

/// Time stamp counter cycles: they run at a constant rate, whatever the core's clock does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycles(pub u64);

impl Cycles {
    /// Now. Where the processor has no such counter, nanoseconds since the first call.
    #[inline]
    pub fn now() -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction is there on every x86-64 processor and reads nothing but the counter.
        let now = unsafe { std::arch::x86_64::_rdtsc() };
        #[cfg(not(target_arch = "x86_64"))]
        let now = {
            static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
            u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
        };
        Self(now)
    }

    /// Cycles since `earlier`.
    #[inline]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// Holds the counter against the clock, from its making to the question.
#[derive(Clone, Copy, Debug)]
pub struct ClockCheck {
    cycles: Cycles,
    time: Instant,
}

impl ClockCheck {
    /// Begins.
    pub fn begin() -> Self {
        Self { cycles: Cycles::now(), time: Instant::now() }
    }

    /// Nanoseconds a cycle, over the time since the beginning; waits until that is long enough to tell.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    pub fn nanos_per_cycle(&self) -> f64 {
        if let Some(rest) = Duration::from_millis(5).checked_sub(self.time.elapsed()) {
            std::thread::sleep(rest);
        }
        let cycles = Cycles::now().since(self.cycles).0;
        self.time.elapsed().as_nanos() as f64 / (cycles.max(1)) as f64
    }
}

/// Processor time of the calling thread: time that others had the processor, or the hypervisor took, is not in it.
pub fn thread_time() -> Nanos {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The same of all threads of this process together.
pub fn process_time() -> Nanos {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn time_of(clock: libc::clockid_t) -> Nanos {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local; both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Nanos(part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec)))
}
