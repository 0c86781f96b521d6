//! The range domain: lower and upper bounds of a value, unsigned, signed, and by the packet's length.

use crate::Linear;

/// The width of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BitWidth {
    /// `i32`.
    W32,
    /// `i64`.
    W64,
    /// Floats, vectors and references. Their values are not tracked.
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

    /// An integer modulo 2^bits, as an unsigned number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "wrapping is intended")]
    pub(crate) const fn wrap(self, value: i128) -> u64 {
        match self {
            Self::W32 => value as u32 as u64,
            Self::W64 | Self::Other => value as u64,
        }
    }

    /// An integer modulo 2^bits, as a signed number.
    #[expect(clippy::cast_possible_truncation, reason = "wrapping is intended")]
    pub(crate) const fn wrap_signed(self, value: i128) -> i64 {
        match self {
            Self::W32 => value as i32 as i64,
            Self::W64 | Self::Other => value as i64,
        }
    }
}

/// Bounds of a value as an unsigned and as a signed number. Both hold at once, so one can tighten the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    /// The smallest unsigned value.
    pub(crate) lo: u64,
    /// The largest unsigned value.
    pub(crate) hi: u64,
    /// The smallest signed value.
    pub(crate) slo: i64,
    /// The largest signed value.
    pub(crate) shi: i64,
    /// A further upper bound of the unsigned value, in terms of the packet's length.
    pub(crate) hi_by_packet_length: Option<Linear>,
}

/// The packet length, in bytes, for which two upper bounds are compared if neither is smaller for every length: about
/// that of a full Ethernet frame.
pub(crate) const USUAL_PACKET: u64 = 1500;

/// The smaller of two upper bounds, for a packet of [`USUAL_PACKET`] bytes.
pub(crate) fn smaller(a: Option<Linear>, b: Option<Linear>) -> Option<Linear> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if a.at(USUAL_PACKET) <= b.at(USUAL_PACKET) { a } else { b }),
        (one, other) => one.or(other),
    }
}

impl Range {
    /// All values of the width.
    pub(crate) const fn any(width: BitWidth) -> Self {
        let (slo, shi) = width.signed();
        Self { lo: 0, hi: width.max(), slo, shi, hi_by_packet_length: None }
    }

    /// The values from `lo` to `hi`, unsigned.
    pub(crate) fn unsigned(width: BitWidth, lo: u64, hi: u64) -> Self {
        Self { lo, hi: hi.min(width.max()), ..Self::any(width) }.tightened(width)
    }

    /// The values from `slo` to `shi`, signed.
    pub(crate) fn signed(width: BitWidth, slo: i64, shi: i64) -> Self {
        let (least, most) = width.signed();
        Self { slo: slo.max(least), shi: shi.min(most), ..Self::any(width) }.tightened(width)
    }

    /// The range of an integer from `lo` to `hi` after it has wrapped to this width.
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

    /// Tightens the unsigned bounds by the signed ones, and the reverse.
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "guarded by the comparisons")]
    pub(crate) fn tightened(mut self, width: BitWidth) -> Self {
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

    /// The intersection of two ranges.
    pub(crate) fn intersect(self, other: Self, width: BitWidth) -> Self {
        Self {
            lo: self.lo.max(other.lo),
            hi: self.hi.min(other.hi),
            slo: self.slo.max(other.slo),
            shi: self.shi.min(other.shi),
            hi_by_packet_length: smaller(self.hi_by_packet_length, other.hi_by_packet_length),
        }
        .tightened(width)
    }

    /// The smallest range that contains both.
    pub(crate) fn join(self, other: Self) -> Self {
        // The union has a bound by length only if both ranges have one, or if the other range's upper bound is small.
        let joined = |a: &Self, b: &Self| match (a.hi_by_packet_length, b.hi_by_packet_length) {
            (Some(x), Some(y)) => Some(x.join(y)),
            (Some(x), None) if b.hi < 1 << 16 => Some(x.join(Linear::constant(b.hi))),
            _ => None,
        };
        Self {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
            slo: self.slo.min(other.slo),
            shi: self.shi.max(other.shi),
            hi_by_packet_length: joined(&self, &other).or_else(|| joined(&other, &self)),
        }
    }

    /// Returns true if every value of this range lies in the other one.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        let is_inside = other.lo <= self.lo && self.hi <= other.hi;
        is_inside
            && other.slo <= self.slo
            && self.shi <= other.shi
            && (other.hi_by_packet_length.is_none() || other.hi_by_packet_length == self.hi_by_packet_length)
    }

    /// Returns true if no value is in the range, so that the code where it holds is unreachable.
    pub(crate) const fn is_empty(&self) -> bool {
        self.lo > self.hi || self.slo > self.shi
    }

    /// The value, if the range has exactly one.
    pub(crate) const fn single_value(&self) -> Option<u64> {
        if self.lo == self.hi { Some(self.lo) } else { None }
    }

    /// The upper bound of the unsigned value: the bound by the packet's length if there is one, unless the constant
    /// bound is small.
    pub(crate) fn upper_bound(&self) -> Linear {
        match self.hi_by_packet_length {
            Some(bound) if self.hi > CONSTANT_PREFERRED_MAX => bound,
            _ => Linear::constant(self.hi),
        }
    }

    /// The range after an unsigned shift to the right by this many bits.
    pub(crate) fn shifted(&self, width: BitWidth, bits: u32) -> Self {
        let bits = bits.min(63);
        let mut range = Self::unsigned(width, self.lo >> bits, self.hi >> bits);
        range.hi_by_packet_length = self.hi_by_packet_length.map(|bound| bound.divided(1 << bits));
        range
    }

    /// The range after a bitwise AND with a constant mask.
    pub(crate) fn masked(&self, width: BitWidth, mask: u64) -> Self {
        if let Some(only) = self.single_value() {
            return Self::unsigned(width, only & mask, only & mask);
        }
        if self.hi <= mask && (mask & mask.wrapping_add(1)) == 0 {
            // The mask keeps all bits.
            return Self {
                hi_by_packet_length: self.hi_by_packet_length,
                ..Self::unsigned(width, self.lo, self.hi)
            };
        }
        let mut range = Self::unsigned(width, 0, self.hi.min(mask));
        // A mask that clears only the lowest bits rounds down, which keeps the order of values.
        if rounds_down(mask, self.hi) {
            range = Self::unsigned(width, self.lo & mask, self.hi & mask);
        }
        range.hi_by_packet_length = self.hi_by_packet_length;
        range
    }

    /// The range of a value that is a multiple of `2^trailing_zeros`. Both ends are rounded inwards to multiples; the
    /// result is empty if the range contains no multiple.
    pub(crate) fn aligned(mut self, width: BitWidth, trailing_zeros: u8) -> Self {
        if trailing_zeros == 0 || self.is_empty() {
            return self;
        }
        let low = (1u64 << u32::from(trailing_zeros).min(width.bits() - 1)) - 1;
        let signed = low.cast_signed();
        let (Some(lo), Some(slo)) = (self.lo.checked_add(low), self.slo.checked_add(signed)) else {
            // The next multiple does not fit into 64 bits.
            (self.lo, self.hi) = (1, 0);
            return self;
        };
        (self.lo, self.hi) = (lo & !low, self.hi & !low);
        (self.slo, self.shi) = (slo & !signed, self.shi & !signed);
        self.tightened(width)
    }

    /// The narrower of the unsigned and the signed bounds. A sum may use either, because the unsigned and the signed
    /// value are congruent modulo 2^bits.
    pub(crate) fn narrower_interval(&self) -> (i128, i128) {
        let unsigned = i128::from(self.hi) - i128::from(self.lo);
        let signed = i128::from(self.shi) - i128::from(self.slo);
        if signed < unsigned { (self.slo.into(), self.shi.into()) } else { (self.lo.into(), self.hi.into()) }
    }
}

/// A mask of all bits up to the highest set bit of `value`.
pub(crate) fn low_mask(value: u64) -> u64 {
    if value == 0 { 0 } else { u64::MAX >> value.leading_zeros() }
}

/// Returns true if a mask clears only the lowest bits of all values up to `most`.
pub(crate) fn rounds_down(mask: u64, most: u64) -> bool {
    let lowest = (1u64 << mask.trailing_zeros().min(63)) - 1;
    let all = low_mask(most);
    (mask | lowest) & all == all
}

/// The largest constant upper bound that is preferred to a bound by the packet's length.
const CONSTANT_PREFERRED_MAX: u64 = 2048;

/// A range without one value. Only an end of the range can be excluded; another value stays in it.
pub(crate) fn excluding(range: Range, value: u64, width: BitWidth) -> Range {
    let mut now = range;
    if now.lo == value && now.lo < width.max() {
        now.lo += 1;
    }
    if now.hi == value && now.hi > 0 {
        now.hi -= 1;
    }
    if range.single_value() == Some(value) {
        // No value remains.
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
    now.tightened(width)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks ranges around all numbers where values of a width wrap: every multiple in a range stays in it, and the
    /// new ends are multiples.
    #[test]
    fn rounding_inwards_loses_no_multiple() {
        for width in [BitWidth::W32, BitWidth::W64] {
            let (least, most) = width.signed();
            let middles = [0, i128::from(most), i128::from(least), -1, i128::from(width.max()) - 9];
            for (middle, from, len, trailing_zeros) in middles
                .into_iter()
                .flat_map(|middle| (-9..9).map(move |from| (middle, from)))
                .flat_map(|(middle, from)| (0..12).map(move |len| (middle, from, len)))
                .flat_map(|(middle, from, len)| {
                    [0u8, 1, 2, 3, 64].map(|trailing_zeros| (middle, from, len, trailing_zeros))
                })
            {
                let known = Range::integer(width, middle + from, middle + from + len);
                let now = known.aligned(width, trailing_zeros);
                let step = 1i128 << u32::from(trailing_zeros).min(width.bits());
                for value in (0..=len).map(|more| width.wrap(middle + from + more)) {
                    let signed = width.wrap_signed(value.into());
                    let is_in = |range: &Range| {
                        (range.lo..=range.hi).contains(&value) && (range.slo..=range.shi).contains(&signed)
                    };
                    assert!(is_in(&known));
                    assert!(
                        i128::from(value) % step != 0 || is_in(&now),
                        "{value}: {known:?}, {now:?}, {trailing_zeros}"
                    );
                }
                let is_multiple = |end: i128| end % step.min(width.modulus() / 2) == 0;
                if !now.is_empty() {
                    let ends = [now.lo.into(), now.hi.into(), now.slo.into(), now.shi.into()];
                    assert!(ends.into_iter().all(is_multiple), "{known:?}, {now:?}, {trailing_zeros}");
                }
            }
        }
    }
}
