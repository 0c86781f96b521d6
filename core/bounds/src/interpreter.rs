//! The walk over a function: each instruction once for each way to look at the loops around it, along the structure that WebAssembly's control
//! flow has. Where ways part, what the branch says is learnt; where they meet, values join, and the dearer way counts.

use crate::code::{Bodies, FunctionCode};
use crate::facts::{FactId, PathConditions};
use crate::range::{BitWidth, Range};
use crate::report::ResourceBound;
use crate::state::{AnalysisLimit, CostSite, MergePoint, Peaks, StackSite, WalkState, WorkReasons};
use crate::value::{BoundValueId, Op, ValueTable, from};
use crate::{CostTable, Environment, Linear, Lines, ParsedModule, Why};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use wasmparser::Operator;

/// What a function was found to do with certain arguments.
#[derive(Debug)]
pub(crate) struct FunctionSummary {
    pub(crate) usage: ResourceBound,
    pub(crate) stack: u64,
    /// How far the shadow stack grows below where it was; nothing if that is not known.
    pub(crate) shadow: Option<u64>,
    pub(crate) results: Vec<AbstractValue>,
    pub(crate) globals: Vec<Effect>,
    pub(crate) tally: WorkReasons,
    pub(crate) best: Peaks,
    /// Who takes most of the two stacks.
    pub(crate) widest: StackSite,
    pub(crate) shadow_taker: Option<StackSite>,
    /// Whether it can return at all.
    pub(crate) returns: bool,
    /// Whether its loops were recorded.
    pub(crate) recorded: bool,
}

/// What is known about a value, without the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AbstractValue {
    pub(crate) width: BitWidth,
    pub(crate) range: Range,
    pub(crate) zeros: u8,
    pub(crate) from: u8,
}

/// What a function does to a global.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// Adds this, wrapping; mostly 0.
    Adds(i64),
    /// Makes it anything.
    Sets,
}

/// A loop that was met, in the worst of all contexts.
#[derive(Clone, Debug)]
pub(crate) struct LoopSite {
    pub(crate) function: u32,
    pub(crate) depth: u32,
    pub(crate) trips: Linear,
    pub(crate) body: Linear,
    pub(crate) total: Linear,
    pub(crate) from: u8,
    pub(crate) why: Option<Why>,
    pub(crate) on_entry: Option<crate::OnEntry>,
    pub(crate) contexts: u32,
}

/// A call of a host function that was met.
#[derive(Clone, Debug)]
pub(crate) struct HostCallSite {
    pub(crate) function: u32,
    pub(crate) name: &'static str,
    pub(crate) fuel: Linear,
}

/// A call of a function of the module that was met.
#[derive(Clone, Debug)]
pub(crate) struct CallSite {
    pub(crate) function: u32,
    /// `None`: through the table.
    pub(crate) callee: Option<u32>,
    pub(crate) fuel: Linear,
}

pub(crate) struct Walker<'a, 'e> {
    pub(crate) module: &'a ParsedModule,
    pub(crate) bodies: Bodies<'a>,
    pub(crate) lines: Lines<'a>,
    pub(crate) environment: &'e Environment,
    pub(crate) costs: &'e CostTable,
    pub(crate) values: ValueTable,
    pub(crate) facts: PathConditions,
    /// Instructions and joins so far.
    pub(crate) steps: u64,
    pub(crate) steps_max: u64,
    /// Steps that may still be spent on walking loops iteration after iteration.
    pub(crate) unrolling: u64,
    /// Above 0: this is a first look at a loop, and nothing of it is recorded.
    pub(crate) probing: u32,
    pub(crate) active: Vec<u32>,
    pub(crate) known: HashMap<(u32, Vec<u64>), Rc<FunctionSummary>>,
    pub(crate) loops: BTreeMap<u32, LoopSite>,
    pub(crate) calls: BTreeMap<u32, CallSite>,
    pub(crate) hosts: BTreeMap<u32, HostCallSite>,
    /// Functions that call themselves: with which arguments was not looked at.
    pub(crate) again: BTreeSet<u32>,
    pub(crate) fields: HashMap<(u32, u8, BitWidth), BoundValueId>,
    pub(crate) descriptor: BoundValueId,
    /// Bytes of the descriptors that the entry point is given: of one packet, or of a batch.
    pub(crate) descriptor_bytes: usize,
    token: u32,
}

/// A structured instruction that the walk is inside of.
pub(crate) struct BlockLabel {
    begin: usize,
    height: usize,
    /// Operands that a branch to it takes along.
    arity: usize,
    meeting: MergePoint,
    /// For `if`: where its `else` goes on.
    otherwise: Option<WalkState>,
    is_then: bool,
}

/// A loop whose body is being walked.
pub(crate) struct Around {
    pub(crate) label: usize,
    pub(crate) back: Vec<WalkState>,
    /// Ways out of it, by label. Their usage counts from the begin of the iteration.
    pub(crate) out: Vec<(usize, MergePoint)>,
    /// The most that is used on ways that end in a trap.
    pub(crate) trapped: ResourceBound,
    pub(crate) best: Peaks,
}

/// A function that is being walked.
pub(crate) struct Frame<'a> {
    pub(crate) function: u32,
    pub(crate) code: Rc<FunctionCode<'a>>,
    labels: Vec<BlockLabel>,
    pub(crate) around: Vec<Around>,
    pub(crate) state: Option<WalkState>,
    pub(crate) best: Peaks,
    pub(crate) tally: WorkReasons,
    /// The globals as they were when it was entered.
    pub(crate) globals: Vec<BoundValueId>,
    pub(crate) shadow: Option<u64>,
    /// Who takes most of it.
    pub(crate) shadow_taker: Option<StackSite>,
    /// The most that is used on ways that end in a trap.
    pub(crate) trapped: ResourceBound,
    /// The deepest stack of what it calls, and who takes most of that.
    pub(crate) below: u64,
    pub(crate) below_taker: Option<StackSite>,
    operands: usize,
}

/// What an instruction counts, in facts that are looked at.
pub(crate) const INSTRUCTION: u64 = 6;
/// What it counts to read one from the module's bytes, and to keep it.
const READ: u64 = INSTRUCTION;
/// What it counts where ways meet, beside the locals.
const MEETING: u64 = 90;
/// What a call counts beside, in instructions.
const CALL: usize = 90;
/// Calls in calls.
const CALLS_DEEP: usize = 48;
/// Loops in loops of one function.
pub(crate) const LOOPS_DEEP: usize = 16;
/// Values that are kept: each has about a hundred bytes.
const VALUES_MAX: usize = 200_000;

impl<'a, 'e> Walker<'a, 'e> {
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
        values.node_mut(descriptor).zeros =
            u8::try_from(weir_abi::DESCRIPTOR_BYTES.trailing_zeros()).unwrap_or(0);
        Self {
            module,
            bodies: Bodies::of(module),
            lines: Lines::new(module),
            environment,
            costs,
            values,
            facts: PathConditions::default(),
            steps: 0,
            steps_max,
            unrolling: steps_max / 2,
            probing: 0,
            active: Vec::new(),
            known: HashMap::new(),
            loops: BTreeMap::new(),
            calls: BTreeMap::new(),
            hosts: BTreeMap::new(),
            again: BTreeSet::new(),
            fields: HashMap::new(),
            descriptor,
            descriptor_bytes: weir_abi::DESCRIPTOR_BYTES,
            token: 0,
        }
    }

    pub(crate) fn packet_max(&self) -> u64 {
        self.environment.packet_max.into()
    }

    pub(crate) fn token(&mut self) -> u32 {
        self.token += 1;
        self.token
    }

    /// Counts work, and gives up where it is too much.
    #[inline]
    pub(crate) fn step(&mut self, steps: usize) -> Result<(), AnalysisLimit> {
        self.steps += steps as u64 * INSTRUCTION + self.facts.looked_at();
        let is_full = self.values.len() > VALUES_MAX || self.facts.len() > 2 * VALUES_MAX;
        if self.steps > self.steps_max || is_full { Err(AnalysisLimit::TooLarge) } else { Ok(()) }
    }

    /// The value that stands for what is known about one.
    pub(crate) fn fresh(&mut self, shadow: AbstractValue) -> BoundValueId {
        if let Some(only) = shadow.range.only().filter(|_| shadow.width != BitWidth::Other) {
            let id = self.values.constant(shadow.width, shadow.width.wrap_signed(only.into()));
            self.values.node_mut(id).from = shadow.from;
            return id;
        }
        let id = self.values.add(Op::Opaque, shadow.width, shadow.range, shadow.from);
        self.values.node_mut(id).zeros = shadow.zeros;
        id
    }

    /// What is known about a value at a place.
    pub(crate) fn shadow(&self, id: BoundValueId, at: FactId) -> AbstractValue {
        let node = self.values.node(id);
        AbstractValue {
            width: node.width,
            range: self.facts.range(&self.values, id, at),
            zeros: node.zeros,
            from: node.from,
        }
    }

    /// Walks a function with these values for its parameters.
    pub(crate) fn function(
        &mut self,
        function: u32,
        arguments: Vec<BoundValueId>,
        globals: Vec<BoundValueId>,
    ) -> Result<FunctionSummary, AnalysisLimit> {
        if self.active.len() >= CALLS_DEEP {
            return Err(AnalysisLimit::TooLarge);
        }
        let most = usize::try_from(self.steps_max.saturating_sub(self.steps) / READ).unwrap_or(usize::MAX);
        let before = self.bodies.instructions_read;
        let Some(code) = self.bodies.code(function, self.costs, most).map_err(AnalysisLimit::Malformed)?
        else {
            return Err(AnalysisLimit::TooLarge);
        };
        self.steps += READ * (self.bodies.instructions_read - before) as u64;
        // A call costs more than its instructions.
        self.step(CALL + code.locals.len() / 4)?;
        self.active.push(function);
        let mut locals = arguments;
        for width in code.locals.iter().skip(locals.len()) {
            locals.push(match width {
                BitWidth::Other => self.values.any(BitWidth::Other),
                width => ValueTable::zero(*width),
            });
        }
        locals.extend(&globals);
        let state =
            WalkState { locals, stack: Vec::new(), facts: FactId::ROOT, usage: ResourceBound::NOTHING };
        let meeting = MergePoint::new(self.token(), FactId::ROOT);
        let arity = code.results.len();
        let label = BlockLabel { begin: 0, height: 0, arity, meeting, otherwise: None, is_then: false };
        let mut frame = Frame {
            function,
            code: Rc::clone(&code),
            labels: vec![label],
            around: Vec::new(),
            state: Some(state),
            best: Peaks::default(),
            tally: WorkReasons::default(),
            globals,
            shadow: Some(0),
            shadow_taker: None,
            trapped: ResourceBound::NOTHING,
            below: 0,
            below_taker: None,
            operands: 0,
        };
        self.run(&mut frame, 0, code.operators.len().saturating_sub(1))?;
        if let Some(state) = frame.state.take() {
            self.branch(&mut frame, 0, state)?;
        }
        self.active.pop();
        let end = frame.labels.pop().and_then(|label| label.meeting.state);
        Ok(self.summary(&frame, end))
    }

    fn summary(&self, frame: &Frame<'a>, end: Option<WalkState>) -> FunctionSummary {
        let returns = end.is_some();
        let (mut results, mut globals, mut usage) = (Vec::new(), Vec::new(), ResourceBound::NOTHING);
        if let Some(state) = end {
            usage = state.usage;
            results = state.stack.iter().map(|id| self.shadow(*id, state.facts)).collect();
            let after = state.locals.iter().skip(frame.code.locals.len());
            globals = after
                .zip(&frame.globals)
                .map(|(now, before)| {
                    let width = self.values.width(*now);
                    let added = self.values.difference(*now, *before);
                    match width {
                        BitWidth::Other => Effect::Sets,
                        _ if added.terms.is_empty() => Effect::Adds(added.constant),
                        _ => Effect::Sets,
                    }
                })
                .collect();
        }
        let own = frame.code.frame + frame.code.operand * frame.operands as u64;
        let is_wider = |taker: &StackSite| taker.bytes.is_none_or(|bytes| bytes > own);
        let widest = frame.below_taker.filter(is_wider).unwrap_or_else(|| StackSite {
            function: frame.function,
            offset: frame.code.offsets.first().copied().unwrap_or(0),
            bytes: Some(own),
        });
        FunctionSummary {
            usage: usage.or(frame.trapped),
            stack: own + frame.below,
            shadow: frame.shadow,
            widest,
            shadow_taker: frame.shadow_taker,
            results,
            globals,
            tally: frame.tally.clone(),
            best: frame.best.clone(),
            returns,
            recorded: self.probing == 0,
        }
    }

    /// Walks the instructions `begin .. end`, which are balanced.
    pub(crate) fn run(
        &mut self,
        frame: &mut Frame<'a>,
        begin: usize,
        end: usize,
    ) -> Result<(), AnalysisLimit> {
        let code = Rc::clone(&frame.code);
        let base = frame.labels.len();
        let mut at = begin;
        while at < end {
            if frame.state.is_none() {
                // Nothing leads here: on to where the innermost structure goes on.
                let Some(label) = frame.labels.get(base..).and_then(<[BlockLabel]>::last) else {
                    return Ok(());
                };
                let target = if label.is_then { code.elses[label.begin] } else { code.ends[label.begin] };
                at = target as usize;
            }
            self.step(1)?;
            let operator = &code.operators[at];
            match operator {
                Operator::Loop { blockty } => {
                    let (params, _) = self.module.block(*blockty);
                    self.run_loop(frame, at, params.len())?;
                    at = code.ends[at] as usize + 1;
                    continue;
                }
                Operator::Block { blockty } => {
                    let (params, results) = self.module.block(*blockty);
                    self.enter(frame, at, params.len(), results.len(), None);
                }
                Operator::If { blockty } => {
                    let (params, results) = self.module.block(*blockty);
                    self.enter_if(frame, at, params.len(), results.len(), u64::from(code.costs[at]));
                }
                Operator::Else => self.enter_else(frame)?,
                Operator::End => self.leave(frame)?,
                _ => self.instruction(frame, at, operator)?,
            }
            at += 1;
        }
        Ok(())
    }

    fn enter(
        &mut self,
        frame: &mut Frame<'a>,
        begin: usize,
        params: usize,
        arity: usize,
        otherwise: Option<WalkState>,
    ) {
        let token = self.token();
        let Some(state) = &frame.state else { return };
        frame.labels.push(BlockLabel {
            begin,
            height: state.stack.len().saturating_sub(params),
            arity,
            meeting: MergePoint::new(token, state.facts),
            is_then: otherwise.is_some(),
            otherwise,
        });
    }

    fn enter_if(&mut self, frame: &mut Frame<'a>, at: usize, params: usize, results: usize, cost: u64) {
        let Some(mut state) = frame.state.take() else { return };
        state.spend(Linear::constant(cost));
        let condition = state.pop();
        let before = state.facts;
        let then = self.facts.assume(&self.values, condition, true, before);
        let other = self.facts.assume(&self.values, condition, false, before);
        let height = state.stack.len().saturating_sub(params);
        let token = self.token();
        let otherwise = other.map(|facts| WalkState { facts, ..state.clone() });
        frame.state = then.map(|facts| WalkState { facts, ..state });
        frame.labels.push(BlockLabel {
            begin: at,
            height,
            arity: results,
            meeting: MergePoint::new(token, before),
            otherwise,
            is_then: true,
        });
    }

    fn enter_else(&mut self, frame: &mut Frame<'a>) -> Result<(), AnalysisLimit> {
        if let Some(state) = frame.state.take() {
            self.branch(frame, frame.labels.len().saturating_sub(1), state)?;
        }
        if let Some(label) = frame.labels.last_mut() {
            label.is_then = false;
            frame.state = label.otherwise.take();
        }
        Ok(())
    }

    fn leave(&mut self, frame: &mut Frame<'a>) -> Result<(), AnalysisLimit> {
        let here = frame.labels.len().saturating_sub(1);
        let otherwise = frame.labels.last_mut().and_then(|label| label.otherwise.take());
        for state in [frame.state.take(), otherwise].into_iter().flatten() {
            self.branch(frame, here, state)?;
        }
        frame.state = frame.labels.pop().and_then(|label| label.meeting.state);
        Ok(())
    }

    /// The walk goes on at a label: by a branch, or by falling out of it.
    pub(crate) fn branch(
        &mut self,
        frame: &mut Frame<'a>,
        to: usize,
        mut state: WalkState,
    ) -> Result<(), AnalysisLimit> {
        let Some(label) = frame.labels.get_mut(to) else { return Ok(()) };
        state.unwind(label.height, label.arity);
        self.steps += MEETING + state.locals.len() as u64;
        let before = label.meeting.before();
        if let Some(around) = frame.around.last_mut() {
            if to == around.label {
                around.back.push(state);
                return self.step(0);
            }
            if to < around.label {
                let place = around.out.iter().position(|(label, _)| *label == to);
                let place = place.unwrap_or_else(|| {
                    self.token += 1;
                    around.out.push((to, MergePoint::new(self.token, before)));
                    around.out.len() - 1
                });
                if let Some((_, meeting)) = around.out.get_mut(place) {
                    meeting.add(&mut self.values, &mut self.facts, state);
                }
                return self.step(0);
            }
        }
        label.meeting.add(&mut self.values, &mut self.facts, state);
        self.step(0)
    }

    /// A branch by its depth, as instructions have it.
    pub(crate) fn branch_deep(
        &mut self,
        frame: &mut Frame<'a>,
        depth: u32,
        state: WalkState,
    ) -> Result<(), AnalysisLimit> {
        let Some(to) = frame.labels.len().checked_sub(1 + depth as usize) else { return Ok(()) };
        self.branch(frame, to, state)
    }

    /// Walks a loop's body once, from this state on. Afterwards the frame's state is where the body falls out of its end.
    pub(crate) fn iterate(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
        state: WalkState,
    ) -> Result<Around, AnalysisLimit> {
        let end = frame.code.ends[at] as usize;
        let token = self.token();
        let label = frame.labels.len();
        frame.labels.push(BlockLabel {
            begin: at,
            height: state.stack.len().saturating_sub(params),
            arity: params,
            meeting: MergePoint::new(token, state.facts),
            otherwise: None,
            is_then: false,
        });
        frame.around.push(Around {
            label,
            back: Vec::new(),
            out: Vec::new(),
            trapped: ResourceBound::NOTHING,
            best: Peaks::default(),
        });
        frame.state = Some(state);
        self.run(frame, at + 1, end)?;
        frame.labels.truncate(label);
        frame.around.pop().ok_or(AnalysisLimit::TooLarge)
    }

    /// A way ends in a trap, after so much.
    pub(crate) fn trap(frame: &mut Frame<'a>, usage: ResourceBound) {
        let trapped = match frame.around.last_mut() {
            Some(around) => &mut around.trapped,
            None => &mut frame.trapped,
        };
        *trapped = trapped.or(usage);
    }

    /// Notes what contributes to a function, or to the loop around it.
    pub(crate) fn note(
        frame: &mut Frame<'a>,
        offset: u32,
        spot: CostSite,
        usage: &ResourceBound,
        inner: &Peaks,
    ) {
        let place = (frame.function, offset);
        let best = match frame.around.last_mut() {
            Some(around) => &mut around.best,
            None => &mut frame.best,
        };
        best.note(place, spot, usage, inner);
    }

    /// How many operands there are, for the size of the frame.
    pub(crate) fn operands(frame: &mut Frame<'a>) {
        let now = frame.state.as_ref().map_or(0, |state| state.stack.len());
        frame.operands = frame.operands.max(now);
    }

    /// A loop's trips depend on this.
    pub(crate) fn depends(&self, frame: &mut Frame<'a>, on: u8) {
        if self.probing == 0 {
            frame.tally.from |= on & !from::PACKET_ADDRESS;
        }
    }
}
