//! Abstract values: expressions over a function's inputs, each with a range.
//!
//! A value is created when the abstract interpreter reaches its instruction. The range of a value follows from the path
//! conditions at this instruction, and holds at every use of the value, because a use comes after the creation. A
//! further walk of a loop's body, with more knowledge about the induction variables, creates new values.

use crate::Linear;
use crate::conditions::PathConditionId;
use crate::range::{BitWidth, Range};
use std::collections::HashMap;

/// The identifier of a value. Values are numbered in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueId(pub(crate) u32);

/// The basic comparisons. The other comparisons of WebAssembly are basic ones with swapped operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    LtU,
    LeU,
    LtS,
    LeS,
}

/// The expression of a value, as far as the analysis uses it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// An unknown value within its range.
    Opaque,
    /// A wrapping sum of values with coefficients, and a constant. A sum without terms is a constant. The values in
    /// terms are never sums themselves.
    Sum(LinearSum),
    /// The address of the packet's descriptor, or of the first one of a batch.
    Descriptor,
    /// The address of the event of a TCP stream.
    StreamEvent,
    /// A field of the packet's descriptor, by offset and size in bytes: every read returns the same value.
    Field(u32, u8),
    /// A field of the event of a TCP stream, in the same way.
    EventField(u32, u8),
    /// A value that differs between the iterations of a loop: the offset of an induction variable, the iteration
    /// number, or a local without a known step.
    Phi,
    /// One of these values, depending on the path taken. Each has the conditions on its path.
    Join(Vec<(ValueId, PathConditionId)>),
    /// `x & (x - 1)`.
    ClearLowest(ValueId),
    And(ValueId, ValueId),
    /// `x >> constant`, unsigned.
    Shift(ValueId, u8),
    Or(ValueId, ValueId),
    /// A comparison: 1 or 0.
    Compare(Cmp, ValueId, ValueId),
    /// `i64.extend_i32_u`.
    Extend(ValueId),
    /// `i32.wrap_i64`.
    Wrap(ValueId),
}

impl Op {
    /// Returns true for the address and the fields of what an entry point gets. These are the same in every function.
    pub(crate) fn is_input(&self) -> bool {
        matches!(self, Self::Descriptor | Self::StreamEvent | Self::Field(..) | Self::EventField(..))
    }
}

/// A sum of values with coefficients, and a constant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinearSum {
    /// Values with their coefficients, ordered by value. No coefficient is 0.
    pub(crate) terms: Vec<(ValueId, i64)>,
    pub(crate) constant: i64,
}

/// The most terms of a sum; a longer one becomes [`Op::Opaque`].
const TERMS_MAX: usize = 6;

impl LinearSum {
    /// The coefficient of a value; 0 if the sum does not contain the value.
    pub(crate) fn coefficient(&self, of: ValueId) -> i64 {
        self.terms.iter().find(|(id, _)| *id == of).map_or(0, |(_, coefficient)| *coefficient)
    }
}

/// The kinds of inputs that a value can depend on, as bits of a set.
pub(crate) mod dependency {
    pub(crate) const PACKET_LENGTH: u8 = 1;
    pub(crate) const HEADER_LENGTH: u8 = 2;
    pub(crate) const CONFIGURATION_LENGTH: u8 = 4;
    pub(crate) const CONFIGURATION_VALUE: u8 = 8;
    pub(crate) const HEADER_FIELD: u8 = 16;
    /// The value is an address in the packet, so that a load from it gives a header field.
    pub(crate) const PACKET_ADDRESS: u8 = 32;
}

/// A value: its expression and its properties.
#[derive(Clone, Debug)]
pub(crate) struct ValueNode {
    pub(crate) op: Op,
    pub(crate) width: BitWidth,
    pub(crate) range: Range,
    /// The number of lowest bits that are known to be 0.
    pub(crate) trailing_zeros: u8,
    /// The inputs that the value depends on, as bits of [`dependency`].
    pub(crate) dependencies: u8,
    /// For a join, the identifier of its merge point, which can add further inputs to the join; 0 for other values.
    pub(crate) merge_id: u32,
}

/// All values of an analysis.
#[derive(Debug)]
pub(crate) struct ValueTable {
    nodes: Vec<ValueNode>,
    /// For a value and a constant mask, the last value that was made as their bitwise AND.
    masked: HashMap<(ValueId, i64), ValueId>,
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
    /// The value 0 of a width.
    pub(crate) fn zero(width: BitWidth) -> ValueId {
        ValueId(u32::from(width != BitWidth::W32))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn next_id(&self) -> ValueId {
        ValueId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX))
    }

    #[inline]
    pub(crate) fn node(&self, id: ValueId) -> &ValueNode {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn node_mut(&mut self, id: ValueId) -> &mut ValueNode {
        &mut self.nodes[id.0 as usize]
    }

    pub(crate) fn range(&self, id: ValueId) -> Range {
        self.node(id).range
    }

    pub(crate) fn width(&self, id: ValueId) -> BitWidth {
        self.node(id).width
    }

    pub(crate) fn add(&mut self, op: Op, width: BitWidth, range: Range, dependencies: u8) -> ValueId {
        let id = self.next_id();
        let trailing_zeros = range.single_value().map_or(0, |value| count_trailing_zeros(value, width));
        self.nodes.push(ValueNode { op, width, range, trailing_zeros, dependencies, merge_id: 0 });
        id
    }

    /// The earlier bitwise AND of the same value and mask, if it has these properties. Where two instructions share one
    /// value, a path condition on either result applies to both.
    pub(crate) fn earlier_masked(
        &self,
        operands: (ValueId, i64),
        range: Range,
        trailing_zeros: u8,
        dependencies: u8,
    ) -> Option<ValueId> {
        let id = *self.masked.get(&operands)?;
        let node = self.node(id);
        let trailing_zeros = trailing_zeros
            .max(range.single_value().map_or(0, |value| count_trailing_zeros(value, node.width)));
        (node.range == range && node.trailing_zeros == trailing_zeros && node.dependencies == dependencies)
            .then_some(id)
    }

    pub(crate) fn remember_masked(&mut self, operands: (ValueId, i64), id: ValueId) {
        self.masked.insert(operands, id);
    }

    pub(crate) fn constant(&mut self, width: BitWidth, value: i64) -> ValueId {
        let value = width.wrap_signed(value.into());
        let sum = LinearSum { terms: Vec::new(), constant: value };
        self.add(Op::Sum(sum), width, Range::integer(width, value.into(), value.into()), 0)
    }

    /// An unknown value of a width.
    pub(crate) fn any(&mut self, width: BitWidth) -> ValueId {
        self.add(Op::Opaque, width, Range::any(width), 0)
    }

    /// A value as a sum. A value that is no sum becomes the only term.
    pub(crate) fn as_sum(&self, id: ValueId) -> LinearSum {
        match &self.node(id).op {
            Op::Sum(sum) => sum.clone(),
            _ => LinearSum { terms: vec![(id, 1)], constant: 0 },
        }
    }

    /// The number, if the value is a constant.
    pub(crate) fn as_constant(&self, id: ValueId) -> Option<i64> {
        match &self.node(id).op {
            Op::Sum(sum) if sum.terms.is_empty() => Some(sum.constant),
            _ => None,
        }
    }

    /// `a x left + b x right`, wrapping.
    pub(crate) fn linear_combination(
        width: BitWidth,
        left: &LinearSum,
        a: i64,
        right: &LinearSum,
        b: i64,
    ) -> LinearSum {
        let scale = |value: i64, factor: i64| i128::from(value).wrapping_mul(factor.into());
        let wrap = |value: i128| width.wrap_signed(value);
        let mut terms: Vec<(ValueId, i64)> = Vec::with_capacity(left.terms.len() + right.terms.len());
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
    pub(crate) fn difference(&self, left: ValueId, right: ValueId) -> LinearSum {
        Self::linear_combination(self.width(left), &self.as_sum(left), 1, &self.as_sum(right), -1)
    }

    /// The integer bounds of a sum before wrapping, for these ranges of its values.
    pub(crate) fn interval(&self, sum: &LinearSum, range: impl Fn(ValueId) -> Range) -> (i128, i128) {
        // No bound: beyond the values of every width, yet small enough that differences of such numbers do not
        // overflow.
        const ANYWHERE: (i128, i128) = (-(1 << 100), 1 << 100);
        let mut lo = i128::from(sum.constant);
        let mut hi = lo;
        for (id, coefficient) in &sum.terms {
            let (least, most) = range(*id).narrower_interval();
            let factor = i128::from(*coefficient);
            let (Some(x), Some(y)) = (least.checked_mul(factor), most.checked_mul(factor)) else {
                return ANYWHERE;
            };
            let (Some(less), Some(more)) = (lo.checked_add(x.min(y)), hi.checked_add(x.max(y))) else {
                return ANYWHERE;
            };
            (lo, hi) = (less, more);
        }
        if lo < ANYWHERE.0 || hi > ANYWHERE.1 { ANYWHERE } else { (lo, hi) }
    }

    /// An upper bound of a sum in terms of the packet's length, valid where [`ValueTable::interval`] shows that the sum
    /// does not wrap.
    pub(crate) fn upper_by_packet_length(
        &self,
        sum: &LinearSum,
        range: impl Fn(ValueId) -> Range,
    ) -> Option<Linear> {
        let mut total = Linear::ZERO;
        let mut less = -i128::from(sum.constant);
        let mut has_length = false;
        for (id, coefficient) in &sum.terms {
            let range = range(*id);
            match u64::try_from(*coefficient) {
                Ok(times) => {
                    let upper = range.hi_by_packet_length.unwrap_or(Linear::constant(range.hi));
                    has_length |= range.hi_by_packet_length.is_some();
                    total = total.plus(Linear {
                        constant: upper.constant.saturating_mul(times),
                        per_kib: upper.per_kib.saturating_mul(times),
                    });
                }
                // A negative coefficient: the same lower bound as in `interval`, which can be below 0.
                Err(_) => {
                    let (least, _) = range.narrower_interval();
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

    /// The number of lowest bits of a sum that are 0.
    pub(crate) fn trailing_zeros_of(&self, sum: &LinearSum, width: BitWidth) -> u8 {
        sum.terms
            .iter()
            .map(|(id, coefficient)| {
                let factor = width.wrap((*coefficient).into());
                self.node(*id).trailing_zeros.saturating_add(count_trailing_zeros(factor, width))
            })
            .fold(count_trailing_zeros(width.wrap(sum.constant.into()), width), u8::min)
    }

    /// Makes a value of a sum. `range` gives the range of each value in the sum.
    pub(crate) fn add_sum(
        &mut self,
        width: BitWidth,
        sum: LinearSum,
        range: impl Fn(ValueId) -> Range,
    ) -> ValueId {
        if let ([(id, 1)], 0) = (sum.terms.as_slice(), sum.constant) {
            return *id;
        }
        let (lo, hi) = self.interval(&sum, &range);
        let mut known = Range::integer(width, lo, hi);
        if lo >= 0 && hi < width.modulus() {
            known.hi_by_packet_length = self.upper_by_packet_length(&sum, &range);
        }
        let trailing_zeros = self.trailing_zeros_of(&sum, width);
        let dependencies =
            sum.terms.iter().fold(0, |dependencies, (id, _)| dependencies | self.node(*id).dependencies);
        let op = if sum.terms.len() > TERMS_MAX { Op::Opaque } else { Op::Sum(sum) };
        let id = self.add(op, width, known, dependencies);
        self.node_mut(id).trailing_zeros = trailing_zeros;
        id
    }

    /// Joins two values that are the same sum on two paths. Their ranges are joined too, because a range that holds on
    /// one path need not hold on the other.
    pub(crate) fn join_equal_sums(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let (x, y) = (self.node(a), self.node(b));
        let range = x.range.join(y.range);
        if range == x.range {
            return a;
        }
        let (op, width, trailing_zeros, dependencies) =
            (x.op.clone(), x.width, x.trailing_zeros.min(y.trailing_zeros), x.dependencies | y.dependencies);
        let id = self.add(op, width, range, dependencies);
        self.node_mut(id).trailing_zeros = trailing_zeros;
        id
    }

    /// Returns true if two values are certainly equal. Their ranges can differ, because they follow from the conditions
    /// where each value was created.
    pub(crate) fn are_equal(&self, a: ValueId, b: ValueId) -> bool {
        if a == b {
            return true;
        }
        match (&self.node(a).op, &self.node(b).op) {
            (Op::Sum(x), Op::Sum(y)) => self.width(a) == self.width(b) && x == y,
            _ => false,
        }
    }

    /// Returns true if a value is certainly the same in all iterations of a loop. `first_in_loop` is the first value
    /// that was created in the loop. Expressions are followed down to `depth` levels.
    pub(crate) fn is_invariant(&self, id: ValueId, first_in_loop: ValueId, depth: u32) -> bool {
        if id < first_in_loop {
            return true;
        }
        if depth == 0 {
            return false;
        }
        match &self.node(id).op {
            Op::Sum(sum) => {
                sum.terms.iter().all(|(term, _)| self.is_invariant(*term, first_in_loop, depth - 1))
            }
            Op::Descriptor | Op::StreamEvent | Op::Field(..) | Op::EventField(..) => true,
            Op::Extend(of) | Op::Wrap(of) | Op::ClearLowest(of) | Op::Shift(of, _) => {
                self.is_invariant(*of, first_in_loop, depth - 1)
            }
            Op::And(a, b) | Op::Or(a, b) | Op::Compare(_, a, b) => {
                self.is_invariant(*a, first_in_loop, depth - 1)
                    && self.is_invariant(*b, first_in_loop, depth - 1)
            }
            Op::Opaque | Op::Phi | Op::Join(_) => false,
        }
    }
}

/// The number of lowest bits that are 0; the full width for 0.
fn count_trailing_zeros(value: u64, width: BitWidth) -> u8 {
    u8::try_from(value.trailing_zeros().min(width.bits())).unwrap_or(0)
}
