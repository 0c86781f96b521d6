//! What is known about a value: between which numbers it lies.

use crate::Linear;

/// How many bits a value has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BitWidth {
    /// `i32`.
    W32,
    /// `i64`.
    W64,
    /// Floats, vectors, references: nothing is known about them.
    Other,
}

impl BitWidth {
    /// The largest value, unsigned.
    pub(crate) const fn max(self) -> u64 {
        match self {
            Self::W32 => u32::MAX as u64,
            Self::W64 | Self::Other => u64::MAX,
        }
    }

    /// The number of bits.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::W32 => 32,
            Self::W64 | Self::Other => 64,
        }
    }

    /// 2^bits.
    pub(crate) const fn modulus(self) -> i128 {
        1i128 << self.bits()
    }

    /// The smallest and the largest value, signed.
    pub(crate) const fn signed(self) -> (i64, i64) {
        match self {
            Self::W32 => (i32::MIN as i64, i32::MAX as i64),
            Self::W64 | Self::Other => (i64::MIN, i64::MAX),
        }
    }

    /// A number as this width keeps it, unsigned.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "that is what wrapping means"
    )]
    pub(crate) const fn wrap(self, value: i128) -> u64 {
        match self {
            Self::W32 => value as u32 as u64,
            Self::W64 | Self::Other => value as u64,
        }
    }

    /// A number as this width keeps it, signed.
    #[expect(clippy::cast_possible_truncation, reason = "that is what wrapping means")]
    pub(crate) const fn wrap_signed(self, value: i128) -> i64 {
        match self {
            Self::W32 => value as i32 as i64,
            Self::W64 | Self::Other => value as i64,
        }
    }
}

/// Bounds of a value, as unsigned and as signed number. Both hold; each is derived from the other where it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) slo: i64,
    pub(crate) shi: i64,
    /// Another upper bound of the unsigned value, in terms of the packet's length.
    pub(crate) per: Option<Linear>,
}

/// The packet length at which two upper bounds are compared where neither is always the smaller one: about an Ethernet frame.
pub(crate) const USUAL_PACKET: u64 = 1500;

/// The smaller of two upper bounds, for a usual packet.
pub(crate) fn smaller(a: Option<Linear>, b: Option<Linear>) -> Option<Linear> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.at(USUAL_PACKET) <= b.at(USUAL_PACKET) { a } else { b }),
        (one, other) => one.or(other),
    }
}

impl Range {
    /// Anything that the width allows.
    pub(crate) const fn any(width: BitWidth) -> Self {
        let (slo, shi) = width.signed();
        Self { lo: 0, hi: width.max(), slo, shi, per: None }
    }

    /// Between two unsigned numbers.
    pub(crate) fn unsigned(width: BitWidth, lo: u64, hi: u64) -> Self {
        Self { lo, hi: hi.min(width.max()), ..Self::any(width) }.derived(width)
    }

    /// Between two signed numbers.
    pub(crate) fn signed(width: BitWidth, slo: i64, shi: i64) -> Self {
        let (least, most) = width.signed();
        Self { slo: slo.max(least), shi: shi.min(most), ..Self::any(width) }.derived(width)
    }

    /// Of an integer between two numbers that is kept in this width: what is left of it if it wraps.
    pub(crate) fn integer(width: BitWidth, lo: i128, hi: i128) -> Self {
        let modulus = width.modulus();
        let any = Self::any(width);
        if hi - lo >= modulus {
            return any;
        }
        let mut range = any;
        let (ulo, uhi) = (width.wrap(lo), width.wrap(hi));
        if ulo <= uhi {
            (range.lo, range.hi) = (ulo, uhi);
        }
        let (slo, shi) = (width.wrap_signed(lo), width.wrap_signed(hi));
        if slo <= shi {
            (range.slo, range.shi) = (slo, shi);
        }
        range
    }

    /// With each pair of bounds used for the other.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "guarded by the comparisons")]
    pub(crate) fn derived(mut self, width: BitWidth) -> Self {
        let (_, most) = width.signed();
        if self.slo >= 0 {
            self.lo = self.lo.max(self.slo as u64);
            self.hi = self.hi.min(self.shi.max(0) as u64);
        }
        if self.hi <= most as u64 {
            self.slo = self.slo.max(self.lo as i64);
            self.shi = self.shi.min(self.hi as i64);
        }
        self
    }

    /// What lies in both.
    pub(crate) fn and(self, other: Self, width: BitWidth) -> Self {
        Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
            slo: self.slo.max(other.slo),
            shi: self.shi.min(other.shi),
            per: smaller(self.per, other.per),
        }
        .derived(width)
    }

    /// What lies in either.
    pub(crate) fn or(self, other: Self) -> Self {
        // A bound by the packet's length holds for both only if both have one, or the other is small.
        let joined = |a: &Self, b: &Self| match (a.per, b.per) {
            (Some(x), Some(y)) => Some(x.or(y)),
            (Some(x), None) if b.hi < 1 << 16 => Some(x.or(Linear::constant(b.hi))),
            _ => None,
        };
        Self {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
            slo: self.slo.min(other.slo),
            shi: self.shi.max(other.shi),
            per: joined(&self, &other).or_else(|| joined(&other, &self)),
        }
    }

    /// Returns true if every value of it lies in the other one.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let is_inside = other.lo <= self.lo && self.hi <= other.hi;
        is_inside
            && other.slo <= self.slo
            && self.shi <= other.shi
            && (other.per.is_none() || other.per == self.per)
    }

    /// Whether no value can have it: the place is never reached.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lo > self.hi || self.slo > self.shi
    }

    /// The only value, if there is but one.
    pub(crate) const fn only(&self) -> Option<u64> {
        if self.lo == self.hi { Some(self.lo) } else { None }
    }

    /// The upper bound: by the packet's length, unless the number is small.
    pub(crate) fn upper(&self) -> Linear {
        match self.per {
            Some(per) if self.hi > SMALL => per,
            _ => Linear::constant(self.hi),
        }
    }

    /// Shifted to the right.
    pub(crate) fn shifted(&self, width: BitWidth, by: u32) -> Self {
        let mut range = Self::unsigned(width, self.lo >> by.min(63), self.hi >> by.min(63));
        range.per = self.per.map(|per| per.divided(1 << by.min(63)));
        range
    }

    /// With a constant mask.
    pub(crate) fn masked(&self, width: BitWidth, mask: u64) -> Self {
        if let Some(only) = self.only() {
            return Self::unsigned(width, only & mask, only & mask);
        }
        if self.hi <= mask && (mask & mask.wrapping_add(1)) == 0 {
            // Nothing goes.
            return Self { per: self.per, ..Self::unsigned(width, self.lo, self.hi) };
        }
        let mut range = Self::unsigned(width, 0, self.hi.min(mask));
        // Where only lowest bits go, that rounds down, and keeps the order.
        if rounds_down(mask, self.hi) {
            range = Self::unsigned(width, self.lo & mask, self.hi & mask);
        }
        range.per = self.per;
        range
    }

    /// Of a multiple of `2^zeros`: its ends are such multiples too. Empty where none lies between them.
    pub(crate) fn aligned(mut self, width: BitWidth, zeros: u8) -> Self {
        if zeros == 0 || self.is_empty() {
            return self;
        }
        let low = (1u64 << u32::from(zeros).min(width.bits() - 1)) - 1;
        let signed = low.cast_signed();
        let (Some(lo), Some(slo)) = (self.lo.checked_add(low), self.slo.checked_add(signed)) else {
            // The next one is no number of 64 bits.
            (self.lo, self.hi) = (1, 0);
            return self;
        };
        (self.lo, self.hi) = (lo & !low, self.hi & !low);
        (self.slo, self.shi) = (slo & !signed, self.shi & !signed);
        self.derived(width)
    }

    /// The integer that is congruent to the value and lies in the narrower of the two ranges.
    pub(crate) fn narrower(&self) -> (i128, i128) {
        let unsigned = i128::from(self.hi) - i128::from(self.lo);
        let signed = i128::from(self.shi) - i128::from(self.slo);
        if signed < unsigned { (self.slo.into(), self.shi.into()) } else { (self.lo.into(), self.hi.into()) }
    }
}

/// All bits up to the highest one that is set.
pub(crate) fn filled(value: u64) -> u64 {
    if value == 0 { 0 } else { u64::MAX >> value.leading_zeros() }
}

/// Whether a mask takes nothing but lowest bits from values up to this one.
pub(crate) fn rounds_down(mask: u64, most: u64) -> bool {
    let lowest = (1u64 << mask.trailing_zeros().min(63)) - 1;
    let all = filled(most);
    (mask | lowest) & all == all
}

/// An upper bound that is no larger is used as it is, even where there is one by the packet's length.
const SMALL: u64 = 2048;

/// A range without a value, where that is one of its ends.
pub(crate) fn without(range: Range, value: u64, width: BitWidth) -> Range {
    let mut now = range;
    if now.lo == value && now.lo < width.max() {
        now.lo += 1;
    }
    if now.hi == value && now.hi > 0 {
        now.hi -= 1;
    }
    if range.only() == Some(value) {
        // Nothing is left.
        (now.lo, now.hi) = (1, 0);
        return now;
    }
    let signed = width.wrap_signed(value.into());
    if now.slo == signed && signed < width.signed().1 {
        now.slo += 1;
    }
    if now.shi == signed && signed > width.signed().0 {
        now.shi -= 1;
    }
    now.derived(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number that is a multiple stays, and so do the ends, for ranges around all places where a width wraps.
    #[test]
    fn rounding_inwards_loses_no_multiple() {
        for width in [BitWidth::W32, BitWidth::W64] {
            let (least, most) = width.signed();
            let middles = [0, i128::from(most), i128::from(least), -1, i128::from(width.max()) - 9];
            for (middle, from, len, zeros) in middles
                .into_iter()
                .flat_map(|middle| (-9..9).map(move |from| (middle, from)))
                .flat_map(|(middle, from)| (0..12).map(move |len| (middle, from, len)))
                .flat_map(|(middle, from, len)| [0u8, 1, 2, 3, 64].map(|zeros| (middle, from, len, zeros)))
            {
                let known = Range::integer(width, middle + from, middle + from + len);
                let now = known.aligned(width, zeros);
                let step = 1i128 << u32::from(zeros).min(width.bits());
                for value in (0..=len).map(|more| width.wrap(middle + from + more)) {
                    let signed = width.wrap_signed(value.into());
                    let is_in = |range: &Range| {
                        (range.lo..=range.hi).contains(&value) && (range.slo..=range.shi).contains(&signed)
                    };
                    assert!(is_in(&known));
                    assert!(
                        i128::from(value) % step != 0 || is_in(&now),
                        "{value}: {known:?}, {now:?}, {zeros}"
                    );
                }
                let is_multiple = |end: i128| end % step.min(width.modulus() / 2) == 0;
                if !now.is_empty() {
                    let ends = [now.lo.into(), now.hi.into(), now.slo.into(), now.shi.into()];
                    assert!(ends.into_iter().all(is_multiple), "{known:?}, {now:?}, {zeros}");
                }
            }
        }
    }
}
