//! Debits of the CPU time of work on the calling thread.

use weir_os::ProcessorBudget;
use weir_sandbox::thread_time;
use weir_units::Nanos;

/// Runs `work`, and debits its CPU time on the calling thread from `budget`. The time is debited even if `work` fails.
pub(crate) fn debit_cpu_time<M: ProcessorBudget + ?Sized, T>(
    budget: &mut M,
    work: impl FnOnce(&mut M) -> T,
) -> T {
    let begin = thread_time();
    let done = work(budget);
    budget.spend_in_caller(Nanos(thread_time().0.saturating_sub(begin.0)));
    done
}
