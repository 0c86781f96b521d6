//! Compiles the modules of a run with LLVM while the run goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_os::StoppableBudget;
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
            while !has_ended.load(Ordering::Acquire) && begin.elapsed() < DELAY {
                thread::park_timeout(DELAY.saturating_sub(begin.elapsed()));
            }
            for program in programs {
                if !has_ended.load(Ordering::Acquire) {
                    // Nothing limits or counts the processor time of a run's compilers.
                    let mut budget = StoppableBudget { budget: &mut Nanos(0), must_stop: &has_ended };
                    engine.compile_with_llvm(program, &mut budget);
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
        self.has_ended.store(true, Ordering::Release);
        self.compiler.unpark();
    }
}
