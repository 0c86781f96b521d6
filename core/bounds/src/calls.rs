//! The effect of calls: of the module's functions, directly or through a table, and of host functions.

use crate::conditions::PathConditionId;
use crate::interpreter::{
    AbstractValue, CallSite, Frame, FunctionSummary, GlobalEffect, HostCallSite, Interpreter,
};
use crate::range::{BitWidth, Range};
use crate::reason::CYCLE_NAMES_MAX;
use crate::state::{AnalysisStop, CostSite, StackSite, TopCosts, UNBOUNDED_STACK};
use crate::value::{LinearSum, ValueId, ValueNode, ValueTable, dependency};
use crate::{Length, Linear, ParamBound, UnboundedCause, find_injected};
use std::rc::Rc;
use weir_abi::host::{HostFunction, LimitedOutput, ResultValue, ValueType};
use weir_abi::limit;

/// The most functions that an indirect call can reach. With more, the analysis ends with
/// [`AnalysisStop::TooLarge`].
const CANDIDATES_MAX: usize = 4096;

impl<'a> Interpreter<'a, '_> {
    /// Applies a `call` instruction.
    pub(crate) fn call(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        function: u32,
    ) -> Result<(), AnalysisStop> {
        match self.module.imported.get(function as usize) {
            Some(Some(host)) => {
                self.call_host(frame, at, *host);
                return Ok(());
            }
            // The import is none of weir's host functions; admission refuses the module.
            Some(None) => {
                self.discard_arguments(frame, function);
                self.apply_unknown(frame, at, function);
                return Ok(());
            }
            None => {}
        }
        let params = self.module.type_of(function).map_or(0, |ty| ty.params().len());
        let cost = frame.code.costs[at];
        let Some(state) = &mut frame.state else { return Ok(()) };
        state.spend(Linear::constant(cost.into()));
        let base = state.stack.len().saturating_sub(params);
        let arguments = state.stack.split_off(base);
        let conditions = state.conditions;
        let (arguments, key) = self.callee_arguments(&arguments, conditions);
        let summary = self.summary_of(frame, at, function, arguments, key)?;
        match summary {
            Some(summary) => self.apply_summaries(frame, at, Some(function), &[summary]),
            None => self.apply_unknown(frame, at, function),
        }
        Ok(())
    }

    /// Applies a `call_indirect` instruction: the call has the effect of any function of the type that a table can
    /// contain.
    pub(crate) fn call_indirect(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        ty: u32,
    ) -> Result<(), AnalysisStop> {
        let module = self.module;
        let Some(wanted) = module.type_at(ty) else { return Ok(()) };
        let Some(state) = &mut frame.state else { return Ok(()) };
        state.pop();
        let base = state.stack.len().saturating_sub(wanted.params().len());
        let arguments = state.stack.split_off(base);
        let conditions = state.conditions;
        if module.referenced.len() > CANDIDATES_MAX {
            return Err(AnalysisStop::TooLarge);
        }
        let (mut found, mut without_summary) = (Vec::new(), None);
        for function in module.referenced.iter().copied() {
            self.step(1)?;
            if module.type_of(function) != Some(wanted) {
                continue;
            }
            match self.module.imported.get(function as usize) {
                Some(Some(host)) => {
                    found.push(Rc::new(self.host_worst_case(function, *host)));
                    continue;
                }
                Some(None) => {
                    without_summary = Some(function);
                    continue;
                }
                None => {}
            }
            let (arguments, key) = self.callee_arguments(&arguments, conditions);
            match self.summary_of(frame, at, function, arguments, key)? {
                Some(summary) => found.push(summary),
                None => without_summary = Some(function),
            }
        }
        if let Some(function) = without_summary {
            self.apply_unknown(frame, at, function);
            return Ok(());
        }
        if found.is_empty() {
            // No candidate: the call always traps.
            if let Some(state) = frame.state.take() {
                Self::note_trap(frame, state.usage);
            }
            return Ok(());
        }
        self.apply_summaries(frame, at, None, &found);
        Ok(())
    }

    /// Makes new values for the callee's parameters, with the ranges that the arguments have in the caller. Returns the
    /// values and a key that encodes their properties. The callee is walked once for all calls with the same key.
    fn callee_arguments(
        &mut self,
        arguments: &[ValueId],
        conditions: PathConditionId,
    ) -> (Vec<ValueId>, Vec<u64>) {
        let mut key = Vec::new();
        // Values of the caller, each with the new value that stands for it in the callee.
        let mut renamed: Vec<(ValueId, ValueId)> = Vec::new();
        let mut parameters = Vec::new();
        for argument in arguments {
            let abstracted_argument = self.abstract_value(*argument, conditions);
            if abstracted_argument.width == BitWidth::Other {
                key.push(u64::MAX);
                parameters.push(self.values.any(BitWidth::Other));
                continue;
            }
            push_key(&mut key, &abstracted_argument);
            let sum = self.values.as_sum(*argument);
            let mut renamed_sum = LinearSum { terms: Vec::new(), constant: sum.constant };
            key.push(sum.constant.cast_unsigned());
            key.push(sum.terms.len() as u64);
            for (id, coefficient) in &sum.terms {
                // The descriptor's address and fields have the same values in every function.
                let is_global = self.values.node(*id).op.is_input();
                let known = renamed.iter().position(|(old, _)| old == id);
                // A tag for the numbers that follow it, so that different arguments never have the same key.
                key.push(if is_global { 2 } else { u64::from(known.is_none()) });
                let new = match known {
                    _ if is_global => *id,
                    Some(index) => renamed[index].1,
                    None => {
                        let abstracted_term = self.abstract_value(*id, conditions);
                        let new = self.new_value(abstracted_term);
                        push_key(&mut key, &abstracted_term);
                        renamed.push((*id, new));
                        new
                    }
                };
                key.push(if is_global {
                    u64::from(id.0)
                } else {
                    1 << 40 | known.unwrap_or(renamed.len() - 1) as u64
                });
                key.push(coefficient.cast_unsigned());
                let term = self.values.as_sum(new);
                let width = abstracted_argument.width;
                renamed_sum = ValueTable::linear_combination(width, &renamed_sum, 1, &term, *coefficient);
            }
            let width = abstracted_argument.width;
            let id = self.conditions.add_sum(&mut self.values, width, renamed_sum, conditions);
            // The range of the argument can be narrower than the ranges of the terms imply.
            let node = self.values.node(id);
            let differs = node.range != abstracted_argument.range && !node.op.is_input();
            if differs && sum.terms.len() == 1 && self.values.as_sum(id).terms.len() == 1 {
                let node = self.values.node_mut(id);
                node.range = node.range.intersect(abstracted_argument.range, abstracted_argument.width);
            }
            if sum.terms.is_empty() {
                self.values.node_mut(id).dependencies = abstracted_argument.dependencies;
            }
            // The range also depends on conditions about the packet's length and other fields, which no other part of
            // the key encodes.
            let ValueNode { range, trailing_zeros, dependencies, .. } = *self.values.node(id);
            push_key(&mut key, &AbstractValue { range, trailing_zeros, dependencies, ..abstracted_argument });
            parameters.push(id);
        }
        (parameters, key)
    }

    /// The summary of a function of the module for these arguments; `None` for a recursive call, which has no bound.
    fn summary_of(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        function: u32,
        arguments: Vec<ValueId>,
        key: Vec<u64>,
    ) -> Result<Option<Rc<FunctionSummary>>, AnalysisStop> {
        if let Some(place) = self.call_stack.iter().position(|caller| *caller == function) {
            // The functions of the cycle, from the one that is called again.
            let cycle =
                self.call_stack.iter().skip(place).take(CYCLE_NAMES_MAX).map(|function| {
                    self.lines.name(*function).unwrap_or_else(|| format!("function {function}"))
                });
            let cause = UnboundedCause::Recursion(cycle.collect());
            if self.unrecorded == 0 {
                frame.work.add_cause(frame.function, frame.code.offsets[at], cause);
            }
            self.recursive.insert(function);
            return Ok(None);
        }
        let key = (function, key);
        if let Some(known) = self.summaries.get(&key).filter(|known| known.is_recorded || self.unrecorded > 0)
        {
            return Ok(Some(Rc::clone(known)));
        }
        let globals = self.entry_globals();
        let summary = Rc::new(self.walk_function(function, arguments, globals)?);
        self.summaries.insert(key, Rc::clone(&summary));
        Ok(Some(summary))
    }

    /// The globals when a function is entered: constants for the immutable integer globals, unknown values for all
    /// others.
    pub(crate) fn entry_globals(&mut self) -> Vec<ValueId> {
        let kinds = self.module.globals.iter();
        kinds
            .map(|global| match global.constant {
                Some(value) => self.values.constant(global.width, value),
                None => self.values.any(global.width),
            })
            .collect()
    }

    /// Removes the arguments of a call from the operand stack.
    fn discard_arguments(&self, frame: &mut Frame<'a>, function: u32) {
        let params = self.module.type_of(function).map_or(0, |ty| ty.params().len());
        if let Some(state) = &mut frame.state {
            state.stack.truncate(state.stack.len().saturating_sub(params));
        }
    }

    /// Applies a call of a function that is not analysed, because it is recursive or an unknown import. Its results and
    /// the globals become unknown, and its usage is unbounded.
    fn apply_unknown(&mut self, frame: &mut Frame<'a>, at: usize, function: u32) {
        let results: Vec<BitWidth> = self
            .module
            .type_of(function)
            .map_or(Vec::new(), |ty| ty.results().iter().copied().map(crate::code::width_of).collect());
        let locals = frame.code.locals.len();
        let Some(mut state) = frame.state.take() else { return };
        for width in results {
            let id = self.values.any(width);
            state.push(id);
        }
        for (index, global) in self.module.globals.iter().enumerate() {
            if let Some(value) = state.locals.get_mut(locals + index).filter(|_| global.mutable) {
                *value = self.values.any(global.width);
            }
        }
        state.usage.fuel = Linear::UNBOUNDED;
        state.usage.records = Linear::UNBOUNDED;
        state.usage.patches = Linear::UNBOUNDED;
        state.usage.frames = Linear::UNBOUNDED;
        state.usage.pages = Linear::UNBOUNDED;
        let offset = frame.code.offsets[at];
        let site = Some(StackSite { function: frame.function, offset, bytes: None });
        if frame.shadow_depth.take().is_some() {
            frame.shadow_site = site;
        }
        (frame.callee_stack, frame.callee_stack_site) = (UNBOUNDED_STACK, site);
        // Fuel is left out here, because its missing bound is reported as an [`UnboundedCause`].
        let usage = crate::ResourceBound { fuel: Linear::ZERO, ..state.usage };
        frame.state = Some(state);
        Self::note_cost(frame, offset, CostSite::Call(Some(function)), &usage, &TopCosts::default());
    }

    /// Applies a call whose effect can be that of any of these summaries. A direct call has one summary, an indirect
    /// call one for each function that it can reach.
    fn apply_summaries(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        function: Option<u32>,
        summaries: &[Rc<FunctionSummary>],
    ) {
        let locals = frame.code.locals.len();
        let mut usage = crate::ResourceBound::NOTHING;
        let mut top_costs = TopCosts::default();
        let mut depth = self.shadow_depth_now(frame);
        let depth_here = depth;
        for summary in summaries {
            usage = usage.join(summary.usage);
            if summary.stack > frame.callee_stack {
                (frame.callee_stack, frame.callee_stack_site) = (summary.stack, Some(summary.stack_site));
            }
            if self.unrecorded == 0 {
                frame.work.add(&summary.work);
            }
            depth = depth
                .zip(summary.shadow_depth)
                .zip(depth_here)
                .map(|((deepest, callee), here)| deepest.max(here + callee));
            top_costs.adopt_larger(&summary.top_costs);
        }
        if self.unrecorded == 0 {
            self.note_shadow_depth(frame, depth_here, depth, summaries);
        }
        let offset = frame.code.offsets[at];
        if self.unrecorded == 0 {
            let new = CallSite { function: frame.function, callee: function, fuel: usage.fuel };
            let found = self.calls.entry(offset).or_insert(new);
            found.fuel = found.fuel.join(usage.fuel);
        }
        Self::note_cost(frame, offset, CostSite::Call(function), &usage, &top_costs);

        let Some(mut state) = frame.state.take() else { return };
        state.usage = state.usage.plus(usage);
        let returning: Vec<&Rc<FunctionSummary>> =
            summaries.iter().filter(|summary| summary.returns).collect();
        let Some(first) = returning.first() else {
            Self::note_trap(frame, state.usage);
            return;
        };
        for index in 0..first.results.len() {
            let mut abstracted = first.results[index];
            for other in returning.iter().skip(1).filter_map(|summary| summary.results.get(index)) {
                abstracted = join_abstract(abstracted, *other);
            }
            let id = self.new_value(abstracted);
            state.push(id);
        }
        for index in 0..self.module.globals.len() {
            let Some(before) = state.locals.get(locals + index).copied() else { continue };
            let effects: Vec<GlobalEffect> =
                returning.iter().filter_map(|summary| summary.globals.get(index).copied()).collect();
            let after = self.global_after(before, &effects, state.conditions);
            if let Some(global) = state.locals.get_mut(locals + index) {
                *global = after;
            }
        }
        frame.state = Some(state);
    }

    /// Raises the most bytes by which the shadow stack grows to `depth`, which one of the callees reaches. `here` is
    /// the depth at the call.
    fn note_shadow_depth(
        &self,
        frame: &mut Frame<'a>,
        here: Option<u64>,
        depth: Option<u64>,
        summaries: &[Rc<FunctionSummary>],
    ) {
        let Some(before) = frame.shadow_depth else { return };
        if depth.is_some_and(|depth| depth <= before) {
            return;
        }
        frame.shadow_depth = depth;
        let deepest = summaries.iter().max_by_key(|summary| summary.shadow_depth.unwrap_or(u64::MAX));
        let Some(site) = deepest.and_then(|summary| summary.shadow_site) else { return };
        // The function's own part of the shadow stack can be larger than the callee's.
        if site.bytes.is_none_or(|bytes| here.is_none_or(|here| bytes >= here)) || frame.shadow_site.is_none()
        {
            frame.shadow_site = Some(site);
        }
    }

    /// The value of a global after a call that has any of these effects on the global.
    fn global_after(
        &mut self,
        before: ValueId,
        effects: &[GlobalEffect],
        conditions: PathConditionId,
    ) -> ValueId {
        let Some(first) = effects.first() else { return before };
        let width = self.values.width(before);
        let all_add = |amount: i64| {
            effects.iter().all(|effect| matches!(effect, GlobalEffect::Adds(other) if *other == amount))
        };
        match first {
            GlobalEffect::Adds(0) if all_add(0) => before,
            GlobalEffect::Adds(amount) if all_add(*amount) => {
                let sum = self.values.as_sum(before);
                let sum = LinearSum {
                    constant: width.wrap_signed(i128::from(sum.constant) + i128::from(*amount)),
                    ..sum
                };
                self.conditions.add_sum(&mut self.values, width, sum, conditions)
            }
            _ => self.values.any(width),
        }
    }

    /// The bytes by which the shadow stack has grown since the function was entered; `None` if they are unknown.
    fn shadow_depth_now(&self, frame: &Frame<'a>) -> Option<u64> {
        let Some(index) = self.module.stack_pointer else { return Some(0) };
        let now = frame.state.as_ref()?.locals.get(frame.code.locals.len() + index as usize)?;
        let before = frame.globals.get(index as usize)?;
        let moved = self.values.difference(*now, *before);
        moved.terms.is_empty().then(|| u64::try_from(moved.constant.saturating_neg()).unwrap_or(0))
    }

    /// The summary of a host function for unknown arguments.
    fn host_worst_case(&self, function: u32, host: HostFunction) -> FunctionSummary {
        let cost = self.costs.host(host);
        let bytes = u64::from(limit::HOST_READ_BYTES) + u64::from(limit::RECORD_STRING_BYTES);
        let fuel = Linear::constant(u64::from(cost.call) + u64::from(cost.per_byte) * bytes);
        let width = width_of(host);
        FunctionSummary {
            usage: one_call(host, fuel),
            stack: 0,
            shadow_depth: Some(0),
            results: vec![AbstractValue {
                width,
                range: Range::any(width),
                trailing_zeros: 0,
                dependencies: 0,
            }],
            globals: self.module.globals.iter().map(|_| GlobalEffect::Adds(0)).collect(),
            work: crate::state::WorkReasons::default(),
            top_costs: TopCosts::default(),
            stack_site: StackSite { function, offset: 0, bytes: Some(0) },
            shadow_site: None,
            returns: true,
            is_recorded: true,
        }
    }

    /// Applies a call of a host function. The cost follows from the length argument; the host never reads more bytes
    /// than the function's limit.
    fn call_host(&mut self, frame: &mut Frame<'a>, at: usize, host: HostFunction) {
        let definition = host.definition();
        let Some(mut state) = frame.state.take() else { return };
        let base = state.stack.len().saturating_sub(definition.parameters.len());
        let arguments = state.stack.split_off(base);
        let first = arguments.first().and_then(|id| self.values.as_constant(*id));
        let first = first.and_then(|value| u32::try_from(value).ok());
        let cost = self.costs.host(host);
        let packet_max = self.packet_max();
        let length = Length::for_host_call(host, first, self.environment)
            .zip(definition.length)
            .and_then(|(length, argument)| Some((*arguments.get(argument.index)?, length)));
        let upper = match length {
            Some((id, length)) => {
                let range = self.conditions.range(&self.values, id, state.conditions);
                let most = u64::from(length.units_max);
                if range.hi <= most {
                    range.upper_bound()
                } else {
                    range.hi_by_packet_length.unwrap_or(Linear::constant(most))
                }
            }
            None => Linear::ZERO,
        };
        let strings = if definition.output == LimitedOutput::Record {
            let all = &self.environment.string_bytes;
            let of_stream = first.and_then(|stream| all.get(stream as usize)).copied();
            u64::from(of_stream.unwrap_or_else(|| all.iter().copied().max().unwrap_or(0)))
        } else {
            0
        };
        let bytes = upper.plus(Linear::constant(strings));
        let mut fuel = Linear::constant(cost.per_byte.into())
            .times(bytes, packet_max)
            .plus(Linear::constant(cost.call.into()));
        // The loader replaces a read of a parameter with a constant index by the value: no call remains.
        let before = frame.code.operators.get(at.saturating_sub(3)..at).unwrap_or_default();
        let is_injected = find_injected(host, before).is_some();
        if is_injected {
            fuel = Linear::constant(self.costs.class(crate::CostClass::Move).into());
        } else {
            state.spend(Linear::constant(frame.code.costs[at].into()));
        }
        let width = width_of(host);
        let (range, dependencies) = self.host_result(host, first);
        let usage = one_call(host, fuel);
        state.usage = state.usage.plus(usage);
        let id = self.new_value(AbstractValue { width, range, trailing_zeros: 0, dependencies });
        state.push(id);
        frame.state = Some(state);
        if is_injected {
            return;
        }
        if let Some((length, _)) = length {
            let dependencies = self.values.node(length).dependencies;
            self.note_dependencies(frame, dependencies);
        }
        let offset = frame.code.offsets[at];
        Self::note_cost(frame, offset, CostSite::Host(definition.name), &usage, &TopCosts::default());
        if self.unrecorded == 0 {
            let found = self.host_calls.entry(offset).or_insert(HostCallSite {
                function: frame.function,
                name: definition.name,
                fuel,
            });
            found.fuel = found.fuel.join(fuel);
        }
    }

    /// The range and the dependencies of a host function's result. `first` is the first argument, if it is known.
    fn host_result(&self, host: HostFunction, first: Option<u32>) -> (Range, u8) {
        let any = Range::any(width_of(host));
        let bound = first.and_then(|index| self.environment.parameters.get(index as usize));
        match (host.definition().value, bound) {
            (ResultValue::Integer, Some(ParamBound::Int { min, max })) => {
                (Range::signed(BitWidth::W64, *min, *max), dependency::CONFIGURATION_VALUE)
            }
            (ResultValue::Integer, None) if first.is_none() => (any, dependency::CONFIGURATION_VALUE),
            (ResultValue::Length, Some(ParamBound::Bytes { min, max })) => (
                Range::unsigned(BitWidth::W32, (*min).into(), (*max).into()),
                dependency::CONFIGURATION_LENGTH,
            ),
            (ResultValue::Any | ResultValue::Integer | ResultValue::Float | ResultValue::Length, _) => {
                (any, 0)
            }
        }
    }
}

/// The width of a host function's result.
fn width_of(host: HostFunction) -> BitWidth {
    match host.definition().result.value_type() {
        ValueType::I32 => BitWidth::W32,
        ValueType::I64 => BitWidth::W64,
        ValueType::F64 => BitWidth::Other,
    }
}

/// The usage of one call of a host function, with this fuel.
fn one_call(host: HostFunction, fuel: Linear) -> crate::ResourceBound {
    let output = host.definition().output;
    let count = |counted: LimitedOutput| if output == counted { Linear::constant(1) } else { Linear::ZERO };
    crate::ResourceBound {
        fuel,
        records: count(LimitedOutput::Record),
        patches: count(LimitedOutput::Patch),
        frames: count(LimitedOutput::Frame),
        pages: Linear::ZERO,
    }
}

/// Adds the properties of a value to the key of a summary.
fn push_key(key: &mut Vec<u64>, abstracted: &AbstractValue) {
    let Range { lo, hi, slo, shi, hi_by_packet_length } = abstracted.range;
    let by_packet_length =
        hi_by_packet_length.map_or((0, 0), |bound| (bound.constant.saturating_add(1), bound.per_kib));
    key.extend([lo, hi, slo.cast_unsigned(), shi.cast_unsigned(), by_packet_length.0, by_packet_length.1]);
    key.push(
        u64::from(abstracted.trailing_zeros) << 16
            | u64::from(abstracted.dependencies) << 8
            | u64::from(abstracted.width == BitWidth::W64),
    );
}

/// The properties of a value that can be either of two values.
fn join_abstract(a: AbstractValue, b: AbstractValue) -> AbstractValue {
    AbstractValue {
        width: a.width,
        range: a.range.join(b.range),
        trailing_zeros: a.trailing_zeros.min(b.trailing_zeros),
        dependencies: a.dependencies | b.dependencies,
    }
}
