//! Upper bounds that are linear in the packet's length.

use std::fmt;

/// The bound `constant + per_kib x captured bytes / 1024`, in saturating arithmetic; [`Linear::UNBOUNDED`] where there
/// is no bound. The slope is per 1024 bytes, because a loop can process many bytes in one iteration, so that the slope
/// per byte would be a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Linear {
    /// The part that does not depend on the packet.
    pub constant: u64,
    /// The amount that each 1024 captured bytes add.
    pub per_kib: u64,
}

/// The number of bytes that [`Linear::per_kib`] refers to.
const KIB: u64 = 1024;

impl Linear {
    /// Zero.
    pub const ZERO: Self = Self::constant(0);
    /// No bound.
    pub const UNBOUNDED: Self = Self { constant: u64::MAX, per_kib: 0 };

    /// A bound that does not depend on the packet.
    pub const fn constant(constant: u64) -> Self {
        Self { constant, per_kib: 0 }
    }

    /// A bound of `amount` for each captured byte.
    pub const fn per_byte(amount: u64) -> Self {
        Self { constant: 0, per_kib: amount.saturating_mul(KIB) }
    }

    /// Returns true if there is a bound. A saturated value is no bound.
    pub const fn is_bounded(self) -> bool {
        self.constant != u64::MAX && self.per_kib != u64::MAX
    }

    /// The value for a packet with this many captured bytes; `u64::MAX` where there is no bound.
    #[expect(clippy::cast_possible_truncation, reason = "compared before")]
    pub const fn at(self, packet_bytes: u64) -> u64 {
        if self.is_bounded() {
            let slope = (self.per_kib as u128 * packet_bytes as u128).div_ceil(KIB as u128);
            if slope > u64::MAX as u128 { u64::MAX } else { self.constant.saturating_add(slope as u64) }
        } else {
            u64::MAX
        }
    }

    /// Replaces a saturated value by [`Linear::UNBOUNDED`].
    const fn unbounded_if_saturated(self) -> Self {
        if self.is_bounded() { self } else { Self::UNBOUNDED }
    }

    /// The sum of two bounds.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        if !self.is_bounded() || !other.is_bounded() {
            return Self::UNBOUNDED;
        }
        Self {
            constant: self.constant.saturating_add(other.constant),
            per_kib: self.per_kib.saturating_add(other.per_kib),
        }
        .unbounded_if_saturated()
    }

    /// A bound that is at least both bounds, for every packet length.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self { constant: self.constant.max(other.constant), per_kib: self.per_kib.max(other.per_kib) }
            .unbounded_if_saturated()
    }

    /// The bound of `times` repetitions. `packet_max` is the length of the longest packet, in bytes. Nested loops over
    /// the packet give the square of its length, which is at most `packet_max` times the length.
    #[must_use]
    pub fn times(self, times: Self, packet_max: u64) -> Self {
        if self == Self::ZERO || times == Self::ZERO {
            return Self::ZERO;
        }
        if !self.is_bounded() || !times.is_bounded() {
            return Self::UNBOUNDED;
        }
        let square = (u128::from(self.per_kib) * u128::from(times.per_kib)).checked_mul(packet_max.into());
        let square = square.and_then(|square| u64::try_from(square.div_ceil(u128::from(KIB))).ok());
        Self {
            constant: self.constant.saturating_mul(times.constant),
            per_kib: self
                .per_kib
                .saturating_mul(times.constant)
                .saturating_add(self.constant.saturating_mul(times.per_kib))
                .saturating_add(square.unwrap_or(u64::MAX)),
        }
        .unbounded_if_saturated()
    }

    /// The bound divided by `divisor`, rounded up for every packet length.
    #[must_use]
    pub fn divided(self, divisor: u64) -> Self {
        let divisor = divisor.max(1);
        if !self.is_bounded() {
            return self;
        }
        // With a slope, the two parts are rounded together, which adds less than 1.
        let more = if self.per_kib == 0 { 0 } else { divisor - 1 };
        Self {
            constant: self.constant.saturating_add(more).div_ceil(divisor),
            per_kib: self.per_kib.div_ceil(divisor),
        }
    }
}

impl fmt::Display for Linear {
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_bounded() {
            return f.write_str("unbounded");
        }
        let slope = self.per_kib as f64 / KIB as f64;
        let digits = if self.per_kib.is_multiple_of(KIB) { 0 } else { 2 };
        match self {
            Self { constant, per_kib: 0 } => write!(f, "{constant}"),
            Self { constant: 0, .. } => write!(f, "{slope:.digits$}/byte"),
            Self { constant, .. } => write!(f, "{constant} + {slope:.digits$}/byte"),
        }
    }
}
