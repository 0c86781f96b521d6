//! Whether a core can keep one more promise.
//!
//! The test is Baker's for earliest deadline first with blocking ("Stack-Based Scheduling of Realtime Processes", Real-Time Systems 3,
//! 1991; for pieces that cannot be interrupted see also Jeffay, Stanat and Martel, RTSS 1991), with a term for overruns. With the
//! reservations in the order of their periods, for each k:
//!
//! ```text
//! sum over i <= k of slice_i / period_i  +  (blocking + sum over i <= k of overrun_i) / period_k  <=  cap
//! ```
//!
//! Why: whatever a server runs has a deadline at least its period away ([`super::server`]), so that what is to be done in an interval of
//! length t comes from servers with period_i <= t, is at most `t * slice_i / period_i + overrun_i` (an overrun is debited from the next
//! budget, so only the last one of an interval is too much), and waits for at most one run with a later deadline.
//!
//! Each fraction is rounded down to 2^-40 of the core, and the cap up, so that all of the cap can be reserved. The sum of 16,384 of them is too low
//! by 15 ns in a second, far less than the blocking of one run.

use super::terms::{CoreConfig, CpuReservation, CpuTerms, Placement, Ppm, ReservationRefusal, VpId};
use weir_units::Nanos;

/// Utilisation is in fractions of 2^-40.
const ONE: u128 = 1 << 40;

/// What a reservation takes.
#[derive(Clone, Copy, Debug)]
struct Load {
    period: u64,
    utilisation: u64,
    overrun: u64,
}

impl Load {
    fn of(reservation: &CpuReservation, overrun: Nanos) -> Load {
        let share = u128::from(reservation.slice.0) * ONE / u128::from(reservation.period.0);
        Load {
            period: reservation.period.0,
            utilisation: u64::try_from(share).unwrap_or(u64::MAX),
            overrun: overrun.0,
        }
    }

    /// Whatever lies between the one and the other takes no more than this.
    fn or(self, other: Load) -> Load {
        Load {
            period: self.period.min(other.period),
            utilisation: self.utilisation.max(other.utilisation),
            overrun: self.overrun.max(other.overrun),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// `None`: of one that has been closed, or is best effort now.
    owner: Option<VpId>,
    load: Load,
    /// What it takes from `change_at` on.
    then: Option<Load>,
    change_at: u64,
}

/// The promises of a core.
#[derive(Clone, Debug)]
pub(super) struct CoreAdmission {
    entries: Vec<Entry>,
}

impl CoreAdmission {
    pub(super) fn new() -> CoreAdmission {
        CoreAdmission { entries: Vec::new() }
    }

    /// How much of the core is promised at `now`, without blocking and overruns.
    pub(super) fn promised(&mut self, now: u64) -> Ppm {
        self.settle(now);
        let sum: u128 = self.entries.iter().map(|entry| u128::from(entry.load.utilisation)).sum();
        Ppm(u32::try_from((sum * 1_000_000 + ONE / 2) / ONE).unwrap_or(u32::MAX))
    }

    /// Promises `terms` to `owner`, which has had `old` terms until now; what those give holds until `until`, when its period ends.
    pub(super) fn admit(
        &mut self,
        owner: VpId,
        terms: &CpuTerms,
        until: u64,
        now: u64,
        config: &CoreConfig,
    ) -> Result<(), ReservationRefusal> {
        self.settle(now);
        let place = self.entries.iter().position(|entry| entry.owner == Some(owner));
        let Placement::Reserved(reservation) = terms.share else {
            self.release(owner, until);
            return Ok(());
        };
        let asked = Load::of(&reservation, terms.overrun);
        let before = place.map(|place| self.entries[place].load).filter(|_| until > now);
        let load = before.map_or(asked, |before| before.or(asked));
        let others = self.entries.iter().filter(|entry| entry.owner != Some(owner));
        let room = room(others.map(|entry| entry.load).collect(), &load, config);
        if u128::from(load.utilisation) > room {
            // While the old terms last, there is room for no change if they do not fit themselves.
            let room =
                if before.is_some_and(|before| u128::from(before.utilisation) > room) { 0 } else { room };
            return Err(no_room(&reservation, room));
        }
        self.enter(owner, place, load, asked, until);
        Ok(())
    }

    fn enter(&mut self, owner: VpId, place: Option<usize>, load: Load, asked: Load, until: u64) {
        let change_at = place.map_or(until, |place| until.max(self.entries[place].change_at));
        let entry = Entry { owner: Some(owner), load, then: Some(asked), change_at };
        match place {
            Some(place) => self.entries[place] = entry,
            None => self.entries.push(entry),
        }
    }

    /// Checks whether all of these fit together when everything that changes has changed, without the promises to `gone` and to those who have been closed. On failure says which of
    /// them does not fit beside those before it.
    pub(super) fn fits(
        &self,
        gone: &[VpId],
        terms: &[(Option<VpId>, CpuTerms)],
        config: &CoreConfig,
    ) -> Result<(), (usize, ReservationRefusal)> {
        let changes = |owner: VpId| terms.iter().any(|(vp, _)| *vp == Some(owner));
        let stays = |owner: VpId| !gone.contains(&owner) && !changes(owner);
        let others = self.entries.iter().filter(|entry| entry.owner.is_some_and(stays));
        let mut loads: Vec<Load> = others.map(|entry| entry.then.unwrap_or(entry.load)).collect();
        for (place, (_, terms)) in terms.iter().enumerate() {
            let Placement::Reserved(reservation) = terms.share else { continue };
            let asked = Load::of(&reservation, terms.overrun);
            let room = room(loads.clone(), &asked, config);
            if u128::from(asked.utilisation) > room {
                return Err((place, no_room(&reservation, room)));
            }
            loads.push(asked);
        }
        Ok(())
    }

    /// Promises `terms` to `owner` without a check, as [`Self::fits`] has made one. No other one is promised what that needs from now on. Returns when all that is promised now and is to change
    /// has changed: before that there may be no room to keep it.
    pub(super) fn pledge(&mut self, owner: VpId, terms: &CpuTerms, until: u64, now: u64) -> u64 {
        self.settle(now);
        match terms.share {
            Placement::BestEffort(_) => self.release(owner, until),
            Placement::Reserved(reservation) => {
                let place = self.entries.iter().position(|entry| entry.owner == Some(owner));
                let asked = Load::of(&reservation, terms.overrun);
                let load = place.map_or(asked, |place| self.entries[place].load.or(asked));
                self.enter(owner, place, load, asked, until);
            }
        }
        self.entries.iter().map(|entry| entry.change_at).fold(now, u64::max)
    }

    /// `owner` needs its promise no longer than `until`.
    pub(super) fn release(&mut self, owner: VpId, until: u64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.owner == Some(owner)) {
            (entry.owner, entry.then) = (None, None);
            entry.change_at = entry.change_at.max(until);
        }
    }

    /// What changes by `now`.
    fn settle(&mut self, now: u64) {
        self.entries.retain_mut(|entry| {
            if entry.change_at > now {
                return true;
            }
            entry.then.inspect(|then| entry.load = *then).is_some()
        });
    }
}

fn no_room(reservation: &CpuReservation, room: u128) -> ReservationRefusal {
    // The largest whose fraction, rounded down, is no more than the room.
    let largest = ((room + 1) * u128::from(reservation.period.0)).saturating_sub(1) / ONE;
    ReservationRefusal::NoRoom {
        period: reservation.period,
        slice: reservation.slice,
        largest: Nanos(u64::try_from(largest).unwrap_or(u64::MAX).min(reservation.period.0)),
    }
}

/// The utilisation that a reservation of the period and overrun of `new` can have, beside these loads.
fn room(mut loads: Vec<Load>, new: &Load, config: &CoreConfig) -> u128 {
    loads.push(Load { utilisation: 0, ..*new });
    loads.sort_by_key(|load| load.period);
    let cap = (u128::from(config.cap.0) * ONE).div_ceil(u128::from(Ppm::ONE.0));
    let (mut taken, mut blocking) = (0, u128::from(config.blocking.0));
    let mut room = cap;
    for (place, load) in loads.iter().enumerate() {
        taken += u128::from(load.utilisation);
        blocking += u128::from(load.overrun);
        let is_last_of_its_period = loads.get(place + 1).is_none_or(|next| next.period > load.period);
        if load.period >= new.period && is_last_of_its_period {
            let needed = taken + blocking * ONE / u128::from(load.period);
            room = room.min(cap.saturating_sub(needed));
        }
    }
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(period: u64, slice: u64, overrun: u64) -> CpuTerms {
        let reservation = CpuReservation { period: Nanos(period), slice: Nanos(slice), spare: None };
        CpuTerms { share: Placement::Reserved(reservation), overrun: Nanos(overrun) }
    }

    fn id(index: u32) -> VpId {
        VpId { index, generation: 0 }
    }

    const CONFIG: CoreConfig = CoreConfig { blocking: Nanos(100), cap: Ppm(900_000), arrears: Nanos(0) };

    #[test]
    fn a_refusal_says_what_there_is_room_for() {
        let mut admission = CoreAdmission::new();
        assert_eq!(admission.admit(id(0), &terms(4000, 1000, 0), 0, 0, &CONFIG), Ok(()));
        // 0.9 - 0.25 - 100/4000 = 0.625 is left at 4000, and more at 8000; at 1000 it is 0.9 - 100/1000 = 0.8, but 0.625 counts.
        for (period, largest) in [(4000, 2500), (8000, 5100), (1000, 625), (200, 80), (100, 0)] {
            let refused = admission.admit(id(1), &terms(period, period, 0), 0, 0, &CONFIG);
            let Err(ReservationRefusal::NoRoom { largest: room, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert!([largest, largest - largest.min(1)].contains(&room.0), "{room}: {largest}, rounded down");
            let largest = room.0;
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
    fn all_that_can_be_reserved_can_be_reserved_by_one_and_by_many() {
        // 90 % without a blocking of 100 us in each 1 ms.
        let config = CoreConfig { blocking: Nanos(100_000), ..CONFIG };
        let of_millisecond =
            |slice| CoreAdmission::new().admit(id(0), &terms(1_000_000, slice, 0), 0, 0, &config);
        assert_eq!(of_millisecond(800_000), Ok(()));
        let refused = of_millisecond(800_001).unwrap_err();
        let largest = Nanos(800_000);
        let (period, slice) = (Nanos(1_000_000), Nanos(800_001));
        assert_eq!(refused, ReservationRefusal::NoRoom { period, slice, largest });
        assert!(refused.to_string().starts_with("800.001 us in each 1 ms"), "{refused}");
        // In parts that no binary fraction is equal to.
        for (parts, cap) in [(3, 900_000), (7, 700_000), (11, 999_999), (9, 900_000), (1_000, 123_000)] {
            let config = CoreConfig { blocking: Nanos(0), cap: Ppm(cap), ..CONFIG };
            let mut admission = CoreAdmission::new();
            // Each has cap / parts of the core.
            let part = terms(u64::from(parts) * 1_000_000, u64::from(cap), 0);
            for index in 0..parts {
                assert_eq!(admission.admit(id(index), &part, 0, 0, &config), Ok(()), "{index} of {parts}");
            }
            let more = admission.admit(id(parts), &terms(1_000_000_000, 1_000, 0), 0, 0, &config);
            assert!(more.is_err(), "{parts}: there was room for another millionth");
        }
    }

    #[test]
    fn all_changes_together_fit_by_their_result_and_nobody_gets_what_is_pledged() {
        let mut admission = CoreAdmission::new();
        for (index, slice) in [(0, 1800), (1, 1600)] {
            assert_eq!(admission.admit(id(index), &terms(4000, slice, 0), 0, 0, &CONFIG), Ok(()));
        }
        // 87.5 % is all that there is at this period. One grows, one shrinks: the order does not matter.
        let (grown, shrunk) = (terms(4000, 2800, 0), terms(4000, 600, 0));
        let both = [(Some(id(0)), grown), (Some(id(1)), shrunk)];
        assert_eq!(admission.fits(&[], &both, &CONFIG), Ok(()));
        let too_much = [both[0], (Some(id(1)), terms(4000, 800, 0))];
        assert!(matches!(
            admission.fits(&[], &too_much, &CONFIG),
            Err((1, ReservationRefusal::NoRoom { .. }))
        ));
        assert_eq!(admission.fits(&[id(1)], &[both[0], (None, shrunk)], &CONFIG), Ok(()), "or another comes");
        // What shrinks does so at 5000; until then there is no room for what grows.
        assert_eq!(admission.admit(id(1), &shrunk, 5000, 1000, &CONFIG), Ok(()));
        assert!(admission.admit(id(0), &grown, 3000, 1000, &CONFIG).is_err());
        assert_eq!(admission.pledge(id(0), &grown, 3000, 1000), 5000);
        assert!(admission.admit(id(2), &terms(4000, 100, 0), 0, 4999, &CONFIG).is_err(), "it is pledged");
        assert_eq!(admission.admit(id(0), &grown, 7000, 5000, &CONFIG), Ok(()));
        assert!(admission.admit(id(2), &terms(4000, 200, 0), 0, 5000, &CONFIG).is_err());
    }

    #[test]
    fn what_was_promised_is_free_only_when_its_period_has_ended() {
        let mut admission = CoreAdmission::new();
        let half = terms(4000, 2400, 0);
        assert_eq!(admission.admit(id(0), &half, 0, 0, &CONFIG), Ok(()));
        admission.release(id(0), 5000);
        assert!(admission.admit(id(1), &half, 0, 4999, &CONFIG).is_err());
        assert_eq!(admission.promised(4999), Ppm(600_000));
        assert_eq!(admission.admit(id(1), &half, 0, 5000, &CONFIG), Ok(()));
        // Less from 9000 on: until then the old terms hold.
        assert_eq!(admission.admit(id(1), &terms(4000, 400, 0), 9000, 6000, &CONFIG), Ok(()));
        assert_eq!((admission.promised(8999), admission.promised(9000)), (Ppm(600_000), Ppm(100_000)));
    }
}
