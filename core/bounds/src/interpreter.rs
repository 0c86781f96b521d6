//! The abstract interpreter. It follows WebAssembly's structured control flow. An instruction is visited once, or once
//! in each walk of the loops around it. Branches add path conditions. Where paths meet, values are joined, and the
//! larger cost is taken.

use crate::code::{Bodies, FunctionCode};
use crate::conditions::{PathConditionId, PathConditions};
use crate::range::{BitWidth, Range};
use crate::report::ResourceBound;
use crate::state::{AbstractState, AnalysisStop, CostSite, MergePoint, StackSite, TopCosts, WorkReasons};
use crate::value::{Op, ValueId, ValueTable, dependency};
use crate::{CostTable, Environment, Linear, Lines, ParsedModule, UnboundedCause};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use wasmparser::Operator;

/// The effect and cost of a function for arguments with certain properties.
#[derive(Debug)]
pub(crate) struct FunctionSummary {
    pub(crate) usage: ResourceBound,
    /// The most bytes of stack, callees included.
    pub(crate) stack: u64,
    /// The most bytes by which the shadow stack grows; `None` if they are unknown.
    pub(crate) shadow_depth: Option<u64>,
    pub(crate) results: Vec<AbstractValue>,
    /// The effect on each global.
    pub(crate) globals: Vec<GlobalEffect>,
    pub(crate) work: WorkReasons,
    pub(crate) top_costs: TopCosts,
    /// The function with the largest stack frame on the deepest call path.
    pub(crate) stack_site: StackSite,
    /// The location that takes most of the shadow stack.
    pub(crate) shadow_site: Option<StackSite>,
    /// True if the function can return.
    pub(crate) returns: bool,
    /// True if the function's loops and calls were recorded for the report.
    pub(crate) is_recorded: bool,
}

/// The properties of a value that carry over to another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AbstractValue {
    pub(crate) width: BitWidth,
    pub(crate) range: Range,
    pub(crate) trailing_zeros: u8,
    pub(crate) dependencies: u8,
}

/// The effect of a function on a global.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GlobalEffect {
    /// Adds this constant, wrapping. A function that does not change the global adds 0.
    Adds(i64),
    /// Sets the global to an unknown value.
    Sets,
}

/// The results for a loop, the largest of all its walks. See [`crate::LoopBound`] for the fields that are reported.
#[derive(Clone, Debug)]
pub(crate) struct LoopSite {
    pub(crate) function: u32,
    pub(crate) depth: u32,
    pub(crate) trips: Linear,
    pub(crate) body: Linear,
    pub(crate) total: Linear,
    /// The dependencies of the trips, as bits of [`dependency`].
    pub(crate) dependencies: u8,
    /// The cause, if the loop has no bound.
    pub(crate) cause: Option<UnboundedCause>,
    pub(crate) trip_formula: Option<crate::TripCountFormula>,
}

/// The results for a call of a host function.
#[derive(Clone, Debug)]
pub(crate) struct HostCallSite {
    pub(crate) function: u32,
    pub(crate) name: &'static str,
    pub(crate) fuel: Linear,
}

/// The results for a call of a function of the module.
#[derive(Clone, Debug)]
pub(crate) struct CallSite {
    pub(crate) function: u32,
    /// The called function; `None` for an indirect call.
    pub(crate) callee: Option<u32>,
    pub(crate) fuel: Linear,
}

/// The abstract interpreter of one module: the inputs of the analysis, its state and its results so far.
pub(crate) struct Interpreter<'a, 'e> {
    pub(crate) module: &'a ParsedModule,
    pub(crate) bodies: Bodies<'a>,
    pub(crate) lines: Lines<'a>,
    pub(crate) environment: &'e Environment,
    pub(crate) costs: &'e CostTable,
    pub(crate) values: ValueTable,
    pub(crate) conditions: PathConditions,
    /// The work done so far. The unit is a visit of one path condition.
    pub(crate) steps: u64,
    /// The limit of `steps`.
    pub(crate) steps_max: u64,
    /// The steps that are still available for walking loops iteration by iteration.
    pub(crate) unroll_steps_left: u64,
    /// The number of nested unrecorded walks. While it is above 0, nothing is recorded for the report.
    pub(crate) unrecorded: u32,
    /// The functions that are being walked, from the entry point inwards.
    pub(crate) call_stack: Vec<u32>,
    /// The summaries of functions, by function and key of the arguments.
    pub(crate) summaries: HashMap<(u32, Vec<u64>), Rc<FunctionSummary>>,
    /// The results for loops, by code offset.
    pub(crate) loops: BTreeMap<u32, LoopSite>,
    /// The results for calls of functions of the module, by code offset.
    pub(crate) calls: BTreeMap<u32, CallSite>,
    /// The results for calls of host functions, by code offset.
    pub(crate) host_calls: BTreeMap<u32, HostCallSite>,
    /// The functions that are called recursively, with arguments that were not analysed.
    pub(crate) recursive: BTreeSet<u32>,
    /// The descriptor's fields that were read, by offset, size in bytes, and width of the result.
    pub(crate) fields: HashMap<(u32, u8, BitWidth), ValueId>,
    /// The address of the first descriptor that the entry point receives.
    pub(crate) descriptor: ValueId,
    /// The fields of the event of a TCP stream that were read, as `fields`.
    pub(crate) event_fields: HashMap<(u32, u8, BitWidth), ValueId>,
    /// The address of the event of a TCP stream that the entry point receives.
    pub(crate) event: ValueId,
    /// The bytes of all descriptors that the entry point receives: one, or one for each packet of a batch.
    pub(crate) descriptor_bytes: usize,
    /// The last identifier that was given to a merge point.
    last_merge_id: u32,
}

/// A structured instruction around the current instruction, as the target of branches.
pub(crate) struct BlockLabel {
    /// The index of the structured instruction.
    begin: usize,
    /// The number of operands below the block's parameters.
    height: usize,
    /// The number of operands that a branch to the label carries.
    arity: usize,
    /// The merge point at the end of the block.
    merge: MergePoint,
    /// For `if`: the state in which its `else` begins.
    else_state: Option<AbstractState>,
    /// True between an `if` and its `else` or `end`.
    is_then: bool,
}

/// A loop whose body is being walked.
pub(crate) struct LoopFrame {
    /// The index of the loop's label.
    pub(crate) label: usize,
    /// The states in which back edges are taken.
    pub(crate) back_edges: Vec<AbstractState>,
    /// The offsets of their branches.
    pub(crate) back_edge_offsets: Vec<u32>,
    /// The branches out of the loop, by the index of the target label. Their usage counts from the begin of the
    /// iteration.
    pub(crate) exits: Vec<(usize, MergePoint)>,
    /// The most usage of paths that end in a trap.
    pub(crate) trapped: ResourceBound,
    /// The largest contributors inside the loop.
    pub(crate) top_costs: TopCosts,
}

/// The state of walking one function.
pub(crate) struct Frame<'a> {
    pub(crate) function: u32,
    pub(crate) code: Rc<FunctionCode<'a>>,
    /// The index of the current instruction.
    at: usize,
    /// The blocks around the current instruction, innermost last.
    labels: Vec<BlockLabel>,
    /// The loops around the current instruction, innermost last.
    pub(crate) loops: Vec<LoopFrame>,
    /// The state at the current instruction; `None` if the instruction is unreachable.
    pub(crate) state: Option<AbstractState>,
    pub(crate) top_costs: TopCosts,
    pub(crate) work: WorkReasons,
    /// The globals at the function's entry.
    pub(crate) globals: Vec<ValueId>,
    /// The most bytes by which the shadow stack has grown so far; `None` if they are unknown.
    pub(crate) shadow_depth: Option<u64>,
    /// The location that takes most of the shadow stack.
    pub(crate) shadow_site: Option<StackSite>,
    /// The most usage of paths that end in a trap.
    pub(crate) trapped: ResourceBound,
    /// The most bytes of stack that a callee uses.
    pub(crate) callee_stack: u64,
    /// The function with the largest stack frame in that callee's call path.
    pub(crate) callee_stack_site: Option<StackSite>,
    /// The most operands on the stack so far.
    operands: usize,
}

/// The work of visiting an instruction, in visits of path conditions.
pub(crate) const INSTRUCTION_STEPS: u64 = 6;
/// The work of decoding an instruction, in visits of path conditions.
const DECODE_STEPS: u64 = INSTRUCTION_STEPS;
/// The work of merging two states, without the work for each local.
const MERGE_STEPS: u64 = 90;
/// The work of a call without that of the callee's instructions, in visits of instructions.
const CALL_INSTRUCTIONS: usize = 90;
/// The deepest nesting of calls.
const CALL_DEPTH_MAX: usize = 48;
/// The deepest nesting of loops in one function.
pub(crate) const LOOP_DEPTH_MAX: usize = 16;
/// The most values of an analysis. Each takes about a hundred bytes.
const VALUES_MAX: usize = 200_000;

impl<'a, 'e> Interpreter<'a, 'e> {
    pub(crate) fn new(
        module: &'a ParsedModule,
        environment: &'e Environment,
        costs: &'e CostTable,
        steps_max: u64,
    ) -> Self {
        let mut values = ValueTable::default();
        let area = Range::unsigned(
            BitWidth::W32,
            weir_abi::DESCRIPTORS_BASE.into(),
            u64::from(weir_abi::DESCRIPTORS_BASE) + u64::from(weir_abi::DESCRIPTORS_MAX) - 1,
        );
        let descriptor = values.add(Op::Descriptor, BitWidth::W32, area, 0);
        values.node_mut(descriptor).trailing_zeros =
            u8::try_from(weir_abi::DESCRIPTOR_BYTES.trailing_zeros()).unwrap_or(0);
        let window = Range::unsigned(
            BitWidth::W32,
            weir_abi::STREAMS_BASE.into(),
            u64::from(weir_abi::STREAMS_BASE) + u64::from(weir_abi::STREAMS_WINDOW) - 1,
        );
        let event = values.add(Op::StreamEvent, BitWidth::W32, window, 0);
        values.node_mut(event).trailing_zeros =
            u8::try_from(weir_abi::stream::EVENT_BYTES.trailing_zeros()).unwrap_or(0);
        Self {
            module,
            bodies: Bodies::new(module),
            lines: Lines::new(module),
            environment,
            costs,
            values,
            conditions: PathConditions::default(),
            steps: 0,
            steps_max,
            unroll_steps_left: steps_max / 2,
            unrecorded: 0,
            call_stack: Vec::new(),
            summaries: HashMap::new(),
            loops: BTreeMap::new(),
            calls: BTreeMap::new(),
            host_calls: BTreeMap::new(),
            recursive: BTreeSet::new(),
            fields: HashMap::new(),
            event_fields: HashMap::new(),
            event,
            descriptor,
            descriptor_bytes: weir_abi::DESCRIPTOR_BYTES,
            last_merge_id: 0,
        }
    }

    pub(crate) fn packet_max(&self) -> u64 {
        self.environment.packet_max.into()
    }

    pub(crate) fn next_merge_id(&mut self) -> u32 {
        self.last_merge_id += 1;
        self.last_merge_id
    }

    /// Adds to the work: that of visiting this many instructions, and the path conditions visited since the last call.
    ///
    /// # Errors
    ///
    /// [`AnalysisStop::TooLarge`] when the limit of work or memory is reached.
    #[inline]
    pub(crate) fn step(&mut self, instructions: usize) -> Result<(), AnalysisStop> {
        self.steps += instructions as u64 * INSTRUCTION_STEPS + self.conditions.take_visited();
        let is_full = self.values.len() > VALUES_MAX || self.conditions.len() > 2 * VALUES_MAX;
        if self.steps > self.steps_max || is_full { Err(AnalysisStop::TooLarge) } else { Ok(()) }
    }

    /// Makes a new value with these properties.
    pub(crate) fn new_value(&mut self, abstracted: AbstractValue) -> ValueId {
        if let Some(only) = abstracted.range.single_value().filter(|_| abstracted.width != BitWidth::Other) {
            let id = self.values.constant(abstracted.width, abstracted.width.wrap_signed(only.into()));
            self.values.node_mut(id).dependencies = abstracted.dependencies;
            return id;
        }
        let id = self.values.add(Op::Opaque, abstracted.width, abstracted.range, abstracted.dependencies);
        self.values.node_mut(id).trailing_zeros = abstracted.trailing_zeros;
        id
    }

    /// The properties of a value under the conditions `at`.
    pub(crate) fn abstract_value(&self, id: ValueId, at: PathConditionId) -> AbstractValue {
        let node = self.values.node(id);
        AbstractValue {
            width: node.width,
            range: self.conditions.range(&self.values, id, at),
            trailing_zeros: node.trailing_zeros,
            dependencies: node.dependencies,
        }
    }

    /// Walks a function with these values as parameters and globals.
    pub(crate) fn walk_function(
        &mut self,
        function: u32,
        arguments: Vec<ValueId>,
        globals: Vec<ValueId>,
    ) -> Result<FunctionSummary, AnalysisStop> {
        if self.call_stack.len() >= CALL_DEPTH_MAX {
            return Err(AnalysisStop::TooLarge);
        }
        let most =
            usize::try_from(self.steps_max.saturating_sub(self.steps) / DECODE_STEPS).unwrap_or(usize::MAX);
        let before = self.bodies.instructions_read;
        let Some(code) = self.bodies.code(function, self.costs, most).map_err(AnalysisStop::Malformed)?
        else {
            return Err(AnalysisStop::TooLarge);
        };
        self.steps += DECODE_STEPS * (self.bodies.instructions_read - before) as u64;
        self.step(CALL_INSTRUCTIONS + code.locals.len() / 4)?;
        self.call_stack.push(function);
        let mut locals = arguments;
        for width in code.locals.iter().skip(locals.len()) {
            locals.push(match width {
                BitWidth::Other => self.values.any(BitWidth::Other),
                width => ValueTable::zero(*width),
            });
        }
        locals.extend(&globals);
        let state = AbstractState {
            locals,
            stack: Vec::new(),
            conditions: PathConditionId::ROOT,
            usage: ResourceBound::NOTHING,
        };
        let merge = MergePoint::new(self.next_merge_id(), PathConditionId::ROOT);
        let arity = code.results.len();
        let label = BlockLabel { begin: 0, height: 0, arity, merge, else_state: None, is_then: false };
        let mut frame = Frame {
            function,
            code: Rc::clone(&code),
            at: 0,
            labels: vec![label],
            loops: Vec::new(),
            state: Some(state),
            top_costs: TopCosts::default(),
            work: WorkReasons::default(),
            globals,
            shadow_depth: Some(0),
            shadow_site: None,
            trapped: ResourceBound::NOTHING,
            callee_stack: 0,
            callee_stack_site: None,
            operands: 0,
        };
        self.walk_instructions(&mut frame, 0, code.operators.len().saturating_sub(1))?;
        if let Some(state) = frame.state.take() {
            self.branch(&mut frame, 0, state)?;
        }
        self.call_stack.pop();
        let end = frame.labels.pop().and_then(|label| label.merge.state);
        Ok(self.summary(&frame, end))
    }

    /// The summary of a function after its walk. `end` is the state in which it returns, if it can return.
    fn summary(&self, frame: &Frame<'a>, end: Option<AbstractState>) -> FunctionSummary {
        let returns = end.is_some();
        let (mut results, mut globals, mut usage) = (Vec::new(), Vec::new(), ResourceBound::NOTHING);
        if let Some(state) = end {
            usage = state.usage;
            results = state.stack.iter().map(|id| self.abstract_value(*id, state.conditions)).collect();
            let after = state.locals.iter().skip(frame.code.locals.len());
            globals = after
                .zip(&frame.globals)
                .map(|(now, before)| {
                    let width = self.values.width(*now);
                    let added = self.values.difference(*now, *before);
                    match width {
                        BitWidth::Other => GlobalEffect::Sets,
                        _ if added.terms.is_empty() => GlobalEffect::Adds(added.constant),
                        _ => GlobalEffect::Sets,
                    }
                })
                .collect();
        }
        let own_frame = frame.code.frame_bytes + frame.code.operand_bytes * frame.operands as u64;
        let is_larger = |site: &StackSite| site.bytes.is_none_or(|bytes| bytes > own_frame);
        let stack_site = frame.callee_stack_site.filter(is_larger).unwrap_or_else(|| StackSite {
            function: frame.function,
            offset: frame.code.offsets.first().copied().unwrap_or(0),
            bytes: Some(own_frame),
        });
        FunctionSummary {
            usage: usage.join(frame.trapped),
            stack: own_frame + frame.callee_stack,
            shadow_depth: frame.shadow_depth,
            stack_site,
            shadow_site: frame.shadow_site,
            results,
            globals,
            work: frame.work.clone(),
            top_costs: frame.top_costs.clone(),
            returns,
            is_recorded: self.unrecorded == 0,
        }
    }

    /// Walks the instructions from index `begin` up to `end`. Every block that begins among them also ends among them.
    pub(crate) fn walk_instructions(
        &mut self,
        frame: &mut Frame<'a>,
        begin: usize,
        end: usize,
    ) -> Result<(), AnalysisStop> {
        let code = Rc::clone(&frame.code);
        let base = frame.labels.len();
        let mut at = begin;
        while at < end {
            if frame.state.is_none() {
                // The code up to the `else` or `end` of the innermost block is unreachable.
                let Some(label) = frame.labels.get(base..).and_then(<[BlockLabel]>::last) else {
                    return Ok(());
                };
                let target = if label.is_then { code.elses[label.begin] } else { code.ends[label.begin] };
                at = target as usize;
            }
            self.step(1)?;
            frame.at = at;
            let operator = &code.operators[at];
            match operator {
                Operator::Loop { blockty } => {
                    let (params, _) = self.module.block_signature(*blockty);
                    self.run_loop(frame, at, params.len())?;
                    at = code.ends[at] as usize + 1;
                    continue;
                }
                Operator::Block { blockty } => {
                    let (params, results) = self.module.block_signature(*blockty);
                    self.enter_block(frame, at, params.len(), results.len(), None);
                }
                Operator::If { blockty } => {
                    let (params, results) = self.module.block_signature(*blockty);
                    self.enter_if(frame, at, params.len(), results.len(), u64::from(code.costs[at]));
                }
                Operator::Else => self.enter_else(frame)?,
                Operator::End => self.end_block(frame)?,
                _ => self.instruction(frame, at, operator)?,
            }
            at += 1;
        }
        Ok(())
    }

    fn enter_block(
        &mut self,
        frame: &mut Frame<'a>,
        begin: usize,
        params: usize,
        arity: usize,
        else_state: Option<AbstractState>,
    ) {
        let merge_id = self.next_merge_id();
        let Some(state) = &frame.state else { return };
        frame.labels.push(BlockLabel {
            begin,
            height: state.stack.len().saturating_sub(params),
            arity,
            merge: MergePoint::new(merge_id, state.conditions),
            is_then: else_state.is_some(),
            else_state,
        });
    }

    fn enter_if(&mut self, frame: &mut Frame<'a>, at: usize, params: usize, results: usize, cost: u64) {
        let Some(mut state) = frame.state.take() else { return };
        state.spend(Linear::constant(cost));
        let condition = state.pop();
        let before = state.conditions;
        let then = self.conditions.assume(&self.values, condition, true, before);
        let other = self.conditions.assume(&self.values, condition, false, before);
        let height = state.stack.len().saturating_sub(params);
        let merge_id = self.next_merge_id();
        let else_state = other.map(|conditions| AbstractState { conditions, ..state.clone() });
        frame.state = then.map(|conditions| AbstractState { conditions, ..state });
        frame.labels.push(BlockLabel {
            begin: at,
            height,
            arity: results,
            merge: MergePoint::new(merge_id, before),
            else_state,
            is_then: true,
        });
    }

    fn enter_else(&mut self, frame: &mut Frame<'a>) -> Result<(), AnalysisStop> {
        if let Some(state) = frame.state.take() {
            self.branch(frame, frame.labels.len().saturating_sub(1), state)?;
        }
        if let Some(label) = frame.labels.last_mut() {
            label.is_then = false;
            frame.state = label.else_state.take();
        }
        Ok(())
    }

    fn end_block(&mut self, frame: &mut Frame<'a>) -> Result<(), AnalysisStop> {
        let here = frame.labels.len().saturating_sub(1);
        let else_state = frame.labels.last_mut().and_then(|label| label.else_state.take());
        for state in [frame.state.take(), else_state].into_iter().flatten() {
            self.branch(frame, here, state)?;
        }
        frame.state = frame.labels.pop().and_then(|label| label.merge.state);
        Ok(())
    }

    /// Merges a state into that at the label with the index `to`. The state comes from a branch to the label or from
    /// the end of its block.
    pub(crate) fn branch(
        &mut self,
        frame: &mut Frame<'a>,
        to: usize,
        mut state: AbstractState,
    ) -> Result<(), AnalysisStop> {
        let Some(label) = frame.labels.get_mut(to) else { return Ok(()) };
        state.unwind(label.height, label.arity);
        self.steps += MERGE_STEPS + state.locals.len() as u64;
        let before = label.merge.shared_conditions();
        if let Some(loop_frame) = frame.loops.last_mut() {
            if to == loop_frame.label {
                loop_frame.back_edges.push(state);
                loop_frame.back_edge_offsets.push(frame.code.offsets.get(frame.at).copied().unwrap_or(0));
                return self.step(0);
            }
            if to < loop_frame.label {
                let index = loop_frame.exits.iter().position(|(label, _)| *label == to);
                let index = index.unwrap_or_else(|| {
                    self.last_merge_id += 1;
                    loop_frame.exits.push((to, MergePoint::new(self.last_merge_id, before)));
                    loop_frame.exits.len() - 1
                });
                if let Some((_, merge)) = loop_frame.exits.get_mut(index) {
                    merge.add(&mut self.values, &mut self.conditions, state);
                }
                return self.step(0);
            }
        }
        label.merge.add(&mut self.values, &mut self.conditions, state);
        self.step(0)
    }

    /// Applies a branch to the label that is `depth` blocks further out, as branch instructions encode their target.
    pub(crate) fn branch_by_depth(
        &mut self,
        frame: &mut Frame<'a>,
        depth: u32,
        state: AbstractState,
    ) -> Result<(), AnalysisStop> {
        let Some(to) = frame.labels.len().checked_sub(1 + depth as usize) else { return Ok(()) };
        self.branch(frame, to, state)
    }

    /// Walks a loop's body once, beginning in this state. Afterwards the frame's state is that at the end of the body.
    pub(crate) fn walk_iteration(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
        state: AbstractState,
    ) -> Result<LoopFrame, AnalysisStop> {
        let end = frame.code.ends[at] as usize;
        let merge_id = self.next_merge_id();
        let label = frame.labels.len();
        frame.labels.push(BlockLabel {
            begin: at,
            height: state.stack.len().saturating_sub(params),
            arity: params,
            merge: MergePoint::new(merge_id, state.conditions),
            else_state: None,
            is_then: false,
        });
        frame.loops.push(LoopFrame {
            label,
            back_edges: Vec::new(),
            back_edge_offsets: Vec::new(),
            exits: Vec::new(),
            trapped: ResourceBound::NOTHING,
            top_costs: TopCosts::default(),
        });
        frame.state = Some(state);
        self.walk_instructions(frame, at + 1, end)?;
        frame.labels.truncate(label);
        frame.loops.pop().ok_or(AnalysisStop::TooLarge)
    }

    /// Records the usage of a path that ends in a trap.
    pub(crate) fn note_trap(frame: &mut Frame<'a>, usage: ResourceBound) {
        let trapped = match frame.loops.last_mut() {
            Some(loop_frame) => &mut loop_frame.trapped,
            None => &mut frame.trapped,
        };
        *trapped = trapped.join(usage);
    }

    /// Records the usage of a site for the largest contributors of the innermost loop, or else of the function. `inner`
    /// are the largest contributors inside the site.
    pub(crate) fn note_cost(
        frame: &mut Frame<'a>,
        offset: u32,
        site: CostSite,
        usage: &ResourceBound,
        inner: &TopCosts,
    ) {
        let place = (frame.function, offset);
        let top_costs = match frame.loops.last_mut() {
            Some(loop_frame) => &mut loop_frame.top_costs,
            None => &mut frame.top_costs,
        };
        top_costs.note_cost(place, site, usage, inner);
    }

    /// Records the height of the operand stack, which the size of the stack frame follows from.
    pub(crate) fn count_operands(frame: &mut Frame<'a>) {
        let now = frame.state.as_ref().map_or(0, |state| state.stack.len());
        frame.operands = frame.operands.max(now);
    }

    /// Adds inputs that the function's work depends on, as bits of [`dependency`].
    pub(crate) fn note_dependencies(&self, frame: &mut Frame<'a>, dependencies: u8) {
        if self.unrecorded == 0 {
            frame.work.dependencies |= dependencies & !dependency::PACKET_ADDRESS;
        }
    }
}
