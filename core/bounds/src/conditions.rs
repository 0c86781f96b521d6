//! What is known at a place because of the branches that lead to it.
//!
//! Facts are about values, which do not change, so they hold from where they were learnt. They form a tree: where ways meet, what all of them
//! know is what they knew before they parted.

use crate::Linear;
use crate::range::{BitWidth, Range, rounds_down, without};
use crate::value::{BoundValueId, Cmp, LinearSum, Op, ValueTable};
use std::cell::Cell;

/// A place in the tree of facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FactId(u32);

impl FactId {
    /// Nothing is known.
    pub(crate) const ROOT: Self = Self(0);
}

#[derive(Clone, Copy, Debug)]
enum Fact {
    Root,
    /// A comparison that holds.
    Holds(Cmp, BoundValueId, BoundValueId),
    /// What follows from it for the range of a value.
    Range(BoundValueId, Range),
}

#[derive(Debug)]
struct Entry {
    parent: FactId,
    depth: u32,
    fact: Fact,
}

/// All facts of an analysis.
#[derive(Debug)]
pub(crate) struct PathConditions {
    entries: Vec<Entry>,
    /// Values of which a range was ever learnt: of the others there is nothing to look for.
    refined: Vec<bool>,
    /// How many of them were looked at so far: most of an analysis's time goes there.
    looked_at: Cell<u64>,
}

/// How many facts back are looked at. Older ones are forgotten, which loses precision and never soundness; and keeps long functions linear.
const LOOK_BACK: usize = 96;

/// How deep the values of a value are looked at.
const DEEP: u32 = 5;
/// Ways of a join that are looked at.
const JOINED: usize = 4;
/// Facts of each way that are looked at where two meet.
const MET: usize = 12;
/// Facts of a way that are held against what is known elsewhere: those of its last comparison.
const LAST: usize = 4;
/// Equations that are put into a sum.
const EQUIVALENTS: usize = 4;
/// Values that are rounded down, one of the other.
const ROUNDED: usize = 4;

impl Default for PathConditions {
    fn default() -> Self {
        let root = Entry { parent: FactId::ROOT, depth: 0, fact: Fact::Root };
        Self { entries: vec![root], refined: Vec::new(), looked_at: Cell::new(0) }
    }
}

impl PathConditions {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many facts were looked at since it was asked for the last time.
    pub(crate) fn looked_at(&self) -> u64 {
        self.looked_at.take()
    }

    fn entry(&self, at: FactId) -> &Entry {
        &self.entries[at.0 as usize]
    }

    fn push(&mut self, parent: FactId, fact: Fact) -> FactId {
        let id = FactId(u32::try_from(self.entries.len()).unwrap_or(u32::MAX));
        let depth = self.entry(parent).depth + 1;
        self.entries.push(Entry { parent, depth, fact });
        id
    }

    /// What all ways that know `a` or `b` know; `before` is known by both.
    pub(crate) fn common(&self, mut a: FactId, mut b: FactId, before: FactId) -> FactId {
        for _ in 0..2 * LOOK_BACK {
            self.looked_at.set(self.looked_at.get() + 1);
            if a == b {
                return a;
            }
            if self.entry(a).depth >= self.entry(b).depth {
                a = self.entry(a).parent;
            } else {
                b = self.entry(b).parent;
            }
        }
        before
    }

    /// As above, with the ranges that were learnt on both ways, by different comparisons perhaps: the value lies in one of them.
    pub(crate) fn meet(&mut self, values: &ValueTable, a: FactId, b: FactId, before: FactId) -> FactId {
        let common = self.common(a, b, before);
        let depth = self.entry(common).depth;
        let mut learnt: Vec<BoundValueId> = Vec::new();
        for way in [a, b] {
            let fresh = self.back(way).take_while(|(id, _)| self.entry(*id).depth > depth).take(MET);
            for (_, fact) in fresh {
                if let Fact::Range(id, _) = fact
                    && !learnt.contains(id)
                {
                    learnt.push(*id);
                }
            }
        }
        let mut met = common;
        for id in learnt {
            let either = self.range(values, id, a).or(self.range(values, id, b));
            let known = self.range(values, id, common);
            let now = known.and(either, values.width(id));
            if now != known && !now.is_empty() {
                met = self.push(met, Fact::Range(id, now));
            }
        }
        met
    }

    fn back(&self, from: FactId) -> impl Iterator<Item = (FactId, &Fact)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let entry = self.entry(at);
            self.looked_at.set(self.looked_at.get() + 1);
            if matches!(entry.fact, Fact::Root) {
                return None;
            }
            let id = at;
            at = entry.parent;
            Some((id, &entry.fact))
        })
        .take(LOOK_BACK)
    }

    /// The comparisons that were learnt after `since`, the last one first.
    pub(crate) fn learnt(
        &self,
        from: FactId,
        since: FactId,
    ) -> impl Iterator<Item = (FactId, Cmp, BoundValueId, BoundValueId)> {
        let depth = self.entry(since).depth;
        self.back(from).take_while(move |(id, _)| self.entry(*id).depth > depth).filter_map(|(id, fact)| {
            match fact {
                Fact::Holds(cmp, a, b) => Some((id, *cmp, *a, *b)),
                _ => None,
            }
        })
    }

    /// The range of a value at a place.
    pub(crate) fn range(&self, values: &ValueTable, id: BoundValueId, at: FactId) -> Range {
        self.range_deep(values, id, at, DEEP)
    }

    fn range_deep(&self, values: &ValueTable, id: BoundValueId, at: FactId, depth: u32) -> Range {
        self.looked_at.set(self.looked_at.get() + 1);
        let is_refined = self.refined.get(id.0 as usize).is_some_and(|refined| *refined);
        let known = is_refined.then(|| {
            self.back(at).find_map(|(_, fact)| match fact {
                Fact::Range(of, range) if *of == id => Some(*range),
                _ => None,
            })
        });
        let known = known.flatten();
        let node = values.node(id);
        let (width, own) = (node.width, node.range);
        if let Some(known) = known {
            return known;
        }
        if depth == 0 || own.only().is_some() {
            return own;
        }
        let inner = |of: BoundValueId| self.range_deep(values, of, at, depth - 1);
        match &node.op {
            Op::Sum(sum) if !sum.terms.is_empty() => self.range_of_sum(values, sum, width, own, at, depth),
            Op::Shift(of, by) => own.and(inner(*of).shifted(width, u32::from(*by)), width),
            Op::And(of, mask) => match values.as_constant(*mask) {
                Some(mask) => own.and(inner(*of).masked(width, width.wrap(mask.into())), width),
                None => own,
            },
            Op::Extend(of) | Op::Wrap(of) => {
                let inner = inner(*of);
                if inner.hi > BitWidth::W32.max() {
                    return own;
                }
                let outer = Range { per: inner.per, ..Range::unsigned(width, inner.lo, inner.hi) };
                own.and(outer, width)
            }
            // On the way that was taken, both hold: what was known there, and what is known here.
            Op::Join(ways) if ways.len() <= JOINED && depth + 1 >= DEEP => {
                let taken = ways.iter().filter(|(_, known)| !self.is_excluded(values, *known, at, depth - 1));
                let both = |(way, known): &(BoundValueId, FactId)| {
                    inner(*way).and(self.range_deep(values, *way, *known, depth - 1), width)
                };
                let union = taken.map(both).filter(|range| !range.is_empty()).reduce(Range::or);
                union.map_or(own, |union| own.and(union, width))
            }
            _ => own,
        }
    }

    /// Whether a way to a join was not taken, because what it learnt last is known at this place not to be so.
    fn is_excluded(&self, values: &ValueTable, way: FactId, at: FactId, depth: u32) -> bool {
        self.back(way).take(LAST).any(|(_, fact)| match fact {
            Fact::Range(id, range) => {
                self.range_deep(values, *id, at, depth).and(*range, values.width(*id)).is_empty()
            }
            _ => false,
        })
    }

    /// What a join is at this place, where all ways to it but one were not taken.
    fn only_way(&self, values: &ValueTable, id: BoundValueId, at: FactId) -> BoundValueId {
        let Op::Join(ways) = &values.node(id).op else { return id };
        let mut taken = ways.iter().filter(|(_, known)| !self.is_excluded(values, *known, at, DEEP - 1));
        match (taken.next(), taken.next()) {
            (Some((way, _)), None) if ways.len() <= JOINED => *way,
            _ => id,
        }
    }

    fn range_of_sum(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        own: Range,
        at: FactId,
        depth: u32,
    ) -> Range {
        let range = |term| self.range_deep(values, term, at, depth - 1);
        let (lo, hi) = values.interval(sum, range);
        let mut now = Range::integer(width, lo, hi);
        let wraps = lo < 0 || hi >= width.modulus();
        if !wraps {
            now.per = values.upper_by_length(sum, range);
        }
        now = own.and(now, width);
        // What is known about the difference of two values, where their ranges alone do not tell.
        let is_difference = (2..=4).contains(&sum.terms.len()) && sum.terms.iter().any(|(_, by)| *by < 0);
        if wraps
            && is_difference
            && depth == DEEP
            && let Some(range) = self.difference(values, sum, width, at)
        {
            now = now.and(range, width);
        }
        now
    }

    /// Between which numbers the difference `sum` lies as an integer in `0 .. 2^bits`: from the ranges of its values, or because a
    /// comparison that is known at this place is about the same difference. Nothing if it can wrap.
    pub(crate) fn difference(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: FactId,
    ) -> Option<Range> {
        self.apart(values, sum, width, at, None).map(|(range, _)| range)
    }

    /// As above, and how many of its lowest bits are 0. `also` is a second place where something is known about the same values.
    pub(crate) fn apart(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: FactId,
        also: Option<FactId>,
    ) -> Option<(Range, u8)> {
        let range = |id| {
            let here = self.range_deep(values, id, at, DEEP - 1);
            match also {
                Some(also) => here.and(self.range_deep(values, id, also, DEEP - 1), values.width(id)),
                None => here,
            }
        };
        let modulus = width.modulus();
        let mut zeros = 0;
        let mut ends: Vec<(i128, i128, Option<Linear>)> = Vec::new();
        let same = std::iter::once(sum.clone());
        for one in same.chain(self.equivalents(values, sum, width, at, also)) {
            let (lo, hi) = values.interval(&one, range);
            zeros = zeros.max(values.zeros_of(&one, width));
            ends.push((lo, hi, values.upper_by_length(&one, range).filter(|_| lo >= 0)));
            if let Some((lo, hi, low, per)) = rounded_pair(values, &one, width, range) {
                zeros = zeros.max(low);
                ends.push((lo, hi, per));
            }
        }
        let mut found: Option<Range> = None;
        for (lo, hi, per) in ends {
            let (lo, hi) = inwards(lo, hi, zeros, width);
            if lo >= 0 && hi < modulus && lo <= hi {
                let here = Range { per, ..Range::integer(width, lo, hi) };
                found = Some(found.map_or(here, |found| found.and(here, width)));
            }
        }
        if found.is_some_and(|found| found.hi < 1 << 20) {
            return found.map(|found| (found, zeros));
        }
        if found.is_none() {
            let there = || also.and_then(|also| self.rounded(values, sum, zeros, width, also));
            found = self.rounded(values, sum, zeros, width, at).or_else(there);
        }
        if found.is_none()
            && also.is_none()
            && let Some((range, low)) = self.joined(values, sum, width, at)
        {
            found = Some(range);
            zeros = zeros.max(low);
        }
        for (_, fact) in self.back(at).chain(also.into_iter().flat_map(|also| self.back(also))) {
            // What is known of a sum that is the same but for a constant.
            if let Fact::Range(id, known) = fact
                && values.width(*id) == width
                && let Op::Sum(other) = &values.node(*id).op
                && other.terms == sum.terms
            {
                let shift = i128::from(sum.constant) - i128::from(other.constant);
                let (lo, hi) = (i128::from(known.lo) + shift, i128::from(known.hi) + shift);
                if lo >= 0 && hi < modulus {
                    let here = Range::integer(width, lo, hi);
                    found = Some(found.map_or(here, |found| found.and(here, width)));
                }
            }
            let Fact::Holds(cmp @ (Cmp::LtU | Cmp::LeU | Cmp::LtS | Cmp::LeS), x, y) = fact else { continue };
            if values.width(*x) != width {
                continue;
            }
            // y - x lies between `least` and `most` as an integer; is it our difference but for a constant?
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
                    here.per = b.per.map(|per| Linear {
                        constant: per.constant.saturating_add(clamp_unsigned(shift)),
                        ..per
                    });
                }
                found = Some(found.map_or(here, |found| found.and(here, width)));
            }
        }
        found.map(|found| (found, zeros))
    }

    /// Sums that are the same number because of what is known to be equal: a value that the equation gives is put in its place.
    fn equivalents(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: FactId,
        also: Option<FactId>,
    ) -> Vec<LinearSum> {
        let mut found = Vec::new();
        for (_, fact) in self.back(at).chain(also.into_iter().flat_map(|also| self.back(also))) {
            let zero = match fact {
                Fact::Holds(Cmp::Eq, x, y) if values.width(*x) == width => values.difference(*x, *y),
                // Lowest bits of which only one value is left.
                Fact::Range(id, range) if values.width(*id) == width => {
                    match (&values.node(*id).op, range.only()) {
                        (Op::And(..), Some(only @ 1..)) => {
                            let only =
                                LinearSum { terms: Vec::new(), constant: width.wrap_signed(only.into()) };
                            ValueTable::combined(width, &values.sum(*id), 1, &only, -1)
                        }
                        _ => continue,
                    }
                }
                _ => continue,
            };
            if found.len() >= EQUIVALENTS {
                break;
            }
            let Some((id, own @ (1 | -1))) = zero.terms.last().copied() else { continue };
            let by = match sum.coefficient(id) {
                // The bits that were masked off: the sum has what they are of.
                0 => match values.node(id).op {
                    Op::And(of, _) => match values.sum(of).terms.last() {
                        Some((part, share @ (1 | -1))) => {
                            sum.coefficient(*part).wrapping_mul(*share).wrapping_mul(own)
                        }
                        _ => 0,
                    },
                    _ => 0,
                },
                by => by.wrapping_mul(own),
            };
            if by != 0 {
                found.push(ValueTable::combined(width, sum, 1, &zero, by.wrapping_neg()));
            }
        }
        found
    }

    /// As above, where a value of the sum is one of several: by what is known on the way to each.
    fn joined(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        width: BitWidth,
        at: FactId,
    ) -> Option<(Range, u8)> {
        let (id, by, ways) = sum.terms.iter().rev().find_map(|(id, by)| match &values.node(*id).op {
            Op::Join(ways) if ways.len() <= JOINED => Some((*id, *by, ways)),
            _ => None,
        })?;
        let gone = LinearSum { terms: vec![(id, 1)], constant: 0 };
        let without = ValueTable::combined(width, sum, 1, &gone, by.wrapping_neg());
        let mut union: Option<(Range, u8)> = None;
        for (way, known) in ways {
            if self.is_excluded(values, *known, at, DEEP - 1) {
                continue;
            }
            let one = ValueTable::combined(width, &without, 1, &values.sum(*way), by);
            let (range, zeros) = self.apart(values, &one, width, at, Some(*known))?;
            union = Some(union.map_or((range, zeros), |(union, least)| (union.or(range), least.min(zeros))));
        }
        union
    }

    /// As above, where values of the sum are others rounded down, or shifted: what such a value leaves out is small, and more than nothing where
    /// the two are known to differ.
    fn rounded(
        &self,
        values: &ValueTable,
        sum: &LinearSum,
        zeros: u8,
        width: BitWidth,
        at: FactId,
    ) -> Option<Range> {
        let mut sum = sum.clone();
        // What was left out so far lies between these.
        let (mut less, mut more) = (0i128, 0i128);
        for _ in 0..ROUNDED {
            let step = sum.terms.iter().rev().find_map(|(id, by)| {
                let (of, scale, lost) = self.rounding(values, *id, *by, width, at)?;
                Some((*id, *by, of, scale, lost))
            });
            let (id, by, of, scale, (least, most)) = step?;
            let without = ValueTable::combined(
                width,
                &sum,
                1,
                &LinearSum { terms: vec![(id, 1)], constant: 0 },
                by.wrapping_neg(),
            );
            sum = ValueTable::combined(width, &without, 1, &values.sum(of), scale);
            let scale = i128::from(scale);
            less = less.checked_add((-scale * least).min(-scale * most))?;
            more = more.checked_add((-scale * least).max(-scale * most))?;
            let range = |id| self.range_deep(values, id, at, DEEP - 1);
            let (lo, hi) = values.interval(&sum, range);
            let (lo, hi) = inwards(lo.checked_add(less)?, hi.checked_add(more)?, zeros, width);
            if lo >= 0 && hi < width.modulus() {
                return Some(Range::integer(width, lo, hi));
            }
        }
        None
    }

    /// `by x id` as `scale x (of - lost)`: of what, with which factor, and between which numbers what is lost lies.
    fn rounding(
        &self,
        values: &ValueTable,
        id: BoundValueId,
        by: i64,
        width: BitWidth,
        at: FactId,
    ) -> Option<(BoundValueId, i64, (i128, i128))> {
        match values.node(id).op {
            Op::And(of, mask) => {
                let mask = width.wrap(values.as_constant(mask)?.into());
                let known = self.range_deep(values, of, at, DEEP - 1);
                if mask == 0 || !rounds_down(mask, known.hi) {
                    return None;
                }
                let same = self.only_way(values, of, at);
                let differ = self.back(at).any(|(_, fact)| match fact {
                    Fact::Holds(Cmp::Ne | Cmp::LtU, x, y) => {
                        let is = |a: BoundValueId, b: BoundValueId| {
                            values.same(a, id) && (values.same(b, of) || values.same(b, same))
                        };
                        is(*x, *y) || is(*y, *x)
                    }
                    _ => false,
                });
                Some((of, by, (differ.into(), (1i128 << mask.trailing_zeros()) - 1)))
            }
            Op::Shift(of, bits) if by.trailing_zeros() >= u32::from(bits) && bits < 32 => {
                Some((of, by >> bits, (0, (1i128 << bits) - 1)))
            }
            _ => None,
        }
    }

    /// Learns that a value is not 0, or that it is. Nothing if that cannot be: the way is never taken.
    pub(crate) fn assume(
        &mut self,
        values: &ValueTable,
        condition: BoundValueId,
        holds: bool,
        at: FactId,
    ) -> Option<FactId> {
        self.assume_deep(values, condition, holds, at, 8)
    }

    fn assume_deep(
        &mut self,
        values: &ValueTable,
        condition: BoundValueId,
        holds: bool,
        at: FactId,
        depth: u32,
    ) -> Option<FactId> {
        let range = self.range(values, condition, at);
        if (holds && range.hi == 0) || (!holds && range.lo > 0) {
            return None;
        }
        if depth == 0 {
            return Some(at);
        }
        let is_truth = |id| values.range(id).hi <= 1;
        match &values.node(condition).op {
            Op::Compare(Cmp::Eq | Cmp::Ne, inner, zero)
                if values.as_constant(*zero) == Some(0) && is_truth(*inner) =>
            {
                let is_not = matches!(values.node(condition).op, Op::Compare(Cmp::Ne, ..));
                self.assume_deep(values, *inner, holds == is_not, at, depth - 1)
            }
            Op::Compare(cmp, a, b) => {
                let (cmp, a, b) = if holds { (*cmp, *a, *b) } else { opposite(*cmp, *a, *b) };
                self.holds(values, cmp, a, b, at)
            }
            Op::And(a, b) if holds && is_truth(*a) && is_truth(*b) => {
                let (a, b) = (*a, *b);
                let at = self.assume_deep(values, a, true, at, depth - 1)?;
                self.assume_deep(values, b, true, at, depth - 1)
            }
            Op::Or(a, b) if !holds => {
                let (a, b) = (*a, *b);
                let at = self.assume_deep(values, a, false, at, depth - 1)?;
                self.assume_deep(values, b, false, at, depth - 1)
            }
            _ => {
                let cmp = if holds { Cmp::Ne } else { Cmp::Eq };
                self.holds(values, cmp, condition, ValueTable::zero(values.width(condition)), at)
            }
        }
    }

    /// Learns that a value lies in a range. Nothing if it cannot: the place is never reached.
    pub(crate) fn within(
        &mut self,
        values: &ValueTable,
        id: BoundValueId,
        range: Range,
        at: FactId,
    ) -> Option<FactId> {
        self.refine(values, id, range, at, 4)
    }

    /// Learns a comparison.
    pub(crate) fn holds(
        &mut self,
        values: &ValueTable,
        cmp: Cmp,
        a: BoundValueId,
        b: BoundValueId,
        at: FactId,
    ) -> Option<FactId> {
        let width = values.width(a);
        let (x, y) = (self.range(values, a, at), self.range(values, b, at));
        let any = Range::any(width);
        let (for_a, for_b) = match cmp {
            Cmp::Eq => (y, x),
            Cmp::Ne => (
                y.only().map_or(any, |value| without(x, value, width)),
                x.only().map_or(any, |value| without(y, value, width)),
            ),
            Cmp::LtU => (
                Range { hi: y.hi.checked_sub(1)?, per: y.per, ..any },
                Range { lo: x.lo.checked_add(1)?, ..any },
            ),
            Cmp::LeU => (Range { hi: y.hi, per: y.per, ..any }, Range { lo: x.lo, ..any }),
            Cmp::LtS => {
                (Range { shi: y.shi.checked_sub(1)?, ..any }, Range { slo: x.slo.checked_add(1)?, ..any })
            }
            Cmp::LeS => (Range { shi: y.shi, ..any }, Range { slo: x.slo, ..any }),
        };
        // First what follows from it: afterwards it would be no news.
        let at = self.refine(values, a, for_a, at, 4)?;
        let at = self.refine(values, b, for_b, at, 4)?;
        let at = self.push(at, Fact::Holds(cmp, a, b));
        if matches!(cmp, Cmp::Ne | Cmp::LtU | Cmp::LtS) {
            return self.differ(values, a, b, at);
        }
        Some(at)
    }

    /// The two differ: what stands between them is not 0.
    fn differ(
        &mut self,
        values: &ValueTable,
        a: BoundValueId,
        b: BoundValueId,
        at: FactId,
    ) -> Option<FactId> {
        let sum = values.difference(b, a);
        let ([(id, coefficient @ (1 | -1))], constant) = (sum.terms.as_slice(), sum.constant) else {
            return Some(at);
        };
        let width = values.width(*id);
        if width != values.width(a) {
            return Some(at);
        }
        let never = width.wrap(-i128::from(constant) * i128::from(*coefficient));
        let range = without(self.range(values, *id, at), never, width);
        self.refine(values, *id, range, at, 4)
    }

    /// Learns that a value lies in a range.
    fn refine(
        &mut self,
        values: &ValueTable,
        id: BoundValueId,
        range: Range,
        at: FactId,
        depth: u32,
    ) -> Option<FactId> {
        let width = values.width(id);
        let before = self.range(values, id, at);
        let now = before.and(range, width).aligned(width, values.node(id).zeros);
        if now.is_empty() {
            return None;
        }
        if now == before {
            return Some(at);
        }
        let mut at = at;
        if values.as_constant(id).is_none() {
            at = self.push(at, Fact::Range(id, now));
            let index = id.0 as usize;
            if self.refined.len() <= index {
                self.refined.resize(index + 1, false);
            }
            self.refined[index] = true;
        }
        if depth == 0 {
            return Some(at);
        }
        match &values.node(id).op {
            // c + x or c - x, where it does not wrap.
            Op::Sum(LinearSum { terms, constant }) if matches!(terms.as_slice(), [(_, 1 | -1)]) => {
                let (term, sign) = terms[0];
                let old = self.range(values, term, at);
                let next = solved(width, sign, (*constant).into(), &old, &now);
                self.refine(values, term, next, at, depth - 1)
            }
            Op::Extend(of) => {
                let inner = Range {
                    per: now.per,
                    ..Range::unsigned(BitWidth::W32, now.lo.min(BitWidth::W32.max()), now.hi)
                };
                self.refine(values, *of, inner, at, depth - 1)
            }
            Op::Wrap(of) if values.range(*of).hi <= BitWidth::W32.max() => {
                let inner = Range { per: now.per, ..Range::unsigned(BitWidth::W64, now.lo, now.hi) };
                self.refine(values, *of, inner, at, depth - 1)
            }
            _ => Some(at),
        }
    }
}

/// The ends of an interval of multiples of `2^zeros`, but for what wraps: such multiples too.
fn inwards(lo: i128, hi: i128, zeros: u8, width: BitWidth) -> (i128, i128) {
    let low = (1i128 << u32::from(zeros).min(width.bits() - 1)) - 1;
    ((lo + low) & !low, hi & !low)
}

/// A sum in which a value stands beside its own lowest bits, taken off: `x - (x & 7)` is `x` rounded down. Between which integers the sum lies,
/// how many of its lowest bits are 0, and an upper bound by the packet's length.
fn rounded_pair(
    values: &ValueTable,
    sum: &LinearSum,
    width: BitWidth,
    range: impl Fn(BoundValueId) -> Range,
) -> Option<(i128, i128, u8, Option<Linear>)> {
    sum.terms.iter().find_map(|(id, by)| {
        let Op::And(of, mask) = values.node(*id).op else { return None };
        let mask = width.wrap(values.as_constant(mask)?.into());
        if mask == 0 || mask & mask.wrapping_add(1) != 0 || mask == width.max() {
            return None;
        }
        let low = LinearSum { terms: vec![(*id, 1)], constant: 0 };
        let without = ValueTable::combined(width, sum, 1, &low, by.wrapping_neg());
        let rest = ValueTable::combined(width, &without, 1, &values.sum(of), *by);
        if rest.terms.len() >= without.terms.len() {
            return None;
        }
        let times = -i128::from(*by);
        let whole = range(of);
        let (least, most) = (i128::from(whole.lo & !mask) * times, i128::from(whole.hi & !mask) * times);
        let (lo, hi) = values.interval(&rest, &range);
        let zeros = mask.trailing_ones() + by.trailing_zeros();
        let zeros = u8::try_from(zeros).unwrap_or(0).min(values.zeros_of(&rest, width));
        let per = whole
            .per
            .filter(|_| times == 1)
            .map(|per| Linear { constant: clamp_unsigned(i128::from(per.constant) + hi), ..per });
        Some((lo.checked_add(least.min(most))?, hi.checked_add(least.max(most))?, zeros, per))
    })
}

/// The range of `x`, which was `old`, where `constant + sign x` lies in `now`. Nothing new where that can wrap.
fn solved(width: BitWidth, sign: i64, constant: i128, old: &Range, now: &Range) -> Range {
    let mut next = Range::any(width);
    let (least, most) = width.signed();
    let ends =
        |a: i128, b: i128| if sign > 0 { (a - constant, b - constant) } else { (constant - b, constant - a) };
    let reach = |lo: i128, hi: i128| {
        if sign > 0 { (lo + constant, hi + constant) } else { (constant - hi, constant - lo) }
    };
    let (lo, hi) = reach(old.lo.into(), old.hi.into());
    if lo >= 0 && hi < width.modulus() {
        let (lo, hi) = ends(now.lo.into(), now.hi.into());
        (next.lo, next.hi) = (clamp_unsigned(lo), clamp_unsigned(hi).min(width.max()));
        if sign > 0 {
            next.per = now.per.map(|per| Linear {
                constant: per.constant.saturating_add(clamp_unsigned(-constant)),
                ..per
            });
        }
    }
    let (lo, hi) = reach(old.slo.into(), old.shi.into());
    if lo >= least.into() && hi <= most.into() {
        let (lo, hi) = ends(now.slo.into(), now.shi.into());
        (next.slo, next.shi) = (clamp_signed(lo).max(least), clamp_signed(hi).min(most));
    }
    next
}

fn clamp_unsigned(value: i128) -> u64 {
    u64::try_from(value.max(0)).unwrap_or(u64::MAX)
}

fn clamp_signed(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// What holds where a comparison does not.
fn opposite(cmp: Cmp, a: BoundValueId, b: BoundValueId) -> (Cmp, BoundValueId, BoundValueId) {
    match cmp {
        Cmp::Eq => (Cmp::Ne, a, b),
        Cmp::Ne => (Cmp::Eq, a, b),
        Cmp::LtU => (Cmp::LeU, b, a),
        Cmp::LeU => (Cmp::LtU, b, a),
        Cmp::LtS => (Cmp::LeS, b, a),
        Cmp::LeS => (Cmp::LtS, b, a),
    }
}
