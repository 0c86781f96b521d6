//! Trip counts: upper bounds on the number of times that a loop repeats.
//!
//! A local that the loop writes is modelled as `initial + offset`, where `offset` is 0 when the loop is entered. One
//! iteration, from the loop's header to a back edge, adds a sum of values whose ranges are known to the offset. The
//! comparisons on the path to the back edge limit the offset. All arithmetic wraps as in WebAssembly, unless ranges
//! show that it does not.

use crate::conditions::{PathConditionId, PathConditions};
use crate::loops::LoopSummary;
use crate::range::{BitWidth, Range, USUAL_PACKET};
use crate::state::AbstractState;
use crate::value::{Cmp, LinearSum, Op, ValueId, ValueTable};
use crate::{CounterProblem, Linear, UnboundedCause};

/// A local or global that a loop writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InductionVariable {
    /// The index of the local in [`AbstractState::locals`].
    pub(crate) local: usize,
    /// The local's value where the loop is entered.
    pub(crate) initial: ValueId,
    /// The difference between `current` and `initial`. Where an invariant gives the local's range, `offset` is the same
    /// value as `current`.
    pub(crate) offset: ValueId,
    /// The local's value when an iteration begins: `initial + offset`.
    pub(crate) current: ValueId,
}

/// The change of a local from one iteration to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recurrence {
    /// The local keeps its initial value.
    Unchanged,
    /// Every iteration adds this amount.
    ConstantStep(i64),
    /// Every iteration adds an amount from `least` to `most`. All amounts have the same sign or are 0, and the lowest
    /// `trailing_zeros` bits of each are 0.
    OneDirection { least: i128, most: i128, trailing_zeros: u8 },
    /// The local has any value of this range. The second field holds the dependencies of the values, as bits of
    /// [`dependency`](crate::value::dependency).
    AnyOf(Range, u8),
}

/// A formula for a trip count: a sum of values at the loop's entry, and the step that divides the sum. The number of
/// taken back edges is at most `sum / step`, rounded down.
pub(crate) type TripFormula = (LinearSum, u64);

/// Larger trip counts are treated as unbounded.
const TRIPS_MAX: u64 = 1 << 28;

/// The deepest nesting of joins that is split into inputs.
const JOIN_DEPTH_MAX: u32 = 6;

/// An upper bound on the number of times that the back edges of a set are taken, all together.
#[derive(Clone)]
struct EdgeBound {
    trips: Linear,
    /// The dependencies of `trips`, as bits of [`dependency`](crate::value::dependency).
    dependencies: u8,
    /// The formula that `trips` was derived from, if it was derived from one.
    trip_formula: Option<TripFormula>,
}

/// The analysis of one loop: finds its trip count and its recurrences.
pub(crate) struct LoopAnalysis<'a> {
    pub(crate) values: &'a ValueTable,
    pub(crate) conditions: &'a PathConditions,
    /// The path conditions at the loop's entry.
    pub(crate) entry: PathConditionId,
    /// The first value that was created in the loop. Values that were created before it do not change in the loop.
    pub(crate) first_in_loop: ValueId,
}

impl LoopAnalysis<'_> {
    /// Derives the trip count and the recurrences from one walk of the body. `back_edges` are the states in which the
    /// walk reached the loop's back edges, and the offsets of their branches.
    pub(crate) fn summarise(
        &self,
        variables: &[InductionVariable],
        (back_edges, offsets): (&[AbstractState], &[u32]),
        has_exit: bool,
    ) -> LoopSummary {
        let mut recurrences = Vec::with_capacity(variables.len());
        // Bounds, each with the mask of the back edges that it counts.
        let mut found: Vec<(u64, Result<EdgeBound, UnboundedCause>)> = Vec::new();
        for variable in variables {
            let deltas: Option<Vec<(i128, i128)>> =
                back_edges.iter().map(|edge| self.delta(variable, edge)).collect();
            recurrences.push(self.recurrence(variable, back_edges, deltas.as_deref()));
            if let Some(deltas) = deltas {
                found.extend(self.bound_by_tests(variable, back_edges, &deltas));
            }
            found.extend(self.bound_by_cleared_bits(variable, back_edges));
            found.extend(self.bound_by_remainder(variable, back_edges));
        }
        let all = (0..back_edges.len().min(64)).fold(0u64, |mask, i| mask | 1 << i);
        let for_all_edges = found.iter().filter(|(mask, _)| mask & all == all && back_edges.len() <= 64);
        let formula = for_all_edges.filter_map(|(_, bound)| bound.as_ref().ok()?.trip_formula.clone()).next();
        let counted = found.iter().filter(|(_, bound)| bound.is_ok()).fold(0, |mask, (more, _)| mask | more);
        let uncounted = back_edges.iter().enumerate().find(|(index, _)| counted >> (index % 64) & 1 == 0);
        let (trips, dependencies, trip_formula) = combine_bounds(all, found, has_exit, back_edges.len());
        let (trips, uncounted) = match (trips, uncounted) {
            (Err(UnboundedCause::NoCounter(_)), Some((index, edge))) => (
                Err(UnboundedCause::NoCounter(self.counter_problem(variables, edge))),
                offsets.get(index).copied(),
            ),
            (trips, _) => (trips, None),
        };
        let any_formula = trip_formula.clone().or(formula);
        LoopSummary { trips, uncounted, dependencies, recurrences, trip_formula, any_formula }
    }

    /// The value of a sum where the loop is entered. `coefficient` is the coefficient of the variable's
    /// `offset` in the sum.
    fn at_entry(
        &self,
        variable: &InductionVariable,
        width: BitWidth,
        sum: &LinearSum,
        coefficient: i64,
    ) -> LinearSum {
        let offset = LinearSum { terms: vec![(variable.offset, 1)], constant: 0 };
        let without = ValueTable::linear_combination(width, sum, 1, &offset, coefficient.wrapping_neg());
        if variable.offset == variable.current {
            let initial = self.values.as_sum(variable.initial);
            return ValueTable::linear_combination(width, &without, 1, &initial, coefficient);
        }
        without
    }

    /// The integer bounds of the amount that one iteration adds to a variable on its way to this back edge. `None` if
    /// the amount is unknown.
    pub(crate) fn delta(&self, variable: &InductionVariable, edge: &AbstractState) -> Option<(i128, i128)> {
        let width = self.values.width(variable.initial);
        let next = *edge.locals.get(variable.local)?;
        if width == BitWidth::Other || self.values.width(next) != width {
            return None;
        }
        let sum = ValueTable::linear_combination(
            width,
            &self.values.as_sum(next),
            1,
            &self.values.as_sum(variable.current),
            -1,
        );
        self.delta_of(&sum, variable, width, edge.conditions, JOIN_DEPTH_MAX)
    }

    /// The integer bounds of `sum`, the amount that an iteration adds to a variable, under the conditions `at`. A sum
    /// that contains a join is bounded for each input of the join.
    fn delta_of(
        &self,
        sum: &LinearSum,
        variable: &InductionVariable,
        width: BitWidth,
        at: PathConditionId,
        depth: u32,
    ) -> Option<(i128, i128)> {
        let join = sum.terms.iter().find_map(|(id, coefficient)| match &self.values.node(*id).op {
            Op::Join(inputs) => Some((*id, *coefficient, inputs)),
            _ => None,
        });
        if sum.coefficient(variable.offset) == 0 {
            let (lo, hi) = self.values.interval(sum, |id| self.conditions.range(self.values, id, at));
            let half = width.modulus() / 2;
            let fits = lo > -half && hi < half;
            if fits && (lo > 0 || hi < 0 || lo == hi) {
                return Some((lo, hi));
            }
            // The difference of two values can be known better than each of them.
            if sum.terms.len() > 1
                && let Some(distance_range) = self.conditions.difference(self.values, sum, width, at)
                && i128::from(distance_range.hi) < half
            {
                return Some((distance_range.lo.into(), distance_range.hi.into()));
            }
            if fits && join.is_none() {
                return Some((lo, hi));
            }
        }
        let (id, coefficient, inputs) = join.filter(|_| depth > 0)?;
        let without = ValueTable::linear_combination(
            width,
            sum,
            1,
            &LinearSum { terms: vec![(id, 1)], constant: 0 },
            coefficient.wrapping_neg(),
        );
        let mut union: Option<(i128, i128)> = None;
        for (input, input_conditions) in inputs {
            let input = self.values.as_sum(*input);
            let with_input = ValueTable::linear_combination(width, &without, 1, &input, coefficient);
            let (lo, hi) = self.delta_of(&with_input, variable, width, *input_conditions, depth - 1)?;
            union = Some(union.map_or((lo, hi), |(a, b)| (a.min(lo), b.max(hi))));
        }
        union
    }

    /// The recurrence of a variable. `deltas` are the bounds of the amount that each back edge adds, if all are known.
    fn recurrence(
        &self,
        variable: &InductionVariable,
        back_edges: &[AbstractState],
        deltas: Option<&[(i128, i128)]>,
    ) -> Recurrence {
        let is_unchanged = |edge: &AbstractState| {
            let next = edge.locals.get(variable.local);
            next.is_some_and(|next| {
                self.values.are_equal(*next, variable.initial) || *next == variable.current
            })
        };
        if back_edges.iter().all(is_unchanged) {
            return Recurrence::Unchanged;
        }
        let least = deltas.and_then(|d| d.iter().map(|(lo, _)| *lo).min());
        let most = deltas.and_then(|d| d.iter().map(|(_, hi)| *hi).max());
        if let (Some(least), Some(most)) = (least, most) {
            if (least, most) == (0, 0) {
                return Recurrence::Unchanged;
            }
            if let Some(step) = i64::try_from(least).ok().filter(|_| least == most) {
                return Recurrence::ConstantStep(step);
            }
            if least >= 0 || most <= 0 {
                let exact = deltas.is_some_and(|d| d.iter().all(|(lo, hi)| lo == hi));
                let trailing_zeros = deltas.filter(|_| exact).and_then(|d| {
                    d.iter().filter(|(lo, _)| *lo != 0).map(|(lo, _)| lo.trailing_zeros()).min()
                });
                return Recurrence::OneDirection {
                    least,
                    most,
                    trailing_zeros: u8::try_from(trailing_zeros.unwrap_or(0)).unwrap_or(0),
                };
            }
        }
        let mut range = self.conditions.range(self.values, variable.initial, self.entry);
        let mut dependencies = self.values.node(variable.initial).dependencies;
        for edge in back_edges {
            let Some(next) = edge.locals.get(variable.local) else { continue };
            range = range.join(self.conditions.range(self.values, *next, edge.conditions));
            dependencies |= self.values.node(*next).dependencies;
        }
        Recurrence::AnyOf(range, dependencies)
    }

    /// Bounds the number of times that the back edges which change this variable are taken, by tests of the variable
    /// against a limit. Returns the mask of these back edges and their bound; `None` if the variable can go in both
    /// directions.
    fn bound_by_tests(
        &self,
        variable: &InductionVariable,
        back_edges: &[AbstractState],
        deltas: &[(i128, i128)],
    ) -> Option<(u64, Result<EdgeBound, UnboundedCause>)> {
        let up = deltas.iter().all(|(lo, hi)| *lo >= 1 || (*lo, *hi) == (0, 0));
        let down = deltas.iter().all(|(lo, hi)| *hi <= -1 || (*lo, *hi) == (0, 0));
        let moving: Vec<usize> = (0..deltas.len().min(64)).filter(|i| deltas[*i] != (0, 0)).collect();
        if !(up || down) || moving.is_empty() || deltas.len() > 64 {
            return None;
        }
        let least = moving.iter().map(|i| deltas[*i].0).min()?;
        let most = moving.iter().map(|i| deltas[*i].1).max()?;
        let mask = moving.iter().fold(0, |mask, i| mask | 1u64 << i);

        // Moving edges are the back edges that change the variable. A test counts if it is on the path to each of them.
        let mut best: Option<Result<EdgeBound, UnboundedCause>> = None;
        let first_edge = back_edges.get(*moving.first()?)?;
        for (id, cmp, a, b) in self.conditions.comparisons_since(first_edge.conditions, self.entry) {
            for (test, limit, on_left) in [(a, b, true), (b, a, false)] {
                if self.values.width(test) != self.values.width(variable.initial) {
                    continue;
                }
                let sum = self.values.as_sum(test);
                let coefficient = i128::from(sum.coefficient(variable.offset));
                if coefficient == 0 || self.values.as_sum(limit).coefficient(variable.offset) != 0 {
                    continue;
                }
                let others = moving.iter().skip(1).filter_map(|i| back_edges.get(*i));
                let contains_this_test = |edge: &AbstractState| {
                    self.conditions
                        .comparisons_since(edge.conditions, self.entry)
                        .any(|(other, ..)| other == id)
                };
                let makes_same_comparison = |edge: &AbstractState, limit: Option<ValueId>| {
                    self.conditions.comparisons_since(edge.conditions, self.entry).any(|(_, c, x, y)| {
                        let is_limit = limit.is_none_or(|limit| limit == if on_left { y } else { x });
                        c == cmp && self.values.are_equal(x, a) && self.values.are_equal(y, b) && is_limit
                    })
                };
                // Where several edges make the test, only conditions that hold on all of them may be used: those at the
                // test itself, if the edges share it, else those at the loop's entry.
                let (at, has_shared_limit) = if moving.len() == 1 {
                    (first_edge.conditions, true)
                } else if others.clone().all(contains_this_test) {
                    (id, true)
                } else if others.clone().all(|edge| makes_same_comparison(edge, Some(limit))) {
                    (self.entry, true)
                } else if others.clone().all(|edge| makes_same_comparison(edge, None)) {
                    (self.entry, false)
                } else {
                    continue;
                };
                let width = self.values.width(test);
                let start = self.at_entry(variable, width, &sum, sum.coefficient(variable.offset));
                if !start.terms.iter().all(|(id, _)| self.values.is_invariant(*id, self.first_in_loop, 4)) {
                    continue;
                }
                let (x, y) = (least * coefficient, most * coefficient);
                // A constant start has no terms that dependencies could be read from.
                let dependencies =
                    if start.terms.is_empty() { self.values.node(variable.initial).dependencies } else { 0 };
                let test = Test {
                    cmp,
                    on_left,
                    start,
                    limit,
                    least: x.min(y),
                    most: x.max(y),
                    width: self.values.width(test),
                    at,
                    has_shared_limit,
                    dependencies,
                };
                best = Some(smaller_bound(best, self.bound_by_test(&test)));
            }
        }
        Some((mask, best.unwrap_or(Err(UnboundedCause::NoCounter(CounterProblem::Unknown)))))
    }

    /// Bounds loops that subtract an amount from a remainder after comparing both: `if (n > rest) break; rest -= n`.
    /// The remainder can also be the difference of an end and a position. The remainder never wraps, because the amount
    /// is at most the remainder.
    fn bound_by_remainder(
        &self,
        variable: &InductionVariable,
        back_edges: &[AbstractState],
    ) -> Option<(u64, Result<EdgeBound, UnboundedCause>)> {
        let width = self.values.width(variable.initial);
        if width == BitWidth::Other || back_edges.is_empty() || back_edges.len() > 64 {
            return None;
        }
        let (mut remainder, mut least, mut dependencies) = (None::<(LinearSum, i64)>, u64::MAX, 0);
        let mut needs_nonzero_start = false;
        for edge in back_edges {
            let next = *edge.locals.get(variable.local)?;
            if self.values.width(next) != width {
                return None;
            }
            let change = ValueTable::linear_combination(
                width,
                &self.values.as_sum(next),
                1,
                &self.values.as_sum(variable.current),
                -1,
            );
            let found = self.conditions.comparisons_since(edge.conditions, self.entry).find_map(
                |(_, cmp, amount, rest)| {
                    let rest_sum = self.values.as_sum(rest);
                    let coefficient = rest_sum.coefficient(variable.offset);
                    if !matches!(cmp, Cmp::LeU | Cmp::LtU)
                        || !matches!(coefficient, 1 | -1)
                        || self.values.width(rest) != width
                    {
                        return None;
                    }
                    let start = self.at_entry(variable, width, &rest_sum, coefficient);
                    let is_fixed = start
                        .terms
                        .iter()
                        .all(|(id, _)| self.values.is_invariant(*id, self.first_in_loop, 4));
                    // The subtracted amount, which must be equal to the compared amount or less by a constant.
                    let step = ValueTable::linear_combination(
                        width,
                        &change,
                        -coefficient,
                        &LinearSum::default(),
                        0,
                    );
                    let amount_sum = self.values.as_sum(amount);
                    let slack = ValueTable::linear_combination(width, &amount_sum, 1, &step, -1);
                    let (lo, hi) = self
                        .values
                        .interval(&step, |id| self.conditions.range(self.values, id, edge.conditions));
                    let is_positive = lo >= 1 && hi < width.modulus();
                    let is_not_more = slack.terms.is_empty() && slack.constant >= 0;
                    // All edges must change the same remainder: no edge may add what another edge subtracts.
                    let has_same_remainder = remainder
                        .as_ref()
                        .is_none_or(|(known, sign)| *known == start && *sign == coefficient);
                    // If the subtracted amount is less than the compared one, neither the compared amount nor their
                    // difference may wrap.
                    let compared = self
                        .values
                        .interval(&amount_sum, |id| self.conditions.range(self.values, id, edge.conditions));
                    let wraps = slack.constant != 0
                        && (compared.0 < 0
                            || compared.1 >= width.modulus()
                            || lo != compared.0 - i128::from(slack.constant));
                    (is_fixed && is_positive && is_not_more && has_same_remainder && !wraps).then(|| {
                        (
                            (start, coefficient),
                            u64::try_from(lo).unwrap_or(1),
                            self.values.node(rest).dependencies,
                        )
                    })
                },
            );
            let (start, step, edge_dependencies) = match found {
                Some(found) => found,
                None => {
                    needs_nonzero_start = true;
                    self.decrement_of_nonzero(variable, edge, back_edges, remainder.as_ref())?
                }
            };
            remainder = Some(start);
            least = least.min(step);
            dependencies |= edge_dependencies;
        }
        let (start, _) = remainder?;
        let range = |id| self.conditions.range(self.values, id, self.entry);
        let (lo, hi) = self.values.interval(&start, range);
        let mut known = Range::integer(width, lo, hi);
        if lo >= 0 && hi < width.modulus() {
            known.hi_by_packet_length = self.values.upper_by_packet_length(&start, range);
        } else if let Some(distance_range) =
            self.conditions.difference(self.values, &start, width, self.entry)
        {
            known = distance_range;
        }
        // A decrement may wrap if the remainder can be 0 at the loop's entry.
        if needs_nonzero_start && known.lo == 0 {
            return None;
        }
        // With decrements, the remainder is at least 1 on every back edge.
        let upper = known.upper_bound();
        let upper = Linear { constant: upper.constant.saturating_sub(needs_nonzero_start.into()), ..upper };
        let trips = upper.divided(least);
        let count = if trips.is_bounded() && trips.constant <= TRIPS_MAX {
            Ok(EdgeBound { trips, dependencies, trip_formula: None })
        } else {
            Err(UnboundedCause::LimitUnknown)
        };
        Some((u64::MAX, count))
    }

    /// Handles a back edge that subtracts 1 from the remainder of [`LoopAnalysis::bound_by_remainder`], as in `if
    /// (--rest == 0) break`. Every back edge must have tested that the remainder is nonzero, so that subtracting 1 in
    /// the next iteration does not wrap. Returns the remainder at the loop's entry with the sign of the variable in it,
    /// the step, and the dependencies.
    fn decrement_of_nonzero(
        &self,
        variable: &InductionVariable,
        edge: &AbstractState,
        back_edges: &[AbstractState],
        known_remainder: Option<&(LinearSum, i64)>,
    ) -> Option<((LinearSum, i64), u64, u8)> {
        let width = self.values.width(variable.initial);
        let one = LinearSum { terms: Vec::new(), constant: 1 };
        let change = |edge: &AbstractState| {
            let next = *edge.locals.get(variable.local)?;
            let has_same_width = self.values.width(next) == width;
            has_same_width.then(|| {
                ValueTable::linear_combination(
                    width,
                    &self.values.as_sum(next),
                    1,
                    &self.values.as_sum(variable.current),
                    -1,
                )
            })
        };
        // The sums that are known to be nonzero on an edge. The negative of such a sum is nonzero too.
        let tests = |edge: &AbstractState| {
            let all = self
                .conditions
                .comparisons_since(edge.conditions, self.entry)
                .filter(|&(_, cmp, a, _)| cmp == Cmp::Ne && self.values.width(a) == width)
                .map(|(_, _, a, b)| self.values.difference(a, b));
            all.collect::<Vec<_>>()
        };
        let own_change =
            change(edge).filter(|change| change.terms.is_empty() && matches!(change.constant, 1 | -1))?;
        let coefficient = -own_change.constant;
        for test in tests(edge) {
            let test_coefficient = test.coefficient(variable.offset);
            if !matches!(test_coefficient, 1 | -1) {
                continue;
            }
            let after = ValueTable::linear_combination(
                width,
                &test,
                test_coefficient * coefficient,
                &LinearSum::default(),
                0,
            );
            let before = ValueTable::linear_combination(width, &after, 1, &one, 1);
            let start = self.at_entry(variable, width, &before, coefficient);
            let is_fixed =
                start.terms.iter().all(|(id, _)| self.values.is_invariant(*id, self.first_in_loop, 4));
            let has_same_remainder =
                known_remainder.is_none_or(|(known, sign)| *known == start && *sign == coefficient);
            let is_tested = |edge: &AbstractState| {
                let Some(change) = change(edge) else { return false };
                let after = ValueTable::linear_combination(width, &before, 1, &change, coefficient);
                let negative = ValueTable::linear_combination(width, &after, -1, &LinearSum::default(), 0);
                tests(edge).iter().any(|test| *test == after || *test == negative)
            };
            if is_fixed && has_same_remainder && back_edges.iter().all(is_tested) {
                let dependencies = start
                    .terms
                    .iter()
                    .fold(0, |dependencies, (id, _)| dependencies | self.values.node(*id).dependencies);
                return Some(((start, coefficient), 1, dependencies));
            }
        }
        None
    }

    /// Bounds loops that clear one bit of a variable in each iteration, as in `x &= x - 1`, and end when it is 0.
    fn bound_by_cleared_bits(
        &self,
        variable: &InductionVariable,
        back_edges: &[AbstractState],
    ) -> Option<(u64, Result<EdgeBound, UnboundedCause>)> {
        if back_edges.is_empty() || back_edges.len() > 64 {
            return None;
        }
        for edge in back_edges {
            let next = *edge.locals.get(variable.local)?;
            let Op::ClearLowest(of) = &self.values.node(next).op else { return None };
            let is_tested =
                self.conditions.comparisons_since(edge.conditions, self.entry).any(|(_, cmp, a, b)| {
                    cmp == Cmp::Ne
                        && (a == next || self.values.are_equal(a, variable.current))
                        && self.values.as_constant(b) == Some(0)
                });
            if !self.values.are_equal(*of, variable.current) || !is_tested {
                return None;
            }
        }
        let initial = self.conditions.range(self.values, variable.initial, self.entry);
        let trips = Linear::constant(u64::from(u64::BITS - initial.hi.leading_zeros()));
        let dependencies = self.values.node(variable.initial).dependencies;
        Some((u64::MAX, Ok(EdgeBound { trips, dependencies, trip_formula: None })))
    }

    /// Bounds the number of times that a test succeeds, so that the loop continues.
    fn bound_by_test(&self, test: &Test) -> Result<EdgeBound, UnboundedCause> {
        let (values, conditions) = (self.values, self.conditions);
        let limit_sum = values.as_sum(test.limit);
        // Where each edge computes the limit itself, a condition on one edge's limit need not hold for the others.
        let limit = if test.has_shared_limit {
            conditions.range(values, test.limit, test.at)
        } else {
            self.range_of(&limit_sum, test)
        };
        let is_fixed = values.is_invariant(test.limit, self.first_in_loop, 4);
        let up = test.least > 0;
        let dependencies = test.dependencies
            | values.node(test.limit).dependencies
            | test.start.terms.iter().fold(0, |bits, (id, _)| bits | values.node(*id).dependencies);
        let (least, most) = if up { (test.least, test.most) } else { (-test.most, -test.least) };
        let (Ok(step), Ok(step_most)) = (u64::try_from(least), u64::try_from(most)) else {
            return Err(UnboundedCause::NoCounter(CounterProblem::Unknown));
        };
        // The distance from the start to the limit, in the direction of the steps.
        let distance = if up {
            ValueTable::linear_combination(test.width, &limit_sum, 1, &test.start, -1)
        } else {
            ValueTable::linear_combination(test.width, &test.start, 1, &limit_sum, -1)
        };
        let distance_range = conditions
            .difference_with_trailing_zeros(values, &distance, test.width, test.at, None)
            .filter(|_| is_fixed);
        let trailing_zeros = distance_range
            .map_or(0, |(_, trailing_zeros)| trailing_zeros)
            .max(values.trailing_zeros_of(&distance, test.width));
        let distance_range = distance_range.map(|(range, _)| range);
        let is_exact =
            step == step_most && step.is_power_of_two() && u32::from(trailing_zeros) >= step.trailing_zeros();
        let trip_formula = || {
            // The formula is evaluated before the first test. So the distance must not wrap even if that test fails,
            // and only the conditions at the loop's entry hold. The division is rounded up, because the last step may
            // go beyond the limit.
            let (distance_range, _) =
                conditions.difference_with_trailing_zeros(values, &distance, test.width, self.entry, None)?;
            let rounding = if is_exact { 0 } else { step - 1 };
            let is_valid = is_fixed
                && step.is_power_of_two()
                && distance_range.hi.checked_add(rounding)? <= test.width.max();
            let rounding = LinearSum { terms: Vec::new(), constant: i64::try_from(rounding).ok()? };
            is_valid.then(|| (ValueTable::linear_combination(test.width, &distance, 1, &rounding, 1), step))
        };
        let limited = |trips: Linear, trip_formula: Option<TripFormula>| {
            if trips.is_bounded() && trips.constant <= TRIPS_MAX {
                Ok(EdgeBound { trips, dependencies, trip_formula })
            } else {
                Err(UnboundedCause::LimitUnknown)
            }
        };
        match (test.cmp, test.on_left == up) {
            // The loop continues only while value and limit are equal, and the first step makes them differ.
            (Cmp::Eq, _) if is_fixed && most < test.width.modulus() => limited(Linear::constant(1), None),
            (Cmp::Eq, _) => Err(UnboundedCause::NoCounter(CounterProblem::Unknown)),
            (Cmp::Ne, _) => {
                if !is_fixed {
                    return Err(UnboundedCause::NoCounter(CounterProblem::Unknown));
                }
                let Some(distance_range) = distance_range else { return Err(UnboundedCause::MayMiss) };
                if is_exact {
                    let upper = distance_range.upper_bound();
                    let trips = Linear {
                        constant: upper.constant / step + u64::from(!upper.constant.is_multiple_of(step)),
                        per_kib: upper.per_kib.div_ceil(step),
                    };
                    return limited(trips, trip_formula());
                }
                match distance_range.single_value() {
                    Some(whole) if step == step_most && whole.is_multiple_of(step) => {
                        limited(Linear::constant(whole / step), None)
                    }
                    _ => Err(UnboundedCause::MayMiss),
                }
            }
            // The value is below the limit and grows, or it is above the limit and falls.
            (Cmp::LtU | Cmp::LeU | Cmp::LtS | Cmp::LeS, true) => {
                let is_signed = matches!(test.cmp, Cmp::LtS | Cmp::LeS);
                let strict = matches!(test.cmp, Cmp::LtU | Cmp::LtS);
                let (least, most): (i128, i128) = if is_signed {
                    let (least, most) = test.width.signed();
                    (least.into(), most.into())
                } else {
                    (0, test.width.max().into())
                };
                let (limit_lo, limit_hi): (i128, i128) = if is_signed {
                    (limit.slo.into(), limit.shi.into())
                } else {
                    (limit.lo.into(), limit.hi.into())
                };
                // The step from the last value that passes the test must not wrap.
                let wraps = if up {
                    limit_hi - i128::from(strict) + i128::from(step_most) > most
                } else {
                    limit_lo + i128::from(strict) - i128::from(step_most) < least
                };
                if wraps && !(is_exact && strict && is_fixed) {
                    return Err(if limit_hi - limit_lo > i128::from(TRIPS_MAX) {
                        UnboundedCause::LimitUnknown
                    } else {
                        UnboundedCause::MayMiss
                    });
                }
                let more = u64::from(!strict);
                let count = |span: Linear| {
                    let span = span.plus(Linear::constant(more));
                    if is_exact && strict {
                        Linear {
                            constant: span.constant.div_ceil(step),
                            per_kib: span.per_kib.div_ceil(step),
                        }
                    } else {
                        span.divided(step)
                    }
                };
                let by_distance = distance_range.map(|range| count(range.upper_bound()));
                let start = self.range_of(&test.start, test);
                let by_range = if is_signed {
                    let span =
                        if up { limit_hi - i128::from(start.slo) } else { i128::from(start.shi) - limit_lo };
                    u64::try_from(span.max(0)).ok().map(|span| count(Linear::constant(span)))
                } else if up {
                    let upper = limit.upper_bound();
                    Some(count(Linear { constant: upper.constant.saturating_sub(start.lo), ..upper }))
                } else {
                    let upper = start.upper_bound();
                    Some(count(Linear { constant: upper.constant.saturating_sub(limit.lo), ..upper }))
                };
                let found = [by_distance, by_range]
                    .into_iter()
                    .flatten()
                    .min_by_key(|linear| linear.at(USUAL_PACKET))
                    .ok_or(UnboundedCause::LimitUnknown)?;
                limited(found, if strict && by_distance == Some(found) { trip_formula() } else { None })
            }
            _ => Err(UnboundedCause::NoCounter(CounterProblem::Unknown)),
        }
    }

    /// The range of a sum under the conditions of a test.
    fn range_of(&self, sum: &LinearSum, test: &Test) -> Range {
        let range = |id| self.conditions.range(self.values, id, test.at);
        let (lo, hi) = self.values.interval(sum, range);
        let mut found = Range::integer(test.width, lo, hi);
        if lo >= 0 && hi < test.width.modulus() {
            found.hi_by_packet_length = self.values.upper_by_packet_length(sum, range);
        }
        found
    }
}

/// A comparison on the path to a back edge: of a value that contains an induction variable, with a limit.
struct Test {
    cmp: Cmp,
    /// True if the tested value is the left operand.
    on_left: bool,
    /// The tested value where the loop is entered.
    start: LinearSum,
    limit: ValueId,
    /// The least amount that an iteration adds to the tested value.
    least: i128,
    /// The largest amount that an iteration adds to the tested value.
    most: i128,
    width: BitWidth,
    /// Conditions that hold on every back edge which makes the test.
    at: PathConditionId,
    /// True if all these back edges test against the same value; false if each computes the limit's sum again.
    has_shared_limit: bool,
    /// The dependencies of `start` where it is a constant, as bits of [`dependency`](crate::value::dependency).
    dependencies: u8,
}

/// The smaller of two bounds, or the more useful of two causes. A bound is preferred to a cause.
fn smaller_bound(
    a: Option<Result<EdgeBound, UnboundedCause>>,
    b: Result<EdgeBound, UnboundedCause>,
) -> Result<EdgeBound, UnboundedCause> {
    match (a, b) {
        (Some(Ok(a)), Ok(b)) => Ok(if b.trips.at(USUAL_PACKET) < a.trips.at(USUAL_PACKET) { b } else { a }),
        (Some(Ok(a)), Err(_)) => Ok(a),
        (_, Ok(b)) => Ok(b),
        (Some(Err(a)), Err(b)) => Err(if usefulness(&b) > usefulness(&a) { b } else { a }),
        (None, b) => b,
    }
}

/// The usefulness of a cause to the module's author: a cause with a larger number is reported instead of others.
fn usefulness(cause: &UnboundedCause) -> u32 {
    match cause {
        UnboundedCause::LimitUnknown => 3,
        UnboundedCause::MayMiss => 2,
        _ => 1,
    }
}

/// Combines bounds, each for a set of back edges, into a bound for all back edges, with its dependencies and its
/// formula. `all` is the mask of all back edges.
fn combine_bounds(
    all: u64,
    found: Vec<(u64, Result<EdgeBound, UnboundedCause>)>,
    has_exit: bool,
    edge_count: usize,
) -> (Result<Linear, UnboundedCause>, u8, Option<TripFormula>) {
    if edge_count == 0 {
        return (Ok(Linear::ZERO), 0, None);
    }
    let mut cause =
        if has_exit { UnboundedCause::NoCounter(CounterProblem::Unknown) } else { UnboundedCause::Endless };
    let mut counts = Vec::new();
    for (mask, result) in found {
        match result {
            Ok(count) => counts.push((mask, count)),
            Err(other) => {
                if usefulness(&other) > usefulness(&cause) {
                    cause = other;
                }
            }
        }
    }
    if edge_count > 64 {
        return (Err(cause), 0, None);
    }
    counts.sort_by_key(|(_, count)| count.trips.at(USUAL_PACKET));
    if let Some((_, count)) = counts.iter().find(|(mask, _)| mask & all == all) {
        return (Ok(count.trips), count.dependencies, count.trip_formula.clone());
    }
    let (mut uncovered, mut trips, mut dependencies) = (all, Linear::ZERO, 0);
    for (mask, count) in counts {
        if mask & uncovered != 0 {
            uncovered &= !mask;
            trips = trips.plus(count.trips);
            dependencies |= count.dependencies;
        }
    }
    if uncovered == 0 { (Ok(trips), dependencies, None) } else { (Err(cause), 0, None) }
}
