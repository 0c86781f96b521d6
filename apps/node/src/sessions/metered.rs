//! Work of the calling thread that is debited from a meter.

use weir_os::CpuMeter;
use weir_sandbox::thread_time;
use weir_units::Nanos;

/// Runs `work`, and debits its CPU time from the meter, even if it fails.
pub(crate) fn metered<M: CpuMeter + ?Sized, T>(meter: &mut M, work: impl FnOnce(&mut M) -> T) -> T {
    let begin = thread_time();
    let done = work(meter);
    meter.spend_here(Nanos(thread_time().0.saturating_sub(begin.0)));
    done
}
