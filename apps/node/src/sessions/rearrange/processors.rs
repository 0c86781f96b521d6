//! Placement of virtual CPUs that change together, as a check before any of them changes.

use crate::control::spec::ProcessorSpec;
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, Vp};
use crate::sessions::processors::share;
use weir_sched::cpu::{CpuTerms, VpId};
use weir_units::Nanos;

/// A virtual CPU that a session requests.
pub(super) struct VirtualCpuRequest {
    /// Index of the session among the incoming ones.
    pub(super) arrival: usize,
    pub(super) spec: ProcessorSpec,
    /// Present virtual CPU that continues as the requested one, if it can stay on its core.
    pub(super) kept: Option<Vp>,
    /// Longest overrun of the modules on the virtual CPU.
    pub(super) overrun: Nanos,
}

impl VirtualCpuRequest {
    pub(super) fn terms(&self) -> CpuTerms {
        CpuTerms { share: share(&self.spec), overrun: self.overrun }
    }
}

/// Index of a core on the node, and the present virtual CPU on that core; `None` for a virtual CPU to create.
pub(super) type Place = (usize, Option<VpId>);

impl Node {
    /// Finds a core for each requested virtual CPU. With `gives_up`, the reservations of the virtual CPUs in `gone` count
    /// as free.
    ///
    /// # Errors
    ///
    /// The index of the first request without capacity, and the reason.
    pub(super) fn place_all(
        &self,
        wanted: &[VirtualCpuRequest],
        gone: &[Vp],
        gives_up: bool,
    ) -> Result<Vec<Place>, (usize, NodeError)> {
        // Indices of the requests whose present virtual CPUs have to leave their cores.
        let mut moved: Vec<usize> = Vec::new();
        // The loop ends, because each pass adds an index.
        loop {
            let free: Vec<Vp> = if gives_up {
                let moved = moved.iter().filter_map(|place| wanted.get(*place)?.kept.clone());
                gone.iter().cloned().chain(moved).collect()
            } else {
                Vec::new()
            };
            match self.place_with(wanted, &free, &moved)? {
                Ok(placed) => return Ok(placed),
                Err(place) => moved.push(place),
            }
        }
    }

    /// Finds a core for each request, if the virtual CPUs of the requests in `moved` leave their cores. The inner error
    /// is the index of one more request whose virtual CPU has to leave.
    fn place_with(
        &self,
        wanted: &[VirtualCpuRequest],
        free: &[Vp],
        moved: &[usize],
    ) -> Result<Result<Vec<Place>, usize>, (usize, NodeError)> {
        let mut placed: Vec<Option<Place>> = vec![None; wanted.len()];
        let mut given: Vec<Vec<(Option<VpId>, CpuTerms)>> = vec![Vec::new(); self.cores.len()];
        for (core, terms) in given.iter_mut().enumerate() {
            let mut here = Vec::new();
            for (place, it) in wanted.iter().enumerate().filter(|(place, _)| !moved.contains(place)) {
                if let Some(vp) = it.kept.as_ref().filter(|vp| vp.core == core) {
                    here.push((place, vp.id));
                    terms.push((Some(vp.id), it.terms()));
                }
            }
            match self.fits(core, free, terms, here.first().map_or(0, |(place, _)| *place))? {
                Ok(()) => here.into_iter().for_each(|(place, id)| {
                    if let Some(it) = placed.get_mut(place) {
                        *it = Some((core, Some(id)));
                    }
                }),
                Err((at, refusal)) => {
                    let place = here.get(at).map_or(0, |(place, _)| *place);
                    let Some(it) = wanted.get(place) else { continue };
                    if it.spec.core.is_none() && self.cores.len() > 1 {
                        return Ok(Err(place));
                    }
                    return Err((place, self.no_room(core, &it.spec, refusal)));
                }
            }
        }
        for (place, it) in wanted.iter().enumerate() {
            let Some(slot) = placed.get_mut(place).filter(|placed| placed.is_none()) else { continue };
            *slot = Some((self.choose(place, it, free, &mut given)?, None));
        }
        Ok(Ok(placed.into_iter().flatten().collect()))
    }

    /// Returns the first core with capacity for a virtual CPU beside the terms in `given`, and adds its terms to them.
    fn choose(
        &self,
        place: usize,
        wanted: &VirtualCpuRequest,
        free: &[Vp],
        given: &mut [Vec<(Option<VpId>, CpuTerms)>],
    ) -> Result<usize, (usize, NodeError)> {
        let mut refused = None;
        for (core, given) in given.iter_mut().enumerate() {
            let number = self.cores.get(core).map(crate::core_thread::runner::CoreThread::number);
            if wanted.spec.core.is_some_and(|core| Some(core) != number) {
                continue;
            }
            given.push((None, wanted.terms()));
            match self.fits(core, free, given, place)? {
                Ok(()) => return Ok(core),
                Err((_, refusal)) => refused = Some(self.no_room(core, &wanted.spec, refusal)),
            }
            given.pop();
        }
        Err((place, refused.unwrap_or_else(|| self.no_core(&wanted.spec))))
    }

    /// Checks that these terms fit on a core once the virtual CPUs in `free` have given up their reservations. The inner
    /// error has the index of the first term that does not fit; the outer one is that of a core which does not answer,
    /// with the index `place`.
    fn fits(
        &self,
        core: usize,
        free: &[Vp],
        terms: &[(Option<VpId>, CpuTerms)],
        place: usize,
    ) -> Result<Result<(), (usize, weir_sched::cpu::ReservationRefusal)>, (usize, NodeError)> {
        let Some(thread) = self.cores.get(core).filter(|_| !terms.is_empty()) else { return Ok(Ok(())) };
        let gone: Vec<VpId> = free.iter().filter(|vp| vp.core == core).map(|vp| vp.id).collect();
        let terms = terms.to_vec();
        thread.ask(move |runner| runner.fits(&gone, &terms)).map_err(|error| (place, error.into()))
    }

    /// Returns the error for a virtual CPU that a core refuses.
    fn no_room(
        &self,
        core: usize,
        spec: &ProcessorSpec,
        refusal: weir_sched::cpu::ReservationRefusal,
    ) -> NodeError {
        let core = self.cores.get(core).map_or(0, crate::core_thread::runner::CoreThread::number);
        NodeError::Cpu { name: spec.name.clone(), core, refusal }
    }
}
