//! The abstract domain: what is known about a 64-bit register.

/// The width of an integer operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    W8,
    W16,
    W32,
    W64,
}

impl Width {
    pub(crate) const fn of_bytes(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::W8),
            2 => Some(Self::W16),
            4 => Some(Self::W32),
            8 => Some(Self::W64),
            _ => None,
        }
    }

    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::W8 => 8,
            Self::W16 => 16,
            Self::W32 => 32,
            Self::W64 => 64,
        }
    }

    /// The largest unsigned number of this width.
    const fn max(self) -> i128 {
        (1 << self.bits()) - 1
    }
}

/// The term of a value that is a constant of the run, but not known to the verifier.
///
/// A word rather than an enum, so that values are copied as three words without partial stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressBase(u64);

impl AddressBase {
    /// No such term: the value is a number.
    pub(crate) const ZERO: Self = Self(0);
    /// The stack pointer at entry.
    pub(crate) const STACK: Self = Self(1);
    /// The address of the code image.
    pub(crate) const IMAGE: Self = Self(2);

    /// The entry value of a callee-saved register, by its number.
    pub(crate) const fn entry(register: u8) -> Self {
        Self(16 + register as u64)
    }
}

/// A set of 64-bit values: base + x for each x from `lo` to `hi`, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) base: AddressBase,
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

/// The largest unsigned 32-bit number.
const WORD_MAX: i64 = u32::MAX as i64;

impl Value {
    /// Every 64-bit value.
    pub(crate) const TOP: Self = Self { base: AddressBase::ZERO, lo: i64::MIN, hi: i64::MAX };

    pub(crate) const fn exact(base: AddressBase, offset: i64) -> Self {
        Self { base, lo: offset, hi: offset }
    }

    /// Every value of this width, zero-extended.
    pub(crate) const fn any(width: Width) -> Self {
        match width {
            Width::W8 => Self { base: AddressBase::ZERO, lo: 0, hi: 0xff },
            Width::W16 => Self { base: AddressBase::ZERO, lo: 0, hi: 0xffff },
            Width::W32 => Self { base: AddressBase::ZERO, lo: 0, hi: WORD_MAX },
            Width::W64 => Self::TOP,
        }
    }

    /// The numbers from `lo` to `hi`, reduced to this width: zero-extended up to 32 bits, signed at 64.
    #[inline]
    pub(crate) fn number(lo: i128, hi: i128, width: Width) -> Self {
        if width == Width::W64 || (lo >= 0 && hi <= width.max()) {
            return Self::new(AddressBase::ZERO, lo, hi);
        }
        let bits = width.bits();
        let turn = lo >> bits;
        if turn != hi >> bits {
            return Self::any(width);
        }
        Self::new(AddressBase::ZERO, lo - (turn << bits), hi - (turn << bits))
    }

    /// Returns [`Self::TOP`] if an end does not fit.
    fn new(base: AddressBase, lo: i128, hi: i128) -> Self {
        match (i64::try_from(lo), i64::try_from(hi)) {
            (Ok(lo), Ok(hi)) => Self { base, lo, hi },
            _ => Self::TOP,
        }
    }

    /// Returns the offset of a value with this base if it is a single one.
    pub(crate) fn offset_from(self, base: AddressBase) -> Option<i64> {
        (self.base == base && self.lo == self.hi).then_some(self.lo)
    }

    pub(crate) fn is_within(self, width: Width) -> bool {
        self.base == AddressBase::ZERO && self.lo >= 0 && self.hi <= Self::any(width).hi
    }

    /// The ends of the value as a signed 64-bit number.
    #[inline]
    fn ends(self) -> (i128, i128) {
        let number = if self.base == AddressBase::ZERO { self } else { Self::TOP };
        (number.lo.into(), number.hi.into())
    }

    /// The low bits, zero-extended. At 64 bits this is the value itself.
    #[inline]
    pub(crate) fn low(self, width: Width) -> Self {
        if width == Width::W64 || self.is_within(width) {
            return self;
        }
        let (lo, hi) = self.ends();
        Self::number(lo, hi, width)
    }

    /// The ends of the low bits as a signed number of this width.
    fn signed(self, width: Width) -> (i128, i128) {
        let (lo, hi) = self.low(width).ends();
        if width == Width::W64 {
            return (lo, hi);
        }
        let half = 1 << (width.bits() - 1);
        match (lo >= half, hi >= half) {
            (false, false) => (lo, hi),
            (true, true) => (lo - 2 * half, hi - 2 * half),
            _ => (-half, half - 1),
        }
    }

    /// The ends of the low bits as an unsigned number of this width.
    fn unsigned(self, width: Width) -> (i128, i128) {
        let (lo, hi) = self.low(width).ends();
        if lo >= 0 {
            (lo, hi)
        } else if hi < 0 {
            (lo + (1 << 64), hi + (1 << 64))
        } else {
            (0, width.max())
        }
    }

    pub(crate) fn sign_extended(self, from: Width, to: Width) -> Self {
        let (lo, hi) = self.signed(from);
        Self::number(lo, hi, to)
    }

    #[inline]
    pub(crate) fn add(self, other: Self, width: Width) -> Self {
        if width != Width::W64 {
            let ((a, b), (c, d)) = (self.low(width).ends(), other.low(width).ends());
            return Self::number(a + c, b + d, width);
        }
        let base = match (self.base, other.base) {
            (base, AddressBase::ZERO) | (AddressBase::ZERO, base) => base,
            _ => return Self::TOP,
        };
        let sum = |a: i64, b: i64| i128::from(a) + i128::from(b);
        Self::new(base, sum(self.lo, other.lo), sum(self.hi, other.hi))
    }

    pub(crate) fn sub(self, other: Self, width: Width) -> Self {
        if width != Width::W64 {
            let ((a, b), (c, d)) = (self.low(width).ends(), other.low(width).ends());
            return Self::number(a - d, b - c, width);
        }
        let base = match (self.base, other.base) {
            (base, AddressBase::ZERO) => base,
            (a, b) if a == b => AddressBase::ZERO,
            _ => return Self::TOP,
        };
        let difference = |a: i64, b: i64| i128::from(a) - i128::from(b);
        Self::new(base, difference(self.lo, other.hi), difference(self.hi, other.lo))
    }

    pub(crate) fn mul(self, other: Self, width: Width) -> Self {
        let ((a, b), (c, d)) = (self.signed(width), other.signed(width));
        let products = [a * c, a * d, b * c, b * d];
        let (first, rest) = (products[0], &products[1..]);
        let (lo, hi) = rest.iter().fold((first, first), |(lo, hi), p| (lo.min(*p), hi.max(*p)));
        Self::number(lo, hi, width)
    }

    pub(crate) fn and(self, other: Self, width: Width) -> Self {
        let ((a, b), (c, d)) = (self.low(width).ends(), other.low(width).ends());
        match (a >= 0, c >= 0) {
            (true, true) => Self::number(0, b.min(d), width),
            (true, false) => Self::number(0, b, width),
            (false, true) => Self::number(0, d, width),
            (false, false) => Self::any(width),
        }
    }

    /// The bound of `or` and `xor`: neither sets a bit above the highest bit of its operands.
    pub(crate) fn or(self, other: Self, width: Width) -> Self {
        let ((a, b), (c, d)) = (self.low(width).ends(), other.low(width).ends());
        if a < 0 || c < 0 {
            return Self::any(width);
        }
        let highest = b.max(d);
        let bits = i128::BITS - highest.leading_zeros();
        Self::number(0, (1 << bits) - 1, width)
    }

    pub(crate) fn shift_left(self, count: Self, width: Width) -> Self {
        match shift_count(count, width) {
            (least, most) if least == most => {
                let (lo, hi) = self.low(width).ends();
                Self::number(lo << least, hi << least, width)
            }
            _ => Self::any(width),
        }
    }

    pub(crate) fn shift_right(self, count: Self, width: Width) -> Self {
        let (least, most) = shift_count(count, width);
        let (lo, hi) = self.unsigned(width);
        Self::number(lo >> most, hi >> least, width)
    }

    pub(crate) fn shift_right_signed(self, count: Self, width: Width) -> Self {
        let (least, most) = shift_count(count, width);
        let (lo, hi) = self.signed(width);
        // A shift moves a number towards 0 or -1.
        Self::number((lo >> least).min(lo >> most), (hi >> least).max(hi >> most), width)
    }

    /// The register after a write to its low bits that leaves the others as they are.
    pub(crate) fn with_low(self, low: Self, width: Width) -> Self {
        if self.is_within(width) {
            return low.low(width);
        }
        match self.base {
            AddressBase::ZERO if self.lo >= 0 => {
                Self { base: AddressBase::ZERO, lo: 0, hi: self.hi | Self::any(width).hi }
            }
            _ => Self::TOP,
        }
    }

    #[inline]
    pub(crate) fn join(self, other: Self) -> Self {
        if self.base != other.base {
            return Self::TOP;
        }
        Self { base: self.base, lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// Joins, and moves each end that grows to the next of few steps, so that a loop changes a value at most twice for
    /// each end.
    #[inline]
    pub(crate) fn widen(self, other: Self) -> Self {
        let joined = self.join(other);
        if joined.base != self.base || joined == self {
            return joined;
        }
        if joined.base != AddressBase::ZERO {
            return Self::TOP;
        }
        let lo = match joined.lo {
            lo if lo == self.lo => lo,
            0.. => 0,
            _ => i64::MIN,
        };
        let hi = match joined.hi {
            hi if hi == self.hi => hi,
            ..=WORD_MAX => WORD_MAX,
            _ => i64::MAX,
        };
        Self { base: AddressBase::ZERO, lo, hi }
    }
}

/// The least and the greatest number of bits that a shift by `count` moves. The CPU uses five bits of the count, or six
/// at 64 bits.
fn shift_count(count: Value, width: Width) -> (u32, u32) {
    let mask = if width == Width::W64 { 63 } else { 31 };
    let (lo, hi) = count.low(Width::W8).ends();
    match (u32::try_from(lo), u32::try_from(hi)) {
        (Ok(lo), Ok(hi)) if lo == hi => (lo & mask, lo & mask),
        (Ok(lo), Ok(hi)) if hi <= mask => (lo, hi),
        _ => (0, mask),
    }
}
