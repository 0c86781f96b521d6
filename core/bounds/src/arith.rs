//! Integer arithmetic on abstract values.

use crate::Linear;
use crate::conditions::{PathConditionId, PathConditions};
use crate::range::{BitWidth, Range, low_mask, smaller};
use crate::value::{Cmp, LinearSum, Op, ValueId, ValueTable, dependency};

/// Operations on two values of the same width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    DivU,
    DivS,
    RemU,
    RemS,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
    Rotate,
}

/// The bits that a counting instruction counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedBits {
    /// Bits that are 1: `popcnt`.
    Ones,
    /// Zeros above the highest 1: `clz`.
    LeadingZeros,
    /// Zeros below the lowest 1: `ctz`.
    TrailingZeros,
}

/// The context of an operation: the values, and the path conditions that hold where the operation is executed.
pub(crate) struct Arith<'v> {
    pub(crate) values: &'v mut ValueTable,
    pub(crate) conditions: &'v PathConditions,
    pub(crate) at: PathConditionId,
}

impl Arith<'_> {
    /// The range of a value at the operation.
    fn range(&self, id: ValueId) -> Range {
        self.conditions.range(self.values, id, self.at)
    }

    /// Makes an unknown value with these properties. Its lowest `trailing_zeros` bits are 0.
    fn opaque(&mut self, width: BitWidth, range: Range, trailing_zeros: u8, dependencies: u8) -> ValueId {
        let id = self.values.add(Op::Opaque, width, range, dependencies);
        let node = self.values.node_mut(id);
        node.trailing_zeros = node.trailing_zeros.max(trailing_zeros);
        id
    }

    fn sum(&mut self, width: BitWidth, sum: LinearSum) -> ValueId {
        self.conditions.add_sum(self.values, width, sum, self.at)
    }

    /// A value times a constant.
    fn scaled(&mut self, width: BitWidth, id: ValueId, factor: i64) -> ValueId {
        let sum =
            ValueTable::linear_combination(width, &self.values.as_sum(id), factor, &LinearSum::default(), 0);
        self.sum_of(width, sum, [id, id])
    }

    /// Makes the value of a sum that was computed from two operands. A constant operand adds no term to the sum, so its
    /// dependencies are added here.
    fn sum_of(&mut self, width: BitWidth, sum: LinearSum, operands: [ValueId; 2]) -> ValueId {
        let of_constants =
            operands.map(|id| self.values.as_constant(id).map_or(0, |_| self.values.node(id).dependencies));
        let next = self.values.next_id();
        let id = self.sum(width, sum);
        // A sum of one value and the constant 0 is that earlier value, whose dependencies are not changed.
        if id >= next {
            self.values.node_mut(id).dependencies |= of_constants[0] | of_constants[1];
        }
        id
    }

    /// The result of an operation on `a` and `b`.
    pub(crate) fn binary(&mut self, kind: Binary, width: BitWidth, a: ValueId, b: ValueId) -> ValueId {
        let (constant_a, constant_b) = (self.values.as_constant(a), self.values.as_constant(b));
        let bits = width.bits();
        match kind {
            Binary::Add | Binary::Sub => {
                let sign = if kind == Binary::Add { 1 } else { -1 };
                let sum = ValueTable::linear_combination(
                    width,
                    &self.values.as_sum(a),
                    1,
                    &self.values.as_sum(b),
                    sign,
                );
                return self.sum_of(width, sum, [a, b]);
            }
            Binary::Mul => {
                if let Some(factor) = constant_b {
                    return self.scaled(width, a, factor);
                }
                if let Some(factor) = constant_a {
                    return self.scaled(width, b, factor);
                }
            }
            Binary::Shl => {
                if let Some(shift) = constant_b {
                    let shift = u32::try_from(shift.rem_euclid(bits.into())).unwrap_or(0);
                    return self.scaled(width, a, width.wrap_signed(1i128 << shift));
                }
            }
            // Inverting all bits of x gives -1 - x.
            Binary::Xor => {
                let all = LinearSum { terms: Vec::new(), constant: -1 };
                if let Some(id) =
                    (constant_b == Some(-1)).then_some(a).or((constant_a == Some(-1)).then_some(b))
                {
                    let sum = ValueTable::linear_combination(width, &all, 1, &self.values.as_sum(id), -1);
                    return self.sum_of(width, sum, [a, b]);
                }
            }
            _ => {}
        }
        let (x, y) = (self.range(a), self.range(b));
        let (node_a, node_b) = (self.values.node(a), self.values.node(b));
        let mut dependencies = node_a.dependencies | node_b.dependencies;
        let (trailing_zeros_a, trailing_zeros_b) = (node_a.trailing_zeros, node_b.trailing_zeros);
        let any = Range::any(width);
        match kind {
            Binary::And => {
                // True for a mask that keeps every bit which is set in some value up to `most`.
                let keeps_all = |mask: i64, most: u64| low_mask(most) & !width.wrap(mask.into()) == 0;
                if constant_b.is_some_and(|mask| keeps_all(mask, x.hi)) {
                    return a;
                }
                // `x & (x - 1)` clears the lowest bit that is set.
                let is_one_less = |p: ValueId, q: ValueId| {
                    let sum = self.values.difference(q, p);
                    sum.terms.is_empty() && sum.constant == -1
                };
                let cleared_lowest = if is_one_less(a, b) {
                    Some(a)
                } else if is_one_less(b, a) {
                    Some(b)
                } else {
                    None
                };
                let range = match (constant_a, constant_b) {
                    (_, Some(mask)) => x.masked(width, width.wrap(mask.into())),
                    (Some(mask), _) => y.masked(width, width.wrap(mask.into())),
                    _ => Range {
                        hi_by_packet_length: smaller(x.hi_by_packet_length, y.hi_by_packet_length),
                        ..Range::unsigned(width, 0, x.hi.min(y.hi))
                    },
                };
                // One half of a byte may be a header length.
                if constant_b == Some(15) && x.hi <= 255 {
                    dependencies = header_length(dependencies);
                }
                let trailing_zeros = trailing_zeros_a.max(trailing_zeros_b);
                // An AND of the same operands that is computed again is the same value, so that a path condition on
                // either result applies to both.
                let masked_operands = constant_b.filter(|_| cleared_lowest.is_none()).map(|mask| (a, mask));
                if let Some(id) = masked_operands.and_then(|operands| {
                    self.values.earlier_masked(operands, range, trailing_zeros, dependencies)
                }) {
                    return id;
                }
                let id = self.values.add(
                    cleared_lowest.map_or(Op::And(a, b), Op::ClearLowest),
                    width,
                    range,
                    dependencies,
                );
                let node = self.values.node_mut(id);
                node.trailing_zeros = node.trailing_zeros.max(trailing_zeros);
                if let Some(operands) = masked_operands {
                    self.values.remember_masked(operands, id);
                }
                id
            }
            Binary::Or => {
                let range = Range::unsigned(width, x.lo.max(y.lo), low_mask(x.hi | y.hi));
                let id = self.values.add(Op::Or(a, b), width, range, dependencies);
                self.values.node_mut(id).trailing_zeros = trailing_zeros_a.min(trailing_zeros_b);
                id
            }
            Binary::Xor => {
                let range = Range::unsigned(width, 0, low_mask(x.hi | y.hi));
                self.opaque(width, range, trailing_zeros_a.min(trailing_zeros_b), dependencies)
            }
            Binary::ShrU => {
                if let Some(shift) = constant_b {
                    let shift = u32::try_from(shift.rem_euclid(bits.into())).unwrap_or(0);
                    // One half of a byte may be a header length.
                    if shift == 4 && x.hi <= 255 {
                        dependencies = header_length(dependencies);
                    }
                    let shift = u8::try_from(shift).unwrap_or(0);
                    let range = x.shifted(width, shift.into());
                    let id = self.values.add(Op::Shift(a, shift), width, range, dependencies);
                    let node = self.values.node_mut(id);
                    node.trailing_zeros = node.trailing_zeros.max(trailing_zeros_a.saturating_sub(shift));
                    return id;
                }
                let least = if y.hi < u64::from(bits) { x.lo >> y.hi } else { 0 };
                let shift = if y.hi < u64::from(bits) { y.lo } else { 0 };
                let range = Range {
                    hi_by_packet_length: x.hi_by_packet_length,
                    ..Range::unsigned(width, least, x.hi >> shift)
                };
                self.opaque(width, range, 0, dependencies)
            }
            Binary::ShrS => {
                let range = match constant_b {
                    Some(shift) => {
                        let shift = u32::try_from(shift.rem_euclid(bits.into())).unwrap_or(0);
                        Range::signed(width, x.slo >> shift, x.shi >> shift)
                    }
                    None => Range::signed(width, x.slo.min(0), x.shi.max(0)),
                };
                self.opaque(width, range, 0, dependencies)
            }
            Binary::Shl => {
                // A shift by an unknown amount. Its range is known if no bit can be shifted out.
                let most = y.hi.min(u64::from(bits) - 1);
                let largest = i128::from(x.hi) << most;
                let fits = y.hi < u64::from(bits) && largest < width.modulus();
                let range = if fits {
                    let lo = x.lo << y.lo;
                    Range::unsigned(width, lo, u64::try_from(largest).unwrap_or(u64::MAX))
                } else {
                    any
                };
                self.opaque(width, range, trailing_zeros_a, dependencies)
            }
            Binary::Mul => {
                let largest = i128::from(x.hi).checked_mul(y.hi.into());
                let range = match largest {
                    Some(largest) if largest < width.modulus() => {
                        let lo = x.lo.saturating_mul(y.lo);
                        Range::unsigned(width, lo, u64::try_from(largest).unwrap_or(u64::MAX))
                    }
                    _ => any,
                };
                self.opaque(
                    width,
                    range,
                    trailing_zeros_a.saturating_add(trailing_zeros_b).min(63),
                    dependencies,
                )
            }
            Binary::DivU => {
                let least = y.lo.max(1);
                let mut range = Range::unsigned(width, x.lo / y.hi.max(1), x.hi / least);
                range.hi_by_packet_length = x.hi_by_packet_length.map(|bound| bound.divided(least));
                self.opaque(width, range, 0, dependencies)
            }
            Binary::RemU => {
                let mut range = Range::unsigned(width, 0, x.hi.min(y.hi.saturating_sub(1)));
                range.hi_by_packet_length = smaller(x.hi_by_packet_length, y.hi_by_packet_length);
                self.opaque(width, range, 0, dependencies)
            }
            Binary::DivS | Binary::RemS => {
                let range = if x.slo >= 0 && y.slo > 0 {
                    let most = if kind == Binary::DivS { x.shi / y.slo } else { x.shi.min(y.shi - 1) };
                    Range::signed(width, 0, most)
                } else if kind == Binary::RemS {
                    let most = y.slo.unsigned_abs().max(y.shi.unsigned_abs()).saturating_sub(1);
                    let most = i64::try_from(most).unwrap_or(i64::MAX);
                    Range::signed(width, -most, most)
                } else {
                    any
                };
                self.opaque(width, range, 0, dependencies)
            }
            Binary::Add | Binary::Sub | Binary::Rotate => self.opaque(width, any, 0, dependencies),
        }
    }

    /// The result of a comparison: 1 or 0. Its range has one value if the result is certain.
    pub(crate) fn compare(&mut self, cmp: Cmp, a: ValueId, b: ValueId) -> ValueId {
        let dependencies = self.values.node(a).dependencies | self.values.node(b).dependencies;
        let range = match self.certain_result(cmp, a, b) {
            Some(truth) => Range::unsigned(BitWidth::W32, truth.into(), truth.into()),
            None => Range::unsigned(BitWidth::W32, 0, 1),
        };
        self.values.add(Op::Compare(cmp, a, b), BitWidth::W32, range, dependencies)
    }

    /// The result of a comparison, if the ranges of the operands decide it.
    fn certain_result(&self, cmp: Cmp, a: ValueId, b: ValueId) -> Option<bool> {
        let (x, y) = (self.range(a), self.range(b));
        let are_same = self.values.are_equal(a, b);
        match cmp {
            Cmp::Eq | Cmp::Ne => {
                let equal =
                    if are_same || (x.single_value().is_some() && x.single_value() == y.single_value()) {
                        true
                    } else if x.hi < y.lo || y.hi < x.lo || x.shi < y.slo || y.shi < x.slo {
                        false
                    } else {
                        return None;
                    };
                Some(equal == (cmp == Cmp::Eq))
            }
            Cmp::LtU if are_same || x.lo >= y.hi => Some(false),
            Cmp::LtU if x.hi < y.lo => Some(true),
            Cmp::LeU if are_same || x.hi <= y.lo => Some(true),
            Cmp::LeU if x.lo > y.hi => Some(false),
            Cmp::LtS if are_same || x.slo >= y.shi => Some(false),
            Cmp::LtS if x.shi < y.slo => Some(true),
            Cmp::LeS if are_same || x.shi <= y.slo => Some(true),
            Cmp::LeS if x.slo > y.shi => Some(false),
            _ => None,
        }
    }

    /// `i64.extend_i32_u`.
    pub(crate) fn extend_unsigned(&mut self, a: ValueId) -> ValueId {
        if let Op::Wrap(of) = self.values.node(a).op
            && self.values.range(of).hi <= BitWidth::W32.max()
        {
            return of;
        }
        let x = self.range(a);
        if let Some(value) = x.single_value() {
            return self.constant_in_width(BitWidth::W64, value.cast_signed(), a);
        }
        let range = Range {
            hi_by_packet_length: x.hi_by_packet_length,
            ..Range::unsigned(BitWidth::W64, x.lo, x.hi)
        };
        self.converted(Op::Extend(a), BitWidth::W64, range, a)
    }

    /// `i64.extend_i32_s`.
    pub(crate) fn extend_signed(&mut self, a: ValueId) -> ValueId {
        let x = self.range(a);
        if x.slo >= 0 {
            return self.extend_unsigned(a);
        }
        let range = Range::signed(BitWidth::W64, x.slo, x.shi);
        self.converted(Op::Opaque, BitWidth::W64, range, a)
    }

    /// `i32.wrap_i64`.
    pub(crate) fn wrap(&mut self, a: ValueId) -> ValueId {
        if let Op::Extend(of) = self.values.node(a).op {
            return of;
        }
        if let Some(value) = self.values.as_constant(a) {
            return self.constant_in_width(BitWidth::W32, value, a);
        }
        let x = self.range(a);
        let range = if x.hi <= BitWidth::W32.max() {
            Range { hi_by_packet_length: x.hi_by_packet_length, ..Range::unsigned(BitWidth::W32, x.lo, x.hi) }
        } else if x.slo >= i32::MIN.into() && x.shi <= i32::MAX.into() {
            Range::signed(BitWidth::W32, x.slo, x.shi)
        } else {
            Range::any(BitWidth::W32)
        };
        self.converted(Op::Wrap(a), BitWidth::W32, range, a)
    }

    /// A constant of this width with the dependencies of the value `of`.
    fn constant_in_width(&mut self, width: BitWidth, value: i64, of: ValueId) -> ValueId {
        let dependencies = self.values.node(of).dependencies;
        let id = self.values.constant(width, value);
        self.values.node_mut(id).dependencies = dependencies;
        id
    }

    /// Makes a value that is converted from the value `of`, with the same lowest bits and dependencies.
    fn converted(&mut self, op: Op, width: BitWidth, range: Range, of: ValueId) -> ValueId {
        let (trailing_zeros, dependencies) =
            (self.values.node(of).trailing_zeros, self.values.node(of).dependencies);
        let id = self.values.add(op, width, range, dependencies);
        let node = self.values.node_mut(id);
        node.trailing_zeros = node.trailing_zeros.max(trailing_zeros.min(31));
        id
    }

    /// The lowest `bits` bits of a value, sign-extended.
    pub(crate) fn sign_extended(&mut self, width: BitWidth, a: ValueId, bits: u32) -> ValueId {
        let x = self.range(a);
        let half = 1i64 << (bits - 1);
        if x.slo >= -half && x.shi < half {
            return a;
        }
        let dependencies = self.values.node(a).dependencies;
        self.opaque(width, Range::signed(width, -half, half - 1), 0, dependencies)
    }

    /// The result of `popcnt`, `clz` or `ctz`.
    pub(crate) fn counted_bits(&mut self, width: BitWidth, a: ValueId, counted: CountedBits) -> ValueId {
        let x = self.range(a);
        let unused = u64::BITS - width.bits();
        let leading_zeros = |value: u64| u64::from(value.leading_zeros() - unused);
        let all = u64::from(width.bits());
        let (least, most) = match counted {
            CountedBits::Ones => (u64::from(x.lo > 0), all - leading_zeros(x.hi)),
            CountedBits::LeadingZeros => (leading_zeros(x.hi), leading_zeros(x.lo)),
            CountedBits::TrailingZeros if x.lo > 0 => (0, all - 1),
            CountedBits::TrailingZeros => (0, all),
        };
        let dependencies = self.values.node(a).dependencies;
        self.opaque(width, Range::unsigned(width, least, most), 0, dependencies)
    }

    /// The result of `select`: `a` if the condition holds, else `b`. `branches` are the path conditions for the two
    /// cases; `None` for a case that is impossible.
    pub(crate) fn select(
        &mut self,
        a: ValueId,
        b: ValueId,
        branches: (Option<PathConditionId>, Option<PathConditionId>),
    ) -> ValueId {
        let (then, other) = match branches {
            (Some(then), Some(other)) => (then, other),
            (Some(_), None) => return a,
            (None, _) => return b,
        };
        let width = self.values.width(a);
        if self.values.are_equal(a, b) {
            return a;
        }
        if width == BitWidth::Other {
            return self.values.any(width);
        }
        let x = self.conditions.range(self.values, a, then);
        let y = self.conditions.range(self.values, b, other);
        let (node_a, node_b) = (self.values.node(a), self.values.node(b));
        let trailing_zeros = node_a.trailing_zeros.min(node_b.trailing_zeros);
        let dependencies = node_a.dependencies | node_b.dependencies;
        let id = self.values.add(Op::Join(vec![(a, then), (b, other)]), width, x.join(y), dependencies);
        self.values.node_mut(id).trailing_zeros = trailing_zeros;
        id
    }
}

/// Replaces the dependency on a header field by a dependency on a header length. Used for a value that is one half of a
/// byte: IPv4 and TCP have the length of their header in such a half.
fn header_length(dependencies: u8) -> u8 {
    if dependencies & dependency::HEADER_FIELD != 0 {
        (dependencies & !dependency::HEADER_FIELD) | dependency::HEADER_LENGTH
    } else {
        dependencies
    }
}

/// The number of captured bytes of the packet, as a bound.
pub(crate) const PACKET_LENGTH: Linear = Linear::per_byte(1);
