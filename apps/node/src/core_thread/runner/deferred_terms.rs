//! Promised terms of virtual processors, which begin when the reservations that others give up for them are free.

use super::Runner;
use weir_sched::cpu::{CpuTerms, Placement, ReservationRefusal, VpId};
use weir_units::Nanos;

/// The time after which terms without room are tried again.
const AGAIN: Nanos = Nanos::MILLISECOND;

/// Promised terms, with the times from which there is room for them.
#[derive(Debug, Default)]
pub(super) struct Promises(Vec<(Nanos, VpId, CpuTerms)>);

impl Promises {
    /// The time from which there is room for the next promised terms.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.iter().map(|(at, ..)| *at).min()
    }

    /// The longest overrun of a virtual processor under its promised terms.
    pub(super) fn overrun(&self, vp: VpId) -> Nanos {
        let of = self.0.iter().filter(|(_, there, _)| *there == vp);
        of.map(|(.., terms)| terms.overrun).max().unwrap_or(Nanos(0))
    }

    /// Drops the promises to a virtual processor, which has other terms now.
    pub(super) fn forget(&mut self, vp: VpId) {
        self.0.retain(|(_, there, _)| *there != vp);
    }
}

impl Runner {
    /// Checks that all of these terms fit together once the change is complete. See [`Core::fits`](weir_sched::cpu::Core::fits).
    pub(crate) fn fits(
        &self,
        gone: &[VpId],
        terms: &[(Option<VpId>, CpuTerms)],
    ) -> Result<(), (usize, ReservationRefusal)> {
        self.core.core().fits(gone, terms)
    }

    /// Gives virtual processors these terms, which [fit](Self::fits): at once, or as soon as the reservations that others of them give up are free. Until then that room is promised to no other.
    pub(crate) fn rearrange(&mut self, mut changes: Vec<(VpId, CpuTerms)>) {
        let part = |share: Placement| match share {
            Placement::Reserved(of) => {
                u128::from(of.slice.0) * 1_000_000_000 / u128::from(of.period.0.max(1))
            }
            Placement::BestEffort(_) => 0,
        };
        // Terms that give something up come first.
        changes.sort_by_key(|(vp, terms)| {
            let before = self.core.core().terms(*vp).map_or(0, |before| part(before.share));
            part(terms.share) > before
        });
        for (vp, terms) in changes {
            self.promises.forget(vp);
            let now = self.now();
            // A virtual processor that has ended has nothing to change.
            if let Err(ReservationRefusal::NoRoom { .. }) = self.core.change(vp, terms, now)
                && let Ok(at) = self.core.pledge(vp, terms, now)
            {
                self.promises.0.push((at, vp, terms));
            }
        }
    }

    /// Gives virtual processors their promised terms, where it is time.
    pub(super) fn keep_promises(&mut self) {
        if self.promises.0.is_empty() {
            return;
        }
        let now = self.now();
        for (at, vp, terms) in std::mem::take(&mut self.promises.0) {
            if at > now {
                self.promises.0.push((at, vp, terms));
            } else if let Err(ReservationRefusal::NoRoom { .. }) = self.core.change(vp, terms, now) {
                self.promises.0.push((Nanos(now.0.saturating_add(AGAIN.0)), vp, terms));
            }
        }
    }

    /// The longest overrun of a virtual processor, under its present or its promised terms.
    pub(crate) fn overrun(&self, vp: VpId) -> Option<Nanos> {
        Some(self.core.core().terms(vp)?.overrun.max(self.promises.overrun(vp)))
    }
}
