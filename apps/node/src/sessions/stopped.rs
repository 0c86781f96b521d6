//! Modules that the node ended. They stay visible, with their last counters, so that an alert can name them.

use crate::control::protocol::ModuleStatus;
use crate::control::spec::PARTS_MAX;
use crate::guest::TaskCounters;
use crate::sessions::node::SessionModule;
use crate::sessions::writer::WriteCounters;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_admission::Name;
use weir_datapath::account::DeferredCharges;
use weir_ledger::Unloaded;

/// The last modules of a session that ended, and not by request.
#[derive(Debug, Default)]
pub(crate) struct StoppedModules(Vec<(Name, Kept)>);

/// An ended module, as it is shown.
#[derive(Debug)]
struct Kept {
    shot: ModuleStatus,
    counters: StopCounters,
}

/// The counters of a module, which count until it has stopped.
#[derive(Clone, Debug)]
pub(crate) struct StopCounters {
    tally: Arc<TaskCounters>,
    account: Arc<DeferredCharges>,
    written: Arc<WriteCounters>,
}

impl StoppedModules {
    /// Adds a module that ends, unless it ends by request or with its session.
    pub(crate) fn add(&mut self, name: &Name, module: &SessionModule, reason: Unloaded) {
        let state = match reason {
            Unloaded::Strikes => "ended: over its limits too often",
            Unloaded::ProcessEnded => "ended: its process has ended",
            Unloaded::StartFailed => "ended: its start failed",
            Unloaded::Lagged => "ended: it lagged too far behind",
            Unloaded::Asked | Unloaded::SessionClosed | Unloaded::NodeStop => return,
        };
        self.forget(name);
        if self.0.len() >= PARTS_MAX {
            self.0.remove(0);
        }
        let counters = StopCounters::of(module);
        let shot = ModuleStatus { state: state.to_owned(), streams: Vec::new(), ..shot(name, module) };
        self.0.push((name.clone(), Kept { shot, counters }));
    }

    /// Forgets the module of this name: another one takes the name, or the operator has acknowledged its end. Returns false where there was none.
    pub(crate) fn forget(&mut self, name: &Name) -> bool {
        let before = self.0.len();
        self.0.retain(|(ended, _)| ended != name);
        self.0.len() < before
    }

    /// The modules' status, for replies and metrics.
    pub(crate) fn shots(&self) -> Vec<ModuleStatus> {
        let shot = |(_, kept): &(Name, Kept)| {
            let mut shot = kept.shot.clone();
            kept.counters.fill(&mut shot);
            // An ended module has no memory.
            shot.memory = 0;
            shot
        };
        self.0.iter().map(shot).collect()
    }
}

impl StopCounters {
    fn of(module: &SessionModule) -> Self {
        Self {
            tally: Arc::clone(&module.tally),
            account: Arc::clone(&module.account),
            written: Arc::clone(&module.written),
        }
    }

    fn fill(&self, shot: &mut ModuleStatus) {
        let (tally, get) = (&self.tally, |counter: &AtomicU64| counter.load(Ordering::Relaxed));
        shot.packets = get(&tally.packets);
        shot.records = get(&tally.records);
        let lost = [&tally.refused, &tally.unwritten, &self.written.lost];
        let held = tally.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner).records_lost();
        shot.records_lost = lost.map(get).iter().sum::<u64>().saturating_add(held);
        shot.faults = get(&tally.faults);
        shot.strikes = get(&tally.strikes);
        shot.used_ns = get(&tally.used);
        shot.elsewhere_ns = self.account.total().0;
        shot.memory = get(&tally.memory);
        shot.last_fault = tally.last_fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    }
}

/// A module's status, for replies and metrics.
pub(crate) fn shot(name: &Name, module: &SessionModule) -> ModuleStatus {
    let is_ended = module.tally.ended.load(Ordering::Relaxed) != 0;
    let mut shot = ModuleStatus {
        name: name.to_string(),
        module: module.title.clone(),
        tier: module.tier.name().to_owned(),
        state: if is_ended { "unloaded" } else { "running" }.to_owned(),
        isolation: module.isolation.clone(),
        streams: module.streams.iter().map(Name::to_string).collect(),
        ..ModuleStatus::default()
    };
    StopCounters::of(module).fill(&mut shot);
    shot
}
