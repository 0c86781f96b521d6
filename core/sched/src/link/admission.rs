//! Admission of reservations on a link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_units::{BitsPerSecond, Nanos, display_among};

/// The reason why a link's configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkConfigError {
    /// The rate is zero, or over 2^60.
    #[error("a link has a rate of more than zero and at most 2^60 bit/s")]
    NoRate,
    /// The reservable rate is above the link's rate.
    #[error("{reservable} cannot be reserved on a link of {rate}")]
    ReservableOverRate {
        /// The requested reservable rate.
        reservable: BitsPerSecond,
        /// The link's rate.
        rate: BitsPerSecond,
    },
    /// The longest frame, with framing, is too long.
    #[error("the longest frame has {given} bytes on the wire, and at most {most} are supported")]
    FrameTooLong {
        /// The length of the longest frame on the wire in bytes.
        given: u32,
        /// The maximum in bytes.
        most: u32,
    },
    /// The number of channels is zero or too large.
    #[error("a link has 1 to {most} channels, not {given}")]
    Channels {
        /// The requested number.
        given: u32,
        /// The maximum.
        most: u32,
    },
}

/// The reason why a channel is not opened or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelRefused {
    /// The link has too little unreserved rate.
    #[error(
        "{wanted} more is requested, {unreserved} is unreserved; {held} is held for closed or lowered channels until {until}",
        wanted = display_among(*wanted, &[*unreserved]), unreserved = display_among(*unreserved, &[*wanted])
    )]
    OverReserved {
        /// The additional rate requested.
        wanted: BitsPerSecond,
        /// The unreserved rate.
        unreserved: BitsPerSecond,
        /// The rate that is held because closed or lowered channels have sent ahead of their clocks.
        held: BitsPerSecond,
        /// The time, on the caller's clock, at which all of the held rate is free again.
        until: Nanos,
    },
    /// All channels of the link are open.
    #[error("all {most} channels of the link are open")]
    TooManyChannels {
        /// The number of channels.
        most: u32,
    },
    /// The channel is closed, or never was open.
    #[error("there is no such channel")]
    NoSuchChannel,
    /// The cap is below the reservation.
    #[error("a cap of {cap} is under the reservation of {reserved}", cap = display_among(*cap, &[*reserved]), reserved = display_among(*reserved, &[*cap]))]
    CapUnderReservation {
        /// The rate of the reservation.
        reserved: BitsPerSecond,
        /// The rate of the cap.
        cap: BitsPerSecond,
    },
    /// The channel has neither a reservation nor a weight, so it would never send.
    #[error("a channel without a reservation has to have a weight")]
    NeitherReservationNorWeight,
}

/// The reason why a link's rate is not changed. The link is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateRefused {
    /// The rate is not valid for any link.
    #[error(transparent)]
    Config(#[from] LinkConfigError),
    /// More is reserved than could be reserved with the new rate.
    #[error(
        "only {reservable} could be reserved, but {reserved} is; {held} is held for closed or lowered channels until {until}",
        reservable = display_among(*reservable, &[*reserved]), reserved = display_among(*reserved, &[*reservable])
    )]
    OverReserved {
        /// The rate that could be reserved.
        reservable: BitsPerSecond,
        /// The reserved rate.
        reserved: BitsPerSecond,
        /// The rate that is held because closed or lowered channels have sent ahead of their clocks.
        held: BitsPerSecond,
        /// The time, on the caller's clock, at which all of the held rate is free again.
        until: Nanos,
    },
}

/// The reservations of a link.
///
/// A channel may have sent up to its limit early, in time that other channels did not need yet; its clock is then ahead
/// of real time. If the channel is closed, or its rate is lowered, a *hold* keeps the rate that it gives up reserved
/// until real time has caught up with the clock. Otherwise a channel that is opened and closed in a loop would get a
/// burst each time, at the expense of the guarantees of other channels.
#[derive(Debug)]
pub struct LinkReservations {
    /// The rate that can be reserved, in bits per second.
    reservable: u64,
    /// The rate that channels have reserved, in bits per second.
    reserved: u64,
    /// The sum of the held rates, in bits per second.
    held: u64,
    /// The held rates, each with the time at which it becomes free, the earliest first.
    holds: BinaryHeap<Reverse<(Nanos, u64)>>,
    holds_max: usize,
    /// The time at which the last hold ends.
    last_hold_until: Nanos,
}

impl LinkReservations {
    /// Creates the reservations of a link of which `reservable` can be reserved, with space for `holds_max` holds.
    pub fn new(reservable: BitsPerSecond, holds_max: usize) -> LinkReservations {
        let holds = BinaryHeap::with_capacity(holds_max);
        LinkReservations {
            reservable: reservable.0,
            reserved: 0,
            held: 0,
            holds,
            holds_max,
            last_hold_until: Nanos(0),
        }
    }

    /// The unreserved rate at `now`: the reservable rate minus the reserved and held rates. Drops holds that have
    /// ended.
    pub fn unreserved(&mut self, now: Nanos) -> BitsPerSecond {
        while let Some(Reverse((until, rate))) = self.holds.peek().copied()
            && until <= now
        {
            self.holds.pop();
            self.held -= rate;
        }
        BitsPerSecond(self.reservable - self.reserved - self.held)
    }

    /// The unreserved rate at `now`, as [`Self::unreserved`] returns it, without dropping holds.
    pub fn unreserved_at(&self, now: Nanos) -> BitsPerSecond {
        let held =
            self.holds.iter().filter(|Reverse((until, _))| *until > now).map(|Reverse((_, rate))| rate);
        BitsPerSecond(self.reservable.saturating_sub(self.reserved).saturating_sub(held.sum()))
    }

    /// Ends holds until `wanted` is unreserved, or no hold is left. This is for changes by the operator, which assign
    /// at once the rate that other channels give up. Channels that have sent early then keep their advantage once; only
    /// the operator could repeat it.
    pub fn release_held(&mut self, wanted: BitsPerSecond, now: Nanos) {
        while self.unreserved(now) < wanted
            && let Some(Reverse((until, rate))) = self.holds.pop()
        {
            self.held -= rate;
            let more = self.unreserved(now).0.saturating_sub(wanted.0).min(rate);
            if more > 0 {
                self.held += more;
                self.holds.push(Reverse((until, more)));
            }
        }
    }

    /// The rate that channels have reserved.
    pub fn reserved(&self) -> BitsPerSecond {
        BitsPerSecond(self.reserved)
    }

    /// Changes the reservable rate. Refuses a rate below the sum of the reserved and held rates.
    pub fn resize(&mut self, reservable: BitsPerSecond, now: Nanos) -> Result<(), RateRefused> {
        self.unreserved(now);
        if self.reserved + self.held > reservable.0 {
            return Err(RateRefused::OverReserved {
                reservable,
                reserved: BitsPerSecond(self.reserved),
                held: BitsPerSecond(self.held),
                until: if self.held > 0 { self.last_hold_until } else { now },
            });
        }
        self.reservable = reservable.0;
        Ok(())
    }

    /// Replaces a reservation of `from` by one of `to`, if there is enough unreserved rate. The caller then has to
    /// [hold](Self::hold) a rate that the channel gives up while its clock is ahead of real time.
    pub fn exchange(
        &mut self,
        from: BitsPerSecond,
        to: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), ChannelRefused> {
        let unreserved = self.unreserved(now);
        if to.0 > from.0 && to.0 - from.0 > unreserved.0 {
            return Err(ChannelRefused::OverReserved {
                wanted: BitsPerSecond(to.0 - from.0),
                unreserved,
                held: BitsPerSecond(self.held),
                until: if self.held > 0 { self.last_hold_until } else { now },
            });
        }
        self.reserved = self.reserved - from.0 + to.0;
        Ok(())
    }

    /// Holds, until `until`, a rate that a channel has given up.
    pub fn hold(&mut self, rate: BitsPerSecond, until: Nanos, now: Nanos) {
        if until <= now || rate.0 == 0 {
            return;
        }
        self.held += rate.0;
        self.last_hold_until = self.last_hold_until.max(until);
        let mut entry = (until, rate.0);
        // If there are too many holds, the new one is merged with the one that ends first.
        if self.holds.len() >= self.holds_max
            && let Some(Reverse((first, held))) = self.holds.pop()
        {
            entry = (first.max(until), held + rate.0);
        }
        self.holds.push(Reverse(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_released_than_is_wanted() {
        let mut reservations = LinkReservations::new(BitsPerSecond(100), 8);
        assert_eq!(reservations.exchange(BitsPerSecond(0), BitsPerSecond(40), Nanos(0)), Ok(()));
        reservations.hold(BitsPerSecond(10), Nanos(5), Nanos(0));
        reservations.hold(BitsPerSecond(30), Nanos(9), Nanos(0));
        assert_eq!(
            (reservations.unreserved_at(Nanos(0)), reservations.unreserved_at(Nanos(5))),
            (BitsPerSecond(20), BitsPerSecond(30))
        );
        reservations.release_held(BitsPerSecond(35), Nanos(0));
        assert_eq!(reservations.unreserved(Nanos(0)), BitsPerSecond(35));
        reservations.release_held(BitsPerSecond(35), Nanos(0));
        assert_eq!(reservations.unreserved(Nanos(0)), BitsPerSecond(35));
        assert_eq!(reservations.unreserved(Nanos(9)), BitsPerSecond(60));
    }

    #[test]
    fn a_rate_is_held_while_its_channel_is_ahead_of_its_clock() {
        let mut reservations = LinkReservations::new(BitsPerSecond(100), 1);
        let exchange = |reservations: &mut LinkReservations, from, to, now| {
            reservations.exchange(BitsPerSecond(from), BitsPerSecond(to), Nanos(now))
        };
        assert_eq!(exchange(&mut reservations, 0, 70, 0), Ok(()));
        assert_eq!(exchange(&mut reservations, 70, 20, 0), Ok(()));
        reservations.hold(BitsPerSecond(50), Nanos(10), Nanos(0));
        let refused = ChannelRefused::OverReserved {
            wanted: BitsPerSecond(40),
            unreserved: BitsPerSecond(30),
            held: BitsPerSecond(50),
            until: Nanos(10),
        };
        assert_eq!(exchange(&mut reservations, 0, 40, 9), Err(refused));
        assert_eq!(exchange(&mut reservations, 0, 40, 10), Ok(()));
        assert_eq!(exchange(&mut reservations, 60, 20, 10), Ok(()));
        for until in [20, 30] {
            reservations.hold(BitsPerSecond(20), Nanos(until), Nanos(10));
        }
        assert_eq!(
            reservations.unreserved(Nanos(29)),
            BitsPerSecond(40),
            "with no room for two holds, both last as long as the longer one"
        );
        assert_eq!(reservations.unreserved(Nanos(30)), BitsPerSecond(80));
    }
}
