//! Terms of virtual processors that have been promised, and begin when what others give up for them is free.

use super::Runner;
use weir_sched::cpu::{Refusal, Share, Terms, VpId};
use weir_units::Nanos;

/// Terms for which there is still no room are tried again so much later.
const AGAIN: Nanos = Nanos::MILLISECOND;

/// Promised terms, with the times from which there is room for them.
#[derive(Debug, Default)]
pub(super) struct Promises(Vec<(Nanos, VpId, Terms)>);

impl Promises {
    /// The time of the next one.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.iter().map(|(at, ..)| *at).min()
    }

    /// The longest overrun of a virtual processor under its promised terms.
    pub(super) fn overrun(&self, vp: VpId) -> Nanos {
        let of = self.0.iter().filter(|(_, there, _)| *there == vp);
        of.map(|(.., terms)| terms.overrun).max().unwrap_or(Nanos(0))
    }

    /// A virtual processor has other terms now.
    pub(super) fn forget(&mut self, vp: VpId) {
        self.0.retain(|(_, there, _)| *there != vp);
    }
}

impl Runner {
    /// Checks whether all of these terms fit in the end. See [`Core::fits`](weir_sched::cpu::Core::fits).
    pub(crate) fn fits(
        &self,
        gone: &[VpId],
        terms: &[(Option<VpId>, Terms)],
    ) -> Result<(), (usize, Refusal)> {
        self.core.core().fits(gone, terms)
    }

    /// Gives virtual processors these terms, which have been found to [fit](Self::fits): at once, or as soon as what others of them give up is free. Until then no other one is promised that.
    pub(crate) fn rearrange(&mut self, mut changes: Vec<(VpId, Terms)>) {
        let part = |share: Share| match share {
            Share::Reserved(of) => u128::from(of.slice.0) * 1_000_000_000 / u128::from(of.period.0.max(1)),
            Share::BestEffort(_) => 0,
        };
        // What gives something up comes first.
        changes.sort_by_key(|(vp, terms)| {
            let before = self.core.core().terms(*vp).map_or(0, |before| part(before.share));
            part(terms.share) > before
        });
        for (vp, terms) in changes {
            self.promises.forget(vp);
            let now = self.now();
            // Of one that is gone there is nothing to change.
            if let Err(Refusal::NoRoom { .. }) = self.core.change(vp, terms, now)
                && let Ok(at) = self.core.pledge(vp, terms, now)
            {
                self.promises.0.push((at, vp, terms));
            }
        }
    }

    /// Gives virtual processors what they were promised, where it is time.
    pub(super) fn keep_promises(&mut self) {
        if self.promises.0.is_empty() {
            return;
        }
        let now = self.now();
        for (at, vp, terms) in std::mem::take(&mut self.promises.0) {
            if at > now {
                self.promises.0.push((at, vp, terms));
            } else if let Err(Refusal::NoRoom { .. }) = self.core.change(vp, terms, now) {
                self.promises.0.push((Nanos(now.0.saturating_add(AGAIN.0)), vp, terms));
            }
        }
    }

    /// The longest overrun of a virtual processor, under its present or its promised terms.
    pub(crate) fn overrun(&self, vp: VpId) -> Option<Nanos> {
        Some(self.core.core().terms(vp)?.overrun.max(self.promises.overrun(vp)))
    }
}
