//! Modules that the node stopped without a request, for example because of strikes. They stay in the session's status,
//! with their last counters, so that an alert can name them.

use crate::control::spec::LIST_ENTRIES_MAX;
use crate::control::status::ModuleStatus;
use crate::core_thread::task::TaskCounters;
use crate::sessions::node::SessionModule;
use crate::sessions::writer::WriteCounters;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_admission::Name;
use weir_datapath::account::DeferredCharges;
use weir_ledger::UnloadReason;

/// The modules of a session that were stopped last without a request, at most [`LIST_ENTRIES_MAX`].
#[derive(Debug, Default)]
pub(crate) struct StoppedModules(Vec<(Name, StoppedModule)>);

/// The status of a stopped module.
#[derive(Debug)]
struct StoppedModule {
    status: ModuleStatus,
    counters: SharedCounters,
}

/// The counters of a module. They are shared, because they count until the module has stopped.
#[derive(Clone, Debug)]
pub(crate) struct SharedCounters {
    counters: Arc<TaskCounters>,
    account: Arc<DeferredCharges>,
    written: Arc<WriteCounters>,
}

impl StoppedModules {
    /// Adds a module that is being stopped, unless the reason is a request or the end of its session.
    pub(crate) fn add(&mut self, name: &Name, module: &SessionModule, reason: UnloadReason) {
        let state = match reason {
            UnloadReason::Strikes => "ended: over its limits too often",
            UnloadReason::ProcessEnded => "ended: its process has ended",
            UnloadReason::CodeWithdrawn => "ended: the keys of its machine code are not trusted any more",
            UnloadReason::StartFailed => "ended: its start failed",
            UnloadReason::Lagged => "ended: it lagged too far behind",
            UnloadReason::Replaced
            | UnloadReason::TrialFailed
            | UnloadReason::Requested
            | UnloadReason::SessionClosed
            | UnloadReason::NodeStop => return,
        };
        self.forget(name);
        if self.0.len() >= LIST_ENTRIES_MAX {
            self.0.remove(0);
        }
        let counters = SharedCounters::new(module);
        let status = ModuleStatus { state: state.to_owned(), streams: Vec::new(), ..status(name, module) };
        self.0.push((name.clone(), StoppedModule { status, counters }));
    }

    /// Forgets the module of this name, because another module takes the name, or because a request unloads the
    /// module. Returns false if no stopped module has the name.
    pub(crate) fn forget(&mut self, name: &Name) -> bool {
        let before = self.0.len();
        self.0.retain(|(ended, _)| ended != name);
        self.0.len() < before
    }

    /// Returns the status of the modules.
    pub(crate) fn statuses(&self) -> Vec<ModuleStatus> {
        let status = |(_, stopped): &(Name, StoppedModule)| {
            let mut status = stopped.status.clone();
            stopped.counters.fill(&mut status);
            // The memory of a stopped module has been released.
            status.memory = 0;
            status
        };
        self.0.iter().map(status).collect()
    }
}

impl SharedCounters {
    fn new(module: &SessionModule) -> Self {
        Self {
            counters: Arc::clone(&module.counters),
            account: Arc::clone(&module.account),
            written: Arc::clone(&module.written),
        }
    }

    fn fill(&self, status: &mut ModuleStatus) {
        let (counters, get) = (&self.counters, |counter: &AtomicU64| counter.load(Ordering::Relaxed));
        status.packets = get(&counters.packets);
        status.records = get(&counters.records);
        let written = &self.written;
        let lost =
            [&counters.refused, &counters.discarded, &counters.unwritten, &written.disk_full, &written.lost];
        let limited = counters.limited.with(|limited| limited.records_lost());
        status.records_lost = lost.map(get).iter().sum::<u64>().saturating_add(limited);
        status.faults = get(&counters.faults);
        status.strikes = get(&counters.strikes);
        status.used_ns = get(&counters.used);
        status.other_threads_ns = self.account.total().0;
        status.memory = get(&counters.memory);
        // A module that declares no findings has none.
        if !status.findings.is_empty() {
            status.findings = written.findings.by_severity();
        }
        status.last_fault = counters.last_fault.get();
    }
}

/// Returns the status of a module that has not been stopped.
pub(crate) fn status(name: &Name, module: &SessionModule) -> ModuleStatus {
    let is_ended = module.counters.ended.load(Ordering::Relaxed) != 0;
    let mut status = ModuleStatus {
        name: name.to_string(),
        module: module.title.clone(),
        tier: module.tier.name().to_owned(),
        bound: module.bound.clone(),
        state: if is_ended { "unloaded" } else { "running" }.to_owned(),
        isolation: module.isolation.clone(),
        back_end: module.back_end().to_string(),
        compiled_by: module.compiled_by(),
        streams: module.streams.iter().map(Name::to_string).collect(),
        findings: if module.has_findings { module.written.findings.by_severity() } else { BTreeMap::new() },
        ..ModuleStatus::default()
    };
    SharedCounters::new(module).fill(&mut status);
    status
}
