//! What of a link is promised to whom.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_units::{BitsPerSecond, Nanos, beside};

/// Why a link cannot be set up so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkConfigError {
    /// The rate is zero, or over 2^60.
    #[error("a link has a rate of more than zero and at most 2^60 bit/s")]
    NoRate,
    /// More could be reserved than there is.
    #[error("{reservable} cannot be reserved on a link of {rate}")]
    ReservableOverRate {
        /// What was to be reservable.
        reservable: BitsPerSecond,
        /// The link's rate.
        rate: BitsPerSecond,
    },
    /// The longest frame, with framing, is too long.
    #[error("frames of {given} bytes on the wire are longer than {most}")]
    FrameTooLong {
        /// The longest frame on the wire.
        given: u32,
        /// What it may be.
        most: u32,
    },
    /// No channels, or too many.
    #[error("a link has 1 to {most} channels, not {given}")]
    Channels {
        /// How many there were to be.
        given: u32,
        /// How many there may be.
        most: u32,
    },
}

/// Why a channel is not opened or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelRefused {
    /// The link has not as much left.
    #[error(
        "{wanted} more is to be reserved, {left} is left; {held} of closed or lowered reservations comes back by {until}",
        wanted = beside(*wanted, &[*left]), left = beside(*left, &[*wanted])
    )]
    OverReserved {
        /// What would be reserved beyond what the channel has.
        wanted: BitsPerSecond,
        /// What is left.
        left: BitsPerSecond,
        /// What comes back, as channels that are closed or were lowered have sent ahead of their clocks.
        held: BitsPerSecond,
        /// When all of it is back, on the caller's clock.
        until: Nanos,
    },
    /// As many channels are open as the link has.
    #[error("all {most} channels of the link are open")]
    TooManyChannels {
        /// How many there are.
        most: u32,
    },
    /// The channel is closed, or never was open.
    #[error("there is no such channel")]
    NoSuchChannel,
    /// The guarantee could not be kept.
    #[error("a cap of {cap} is under the reservation of {reserved}", cap = beside(*cap, &[*reserved]), reserved = beside(*reserved, &[*cap]))]
    CapUnderReservation {
        /// What is to be reserved.
        reserved: BitsPerSecond,
        /// The cap.
        cap: BitsPerSecond,
    },
    /// It would never send.
    #[error("a channel without a reservation has to have a weight")]
    NeitherReservationNorWeight,
}

/// Why a link does not get another rate. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateRefused {
    /// No link can have it.
    #[error(transparent)]
    Config(#[from] LinkConfigError),
    /// More is promised than could be reserved then.
    #[error(
        "only {reservable} could be reserved then, and {reserved} is; {held} of closed or lowered reservations is taken too, until {until}",
        reservable = beside(*reservable, &[*reserved]), reserved = beside(*reserved, &[*reservable])
    )]
    Promised {
        /// What could be reserved.
        reservable: BitsPerSecond,
        /// What is reserved.
        reserved: BitsPerSecond,
        /// What comes back, as channels that are closed or were lowered have sent ahead of their clocks.
        held: BitsPerSecond,
        /// When all of it is back, on the caller's clock.
        until: Nanos,
    },
}

/// What is reserved of a link.
///
/// A channel may have sent ahead of its clock: by its burst, in the time of others who were not in a hurry, which the clock pays back
/// later. If it is closed or lowered before it has, its rate stays taken until then; else a channel that is opened and closed in a loop
/// would get a burst each time, and the guarantees of others would pay for it.
#[derive(Debug)]
pub struct LinkReservations {
    reservable: u64,
    reserved: u64,
    held: u64,
    /// Until when how much is held, the earliest first.
    holds: BinaryHeap<Reverse<(Nanos, u64)>>,
    holds_max: usize,
    /// When the last is over.
    until: Nanos,
}

impl LinkReservations {
    /// For a link of which `reservable` can be promised, with room for as many holds as it has channels.
    pub fn new(reservable: BitsPerSecond, holds_max: usize) -> LinkReservations {
        let holds = BinaryHeap::with_capacity(holds_max);
        LinkReservations { reservable: reservable.0, reserved: 0, held: 0, holds, holds_max, until: Nanos(0) }
    }

    /// What nobody has.
    pub fn left(&mut self, now: Nanos) -> BitsPerSecond {
        while let Some(Reverse((until, rate))) = self.holds.peek().copied()
            && until <= now
        {
            self.holds.pop();
            self.held -= rate;
        }
        BitsPerSecond(self.reservable - self.reserved - self.held)
    }

    /// The same, for those who only look.
    pub fn left_at(&self, now: Nanos) -> BitsPerSecond {
        let held =
            self.holds.iter().filter(|Reverse((until, _))| *until > now).map(|Reverse((_, rate))| rate);
        BitsPerSecond(self.reservable.saturating_sub(self.reserved).saturating_sub(held.sum()))
    }

    /// Holds no more than leaves so much, if there is as much beside what is reserved. For an operator's change that gives out at once what some channels give up: those that sent
    /// ahead of their clocks had that time, once. A holder cannot repeat that.
    pub fn forgive(&mut self, wanted: BitsPerSecond, now: Nanos) {
        while self.left(now) < wanted
            && let Some(Reverse((until, rate))) = self.holds.pop()
        {
            self.held -= rate;
            let more = self.left(now).0.saturating_sub(wanted.0).min(rate);
            if more > 0 {
                self.held += more;
                self.holds.push(Reverse((until, more)));
            }
        }
    }

    /// What channels have.
    pub fn reserved(&self) -> BitsPerSecond {
        BitsPerSecond(self.reserved)
    }

    /// Promises no more than `reservable` from now on, if not more is promised, or held, already.
    pub fn resize(&mut self, reservable: BitsPerSecond, now: Nanos) -> Result<(), RateRefused> {
        self.left(now);
        if self.reserved + self.held > reservable.0 {
            return Err(RateRefused::Promised {
                reservable,
                reserved: BitsPerSecond(self.reserved),
                held: BitsPerSecond(self.held),
                until: if self.held > 0 { self.until } else { now },
            });
        }
        self.reservable = reservable.0;
        Ok(())
    }

    /// Takes `to` instead of `from`, if there is as much. What is lowered has to be held by [`LinkReservations::hold`] as long as its clock is ahead.
    pub fn exchange(
        &mut self,
        from: BitsPerSecond,
        to: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), ChannelRefused> {
        let left = self.left(now);
        if to.0 > from.0 && to.0 - from.0 > left.0 {
            return Err(ChannelRefused::OverReserved {
                wanted: BitsPerSecond(to.0 - from.0),
                left,
                held: BitsPerSecond(self.held),
                until: if self.held > 0 { self.until } else { now },
            });
        }
        self.reserved = self.reserved - from.0 + to.0;
        Ok(())
    }

    /// Keeps a rate that was just given back until `until`.
    pub fn hold(&mut self, rate: BitsPerSecond, until: Nanos, now: Nanos) {
        if until <= now || rate.0 == 0 {
            return;
        }
        self.held += rate.0;
        self.until = self.until.max(until);
        let mut entry = (until, rate.0);
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
    fn no_more_is_forgiven_than_is_wanted() {
        let mut ledger = LinkReservations::new(BitsPerSecond(100), 8);
        assert_eq!(ledger.exchange(BitsPerSecond(0), BitsPerSecond(40), Nanos(0)), Ok(()));
        ledger.hold(BitsPerSecond(10), Nanos(5), Nanos(0));
        ledger.hold(BitsPerSecond(30), Nanos(9), Nanos(0));
        assert_eq!(
            (ledger.left_at(Nanos(0)), ledger.left_at(Nanos(5))),
            (BitsPerSecond(20), BitsPerSecond(30))
        );
        ledger.forgive(BitsPerSecond(35), Nanos(0));
        assert_eq!(ledger.left(Nanos(0)), BitsPerSecond(35));
        ledger.forgive(BitsPerSecond(35), Nanos(0));
        assert_eq!(ledger.left(Nanos(0)), BitsPerSecond(35));
        assert_eq!(ledger.left(Nanos(9)), BitsPerSecond(60));
    }

    #[test]
    fn what_was_sent_ahead_is_held() {
        let mut ledger = LinkReservations::new(BitsPerSecond(100), 1);
        let exchange = |ledger: &mut LinkReservations, from, to, now| {
            ledger.exchange(BitsPerSecond(from), BitsPerSecond(to), Nanos(now))
        };
        assert_eq!(exchange(&mut ledger, 0, 70, 0), Ok(()));
        assert_eq!(exchange(&mut ledger, 70, 20, 0), Ok(()));
        ledger.hold(BitsPerSecond(50), Nanos(10), Nanos(0));
        let refused = ChannelRefused::OverReserved {
            wanted: BitsPerSecond(40),
            left: BitsPerSecond(30),
            held: BitsPerSecond(50),
            until: Nanos(10),
        };
        assert_eq!(exchange(&mut ledger, 0, 40, 9), Err(refused));
        assert_eq!(exchange(&mut ledger, 0, 40, 10), Ok(()));
        assert_eq!(exchange(&mut ledger, 60, 20, 10), Ok(()));
        for until in [20, 30] {
            ledger.hold(BitsPerSecond(20), Nanos(until), Nanos(10));
        }
        assert_eq!(
            ledger.left(Nanos(29)),
            BitsPerSecond(40),
            "with no room for two holds, both last as long as the longer one"
        );
        assert_eq!(ledger.left(Nanos(30)), BitsPerSecond(80));
    }
}
