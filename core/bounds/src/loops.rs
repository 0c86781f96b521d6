//! A loop: looked at first to see how its locals change, then walked for what it costs.

use crate::arith::{Arith, Binary};
use crate::code::FunctionCode;
use crate::facts::FactId;
use crate::invariant::{Invariant, LoopBody, LoopPass, Tested};
use crate::range::{BitWidth, Range};
use crate::report::{OnEntry, ResourceBound};
use crate::state::{AnalysisLimit, CostSite, MergePoint, Peaks, WalkState};
use crate::trips::{InductionVariable, LoopShape, Recurrence, TripCount};
use crate::value::{BoundValueId, Cmp, LinearSum, Op, ValueTable};
use crate::walk::{Around, Frame, INSTRUCTION, LOOPS_DEEP, LoopSite, Walker};
use crate::{Linear, Why};
use wasmparser::Operator;

/// Iterations that are walked one after the other where no counter is found.
const UNROLLED: u32 = 66;
/// Ways back, and comparisons on them, that are looked at for what holds whenever a body begins.
const TESTED: usize = 8;
/// Instructions of a loop that is walked so.
const UNROLLED_CODE: usize = 150;

/// The loop as it was walked: what one iteration costs, and the ways out of it.
pub(crate) struct Walked {
    pub(crate) around: Around,
    /// Where its body falls out of its end.
    fall: Option<WalkState>,
}

impl<'a> Walker<'a, '_> {
    pub(crate) fn run_loop(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
    ) -> Result<(), AnalysisLimit> {
        if frame.around.len() >= LOOPS_DEEP {
            return Err(AnalysisLimit::TooLarge);
        }
        let Some(mut entry) = frame.state.take() else { return Ok(()) };
        // Its operands are others in each iteration: they are the loop's own values too.
        let first = self.values.next();
        let height = entry.stack.len().saturating_sub(params);
        for place in entry.stack.iter_mut().skip(height) {
            *place = self.values.any(self.values.width(*place));
        }
        let code = std::rc::Rc::clone(&frame.code);
        let written = self.written(&code, at)?;

        // How do its locals change, whatever they are?
        let body = LoopBody { at, params, entry: &entry, first, written: &written };
        let mut look = self.look(frame, body, &[])?;
        let has_counter = !matches!(look.shape.trips, Err(Why::NoCounter | Why::Endless));
        if !has_counter && self.unroll(frame, at, params, &entry)? {
            return Ok(());
        }
        let mut invariants = Vec::new();
        if let Some(better) = self.look_again(frame, body, &look)? {
            (look, invariants) = better;
        }
        let LoopPass { counters, shape, tested, .. } = look;

        // And now for what it costs, with what is known about them.
        let mut start = self.specific(&entry, &counters, &shape);
        self.assume_invariants(&invariants, &mut start);
        for (cmp, local, limit, is_left) in tested {
            let now = start.locals[local];
            let (a, b) = if is_left { (now, limit) } else { (limit, now) };
            if let Some(facts) = self.facts.holds(&self.values, cmp, a, b, start.facts) {
                start.facts = facts;
            }
        }
        let walked = self.once(frame, at, params, start)?;
        // With what is known now it may turn out never to repeat.
        let trips = if walked.around.back.is_empty() { Ok(Linear::ZERO) } else { shape.trips };
        self.finish(frame, at, &entry, trips, shape.from, shape.on_entry, walked)
    }

    /// Does something of which nothing is recorded.
    pub(crate) fn quietly<R>(
        &mut self,
        frame: &mut Frame<'a>,
        act: impl FnOnce(&mut Self, &mut Frame<'a>) -> Result<R, AnalysisLimit>,
    ) -> Result<R, AnalysisLimit> {
        self.probing += 1;
        let before = (frame.shadow, frame.shadow_taker, frame.below, frame.below_taker);
        let result = act(self, frame);
        (frame.shadow, frame.shadow_taker, frame.below, frame.below_taker) = before;
        self.probing -= 1;
        result
    }

    pub(crate) fn once(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
        state: WalkState,
    ) -> Result<Walked, AnalysisLimit> {
        let around = self.iterate(frame, at, params, state)?;
        Ok(Walked { around, fall: frame.state.take() })
    }

    pub(crate) fn shape(
        &self,
        entry: &WalkState,
        first: BoundValueId,
        counters: &[InductionVariable],
        walked: &Walked,
    ) -> LoopShape {
        let trips = TripCount { values: &self.values, facts: &self.facts, entry: entry.facts, first };
        let has_exit = walked.fall.is_some() || !walked.around.out.is_empty();
        trips.shape(counters, &walked.around.back, has_exit)
    }

    /// Comparisons of a local with something that does not change, which hold whenever the body begins: when the loop is entered, and on every
    /// way back. Compilers put a loop's test at its end, and once before it.
    pub(crate) fn tested(
        &mut self,
        entry: &WalkState,
        first: BoundValueId,
        counters: &[InductionVariable],
        back: &[WalkState],
    ) -> Vec<Tested> {
        let Some(edge) = back.first().filter(|_| back.len() <= TESTED) else { return Vec::new() };
        let mut found = Vec::new();
        let learnt: Vec<_> = self.facts.learnt(edge.facts, entry.facts).collect();
        for (_, cmp, a, b) in learnt {
            for (value, limit, is_left) in [(a, b, true), (b, a, false)] {
                let counter = counters.iter().find(|counter| edge.locals.get(counter.local) == Some(&value));
                let Some(counter) = counter.filter(|_| self.values.is_invariant(limit, first, 4)) else {
                    continue;
                };
                let on_all = back.iter().all(|edge| {
                    let Some(next) = edge.locals.get(counter.local).copied() else { return false };
                    self.facts.learnt(edge.facts, entry.facts).any(|(_, other, x, y)| {
                        let (x, y) = if is_left { (x, y) } else { (y, x) };
                        other == cmp && x == next && self.values.same(y, limit)
                    })
                });
                if !on_all || found.len() >= TESTED {
                    continue;
                }
                let Some(limit) = self.made_at_entry(limit, first, entry, 4) else { continue };
                let (x, y) = if is_left { (counter.first, limit) } else { (limit, counter.first) };
                if self.is_known(cmp, x, y, entry) {
                    found.push((cmp, counter.local, limit, is_left));
                }
            }
        }
        found
    }

    /// A value that does not change in the loop, as if it were made where the loop is entered. Where it was made more may have been known of it.
    fn made_at_entry(
        &mut self,
        id: BoundValueId,
        first: BoundValueId,
        entry: &WalkState,
        depth: u32,
    ) -> Option<BoundValueId> {
        if id < first {
            return Some(id);
        }
        let depth = depth.checked_sub(1)?;
        let width = self.values.width(id);
        let op = self.values.node(id).op.clone();
        match op {
            Op::Descriptor | Op::Field(..) => Some(id),
            Op::Sum(sum) => {
                let mut whole = LinearSum { terms: Vec::new(), constant: sum.constant };
                for (term, by) in sum.terms {
                    let term = self.made_at_entry(term, first, entry, depth)?;
                    whole = ValueTable::combined(width, &whole, 1, &self.values.sum(term), by);
                }
                Some(self.made_of(width, whole, entry.facts))
            }
            Op::And(a, b) => {
                let a = self.made_at_entry(a, first, entry, depth)?;
                let b = self.made_at_entry(b, first, entry, depth)?;
                Some(self.arith(entry.facts).binary(Binary::And, width, a, b))
            }
            Op::Shift(of, by) => {
                let of = self.made_at_entry(of, first, entry, depth)?;
                let by = self.values.constant(width, by.into());
                Some(self.arith(entry.facts).binary(Binary::ShrU, width, of, by))
            }
            Op::Extend(of) => {
                let of = self.made_at_entry(of, first, entry, depth)?;
                Some(self.arith(entry.facts).extend_unsigned(of))
            }
            Op::Wrap(of) => {
                let of = self.made_at_entry(of, first, entry, depth)?;
                Some(self.arith(entry.facts).wrap(of))
            }
            _ => None,
        }
    }

    /// Whether a comparison certainly holds.
    pub(crate) fn is_known(&mut self, cmp: Cmp, a: BoundValueId, b: BoundValueId, entry: &WalkState) -> bool {
        let mut arith = Arith { values: &mut self.values, facts: &self.facts, at: entry.facts };
        let truth = arith.compare(cmp, a, b);
        if self.values.range(truth).lo == 1 {
            return true;
        }
        let width = self.values.width(a);
        let least = u64::from(matches!(cmp, Cmp::LtU | Cmp::LtS | Cmp::Ne));
        let sum = self.values.difference(b, a);
        let (x, y) =
            (self.facts.range(&self.values, a, entry.facts), self.facts.range(&self.values, b, entry.facts));
        let apart = self.facts.difference(&self.values, &sum, width, entry.facts);
        let is_apart = apart.is_some_and(|apart| apart.lo >= least);
        match cmp {
            Cmp::Ne => is_apart,
            // b - a wraps to something positive also where a is the larger: not if a + (b - a) stays a number of this width.
            Cmp::LtU | Cmp::LeU => {
                is_apart
                    && apart
                        .is_some_and(|apart| x.hi.checked_add(apart.hi).is_some_and(|sum| sum <= width.max()))
                    && y.hi <= width.max()
            }
            _ => false,
        }
    }

    /// The locals, and after them the globals, that a loop's body writes.
    fn written(&mut self, code: &FunctionCode<'a>, at: usize) -> Result<Vec<usize>, AnalysisLimit> {
        let end = code.ends[at] as usize;
        self.step((end - at) / 8 + code.locals.len() / 16)?;
        let mut is_written = vec![false; code.locals.len() + self.module.globals.len()];
        let mut mark = |index: usize| {
            if let Some(place) = is_written.get_mut(index) {
                *place = true;
            }
        };
        let mut calls = false;
        for operator in code.operators.get(at..end).unwrap_or_default() {
            match operator {
                Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                    mark(*local_index as usize)
                }
                Operator::GlobalSet { global_index } => mark(code.locals.len() + *global_index as usize),
                Operator::Call { function_index } => {
                    calls |= *function_index as usize >= self.module.imported.len();
                }
                Operator::CallIndirect { .. } => calls = true,
                _ => {}
            }
        }
        if calls {
            for (index, global) in self.module.globals.iter().enumerate() {
                if global.mutable {
                    mark(code.locals.len() + index);
                }
            }
        }
        Ok((0..is_written.len()).filter(|index| is_written[*index]).collect())
    }

    /// The loop's begin, where each local that it changes has come from its first value by any amount that the invariants allow.
    pub(crate) fn generic(
        &mut self,
        entry: &WalkState,
        written: &[usize],
        invariants: &[Invariant],
    ) -> (Vec<InductionVariable>, WalkState) {
        let mut start = WalkState { usage: ResourceBound::NOTHING, ..entry.clone() };
        let mut counters = Vec::new();
        for local in written {
            let Some(first) = entry.locals.get(*local).copied() else { continue };
            let width = self.values.width(first);
            let known = invariants.iter().find(|invariant| invariant.local == *local);
            let range = known.map_or(Range::any(width), |known| known.range);
            let k = self.values.add(Op::Phi, width, range, 0);
            // Of a local with an invariant more is known than how far it has come.
            let is_whole = known.is_some() || width == BitWidth::Other;
            let now = if is_whole { k } else { self.moved(first, k, 1, entry) };
            start.locals[*local] = now;
            counters.push(InductionVariable { local: *local, first, k, now });
        }
        self.assume_invariants(invariants, &mut start);
        (counters, start)
    }

    /// `first + sign x k`.
    fn moved(&mut self, first: BoundValueId, k: BoundValueId, sign: i64, entry: &WalkState) -> BoundValueId {
        let width = self.values.width(first);
        let sum = ValueTable::combined(
            width,
            &self.values.sum(first),
            1,
            &LinearSum { terms: vec![(k, 1)], constant: 0 },
            sign,
        );
        self.made_of(width, sum, entry.facts)
    }

    /// The loop's begin, with what was found out about its locals.
    fn specific(
        &mut self,
        entry: &WalkState,
        counters: &[InductionVariable],
        shape: &LoopShape,
    ) -> WalkState {
        let mut start = WalkState { usage: ResourceBound::NOTHING, ..entry.clone() };
        // All that go by the same amount each time go together: by the number of the iteration.
        let number: Vec<BoundValueId> =
            [BitWidth::W32, BitWidth::W64].map(|width| self.iteration(width, shape)).into();
        self.number_is_within(&number, shape, entry, &mut start);
        for (counter, change) in counters.iter().zip(&shape.changes) {
            let width = self.values.width(counter.first);
            let now = match *change {
                _ if width == BitWidth::Other => self.values.any(width),
                Recurrence::None => counter.first,
                Recurrence::Each(step) if shape.trips.is_ok() => {
                    self.moved(counter.first, number[usize::from(width == BitWidth::W64)], step, entry)
                }
                Recurrence::Steps { least, most, zeros } if shape.trips.is_ok() => {
                    let trips = shape.trips.clone().unwrap_or(Linear::UNBOUNDED);
                    let step = u64::try_from(most.abs().max(least.abs())).unwrap_or(u64::MAX);
                    let far = Linear::constant(step).times(trips, self.packet_max());
                    let mut range = Range::unsigned(width, 0, far.at(self.packet_max()));
                    if far.per_kib > 0 && far.at(self.packet_max()) <= width.max() {
                        range.per = Some(far);
                    }
                    let k = self.values.add(Op::Phi, width, range, shape.from);
                    self.values.node_mut(k).zeros = zeros.min(31);
                    self.moved(counter.first, k, if most > 0 { 1 } else { -1 }, entry)
                }
                Recurrence::Each(_) | Recurrence::Steps { .. } => {
                    self.values.add(Op::Phi, width, Range::any(width), 0)
                }
                Recurrence::Anything(range, from) => self.values.add(Op::Phi, width, range, from),
            };
            start.locals[counter.local] = now;
        }
        start
    }

    /// So many steps as lead to this iteration have place in the distance that there was when the loop was entered.
    fn number_is_within(
        &mut self,
        number: &[BoundValueId],
        shape: &LoopShape,
        entry: &WalkState,
        start: &mut WalkState,
    ) {
        let Some((distance, step)) = &shape.distance else { return };
        let Some(width) = distance.terms.first().map(|(id, _)| self.values.width(*id)) else { return };
        let (Some(number), Ok(step)) =
            (number.get(usize::from(width == BitWidth::W64)), i64::try_from(*step))
        else {
            return;
        };
        let fresh = self.values.next();
        let gone = ValueTable::combined(width, &self.values.sum(*number), step, &LinearSum::default(), 0);
        let (gone, distance) =
            (self.made_of(width, gone, entry.facts), self.made_of(width, distance.clone(), entry.facts));
        // That it does not wrap is known where the loop is entered, and so wherever it is used.
        let sum = self.values.sum(distance);
        if let Some(known) = self.facts.difference(&self.values, &sum, width, entry.facts)
            && distance >= fresh
        {
            let node = self.values.node_mut(distance);
            node.range = node.range.and(known, width);
        }
        if let Some(facts) = self.facts.holds(&self.values, Cmp::LeU, gone, distance, start.facts) {
            start.facts = facts;
        }
    }

    /// A sum's value, by what is known at a place.
    fn made_of(&mut self, width: BitWidth, sum: LinearSum, at: FactId) -> BoundValueId {
        let (values, facts) = (&mut self.values, &self.facts);
        let ranges: Vec<(BoundValueId, Range)> =
            sum.terms.iter().map(|(id, _)| (*id, facts.range(values, *id, at))).collect();
        values.of_sum(width, sum, |id| {
            ranges.iter().find(|(of, _)| *of == id).map_or(Range::any(width), |(_, range)| *range)
        })
    }

    /// The number of an iteration, from 0.
    fn iteration(&mut self, width: BitWidth, shape: &LoopShape) -> BoundValueId {
        let trips = shape.trips.clone().unwrap_or(Linear::UNBOUNDED);
        let most = trips.at(self.packet_max());
        let mut range = Range::unsigned(width, 0, most);
        if trips.per_kib > 0 && most <= width.max() {
            range.per = Some(trips);
        }
        self.values.add(Op::Phi, width, range, shape.from)
    }

    /// Walks iteration after iteration, for loops whose end shows in the ranges of their values. Says whether that was it.
    fn unroll(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        params: usize,
        entry: &WalkState,
    ) -> Result<bool, AnalysisLimit> {
        let code_len = frame.code.ends[at] as usize - at;
        let work = 2 * INSTRUCTION * code_len as u64 * u64::from(UNROLLED);
        let end = frame.code.ends[at] as usize;
        let inside = frame.code.operators.get(at + 1..end).unwrap_or_default();
        let has_loops = inside.iter().any(|operator| matches!(operator, Operator::Loop { .. }));
        if code_len > UNROLLED_CODE || has_loops || work > self.unrolling {
            return Ok(false);
        }
        self.unrolling -= work;
        let begin = WalkState { usage: ResourceBound::NOTHING, ..entry.clone() };
        let ends = self.quietly(frame, |walker, frame| {
            let mut next = Some(begin.clone());
            for _ in 0..UNROLLED {
                let Some(state) = next else { break };
                let before = walker.ranges(&state);
                let walked = walker.once(frame, at, params, state)?;
                next = walker.together(entry, walked.around.back);
                // Nothing has changed: nothing will.
                if next.as_ref().is_some_and(|next| walker.ranges(next) == before) {
                    break;
                }
            }
            Ok(next.is_none())
        })?;
        if !ends {
            return Ok(false);
        }
        let (mut next, mut trips) = (Some(begin), 0u64);
        let (mut fall, mut out) = (None::<MergePoint>, Vec::<(usize, MergePoint)>::new());
        let mut body = Linear::ZERO;
        let mut from = 0;
        let mut best = Peaks::default();
        let mut trapped = ResourceBound::NOTHING;
        while let Some(state) = next {
            let before = state.usage.fuel;
            let walked = self.once(frame, at, params, state)?;
            trapped = trapped.or(walked.around.trapped);
            for edge in &walked.around.back {
                body = body.or(less(edge.usage.fuel, before));
                from |= self.learnt_from(edge, entry);
            }
            for (label, meeting) in walked.around.out {
                let Some(state) = meeting.state else { continue };
                let place = match out.iter().position(|(known, _)| *known == label) {
                    Some(place) => place,
                    None => {
                        out.push((label, MergePoint::new(self.token(), entry.facts)));
                        out.len() - 1
                    }
                };
                out[place].1.add(&mut self.values, &mut self.facts, state);
            }
            if let Some(state) = walked.fall {
                let token = self.token();
                let meeting = fall.get_or_insert_with(|| MergePoint::new(token, entry.facts));
                meeting.add(&mut self.values, &mut self.facts, state);
            }
            best.rise(&walked.around.best);
            next = self.together(entry, walked.around.back);
            trips += u64::from(next.is_some());
        }
        let walked = Walked {
            around: Around { out, trapped, best, ..Around::empty() },
            fall: fall.and_then(|meeting| meeting.state),
        };
        // The iterations are already in the usage of the ways out.
        self.finish_with(
            frame,
            at,
            entry,
            Linear::constant(trips),
            ResourceBound::NOTHING,
            body,
            None,
            from,
            None,
            walked,
        )?;
        Ok(true)
    }

    fn ranges(&self, state: &WalkState) -> Vec<Range> {
        state.locals.iter().map(|local| self.facts.range(&self.values, *local, state.facts)).collect()
    }

    /// What the comparisons on the way to a back edge depend on.
    fn learnt_from(&self, edge: &WalkState, entry: &WalkState) -> u8 {
        let facts = self.facts.learnt(edge.facts, entry.facts);
        facts.fold(0, |from, (_, _, a, b)| from | self.values.node(a).from | self.values.node(b).from)
    }

    fn together(&mut self, entry: &WalkState, back: Vec<WalkState>) -> Option<WalkState> {
        let mut meeting = MergePoint::new(self.token(), entry.facts);
        for state in back {
            meeting.add(&mut self.values, &mut self.facts, state);
        }
        meeting.state
    }

    #[expect(clippy::too_many_arguments, reason = "one call")]
    fn finish(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        entry: &WalkState,
        trips: Result<Linear, Why>,
        from: u8,
        on_entry: Option<(LinearSum, u64)>,
        walked: Walked,
    ) -> Result<(), AnalysisLimit> {
        let once = walked.around.back.iter().fold(ResourceBound::NOTHING, |most, edge| most.or(edge.usage));
        let (times, mut why) = match trips {
            Ok(times) => (times, None),
            Err(why) => (Linear::UNBOUNDED, Some(why)),
        };
        let all = once.times(times, self.packet_max());
        if why.is_none() && once.fuel.is_bounded() && !all.fuel.is_bounded() {
            why = Some(Why::Overflow);
        }
        self.finish_with(frame, at, entry, times, all, once.fuel, why, from, on_entry, walked)
    }

    #[expect(clippy::too_many_arguments, reason = "the two kinds of loops meet here")]
    fn finish_with(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        entry: &WalkState,
        times: Linear,
        all: ResourceBound,
        once: Linear,
        why: Option<Why>,
        from: u8,
        on_entry: Option<(LinearSum, u64)>,
        walked: Walked,
    ) -> Result<(), AnalysisLimit> {
        let offset = frame.code.offsets[at];
        let Walked { around, fall } = walked;
        let ways = around.out.iter().filter_map(|(_, meeting)| meeting.state.as_ref()).chain(&fall);
        let last = ways.fold(around.trapped, |most, state| most.or(state.usage));
        let total = all.plus(last);
        let trips = times.plus(Linear::constant(1));
        if self.probing == 0 {
            let on_entry = on_entry.and_then(|(sum, step)| self.in_locals(&sum, step, entry, &frame.code));
            let found = LoopSite {
                function: frame.function,
                depth: u32::try_from(frame.around.len()).unwrap_or(u32::MAX),
                trips,
                body: once.or(last.fuel),
                total: total.fuel,
                from,
                why: why.clone(),
                on_entry,
                contexts: 1,
            };
            self.record(offset, found);
            if let Some(why) = why {
                frame.tally.blame(frame.function, offset, why);
            }
        }
        self.depends(frame, from);
        Self::note(frame, offset, CostSite::Loop(trips), &total, &around.best);
        let base = entry.usage.plus(all);
        Self::trap(frame, base.plus(around.trapped));
        for (label, meeting) in around.out {
            if let Some(mut state) = meeting.state {
                state.usage = base.plus(state.usage);
                self.branch(frame, label, state)?;
            }
        }
        frame.state = fall.map(|state| WalkState { usage: base.plus(state.usage), ..state });
        if !all.fuel.is_bounded() {
            // It may never be left; what was used then counts too.
            Self::trap(frame, base);
        }
        Ok(())
    }

    fn record(&mut self, offset: u32, found: LoopSite) {
        match self.loops.entry(offset) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(found);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => {
                let known = place.get_mut();
                known.trips = known.trips.or(found.trips);
                known.body = known.body.or(found.body);
                known.total = known.total.or(found.total);
                known.from |= found.from;
                known.why = known.why.take().or(found.why);
                if known.on_entry != found.on_entry {
                    known.on_entry = None;
                }
                known.contexts += 1;
            }
        }
    }

    /// The sum that gives a loop's trips in terms of locals of type i32, where each of its values is the local's value on entry.
    fn in_locals(
        &self,
        sum: &LinearSum,
        step: u64,
        entry: &WalkState,
        code: &FunctionCode<'a>,
    ) -> Option<OnEntry> {
        let mut terms = Vec::new();
        for (id, by) in &sum.terms {
            if self.values.width(*id) != BitWidth::W32 {
                return None;
            }
            let locals = entry.locals.get(..code.locals.len())?;
            let local = locals.iter().position(|local| local == id)?;
            terms.push((u32::try_from(local).ok()?, i32::try_from(*by).ok()?));
        }
        if terms.is_empty() {
            return None;
        }
        Some(OnEntry { terms, constant: i32::try_from(sum.constant).ok()?, step: u32::try_from(step).ok()? })
    }
}

impl Around {
    fn empty() -> Self {
        Self {
            label: usize::MAX,
            back: Vec::new(),
            out: Vec::new(),
            trapped: ResourceBound::NOTHING,
            best: Peaks::default(),
        }
    }
}

/// The difference of two bounds, the second of which is part of the first.
fn less(a: Linear, b: Linear) -> Linear {
    if !a.is_bounded() {
        return a;
    }
    Linear { constant: a.constant.saturating_sub(b.constant), per_kib: a.per_kib.saturating_sub(b.per_kib) }
}
