//! The admission test of a core.
//!
//! [`CoreScheduler`](super::CoreScheduler) asks here before it creates or changes a virtual CPU. The test is Baker's
//! for earliest deadline first with blocking ("Stack-Based Scheduling of Realtime Processes", Real-Time Systems 3,
//! 1991; for non-preemptible sections see also Jeffay, Stanat and Martel, RTSS 1991), with a term for overruns. With
//! the reservations sorted by period, for each k:
//!
//! ```text
//! sum over i <= k of slice_i / period_i  +  (blocking + sum over i <= k of overrun_i) / period_k  <=  cap
//! ```
//!
//! `blocking` is [`CoreConfig::blocking_max`]. The reason: a server schedules all work with a deadline at least one
//! period away ([`super::server`]). So the work due within an interval of length t comes from servers with period_i <=
//! t. Each contributes at most `t * slice_i / period_i + overrun_i`, because an overrun is debited from the next
//! budget, and only the last overrun of an interval is in excess. That work waits for at most one run with a later
//! deadline.
//!
//! Each fraction is rounded down to 2^-40 of the core, and the cap up, so that all of the cap can be reserved. The
//! sum of 16,384 fractions is too low by at most 15 ns per second, far less than the blocking of one run.

use super::reservation::{
    CoreConfig, CpuAllocation, CpuReservation, CpuTerms, Ppm, ReservationRefusal, VcpuId,
};
use weir_units::Nanos;

/// The whole core. Utilisation is in units of 2^-40.
const ONE: u128 = 1 << 40;

/// The load that a reservation puts on a core.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The period in nanoseconds.
    period: u64,
    /// The reserved part of the core, in units of 2^-40.
    utilisation: u64,
    /// The longest overrun in nanoseconds.
    overrun: u64,
}

impl Load {
    fn new(reservation: &CpuReservation, overrun: Nanos) -> Load {
        let share = u128::from(reservation.slice.0) * ONE / u128::from(reservation.period.0);
        Load {
            period: reservation.period.0,
            utilisation: u64::try_from(share).unwrap_or(u64::MAX),
            overrun: overrun.0,
        }
    }

    /// The least load that is at least `self` and at least `other`, and so covers each state of a change between them.
    fn upper_bound(self, other: Load) -> Load {
        Load {
            period: self.period.min(other.period),
            utilisation: self.utilisation.max(other.utilisation),
            overrun: self.overrun.max(other.overrun),
        }
    }
}

/// The admitted load of a virtual CPU, or of a closed one whose reservation has not ended yet.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None` once the virtual CPU is closed, or is best effort.
    owner: Option<VcpuId>,
    load: Load,
    /// The load from `change_at` on.
    next: Option<Load>,
    change_at: u64,
}

/// The reservations of a core.
#[derive(Clone, Debug)]
pub(super) struct CoreAdmission {
    entries: Vec<Entry>,
}

impl CoreAdmission {
    pub(super) fn new() -> CoreAdmission {
        CoreAdmission { entries: Vec::new() }
    }

    /// The reserved utilisation at `now`, without blocking and overruns.
    pub(super) fn reserved_share(&mut self, now: u64) -> Ppm {
        self.apply_due_changes(now);
        let sum: u128 = self.entries.iter().map(|entry| u128::from(entry.load.utilisation)).sum();
        Ppm(u32::try_from((sum * 1_000_000 + ONE / 2) / ONE).unwrap_or(u32::MAX))
    }

    /// Reserves `terms` for `owner`. The load of its old terms, if any, counts until `until`, when their period ends.
    pub(super) fn admit(
        &mut self,
        owner: VcpuId,
        terms: &CpuTerms,
        until: u64,
        now: u64,
        config: &CoreConfig,
    ) -> Result<(), ReservationRefusal> {
        self.apply_due_changes(now);
        let index = self.entries.iter().position(|entry| entry.owner == Some(owner));
        let CpuAllocation::Reserved(reservation) = terms.share else {
            self.release(owner, until);
            return Ok(());
        };
        let requested = Load::new(&reservation, terms.overrun);
        let before = index.map(|index| self.entries[index].load).filter(|_| until > now);
        let load = before.map_or(requested, |before| before.upper_bound(requested));
        let others = self.entries.iter().filter(|entry| entry.owner != Some(owner));
        let free = free_utilisation(others.map(|entry| entry.load).collect(), &load, config);
        if u128::from(load.utilisation) > free {
            // While the old terms last, no change fits if the old terms alone exceed the free utilisation.
            let free =
                if before.is_some_and(|before| u128::from(before.utilisation) > free) { 0 } else { free };
            return Err(refusal(&reservation, free));
        }
        self.insert(owner, index, load, requested, until);
        Ok(())
    }

    fn insert(&mut self, owner: VcpuId, index: Option<usize>, load: Load, requested: Load, until: u64) {
        let change_at = index.map_or(until, |index| until.max(self.entries[index].change_at));
        let entry = Entry { owner: Some(owner), load, next: Some(requested), change_at };
        match index {
            Some(index) => self.entries[index] = entry,
            None => self.entries.push(entry),
        }
    }

    /// Checks that all of these terms fit together once all changes have taken effect. The reservations of `closed` and
    /// of virtual CPUs that are closed already do not count. On failure returns the index of the first terms that do
    /// not fit together with the terms before them.
    pub(super) fn fits(
        &self,
        closed: &[VcpuId],
        terms: &[(Option<VcpuId>, CpuTerms)],
        config: &CoreConfig,
    ) -> Result<(), (usize, ReservationRefusal)> {
        let is_changed = |owner: VcpuId| terms.iter().any(|(id, _)| *id == Some(owner));
        let stays = |owner: VcpuId| !closed.contains(&owner) && !is_changed(owner);
        let others = self.entries.iter().filter(|entry| entry.owner.is_some_and(stays));
        let mut loads: Vec<Load> = others.map(|entry| entry.next.unwrap_or(entry.load)).collect();
        for (index, (_, terms)) in terms.iter().enumerate() {
            let CpuAllocation::Reserved(reservation) = terms.share else { continue };
            let requested = Load::new(&reservation, terms.overrun);
            let free = free_utilisation(loads.clone(), &requested, config);
            if u128::from(requested.utilisation) > free {
                return Err((index, refusal(&reservation, free)));
            }
            loads.push(requested);
        }
        Ok(())
    }

    /// Reserves a later change of `owner` to `terms` without a check: the caller has checked them with [`Self::fits`].
    /// Returns the time at which all pending changes have taken effect; before that the core may be overcommitted.
    pub(super) fn reserve_change(&mut self, owner: VcpuId, terms: &CpuTerms, until: u64, now: u64) -> u64 {
        self.apply_due_changes(now);
        match terms.share {
            CpuAllocation::BestEffort(_) => self.release(owner, until),
            CpuAllocation::Reserved(reservation) => {
                let index = self.entries.iter().position(|entry| entry.owner == Some(owner));
                let requested = Load::new(&reservation, terms.overrun);
                let load = index.map_or(requested, |index| self.entries[index].load.upper_bound(requested));
                self.insert(owner, index, load, requested, until);
            }
        }
        self.entries.iter().map(|entry| entry.change_at).fold(now, u64::max)
    }

    /// Ends the reservation of `owner` at `until`.
    pub(super) fn release(&mut self, owner: VcpuId, until: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.owner == Some(owner)) {
            (entry.owner, entry.next) = (None, None);
            entry.change_at = entry.change_at.max(until);
        }
    }

    /// Applies the changes that are due by `now`.
    fn apply_due_changes(&mut self, now: u64) {
        self.entries.retain_mut(|entry| {
            if entry.change_at > now {
                return true;
            }
            entry.next.inspect(|next| entry.load = *next).is_some()
        });
    }
}

/// The refusal of a reservation for which only `free` utilisation is left.
fn refusal(reservation: &CpuReservation, free: u128) -> ReservationRefusal {
    // The largest slice whose fraction, rounded down, is at most `free`.
    let largest = ((free + 1) * u128::from(reservation.period.0)).saturating_sub(1) / ONE;
    ReservationRefusal::NoRoom {
        period: reservation.period,
        slice: reservation.slice,
        largest: Nanos(u64::try_from(largest).unwrap_or(u64::MAX).min(reservation.period.0)),
    }
}

/// The utilisation that is free for a reservation with the period and overrun of `new`, beside these loads.
fn free_utilisation(mut loads: Vec<Load>, new: &Load, config: &CoreConfig) -> u128 {
    loads.push(Load { utilisation: 0, ..*new });
    loads.sort_by_key(|load| load.period);
    let cap = (u128::from(config.cap.0) * ONE).div_ceil(u128::from(Ppm::ONE.0));
    let (mut reserved, mut blocking) = (0, u128::from(config.blocking_max.0));
    let mut free = cap;
    for (index, load) in loads.iter().enumerate() {
        reserved += u128::from(load.utilisation);
        blocking += u128::from(load.overrun);
        let is_last_of_its_period = loads.get(index + 1).is_none_or(|next| next.period > load.period);
        if load.period >= new.period && is_last_of_its_period {
            let needed = reserved + blocking * ONE / u128::from(load.period);
            free = free.min(cap.saturating_sub(needed));
        }
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(period: u64, slice: u64, overrun: u64) -> CpuTerms {
        let reservation = CpuReservation { period: Nanos(period), slice: Nanos(slice), spare: None };
        CpuTerms { share: CpuAllocation::Reserved(reservation), overrun: Nanos(overrun) }
    }

    fn id(index: u32) -> VcpuId {
        VcpuId { index, generation: 0 }
    }

    const CONFIG: CoreConfig =
        CoreConfig { blocking_max: Nanos(100), cap: Ppm(900_000), lateness_max: Nanos(0) };

    #[test]
    fn a_refusal_states_the_largest_slice_that_fits() {
        let mut admission = CoreAdmission::new();
        assert_eq!(admission.admit(id(0), &terms(4000, 1000, 0), 0, 0, &CONFIG), Ok(()));
        // 0.9 - 0.25 - 100/4000 = 0.625 is free at period 4000, and more at 8000. At 1000 it is 0.9 - 100/1000 = 0.8,
        // but 0.625 limits it.
        for (period, largest) in [(4000, 2500), (8000, 5100), (1000, 625), (200, 80), (100, 0)] {
            let refused = admission.admit(id(1), &terms(period, period, 0), 0, 0, &CONFIG);
            let Err(ReservationRefusal::NoRoom { largest: free, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert!([largest, largest - largest.min(1)].contains(&free.0), "{free}: {largest}, rounded down");
            let largest = free.0;
            if largest > 0 {
                assert!(
                    admission.clone().admit(id(1), &terms(period, largest + 1, 0), 0, 0, &CONFIG).is_err()
                );
                assert_eq!(admission.clone().admit(id(1), &terms(period, largest, 0), 0, 0, &CONFIG), Ok(()));
            }
        }
        // Overruns of 50 and 30 count like blocking.
        assert_eq!(admission.admit(id(0), &terms(4000, 1000, 50), 0, 0, &CONFIG), Ok(()));
        let refused = admission.admit(id(1), &terms(4000, 4000, 30), 0, 0, &CONFIG);
        assert!(
            matches!(refused, Err(ReservationRefusal::NoRoom { largest: Nanos(2419..=2420), .. })),
            "{refused:?}"
        );
    }

    #[test]
    fn the_whole_cap_can_be_reserved_by_one_and_by_many() {
        // The cap of 90 % minus a blocking of 100 us in each 1 ms.
        let config = CoreConfig { blocking_max: Nanos(100_000), ..CONFIG };
        let of_millisecond =
            |slice| CoreAdmission::new().admit(id(0), &terms(1_000_000, slice, 0), 0, 0, &config);
        assert_eq!(of_millisecond(800_000), Ok(()));
        let refused = of_millisecond(800_001).unwrap_err();
        let largest = Nanos(800_000);
        let (period, slice) = (Nanos(1_000_000), Nanos(800_001));
        assert_eq!(refused, ReservationRefusal::NoRoom { period, slice, largest });
        assert!(refused.to_string().starts_with("800.001 us in each 1 ms"), "{refused}");
        // Fractions that have no exact binary representation.
        for (parts, cap) in [(3, 900_000), (7, 700_000), (11, 999_999), (9, 900_000), (1_000, 123_000)] {
            let config = CoreConfig { blocking_max: Nanos(0), cap: Ppm(cap), ..CONFIG };
            let mut admission = CoreAdmission::new();
            // Each reserves cap / parts of the core.
            let part = terms(u64::from(parts) * 1_000_000, u64::from(cap), 0);
            for index in 0..parts {
                assert_eq!(admission.admit(id(index), &part, 0, 0, &config), Ok(()), "{index} of {parts}");
            }
            let more = admission.admit(id(parts), &terms(1_000_000_000, 1_000, 0), 0, 0, &config);
            assert!(more.is_err(), "{parts}: another millionth was admitted");
        }
    }

    #[test]
    fn changes_are_checked_by_their_joint_result_and_a_reserved_change_is_kept_from_others() {
        let mut admission = CoreAdmission::new();
        for (index, slice) in [(0, 1800), (1, 1600)] {
            assert_eq!(admission.admit(id(index), &terms(4000, slice, 0), 0, 0, &CONFIG), Ok(()));
        }
        // The limit at this period is 87.5 %. One reservation grows and one shrinks, in either order.
        let (grown, shrunk) = (terms(4000, 2800, 0), terms(4000, 600, 0));
        let both = [(Some(id(0)), grown), (Some(id(1)), shrunk)];
        assert_eq!(admission.fits(&[], &both, &CONFIG), Ok(()));
        let too_much = [both[0], (Some(id(1)), terms(4000, 800, 0))];
        assert!(matches!(
            admission.fits(&[], &too_much, &CONFIG),
            Err((1, ReservationRefusal::NoRoom { .. }))
        ));
        assert_eq!(
            admission.fits(&[id(1)], &[both[0], (None, shrunk)], &CONFIG),
            Ok(()),
            "or a new one comes"
        );
        // The smaller reservation takes effect at 5000; until then the larger one does not fit.
        assert_eq!(admission.admit(id(1), &shrunk, 5000, 1000, &CONFIG), Ok(()));
        assert!(admission.admit(id(0), &grown, 3000, 1000, &CONFIG).is_err());
        assert_eq!(admission.reserve_change(id(0), &grown, 3000, 1000), 5000);
        assert!(
            admission.admit(id(2), &terms(4000, 100, 0), 0, 4999, &CONFIG).is_err(),
            "it is reserved for the change"
        );
        assert_eq!(admission.admit(id(0), &grown, 7000, 5000, &CONFIG), Ok(()));
        assert!(admission.admit(id(2), &terms(4000, 200, 0), 0, 5000, &CONFIG).is_err());
    }

    #[test]
    fn a_reservation_is_free_only_when_its_period_has_ended() {
        let mut admission = CoreAdmission::new();
        let half = terms(4000, 2400, 0);
        assert_eq!(admission.admit(id(0), &half, 0, 0, &CONFIG), Ok(()));
        admission.release(id(0), 5000);
        assert!(admission.admit(id(1), &half, 0, 4999, &CONFIG).is_err());
        assert_eq!(admission.reserved_share(4999), Ppm(600_000));
        assert_eq!(admission.admit(id(1), &half, 0, 5000, &CONFIG), Ok(()));
        // The smaller reservation takes effect at 9000; until then the old terms count.
        assert_eq!(admission.admit(id(1), &terms(4000, 400, 0), 9000, 6000, &CONFIG), Ok(()));
        assert_eq!(
            (admission.reserved_share(8999), admission.reserved_share(9000)),
            (Ppm(600_000), Ppm(100_000))
        );
    }
}
