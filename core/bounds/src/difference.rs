//! Ranges of differences of values. They can be narrower than the ranges of the values imply, because of comparisons,
//! equations, rounding and joins.

use crate::Linear;
use crate::conditions::{
    DEPTH_MAX, JOIN_INPUTS_READ, PathCondition, PathConditionId, PathConditions, clamp_unsigned,
};
use crate::range::{BitWidth, Range, rounds_down};
use crate::value::{Cmp, LinearSum, Op, ValueId, ValueTable};

/// The most equations that are substituted into a sum.
const EQUATIONS_MAX: usize = 4;
/// The most nested rounded values that are replaced.
const ROUNDINGS_MAX: usize = 4;

impl PathConditions {
    /// The range of the difference `sum` as an integer from 0 to `2^bits - 1`, under the conditions `at`. It follows
    /// from the ranges of the values in the sum, or from a comparison of values with the same difference. `None` if the
    /// difference can wrap.
    pub(crate) fn difference(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: PathConditionId,
    ) -> Option<Range> {
        self.difference_with_trailing_zeros(values, sum, width, at, None).map(|(range, _)| range)
    }

    /// The range of the difference `sum`, as [`PathConditions::difference`] finds it, and the number of its lowest bits
    /// that are 0. `second_path` holds further conditions on the same values, from another path.
    pub(crate) fn difference_with_trailing_zeros(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: PathConditionId,
        second_path: Option<PathConditionId>,
    ) -> Option<(Range, u8)> {
        let range = |id| {
            let here = self.range_deep(values, id, at, DEPTH_MAX - 1);
            match second_path {
                Some(path) => {
                    here.intersect(self.range_deep(values, id, path, DEPTH_MAX - 1), values.width(id))
                }
                None => here,
            }
        };
        let modulus = width.modulus();
        let mut trailing_zeros = 0;
        let mut intervals: Vec<(i128, i128, Option<Linear>)> = Vec::new();
        let sum_itself = std::iter::once(sum.clone());
        for equal in sum_itself.chain(self.equal_sums(values, sum, width, at, second_path)) {
            let (lo, hi) = values.interval(&equal, range);
            trailing_zeros = trailing_zeros.max(values.trailing_zeros_of(&equal, width));
            intervals.push((lo, hi, values.upper_by_packet_length(&equal, range).filter(|_| lo >= 0)));
            if let Some((lo, hi, low, hi_by_packet_length)) = rounded_pair(values, &equal, width, range) {
                trailing_zeros = trailing_zeros.max(low);
                intervals.push((lo, hi, hi_by_packet_length));
            }
        }
        let mut found: Option<Range> = None;
        for (lo, hi, hi_by_packet_length) in intervals {
            let (lo, hi) = round_inwards(lo, hi, trailing_zeros, width);
            if lo >= 0 && hi < modulus && lo <= hi {
                let here = Range { hi_by_packet_length, ..Range::integer(width, lo, hi) };
                found = Some(found.map_or(here, |found| found.intersect(here, width)));
            }
        }
        if found.is_some_and(|found| found.hi < 1 << 20) {
            return found.map(|found| (found, trailing_zeros));
        }
        if found.is_none() {
            let on_path = |path| self.difference_of_rounded(values, sum, trailing_zeros, width, path);
            found = on_path(at).or_else(|| second_path.and_then(on_path));
        }
        if found.is_none()
            && second_path.is_none()
            && let Some((range, low)) = self.difference_of_join(values, sum, width, at)
        {
            found = Some(range);
            trailing_zeros = trailing_zeros.max(low);
        }
        for condition in self.conditions_of_paths(at, second_path) {
            // A range condition on a sum that differs from `sum` only by its constant.
            if let PathCondition::Range(id, known) = condition
                && values.width(*id) == width
                && let Op::Sum(other) = &values.node(*id).op
                && other.terms == sum.terms
            {
                let shift = i128::from(sum.constant) - i128::from(other.constant);
                let (lo, hi) = (i128::from(known.lo) + shift, i128::from(known.hi) + shift);
                if lo >= 0 && hi < modulus {
                    let here = Range::integer(width, lo, hi);
                    found = Some(found.map_or(here, |found| found.intersect(here, width)));
                }
            }
            let PathCondition::Comparison(cmp @ (Cmp::LtU | Cmp::LeU | Cmp::LtS | Cmp::LeS), x, y) =
                condition
            else {
                continue;
            };
            if values.width(*x) != width {
                continue;
            }
            // A comparison of x and y bounds the sum if the sum differs from y - x only by its constant.
            let other = values.difference(*y, *x);
            if other.terms != sum.terms {
                continue;
            }
            let (a, b) = (range(*x), range(*y));
            let strict = i128::from(matches!(cmp, Cmp::LtU | Cmp::LtS));
            let most = if matches!(cmp, Cmp::LtU | Cmp::LeU) {
                i128::from(b.hi) - i128::from(a.lo)
            } else {
                i128::from(b.shi) - i128::from(a.slo)
            };
            let shift = i128::from(sum.constant) - i128::from(other.constant);
            let (lo, hi) = (strict + shift, most + shift);
            if lo >= 0 && hi < modulus && hi >= lo {
                let mut here = Range::integer(width, lo, hi);
                if matches!(cmp, Cmp::LtU | Cmp::LeU) {
                    here.hi_by_packet_length = b.hi_by_packet_length.map(|bound| Linear {
                        constant: bound.constant.saturating_add(clamp_unsigned(shift)),
                        ..bound
                    });
                }
                found = Some(found.map_or(here, |found| found.intersect(here, width)));
            }
        }
        found.map(|found| (found, trailing_zeros))
    }

    /// The conditions `at`, followed by those of the second path.
    fn conditions_of_paths(
        &self,
        at: PathConditionId,
        second_path: Option<PathConditionId>,
    ) -> impl Iterator<Item = &PathCondition> {
        let further = second_path.into_iter().flat_map(|path| self.ancestors(path));
        self.ancestors(at).chain(further).map(|(_, condition)| condition)
    }

    /// Sums that equal `sum` under the conditions. Each results from one equation among the conditions, by which one
    /// value of `sum` is replaced.
    fn equal_sums(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: PathConditionId,
        second_path: Option<PathConditionId>,
    ) -> Vec<LinearSum> {
        let mut found = Vec::new();
        for condition in self.conditions_of_paths(at, second_path) {
            let zero = match condition {
                PathCondition::Comparison(Cmp::Eq, x, y) if values.width(*x) == width => {
                    values.difference(*x, *y)
                }
                // An equation: the masked bits of a value equal a known number.
                PathCondition::Range(id, range) if values.width(*id) == width => {
                    match (&values.node(*id).op, range.single_value()) {
                        (Op::And(..), Some(only @ 1..)) => {
                            let only =
                                LinearSum { terms: Vec::new(), constant: width.wrap_signed(only.into()) };
                            ValueTable::linear_combination(width, &values.as_sum(*id), 1, &only, -1)
                        }
                        _ => continue,
                    }
                }
                _ => continue,
            };
            if found.len() >= EQUATIONS_MAX {
                break;
            }
            let Some((id, sign @ (1 | -1))) = zero.terms.last().copied() else { continue };
            let factor = match sum.coefficient(id) {
                // The equation is about masked bits. The sum can contain the value that was masked.
                0 => match values.node(id).op {
                    Op::And(of, _) => match values.as_sum(of).terms.last() {
                        Some((term, term_sign @ (1 | -1))) => {
                            sum.coefficient(*term).wrapping_mul(*term_sign).wrapping_mul(sign)
                        }
                        _ => 0,
                    },
                    _ => 0,
                },
                coefficient => coefficient.wrapping_mul(sign),
            };
            if factor != 0 {
                found.push(ValueTable::linear_combination(width, sum, 1, &zero, factor.wrapping_neg()));
            }
        }
        found
    }

    /// The range and zero bits of a difference that contains a join: the union over the join's inputs, each with the
    /// conditions on its path.
    fn difference_of_join(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: PathConditionId,
    ) -> Option<(Range, u8)> {
        let (id, coefficient, inputs) =
            sum.terms.iter().rev().find_map(|(id, coefficient)| match &values.node(*id).op {
                Op::Join(inputs) if inputs.len() <= JOIN_INPUTS_READ => Some((*id, *coefficient, inputs)),
                _ => None,
            })?;
        let join = LinearSum { terms: vec![(id, 1)], constant: 0 };
        let without = ValueTable::linear_combination(width, sum, 1, &join, coefficient.wrapping_neg());
        let mut union: Option<(Range, u8)> = None;
        for (input, path) in inputs {
            if self.is_excluded(values, *path, at, DEPTH_MAX - 1) {
                continue;
            }
            let input = values.as_sum(*input);
            let with_input = ValueTable::linear_combination(width, &without, 1, &input, coefficient);
            let (range, trailing_zeros) =
                self.difference_with_trailing_zeros(values, &with_input, width, at, Some(*path))?;
            union = Some(union.map_or((range, trailing_zeros), |(union, least)| {
                (union.join(range), least.min(trailing_zeros))
            }));
        }
        union
    }

    /// The range of a difference that contains values which were rounded down or shifted. Each such value is replaced
    /// by the value that it was made from, less the part that rounding lost.
    fn difference_of_rounded(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        trailing_zeros: u8,
        width: BitWidth,
        at: PathConditionId,
    ) -> Option<Range> {
        let mut sum = sum.clone();
        // The bounds of the lost parts' share in the sum.
        let (mut less, mut more) = (0i128, 0i128);
        for _ in 0..ROUNDINGS_MAX {
            let rounded = sum.terms.iter().rev().find_map(|(id, coefficient)| {
                let (of, scale, lost) = self.rounding(values, *id, *coefficient, width, at)?;
                Some((*id, *coefficient, of, scale, lost))
            });
            let (id, coefficient, of, scale, (least, most)) = rounded?;
            let without = ValueTable::linear_combination(
                width,
                &sum,
                1,
                &LinearSum { terms: vec![(id, 1)], constant: 0 },
                coefficient.wrapping_neg(),
            );
            sum = ValueTable::linear_combination(width, &without, 1, &values.as_sum(of), scale);
            let scale = i128::from(scale);
            less = less.checked_add((-scale * least).min(-scale * most))?;
            more = more.checked_add((-scale * least).max(-scale * most))?;
            let range = |id| self.range_deep(values, id, at, DEPTH_MAX - 1);
            let (lo, hi) = values.interval(&sum, range);
            let (lo, hi) = round_inwards(lo.checked_add(less)?, hi.checked_add(more)?, trailing_zeros, width);
            if lo >= 0 && hi < width.modulus() {
                return Some(Range::integer(width, lo, hi));
            }
        }
        None
    }

    /// Writes `coefficient x id` as `scale x (of - lost)`, where `lost` is the part of `of` that rounding lost. Returns
    /// `of`, `scale`, and the bounds of `lost`; `None` if `id` is not a rounded or shifted value.
    fn rounding(
        &self,
        values: &ValueTable,
        id: ValueId,
        coefficient: i64,
        width: BitWidth,
        at: PathConditionId,
    ) -> Option<(ValueId, i64, (i128, i128))> {
        match values.node(id).op {
            Op::And(of, mask) => {
                let mask = width.wrap(values.as_constant(mask)?.into());
                let known = self.range_deep(values, of, at, DEPTH_MAX - 1);
                if mask == 0 || !rounds_down(mask, known.hi) {
                    return None;
                }
                let only_input = self.only_input(values, of, at);
                // If the rounded value differs from the original, rounding lost at least 1.
                let differ = self.ancestors(at).any(|(_, condition)| match condition {
                    PathCondition::Comparison(Cmp::Ne | Cmp::LtU, x, y) => {
                        let are_these = |a: ValueId, b: ValueId| {
                            values.are_equal(a, id)
                                && (values.are_equal(b, of) || values.are_equal(b, only_input))
                        };
                        are_these(*x, *y) || are_these(*y, *x)
                    }
                    _ => false,
                });
                Some((of, coefficient, (differ.into(), (1i128 << mask.trailing_zeros()) - 1)))
            }
            Op::Shift(of, bits) if coefficient.trailing_zeros() >= u32::from(bits) && bits < 32 => {
                Some((of, coefficient >> bits, (0, (1i128 << bits) - 1)))
            }
            _ => None,
        }
    }
}

/// Rounds the ends of an interval inwards to multiples of `2^trailing_zeros`.
fn round_inwards(lo: i128, hi: i128, trailing_zeros: u8, width: BitWidth) -> (i128, i128) {
    let low = (1i128 << u32::from(trailing_zeros).min(width.bits() - 1)) - 1;
    ((lo + low) & !low, hi & !low)
}

/// Evaluates a sum that contains a value and the lowest bits of the same value with opposite signs, such as `x - (x &
/// 7)`: `x` rounded down. Returns the integer bounds of the sum, the number of its lowest bits that are 0, and an upper
/// bound by the packet's length.
fn rounded_pair(
    values: &ValueTable,
    sum: &LinearSum,
    width: BitWidth,
    range: impl Fn(ValueId) -> Range,
) -> Option<(i128, i128, u8, Option<Linear>)> {
    sum.terms.iter().find_map(|(id, coefficient)| {
        let Op::And(of, mask) = values.node(*id).op else { return None };
        let mask = width.wrap(values.as_constant(mask)?.into());
        if mask == 0 || mask & mask.wrapping_add(1) != 0 || mask == width.max() {
            return None;
        }
        let low = LinearSum { terms: vec![(*id, 1)], constant: 0 };
        let without = ValueTable::linear_combination(width, sum, 1, &low, coefficient.wrapping_neg());
        let rest = ValueTable::linear_combination(width, &without, 1, &values.as_sum(of), *coefficient);
        if rest.terms.len() >= without.terms.len() {
            return None;
        }
        let times = -i128::from(*coefficient);
        let unrounded = range(of);
        let (least, most) =
            (i128::from(unrounded.lo & !mask) * times, i128::from(unrounded.hi & !mask) * times);
        let (lo, hi) = values.interval(&rest, &range);
        let trailing_zeros = mask.trailing_ones() + coefficient.trailing_zeros();
        let trailing_zeros =
            u8::try_from(trailing_zeros).unwrap_or(0).min(values.trailing_zeros_of(&rest, width));
        let hi_by_packet_length = unrounded
            .hi_by_packet_length
            .filter(|_| times == 1)
            .map(|bound| Linear { constant: clamp_unsigned(i128::from(bound.constant) + hi), ..bound });
        Some((
            lo.checked_add(least.min(most))?,
            hi.checked_add(least.max(most))?,
            trailing_zeros,
            hi_by_packet_length,
        ))
    })
}
