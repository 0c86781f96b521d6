//! Deferred terms of virtual CPUs: terms that begin as soon as other virtual CPUs have given up their reservations.

use super::Runner;
use weir_sched::cpu::{CpuAllocation, CpuTerms, ReservationRefusal, VcpuId};
use weir_units::Nanos;

/// The interval at which terms without capacity are tried again.
const RETRY_INTERVAL: Nanos = Nanos::MILLISECOND;

/// Deferred terms, each with the time from which the core has capacity for them.
#[derive(Debug, Default)]
pub(super) struct DeferredTerms(Vec<(Nanos, VcpuId, CpuTerms)>);

impl DeferredTerms {
    /// Returns the time at which the first deferred terms are due.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.0.iter().map(|(at, ..)| *at).min()
    }

    /// Returns the longest overrun of a virtual CPU in its deferred terms.
    pub(super) fn overrun(&self, vcpu_id: VcpuId) -> Nanos {
        let terms_of_vcpu = self.0.iter().filter(|(_, deferred, _)| *deferred == vcpu_id);
        terms_of_vcpu.map(|(.., terms)| terms.overrun).max().unwrap_or(Nanos(0))
    }

    /// Drops the deferred terms of a virtual CPU that has got other terms.
    pub(super) fn forget(&mut self, vcpu_id: VcpuId) {
        self.0.retain(|(_, deferred, _)| *deferred != vcpu_id);
    }
}

impl Runner {
    /// Checks that the core has capacity for all of `terms` together, after the virtual CPUs `closing` are closed. See
    /// [`Core::fits`](weir_sched::cpu::Core::fits).
    pub(crate) fn fits(
        &self,
        closing: &[VcpuId],
        terms: &[(Option<VcpuId>, CpuTerms)],
    ) -> Result<(), (usize, ReservationRefusal)> {
        self.core.core().fits(closing, terms)
    }

    /// Gives virtual CPUs these terms, which [fit](Self::fits) together. Terms for which there is no capacity yet are
    /// deferred until other virtual CPUs have given up their reservations; the freed capacity is reserved for the deferred terms.
    pub(crate) fn rearrange(&mut self, mut changes: Vec<(VcpuId, CpuTerms)>) {
        let reserved_ppb = |share: CpuAllocation| match share {
            CpuAllocation::Reserved(of) => {
                u128::from(of.slice.0) * 1_000_000_000 / u128::from(of.period.0.max(1))
            }
            CpuAllocation::BestEffort(_) => 0,
        };
        // Terms that free capacity come first.
        changes.sort_by_key(|(vcpu_id, terms)| {
            let before = self.core.core().terms(*vcpu_id).map_or(0, |before| reserved_ppb(before.share));
            reserved_ppb(terms.share) > before
        });
        for (vcpu_id, terms) in changes {
            self.deferred_terms.forget(vcpu_id);
            let now = self.now();
            // A virtual CPU that has been closed keeps its terms.
            if let Err(ReservationRefusal::NoRoom { .. }) = self.core.change(vcpu_id, terms, now)
                && let Ok(at) = self.core.reserve_change(vcpu_id, terms, now)
            {
                self.deferred_terms.0.push((at, vcpu_id, terms));
            }
        }
    }

    /// Applies deferred terms that are due.
    pub(super) fn apply_deferred_terms(&mut self) {
        if self.deferred_terms.0.is_empty() {
            return;
        }
        let now = self.now();
        for (at, vcpu_id, terms) in std::mem::take(&mut self.deferred_terms.0) {
            if at > now {
                self.deferred_terms.0.push((at, vcpu_id, terms));
            } else if let Err(ReservationRefusal::NoRoom { .. }) = self.core.change(vcpu_id, terms, now) {
                self.deferred_terms.0.push((Nanos(now.0.saturating_add(RETRY_INTERVAL.0)), vcpu_id, terms));
            }
        }
    }

    /// Returns the longest overrun of a virtual CPU in its present and deferred terms.
    pub(crate) fn overrun(&self, vcpu_id: VcpuId) -> Option<Nanos> {
        Some(self.core.core().terms(vcpu_id)?.overrun.max(self.deferred_terms.overrun(vcpu_id)))
    }
}
