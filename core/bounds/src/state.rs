//! The abstract state at a place of a function, and the merge of states where paths meet.

use crate::conditions::{PathConditionId, PathConditions};
use crate::range::{BitWidth, USUAL_PACKET};
use crate::report::ResourceBound;
use crate::value::{Op, ValueId, ValueTable};
use crate::{Linear, UnboundedCause};
use std::rc::Rc;

/// The reason why the analysis of an entry point ends early.
#[derive(Debug)]
pub(crate) enum AnalysisStop {
    /// The module needs more work or memory than the limits allow.
    TooLarge,
    /// A function cannot be parsed.
    Malformed(crate::Malformed),
}

/// The abstract state at one place of a function.
#[derive(Clone, Debug)]
pub(crate) struct AbstractState {
    /// The function's locals, followed by the module's globals.
    pub(crate) locals: Vec<ValueId>,
    /// The operand stack, top last.
    pub(crate) stack: Vec<ValueId>,
    pub(crate) conditions: PathConditionId,
    /// The most that was used since the function began, or since the current iteration of the innermost loop began.
    pub(crate) usage: ResourceBound,
}

impl AbstractState {
    /// Pops the top operand. Valid code always has one.
    pub(crate) fn pop(&mut self) -> ValueId {
        self.stack.pop().unwrap_or(ValueTable::zero(BitWidth::W32))
    }

    pub(crate) fn push(&mut self, id: ValueId) {
        self.stack.push(id);
    }

    pub(crate) fn spend(&mut self, fuel: Linear) {
        self.usage.fuel = self.usage.fuel.plus(fuel);
    }

    /// Keeps the lowest `height` operands and the top `keep` operands, and drops those between.
    pub(crate) fn unwind(&mut self, height: usize, keep: usize) {
        let kept = self.stack.len().saturating_sub(keep);
        if kept > height {
            self.stack.drain(height..kept);
        }
    }
}

/// A merge point: a place where several paths meet.
#[derive(Debug)]
pub(crate) struct MergePoint {
    /// The identifier that the joins made at this merge point carry.
    merge_id: u32,
    /// The conditions that all paths to the merge point share.
    shared_conditions: PathConditionId,
    /// The merged state; `None` as long as no path has reached the merge point.
    pub(crate) state: Option<AbstractState>,
}

/// The most inputs of a join. A join with more inputs becomes [`Op::Opaque`].
const JOIN_INPUTS_MAX: usize = 16;

impl MergePoint {
    pub(crate) fn new(merge_id: u32, shared_conditions: PathConditionId) -> Self {
        Self { merge_id, shared_conditions, state: None }
    }

    /// The conditions that all paths to the merge point share.
    pub(crate) fn shared_conditions(&self) -> PathConditionId {
        self.shared_conditions
    }

    /// Merges the state of one more path.
    pub(crate) fn add(
        &mut self,
        values: &mut ValueTable,
        conditions: &mut PathConditions,
        other: AbstractState,
    ) {
        let Some(state) = &mut self.state else {
            self.state = Some(other);
            return;
        };
        let known = (state.conditions, other.conditions);
        let merged = state.locals.iter_mut().chain(&mut state.stack);
        for (a, b) in merged.zip(other.locals.iter().chain(&other.stack)) {
            if !values.are_equal(*a, *b) {
                *a = join(values, conditions, (*a, known.0), (*b, known.1), self.merge_id);
            } else if *a != *b {
                *a = values.join_equal_sums(*a, *b);
            }
        }
        state.usage = state.usage.join(other.usage);
        state.conditions = conditions.merge(values, known.0, known.1, self.shared_conditions);
    }
}

/// The join of two values, each with the conditions on its path. If `a` is a join that was made for the same merge
/// point, it gets `b` as a further input.
fn join(
    values: &mut ValueTable,
    conditions: &PathConditions,
    a: (ValueId, PathConditionId),
    b: (ValueId, PathConditionId),
    merge_id: u32,
) -> ValueId {
    let width = values.width(a.0);
    if width == BitWidth::Other {
        return values.any(width);
    }
    let added = conditions.range(values, b.0, b.1);
    let (trailing_zeros, dependencies) = (values.node(b.0).trailing_zeros, values.node(b.0).dependencies);
    if values.node(a.0).merge_id == merge_id {
        let node = values.node_mut(a.0);
        node.range = node.range.join(added);
        node.trailing_zeros = node.trailing_zeros.min(trailing_zeros);
        node.dependencies |= dependencies;
        match &mut node.op {
            Op::Join(inputs) if inputs.len() < JOIN_INPUTS_MAX => inputs.push(b),
            op => *op = Op::Opaque,
        }
        return a.0;
    }
    let range = conditions.range(values, a.0, a.1).join(added);
    let (trailing_zeros, dependencies) =
        (trailing_zeros.min(values.node(a.0).trailing_zeros), dependencies | values.node(a.0).dependencies);
    let id = values.add(Op::Join(vec![a, b]), width, range, dependencies);
    let node = values.node_mut(id);
    (node.trailing_zeros, node.merge_id) = (trailing_zeros, merge_id);
    id
}

/// The kind of code that a cost is attributed to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CostSite {
    /// A loop with this trip count.
    Loop(Linear),
    /// A call of this function; `None` for an indirect call.
    Call(Option<u32>),
    /// A call of the host function of this name.
    Host(&'static str),
    /// A bulk memory or table instruction.
    Bulk,
    /// `memory.grow`.
    Grow,
}

/// A path to the location that contributes most to a resource: its outermost step and the rest.
#[derive(Debug)]
pub(crate) struct HotPath {
    pub(crate) function: u32,
    pub(crate) offset: u32,
    pub(crate) site: CostSite,
    /// The amount of the resource that is used at this step, including `inner`.
    pub(crate) amount: Linear,
    /// The rest of the path, inside the loop or callee of this step.
    pub(crate) inner: Option<Rc<HotPath>>,
}

/// The largest contributor to each of fuel, records, patches, frames and pages, in the order of
/// [`ResourceBound::as_array`].
#[derive(Clone, Debug, Default)]
pub(crate) struct TopCosts(pub(crate) [Option<Rc<HotPath>>; 5]);

impl TopCosts {
    /// Records the usage of a site, and `inner`, the largest contributors inside the site. The site becomes the largest
    /// contributor to each resource that it uses more of than the sites so far.
    pub(crate) fn note_cost(
        &mut self,
        (function, offset): (u32, u32),
        site: CostSite,
        usage: &ResourceBound,
        inner: &Self,
    ) {
        for ((top, inner), amount) in self.0.iter_mut().zip(&inner.0).zip(usage.as_array()) {
            if is_more(amount, top.as_ref()) {
                *top = Some(Rc::new(HotPath { function, offset, site, amount, inner: inner.clone() }));
            }
        }
    }

    /// For each resource, takes over the contributor in `other` if its amount is larger.
    pub(crate) fn adopt_larger(&mut self, other: &Self) {
        for (top, other) in self.0.iter_mut().zip(&other.0) {
            if other.as_ref().is_some_and(|other| is_more(other.amount, top.as_ref())) {
                top.clone_from(other);
            }
        }
    }
}

/// Returns true if an amount is larger than that of a path, for a packet of [`USUAL_PACKET`] bytes.
fn is_more(amount: Linear, path: Option<&Rc<HotPath>>) -> bool {
    amount.at(USUAL_PACKET) > path.map_or(0, |path| path.amount.at(USUAL_PACKET))
}

/// The bytes of stack that are assumed for a function that was not analysed: far above any real stack, and small enough
/// that frames can be added without overflow.
pub(crate) const UNBOUNDED_STACK: u64 = u64::MAX / 2;

/// The code location that takes the largest part of a stack, on the call path where the stack is deepest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StackSite {
    pub(crate) function: u32,
    pub(crate) offset: u32,
    /// The size of the part; `None` if it is unknown.
    pub(crate) bytes: Option<u64>,
}

/// The causes of missing bounds, and the inputs that the work depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkReasons {
    /// Function, code offset and cause.
    pub(crate) reasons: Vec<(u32, u32, UnboundedCause)>,
    /// Bits of [`dependency`](crate::value::dependency).
    pub(crate) dependencies: u8,
}

impl WorkReasons {
    pub(crate) fn add_cause(&mut self, function: u32, offset: u32, cause: UnboundedCause) {
        let known = self.reasons.iter().any(|(f, o, c)| (*f, *o, c) == (function, offset, &cause));
        if !known && self.reasons.len() < REASONS_MAX {
            self.reasons.push((function, offset, cause));
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (function, offset, cause) in &other.reasons {
            self.add_cause(*function, *offset, cause.clone());
        }
        self.dependencies |= other.dependencies;
    }
}

/// The most causes that are kept. Further ones would not help the module's author.
const REASONS_MAX: usize = 64;
