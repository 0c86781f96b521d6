//! Calls: of functions of the module, through its table, and of the host.

use crate::facts::FactId;
use crate::range::{BitWidth, Range};
use crate::state::{AnalysisLimit, CostSite, Peaks, StackSite};
use crate::value::{BoundValueId, LinearSum, Op, ValueNode, ValueTable, from};
use crate::walk::{AbstractValue, CallSite, Effect, Frame, FunctionSummary, HostCallSite, Walker};
use crate::{Length, Linear, ParamBound, Why, injected};
use std::rc::Rc;
use weir_abi::host::{HostFunction, ResultValue, UsedAllowance, ValueType};
use weir_abi::limit;

/// Functions that an indirect call is tried with.
const CANDIDATES_MAX: usize = 4096;

impl<'a> Walker<'a, '_> {
    pub(crate) fn call(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        function: u32,
    ) -> Result<(), AnalysisLimit> {
        match self.module.imported.get(function as usize) {
            Some(Some(host)) => {
                self.call_host(frame, at, *host);
                return Ok(());
            }
            // No module with such an import is admitted.
            Some(None) => {
                self.discard_arguments(frame, function);
                self.unknown(frame, at, function);
                return Ok(());
            }
            None => {}
        }
        let params = self.module.type_of(function).map_or(0, |ty| ty.params().len());
        let cost = frame.code.costs[at];
        let Some(state) = &mut frame.state else { return Ok(()) };
        state.spend(Linear::constant(cost.into()));
        let from = state.stack.len().saturating_sub(params);
        let arguments = state.stack.split_off(from);
        let facts = state.facts;
        let (arguments, key) = self.handed_over(&arguments, facts);
        let summary = self.summary_of(frame, at, function, arguments, key)?;
        match summary {
            Some(summary) => self.apply(frame, at, Some(function), &[summary]),
            None => self.unknown(frame, at, function),
        }
        Ok(())
    }

    pub(crate) fn call_indirect(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        ty: u32,
    ) -> Result<(), AnalysisLimit> {
        let module = self.module;
        let Some(wanted) = module.type_at(ty) else { return Ok(()) };
        let Some(state) = &mut frame.state else { return Ok(()) };
        state.pop();
        let from = state.stack.len().saturating_sub(wanted.params().len());
        let arguments = state.stack.split_off(from);
        let facts = state.facts;
        if module.referenced.len() > CANDIDATES_MAX {
            return Err(AnalysisLimit::TooLarge);
        }
        let (mut found, mut again) = (Vec::new(), None);
        for function in module.referenced.iter().copied() {
            self.step(1)?;
            if module.type_of(function) != Some(wanted) {
                continue;
            }
            match self.module.imported.get(function as usize) {
                Some(Some(host)) => {
                    found.push(Rc::new(self.host_anyhow(function, *host)));
                    continue;
                }
                Some(None) => {
                    again = Some(function);
                    continue;
                }
                None => {}
            }
            let (arguments, key) = self.handed_over(&arguments, facts);
            match self.summary_of(frame, at, function, arguments, key)? {
                Some(summary) => found.push(summary),
                None => again = Some(function),
            }
        }
        if let Some(function) = again {
            self.unknown(frame, at, function);
            return Ok(());
        }
        if found.is_empty() {
            // It can only trap.
            if let Some(state) = frame.state.take() {
                Self::trap(frame, state.usage);
            }
            return Ok(());
        }
        self.apply(frame, at, None, &found);
        Ok(())
    }

    /// The arguments as the callee sees them: values of its own, of which is known what is known here; and all of that as a key, so that the callee
    /// is walked once for all calls that look the same to it.
    fn handed_over(&mut self, arguments: &[BoundValueId], facts: FactId) -> (Vec<BoundValueId>, Vec<u64>) {
        let mut key = Vec::new();
        let mut renamed: Vec<(BoundValueId, BoundValueId)> = Vec::new();
        let mut given = Vec::new();
        for argument in arguments {
            let whole = self.shadow(*argument, facts);
            if whole.width == BitWidth::Other {
                key.push(u64::MAX);
                given.push(self.values.any(BitWidth::Other));
                continue;
            }
            push_key(&mut key, &whole);
            let sum = self.values.sum(*argument);
            let mut mine = LinearSum { terms: Vec::new(), constant: sum.constant };
            key.push(sum.constant.cast_unsigned());
            key.push(sum.terms.len() as u64);
            for (id, by) in &sum.terms {
                // The descriptor's address and its fields are the same everywhere.
                let is_global = matches!(self.values.node(*id).op, Op::Descriptor | Op::Field(..));
                let known = renamed.iter().position(|(old, _)| old == id);
                // Says how the numbers that follow are to be read, so that no two kinds of arguments have one key.
                key.push(if is_global { 2 } else { u64::from(known.is_none()) });
                let new = match known {
                    _ if is_global => *id,
                    Some(place) => renamed[place].1,
                    None => {
                        let shadow = self.shadow(*id, facts);
                        let new = self.fresh(shadow);
                        push_key(&mut key, &shadow);
                        renamed.push((*id, new));
                        new
                    }
                };
                key.push(if is_global {
                    u64::from(id.0)
                } else {
                    1 << 40 | known.unwrap_or(renamed.len() - 1) as u64
                });
                key.push(by.cast_unsigned());
                let one = self.values.sum(new);
                mine = ValueTable::combined(whole.width, &mine, 1, &one, *by);
            }
            let ranges: Vec<(BoundValueId, Range)> =
                mine.terms.iter().map(|(id, _)| (*id, self.facts.range(&self.values, *id, facts))).collect();
            let id = self.values.of_sum(whole.width, mine, |id| {
                ranges.iter().find(|(of, _)| *of == id).map_or(Range::any(whole.width), |(_, range)| *range)
            });
            // A sum's own range can be known better than its terms tell.
            let node = self.values.node(id);
            let is_better = node.range != whole.range && !matches!(node.op, Op::Field(..) | Op::Descriptor);
            if is_better && sum.terms.len() == 1 && self.values.sum(id).terms.len() == 1 {
                let node = self.values.node_mut(id);
                node.range = node.range.and(whole.range, whole.width);
            }
            if sum.terms.is_empty() {
                self.values.node_mut(id).from = whole.from;
            }
            // What is known here of the packet's length and other fields went into the range, and nothing else in the key tells it.
            let ValueNode { range, zeros, from, .. } = *self.values.node(id);
            push_key(&mut key, &AbstractValue { range, zeros, from, ..whole });
            given.push(id);
        }
        (given, key)
    }

    /// What a function of the module does with these arguments; nothing if it calls itself.
    fn summary_of(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        function: u32,
        arguments: Vec<BoundValueId>,
        key: Vec<u64>,
    ) -> Result<Option<Rc<FunctionSummary>>, AnalysisLimit> {
        if self.active.contains(&function) {
            let why =
                Why::Recursion(self.lines.name(function).unwrap_or_else(|| format!("function {function}")));
            if self.probing == 0 {
                frame.tally.blame(frame.function, frame.code.offsets[at], why);
            }
            self.again.insert(function);
            return Ok(None);
        }
        let key = (function, key);
        if let Some(known) = self.known.get(&key).filter(|known| known.recorded || self.probing > 0) {
            return Ok(Some(Rc::clone(known)));
        }
        let globals = self.globals();
        let summary = Rc::new(self.function(function, arguments, globals)?);
        self.known.insert(key, Rc::clone(&summary));
        Ok(Some(summary))
    }

    /// The globals, of which nothing is known but the constants.
    pub(crate) fn globals(&mut self) -> Vec<BoundValueId> {
        let kinds = self.module.globals.iter();
        kinds
            .map(|global| match global.constant {
                Some(value) => self.values.constant(global.width, value),
                None => self.values.any(global.width),
            })
            .collect()
    }

    /// Takes the arguments of a call off the stack.
    fn discard_arguments(&self, frame: &mut Frame<'a>, function: u32) {
        let params = self.module.type_of(function).map_or(0, |ty| ty.params().len());
        if let Some(state) = &mut frame.state {
            state.stack.truncate(state.stack.len().saturating_sub(params));
        }
    }

    /// The rest of a call of which nothing is known.
    fn unknown(&mut self, frame: &mut Frame<'a>, at: usize, function: u32) {
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
            if let Some(place) = state.locals.get_mut(locals + index).filter(|_| global.mutable) {
                *place = self.values.any(global.width);
            }
        }
        state.usage.fuel = Linear::UNBOUNDED;
        state.usage.records = Linear::UNBOUNDED;
        state.usage.patches = Linear::UNBOUNDED;
        state.usage.frames = Linear::UNBOUNDED;
        state.usage.pages = Linear::UNBOUNDED;
        let offset = frame.code.offsets[at];
        let taker = Some(StackSite { function: frame.function, offset, bytes: None });
        if frame.shadow.take().is_some() {
            frame.shadow_taker = taker;
        }
        (frame.below, frame.below_taker) = (u64::MAX / 2, taker);
        // That there is no bound on its fuel is said with the reason.
        let usage = crate::ResourceBound { fuel: Linear::ZERO, ..state.usage };
        frame.state = Some(state);
        Self::note(frame, offset, CostSite::Call(Some(function)), &usage, &Peaks::default());
    }

    /// A call has one of these effects.
    fn apply(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        function: Option<u32>,
        found: &[Rc<FunctionSummary>],
    ) {
        let locals = frame.code.locals.len();
        let mut usage = crate::ResourceBound::NOTHING;
        let mut best = Peaks::default();
        let mut depth = self.depth_now(frame);
        let here = depth;
        for summary in found {
            usage = usage.or(summary.usage);
            if summary.stack > frame.below {
                (frame.below, frame.below_taker) = (summary.stack, Some(summary.widest));
            }
            if self.probing == 0 {
                frame.tally.add(&summary.tally);
            }
            depth = depth
                .zip(summary.shadow)
                .zip(here)
                .map(|((deepest, callee), here)| deepest.max(here + callee));
            best.rise(&summary.best);
        }
        if self.probing == 0 {
            self.deepened(frame, here, depth, found);
        }
        let offset = frame.code.offsets[at];
        if self.probing == 0 {
            let new = CallSite { function: frame.function, callee: function, fuel: usage.fuel };
            let found = self.calls.entry(offset).or_insert(new);
            found.fuel = found.fuel.or(usage.fuel);
        }
        Self::note(frame, offset, CostSite::Call(function), &usage, &best);

        let Some(mut state) = frame.state.take() else { return };
        state.usage = state.usage.plus(usage);
        let returning: Vec<&Rc<FunctionSummary>> = found.iter().filter(|summary| summary.returns).collect();
        let Some(first) = returning.first() else {
            Self::trap(frame, state.usage);
            return;
        };
        for index in 0..first.results.len() {
            let mut shadow = first.results[index];
            for other in returning.iter().skip(1).filter_map(|summary| summary.results.get(index)) {
                shadow = either(shadow, *other);
            }
            let id = self.fresh(shadow);
            state.push(id);
        }
        for index in 0..self.module.globals.len() {
            let Some(before) = state.locals.get(locals + index).copied() else { continue };
            let effects: Vec<Effect> =
                returning.iter().filter_map(|summary| summary.globals.get(index).copied()).collect();
            let after = self.after(before, &effects, state.facts);
            if let Some(place) = state.locals.get_mut(locals + index) {
                *place = after;
            }
        }
        frame.state = Some(state);
    }

    /// The shadow stack is as deep as this in one of the called functions.
    fn deepened(
        &self,
        frame: &mut Frame<'a>,
        here: Option<u64>,
        depth: Option<u64>,
        found: &[Rc<FunctionSummary>],
    ) {
        let Some(before) = frame.shadow else { return };
        if depth.is_some_and(|depth| depth <= before) {
            return;
        }
        frame.shadow = depth;
        let deepest = found.iter().max_by_key(|summary| summary.shadow.unwrap_or(u64::MAX));
        let Some(taker) = deepest.and_then(|summary| summary.shadow_taker) else { return };
        // What this function has taken itself can be more.
        if taker.bytes.is_none_or(|bytes| here.is_none_or(|here| bytes >= here))
            || frame.shadow_taker.is_none()
        {
            frame.shadow_taker = Some(taker);
        }
    }

    /// A global after a call that had one of these effects on it.
    fn after(&mut self, before: BoundValueId, effects: &[Effect], facts: FactId) -> BoundValueId {
        let Some(first) = effects.first() else { return before };
        let width = self.values.width(before);
        let all_add = |amount: i64| {
            effects.iter().all(|effect| matches!(effect, Effect::Adds(other) if *other == amount))
        };
        match first {
            Effect::Adds(0) if all_add(0) => before,
            Effect::Adds(amount) if all_add(*amount) => {
                let sum = self.values.sum(before);
                let sum = LinearSum {
                    constant: width.wrap_signed(i128::from(sum.constant) + i128::from(*amount)),
                    ..sum
                };
                let ranges: Vec<(BoundValueId, Range)> = sum
                    .terms
                    .iter()
                    .map(|(id, _)| (*id, self.facts.range(&self.values, *id, facts)))
                    .collect();
                self.values.of_sum(width, sum, |id| {
                    ranges.iter().find(|(of, _)| *of == id).map_or(Range::any(width), |(_, range)| *range)
                })
            }
            _ => self.values.any(width),
        }
    }

    /// How deep the shadow stack is at this place.
    fn depth_now(&self, frame: &Frame<'a>) -> Option<u64> {
        let Some(index) = self.module.stack_pointer else { return Some(0) };
        let now = frame.state.as_ref()?.locals.get(frame.code.locals.len() + index as usize)?;
        let before = frame.globals.get(index as usize)?;
        let moved = self.values.difference(*now, *before);
        moved.terms.is_empty().then(|| u64::try_from(moved.constant.saturating_neg()).unwrap_or(0))
    }

    /// The effect of a host function of whose arguments nothing is known.
    fn host_anyhow(&self, function: u32, host: HostFunction) -> FunctionSummary {
        let cost = self.costs.host(host);
        let bytes = u64::from(limit::HOST_READ_BYTES) + u64::from(limit::RECORD_STRING_BYTES);
        let fuel = Linear::constant(u64::from(cost.call) + u64::from(cost.per_byte) * bytes);
        let width = width_of(host);
        FunctionSummary {
            usage: one_call(host, fuel),
            stack: 0,
            shadow: Some(0),
            results: vec![AbstractValue { width, range: Range::any(width), zeros: 0, from: 0 }],
            globals: self.module.globals.iter().map(|_| Effect::Adds(0)).collect(),
            tally: crate::state::WorkReasons::default(),
            best: Peaks::default(),
            widest: StackSite { function, offset: 0, bytes: Some(0) },
            shadow_taker: None,
            returns: true,
            recorded: true,
        }
    }

    /// A call of a host function: by its length argument. What a host function reads at most, it is held to.
    fn call_host(&mut self, frame: &mut Frame<'a>, at: usize, host: HostFunction) {
        let definition = host.definition();
        let Some(mut state) = frame.state.take() else { return };
        let from_stack = state.stack.len().saturating_sub(definition.parameters.len());
        let arguments = state.stack.split_off(from_stack);
        let first = arguments.first().and_then(|id| self.values.as_constant(*id));
        let first = first.and_then(|value| u32::try_from(value).ok());
        let cost = self.costs.host(host);
        let packet_max = self.packet_max();
        let length = Length::of_host(host, first, self.environment)
            .zip(definition.length)
            .and_then(|(length, argument)| Some((*arguments.get(argument.parameter)?, length)));
        let upper = match length {
            Some((id, length)) => {
                let range = self.facts.range(&self.values, id, state.facts);
                let most = u64::from(length.most);
                if range.hi <= most { range.upper() } else { range.per.unwrap_or(Linear::constant(most)) }
            }
            None => Linear::ZERO,
        };
        let strings = if definition.uses == UsedAllowance::Record {
            let all = &self.environment.string_bytes;
            let of = first.and_then(|stream| all.get(stream as usize)).copied();
            u64::from(of.unwrap_or_else(|| all.iter().copied().max().unwrap_or(0)))
        } else {
            0
        };
        let bytes = upper.plus(Linear::constant(strings));
        let mut fuel = Linear::constant(cost.per_byte.into())
            .times(bytes, packet_max)
            .plus(Linear::constant(cost.call.into()));
        // A parameter that is read by a constant number is put in as a constant: nothing is called.
        let before = frame.code.operators.get(at.saturating_sub(3)..at).unwrap_or_default();
        let is_injected = injected(host, before).is_some();
        if is_injected {
            fuel = Linear::constant(self.costs.class(crate::CostClass::Move).into());
        } else {
            state.spend(Linear::constant(frame.code.costs[at].into()));
        }
        let width = width_of(host);
        let (range, bits) = self.result_of(host, first);
        let usage = one_call(host, fuel);
        state.usage = state.usage.plus(usage);
        let id = self.fresh(AbstractValue { width, range, zeros: 0, from: bits });
        state.push(id);
        frame.state = Some(state);
        if is_injected {
            return;
        }
        if let Some((length, _)) = length {
            let bits = self.values.node(length).from;
            self.depends(frame, bits);
        }
        let offset = frame.code.offsets[at];
        Self::note(frame, offset, CostSite::Host(definition.name), &usage, &Peaks::default());
        if self.probing == 0 {
            let found = self.hosts.entry(offset).or_insert(HostCallSite {
                function: frame.function,
                name: definition.name,
                fuel,
            });
            found.fuel = found.fuel.or(fuel);
        }
    }

    /// The range of a host function's result, and its origin, where the first argument is `first`.
    fn result_of(&self, host: HostFunction, first: Option<u32>) -> (Range, u8) {
        let any = Range::any(width_of(host));
        let given = first.and_then(|index| self.environment.parameters.get(index as usize));
        match (host.definition().value, given) {
            (ResultValue::Integer, Some(ParamBound::Int { min, max })) => {
                (Range::signed(BitWidth::W64, *min, *max), from::CONFIGURATION_VALUE)
            }
            (ResultValue::Integer, None) if first.is_none() => (any, from::CONFIGURATION_VALUE),
            (ResultValue::Length, Some(ParamBound::Bytes { min, max })) => {
                (Range::unsigned(BitWidth::W32, (*min).into(), (*max).into()), from::CONFIGURATION_LENGTH)
            }
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

/// The usage of one call of a host function that costs this much fuel.
fn one_call(host: HostFunction, fuel: Linear) -> crate::ResourceBound {
    let uses = host.definition().uses;
    let one = |use_of: UsedAllowance| if uses == use_of { Linear::constant(1) } else { Linear::ZERO };
    crate::ResourceBound {
        fuel,
        records: one(UsedAllowance::Record),
        patches: one(UsedAllowance::Patch),
        frames: one(UsedAllowance::Frame),
        pages: Linear::ZERO,
    }
}

fn push_key(key: &mut Vec<u64>, shadow: &AbstractValue) {
    let Range { lo, hi, slo, shi, per } = shadow.range;
    let per = per.map_or((0, 0), |per| (per.constant.saturating_add(1), per.per_kib));
    key.extend([lo, hi, slo.cast_unsigned(), shi.cast_unsigned(), per.0, per.1]);
    key.push(
        u64::from(shadow.zeros) << 16
            | u64::from(shadow.from) << 8
            | u64::from(shadow.width == BitWidth::W64),
    );
}

fn either(a: AbstractValue, b: AbstractValue) -> AbstractValue {
    AbstractValue {
        width: a.width,
        range: a.range.or(b.range),
        zeros: a.zeros.min(b.zeros),
        from: a.from | b.from,
    }
}
