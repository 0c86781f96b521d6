//! Clocks for the cost of modules: the processor's time stamp counter, and the processor time of threads and the process.

use std::time::{Duration, Instant};
use weir_units::Nanos;

/// A number of cycles of the time stamp counter, which runs at a constant rate, independent of the core's clock rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cycles(pub u64);

impl Cycles {
    /// Returns the current value of the counter. Processors other than x86-64 have no such counter; there a cycle is a
    /// nanosecond since the first call of this function.
    #[inline]
    pub fn now() -> Self {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has the instruction, which only reads the counter.
        let now = unsafe { std::arch::x86_64::_rdtsc() };
        #[cfg(not(target_arch = "x86_64"))]
        let now = {
            static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
            u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
        };
        Self(now)
    }

    /// Returns the cycles from `earlier` to `self`; 0 if `earlier` is later than `self`.
    #[inline]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// A measurement of the counter's rate against the system clock.
#[derive(Clone, Copy, Debug)]
pub struct ClockCheck {
    cycles: Cycles,
    time: Instant,
}

impl ClockCheck {
    /// Starts a measurement.
    pub fn begin() -> Self {
        Self { cycles: Cycles::now(), time: Instant::now() }
    }

    /// Returns the nanoseconds per cycle since the start of the measurement. Sleeps until the measurement has taken 5 ms.
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people to read")]
    pub fn nanos_per_cycle(&self) -> f64 {
        if let Some(rest) = Duration::from_millis(5).checked_sub(self.time.elapsed()) {
            std::thread::sleep(rest);
        }
        let cycles = Cycles::now().since(self.cycles).0;
        self.time.elapsed().as_nanos() as f64 / (cycles.max(1)) as f64
    }
}

/// Returns the processor time of the calling thread, without time that other threads or the hypervisor used.
pub fn thread_time() -> Nanos {
    time_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of this process together.
pub fn process_time() -> Nanos {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the time of a clock that exists.
fn time_of(clock: libc::clockid_t) -> Nanos {
    // Both clocks exist on every Linux.
    let time = weir_os::clock_time(clock).unwrap_or_default();
    Nanos::from(time)
}
