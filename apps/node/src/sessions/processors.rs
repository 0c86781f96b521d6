//! Creation, change and end of the sessions' virtual CPUs on the node's cores, and their statistics.

use crate::control::spec::ProcessorSpec;
use crate::core_thread::runner::{CoreThread, TimeSettlement};
use crate::log::warn;
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, SessionModule, SessionState, Vp};
use std::collections::BTreeMap;
use weir_admission::{Name, Tier};
use weir_sched::cpu::{CpuAllocation, CpuReservation, CpuTerms, Stats, VcpuId, Weight};
use weir_units::Nanos;

/// Statistics and settlements of virtual CPUs: a list for each core of the node, sorted by id.
pub(crate) struct ProcessorStats(Vec<Vec<(VcpuId, Stats, TimeSettlement)>>);

impl ProcessorStats {
    /// Returns the statistics of a virtual CPU, or `None` if its core did not answer.
    pub(crate) fn of(&self, vp: &Vp) -> Option<(Stats, TimeSettlement)> {
        let core_stats = self.0.get(vp.core)?;
        let index = core_stats.binary_search_by_key(&vp.id, |(id, ..)| *id).ok()?;
        core_stats.get(index).map(|(_, stats, account)| (*stats, *account))
    }
}

impl Node {
    /// Returns the statistics of these sessions' virtual CPUs. Sends one request to each core.
    pub(crate) fn processor_stats<'a>(
        &self,
        sessions: impl Iterator<Item = &'a SessionState>,
    ) -> ProcessorStats {
        let mut ids: Vec<Vec<VcpuId>> = self.cores.iter().map(|_| Vec::new()).collect();
        for vp in sessions.flat_map(SessionState::all_vps) {
            if let Some(core_ids) = ids.get_mut(vp.core) {
                core_ids.push(vp.id);
            }
        }
        let stats = self.cores.iter().zip(ids).map(|(core, mut ids)| {
            if ids.is_empty() {
                return Vec::new();
            }
            ids.sort_unstable();
            let answer = core.execute(move |runner| {
                ids.into_iter()
                    .filter_map(|id| Some((id, runner.stats(id)?, runner.settlement(id))))
                    .collect()
            });
            answer.unwrap_or_default()
        });
        ProcessorStats(stats.collect())
    }

    /// Creates a virtual CPU on the core that `spec` names; if it names none, on the first core with enough capacity.
    pub(crate) fn place_processor(&self, spec: &ProcessorSpec) -> Result<Vp, NodeError> {
        let terms = CpuTerms { share: allocation(spec), overrun: Nanos(0) };
        let mut refused = None;
        for (index, core) in self.cores.iter().enumerate() {
            if spec.core.is_some_and(|wanted| wanted != core.number()) {
                continue;
            }
            match core.execute(move |runner| runner.create(terms))? {
                Ok(id) => return Ok(Vp { spec: spec.clone(), core: index, id }),
                Err(refusal) => refused = Some((core.number(), refusal)),
            }
        }
        Err(match refused {
            Some((core, refusal)) => NodeError::Cpu { name: spec.name.clone(), core, refusal },
            None => self.no_core(spec),
        })
    }

    /// Returns the error for a virtual CPU whose description names an unknown core.
    pub(crate) fn no_core(&self, spec: &ProcessorSpec) -> NodeError {
        let (name, core) = (spec.name.clone(), spec.core.unwrap_or_default());
        NodeError::NoCore { name, core, cores: self.cores.iter().map(CoreThread::number).collect() }
    }

    /// Changes the share of a virtual CPU, which stays on its core.
    pub(crate) fn change_processor(&self, vp: &Vp, spec: &ProcessorSpec) -> Result<Vp, NodeError> {
        let cores = || self.cores.iter().map(CoreThread::number).collect();
        let core = self.cores.get(vp.core);
        let Some(core) = core.filter(|core| spec.core.is_none_or(|wanted| wanted == core.number())) else {
            let core = spec.core.unwrap_or_default();
            return Err(NodeError::NoCore { name: spec.name.clone(), core, cores: cores() });
        };
        let (id, share, number) = (vp.id, allocation(spec), core.number());
        let changed = core.execute(move |runner| runner.change(id, share))?;
        changed.map_err(|refusal| NodeError::Cpu { name: spec.name.clone(), core: number, refusal })?;
        Ok(Vp { spec: spec.clone(), ..vp.clone() })
    }

    /// Checks that a virtual CPU without a reservation has only proved modules.
    pub(crate) fn check_tiers(&self, session: &SessionState, spec: &ProcessorSpec) -> Result<(), NodeError> {
        let is_not_proved =
            |module: &&SessionModule| module.spec.cpu == spec.name && module.tier != Tier::Proved;
        let not_proved =
            session.modules.values().find(is_not_proved).filter(|_| spec.reservation().is_none());
        not_proved.map_or(Ok(()), |not_proved| {
            let module = not_proved.spec.module.clone();
            Err(NodeError::BestEffort { module, tier: not_proved.tier, cpu: spec.name.clone() })
        })
    }

    pub(crate) fn close_vps(&self, vps: &BTreeMap<Name, Vp>) {
        vps.values().for_each(|vp| self.close_vp(vp));
    }

    pub(crate) fn close_vp(&self, vp: &Vp) {
        let Some(core) = self.cores.get(vp.core) else { return };
        let id = vp.id;
        // The core thread executes this job between two runs of modules, so no module of the virtual CPU is running.
        if let Err(error) = core.execute(move |runner| runner.close(id)).map(|closed| closed.map(|_| ())) {
            warn(&error);
        }
    }

    /// Closes a session's virtual CPUs that were replaced, and adds their usage to the session. Their modules must have
    /// stopped. Has no effect if the session of this name does not have the number `id` any more.
    pub(crate) fn end_retired(&mut self, session: &Name, id: u64) {
        let Some(state) = self.sessions.get_mut(session).filter(|state| state.id == id) else { return };
        for vp in std::mem::take(&mut state.retired) {
            let (Some(core), id) = (self.cores.get(vp.core), vp.id) else { continue };
            match core.execute(move |runner| (runner.settlement(id), runner.close(id))) {
                Ok((account, Ok(stats))) => {
                    crate::sessions::usage::add_processor(&mut state.closed_usage, &stats, &account)
                }
                Ok((_, Err(_))) => {}
                Err(error) => warn(&error),
            }
        }
    }

    /// Undoes changes of virtual CPUs, the last change first. `done` has the state of each virtual CPU before its
    /// change, or `None` for a new virtual CPU; `vps` has the present states.
    pub(crate) fn undo_processors(&self, done: Vec<(Name, Option<Vp>)>, vps: &BTreeMap<Name, Vp>) {
        for (name, before) in done.into_iter().rev() {
            match (before, vps.get(&name)) {
                // The node has been locked since the change, so the core still has the capacity for the earlier share.
                (Some(before), Some(now)) => _ = self.change_processor(now, &before.spec),
                (None, Some(now)) => self.close_vps(&BTreeMap::from([(name, now.clone())])),
                (_, None) => {}
            }
        }
    }
}

/// Returns the scheduler's allocation for the description of a virtual CPU.
pub(crate) fn allocation(spec: &ProcessorSpec) -> CpuAllocation {
    let weight = Weight::new(spec.weight).unwrap_or(Weight::USUAL);
    match spec.reservation() {
        Some((period, slice)) => {
            CpuAllocation::Reserved(CpuReservation { period, slice, spare: spec.borrow.then_some(weight) })
        }
        None => CpuAllocation::BestEffort(weight),
    }
}
