//! Compiles the modules of a run with LLVM while the run goes on.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use weir_os::{BudgetOrder, ProcessorBudget};
use weir_sandbox::{Engine, LoadedModule};
use weir_units::Nanos;

/// The time for which a run goes on before its modules are compiled again: about the time that compiling a module takes. So
/// a short run does not pay for code that it would hardly use.
const DELAY: Duration = Duration::from_millis(500);

/// Calls `run`. If it takes longer than [`DELAY`], compiles modules with LLVM meanwhile, one after the other. Their instances
/// move to the new code between two batches. A compilation that is not complete when `run` returns is given up.
pub(super) fn compile_during<T>(engine: &Engine, programs: &[LoadedModule], run: impl FnOnce() -> T) -> T {
    if !programs.iter().any(LoadedModule::waits_for_llvm) {
        return run();
    }
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let compiler = scope.spawn(|| {
            let begin = Instant::now();
            while !has_ended.load(Relaxed) && begin.elapsed() < DELAY {
                thread::park_timeout(DELAY.saturating_sub(begin.elapsed()));
            }
            for program in programs {
                if !has_ended.load(Relaxed) {
                    engine.compile_with_llvm(program, &mut UntilEnd(&has_ended));
                }
            }
        });
        let _guard = EndsWithRun { has_ended: &has_ended, compiler: compiler.thread() };
        run()
    })
}

/// Ends the compilation also if the run panics.
struct EndsWithRun<'a> {
    has_ended: &'a AtomicBool,
    compiler: &'a thread::Thread,
}

impl Drop for EndsWithRun<'_> {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
        self.compiler.unpark();
    }
}

/// A budget without a limit, which ends compilation with the run.
struct UntilEnd<'a>(&'a AtomicBool);

impl ProcessorBudget for UntilEnd<'_> {
    fn limit(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    fn left(&self) -> Nanos {
        Nanos(u64::MAX)
    }

    fn spend(&mut self, _: Nanos) {}

    fn order(&mut self, _: Nanos) -> BudgetOrder {
        if self.0.load(Relaxed) { BudgetOrder::Abort } else { BudgetOrder::Continue }
    }
}
