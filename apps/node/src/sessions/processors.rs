//! Virtual processors of sessions, and the cores that they are on.

use crate::control::spec::ProcessorSpec;
use crate::error::NodeError;
use crate::runner::{CoreThread, TimeSettlement};
use crate::server::log::warn;
use crate::sessions::node::{Node, SessionModule, SessionState, Vp};
use std::collections::BTreeMap;
use weir_admission::{Name, Tier};
use weir_sched::cpu::{CpuReservation, CpuTerms, Placement, Stats, VpId, Weight};
use weir_units::Nanos;

/// What virtual processors had, and what they and others owe each other: for each of the node's cores, in the order of their numbers there.
pub(crate) struct ProcessorStats(Vec<Vec<(VpId, Stats, TimeSettlement)>>);

impl ProcessorStats {
    /// Nothing where its core did not answer.
    pub(crate) fn of(&self, vp: &Vp) -> Option<(Stats, TimeSettlement)> {
        let here = self.0.get(vp.core)?;
        let place = here.binary_search_by_key(&vp.id, |(id, ..)| *id).ok()?;
        here.get(place).map(|(_, stats, account)| (*stats, *account))
    }
}

impl Node {
    /// What the virtual processors of these sessions had. Each core is asked once.
    pub(crate) fn processor_stats<'a>(
        &self,
        sessions: impl Iterator<Item = &'a SessionState>,
    ) -> ProcessorStats {
        let mut ids: Vec<Vec<VpId>> = self.cores.iter().map(|_| Vec::new()).collect();
        for vp in sessions.flat_map(SessionState::all_vps) {
            if let Some(here) = ids.get_mut(vp.core) {
                here.push(vp.id);
            }
        }
        let stats = self.cores.iter().zip(ids).map(|(core, mut ids)| {
            if ids.is_empty() {
                return Vec::new();
            }
            ids.sort_unstable();
            let answer = core.ask(move |runner| {
                ids.into_iter().filter_map(|id| Some((id, runner.stats(id)?, runner.account(id)))).collect()
            });
            answer.unwrap_or_default()
        });
        ProcessorStats(stats.collect())
    }

    /// Puts a virtual processor on the core that it names, or on the first that has room.
    pub(crate) fn place(&self, spec: &ProcessorSpec) -> Result<Vp, NodeError> {
        let terms = CpuTerms { share: share(spec), overrun: Nanos(0) };
        let mut refused = None;
        for (place, core) in self.cores.iter().enumerate() {
            if spec.core.is_some_and(|wanted| wanted != core.number()) {
                continue;
            }
            match core.ask(move |runner| runner.create(terms))? {
                Ok(id) => return Ok(Vp { spec: spec.clone(), core: place, id }),
                Err(refusal) => refused = Some((core.number(), refusal)),
            }
        }
        Err(match refused {
            Some((core, refusal)) => NodeError::Cpu { name: spec.name.clone(), core, refusal },
            None => self.no_core(spec),
        })
    }

    /// It names a core that is none of the node's.
    pub(crate) fn no_core(&self, spec: &ProcessorSpec) -> NodeError {
        let (name, core) = (spec.name.clone(), spec.core.unwrap_or_default());
        NodeError::NoCore { name, core, cores: self.cores.iter().map(CoreThread::number).collect() }
    }

    /// Gives a virtual processor another share. It stays on its core.
    pub(crate) fn give(&self, vp: &Vp, spec: &ProcessorSpec) -> Result<Vp, NodeError> {
        let cores = || self.cores.iter().map(CoreThread::number).collect();
        let core = self.cores.get(vp.core);
        let Some(core) = core.filter(|core| spec.core.is_none_or(|wanted| wanted == core.number())) else {
            let core = spec.core.unwrap_or_default();
            return Err(NodeError::NoCore { name: spec.name.clone(), core, cores: cores() });
        };
        let (id, share, number) = (vp.id, share(spec), core.number());
        let changed = core.ask(move |runner| runner.change(id, share))?;
        changed.map_err(|refusal| NodeError::Cpu { name: spec.name.clone(), core: number, refusal })?;
        Ok(Vp { spec: spec.clone(), ..vp.clone() })
    }

    /// Without a reservation a virtual processor runs only what is proved, so one that has other modules cannot be without.
    pub(crate) fn check_tiers(&self, session: &SessionState, spec: &ProcessorSpec) -> Result<(), NodeError> {
        let is_other = |module: &&SessionModule| module.spec.cpu == spec.name && module.tier != Tier::Proved;
        let other = session.modules.values().find(is_other).filter(|_| spec.reservation().is_none());
        other.map_or(Ok(()), |other| {
            let module = other.spec.module.clone();
            Err(NodeError::BestEffort { module, tier: other.tier, cpu: spec.name.clone() })
        })
    }

    pub(crate) fn close_vps(&self, vps: &BTreeMap<Name, Vp>) {
        vps.values().for_each(|vp| self.close_vp(vp));
    }

    pub(crate) fn close_vp(&self, vp: &Vp) {
        let Some(core) = self.cores.get(vp.core) else { return };
        let id = vp.id;
        // A job that is put into the core's letter box is done between two runs, so nothing of it runs then.
        if let Err(error) = core.ask(move |runner| runner.close(id)).map(|closed| closed.map(|_| ())) {
            warn(&error);
        }
    }

    /// Ends the virtual processors that a session has no more, when its modules have left them. What they had stays on its bill.
    pub(crate) fn end_retired(&mut self, session: &Name, id: u64) {
        let Some(there) = self.sessions.get_mut(session).filter(|there| there.id == id) else { return };
        for vp in std::mem::take(&mut there.retired) {
            let (Some(core), id) = (self.cores.get(vp.core), vp.id) else { continue };
            match core.ask(move |runner| (runner.account(id), runner.close(id))) {
                Ok((account, Ok(stats))) => {
                    crate::sessions::bill::add_processor(&mut there.gone, &stats, &account)
                }
                Ok((_, Err(_))) => {}
                Err(error) => warn(&error),
            }
        }
    }

    /// Takes back what was done to virtual processors, which now are these.
    pub(crate) fn undo(&self, done: Vec<(Name, Option<Vp>)>, vps: &BTreeMap<Name, Vp>) {
        for (name, before) in done.into_iter().rev() {
            match (before, vps.get(&name)) {
                // There was room for it a moment ago.
                (Some(before), Some(now)) => _ = self.give(now, &before.spec),
                (None, Some(now)) => self.close_vps(&BTreeMap::from([(name, now.clone())])),
                (_, None) => {}
            }
        }
    }
}

pub(crate) fn share(spec: &ProcessorSpec) -> Placement {
    let weight = Weight::new(spec.weight).unwrap_or(Weight::USUAL);
    match spec.reservation() {
        Some((period, slice)) => {
            Placement::Reserved(CpuReservation { period, slice, spare: spec.spare.then_some(weight) })
        }
        None => Placement::BestEffort(weight),
    }
}
