//! Upper bounds that grow with the packet's length.

use std::fmt;

/// `constant + per_byte x captured bytes of the packet`, saturating; [`Linear::UNBOUNDED`] where there is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Linear {
    /// What does not depend on the packet.
    pub constant: u64,
    /// What each captured byte of the packet adds.
    pub per_byte: u64,
}

impl Linear {
    /// Nothing.
    pub const ZERO: Self = Self::constant(0);
    /// More than anything.
    pub const UNBOUNDED: Self = Self { constant: u64::MAX, per_byte: 0 };

    /// A bound that does not depend on the packet.
    pub const fn constant(constant: u64) -> Self {
        Self { constant, per_byte: 0 }
    }

    /// Whether it is a bound at all. What saturates counts as none.
    pub const fn is_bounded(self) -> bool {
        self.constant != u64::MAX && self.per_byte != u64::MAX
    }

    /// Its value for a packet with so many captured bytes; `u64::MAX` where there is no bound.
    pub const fn at(self, packet_bytes: u64) -> u64 {
        if self.is_bounded() {
            self.constant.saturating_add(self.per_byte.saturating_mul(packet_bytes))
        } else {
            u64::MAX
        }
    }

    fn checked(self) -> Self {
        if self.is_bounded() { self } else { Self::UNBOUNDED }
    }

    /// Both, one after the other.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        if !self.is_bounded() || !other.is_bounded() {
            return Self::UNBOUNDED;
        }
        Self {
            constant: self.constant.saturating_add(other.constant),
            per_byte: self.per_byte.saturating_add(other.per_byte),
        }
    }

    /// Either: at least as much as each for every length.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { constant: self.constant.max(other.constant), per_byte: self.per_byte.max(other.per_byte) }
            .checked()
    }

    /// So many times, where packets have at most `packet_max` bytes. The square of the length, which a loop in a loop gives, becomes a
    /// multiple of the length.
    #[must_use]
    pub fn times(self, times: Self, packet_max: u64) -> Self {
        if self == Self::ZERO || times == Self::ZERO {
            return Self::ZERO;
        }
        if !self.is_bounded() || !times.is_bounded() {
            return Self::UNBOUNDED;
        }
        let square = self.per_byte.saturating_mul(times.per_byte).saturating_mul(packet_max);
        Self {
            constant: self.constant.saturating_mul(times.constant),
            per_byte: self
                .per_byte
                .saturating_mul(times.constant)
                .saturating_add(self.constant.saturating_mul(times.per_byte))
                .saturating_add(square),
        }
        .checked()
    }
}

impl fmt::Display for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            _ if !self.is_bounded() => f.write_str("unbounded"),
            Self { constant, per_byte: 0 } => write!(f, "{constant}"),
            Self { constant: 0, per_byte } => write!(f, "{per_byte}/byte"),
            Self { constant, per_byte } => write!(f, "{constant} + {per_byte}/byte"),
        }
    }
}
