//! How often a loop repeats.
//!
//! A loop's local is written as `first value + k`, where `k` is 0 when the loop is entered. What the way from the loop's header to a
//! back edge adds to it is a sum of values whose range is known; and the comparisons that hold on that way say how far `k` can have come.
//! All arithmetic is that of the machine: it wraps, unless ranges show that it does not.

use crate::facts::{FactId, PathConditions};
use crate::range::{BitWidth, Range, USUAL_PACKET};
use crate::state::WalkState;
use crate::value::{BoundValueId, Cmp, LinearSum, Op, ValueTable};
use crate::{Linear, Why};

/// A local that the loop changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InductionVariable {
    pub(crate) local: usize,
    pub(crate) first: BoundValueId,
    /// Its distance from `first`; or the same as `now`.
    pub(crate) k: BoundValueId,
    /// `first + k`, where `k` is not the same.
    pub(crate) now: BoundValueId,
}

/// How a local changes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Recurrence {
    /// Not at all.
    None,
    /// By the same amount in each iteration.
    Each(i64),
    /// By at least and at most so much in each iteration, all in one direction; the lowest bits of it are 0.
    Steps { least: i128, most: i128, zeros: u8 },
    /// To anything in this range.
    Anything(Range, u8),
}

/// What was found out about a loop.
#[derive(Debug)]
pub(crate) struct LoopShape {
    /// How often a back edge is taken; or why that is not known.
    pub(crate) trips: Result<Linear, Why>,
    /// What that depends on.
    pub(crate) from: u8,
    pub(crate) changes: Vec<Recurrence>,
    /// The sum that gives the trips where the loop is entered, and the step that it is divided by.
    pub(crate) on_entry: Option<(LinearSum, u64)>,
    /// The same, also where another bound of the trips is lower.
    pub(crate) distance: Option<(LinearSum, u64)>,
}

/// A limit that is no better than none.
const TRIPS_MAX: u64 = 1 << 28;

/// How deep joins are taken apart.
const JOINS_DEEP: u32 = 6;

/// A bound on how often a moving edge is taken.
#[derive(Clone)]
struct Count {
    trips: Linear,
    from: u8,
    on_entry: Option<(LinearSum, u64)>,
}

pub(crate) struct TripCount<'a> {
    pub(crate) values: &'a ValueTable,
    pub(crate) facts: &'a PathConditions,
    /// What was known when the loop was entered.
    pub(crate) entry: FactId,
    /// The loop's own values begin here.
    pub(crate) first: BoundValueId,
}

impl TripCount<'_> {
    /// Looks at one walk through the loop's body.
    pub(crate) fn shape(
        &self,
        counters: &[InductionVariable],
        back: &[WalkState],
        has_exit: bool,
    ) -> LoopShape {
        let mut changes = Vec::with_capacity(counters.len());
        let mut found: Vec<(u64, Result<Count, Why>)> = Vec::new();
        for counter in counters {
            let deltas: Option<Vec<(i128, i128)>> =
                back.iter().map(|edge| self.delta(counter, edge)).collect();
            changes.push(self.change(counter, back, deltas.as_deref()));
            if let Some(deltas) = deltas {
                found.extend(self.counted(counter, back, &deltas));
            }
            found.extend(self.bits(counter, back));
            found.extend(self.checked(counter, back));
        }
        let all = (0..back.len().min(64)).fold(0u64, |mask, i| mask | 1 << i);
        let whole = found.iter().filter(|(mask, _)| mask & all == all && back.len() <= 64);
        let distance = whole.filter_map(|(_, count)| count.as_ref().ok()?.on_entry.clone()).next();
        let (trips, from, on_entry) = cover(all, found, has_exit, back.len());
        let distance = on_entry.clone().or(distance);
        LoopShape { trips, from, changes, on_entry, distance }
    }

    /// The value at the loop's entry of a sum that contains `by` times a counter's `k`.
    fn at_first(&self, counter: &InductionVariable, width: BitWidth, sum: &LinearSum, by: i64) -> LinearSum {
        let k = LinearSum { terms: vec![(counter.k, 1)], constant: 0 };
        let without = ValueTable::combined(width, sum, 1, &k, by.wrapping_neg());
        if counter.k == counter.now {
            return ValueTable::combined(width, &without, 1, &self.values.sum(counter.first), by);
        }
        without
    }

    /// What an edge adds to a counter: between which integers.
    fn delta(&self, counter: &InductionVariable, edge: &WalkState) -> Option<(i128, i128)> {
        let width = self.values.width(counter.first);
        let next = *edge.locals.get(counter.local)?;
        if width == BitWidth::Other || self.values.width(next) != width {
            return None;
        }
        let sum = ValueTable::combined(width, &self.values.sum(next), 1, &self.values.sum(counter.now), -1);
        self.delta_of(&sum, counter, width, edge.facts, JOINS_DEEP)
    }

    fn delta_of(
        &self,
        sum: &LinearSum,
        counter: &InductionVariable,
        width: BitWidth,
        at: FactId,
        depth: u32,
    ) -> Option<(i128, i128)> {
        let join = sum.terms.iter().find_map(|(id, by)| match &self.values.node(*id).op {
            Op::Join(ways) => Some((*id, *by, ways)),
            _ => None,
        });
        if sum.coefficient(counter.k) == 0 {
            let (lo, hi) = self.values.interval(sum, |id| self.facts.range(self.values, id, at));
            let half = width.modulus() / 2;
            let fits = lo > -half && hi < half;
            if fits && (lo > 0 || hi < 0 || lo == hi) {
                return Some((lo, hi));
            }
            // Two values of which more is known together than of each.
            if sum.terms.len() > 1
                && let Some(apart) = self.facts.difference(self.values, sum, width, at)
                && i128::from(apart.hi) < half
            {
                return Some((apart.lo.into(), apart.hi.into()));
            }
            if fits && join.is_none() {
                return Some((lo, hi));
            }
        }
        let (id, by, ways) = join.filter(|_| depth > 0)?;
        let without = ValueTable::combined(
            width,
            sum,
            1,
            &LinearSum { terms: vec![(id, 1)], constant: 0 },
            by.wrapping_neg(),
        );
        let mut union: Option<(i128, i128)> = None;
        for (way, known) in ways {
            let one = ValueTable::combined(width, &without, 1, &self.values.sum(*way), by);
            let (lo, hi) = self.delta_of(&one, counter, width, *known, depth - 1)?;
            union = Some(union.map_or((lo, hi), |(a, b)| (a.min(lo), b.max(hi))));
        }
        union
    }

    fn change(
        &self,
        counter: &InductionVariable,
        back: &[WalkState],
        deltas: Option<&[(i128, i128)]>,
    ) -> Recurrence {
        // Put back to what it was.
        let is_first = |edge: &WalkState| {
            let next = edge.locals.get(counter.local);
            next.is_some_and(|next| self.values.same(*next, counter.first) || *next == counter.now)
        };
        if back.iter().all(is_first) {
            return Recurrence::None;
        }
        let least = deltas.and_then(|d| d.iter().map(|(lo, _)| *lo).min());
        let most = deltas.and_then(|d| d.iter().map(|(_, hi)| *hi).max());
        if let (Some(least), Some(most)) = (least, most) {
            if (least, most) == (0, 0) {
                return Recurrence::None;
            }
            if let Some(each) = i64::try_from(least).ok().filter(|_| least == most) {
                return Recurrence::Each(each);
            }
            if least >= 0 || most <= 0 {
                let exact = deltas.is_some_and(|d| d.iter().all(|(lo, hi)| lo == hi));
                let zeros = deltas.filter(|_| exact).and_then(|d| {
                    d.iter().filter(|(lo, _)| *lo != 0).map(|(lo, _)| lo.trailing_zeros()).min()
                });
                return Recurrence::Steps {
                    least,
                    most,
                    zeros: u8::try_from(zeros.unwrap_or(0)).unwrap_or(0),
                };
            }
        }
        let mut range = self.facts.range(self.values, counter.first, self.entry);
        let mut from = self.values.node(counter.first).from;
        for edge in back {
            let Some(next) = edge.locals.get(counter.local) else { continue };
            range = range.or(self.facts.range(self.values, *next, edge.facts));
            from |= self.values.node(*next).from;
        }
        Recurrence::Anything(range, from)
    }

    /// Bounds how often the edges that move this counter are taken.
    fn counted(
        &self,
        counter: &InductionVariable,
        back: &[WalkState],
        deltas: &[(i128, i128)],
    ) -> Option<(u64, Result<Count, Why>)> {
        let up = deltas.iter().all(|(lo, hi)| *lo >= 1 || (*lo, *hi) == (0, 0));
        let down = deltas.iter().all(|(lo, hi)| *hi <= -1 || (*lo, *hi) == (0, 0));
        let moving: Vec<usize> = (0..deltas.len().min(64)).filter(|i| deltas[*i] != (0, 0)).collect();
        if !(up || down) || moving.is_empty() || deltas.len() > 64 {
            return None;
        }
        let least = moving.iter().map(|i| deltas[*i].0).min()?;
        let most = moving.iter().map(|i| deltas[*i].1).max()?;
        let mask = moving.iter().fold(0, |mask, i| mask | 1u64 << i);

        // Each test on the first moving edge that all other moving edges make too, on the same value.
        let mut best: Option<Result<Count, Why>> = None;
        let first_edge = back.get(*moving.first()?)?;
        for (id, cmp, a, b) in self.facts.learnt(first_edge.facts, self.entry) {
            for (test, limit, on_left) in [(a, b, true), (b, a, false)] {
                if self.values.width(test) != self.values.width(counter.first) {
                    continue;
                }
                let sum = self.values.sum(test);
                let by = i128::from(sum.coefficient(counter.k));
                if by == 0 || self.values.sum(limit).coefficient(counter.k) != 0 {
                    continue;
                }
                let others = moving.iter().skip(1).filter_map(|i| back.get(*i));
                let is_one = |edge: &WalkState| {
                    self.facts.learnt(edge.facts, self.entry).any(|(other, ..)| other == id)
                };
                let is_like = |edge: &WalkState, limit: Option<BoundValueId>| {
                    self.facts.learnt(edge.facts, self.entry).any(|(_, c, x, y)| {
                        let is_limit = limit.is_none_or(|limit| limit == if on_left { y } else { x });
                        c == cmp && self.values.same(x, a) && self.values.same(y, b) && is_limit
                    })
                };
                // What is known on one of several edges only must not count for the others.
                let (at, is_shared) = if moving.len() == 1 {
                    (first_edge.facts, true)
                } else if others.clone().all(is_one) {
                    (id, true)
                } else if others.clone().all(|edge| is_like(edge, Some(limit))) {
                    (self.entry, true)
                } else if others.clone().all(|edge| is_like(edge, None)) {
                    (self.entry, false)
                } else {
                    continue;
                };
                let width = self.values.width(test);
                let rest = self.at_first(counter, width, &sum, sum.coefficient(counter.k));
                if !rest.terms.iter().all(|(id, _)| self.values.is_invariant(*id, self.first, 4)) {
                    continue;
                }
                let (x, y) = (least * by, most * by);
                // A constant start has no terms that would tell where it came from.
                let from = if rest.terms.is_empty() { self.values.node(counter.first).from } else { 0 };
                let test = Test {
                    cmp,
                    on_left,
                    start: rest,
                    limit,
                    least: x.min(y),
                    most: x.max(y),
                    width: self.values.width(test),
                    at,
                    is_shared,
                    from,
                };
                best = Some(better(best, self.count(&test)));
            }
        }
        Some((mask, best.unwrap_or(Err(Why::NoCounter))))
    }

    /// What is left is made less by something that was compared with it: `if (n > left) break; left -= n`, or the same with an end
    /// and a position. So what is left never wraps, whatever is taken from it.
    fn checked(&self, counter: &InductionVariable, back: &[WalkState]) -> Option<(u64, Result<Count, Why>)> {
        let width = self.values.width(counter.first);
        if width == BitWidth::Other || back.is_empty() || back.len() > 64 {
            return None;
        }
        let (mut left, mut least, mut from) = (None::<(LinearSum, i64)>, u64::MAX, 0);
        let mut needs_some = false;
        for edge in back {
            let next = *edge.locals.get(counter.local)?;
            if self.values.width(next) != width {
                return None;
            }
            let moved =
                ValueTable::combined(width, &self.values.sum(next), 1, &self.values.sum(counter.now), -1);
            let found = self.facts.learnt(edge.facts, self.entry).find_map(|(_, cmp, taken, rest)| {
                let rest_sum = self.values.sum(rest);
                let by = rest_sum.coefficient(counter.k);
                if !matches!(cmp, Cmp::LeU | Cmp::LtU)
                    || !matches!(by, 1 | -1)
                    || self.values.width(rest) != width
                {
                    return None;
                }
                let start = self.at_first(counter, width, &rest_sum, by);
                let is_fixed = start.terms.iter().all(|(id, _)| self.values.is_invariant(*id, self.first, 4));
                // What is taken away: the same as was compared, or less by a constant.
                let step = ValueTable::combined(width, &moved, -by, &LinearSum::default(), 0);
                let taken_sum = self.values.sum(taken);
                let slack = ValueTable::combined(width, &taken_sum, 1, &step, -1);
                let (lo, hi) =
                    self.values.interval(&step, |id| self.facts.range(self.values, id, edge.facts));
                let is_positive = lo >= 1 && hi < width.modulus();
                let is_same = slack.terms.is_empty() && slack.constant >= 0;
                // One way to count for all edges: what one takes another must not give back.
                let is_like = left.as_ref().is_none_or(|(left, sign)| *left == start && *sign == by);
                // A sum of which a constant was taken must not have wrapped before, nor wrap because of it.
                let whole =
                    self.values.interval(&taken_sum, |id| self.facts.range(self.values, id, edge.facts));
                let wraps = slack.constant != 0
                    && (whole.0 < 0
                        || whole.1 >= width.modulus()
                        || lo != whole.0 - i128::from(slack.constant));
                (is_fixed && is_positive && is_same && is_like && !wraps)
                    .then(|| ((start, by), u64::try_from(lo).unwrap_or(1), self.values.node(rest).from))
            });
            let (start, step, bits) = match found {
                Some(found) => found,
                None => {
                    needs_some = true;
                    self.one_of_some(counter, edge, back, left.as_ref())?
                }
            };
            left = Some(start);
            least = least.min(step);
            from |= bits;
        }
        let (start, _) = left?;
        let range = |id| self.facts.range(self.values, id, self.entry);
        let (lo, hi) = self.values.interval(&start, range);
        let mut known = Range::integer(width, lo, hi);
        if lo >= 0 && hi < width.modulus() {
            known.per = self.values.upper_by_length(&start, range);
        } else if let Some(apart) = self.facts.difference(self.values, &start, width, self.entry) {
            known = apart;
        }
        // One was taken where only something was known to be left: so there was, from the beginning.
        if needs_some && known.lo == 0 {
            return None;
        }
        // And at least one is left at the end.
        let upper = known.upper();
        let upper = Linear { constant: upper.constant.saturating_sub(needs_some.into()), ..upper };
        let trips = upper.divided(least);
        let count = if trips.is_bounded() && trips.constant <= TRIPS_MAX {
            Ok(Count { trips, from, on_entry: None })
        } else {
            Err(Why::LimitUnknown)
        };
        Some((u64::MAX, count))
    }

    /// As above, an edge that takes one of what is left: then that does not wrap where something is left whenever the body begins, because every
    /// edge has found so of what it leaves: `if (--left == 0) break`.
    fn one_of_some(
        &self,
        counter: &InductionVariable,
        edge: &WalkState,
        back: &[WalkState],
        like: Option<&(LinearSum, i64)>,
    ) -> Option<((LinearSum, i64), u64, u8)> {
        let width = self.values.width(counter.first);
        let one = LinearSum { terms: Vec::new(), constant: 1 };
        let moved = |edge: &WalkState| {
            let next = *edge.locals.get(counter.local)?;
            let is_like = self.values.width(next) == width;
            is_like.then(|| {
                ValueTable::combined(width, &self.values.sum(next), 1, &self.values.sum(counter.now), -1)
            })
        };
        // What is compared with 0 in the one direction or the other, and so is what is left afterwards.
        let tests = |edge: &WalkState| {
            let all = self
                .facts
                .learnt(edge.facts, self.entry)
                .filter(|&(_, cmp, a, _)| cmp == Cmp::Ne && self.values.width(a) == width)
                .map(|(_, _, a, b)| self.values.difference(a, b));
            all.collect::<Vec<_>>()
        };
        let taken = moved(edge).filter(|moved| moved.terms.is_empty() && matches!(moved.constant, 1 | -1))?;
        let by = -taken.constant;
        for test in tests(edge) {
            let share = test.coefficient(counter.k);
            if !matches!(share, 1 | -1) {
                continue;
            }
            let after = ValueTable::combined(width, &test, share * by, &LinearSum::default(), 0);
            let left = ValueTable::combined(width, &after, 1, &one, 1);
            let start = self.at_first(counter, width, &left, by);
            let is_fixed = start.terms.iter().all(|(id, _)| self.values.is_invariant(*id, self.first, 4));
            let is_like = like.is_none_or(|(known, sign)| *known == start && *sign == by);
            let is_tested = |edge: &WalkState| {
                let Some(moved) = moved(edge) else { return false };
                let after = ValueTable::combined(width, &left, 1, &moved, by);
                let opposite = ValueTable::combined(width, &after, -1, &LinearSum::default(), 0);
                tests(edge).iter().any(|test| *test == after || *test == opposite)
            };
            if is_fixed && is_like && back.iter().all(is_tested) {
                let from = start.terms.iter().fold(0, |from, (id, _)| from | self.values.node(*id).from);
                return Some(((start, by), 1, from));
            }
        }
        None
    }

    /// A value that loses a bit with each iteration, as in `x &= x - 1`.
    fn bits(&self, counter: &InductionVariable, back: &[WalkState]) -> Option<(u64, Result<Count, Why>)> {
        if back.is_empty() || back.len() > 64 {
            return None;
        }
        for edge in back {
            let next = *edge.locals.get(counter.local)?;
            let Op::ClearLowest(of) = &self.values.node(next).op else { return None };
            let is_tested = self.facts.learnt(edge.facts, self.entry).any(|(_, cmp, a, b)| {
                cmp == Cmp::Ne
                    && (a == next || self.values.same(a, counter.now))
                    && self.values.as_constant(b) == Some(0)
            });
            if !self.values.same(*of, counter.now) || !is_tested {
                return None;
            }
        }
        let first = self.facts.range(self.values, counter.first, self.entry);
        let trips = Linear::constant(u64::from(u64::BITS - first.hi.leading_zeros()));
        let from = self.values.node(counter.first).from;
        Some((u64::MAX, Ok(Count { trips, from, on_entry: None })))
    }

    /// How often a test lets the loop go on.
    fn count(&self, test: &Test) -> Result<Count, Why> {
        let (values, facts) = (self.values, self.facts);
        let limit_sum = values.sum(test.limit);
        // Where each edge has made the limit itself, what is known of it where one of them did need not hold for the others.
        let limit = if test.is_shared {
            facts.range(values, test.limit, test.at)
        } else {
            self.range_of(&limit_sum, test)
        };
        let is_fixed = values.is_invariant(test.limit, self.first, 4);
        let up = test.least > 0;
        let from = test.from
            | values.node(test.limit).from
            | test.start.terms.iter().fold(0, |f, (id, _)| f | values.node(*id).from);
        let (smin, smax) = if up { (test.least, test.most) } else { (-test.most, -test.least) };
        let (Ok(step), Ok(step_most)) = (u64::try_from(smin), u64::try_from(smax)) else {
            return Err(Why::NoCounter);
        };
        // How far it is from the start to the limit, in the direction of the steps.
        let distance = if up {
            ValueTable::combined(test.width, &limit_sum, 1, &test.start, -1)
        } else {
            ValueTable::combined(test.width, &test.start, 1, &limit_sum, -1)
        };
        let apart = facts.apart(values, &distance, test.width, test.at, None).filter(|_| is_fixed);
        let zeros = apart.map_or(0, |(_, zeros)| zeros).max(values.zeros_of(&distance, test.width));
        let apart = apart.map(|(range, _)| range);
        let is_exact =
            step == step_most && step.is_power_of_two() && u32::from(zeros) >= step.trailing_zeros();
        let on_entry = || {
            // Also where the loop is entered and the test will not hold; and the last step can be a part of one.
            let (apart, _) = facts.apart(values, &distance, test.width, self.entry, None)?;
            let part = if is_exact { 0 } else { step - 1 };
            let is_known =
                is_fixed && step.is_power_of_two() && apart.hi.checked_add(part)? <= test.width.max();
            let part = LinearSum { terms: Vec::new(), constant: i64::try_from(part).ok()? };
            is_known.then(|| (ValueTable::combined(test.width, &distance, 1, &part, 1), step))
        };
        let done = |trips: Linear, on_entry: Option<(LinearSum, u64)>| {
            if trips.is_bounded() && trips.constant <= TRIPS_MAX {
                Ok(Count { trips, from, on_entry })
            } else {
                Err(Why::LimitUnknown)
            }
        };
        match (test.cmp, test.on_left == up) {
            // A step leads away from the limit, if that stays where it is.
            (Cmp::Eq, _) if is_fixed && smax < test.width.modulus() => done(Linear::constant(1), None),
            (Cmp::Eq, _) => Err(Why::NoCounter),
            (Cmp::Ne, _) => {
                if !is_fixed {
                    return Err(Why::NoCounter);
                }
                let Some(apart) = apart else { return Err(Why::MayMiss) };
                if is_exact {
                    let upper = apart.upper();
                    let trips = Linear {
                        constant: upper.constant / step + u64::from(!upper.constant.is_multiple_of(step)),
                        per_kib: upper.per_kib.div_ceil(step),
                    };
                    return done(trips, on_entry());
                }
                match apart.only() {
                    Some(all) if step == step_most && all.is_multiple_of(step) => {
                        done(Linear::constant(all / step), None)
                    }
                    _ => Err(Why::MayMiss),
                }
            }
            // t < limit and t grows, or limit < t and t falls.
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
                // The last value from which a step is taken, and the step that must not wrap.
                let wraps = if up {
                    limit_hi - i128::from(strict) + i128::from(step_most) > most
                } else {
                    limit_lo + i128::from(strict) - i128::from(step_most) < least
                };
                if wraps && !(is_exact && strict && is_fixed) {
                    return Err(if limit_hi - limit_lo > i128::from(TRIPS_MAX) {
                        Why::LimitUnknown
                    } else {
                        Why::MayMiss
                    });
                }
                let more = u64::from(!strict);
                let count = |way: Linear| {
                    let way = way.plus(Linear::constant(more));
                    if is_exact && strict {
                        Linear { constant: way.constant.div_ceil(step), per_kib: way.per_kib.div_ceil(step) }
                    } else {
                        way.divided(step)
                    }
                };
                let by_distance = apart.map(|range| count(range.upper()));
                let start = self.range_of(&test.start, test);
                let by_range = if is_signed {
                    let way =
                        if up { limit_hi - i128::from(start.slo) } else { i128::from(start.shi) - limit_lo };
                    u64::try_from(way.max(0)).ok().map(|way| count(Linear::constant(way)))
                } else if up {
                    let upper = limit.upper();
                    Some(count(Linear { constant: upper.constant.saturating_sub(start.lo), ..upper }))
                } else {
                    let upper = start.upper();
                    Some(count(Linear { constant: upper.constant.saturating_sub(limit.lo), ..upper }))
                };
                let found = [by_distance, by_range]
                    .into_iter()
                    .flatten()
                    .min_by_key(|linear| linear.at(USUAL_PACKET))
                    .ok_or(Why::LimitUnknown)?;
                done(found, if strict && by_distance == Some(found) { on_entry() } else { None })
            }
            _ => Err(Why::NoCounter),
        }
    }

    /// The range of a sum, from what is known of its values where a test is made.
    fn range_of(&self, sum: &LinearSum, test: &Test) -> Range {
        let range = |id| self.facts.range(self.values, id, test.at);
        let (lo, hi) = self.values.interval(sum, range);
        let mut found = Range::integer(test.width, lo, hi);
        if lo >= 0 && hi < test.width.modulus() {
            found.per = self.values.upper_by_length(sum, range);
        }
        found
    }
}

/// A comparison of a counter with a limit, on the way to a back edge.
struct Test {
    cmp: Cmp,
    /// Whether the counter is on its left.
    on_left: bool,
    /// The tested value at the first iteration.
    start: LinearSum,
    limit: BoundValueId,
    /// What an iteration adds to it.
    least: i128,
    most: i128,
    width: BitWidth,
    at: FactId,
    /// Whether the limit is one value, and not the same sum made anew on each of the edges.
    is_shared: bool,
    /// What a start depends on that is a constant.
    from: u8,
}

fn better(a: Option<Result<Count, Why>>, b: Result<Count, Why>) -> Result<Count, Why> {
    match (a, b) {
        (Some(Ok(a)), Ok(b)) => Ok(if b.trips.at(USUAL_PACKET) < a.trips.at(USUAL_PACKET) { b } else { a }),
        (Some(Ok(a)), Err(_)) => Ok(a),
        (_, Ok(b)) => Ok(b),
        (Some(Err(a)), Err(b)) => Err(if rank(&b) > rank(&a) { b } else { a }),
        (None, b) => b,
    }
}

/// Which of two reasons tells the author more.
fn rank(why: &Why) -> u32 {
    match why {
        Why::LimitUnknown => 3,
        Why::MayMiss => 2,
        _ => 1,
    }
}

/// Puts bounds for some of the back edges together until all are covered.
fn cover(
    all: u64,
    found: Vec<(u64, Result<Count, Why>)>,
    has_exit: bool,
    edges: usize,
) -> (Result<Linear, Why>, u8, Option<(LinearSum, u64)>) {
    if edges == 0 {
        return (Ok(Linear::ZERO), 0, None);
    }
    let mut why = if has_exit { Why::NoCounter } else { Why::Endless };
    let mut counts = Vec::new();
    for (mask, result) in found {
        match result {
            Ok(count) => counts.push((mask, count)),
            Err(other) => {
                if rank(&other) > rank(&why) {
                    why = other;
                }
            }
        }
    }
    if edges > 64 {
        return (Err(why), 0, None);
    }
    counts.sort_by_key(|(_, count)| count.trips.at(USUAL_PACKET));
    if let Some((_, count)) = counts.iter().find(|(mask, _)| mask & all == all) {
        return (Ok(count.trips), count.from, count.on_entry.clone());
    }
    let (mut left, mut trips, mut from) = (all, Linear::ZERO, 0);
    for (mask, count) in counts {
        if mask & left != 0 {
            left &= !mask;
            trips = trips.plus(count.trips);
            from |= count.from;
        }
    }
    if left == 0 { (Ok(trips), from, None) } else { (Err(why), 0, None) }
}
