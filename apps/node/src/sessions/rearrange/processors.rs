//! Choice of a core for each virtual CPU of sessions that are created or changed together. The choice is only computed
//! here, in [`Node::place_all`]; it takes effect when the node switches to the new sessions.

use crate::control::spec::ProcessorSpec;
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, Vp};
use crate::sessions::processors::allocation;
use weir_sched::cpu::{CpuTerms, VcpuId};
use weir_units::Nanos;

/// A virtual CPU that a session requests.
pub(super) struct VirtualCpuRequest {
    /// Index of the virtual CPU's session among the sessions that are created or changed together.
    pub(super) session_index: usize,
    pub(super) spec: ProcessorSpec,
    /// Present virtual CPU of this name. It continues with the new terms if it can stay on its core.
    pub(super) kept: Option<Vp>,
    /// Longest overrun of the modules on the virtual CPU.
    pub(super) overrun: Nanos,
}

impl VirtualCpuRequest {
    pub(super) fn terms(&self) -> CpuTerms {
        CpuTerms { share: allocation(&self.spec), overrun: self.overrun }
    }
}

/// The place of a requested virtual CPU: the index of its core, and the present virtual CPU that continues there;
/// `None` for a virtual CPU to create.
pub(super) type Place = (usize, Option<VcpuId>);

impl Node {
    /// Finds a core for each requested virtual CPU. With `releases`, the reservations of the virtual CPUs in `leaving`
    /// count as free.
    ///
    /// # Errors
    ///
    /// The index of the first request without capacity, and the reason.
    pub(super) fn place_all(
        &self,
        wanted: &[VirtualCpuRequest],
        leaving: &[Vp],
        releases: bool,
    ) -> Result<Vec<Place>, (usize, NodeError)> {
        // Indices of the requests whose present virtual CPUs have to leave their cores.
        let mut moved: Vec<usize> = Vec::new();
        // Each pass adds an index to `moved`, so the loop ends.
        loop {
            let released: Vec<Vp> = if releases {
                let moved = moved.iter().filter_map(|index| wanted.get(*index)?.kept.clone());
                leaving.iter().cloned().chain(moved).collect()
            } else {
                Vec::new()
            };
            match self.place_with(wanted, &released, &moved)? {
                Ok(placed) => return Ok(placed),
                Err(index) => moved.push(index),
            }
        }
    }

    /// Finds a core for each request. The virtual CPUs of the requests in `moved` leave their cores, and the
    /// reservations of the virtual CPUs in `released` count as free. The inner error is the index of another request
    /// whose virtual CPU has to leave its core.
    fn place_with(
        &self,
        wanted: &[VirtualCpuRequest],
        released: &[Vp],
        moved: &[usize],
    ) -> Result<Result<Vec<Place>, usize>, (usize, NodeError)> {
        let mut placed: Vec<Option<Place>> = vec![None; wanted.len()];
        let mut terms_by_core: Vec<Vec<(Option<VcpuId>, CpuTerms)>> = vec![Vec::new(); self.cores.len()];
        for (core, terms) in terms_by_core.iter_mut().enumerate() {
            let mut staying = Vec::new();
            for (index, request) in wanted.iter().enumerate().filter(|(index, _)| !moved.contains(index)) {
                if let Some(vp) = request.kept.as_ref().filter(|vp| vp.core == core) {
                    staying.push((index, vp.id));
                    terms.push((Some(vp.id), request.terms()));
                }
            }
            match self.fits(core, released, terms, staying.first().map_or(0, |(index, _)| *index))? {
                Ok(()) => staying.into_iter().for_each(|(index, id)| {
                    if let Some(place) = placed.get_mut(index) {
                        *place = Some((core, Some(id)));
                    }
                }),
                Err((at, refusal)) => {
                    let index = staying.get(at).map_or(0, |(index, _)| *index);
                    let Some(request) = wanted.get(index) else { continue };
                    if request.spec.core.is_none() && self.cores.len() > 1 {
                        return Ok(Err(index));
                    }
                    return Err((index, self.refused_by_core(core, &request.spec, refusal)));
                }
            }
        }
        for (index, request) in wanted.iter().enumerate() {
            let Some(slot) = placed.get_mut(index).filter(|placed| placed.is_none()) else { continue };
            *slot = Some((self.choose(index, request, released, &mut terms_by_core)?, None));
        }
        Ok(Ok(placed.into_iter().flatten().collect()))
    }

    /// Returns the first core with capacity for a requested virtual CPU in addition to the terms in `terms_by_core`,
    /// and adds the virtual CPU's terms to them. `index` is the index of the request, for errors.
    fn choose(
        &self,
        index: usize,
        wanted: &VirtualCpuRequest,
        released: &[Vp],
        terms_by_core: &mut [Vec<(Option<VcpuId>, CpuTerms)>],
    ) -> Result<usize, (usize, NodeError)> {
        let mut refused = None;
        for (core, terms) in terms_by_core.iter_mut().enumerate() {
            let number = self.cores.get(core).map(crate::core_thread::runner::CoreThread::number);
            if wanted.spec.core.is_some_and(|core| Some(core) != number) {
                continue;
            }
            terms.push((None, wanted.terms()));
            match self.fits(core, released, terms, index)? {
                Ok(()) => return Ok(core),
                Err((_, refusal)) => refused = Some(self.refused_by_core(core, &wanted.spec, refusal)),
            }
            terms.pop();
        }
        Err((index, refused.unwrap_or_else(|| self.no_core(&wanted.spec))))
    }

    /// Checks that these terms fit on a core once the virtual CPUs in `released` have given up their reservations. The
    /// inner error has the index of the first term that does not fit. The outer error, for a core that does not
    /// answer, has the index `request_index`.
    fn fits(
        &self,
        core: usize,
        released: &[Vp],
        terms: &[(Option<VcpuId>, CpuTerms)],
        request_index: usize,
    ) -> Result<Result<(), (usize, weir_sched::cpu::ReservationRefusal)>, (usize, NodeError)> {
        let Some(thread) = self.cores.get(core).filter(|_| !terms.is_empty()) else { return Ok(Ok(())) };
        let released_ids: Vec<VcpuId> =
            released.iter().filter(|vp| vp.core == core).map(|vp| vp.id).collect();
        let terms = terms.to_vec();
        thread
            .execute(move |runner| runner.fits(&released_ids, &terms))
            .map_err(|error| (request_index, error.into()))
    }

    /// Returns the error for a virtual CPU for which a core has no capacity.
    fn refused_by_core(
        &self,
        core: usize,
        spec: &ProcessorSpec,
        refusal: weir_sched::cpu::ReservationRefusal,
    ) -> NodeError {
        let core = self.cores.get(core).map_or(0, crate::core_thread::runner::CoreThread::number);
        NodeError::Cpu { name: spec.name.clone(), core, refusal }
    }
}
