//! The transfer functions of the abstract interpreter: the effect of each instruction on the abstract state.

use crate::Linear;
use crate::arith::{Arith, Binary, CountedBits, PACKET_LENGTH};
use crate::decode::NoModule;
use crate::interpreter::{Frame, Interpreter};
use crate::length::TABLE_MAX;
use crate::range::{BitWidth, Range};
use crate::report::ResourceBound;
use crate::state::{AbstractState, AnalysisStop, CostSite, StackSite, TopCosts};
use crate::value::{Cmp, LinearSum, Op, ValueId, ValueTable, dependency};
use std::collections::HashSet;
use wasmparser::{MemArg, Operator};
use weir_abi::{DESCRIPTOR_BYTES, DESCRIPTORS_BASE};

/// The kind of a memory load.
#[derive(Clone, Copy)]
struct Load {
    /// The width of the result.
    width: BitWidth,
    /// The number of bytes that are loaded.
    bytes: u8,
    is_signed: bool,
}

impl<'a> Interpreter<'a, '_> {
    /// Applies the instruction with the index `at`, other than `block`, `loop`, `if`, `else` and `end`.
    pub(crate) fn instruction(
        &mut self,
        frame: &mut Frame<'a>,
        at: usize,
        operator: &Operator<'a>,
    ) -> Result<(), AnalysisStop> {
        let cost = u64::from(frame.code.costs[at]);
        let Some(state) = &mut frame.state else { return Ok(()) };
        if !matches!(operator, Operator::Call { .. }) {
            state.spend(Linear::constant(cost));
        }
        match operator {
            Operator::Br { relative_depth } => {
                if let Some(state) = frame.state.take() {
                    self.branch_by_depth(frame, *relative_depth, state)?;
                }
            }
            Operator::BrIf { relative_depth } => self.branch_if(frame, *relative_depth)?,
            Operator::BrTable { targets } => {
                let Some(mut state) = frame.state.take() else { return Ok(()) };
                let selector = state.pop();
                let known = self.conditions.range(&self.values, selector, state.conditions);
                let mut taken = HashSet::new();
                for (index, target) in (0u64..).zip(targets.targets()) {
                    let Ok(depth) = target else { return Err(AnalysisStop::TooLarge) };
                    if index >= known.lo && index <= known.hi && taken.insert(depth) {
                        self.step(1)?;
                        self.branch_by_depth(frame, depth, state.clone())?;
                    }
                }
                if known.hi >= u64::from(targets.len()) {
                    self.branch_by_depth(frame, targets.default(), state)?;
                }
            }
            Operator::Return => {
                if let Some(state) = frame.state.take() {
                    self.branch(frame, 0, state)?;
                }
            }
            Operator::Unreachable => {
                if let Some(state) = frame.state.take() {
                    Self::note_trap(frame, state.usage);
                }
            }
            Operator::Call { function_index } => self.call(frame, at, *function_index)?,
            Operator::CallIndirect { type_index, .. } => self.call_indirect(frame, at, *type_index)?,
            Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
                self.bulk(frame, at, true);
            }
            Operator::TableCopy { .. } | Operator::TableFill { .. } | Operator::TableInit { .. } => {
                self.bulk(frame, at, false);
            }
            Operator::MemoryGrow { .. } => self.grow(frame, at),
            Operator::TableGrow { .. } => self.grow_table(frame),
            _ => self.plain(frame, at, operator),
        }
        Self::count_operands(frame);
        Ok(())
    }

    fn branch_if(&mut self, frame: &mut Frame<'a>, depth: u32) -> Result<(), AnalysisStop> {
        let Some(mut state) = frame.state.take() else { return Ok(()) };
        let condition = state.pop();
        let before = state.conditions;
        if let Some(conditions) = self.conditions.assume(&self.values, condition, true, before) {
            self.branch_by_depth(frame, depth, AbstractState { conditions, ..state.clone() })?;
        }
        let other = self.conditions.assume(&self.values, condition, false, before);
        frame.state = other.map(|conditions| AbstractState { conditions, ..state });
        Ok(())
    }

    /// Applies a bulk instruction, whose cost follows from its length argument. Where the length exceeds the memory or
    /// table, the instruction traps before it copies anything.
    fn bulk(&mut self, frame: &mut Frame<'a>, at: usize, is_memory: bool) {
        let Some(state) = &mut frame.state else { return };
        let len = state.pop();
        state.pop();
        state.pop();
        let range = self.conditions.range(&self.values, len, state.conditions);
        let most =
            if is_memory { self.environment.pages_max.saturating_mul(1 << 16) } else { TABLE_MAX.into() };
        let upper = if range.hi <= most {
            range.upper_bound()
        } else {
            range.hi_by_packet_length.unwrap_or(Linear::constant(most))
        };
        let unit_cost = if is_memory { self.costs.bulk_byte() } else { self.costs.element() };
        let fuel = Linear::constant(unit_cost.into()).times(upper, self.packet_max());
        state.spend(fuel);
        let dependencies = self.values.node(len).dependencies;
        self.note_dependencies(frame, dependencies);
        let usage = ResourceBound { fuel, ..ResourceBound::NOTHING };
        Self::note_cost(frame, frame.code.offsets[at], CostSite::Bulk, &usage, &TopCosts::default());
    }

    /// Applies `memory.grow`.
    fn grow(&mut self, frame: &mut Frame<'a>, at: usize) {
        let width = BitWidth::W32;
        let Some(state) = &mut frame.state else { return };
        let pages = state.pop();
        let range = self.conditions.range(&self.values, pages, state.conditions);
        let most = Linear::constant(range.hi.min(self.environment.pages_max));
        let fuel = Linear::constant(self.costs.page().into()).times(most, self.packet_max());
        state.usage.pages = state.usage.pages.plus(most);
        state.spend(fuel);
        let usage = ResourceBound { fuel, pages: most, ..ResourceBound::NOTHING };
        Self::note_cost(frame, frame.code.offsets[at], CostSite::Grow, &usage, &TopCosts::default());
        // The result is the old size, or -1.
        let result = self.values.add(Op::Opaque, width, Range::signed(width, -1, 1 << 16), 0);
        if let Some(state) = &mut frame.state {
            state.push(result);
        }
    }

    /// Applies `table.grow`.
    fn grow_table(&mut self, frame: &mut Frame<'a>) {
        let Some(state) = &mut frame.state else { return };
        let elements = state.pop();
        state.pop();
        let range = self.conditions.range(&self.values, elements, state.conditions);
        let most = Linear::constant(range.hi.min(TABLE_MAX.into()));
        state.spend(Linear::constant(self.costs.element().into()).times(most, self.packet_max()));
        let result = self.values.any(BitWidth::W32);
        state.push(result);
    }

    /// The context of an operation under the conditions `at`.
    pub(crate) fn arith(&mut self, at: crate::conditions::PathConditionId) -> Arith<'_> {
        Arith { values: &mut self.values, conditions: &self.conditions, at }
    }

    /// Applies an instruction that neither branches nor has a variable cost.
    fn plain(&mut self, frame: &mut Frame<'a>, at: usize, operator: &Operator<'a>) {
        use BitWidth::{W32, W64};
        use Operator as O;
        let locals = frame.code.locals.len();
        let Some(mut state) = frame.state.take() else { return };
        match operator {
            O::Nop => {}
            O::Drop => {
                state.pop();
            }
            O::I32Const { value } => {
                let id = self.values.constant(W32, (*value).into());
                state.push(id);
            }
            O::I64Const { value } => {
                let id = self.values.constant(W64, *value);
                state.push(id);
            }
            O::LocalGet { local_index } => {
                let id = state.locals.get(*local_index as usize).copied().unwrap_or(ValueTable::zero(W32));
                state.push(id);
            }
            O::LocalSet { local_index } => {
                let id = state.pop();
                if let Some(local) = state.locals.get_mut(*local_index as usize) {
                    *local = id;
                }
            }
            O::LocalTee { local_index } => {
                let id = state.pop();
                state.push(id);
                if let Some(local) = state.locals.get_mut(*local_index as usize) {
                    *local = id;
                }
            }
            O::GlobalGet { global_index } => {
                let id = state.locals.get(locals + *global_index as usize).copied();
                state.push(id.unwrap_or(ValueTable::zero(W32)));
            }
            O::GlobalSet { global_index } => {
                let id = state.pop();
                if let Some(global) = state.locals.get_mut(locals + *global_index as usize) {
                    *global = id;
                }
                if self.module.stack_pointer == Some(*global_index) {
                    self.note_stack_pointer(frame, at, id);
                }
            }
            O::Select | O::TypedSelect { .. } => {
                let condition = state.pop();
                let (b, a) = (state.pop(), state.pop());
                let then = self.conditions.assume(&self.values, condition, true, state.conditions);
                let other = self.conditions.assume(&self.values, condition, false, state.conditions);
                let id = self.arith(state.conditions).select(a, b, (then, other));
                state.push(id);
            }
            O::MemorySize { .. } => {
                let range = Range::unsigned(W32, 0, 1 << 16);
                let id = self.values.add(Op::Opaque, W32, range, 0);
                state.push(id);
            }
            _ => {
                if let Some((kind, width)) = binary_of(operator) {
                    let (b, a) = (state.pop(), state.pop());
                    let id = self.arith(state.conditions).binary(kind, width, a, b);
                    state.push(id);
                } else if let Some((cmp, is_swapped)) = comparison_of(operator) {
                    let (b, a) = (state.pop(), state.pop());
                    let (a, b) = if is_swapped { (b, a) } else { (a, b) };
                    let id = self.arith(state.conditions).compare(cmp, a, b);
                    state.push(id);
                } else if let Some((load, memarg)) = load_of(operator) {
                    let address = state.pop();
                    let id = self.load(load, memarg, address, &state);
                    state.push(id);
                } else {
                    self.unary(&mut state, operator);
                }
            }
        }
        frame.state = Some(state);
    }

    /// Applies an instruction with one integer operand, or one whose result is not computed.
    fn unary(&mut self, state: &mut AbstractState, operator: &Operator<'a>) {
        use BitWidth::{W32, W64};
        use Operator as O;
        let at = state.conditions;
        match operator {
            O::I32Eqz | O::I64Eqz => {
                let a = state.pop();
                let zero = ValueTable::zero(self.values.width(a));
                let id = self.arith(at).compare(Cmp::Eq, a, zero);
                state.push(id);
            }
            O::I64ExtendI32U => {
                let a = state.pop();
                let id = self.arith(at).extend_unsigned(a);
                state.push(id);
            }
            O::I64ExtendI32S => {
                let a = state.pop();
                let id = self.arith(at).extend_signed(a);
                state.push(id);
            }
            O::I32WrapI64 => {
                let a = state.pop();
                let id = self.arith(at).wrap(a);
                state.push(id);
            }
            O::I32Extend8S | O::I32Extend16S => {
                let bits = if matches!(operator, O::I32Extend8S) { 8 } else { 16 };
                let a = state.pop();
                let id = self.arith(at).sign_extended(W32, a, bits);
                state.push(id);
            }
            O::I64Extend8S | O::I64Extend16S | O::I64Extend32S => {
                let bits = match operator {
                    O::I64Extend8S => 8,
                    O::I64Extend16S => 16,
                    _ => 32,
                };
                let a = state.pop();
                let id = self.arith(at).sign_extended(W64, a, bits);
                state.push(id);
            }
            O::I32Clz | O::I32Ctz | O::I64Clz | O::I64Ctz | O::I32Popcnt | O::I64Popcnt => {
                let a = state.pop();
                let width = self.values.width(a);
                let bits = match operator {
                    O::I32Popcnt | O::I64Popcnt => CountedBits::Ones,
                    O::I32Clz | O::I64Clz => CountedBits::LeadingZeros,
                    _ => CountedBits::TrailingZeros,
                };
                let id = self.arith(at).counted_bits(width, a, bits);
                state.push(id);
            }
            _ => {
                // Only the numbers of operands and results, and the type and range of the result, are known.
                let (params, results) = operator.operator_arity(&NoModule).unwrap_or((0, 0));
                for _ in 0..params {
                    state.pop();
                }
                let (width, range) = result_of(operator);
                for _ in 0..results {
                    let id = self.values.add(Op::Opaque, width, range, 0);
                    state.push(id);
                }
            }
        }
    }

    /// Records the new depth of the shadow stack, where the shadow stack pointer is set to `pointer`.
    fn note_stack_pointer(&mut self, frame: &mut Frame<'a>, at: usize, pointer: ValueId) {
        if self.unrecorded > 0 {
            return;
        }
        let Some(before) = self.module.stack_pointer.and_then(|index| frame.globals.get(index as usize))
        else {
            return;
        };
        let moved = self.values.difference(pointer, *before);
        let depth =
            moved.terms.is_empty().then(|| u64::try_from(moved.constant.saturating_neg()).unwrap_or(0));
        if let Some(deepest) = frame.shadow_depth
            && depth.is_none_or(|depth| depth > deepest)
        {
            let (function, offset) = (frame.function, frame.code.offsets[at]);
            frame.shadow_site = Some(StackSite { function, offset, bytes: depth });
            frame.shadow_depth = depth;
        }
    }

    /// The result of a load from `address` plus the offset of `memarg`.
    fn load(&mut self, load: Load, memarg: MemArg, address: ValueId, state: &AbstractState) -> ValueId {
        let dependencies = self.values.node(address).dependencies;
        let sum = self.values.as_sum(address);
        for input in [self.descriptor, self.event] {
            if sum.coefficient(input) == 1 && !load.is_signed && load.width != BitWidth::Other {
                let constant = -i64::try_from(memarg.offset).unwrap_or(0);
                let begin = LinearSum { terms: vec![(input, 1)], constant };
                let offset = ValueTable::linear_combination(BitWidth::W32, &sum, 1, &begin, -1);
                return self.input_field(load, &offset, input == self.event, state);
            }
        }
        let dependencies =
            if dependencies & dependency::PACKET_ADDRESS != 0 { dependency::HEADER_FIELD } else { 0 };
        let range = load_range(load);
        self.values.add(Op::Opaque, load.width, range, dependencies)
    }

    /// Loads a field of a descriptor, or of the event of a TCP stream. `offset` counts from the first one that the entry
    /// point received. The host writes both before the call, and the module cannot change them.
    fn input_field(
        &mut self,
        load: Load,
        offset: &LinearSum,
        is_event: bool,
        state: &AbstractState,
    ) -> ValueId {
        let bytes = if is_event { DESCRIPTOR_BYTES } else { self.descriptor_bytes };
        let available = i128::try_from(bytes).unwrap_or(0);
        let (lo, hi) =
            self.values.interval(offset, |id| self.conditions.range(&self.values, id, state.conditions));
        let is_inside = lo >= 0 && hi + i128::from(load.bytes) <= available;
        let is_aligned = offset.terms.iter().all(|(id, coefficient)| {
            u32::from(self.values.node(*id).trailing_zeros) + coefficient.trailing_zeros()
                >= DESCRIPTOR_BYTES.trailing_zeros()
        });
        let field_offset = u32::try_from(offset.constant.rem_euclid(DESCRIPTOR_BYTES as i64)).unwrap_or(0);
        let is_constant = offset.terms.is_empty();
        // The result is unknown if the load may reach beyond the descriptors, where the module's own memory is, or if
        // its place in a descriptor is unknown.
        if !is_inside || !is_aligned || field_offset as usize + usize::from(load.bytes) > DESCRIPTOR_BYTES {
            return self.values.add(Op::Opaque, load.width, load_range(load), dependency::HEADER_FIELD);
        }
        let known = u32::try_from(offset.constant).ok().map(|offset| (offset, load.bytes, load.width));
        let fields = if is_event { &self.event_fields } else { &self.fields };
        if let Some(id) = known.filter(|_| is_constant).and_then(|key| fields.get(&key)) {
            return *id;
        }
        let packet_max = u64::from(self.environment.packet_max);
        let length =
            Range { hi_by_packet_length: Some(PACKET_LENGTH), ..Range::unsigned(load.width, 0, packet_max) };
        let (mut range, dependencies) = match (field_offset, load.bytes) {
            // `len`, which counts as the packet's length.
            (12, 4) if is_event => (length, dependency::PACKET_LENGTH),
            // `data`: in a packet, or in the window of the event.
            (8, 4) if is_event => {
                let end = weir_abi::STREAMS_BASE + weir_abi::STREAMS_WINDOW;
                (Range::unsigned(load.width, 0, (end - 1).into()), dependency::PACKET_ADDRESS)
            }
            _ if is_event => (load_range(load), dependency::HEADER_FIELD),
            // `cap_len`, `payload_len` and `inner_payload_len`.
            (12 | 40 | 92, 4) => (length, dependency::PACKET_LENGTH),
            // `wire_len`.
            (16, 4) => (load_range(load), dependency::PACKET_LENGTH),
            // `data`, the packet's address.
            (8, 4) => {
                (Range::unsigned(load.width, 0, (DESCRIPTORS_BASE - 1).into()), dependency::PACKET_ADDRESS)
            }
            // `l3_offset`, `l4_offset`, `payload_offset`, `inner_offset`, `inner_l4_offset` and `inner_payload_offset`.
            (32 | 34 | 36 | 80 | 88 | 90, 2) => (load_range(load), dependency::HEADER_LENGTH),
            _ => (load_range(load), dependency::HEADER_FIELD),
        };
        if range.is_empty() {
            range = load_range(load);
        }
        match known.filter(|_| is_constant) {
            Some(key) => {
                let op = if is_event { Op::EventField(key.0, key.1) } else { Op::Field(key.0, key.1) };
                let id = self.values.add(op, load.width, range, dependencies);
                if is_event {
                    self.event_fields.insert(key, id)
                } else {
                    self.fields.insert(key, id)
                };
                id
            }
            None => self.values.add(Op::Opaque, load.width, range, dependencies),
        }
    }
}

/// The range of values that a load can return.
fn load_range(load: Load) -> Range {
    if load.width == BitWidth::Other || u32::from(load.bytes) * 8 >= load.width.bits() {
        return Range::any(load.width);
    }
    let bits = u32::from(load.bytes) * 8;
    if load.is_signed {
        let half = 1i64 << (bits - 1);
        Range::signed(load.width, -half, half - 1)
    } else {
        Range::unsigned(load.width, 0, (1u64 << bits) - 1)
    }
}

/// The kind of a load, and its immediate argument; `None` for another instruction.
fn load_of(operator: &Operator<'_>) -> Option<(Load, MemArg)> {
    use BitWidth::{Other, W32, W64};
    use Operator as O;
    let (width, bytes, is_signed, memarg) = match operator {
        O::I32Load { memarg } => (W32, 4, false, memarg),
        O::I64Load { memarg } => (W64, 8, false, memarg),
        O::I32Load8U { memarg } => (W32, 1, false, memarg),
        O::I32Load8S { memarg } => (W32, 1, true, memarg),
        O::I32Load16U { memarg } => (W32, 2, false, memarg),
        O::I32Load16S { memarg } => (W32, 2, true, memarg),
        O::I64Load8U { memarg } => (W64, 1, false, memarg),
        O::I64Load8S { memarg } => (W64, 1, true, memarg),
        O::I64Load16U { memarg } => (W64, 2, false, memarg),
        O::I64Load16S { memarg } => (W64, 2, true, memarg),
        O::I64Load32U { memarg } => (W64, 4, false, memarg),
        O::I64Load32S { memarg } => (W64, 4, true, memarg),
        O::F32Load { memarg } | O::F64Load { memarg } | O::V128Load { memarg } => (Other, 8, false, memarg),
        _ => return None,
    };
    Some((Load { width, bytes, is_signed }, *memarg))
}

/// The operation of an integer instruction with two operands, and its width.
fn binary_of(operator: &Operator<'_>) -> Option<(Binary, BitWidth)> {
    use Binary as B;
    use BitWidth::{W32, W64};
    use Operator as O;
    Some(match operator {
        O::I32Add => (B::Add, W32),
        O::I32Sub => (B::Sub, W32),
        O::I32Mul => (B::Mul, W32),
        O::I32DivU => (B::DivU, W32),
        O::I32DivS => (B::DivS, W32),
        O::I32RemU => (B::RemU, W32),
        O::I32RemS => (B::RemS, W32),
        O::I32And => (B::And, W32),
        O::I32Or => (B::Or, W32),
        O::I32Xor => (B::Xor, W32),
        O::I32Shl => (B::Shl, W32),
        O::I32ShrU => (B::ShrU, W32),
        O::I32ShrS => (B::ShrS, W32),
        O::I32Rotl | O::I32Rotr => (B::Rotate, W32),
        O::I64Add => (B::Add, W64),
        O::I64Sub => (B::Sub, W64),
        O::I64Mul => (B::Mul, W64),
        O::I64DivU => (B::DivU, W64),
        O::I64DivS => (B::DivS, W64),
        O::I64RemU => (B::RemU, W64),
        O::I64RemS => (B::RemS, W64),
        O::I64And => (B::And, W64),
        O::I64Or => (B::Or, W64),
        O::I64Xor => (B::Xor, W64),
        O::I64Shl => (B::Shl, W64),
        O::I64ShrU => (B::ShrU, W64),
        O::I64ShrS => (B::ShrS, W64),
        O::I64Rotl | O::I64Rotr => (B::Rotate, W64),
        _ => return None,
    })
}

/// The basic comparison of a comparing instruction, and true if its operands have to be swapped.
fn comparison_of(operator: &Operator<'_>) -> Option<(Cmp, bool)> {
    use Operator as O;
    Some(match operator {
        O::I32Eq | O::I64Eq => (Cmp::Eq, false),
        O::I32Ne | O::I64Ne => (Cmp::Ne, false),
        O::I32LtU | O::I64LtU => (Cmp::LtU, false),
        O::I32GtU | O::I64GtU => (Cmp::LtU, true),
        O::I32LeU | O::I64LeU => (Cmp::LeU, false),
        O::I32GeU | O::I64GeU => (Cmp::LeU, true),
        O::I32LtS | O::I64LtS => (Cmp::LtS, false),
        O::I32GtS | O::I64GtS => (Cmp::LtS, true),
        O::I32LeS | O::I64LeS => (Cmp::LeS, false),
        O::I32GeS | O::I64GeS => (Cmp::LeS, true),
        _ => return None,
    })
}

/// The type and range of the result of an instruction on floats, vectors, references or tables.
fn result_of(operator: &Operator<'_>) -> (BitWidth, Range) {
    use Operator as O;
    let truth = || (BitWidth::W32, Range::unsigned(BitWidth::W32, 0, 1));
    let up_to = |bits: u32| (BitWidth::W32, Range::unsigned(BitWidth::W32, 0, (1 << bits) - 1));
    match operator {
        O::F32Eq | O::F32Ne | O::F32Lt | O::F32Gt | O::F32Le | O::F32Ge => truth(),
        O::F64Eq | O::F64Ne | O::F64Lt | O::F64Gt | O::F64Le | O::F64Ge => truth(),
        O::RefIsNull | O::V128AnyTrue => truth(),
        O::I8x16AllTrue | O::I16x8AllTrue | O::I32x4AllTrue | O::I64x2AllTrue => truth(),
        O::I8x16Bitmask => up_to(16),
        O::I16x8Bitmask => up_to(8),
        O::I32x4Bitmask => up_to(4),
        O::I64x2Bitmask => up_to(2),
        O::I8x16ExtractLaneU { .. } => up_to(8),
        O::I16x8ExtractLaneU { .. } => up_to(16),
        O::I8x16ExtractLaneS { .. } | O::I16x8ExtractLaneS { .. } | O::I32x4ExtractLane { .. } => {
            (BitWidth::W32, Range::any(BitWidth::W32))
        }
        O::I32TruncF32S | O::I32TruncF32U | O::I32TruncF64S | O::I32TruncF64U => {
            (BitWidth::W32, Range::any(BitWidth::W32))
        }
        O::I32TruncSatF32S | O::I32TruncSatF32U | O::I32TruncSatF64S | O::I32TruncSatF64U => {
            (BitWidth::W32, Range::any(BitWidth::W32))
        }
        O::I32ReinterpretF32 | O::TableSize { .. } | O::TableGrow { .. } => {
            (BitWidth::W32, Range::any(BitWidth::W32))
        }
        O::I64TruncF32S | O::I64TruncF32U | O::I64TruncF64S | O::I64TruncF64U => {
            (BitWidth::W64, Range::any(BitWidth::W64))
        }
        O::I64TruncSatF32S | O::I64TruncSatF32U | O::I64TruncSatF64S | O::I64TruncSatF64U => {
            (BitWidth::W64, Range::any(BitWidth::W64))
        }
        O::I64ReinterpretF64 | O::I64x2ExtractLane { .. } => (BitWidth::W64, Range::any(BitWidth::W64)),
        _ => (BitWidth::Other, Range::any(BitWidth::Other)),
    }
}
