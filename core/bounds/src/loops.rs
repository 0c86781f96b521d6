//! The analysis of loops. A loop's body is walked at least twice: first to find how its locals change, last for its
//! cost.

use crate::arith::{Arith, Binary};
use crate::code::FunctionCode;
use crate::conditions::PathConditionId;
use crate::interpreter::{Frame, INSTRUCTION_STEPS, Interpreter, LOOP_DEPTH_MAX, LoopFrame, LoopSite};
use crate::invariant::{Invariant, InvariantTest, LoopBody, LoopPass};
use crate::range::{BitWidth, Range};
use crate::report::{ResourceBound, TripCountFormula};
use crate::state::{AbstractState, AnalysisStop, CostSite, MergePoint, TopCosts};
use crate::trip_count::{InductionVariable, LoopAnalysis, Recurrence, TripFormula};
use crate::value::{Cmp, LinearSum, Op, ValueId, ValueTable};
use crate::{Linear, UnboundedCause};
use wasmparser::Operator;

/// The most iterations that are walked one by one, for a loop without an induction variable.
const UNROLLED_MAX: u32 = 66;
/// The most back edges of a loop that is searched for [`InvariantTest`]s, and the most tests that are found.
const INVARIANT_TESTS_MAX: usize = 8;
/// The most instructions of a loop that is walked iteration by iteration.
const UNROLLED_CODE_MAX: usize = 150;

/// The trip count and the recurrences of a loop.
#[derive(Debug)]
pub(crate) struct LoopSummary {
    /// The number of times that a back edge is taken; or the cause if there is no bound.
    pub(crate) trips: Result<Linear, UnboundedCause>,
    /// The offset of the branch of a back edge that nothing counts, if there is no counter.
    pub(crate) uncounted: Option<u32>,
    /// The dependencies of the trips, as bits of [`dependency`](crate::value::dependency).
    pub(crate) dependencies: u8,
    /// The recurrence of each induction variable.
    pub(crate) recurrences: Vec<Recurrence>,
    /// The formula that `trips` was derived from, if it was derived from one.
    pub(crate) trip_formula: Option<TripFormula>,
    /// `trip_formula`, or else the formula of another bound for all back edges, which can be larger than `trips`.
    pub(crate) any_formula: Option<TripFormula>,
}

/// The result of one walk of a loop's body.
pub(crate) struct BodyResult {
    /// The back edges and the exits, with the cost of the iteration on the way to each.
    pub(crate) loop_frame: LoopFrame,
    /// The state at the end of the body; `None` if the end is unreachable.
    at_end: Option<AbstractState>,
    /// The offset of the branch back to the loop's begin that nothing counts, if the loop has no counter.
    uncounted: Option<u32>,
}

impl<'a> Interpreter<'a, '_> {
    /// Analyses the loop whose `loop` instruction has the index `at`, and continues after it. `params` is the number of
    /// the loop's parameters.
    pub(crate) fn run_loop(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
    ) -> Result<(), AnalysisStop> {
        if frame.loops.len() >= LOOP_DEPTH_MAX {
            return Err(AnalysisStop::TooLarge);
        }
        let Some(mut entry) = frame.state.take() else { return Ok(()) };
        // The loop's parameters can differ in each iteration, so they become unknown values.
        let first_in_loop = self.values.next_id();
        let height = entry.stack.len().saturating_sub(params);
        for place in entry.stack.iter_mut().skip(height) {
            *place = self.values.any(self.values.width(*place));
        }
        let code = std::rc::Rc::clone(&frame.code);
        let written = self.written_locals(&code, at)?;

        // First pass: finds how the locals change, whatever their values.
        let body = LoopBody { at, params, entry: &entry, first_in_loop, written: &written };
        let mut pass = self.analyse_body(frame, body, &[])?;
        let has_counter =
            !matches!(pass.summary.trips, Err(UnboundedCause::NoCounter(_) | UnboundedCause::Endless));
        if !has_counter && self.unroll(frame, at, params, &entry)? {
            return Ok(());
        }
        let mut invariants = Vec::new();
        if let Some(better) = self.retry_with_guesses(frame, body, &pass)? {
            (pass, invariants) = better;
        }
        let LoopPass { variables, summary, tests, .. } = pass;
        let uncounted = summary.uncounted;

        // Last pass: finds the cost, with the recurrences and the invariants of the locals.
        let mut start = self.start_with_recurrences(&entry, &variables, &summary);
        self.assume_invariants(&invariants, &mut start);
        for (cmp, local, limit, is_left) in tests {
            let now = start.locals[local];
            let (a, b) = if is_left { (now, limit) } else { (limit, now) };
            self.assume_in_state(cmp, a, b, &mut start);
        }
        let mut walked = self.walk_body(frame, at, params, start)?;
        walked.uncounted = uncounted;
        // The last walk knows more, so it may show that the loop never repeats.
        let trips = if walked.loop_frame.back_edges.is_empty() { Ok(Linear::ZERO) } else { summary.trips };
        self.finish_with_trips(frame, at, &entry, trips, summary.dependencies, summary.trip_formula, walked)
    }

    /// Runs `act`, which walks code, without recording anything for the report.
    pub(crate) fn without_recording<R>(
        &mut self,
        frame: &mut Frame<'a>,
        act: impl FnOnce(&mut Self, &mut Frame<'a>) -> Result<R, AnalysisStop>,
    ) -> Result<R, AnalysisStop> {
        self.unrecorded += 1;
        let before = (frame.shadow_depth, frame.shadow_site, frame.callee_stack, frame.callee_stack_site);
        let result = act(self, frame);
        (frame.shadow_depth, frame.shadow_site, frame.callee_stack, frame.callee_stack_site) = before;
        self.unrecorded -= 1;
        result
    }

    /// Walks a loop's body once from this state.
    pub(crate) fn walk_body(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
        state: AbstractState,
    ) -> Result<BodyResult, AnalysisStop> {
        let loop_frame = self.walk_iteration(frame, at, params, state)?;
        Ok(BodyResult { loop_frame, at_end: frame.state.take(), uncounted: None })
    }

    /// The trip count and the recurrences of a loop, from one walk of its body.
    pub(crate) fn summarise_loop(
        &self,
        entry: &AbstractState,
        first_in_loop: ValueId,
        variables: &[InductionVariable],
        walked: &BodyResult,
    ) -> LoopSummary {
        let analysis = LoopAnalysis {
            values: &self.values,
            conditions: &self.conditions,
            entry: entry.conditions,
            first_in_loop,
        };
        let has_exit = walked.at_end.is_some() || !walked.loop_frame.exits.is_empty();
        let LoopFrame { back_edges, back_edge_offsets, .. } = &walked.loop_frame;
        analysis.summarise(variables, (back_edges, back_edge_offsets), has_exit)
    }

    /// Finds comparisons of a local with a loop-invariant value that hold whenever an iteration begins: at the loop's
    /// entry and on every back edge. Compilers put a loop's test at the end of its body, and once before the loop.
    pub(crate) fn invariant_tests(
        &mut self,
        entry: &AbstractState,
        first_in_loop: ValueId,
        variables: &[InductionVariable],
        back_edges: &[AbstractState],
    ) -> Vec<InvariantTest> {
        let Some(edge) = back_edges.first().filter(|_| back_edges.len() <= INVARIANT_TESTS_MAX) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let comparisons: Vec<_> =
            self.conditions.comparisons_since(edge.conditions, entry.conditions).collect();
        for (_, cmp, a, b) in comparisons {
            for (value, limit, is_left) in [(a, b, true), (b, a, false)] {
                let variable =
                    variables.iter().find(|variable| edge.locals.get(variable.local) == Some(&value));
                let Some(variable) = variable.filter(|_| self.values.is_invariant(limit, first_in_loop, 4))
                else {
                    continue;
                };
                let is_on_all_edges = back_edges.iter().all(|edge| {
                    let Some(next) = edge.locals.get(variable.local).copied() else { return false };
                    self.conditions.comparisons_since(edge.conditions, entry.conditions).any(
                        |(_, other, x, y)| {
                            let (x, y) = if is_left { (x, y) } else { (y, x) };
                            other == cmp && x == next && self.values.are_equal(y, limit)
                        },
                    )
                });
                if !is_on_all_edges || found.len() >= INVARIANT_TESTS_MAX {
                    continue;
                }
                let Some(limit) = self.rebuilt_at_entry(limit, first_in_loop, entry, 4) else { continue };
                let (x, y) = if is_left { (variable.initial, limit) } else { (limit, variable.initial) };
                if self.is_implied(cmp, x, y, entry) {
                    found.push((cmp, variable.local, limit, is_left));
                }
            }
        }
        found
    }

    /// Makes a loop-invariant value again, under the conditions at the loop's entry. The range of a value that was made
    /// in the loop may rely on conditions that hold only in the loop. `None` if the value cannot be made again.
    fn rebuilt_at_entry(
        &mut self,
        id: ValueId,
        first_in_loop: ValueId,
        entry: &AbstractState,
        depth: u32,
    ) -> Option<ValueId> {
        if id < first_in_loop {
            return Some(id);
        }
        let depth = depth.checked_sub(1)?;
        let width = self.values.width(id);
        let op = self.values.node(id).op.clone();
        match op {
            op if op.is_input() => Some(id),
            Op::Sum(sum) => {
                let mut rebuilt = LinearSum { terms: Vec::new(), constant: sum.constant };
                for (term, coefficient) in sum.terms {
                    let term = self.rebuilt_at_entry(term, first_in_loop, entry, depth)?;
                    let term = self.values.as_sum(term);
                    rebuilt = ValueTable::linear_combination(width, &rebuilt, 1, &term, coefficient);
                }
                Some(self.value_of_sum(width, rebuilt, entry.conditions))
            }
            Op::And(a, b) => {
                let a = self.rebuilt_at_entry(a, first_in_loop, entry, depth)?;
                let b = self.rebuilt_at_entry(b, first_in_loop, entry, depth)?;
                Some(self.arith(entry.conditions).binary(Binary::And, width, a, b))
            }
            Op::Shift(of, bits) => {
                let of = self.rebuilt_at_entry(of, first_in_loop, entry, depth)?;
                let bits = self.values.constant(width, bits.into());
                Some(self.arith(entry.conditions).binary(Binary::ShrU, width, of, bits))
            }
            Op::Extend(of) => {
                let of = self.rebuilt_at_entry(of, first_in_loop, entry, depth)?;
                Some(self.arith(entry.conditions).extend_unsigned(of))
            }
            Op::Wrap(of) => {
                let of = self.rebuilt_at_entry(of, first_in_loop, entry, depth)?;
                Some(self.arith(entry.conditions).wrap(of))
            }
            _ => None,
        }
    }

    /// Returns true if a comparison certainly holds in a state.
    pub(crate) fn is_implied(&mut self, cmp: Cmp, a: ValueId, b: ValueId, state: &AbstractState) -> bool {
        let mut arith =
            Arith { values: &mut self.values, conditions: &self.conditions, at: state.conditions };
        let truth = arith.compare(cmp, a, b);
        if self.values.range(truth).lo == 1 {
            return true;
        }
        let width = self.values.width(a);
        let least_distance = u64::from(matches!(cmp, Cmp::LtU | Cmp::LtS | Cmp::Ne));
        let sum = self.values.difference(b, a);
        let (x, y) = (
            self.conditions.range(&self.values, a, state.conditions),
            self.conditions.range(&self.values, b, state.conditions),
        );
        let distance = self.conditions.difference(&self.values, &sum, width, state.conditions);
        let is_far_enough = distance.is_some_and(|distance| distance.lo >= least_distance);
        match cmp {
            Cmp::Ne => is_far_enough,
            // The wrapped difference b - a is also positive where a is larger than b. The difference shows that b is
            // larger only if a + (b - a) does not wrap.
            Cmp::LtU | Cmp::LeU => {
                is_far_enough
                    && distance.is_some_and(|distance| {
                        x.hi.checked_add(distance.hi).is_some_and(|sum| sum <= width.max())
                    })
                    && y.hi <= width.max()
            }
            _ => false,
        }
    }

    /// The indices in [`AbstractState::locals`] of the locals and globals that a loop's body can write. A call of a
    /// function of the module can write every mutable global.
    fn written_locals(&mut self, code: &FunctionCode<'a>, at: usize) -> Result<Vec<usize>, AnalysisStop> {
        let end = code.ends[at] as usize;
        self.step((end - at) / 8 + code.locals.len() / 16)?;
        let mut is_written = vec![false; code.locals.len() + self.module.globals.len()];
        let mut mark = |index: usize| {
            if let Some(place) = is_written.get_mut(index) {
                *place = true;
            }
        };
        let mut calls_module = false;
        for operator in code.operators.get(at..end).unwrap_or_default() {
            match operator {
                Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                    mark(*local_index as usize)
                }
                Operator::GlobalSet { global_index } => mark(code.locals.len() + *global_index as usize),
                Operator::Call { function_index } => {
                    calls_module |= *function_index as usize >= self.module.imported.len();
                }
                Operator::CallIndirect { .. } => calls_module = true,
                _ => {}
            }
        }
        if calls_module {
            for (index, global) in self.module.globals.iter().enumerate() {
                if global.mutable {
                    mark(code.locals.len() + index);
                }
            }
        }
        Ok((0..is_written.len()).filter(|index| is_written[*index]).collect())
    }

    /// The induction variables, and a state for the begin of any iteration. A written local with an invariant has any
    /// value that the invariant allows; a local without one differs from its initial value by any amount.
    pub(crate) fn start_with_invariants(
        &mut self,
        entry: &AbstractState,
        written: &[usize],
        invariants: &[Invariant],
    ) -> (Vec<InductionVariable>, AbstractState) {
        let mut start = AbstractState { usage: ResourceBound::NOTHING, ..entry.clone() };
        let mut variables = Vec::new();
        for local in written {
            let Some(initial) = entry.locals.get(*local).copied() else { continue };
            let width = self.values.width(initial);
            let known = invariants.iter().find(|invariant| invariant.local == *local);
            let range = known.map_or(Range::any(width), |known| known.range);
            let offset = self.values.add(Op::Phi, width, range, 0);
            // An invariant gives the range of the local's value, so `offset` is this value instead of a difference.
            let is_local_itself = known.is_some() || width == BitWidth::Other;
            let current = if is_local_itself { offset } else { self.initial_plus(initial, offset, 1, entry) };
            start.locals[*local] = current;
            variables.push(InductionVariable { local: *local, initial, offset, current });
        }
        self.assume_invariants(invariants, &mut start);
        (variables, start)
    }

    /// The value `initial + coefficient x offset`.
    fn initial_plus(
        &mut self,
        initial: ValueId,
        offset: ValueId,
        coefficient: i64,
        entry: &AbstractState,
    ) -> ValueId {
        let width = self.values.width(initial);
        let sum = ValueTable::linear_combination(
            width,
            &self.values.as_sum(initial),
            1,
            &LinearSum { terms: vec![(offset, 1)], constant: 0 },
            coefficient,
        );
        self.value_of_sum(width, sum, entry.conditions)
    }

    /// The state at the begin of any iteration, where the locals have the values that their recurrences give.
    fn start_with_recurrences(
        &mut self,
        entry: &AbstractState,
        variables: &[InductionVariable],
        summary: &LoopSummary,
    ) -> AbstractState {
        let mut start = AbstractState { usage: ResourceBound::NOTHING, ..entry.clone() };
        // Locals with a constant step are expressed by the iteration number, which relates them to each other.
        let numbers: Vec<ValueId> =
            [BitWidth::W32, BitWidth::W64].map(|width| self.iteration_number(width, summary)).into();
        self.assume_steps_fit(&numbers, summary, entry, &mut start);
        for (variable, recurrence) in variables.iter().zip(&summary.recurrences) {
            let width = self.values.width(variable.initial);
            let current = match *recurrence {
                _ if width == BitWidth::Other => self.values.any(width),
                Recurrence::Unchanged => variable.initial,
                Recurrence::ConstantStep(step) if summary.trips.is_ok() => self.initial_plus(
                    variable.initial,
                    numbers[usize::from(width == BitWidth::W64)],
                    step,
                    entry,
                ),
                Recurrence::OneDirection { least, most, trailing_zeros } if summary.trips.is_ok() => {
                    let trips = summary.trips.clone().unwrap_or(Linear::UNBOUNDED);
                    let step = u64::try_from(most.abs().max(least.abs())).unwrap_or(u64::MAX);
                    let distance = Linear::constant(step).times(trips, self.packet_max());
                    let mut range = Range::unsigned(width, 0, distance.at(self.packet_max()));
                    if distance.per_kib > 0 && distance.at(self.packet_max()) <= width.max() {
                        range.hi_by_packet_length = Some(distance);
                    }
                    let offset = self.values.add(Op::Phi, width, range, summary.dependencies);
                    self.values.node_mut(offset).trailing_zeros = trailing_zeros.min(31);
                    self.initial_plus(variable.initial, offset, if most > 0 { 1 } else { -1 }, entry)
                }
                Recurrence::ConstantStep(_) | Recurrence::OneDirection { .. } => {
                    self.values.add(Op::Phi, width, Range::any(width), 0)
                }
                Recurrence::AnyOf(range, dependencies) => {
                    self.values.add(Op::Phi, width, range, dependencies)
                }
            };
            start.locals[variable.local] = current;
        }
        start
    }

    /// Adds the condition that the iteration number times the step is at most the sum of the loop's trip formula.
    /// `numbers` are the iteration numbers as i32 and i64.
    fn assume_steps_fit(
        &mut self,
        numbers: &[ValueId],
        summary: &LoopSummary,
        entry: &AbstractState,
        start: &mut AbstractState,
    ) {
        let Some((distance, step)) = &summary.any_formula else { return };
        let Some(width) = distance.terms.first().map(|(id, _)| self.values.width(*id)) else { return };
        let (Some(number), Ok(step)) =
            (numbers.get(usize::from(width == BitWidth::W64)), i64::try_from(*step))
        else {
            return;
        };
        let fresh = self.values.next_id();
        let steps_so_far = ValueTable::linear_combination(
            width,
            &self.values.as_sum(*number),
            step,
            &LinearSum::default(),
            0,
        );
        let (steps_so_far, distance) = (
            self.value_of_sum(width, steps_so_far, entry.conditions),
            self.value_of_sum(width, distance.clone(), entry.conditions),
        );
        // The distance consists of values at the loop's entry. Its range there holds in the whole loop.
        let sum = self.values.as_sum(distance);
        if let Some(known) = self.conditions.difference(&self.values, &sum, width, entry.conditions)
            && distance >= fresh
        {
            let node = self.values.node_mut(distance);
            node.range = node.range.intersect(known, width);
        }
        self.assume_in_state(Cmp::LeU, steps_so_far, distance, start);
    }

    /// Adds a comparison that holds to the conditions of a state. A comparison that contradicts the conditions is left
    /// out: then the state is never reached.
    pub(crate) fn assume_in_state(&mut self, cmp: Cmp, a: ValueId, b: ValueId, state: &mut AbstractState) {
        let assumed = self.conditions.assume_comparison(&self.values, cmp, a, b, state.conditions);
        state.conditions = assumed.unwrap_or(state.conditions);
    }

    /// Makes a value of a sum, with the ranges that its terms have under the conditions `at`.
    fn value_of_sum(&mut self, width: BitWidth, sum: LinearSum, at: PathConditionId) -> ValueId {
        self.conditions.add_sum(&mut self.values, width, sum, at)
    }

    /// An unknown iteration number, counted from 0.
    fn iteration_number(&mut self, width: BitWidth, summary: &LoopSummary) -> ValueId {
        let trips = summary.trips.clone().unwrap_or(Linear::UNBOUNDED);
        let most = trips.at(self.packet_max());
        let mut range = Range::unsigned(width, 0, most);
        if trips.per_kib > 0 && most <= width.max() {
            range.hi_by_packet_length = Some(trips);
        }
        self.values.add(Op::Phi, width, range, summary.dependencies)
    }

    /// Walks a loop iteration by iteration until no path leads to a further iteration. Returns false, and records
    /// nothing, if that takes more than [`UNROLLED_MAX`] iterations or too much work, or if the loop contains loops.
    fn unroll(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
        entry: &AbstractState,
    ) -> Result<bool, AnalysisStop> {
        let code_len = frame.code.ends[at] as usize - at;
        let work = 2 * INSTRUCTION_STEPS * code_len as u64 * u64::from(UNROLLED_MAX);
        let end = frame.code.ends[at] as usize;
        let inside = frame.code.operators.get(at + 1..end).unwrap_or_default();
        let has_loops = inside.iter().any(|operator| matches!(operator, Operator::Loop { .. }));
        if code_len > UNROLLED_CODE_MAX || has_loops || work > self.unroll_steps_left {
            return Ok(false);
        }
        self.unroll_steps_left -= work;
        let begin = AbstractState { usage: ResourceBound::NOTHING, ..entry.clone() };
        let ends = self.without_recording(frame, |interpreter, frame| {
            let mut next = Some(begin.clone());
            for _ in 0..UNROLLED_MAX {
                let Some(state) = next else { break };
                let before = interpreter.ranges(&state);
                let walked = interpreter.walk_body(frame, at, params, state)?;
                next = interpreter.merge_back_edges(entry, walked.loop_frame.back_edges);
                // A fixed point: no further iteration changes anything.
                if next.as_ref().is_some_and(|next| interpreter.ranges(next) == before) {
                    break;
                }
            }
            Ok(next.is_none())
        })?;
        if !ends {
            return Ok(false);
        }
        let (mut next, mut trips) = (Some(begin), 0u64);
        let (mut at_end, mut exits) = (None::<MergePoint>, Vec::<(usize, MergePoint)>::new());
        let mut body = Linear::ZERO;
        let mut dependencies = 0;
        let mut top_costs = TopCosts::default();
        let mut trapped = ResourceBound::NOTHING;
        while let Some(state) = next {
            let before = state.usage.fuel;
            let walked = self.walk_body(frame, at, params, state)?;
            trapped = trapped.join(walked.loop_frame.trapped);
            for edge in &walked.loop_frame.back_edges {
                body = body.join(subtracted(edge.usage.fuel, before));
                dependencies |= self.test_dependencies(edge, entry);
            }
            for (label, merge) in walked.loop_frame.exits {
                let Some(state) = merge.state else { continue };
                let index = match exits.iter().position(|(known, _)| *known == label) {
                    Some(index) => index,
                    None => {
                        exits.push((label, MergePoint::new(self.next_merge_id(), entry.conditions)));
                        exits.len() - 1
                    }
                };
                exits[index].1.add(&mut self.values, &mut self.conditions, state);
            }
            if let Some(state) = walked.at_end {
                let merge_id = self.next_merge_id();
                let merge = at_end.get_or_insert_with(|| MergePoint::new(merge_id, entry.conditions));
                merge.add(&mut self.values, &mut self.conditions, state);
            }
            top_costs.adopt_larger(&walked.loop_frame.top_costs);
            next = self.merge_back_edges(entry, walked.loop_frame.back_edges);
            trips += u64::from(next.is_some());
        }
        let walked = BodyResult {
            loop_frame: LoopFrame { exits, trapped, top_costs, ..LoopFrame::empty() },
            at_end: at_end.and_then(|merge| merge.state),
            uncounted: None,
        };
        // The usage at the exits already includes all iterations.
        self.finish_loop(
            frame,
            at,
            entry,
            Linear::constant(trips),
            ResourceBound::NOTHING,
            body,
            None,
            dependencies,
            None,
            walked,
        )?;
        Ok(true)
    }

    /// The ranges of all locals in a state.
    fn ranges(&self, state: &AbstractState) -> Vec<Range> {
        state
            .locals
            .iter()
            .map(|local| self.conditions.range(&self.values, *local, state.conditions))
            .collect()
    }

    /// The dependencies of the comparisons on the path to a back edge.
    fn test_dependencies(&self, edge: &AbstractState, entry: &AbstractState) -> u8 {
        let conditions = self.conditions.comparisons_since(edge.conditions, entry.conditions);
        conditions.fold(0, |dependencies, (_, _, a, b)| {
            dependencies | self.values.node(a).dependencies | self.values.node(b).dependencies
        })
    }

    /// The state in which the next iteration begins; `None` if no back edge is taken.
    fn merge_back_edges(
        &mut self,
        entry: &AbstractState,
        back_edges: Vec<AbstractState>,
    ) -> Option<AbstractState> {
        let mut merge = MergePoint::new(self.next_merge_id(), entry.conditions);
        for state in back_edges {
            merge.add(&mut self.values, &mut self.conditions, state);
        }
        merge.state
    }

    /// Ends the analysis of a loop with this number of trips: adds the cost of all iterations.
    #[expect(clippy::too_many_arguments, reason = "one call")]
    fn finish_with_trips(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        entry: &AbstractState,
        trips: Result<Linear, UnboundedCause>,
        dependencies: u8,
        trip_formula: Option<TripFormula>,
        walked: BodyResult,
    ) -> Result<(), AnalysisStop> {
        let iteration = walked
            .loop_frame
            .back_edges
            .iter()
            .fold(ResourceBound::NOTHING, |most, edge| most.join(edge.usage));
        let (times, mut cause) = match trips {
            Ok(times) => (times, None),
            Err(cause) => (Linear::UNBOUNDED, Some(cause)),
        };
        let all = iteration.times(times, self.packet_max());
        if cause.is_none() && iteration.fuel.is_bounded() && !all.fuel.is_bounded() {
            cause = Some(UnboundedCause::Overflow);
        }
        self.finish_loop(
            frame,
            at,
            entry,
            times,
            all,
            iteration.fuel,
            cause,
            dependencies,
            trip_formula,
            walked,
        )
    }

    /// Records a loop and continues at its exits. `repeats` is the number of back edges taken, `repeated` the usage of
    /// all iterations that end with a back edge, and `iteration_fuel` the fuel of one of them. The last iteration,
    /// which leaves the loop, is in `walked`.
    #[expect(clippy::too_many_arguments, reason = "used for loops with a trip count and for unrolled loops")]
    fn finish_loop(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        entry: &AbstractState,
        repeats: Linear,
        repeated: ResourceBound,
        iteration_fuel: Linear,
        cause: Option<UnboundedCause>,
        dependencies: u8,
        trip_formula: Option<TripFormula>,
        walked: BodyResult,
    ) -> Result<(), AnalysisStop> {
        let offset = frame.code.offsets[at];
        let BodyResult { loop_frame, at_end, uncounted } = walked;
        let inputs = loop_frame.exits.iter().filter_map(|(_, merge)| merge.state.as_ref()).chain(&at_end);
        let last = inputs.fold(loop_frame.trapped, |most, state| most.join(state.usage));
        let total = repeated.plus(last);
        let trips = repeats.plus(Linear::constant(1));
        if self.unrecorded == 0 {
            let trip_formula =
                trip_formula.and_then(|(sum, step)| self.formula_over_locals(&sum, step, entry, &frame.code));
            let found = LoopSite {
                function: frame.function,
                depth: u32::try_from(frame.loops.len()).unwrap_or(u32::MAX),
                trips,
                body: iteration_fuel.join(last.fuel),
                total: total.fuel,
                dependencies,
                cause: cause.clone(),
                trip_formula,
            };
            self.record_loop(offset, found);
            if let Some(cause) = cause {
                // Of a loop that the compiler made of several, the branch has the line of the one without a counter.
                frame.work.add_cause(frame.function, uncounted.unwrap_or(offset), cause);
            }
        }
        self.note_dependencies(frame, dependencies);
        Self::note_cost(frame, offset, CostSite::Loop(trips), &total, &loop_frame.top_costs);
        let base = entry.usage.plus(repeated);
        Self::note_trap(frame, base.plus(loop_frame.trapped));
        for (label, merge) in loop_frame.exits {
            if let Some(mut state) = merge.state {
                state.usage = base.plus(state.usage);
                self.branch(frame, label, state)?;
            }
        }
        frame.state = at_end.map(|state| AbstractState { usage: base.plus(state.usage), ..state });
        if !repeated.fuel.is_bounded() {
            // The loop may never be left. Its usage counts like that of a path that ends in a trap.
            Self::note_trap(frame, base);
        }
        Ok(())
    }

    /// Records the results for a loop, joined with those of earlier walks of the loop.
    fn record_loop(&mut self, offset: u32, found: LoopSite) {
        match self.loops.entry(offset) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(found);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                known.trips = known.trips.join(found.trips);
                known.body = known.body.join(found.body);
                known.total = known.total.join(found.total);
                known.dependencies |= found.dependencies;
                known.cause = known.cause.take().or(found.cause);
                if known.trip_formula != found.trip_formula {
                    known.trip_formula = None;
                }
            }
        }
    }

    /// A trip formula in terms of locals of type i32. `None` if a value of the sum is not the value of a local at the
    /// loop's entry.
    fn formula_over_locals(
        &self,
        sum: &LinearSum,
        step: u64,
        entry: &AbstractState,
        code: &FunctionCode<'a>,
    ) -> Option<TripCountFormula> {
        let mut terms = Vec::new();
        for (id, coefficient) in &sum.terms {
            if self.values.width(*id) != BitWidth::W32 {
                return None;
            }
            let locals = entry.locals.get(..code.locals.len())?;
            let local = locals.iter().position(|local| local == id)?;
            terms.push((u32::try_from(local).ok()?, i32::try_from(*coefficient).ok()?));
        }
        if terms.is_empty() {
            return None;
        }
        Some(TripCountFormula {
            terms,
            constant: i32::try_from(sum.constant).ok()?,
            step: u32::try_from(step).ok()?,
        })
    }
}

impl LoopFrame {
    fn empty() -> Self {
        Self {
            label: usize::MAX,
            back_edges: Vec::new(),
            back_edge_offsets: Vec::new(),
            exits: Vec::new(),
            trapped: ResourceBound::NOTHING,
            top_costs: TopCosts::default(),
        }
    }
}

/// The bound `a - b`, where `b` is a part of `a`.
fn subtracted(a: Linear, b: Linear) -> Linear {
    if !a.is_bounded() {
        return a;
    }
    Linear { constant: a.constant.saturating_sub(b.constant), per_kib: a.per_kib.saturating_sub(b.per_kib) }
}
