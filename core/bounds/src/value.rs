//! The values of a function, as expressions over what it is given.
//!
//! A value is made when its instruction is met, under what is known there; its range holds wherever it is used afterwards, because every use
//! comes after. A loop's body is walked anew where more has become known about its counters, and makes new values.

use crate::Linear;
use crate::facts::FactId;
use crate::range::{BitWidth, Range};
use std::collections::HashMap;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BoundValueId(pub(crate) u32);

/// Comparisons, of which the others are the reverse or the opposite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    LtU,
    LeU,
    LtS,
    LeS,
}

/// How a value came about, as far as it matters.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Anything within its range.
    Opaque,
    /// `sum of coefficient x value + constant`, wrapping. A constant has no terms. Values in terms are never sums themselves.
    Sum(LinearSum),
    /// The address of the packet's descriptor, or of the first one of a batch.
    Descriptor,
    /// A field of the packet's descriptor, by offset and bytes: the same each time it is read.
    Field(u32, u8),
    /// How far a counter of a loop has come; or a local that the loop changes in another way.
    Phi,
    /// One of these, by which way the place was reached; and what is known on that way.
    Join(Vec<(BoundValueId, FactId)>),
    /// `x & (x - 1)`.
    ClearLowest(BoundValueId),
    And(BoundValueId, BoundValueId),
    /// `x >> constant`, unsigned.
    Shift(BoundValueId, u8),
    Or(BoundValueId, BoundValueId),
    /// A comparison: 1 or 0.
    Compare(Cmp, BoundValueId, BoundValueId),
    /// `i64.extend_i32_u`.
    Extend(BoundValueId),
    /// `i32.wrap_i64`.
    Wrap(BoundValueId),
}

/// A sum of values with coefficients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinearSum {
    /// In the order of the values, no coefficient 0.
    pub(crate) terms: Vec<(BoundValueId, i64)>,
    pub(crate) constant: i64,
}

/// Terms that a sum has at most; a longer one is kept as anything within its range.
const TERMS_MAX: usize = 6;

impl LinearSum {
    pub(crate) fn coefficient(&self, of: BoundValueId) -> i64 {
        self.terms.iter().find(|(id, _)| *id == of).map_or(0, |(_, coefficient)| *coefficient)
    }
}

/// What a value depends on: bits.
pub(crate) mod from {
    pub(crate) const PACKET_LENGTH: u8 = 1;
    pub(crate) const HEADER_LENGTH: u8 = 2;
    pub(crate) const CONFIGURATION_LENGTH: u8 = 4;
    pub(crate) const CONFIGURATION_VALUE: u8 = 8;
    pub(crate) const HEADER_FIELD: u8 = 16;
    /// An address in the packet: what is loaded from there is a field.
    pub(crate) const PACKET_ADDRESS: u8 = 32;
}

#[derive(Clone, Debug)]
pub(crate) struct ValueNode {
    pub(crate) op: Op,
    pub(crate) width: BitWidth,
    pub(crate) range: Range,
    /// Lowest bits that are known to be 0.
    pub(crate) zeros: u8,
    /// Bits of [`from`].
    pub(crate) from: u8,
    /// Which merge of ways made this join, so that more ways can be added to it.
    pub(crate) owner: u32,
}

/// All values of an analysis.
#[derive(Debug)]
pub(crate) struct ValueTable {
    nodes: Vec<ValueNode>,
    /// The last value that was made of one with a constant mask.
    masked: HashMap<(BoundValueId, i64), BoundValueId>,
}

impl Default for ValueTable {
    fn default() -> Self {
        let mut values = Self { nodes: Vec::new(), masked: HashMap::new() };
        for width in [BitWidth::W32, BitWidth::W64] {
            values.constant(width, 0);
        }
        values
    }
}

impl ValueTable {
    /// The value 0.
    pub(crate) fn zero(width: BitWidth) -> BoundValueId {
        BoundValueId(u32::from(width != BitWidth::W32))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn next(&self) -> BoundValueId {
        BoundValueId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX))
    }

    #[inline]
    pub(crate) fn node(&self, id: BoundValueId) -> &ValueNode {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn node_mut(&mut self, id: BoundValueId) -> &mut ValueNode {
        &mut self.nodes[id.0 as usize]
    }

    pub(crate) fn range(&self, id: BoundValueId) -> Range {
        self.node(id).range
    }

    pub(crate) fn width(&self, id: BoundValueId) -> BitWidth {
        self.node(id).width
    }

    pub(crate) fn add(&mut self, op: Op, width: BitWidth, range: Range, from: u8) -> BoundValueId {
        let id = self.next();
        let zeros = range.only().map_or(0, |value| trailing(value, width));
        self.nodes.push(ValueNode { op, width, range, zeros, from, owner: 0 });
        id
    }

    /// The value that was made with the same mask before, if no more was known of it than is known here: so that what is learnt of one is known of both.
    pub(crate) fn masked_before(
        &self,
        mask: (BoundValueId, i64),
        range: Range,
        zeros: u8,
        from: u8,
    ) -> Option<BoundValueId> {
        let id = *self.masked.get(&mask)?;
        let node = self.node(id);
        let zeros = zeros.max(range.only().map_or(0, |value| trailing(value, node.width)));
        (node.range == range && node.zeros == zeros && node.from == from).then_some(id)
    }

    pub(crate) fn remember_masked(&mut self, mask: (BoundValueId, i64), id: BoundValueId) {
        self.masked.insert(mask, id);
    }

    pub(crate) fn constant(&mut self, width: BitWidth, value: i64) -> BoundValueId {
        let value = width.wrap_signed(value.into());
        let sum = LinearSum { terms: Vec::new(), constant: value };
        self.add(Op::Sum(sum), width, Range::integer(width, value.into(), value.into()), 0)
    }

    /// Anything of a width.
    pub(crate) fn any(&mut self, width: BitWidth) -> BoundValueId {
        self.add(Op::Opaque, width, Range::any(width), 0)
    }

    /// A value as a sum; itself, once, if it is none.
    pub(crate) fn sum(&self, id: BoundValueId) -> LinearSum {
        match &self.node(id).op {
            Op::Sum(sum) => sum.clone(),
            _ => LinearSum { terms: vec![(id, 1)], constant: 0 },
        }
    }

    /// The constant that a value is.
    pub(crate) fn as_constant(&self, id: BoundValueId) -> Option<i64> {
        match &self.node(id).op {
            Op::Sum(sum) if sum.terms.is_empty() => Some(sum.constant),
            _ => None,
        }
    }

    /// `a x left + b x right`, wrapping.
    pub(crate) fn combined(
        width: BitWidth,
        left: &LinearSum,
        a: i64,
        right: &LinearSum,
        b: i64,
    ) -> LinearSum {
        let scale = |value: i64, by: i64| i128::from(value).wrapping_mul(by.into());
        let wrap = |value: i128| width.wrap_signed(value);
        let mut terms: Vec<(BoundValueId, i64)> = Vec::with_capacity(left.terms.len() + right.terms.len());
        let (mut i, mut j) = (0, 0);
        while i < left.terms.len() || j < right.terms.len() {
            let next = match (left.terms.get(i), right.terms.get(j)) {
                (Some(x), Some(y)) if x.0 == y.0 => {
                    (i, j) = (i + 1, j + 1);
                    (x.0, scale(x.1, a) + scale(y.1, b))
                }
                (Some(x), y) if y.is_none_or(|y| x.0 < y.0) => {
                    i += 1;
                    (x.0, scale(x.1, a))
                }
                (_, Some(y)) => {
                    j += 1;
                    (y.0, scale(y.1, b))
                }
                _ => break,
            };
            if wrap(next.1) != 0 {
                terms.push((next.0, wrap(next.1)));
            }
        }
        LinearSum { terms, constant: wrap(scale(left.constant, a) + scale(right.constant, b)) }
    }

    /// The difference `left - right`.
    pub(crate) fn difference(&self, left: BoundValueId, right: BoundValueId) -> LinearSum {
        Self::combined(self.width(left), &self.sum(left), 1, &self.sum(right), -1)
    }

    /// Between which integers a sum lies, before wrapping, if its values have these ranges.
    pub(crate) fn interval(&self, sum: &LinearSum, range: impl Fn(BoundValueId) -> Range) -> (i128, i128) {
        // Far beyond every width, and far from where their difference overflows.
        const ANYWHERE: (i128, i128) = (-(1 << 100), 1 << 100);
        let mut lo = i128::from(sum.constant);
        let mut hi = lo;
        for (id, coefficient) in &sum.terms {
            let (least, most) = range(*id).narrower();
            let by = i128::from(*coefficient);
            let (Some(x), Some(y)) = (least.checked_mul(by), most.checked_mul(by)) else { return ANYWHERE };
            let (Some(less), Some(more)) = (lo.checked_add(x.min(y)), hi.checked_add(x.max(y))) else {
                return ANYWHERE;
            };
            (lo, hi) = (less, more);
        }
        if lo < ANYWHERE.0 || hi > ANYWHERE.1 { ANYWHERE } else { (lo, hi) }
    }

    /// An upper bound of a sum by the packet's length, where [`ValueTable::interval`] shows that it does not wrap.
    pub(crate) fn upper_by_length(
        &self,
        sum: &LinearSum,
        range: impl Fn(BoundValueId) -> Range,
    ) -> Option<Linear> {
        let mut total = Linear::ZERO;
        let mut less = -i128::from(sum.constant);
        let mut has_length = false;
        for (id, coefficient) in &sum.terms {
            let range = range(*id);
            match u64::try_from(*coefficient) {
                Ok(times) => {
                    let upper = range.per.unwrap_or(Linear::constant(range.hi));
                    has_length |= range.per.is_some();
                    total = total.plus(Linear {
                        constant: upper.constant.saturating_mul(times),
                        per_kib: upper.per_kib.saturating_mul(times),
                    });
                }
                // The same integer that `interval` takes it for: it can be below 0.
                Err(_) => {
                    let (least, _) = range.narrower();
                    less = less.checked_add(least.checked_mul(-i128::from(*coefficient))?)?;
                }
            }
        }
        if !has_length || !total.is_bounded() {
            return None;
        }
        let constant = i128::from(total.constant).checked_sub(less)?.max(0);
        Some(Linear { constant: u64::try_from(constant).unwrap_or(u64::MAX), ..total })
    }

    /// Lowest bits of a sum that are 0.
    pub(crate) fn zeros_of(&self, sum: &LinearSum, width: BitWidth) -> u8 {
        sum.terms
            .iter()
            .map(|(id, by)| self.node(*id).zeros.saturating_add(trailing(width.wrap((*by).into()), width)))
            .fold(trailing(width.wrap(sum.constant.into()), width), u8::min)
    }

    /// Makes a value of a sum. `range` says what is known of its values at this place.
    pub(crate) fn of_sum(
        &mut self,
        width: BitWidth,
        sum: LinearSum,
        range: impl Fn(BoundValueId) -> Range,
    ) -> BoundValueId {
        if let ([(id, 1)], 0) = (sum.terms.as_slice(), sum.constant) {
            return *id;
        }
        let (lo, hi) = self.interval(&sum, &range);
        let mut known = Range::integer(width, lo, hi);
        if lo >= 0 && hi < width.modulus() {
            known.per = self.upper_by_length(&sum, &range);
        }
        let zeros = self.zeros_of(&sum, width);
        let from = sum.terms.iter().fold(0, |from, (id, _)| from | self.node(*id).from);
        let op = if sum.terms.len() > TERMS_MAX { Op::Opaque } else { Op::Sum(sum) };
        let id = self.add(op, width, known, from);
        self.node_mut(id).zeros = zeros;
        id
    }

    /// The value that was made of the same sum on two ways. What its range was found to be on one of them need not hold on the other.
    pub(crate) fn either_made(&mut self, a: BoundValueId, b: BoundValueId) -> BoundValueId {
        let (x, y) = (self.node(a), self.node(b));
        let range = x.range.or(y.range);
        if range == x.range {
            return a;
        }
        let (op, width, zeros, from) = (x.op.clone(), x.width, x.zeros.min(y.zeros), x.from | y.from);
        let id = self.add(op, width, range, from);
        self.node_mut(id).zeros = zeros;
        id
    }

    /// Whether two values are certainly the same. Their ranges can differ: each holds where the value was made, and on the ways from there.
    pub(crate) fn same(&self, a: BoundValueId, b: BoundValueId) -> bool {
        if a == b {
            return true;
        }
        match (&self.node(a).op, &self.node(b).op) {
            (Op::Sum(x), Op::Sum(y)) => self.width(a) == self.width(b) && x == y,
            _ => false,
        }
    }

    /// Whether a value is the same in all iterations of a loop whose own values begin with `first`.
    pub(crate) fn is_invariant(&self, id: BoundValueId, first: BoundValueId, depth: u32) -> bool {
        if id < first {
            return true;
        }
        if depth == 0 {
            return false;
        }
        match &self.node(id).op {
            Op::Sum(sum) => sum.terms.iter().all(|(term, _)| self.is_invariant(*term, first, depth - 1)),
            Op::Descriptor | Op::Field(..) => true,
            Op::Extend(of) | Op::Wrap(of) | Op::ClearLowest(of) | Op::Shift(of, _) => {
                self.is_invariant(*of, first, depth - 1)
            }
            Op::And(a, b) | Op::Or(a, b) | Op::Compare(_, a, b) => {
                self.is_invariant(*a, first, depth - 1) && self.is_invariant(*b, first, depth - 1)
            }
            Op::Opaque | Op::Phi | Op::Join(_) => false,
        }
    }
}

/// Lowest bits that are 0; all of them for 0.
fn trailing(value: u64, width: BitWidth) -> u8 {
    u8::try_from(value.trailing_zeros().min(width.bits())).unwrap_or(0)
}
