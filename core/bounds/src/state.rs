//! What the walk over a function carries along, and how ways through it meet.

use crate::facts::{FactId, PathConditions};
use crate::range::{BitWidth, USUAL_PACKET};
use crate::report::ResourceBound;
use crate::value::{BoundValueId, Op, ValueTable};
use crate::{Linear, Why};
use std::rc::Rc;

/// The analysis gives up: there is more code on the module's paths than is looked at.
#[derive(Debug)]
pub(crate) enum AnalysisLimit {
    TooLarge,
    Malformed(crate::Malformed),
}

/// Where the walk stands.
#[derive(Clone, Debug)]
pub(crate) struct WalkState {
    /// The function's locals, and after them the module's globals.
    pub(crate) locals: Vec<BoundValueId>,
    pub(crate) stack: Vec<BoundValueId>,
    pub(crate) facts: FactId,
    /// The most that was used since the function, or the iteration of the innermost loop, began.
    pub(crate) usage: ResourceBound,
}

impl WalkState {
    /// Takes the uppermost operand; in valid code there is one.
    pub(crate) fn pop(&mut self) -> BoundValueId {
        self.stack.pop().unwrap_or(ValueTable::zero(BitWidth::W32))
    }

    pub(crate) fn push(&mut self, id: BoundValueId) {
        self.stack.push(id);
    }

    pub(crate) fn spend(&mut self, fuel: Linear) {
        self.usage.fuel = self.usage.fuel.plus(fuel);
    }

    /// Leaves the uppermost `keep` operands on top of `height` others.
    pub(crate) fn unwind(&mut self, height: usize, keep: usize) {
        let from = self.stack.len().saturating_sub(keep);
        if from > height {
            self.stack.drain(height..from);
        }
    }
}

/// A place where ways meet.
#[derive(Debug)]
pub(crate) struct MergePoint {
    /// Marks the joins that were made for it.
    token: u32,
    /// What every way knows.
    before: FactId,
    pub(crate) state: Option<WalkState>,
}

/// Ways that a join remembers.
const WAYS_MAX: usize = 16;

impl MergePoint {
    pub(crate) fn new(token: u32, before: FactId) -> Self {
        Self { token, before, state: None }
    }

    /// What every way knows.
    pub(crate) fn before(&self) -> FactId {
        self.before
    }

    /// One more way leads here.
    pub(crate) fn add(&mut self, values: &mut ValueTable, facts: &mut PathConditions, other: WalkState) {
        let Some(state) = &mut self.state else {
            self.state = Some(other);
            return;
        };
        let known = (state.facts, other.facts);
        let mine = state.locals.iter_mut().chain(&mut state.stack);
        for (a, b) in mine.zip(other.locals.iter().chain(&other.stack)) {
            if !values.same(*a, *b) {
                *a = join(values, facts, (*a, known.0), (*b, known.1), self.token);
            } else if *a != *b {
                *a = values.either_made(*a, *b);
            }
        }
        state.usage = state.usage.or(other.usage);
        state.facts = facts.meet(values, known.0, known.1, self.before);
    }
}

/// A value that is one of two; a join that was made for the same meeting gets one more.
pub(crate) fn join(
    values: &mut ValueTable,
    facts: &PathConditions,
    a: (BoundValueId, FactId),
    b: (BoundValueId, FactId),
    token: u32,
) -> BoundValueId {
    let width = values.width(a.0);
    if width == BitWidth::Other {
        return values.any(width);
    }
    let added = facts.range(values, b.0, b.1);
    let (zeros, from) = (values.node(b.0).zeros, values.node(b.0).from);
    if values.node(a.0).owner == token {
        let node = values.node_mut(a.0);
        node.range = node.range.or(added);
        node.zeros = node.zeros.min(zeros);
        node.from |= from;
        match &mut node.op {
            Op::Join(ways) if ways.len() < WAYS_MAX => ways.push(b),
            op => *op = Op::Opaque,
        }
        return a.0;
    }
    let range = facts.range(values, a.0, a.1).or(added);
    let (zeros, from) = (zeros.min(values.node(a.0).zeros), from | values.node(a.0).from);
    let id = values.add(Op::Join(vec![a, b]), width, range, from);
    let node = values.node_mut(id);
    (node.zeros, node.owner) = (zeros, token);
    id
}

/// What can contribute.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CostSite {
    /// A loop, so many times.
    Loop(Linear),
    /// A call of this function, or of any.
    Call(Option<u32>),
    Host(&'static str),
    Bulk,
    /// `memory.grow`.
    Grow,
}

/// What contributes most, from here inwards.
#[derive(Debug)]
pub(crate) struct Hot {
    pub(crate) function: u32,
    pub(crate) offset: u32,
    pub(crate) spot: CostSite,
    /// Of what it contributes to.
    pub(crate) amount: Linear,
    pub(crate) inner: Option<Rc<Hot>>,
}

/// What contributes most: to fuel, records, patches, frames and pages, as [`ResourceBound::each`] has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peaks(pub(crate) [Option<Rc<Hot>>; 5]);

impl Peaks {
    /// One more place, or way to places further in.
    pub(crate) fn note(
        &mut self,
        (function, offset): (u32, u32),
        spot: CostSite,
        usage: &ResourceBound,
        inner: &Self,
    ) {
        for ((peak, inner), amount) in self.0.iter_mut().zip(&inner.0).zip(usage.each()) {
            if is_more(amount, peak.as_ref()) {
                *peak = Some(Rc::new(Hot { function, offset, spot, amount, inner: inner.clone() }));
            }
        }
    }

    /// The higher one of each.
    pub(crate) fn rise(&mut self, other: &Self) {
        for (peak, other) in self.0.iter_mut().zip(&other.0) {
            if other.as_ref().is_some_and(|other| is_more(other.amount, peak.as_ref())) {
                peak.clone_from(other);
            }
        }
    }
}

fn is_more(amount: Linear, than: Option<&Rc<Hot>>) -> bool {
    let of = |amount: Linear| amount.at(USUAL_PACKET);
    of(amount) > than.map_or(0, |than| of(than.amount))
}

/// Who takes most of a stack on the way to its deepest point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackSite {
    pub(crate) function: u32,
    pub(crate) offset: u32,
    /// Nothing if that is not known.
    pub(crate) bytes: Option<u64>,
}

/// Reasons why there is no bound, and the bits of what the work grows with.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkReasons {
    pub(crate) reasons: Vec<(u32, u32, Why)>,
    pub(crate) from: u8,
}

impl WorkReasons {
    pub(crate) fn blame(&mut self, function: u32, offset: u32, why: Why) {
        let known = self.reasons.iter().any(|(f, o, w)| (*f, *o, w) == (function, offset, &why));
        if !known && self.reasons.len() < REASONS_MAX {
            self.reasons.push((function, offset, why));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (function, offset, why) in &other.reasons {
            self.blame(*function, *offset, why.clone());
        }
        self.from |= other.from;
    }
}

/// More reasons than that tell nobody more.
const REASONS_MAX: usize = 64;
