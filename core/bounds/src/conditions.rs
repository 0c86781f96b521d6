//! Path conditions: comparisons and ranges that hold at a place in the code because of the branches that lead to it.
//!
//! A value never changes, so a condition on a value holds at all places after the branch that it follows from. The
//! conditions form a tree. Where two paths meet, the conditions up to their nearest common ancestor hold.

use crate::Linear;
use crate::range::{BitWidth, Range, excluding};
use crate::value::{Cmp, LinearSum, Op, ValueId, ValueTable};
use std::cell::Cell;

/// The identifier of a node in the tree of [`PathConditions`]. It stands for all conditions from the root to the node,
/// and thus for the knowledge at a place in the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathConditionId(u32);

impl PathConditionId {
    /// The root, without conditions.
    pub(crate) const ROOT: Self = Self(0);
}

/// The condition of one node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathCondition {
    /// No condition: the root.
    Root,
    /// A comparison that holds.
    Comparison(Cmp, ValueId, ValueId),
    /// The range of a value that follows from a comparison.
    Range(ValueId, Range),
}

/// A node of the tree.
#[derive(Debug)]
struct ConditionNode {
    parent: PathConditionId,
    depth: u32,
    condition: PathCondition,
}

/// The tree of all path conditions of an analysis.
#[derive(Debug)]
pub(crate) struct PathConditions {
    nodes: Vec<ConditionNode>,
    /// For each value, true if a node has a range for it. Other values need no search.
    has_range: Vec<bool>,
    /// The number of nodes visited since the last call of `take_visited`. Most of an analysis's time is spent on these
    /// visits.
    visited: Cell<u64>,
}

/// The most ancestors that a search visits, so that the work for long functions is linear. Ignoring older conditions is
/// sound: the ranges only become wider.
const ANCESTORS_MAX: usize = 96;

/// The deepest nesting of operands that is followed to find a value's range.
pub(crate) const DEPTH_MAX: u32 = 5;
/// The most inputs of a join whose inputs are examined. A join with more inputs has only the range that it was created
/// with.
pub(crate) const JOIN_INPUTS_READ: usize = 4;
/// The most conditions that are examined on each of two paths where they meet.
const MERGE_CONDITIONS_MAX: usize = 12;
/// The most conditions on the path of a join's input that are compared with those at a place. Only the latest
/// conditions are compared, which follow from one comparison.
const LAST_CONDITIONS_MAX: usize = 4;

impl Default for PathConditions {
    fn default() -> Self {
        let root = ConditionNode { parent: PathConditionId::ROOT, depth: 0, condition: PathCondition::Root };
        Self { nodes: vec![root], has_range: Vec::new(), visited: Cell::new(0) }
    }
}

impl PathConditions {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of nodes visited since the last call, and sets it to 0.
    pub(crate) fn take_visited(&self) -> u64 {
        self.visited.take()
    }

    fn node(&self, at: PathConditionId) -> &ConditionNode {
        &self.nodes[at.0 as usize]
    }

    fn push(&mut self, parent: PathConditionId, condition: PathCondition) -> PathConditionId {
        let id = PathConditionId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        let depth = self.node(parent).depth + 1;
        self.nodes.push(ConditionNode { parent, depth, condition });
        id
    }

    /// The nearest common ancestor of `a` and `b`. `known_ancestor` is any common ancestor, which is returned if the
    /// search takes too long.
    pub(crate) fn common_ancestor(
        &self,
        mut a: PathConditionId,
        mut b: PathConditionId,
        known_ancestor: PathConditionId,
    ) -> PathConditionId {
        for _ in 0..2 * ANCESTORS_MAX {
            self.visited.set(self.visited.get() + 1);
            if a == b {
                return a;
            }
            if self.node(a).depth >= self.node(b).depth {
                a = self.node(a).parent;
            } else {
                b = self.node(b).parent;
            }
        }
        known_ancestor
    }

    /// The conditions where the paths with the conditions `a` and `b` meet: the conditions of their common ancestor,
    /// and for each value with a range on either path the union of its ranges on both paths. `known_ancestor` is any
    /// common ancestor.
    pub(crate) fn merge(
        &mut self,
        values: &ValueTable,
        a: PathConditionId,
        b: PathConditionId,
        known_ancestor: PathConditionId,
    ) -> PathConditionId {
        let common = self.common_ancestor(a, b, known_ancestor);
        let depth = self.node(common).depth;
        let mut refined: Vec<ValueId> = Vec::new();
        for path in [a, b] {
            let since_common = self
                .ancestors(path)
                .take_while(|(id, _)| self.node(*id).depth > depth)
                .take(MERGE_CONDITIONS_MAX);
            for (_, condition) in since_common {
                if let PathCondition::Range(id, _) = condition
                    && !refined.contains(id)
                {
                    refined.push(*id);
                }
            }
        }
        let mut merged = common;
        for id in refined {
            let either = self.range(values, id, a).join(self.range(values, id, b));
            let known = self.range(values, id, common);
            let range = known.intersect(either, values.width(id));
            if range != known && !range.is_empty() {
                merged = self.push(merged, PathCondition::Range(id, range));
            }
        }
        merged
    }

    /// The node `from` and its ancestors without the root, the latest first; at most [`ANCESTORS_MAX`].
    pub(crate) fn ancestors(
        &self,
        from: PathConditionId,
    ) -> impl Iterator<Item = (PathConditionId, &PathCondition)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let node = self.node(at);
            self.visited.set(self.visited.get() + 1);
            if matches!(node.condition, PathCondition::Root) {
                return None;
            }
            let id = at;
            at = node.parent;
            Some((id, &node.condition))
        })
        .take(ANCESTORS_MAX)
    }

    /// The comparisons of the node `from` and of its ancestors that come after the ancestor `since`, the latest first.
    pub(crate) fn comparisons_since(
        &self,
        from: PathConditionId,
        since: PathConditionId,
    ) -> impl Iterator<Item = (PathConditionId, Cmp, ValueId, ValueId)> {
        let depth = self.node(since).depth;
        self.ancestors(from).take_while(move |(id, _)| self.node(*id).depth > depth).filter_map(
            |(id, condition)| match condition {
                PathCondition::Comparison(cmp, a, b) => Some((id, *cmp, *a, *b)),
                _ => None,
            },
        )
    }

    /// The range of a value under the conditions `at`.
    pub(crate) fn range(&self, values: &ValueTable, id: ValueId, at: PathConditionId) -> Range {
        self.range_deep(values, id, at, DEPTH_MAX)
    }

    /// Makes a value of a sum, with the ranges that its terms have under the conditions `at`.
    pub(crate) fn add_sum(
        &self,
        values: &mut ValueTable,
        width: BitWidth,
        sum: LinearSum,
        at: PathConditionId,
    ) -> ValueId {
        let ranges: Vec<(ValueId, Range)> =
            sum.terms.iter().map(|(id, _)| (*id, self.range(values, *id, at))).collect();
        values.add_sum(width, sum, |id| {
            ranges.iter().find(|(of, _)| *of == id).map_or(Range::any(width), |(_, range)| *range)
        })
    }

    /// The range of a value under the conditions `at`. Operands are followed down to `depth` levels.
    pub(crate) fn range_deep(
        &self,
        values: &ValueTable,
        id: ValueId,
        at: PathConditionId,
        depth: u32,
    ) -> Range {
        self.visited.set(self.visited.get() + 1);
        let has_range = self.has_range.get(id.0 as usize).is_some_and(|has_range| *has_range);
        if has_range
            && let Some(known) = self.ancestors(at).find_map(|(_, condition)| match condition {
                PathCondition::Range(of, range) if *of == id => Some(*range),
                _ => None,
            })
        {
            return known;
        }
        let node = values.node(id);
        let (width, own) = (node.width, node.range);
        if depth == 0 || own.single_value().is_some() {
            return own;
        }
        let inner = |of: ValueId| self.range_deep(values, of, at, depth - 1);
        match &node.op {
            Op::Sum(sum) if !sum.terms.is_empty() => self.range_of_sum(values, sum, width, own, at, depth),
            Op::Shift(of, bits) => own.intersect(inner(*of).shifted(width, u32::from(*bits)), width),
            Op::And(of, mask) => match values.as_constant(*mask) {
                Some(mask) => own.intersect(inner(*of).masked(width, width.wrap(mask.into())), width),
                None => own,
            },
            Op::Extend(of) | Op::Wrap(of) => {
                let inner = inner(*of);
                if inner.hi > BitWidth::W32.max() {
                    return own;
                }
                let outer = Range {
                    hi_by_packet_length: inner.hi_by_packet_length,
                    ..Range::unsigned(width, inner.lo, inner.hi)
                };
                own.intersect(outer, width)
            }
            // For the input of the path that was taken, two sets of conditions hold: the conditions on that path, and
            // the conditions `at` the use of the join.
            Op::Join(inputs) if inputs.len() <= JOIN_INPUTS_READ && depth + 1 >= DEPTH_MAX => {
                let taken =
                    inputs.iter().filter(|(_, known)| !self.is_excluded(values, *known, at, depth - 1));
                let both = |(input, known): &(ValueId, PathConditionId)| {
                    inner(*input).intersect(self.range_deep(values, *input, *known, depth - 1), width)
                };
                let union = taken.map(both).filter(|range| !range.is_empty()).reduce(Range::join);
                union.map_or(own, |union| own.intersect(union, width))
            }
            _ => own,
        }
    }

    /// Returns true if a path to a join cannot have been taken, because its latest conditions contradict the conditions
    /// `at`.
    pub(crate) fn is_excluded(
        &self,
        values: &ValueTable,
        path: PathConditionId,
        at: PathConditionId,
        depth: u32,
    ) -> bool {
        self.ancestors(path).take(LAST_CONDITIONS_MAX).any(|(_, condition)| match condition {
            PathCondition::Range(id, range) => {
                self.range_deep(values, *id, at, depth).intersect(*range, values.width(*id)).is_empty()
            }
            _ => false,
        })
    }

    /// The only input of a join that is possible under the conditions `at`; the value itself if several are possible,
    /// or if the value is no join.
    pub(crate) fn only_input(&self, values: &ValueTable, id: ValueId, at: PathConditionId) -> ValueId {
        let Op::Join(inputs) = &values.node(id).op else { return id };
        let mut taken =
            inputs.iter().filter(|(_, known)| !self.is_excluded(values, *known, at, DEPTH_MAX - 1));
        match (taken.next(), taken.next()) {
            (Some((input, _)), None) if inputs.len() <= JOIN_INPUTS_READ => *input,
            _ => id,
        }
    }

    /// The range of a sum under the conditions `at`. `own` is the range that the sum was created with.
    fn range_of_sum(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        own: Range,
        at: PathConditionId,
        depth: u32,
    ) -> Range {
        let range = |term| self.range_deep(values, term, at, depth - 1);
        let (lo, hi) = values.interval(sum, range);
        let mut found = Range::integer(width, lo, hi);
        let wraps = lo < 0 || hi >= width.modulus();
        if !wraps {
            found.hi_by_packet_length = values.upper_by_packet_length(sum, range);
        }
        found = own.intersect(found, width);
        // A condition on the difference of two values can say more than their ranges.
        let is_difference =
            (2..=4).contains(&sum.terms.len()) && sum.terms.iter().any(|(_, coefficient)| *coefficient < 0);
        if wraps
            && is_difference
            && depth == DEPTH_MAX
            && let Some(range) = self.difference(values, sum, width, at)
        {
            found = found.intersect(range, width);
        }
        found
    }

    /// Adds the condition of a branch: the value `condition` is nonzero if `holds` is true, else 0. Returns `None` if
    /// that is impossible, so that the branch is never taken.
    pub(crate) fn assume(
        &mut self,
        values: &ValueTable,
        condition: ValueId,
        holds: bool,
        at: PathConditionId,
    ) -> Option<PathConditionId> {
        self.assume_deep(values, condition, holds, at, 8)
    }

    /// Does the work of [`PathConditions::assume`]. Operands are followed down to `depth` levels.
    fn assume_deep(
        &mut self,
        values: &ValueTable,
        condition: ValueId,
        holds: bool,
        at: PathConditionId,
        depth: u32,
    ) -> Option<PathConditionId> {
        let range = self.range(values, condition, at);
        if (holds && range.hi == 0) || (!holds && range.lo > 0) {
            return None;
        }
        if depth == 0 {
            return Some(at);
        }
        let is_0_or_1 = |id| values.range(id).hi <= 1;
        match &values.node(condition).op {
            Op::Compare(Cmp::Eq | Cmp::Ne, inner, zero)
                if values.as_constant(*zero) == Some(0) && is_0_or_1(*inner) =>
            {
                let is_not = matches!(values.node(condition).op, Op::Compare(Cmp::Ne, ..));
                self.assume_deep(values, *inner, holds == is_not, at, depth - 1)
            }
            Op::Compare(cmp, a, b) => {
                let (cmp, a, b) = if holds { (*cmp, *a, *b) } else { opposite(*cmp, *a, *b) };
                self.assume_comparison(values, cmp, a, b, at)
            }
            Op::And(a, b) if holds && is_0_or_1(*a) && is_0_or_1(*b) => {
                self.assume_both(values, (*a, *b), true, at, depth - 1)
            }
            Op::Or(a, b) if !holds => self.assume_both(values, (*a, *b), false, at, depth - 1),
            _ => {
                let cmp = if holds { Cmp::Ne } else { Cmp::Eq };
                self.assume_comparison(values, cmp, condition, ValueTable::zero(values.width(condition)), at)
            }
        }
    }

    /// Adds the conditions that both values are nonzero if `holds` is true, else that both are 0.
    fn assume_both(
        &mut self,
        values: &ValueTable,
        (a, b): (ValueId, ValueId),
        holds: bool,
        at: PathConditionId,
        depth: u32,
    ) -> Option<PathConditionId> {
        let at = self.assume_deep(values, a, holds, at, depth)?;
        self.assume_deep(values, b, holds, at, depth)
    }

    /// Adds the condition that a value lies in a range. Returns `None` if that is impossible, so that the code after it
    /// is unreachable.
    pub(crate) fn assume_range(
        &mut self,
        values: &ValueTable,
        id: ValueId,
        range: Range,
        at: PathConditionId,
    ) -> Option<PathConditionId> {
        self.refine(values, id, range, at, 4)
    }

    /// Adds a comparison and the ranges that follow from it. Returns `None` if the comparison cannot hold.
    pub(crate) fn assume_comparison(
        &mut self,
        values: &ValueTable,
        cmp: Cmp,
        a: ValueId,
        b: ValueId,
        at: PathConditionId,
    ) -> Option<PathConditionId> {
        let width = values.width(a);
        let (x, y) = (self.range(values, a, at), self.range(values, b, at));
        let any = Range::any(width);
        let (for_a, for_b) = match cmp {
            Cmp::Eq => (y, x),
            Cmp::Ne => (
                y.single_value().map_or(any, |value| excluding(x, value, width)),
                x.single_value().map_or(any, |value| excluding(y, value, width)),
            ),
            Cmp::LtU => (
                Range { hi: y.hi.checked_sub(1)?, hi_by_packet_length: y.hi_by_packet_length, ..any },
                Range { lo: x.lo.checked_add(1)?, ..any },
            ),
            Cmp::LeU => (
                Range { hi: y.hi, hi_by_packet_length: y.hi_by_packet_length, ..any },
                Range { lo: x.lo, ..any },
            ),
            Cmp::LtS => {
                (Range { shi: y.shi.checked_sub(1)?, ..any }, Range { slo: x.slo.checked_add(1)?, ..any })
            }
            Cmp::LeS => (Range { shi: y.shi, ..any }, Range { slo: x.slo, ..any }),
        };
        // The ranges come first: once the comparison is a condition, the search for ranges uses it, and would find
        // nothing to add.
        let at = self.refine(values, a, for_a, at, 4)?;
        let at = self.refine(values, b, for_b, at, 4)?;
        let at = self.push(at, PathCondition::Comparison(cmp, a, b));
        if matches!(cmp, Cmp::Ne | Cmp::LtU | Cmp::LtS) {
            return self.assume_unequal(values, a, b, at);
        }
        Some(at)
    }

    /// For two unequal values whose difference contains only one value, excludes the number of that value for which the
    /// difference is 0.
    fn assume_unequal(
        &mut self,
        values: &ValueTable,
        a: ValueId,
        b: ValueId,
        at: PathConditionId,
    ) -> Option<PathConditionId> {
        let sum = values.difference(b, a);
        let ([(id, coefficient @ (1 | -1))], constant) = (sum.terms.as_slice(), sum.constant) else {
            return Some(at);
        };
        let width = values.width(*id);
        if width != values.width(a) {
            return Some(at);
        }
        let excluded = width.wrap(-i128::from(constant) * i128::from(*coefficient));
        let range = excluding(self.range(values, *id, at), excluded, width);
        self.refine(values, *id, range, at, 4)
    }

    /// Narrows the range of a value, and of the values that it is computed from, down to `depth` levels. Returns `None`
    /// if no number is left.
    fn refine(
        &mut self,
        values: &ValueTable,
        id: ValueId,
        range: Range,
        at: PathConditionId,
        depth: u32,
    ) -> Option<PathConditionId> {
        let width = values.width(id);
        let before = self.range(values, id, at);
        let now = before.intersect(range, width).aligned(width, values.node(id).trailing_zeros);
        if now.is_empty() {
            return None;
        }
        if now == before {
            return Some(at);
        }
        let mut at = at;
        if values.as_constant(id).is_none() {
            at = self.push(at, PathCondition::Range(id, now));
            let index = id.0 as usize;
            if self.has_range.len() <= index {
                self.has_range.resize(index + 1, false);
            }
            self.has_range[index] = true;
        }
        if depth == 0 {
            return Some(at);
        }
        match &values.node(id).op {
            // `constant + term` or `constant - term`.
            Op::Sum(LinearSum { terms, constant }) if matches!(terms.as_slice(), [(_, 1 | -1)]) => {
                let (term, sign) = terms[0];
                let old = self.range(values, term, at);
                let next = range_of_term(width, sign, (*constant).into(), &old, &now);
                self.refine(values, term, next, at, depth - 1)
            }
            // A conversion keeps the number if the operand fits into 32 bits.
            Op::Extend(of) | Op::Wrap(of) if values.range(*of).hi <= BitWidth::W32.max() => {
                let width = values.width(*of);
                let inner = Range {
                    hi_by_packet_length: now.hi_by_packet_length,
                    ..Range::unsigned(width, now.lo.min(width.max()), now.hi)
                };
                self.refine(values, *of, inner, at, depth - 1)
            }
            _ => Some(at),
        }
    }
}

/// The range of a term that had the range `old`, after the sum `constant + sign x term` was found to lie in `now`. If
/// the sum can wrap, the result is the range of all values.
fn range_of_term(width: BitWidth, sign: i64, constant: i128, old: &Range, now: &Range) -> Range {
    let mut range = Range::any(width);
    let (least, most) = width.signed();
    let term_of_sum =
        |a: i128, b: i128| if sign > 0 { (a - constant, b - constant) } else { (constant - b, constant - a) };
    let sum_of_term = |lo: i128, hi: i128| {
        if sign > 0 { (lo + constant, hi + constant) } else { (constant - hi, constant - lo) }
    };
    let (lo, hi) = sum_of_term(old.lo.into(), old.hi.into());
    if lo >= 0 && hi < width.modulus() {
        let (lo, hi) = term_of_sum(now.lo.into(), now.hi.into());
        (range.lo, range.hi) = (clamp_unsigned(lo), clamp_unsigned(hi).min(width.max()));
        if sign > 0 {
            range.hi_by_packet_length = now.hi_by_packet_length.map(|bound| Linear {
                constant: bound.constant.saturating_add(clamp_unsigned(-constant)),
                ..bound
            });
        }
    }
    let (lo, hi) = sum_of_term(old.slo.into(), old.shi.into());
    if lo >= least.into() && hi <= most.into() {
        let (lo, hi) = term_of_sum(now.slo.into(), now.shi.into());
        (range.slo, range.shi) = (clamp_signed(lo).max(least), clamp_signed(hi).min(most));
    }
    range
}

pub(crate) fn clamp_unsigned(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

fn clamp_signed(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// The negation of a comparison.
fn opposite(cmp: Cmp, a: ValueId, b: ValueId) -> (Cmp, ValueId, ValueId) {
    match cmp {
        Cmp::Eq => (Cmp::Ne, a, b),
        Cmp::Ne => (Cmp::Eq, a, b),
        Cmp::LtU => (Cmp::LeU, b, a),
        Cmp::LeU => (Cmp::LtU, b, a),
        Cmp::LtS => (Cmp::LeS, b, a),
        Cmp::LeS => (Cmp::LtS, b, a),
    }
}
