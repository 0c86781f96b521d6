//! Compiles busy modules with LLVM in the background. Each module starts in code of Cranelift, and its instance moves to the
//! new code between two batches.

use super::Daemon;
use crate::control::authority::SessionOwner;
use crate::server::compile_queue;
use crate::sessions::cpu_debit::debit_cpu_time;
use crate::sessions::module_loader::log_why_not_llvm;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_admission::Name;
use weir_os::StoppableBudget;
use weir_sandbox::LoadedModule;
use weir_units::Nanos;

/// The processor time in a module from which the module is compiled: about the time that compiling a module takes. So a
/// module that is hardly used costs its session nothing.
const BUSY_MIN: Nanos = Nanos(Nanos::SECOND.0 / 2);
/// The interval at which busy modules are searched.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The time until the next attempt for a module whose compilation was preempted or refused.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A module to be compiled.
struct BusyModule {
    /// The number of the module on the node.
    number: u64,
    session: Name,
    name: Name,
    owner: Option<SessionOwner>,
    /// The virtual CPU that is debited.
    cpu: Name,
    program: Arc<LoadedModule>,
}

impl Daemon {
    /// Compiles busy modules, one after the other, until the node stops.
    pub(super) fn compile_busy_modules(&self, is_ending: &AtomicBool) {
        let mut attempts: BTreeMap<u64, Instant> = BTreeMap::new();
        let mut next_search = Instant::now() + SEARCH_INTERVAL;
        while !is_ending.load(Ordering::Acquire) {
            if Instant::now() < next_search {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            attempts.retain(|_, at| at.elapsed() < RETRY_AFTER);
            match self.busiest_module(&attempts) {
                Some(module) => {
                    attempts.insert(module.number, Instant::now());
                    self.compile_busy_module(&module, is_ending);
                }
                None => next_search = Instant::now() + SEARCH_INTERVAL,
            }
        }
    }

    /// Returns the module that has used the most processor time, of those that wait for LLVM and have not been tried.
    fn busiest_module(&self, attempts: &BTreeMap<u64, Instant>) -> Option<BusyModule> {
        let node = self.node.lock();
        let modules = node
            .sessions
            .iter()
            .flat_map(|(of, session)| session.modules.iter().map(move |module| (of, session, module)));
        let busy = modules.filter_map(|(of, session, (name, module))| {
            let program = module.program.as_ref().filter(|program| program.waits_for_llvm())?;
            let used = module.counters.used.load(Ordering::Relaxed);
            let is_due = used >= BUSY_MIN.0 && !attempts.contains_key(&module.number);
            is_due.then_some((used, (of, session), (name, module), program))
        });
        let (_, (of, session), (name, module), program) = busy.max_by_key(|(used, ..)| *used)?;
        Some(BusyModule {
            number: module.number,
            session: of.clone(),
            name: name.clone(),
            owner: session.owner.clone(),
            cpu: module.spec.cpu.clone(),
            program: Arc::clone(program),
        })
    }

    /// Compiles a module in the compile queue, at the expense of its session.
    fn compile_busy_module(&self, module: &BusyModule, is_ending: &AtomicBool) {
        let mut budget = compile_queue::budget_for(module.owner.as_ref());
        // A holder with a debt has to wait: the module is tried again later.
        let Ok(mut permit) = self.compile_queue.acquire(module.owner.as_ref(), &mut budget) else { return };
        let engine = Arc::clone(&self.node.lock().loader.engine);
        debit_cpu_time(&mut permit, |permit| {
            let mut budget = StoppableBudget { budget: permit, must_stop: is_ending };
            engine.compile_with_llvm(&module.program, &mut budget);
        });
        let used = permit.used();
        drop(permit);
        // Once for each module, because a failed compilation is not repeated.
        log_why_not_llvm(&module.session, &module.name, &module.program);
        self.node.lock().charge(&module.session, Some(&module.cpu), used);
    }
}
