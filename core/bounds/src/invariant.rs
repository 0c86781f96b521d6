//! Ranges that locals have whenever a loop's body begins: guessed from one walk through the body, and proved by the next.
//!
//! Compilers split a loop in two where one of its paths changes less than the others do. The inner loop repeats by that path, the outer loop by the
//! others, and both advance one counter. The inner loop ends only because the counter is never below its first value when the inner loop is
//! entered again, which no single edge shows.
//!
//! The proof is an induction over the iterations. A guess contains the local's value where the loop is entered. A walk that assumes nothing but the
//! guesses ends each way back within them.

use crate::Why;
use crate::range::{BitWidth, Range};
use crate::state::{AnalysisLimit, WalkState};
use crate::trips::{InductionVariable, LoopShape};
use crate::value::{BoundValueId, Cmp, Op};
use crate::walk::{Frame, Walker};
use wasmparser::Operator;

/// The most walks for the guesses of one loop. After each, guesses that did not hold are dropped.
const WALKS: usize = 3;
/// The most locals and globals that a loop changes for guesses to be made: the work grows with them times the ways back.
const CHANGED: usize = 64;
/// The most ways back of a loop for which guesses are made.
const WAYS: usize = 16;
/// The most nested looks at loops in which guesses are still made: each multiplies the work.
const DEEP: u32 = 3;

/// A range that a local has whenever the body begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invariant {
    pub(crate) local: usize,
    pub(crate) range: Range,
    /// The sources, as bits, of the comparisons that keep the local in the range.
    pub(crate) from: u8,
    /// A value from before the loop that bounds the local: it is less, as an unsigned number.
    below: Option<BoundValueId>,
    /// True if the first walk, which assumes nothing, has found it: it is no guess.
    is_certain: bool,
}

/// A comparison of a local with a limit that holds whenever the body begins. True if the local stands on the left.
pub(crate) type Tested = (Cmp, usize, BoundValueId, bool);

/// One look at a loop's body.
pub(crate) struct LoopPass {
    pub(crate) counters: Vec<InductionVariable>,
    pub(crate) shape: LoopShape,
    pub(crate) tested: Vec<Tested>,
    /// Each counter's range on all ways back, and the sources of that range, as bits.
    reached: Vec<Option<(Range, u8)>>,
    /// The locals that all ways back leave below the limit of their invariant.
    below: Vec<usize>,
}

/// A loop's body, where the loop is entered.
#[derive(Clone, Copy)]
pub(crate) struct LoopBody<'s> {
    /// The place of the `loop` instruction in its function.
    pub(crate) at: usize,
    /// The number of the loop's parameters.
    pub(crate) params: usize,
    pub(crate) entry: &'s WalkState,
    /// The first value that was made after the loop was entered.
    pub(crate) first: BoundValueId,
    /// The locals and globals that the body changes.
    pub(crate) written: &'s [usize],
}

impl<'a> Walker<'a, '_> {
    /// Walks the body, which each local enters with any value that the invariants allow.
    pub(crate) fn look(
        &mut self,
        frame: &mut Frame<'a>,
        body: LoopBody<'_>,
        invariants: &[Invariant],
    ) -> Result<LoopPass, AnalysisLimit> {
        let LoopBody { at, params, entry, first, written } = body;
        let (counters, start) = self.generic(entry, written, invariants);
        let may_guess = self.may_guess(frame, at) && counters.len() <= CHANGED;
        self.quietly(frame, |walker, frame| {
            let walked = walker.once(frame, at, params, start)?;
            let back = &walked.around.back;
            let mut below = Vec::new();
            for invariant in invariants {
                let Some(limit) = invariant.below else { continue };
                if back.iter().all(|edge| walker.is_below(invariant.local, limit, entry, edge)) {
                    below.push(invariant.local);
                }
            }
            let reached = if may_guess && back.len() <= WAYS {
                walker.step(20 * counters.len() * back.len())?;
                walker.reached(entry, &counters, back)
            } else {
                Vec::new()
            };
            Ok(LoopPass {
                below,
                tested: walker.tested(entry, first, &counters, back),
                reached,
                shape: walker.shape(entry, first, &counters, &walked),
                counters,
            })
        })
    }

    /// Looks again at a loop with inner loops for which no bound was found. Returns a better look, and the invariants that it rests on.
    pub(crate) fn look_again(
        &mut self,
        frame: &mut Frame<'a>,
        body: LoopBody<'_>,
        before: &LoopPass,
    ) -> Result<Option<(LoopPass, Vec<Invariant>)>, AnalysisLimit> {
        let LoopBody { at, entry, written, .. } = body;
        let is_tried = self.may_guess(frame, at)
            && matches!(before.shape.trips, Err(Why::NoCounter | Why::MayMiss | Why::LimitUnknown));
        if !is_tried {
            return Ok(None);
        }
        let mut guesses = self.guesses(entry, written, before);
        for _ in 0..WALKS {
            if guesses.is_empty() {
                break;
            }
            let look = self.look(frame, body, &guesses)?;
            let kept: Vec<Invariant> = guesses
                .iter()
                .filter(|guess| {
                    let place = written.iter().position(|local| *local == guess.local);
                    let reached = place.and_then(|place| look.reached.get(place).copied().flatten());
                    let is_kept = reached.is_some_and(|(range, _)| match guess.below {
                        // The limit bounds the upper end as well.
                        Some(_) => range.lo >= guess.range.lo && look.below.contains(&guess.local),
                        None => range.is_within(&guess.range),
                    });
                    // A loop that never repeats keeps everything.
                    guess.is_certain || look.never_repeats() || is_kept
                })
                .copied()
                .collect();
            if kept.len() == guesses.len() {
                return Ok(look.shape.trips.is_ok().then_some((look, guesses)));
            }
            // Guesses that held did so with the help of some that did not.
            guesses = kept;
        }
        Ok(None)
    }

    /// Returns true for a loop with loops in it, unless it is itself too deep in others.
    fn may_guess(&self, frame: &Frame<'a>, at: usize) -> bool {
        let end = frame.code.ends[at] as usize;
        let inside = frame.code.operators.get(at + 1..end).unwrap_or_default();
        self.probing <= DEEP && inside.iter().any(|operator| matches!(operator, Operator::Loop { .. }))
    }

    /// Each counter's range on all ways back.
    fn reached(
        &self,
        entry: &WalkState,
        counters: &[InductionVariable],
        back: &[WalkState],
    ) -> Vec<Option<(Range, u8)>> {
        let of_edge = |counter: &InductionVariable, edge: &WalkState| {
            let width = self.values.width(counter.first);
            let next = *edge.locals.get(counter.local)?;
            if width == BitWidth::Other || self.values.width(next) != width {
                return None;
            }
            let mut range = self.facts.range(&self.values, next, edge.facts);
            // Facts about a sum that differs only by a constant.
            let sum = self.values.sum(next);
            if sum.terms.len() > 1
                && let Some(apart) = self.facts.difference(&self.values, &sum, width, edge.facts)
            {
                range = range.and(apart, width);
            }
            let tests = self.facts.learnt(edge.facts, entry.facts);
            let from = tests
                .filter(|(_, _, a, b)| self.is_about(*a, next) || self.is_about(*b, next))
                .fold(self.values.node(next).from, |from, (_, _, a, b)| {
                    from | self.values.node(a).from | self.values.node(b).from
                });
            Some((range, from))
        };
        counters
            .iter()
            .map(|counter| {
                let mut edges = back.iter().map(|edge| of_edge(counter, edge));
                let first = edges.next()??;
                edges.try_fold(first, |(all, from), edge| {
                    edge.map(|(range, more)| (all.or(range), from | more))
                })
            })
            .collect()
    }

    /// Returns true if two values differ only by a constant.
    fn is_about(&self, a: BoundValueId, b: BoundValueId) -> bool {
        self.values.width(a) == self.values.width(b) && self.values.difference(a, b).terms.is_empty()
    }

    /// Guesses the ranges that locals keep. Where the ways back show only one end, the other end is the value at the loop's entry.
    fn guesses(&mut self, entry: &WalkState, written: &[usize], before: &LoopPass) -> Vec<Invariant> {
        let mut found = Vec::new();
        for (local, reached) in written.iter().zip(&before.reached) {
            let (Some(first), Some((reached, from))) = (entry.locals.get(*local).copied(), *reached) else {
                continue;
            };
            let width = self.values.width(first);
            let limit = before.tested.iter().find(|(cmp, tested, ..)| *cmp == Cmp::Ne && tested == local);
            let limit = limit.map(|(_, _, limit, _)| *limit);
            let limit = limit.filter(|limit| self.is_known(Cmp::LtU, first, *limit, entry));
            let first = self.facts.range(&self.values, first, entry.facts);
            if first.is_empty() || reached.is_empty() {
                continue;
            }
            if let Some(limit) = limit {
                let most = self.facts.range(&self.values, limit, entry.facts).hi.saturating_sub(1);
                let range = Range::unsigned(width, first.lo, most.max(first.hi));
                let from = from | self.values.node(limit).from;
                found.push(Invariant { local: *local, range, from, below: Some(limit), is_certain: false });
                continue;
            }
            let whole = first.or(reached);
            let (least, most) = width.signed();
            // An end that is near that of the width says only that some step did not wrap.
            let (has_low, has_high) = (whole.slo > least / 2, whole.shi < most / 2);
            let is_certain = whole.hi < width.max() / 4 || (has_low && has_high);
            let range = if is_certain {
                whole
            } else if has_high {
                Range::signed(width, first.slo, whole.shi)
            } else if has_low {
                Range::signed(width, whole.slo, first.shi)
            } else if whole.lo > 0 {
                Range::unsigned(width, whole.lo, first.hi)
            } else {
                continue;
            };
            found.push(Invariant { local: *local, range, from, below: None, is_certain });
        }
        found
    }

    /// Returns true if a way back leaves a local below a limit: less, or not above it on a way that is not taken where the two are equal.
    fn is_below(&mut self, local: usize, limit: BoundValueId, entry: &WalkState, edge: &WalkState) -> bool {
        let Some(next) = edge.locals.get(local).copied() else { return false };
        if self.values.width(next) != self.values.width(limit) {
            return false;
        }
        let differ = self.facts.learnt(edge.facts, entry.facts).any(|(_, cmp, a, b)| {
            let is = |a, b| self.values.same(a, next) && self.values.same(b, limit);
            cmp == Cmp::Ne && (is(a, b) || is(b, a))
        });
        self.is_known(Cmp::LtU, next, limit, edge) || (differ && self.is_known(Cmp::LeU, next, limit, edge))
    }

    /// Assumes invariants where the body begins. Each is also added as a comparison with a limit, so that it counts as a test of the counter.
    pub(crate) fn assume_invariants(&mut self, invariants: &[Invariant], start: &mut WalkState) {
        for invariant in invariants {
            let Some(now) = start.locals.get(invariant.local).copied() else { continue };
            let (width, range) = (self.values.width(now), invariant.range);
            if let Some(facts) = invariant
                .below
                .and_then(|limit| self.facts.holds(&self.values, Cmp::LtU, now, limit, start.facts))
            {
                start.facts = facts;
            }
            if let Some(facts) = self.facts.within(&self.values, now, range, start.facts) {
                start.facts = facts;
            }
            // The limit is an unknown number of the range, as the local's value is. Both orders: a step down from a small number wraps only if unsigned.
            let limit = self.values.add(Op::Opaque, width, range, invariant.from);
            for cmp in [Cmp::LeU, Cmp::LeS] {
                for (a, b) in [(now, limit), (limit, now)] {
                    if let Some(facts) = self.facts.holds(&self.values, cmp, a, b, start.facts) {
                        start.facts = facts;
                    }
                }
            }
        }
    }
}

impl LoopPass {
    fn never_repeats(&self) -> bool {
        self.shape.trips.as_ref().is_ok_and(|trips| *trips == crate::Linear::ZERO)
    }
}
