//! Loop invariants: ranges of locals that hold whenever an iteration of a loop begins. One walk of the loop's body
//! suggests ranges, the *guesses*; the next walk proves them.
//!
//! Nested loops need invariants. Compilers split a loop with two kinds of paths into an inner loop, which repeats by
//! paths of one kind, and an outer loop, which repeats by the others; both advance the same induction variable. The
//! inner loop has a bound only if the variable is never below its initial value when the inner loop is entered again.
//! No single back edge of the outer loop shows that.
//!
//! The proof is an induction over the iterations. Base: a guess contains the local's value where the loop is entered.
//! Step: where a walk of the body assumes the guesses at its begin, they hold again on every back edge.

use crate::UnboundedCause;
use crate::interpreter::{Frame, Interpreter};
use crate::loops::LoopSummary;
use crate::range::{BitWidth, Range};
use crate::state::{AbstractState, AnalysisStop};
use crate::trip_count::InductionVariable;
use crate::value::{Cmp, Op, ValueId};
use wasmparser::Operator;

/// The most walks to prove the guesses of one loop. Guesses that do not hold in one walk are left out in the next.
const GUESS_WALKS_MAX: usize = 3;
/// The most locals and globals that a loop writes, for guesses to be made. The work is their number times the number of
/// back edges.
const WRITTEN_MAX: usize = 64;
/// The most back edges of a loop for which guesses are made.
const BACK_EDGES_MAX: usize = 16;
/// The deepest nesting of unrecorded walks in which guesses are made: each level multiplies the work.
const NESTING_MAX: u32 = 3;

/// A range of a local that holds whenever an iteration of the loop begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invariant {
    /// The index of the local in [`AbstractState::locals`].
    pub(crate) local: usize,
    pub(crate) range: Range,
    /// The dependencies of the comparisons that keep the local in the range, as bits of
    /// [`dependency`](crate::value::dependency).
    pub(crate) dependencies: u8,
    /// A value from before the loop, if one is known, such that the local as an unsigned number is less than the value.
    limit: Option<ValueId>,
    /// True if the range was proved by the first walk, which assumes no guesses.
    is_proved: bool,
}

/// A comparison that holds whenever an iteration of a loop begins: the comparison, the index of the local, the limit,
/// and true if the local is the left operand.
pub(crate) type InvariantTest = (Cmp, usize, ValueId, bool);

/// The result of one analysis of a loop's body.
pub(crate) struct LoopPass {
    pub(crate) variables: Vec<InductionVariable>,
    pub(crate) summary: LoopSummary,
    pub(crate) tests: Vec<InvariantTest>,
    /// For each induction variable, the range of its values over all back edges and the dependencies of that range;
    /// `None` if the range is unknown.
    reached: Vec<Option<(Range, u8)>>,
    /// The locals that are less than the limit of their invariant on all back edges.
    below_limit: Vec<usize>,
}

/// A loop's body and the state where the loop is entered.
#[derive(Clone, Copy)]
pub(crate) struct LoopBody<'s> {
    /// The index of the `loop` instruction in its function.
    pub(crate) at: usize,
    /// The number of the loop's parameters.
    pub(crate) params: usize,
    pub(crate) entry: &'s AbstractState,
    /// The first value that was created in the loop. Values that were created before it do not change in the loop.
    pub(crate) first_in_loop: ValueId,
    /// The locals and globals that the body changes.
    pub(crate) written: &'s [usize],
}

impl<'a> Interpreter<'a, '_> {
    /// Walks the body once without recording costs. Each written local begins as any value that the invariants allow.
    pub(crate) fn analyse_body(
        &mut self,
        frame: &mut Frame<'a>,
        body: LoopBody<'_>,
        invariants: &[Invariant],
    ) -> Result<LoopPass, AnalysisStop> {
        let LoopBody { at, params, entry, first_in_loop, written } = body;
        let (variables, start) = self.start_with_invariants(entry, written, invariants);
        let may_guess = self.may_guess(frame, at) && variables.len() <= WRITTEN_MAX;
        self.without_recording(frame, |interpreter, frame| {
            let walked = interpreter.walk_body(frame, at, params, start)?;
            let back_edges = &walked.loop_frame.back_edges;
            let mut below_limit = Vec::new();
            for invariant in invariants {
                let Some(limit) = invariant.limit else { continue };
                if back_edges.iter().all(|edge| interpreter.is_below(invariant.local, limit, entry, edge)) {
                    below_limit.push(invariant.local);
                }
            }
            let reached = if may_guess && back_edges.len() <= BACK_EDGES_MAX {
                interpreter.step(20 * variables.len() * back_edges.len())?;
                interpreter.ranges_at_back_edges(entry, &variables, back_edges)
            } else {
                Vec::new()
            };
            Ok(LoopPass {
                below_limit,
                tests: interpreter.invariant_tests(entry, first_in_loop, &variables, back_edges),
                reached,
                summary: interpreter.summarise_loop(entry, first_in_loop, &variables, &walked),
                variables,
            })
        })
    }

    /// Repeats the analysis of a loop without a bound, with guesses about its locals, if the loop contains loops.
    /// Returns the analysis that found a bound, and the invariants that the bound relies on; `None` if no analysis
    /// found one.
    pub(crate) fn retry_with_guesses(
        &mut self,
        frame: &mut Frame<'a>,
        body: LoopBody<'_>,
        before: &LoopPass,
    ) -> Result<Option<(LoopPass, Vec<Invariant>)>, AnalysisStop> {
        let LoopBody { at, entry, written, .. } = body;
        let is_tried = self.may_guess(frame, at)
            && matches!(
                before.summary.trips,
                Err(UnboundedCause::NoCounter(_) | UnboundedCause::MayMiss | UnboundedCause::LimitUnknown)
            );
        if !is_tried {
            return Ok(None);
        }
        let mut guesses = self.guesses(entry, written, before);
        for _ in 0..GUESS_WALKS_MAX {
            if guesses.is_empty() {
                break;
            }
            let pass = self.analyse_body(frame, body, &guesses)?;
            let kept: Vec<Invariant> = guesses
                .iter()
                .filter(|guess| {
                    let index = written.iter().position(|local| *local == guess.local);
                    let reached = index.and_then(|index| pass.reached.get(index).copied().flatten());
                    let is_kept = reached.is_some_and(|(range, _)| match guess.limit {
                        // The limit replaces the upper end of the range.
                        Some(_) => range.lo >= guess.range.lo && pass.below_limit.contains(&guess.local),
                        None => range.is_within(&guess.range),
                    });
                    // In a loop that never repeats, every guess holds.
                    guess.is_proved || pass.never_repeats() || is_kept
                })
                .copied()
                .collect();
            if kept.len() == guesses.len() {
                return Ok(pass.summary.trips.is_ok().then_some((pass, guesses)));
            }
            // The proof of a kept guess may have relied on a guess that did not hold, so the proof is repeated.
            guesses = kept;
        }
        Ok(None)
    }

    /// Returns true if guesses are made for a loop: it contains loops, and its own nesting is not too deep.
    fn may_guess(&self, frame: &Frame<'a>, at: usize) -> bool {
        let end = frame.code.ends[at] as usize;
        let inside = frame.code.operators.get(at + 1..end).unwrap_or_default();
        self.unrecorded <= NESTING_MAX
            && inside.iter().any(|operator| matches!(operator, Operator::Loop { .. }))
    }

    /// The range of each induction variable over all back edges, with its dependencies.
    fn ranges_at_back_edges(
        &self,
        entry: &AbstractState,
        variables: &[InductionVariable],
        back_edges: &[AbstractState],
    ) -> Vec<Option<(Range, u8)>> {
        let range_at_edge = |variable: &InductionVariable, edge: &AbstractState| {
            let width = self.values.width(variable.initial);
            let next = *edge.locals.get(variable.local)?;
            if width == BitWidth::Other || self.values.width(next) != width {
                return None;
            }
            let mut range = self.conditions.range(&self.values, next, edge.conditions);
            // Uses conditions on other sums that differ from `sum` only by a constant.
            let sum = self.values.as_sum(next);
            if sum.terms.len() > 1
                && let Some(apart) = self.conditions.difference(&self.values, &sum, width, edge.conditions)
            {
                range = range.intersect(apart, width);
            }
            let tests = self.conditions.comparisons_since(edge.conditions, entry.conditions);
            let dependencies = tests
                .filter(|(_, _, a, b)| {
                    self.differs_by_constant(*a, next) || self.differs_by_constant(*b, next)
                })
                .fold(self.values.node(next).dependencies, |dependencies, (_, _, a, b)| {
                    dependencies | self.values.node(a).dependencies | self.values.node(b).dependencies
                });
            Some((range, dependencies))
        };
        variables
            .iter()
            .map(|variable| {
                let mut edges = back_edges.iter().map(|edge| range_at_edge(variable, edge));
                let first = edges.next()??;
                edges.try_fold(first, |(all, dependencies), edge| {
                    edge.map(|(range, more)| (all.join(range), dependencies | more))
                })
            })
            .collect()
    }

    /// Returns true if two values differ only by a constant.
    fn differs_by_constant(&self, a: ValueId, b: ValueId) -> bool {
        self.values.width(a) == self.values.width(b) && self.values.difference(a, b).terms.is_empty()
    }

    /// Guesses the ranges of locals, from the analysis `before` without guesses. Where the back edges bound only one
    /// end of a local's range, the guess takes the other end from the value at the loop's entry.
    fn guesses(&mut self, entry: &AbstractState, written: &[usize], before: &LoopPass) -> Vec<Invariant> {
        let mut found = Vec::new();
        for (local, reached) in written.iter().zip(&before.reached) {
            let (Some(initial), Some((reached, dependencies))) =
                (entry.locals.get(*local).copied(), *reached)
            else {
                continue;
            };
            let width = self.values.width(initial);
            let limit = before.tests.iter().find(|(cmp, tested, ..)| *cmp == Cmp::Ne && tested == local);
            let limit = limit.map(|(_, _, limit, _)| *limit);
            let limit = limit.filter(|limit| self.is_implied(Cmp::LtU, initial, *limit, entry));
            let initial = self.conditions.range(&self.values, initial, entry.conditions);
            if initial.is_empty() || reached.is_empty() {
                continue;
            }
            if let Some(limit) = limit {
                let most = self.conditions.range(&self.values, limit, entry.conditions).hi.saturating_sub(1);
                let range = Range::unsigned(width, initial.lo, most.max(initial.hi));
                let dependencies = dependencies | self.values.node(limit).dependencies;
                found.push(Invariant {
                    local: *local,
                    range,
                    dependencies,
                    limit: Some(limit),
                    is_proved: false,
                });
                continue;
            }
            let whole = initial.join(reached);
            let (least, most) = width.signed();
            // An end near the smallest or largest value of the width is no real bound: it shows only that one step did
            // not wrap.
            let (has_low, has_high) = (whole.slo > least / 2, whole.shi < most / 2);
            let is_proved = whole.hi < width.max() / 4 || (has_low && has_high);
            let range = if is_proved {
                whole
            } else if has_high {
                Range::signed(width, initial.slo, whole.shi)
            } else if has_low {
                Range::signed(width, whole.slo, initial.shi)
            } else if whole.lo > 0 {
                Range::unsigned(width, whole.lo, initial.hi)
            } else {
                continue;
            };
            found.push(Invariant { local: *local, range, dependencies, limit: None, is_proved });
        }
        found
    }

    /// Returns true if a local, as an unsigned number, is certainly less than a limit on a back edge: because of its
    /// range, or because it is at most the limit and the back edge has tested that both differ.
    fn is_below(
        &mut self,
        local: usize,
        limit: ValueId,
        entry: &AbstractState,
        edge: &AbstractState,
    ) -> bool {
        let Some(next) = edge.locals.get(local).copied() else { return false };
        if self.values.width(next) != self.values.width(limit) {
            return false;
        }
        let differ =
            self.conditions.comparisons_since(edge.conditions, entry.conditions).any(|(_, cmp, a, b)| {
                let are_these = |a, b| self.values.are_equal(a, next) && self.values.are_equal(b, limit);
                cmp == Cmp::Ne && (are_these(a, b) || are_these(b, a))
            });
        self.is_implied(Cmp::LtU, next, limit, edge)
            || (differ && self.is_implied(Cmp::LeU, next, limit, edge))
    }

    /// Assumes invariants in the state where an iteration begins. An invariant is also added as comparisons with an
    /// unknown limit, so that it counts as a test of the induction variable.
    pub(crate) fn assume_invariants(&mut self, invariants: &[Invariant], start: &mut AbstractState) {
        for invariant in invariants {
            let Some(now) = start.locals.get(invariant.local).copied() else { continue };
            let (width, range) = (self.values.width(now), invariant.range);
            if let Some(limit) = invariant.limit {
                self.assume_in_state(Cmp::LtU, now, limit, start);
            }
            if let Some(conditions) = self.conditions.assume_range(&self.values, now, range, start.conditions)
            {
                start.conditions = conditions;
            }
            // `own_value` stands for the local's value itself, so all comparisons hold. Signed and unsigned ones are
            // added, because a step down from a small number wraps only as an unsigned number.
            let own_value = self.values.add(Op::Opaque, width, range, invariant.dependencies);
            for cmp in [Cmp::LeU, Cmp::LeS] {
                self.assume_in_state(cmp, now, own_value, start);
                self.assume_in_state(cmp, own_value, now, start);
            }
        }
    }
}

impl LoopPass {
    fn never_repeats(&self) -> bool {
        self.summary.trips.as_ref().is_ok_and(|trips| *trips == crate::Linear::ZERO)
    }
}
