//! Lowers one function: its control flow, locals and calls. Instructions without control flow are in `numeric.rs`,
//! `memory.rs` and `vector.rs`.

use crate::module::{Constant, GlobalPlace, LoweredModule, invalid};
use crate::operand::OperandFacts;
use crate::thunk::{GUEST_THUNKS, GuestThunk};
use crate::trap::TrapCode;
use crate::{LowerError, LowerOptions, Unsupported};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write};
use wasmparser::{BlockType, BrTable, FunctionBody, Operator, ValType};

/// A value on the operand stack.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StackOperand {
    /// The value `%vN`.
    Value(u32, ValType),
    /// A constant.
    Constant(Constant),
}

impl StackOperand {
    pub(crate) fn ty(self) -> ValType {
        match self {
            Self::Value(_, ty) => ty,
            Self::Constant(Constant::I32(_)) => ValType::I32,
            Self::Constant(Constant::I64(_)) => ValType::I64,
            Self::Constant(Constant::F32(_)) => ValType::F32,
            Self::Constant(Constant::F64(_)) => ValType::F64,
            Self::Constant(Constant::V128(_)) => ValType::V128,
        }
    }
}

impl Display for StackOperand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(number, _) => write!(f, "%v{number}"),
            Self::Constant(constant) => constant.fmt(f),
        }
    }
}

impl Display for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::I32(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            // The bits of floats stay as they are, also those of NaN.
            Self::F32(bits) => write!(f, "bitcast (i32 {bits} to float)"),
            Self::F64(bits) => write!(f, "bitcast (i64 {bits} to double)"),
            Self::V128(bytes) => {
                let (low, high) = bytes.split_at(8);
                let lane =
                    |bytes: &[u8]| bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
                write!(f, "<i64 {}, i64 {}>", lane(low), lane(high))
            }
        }
    }
}

/// Returns the LLVM type of values of a WebAssembly type.
pub(crate) fn ir_type(ty: ValType) -> Result<&'static str, LowerError> {
    Ok(match ty {
        ValType::I32 => "i32",
        ValType::I64 => "i64",
        ValType::F32 => "float",
        ValType::F64 => "double",
        ValType::V128 => "<2 x i64>",
        ValType::Ref(_) => return Err(Unsupported::Section("a value of reference type").into()),
    })
}

/// A block, loop or `if` that has begun.
struct Frame {
    /// The label that a branch jumps to.
    branch_label: u32,
    /// The places of the values that a branch passes.
    branch_slots: Vec<Slot>,
    /// The label after the block.
    end_label: u32,
    /// The places of the block's results.
    result_slots: Vec<Slot>,
    /// The label of an `else` that has not begun.
    else_label: Option<u32>,
    /// The parameters of an `if`, for its `else`.
    parameters: Vec<StackOperand>,
    /// The height of the operand stack below the block's parameters.
    height: usize,
}

/// A variable in the function's frame, which LLVM replaces by values.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    ty: ValType,
}

/// The state of one function's lowering.
pub(crate) struct FunctionLowering<'m, 'a> {
    pub(crate) module: &'m LoweredModule<'a>,
    /// The function's index.
    index: u32,
    locals: Vec<ValType>,
    /// The code of the first block: all variables, with their first values.
    variables: String,
    pub(crate) code: String,
    next_value: u32,
    next_label: u32,
    next_slot: u32,
    stack: Vec<StackOperand>,
    frames: Vec<Frame>,
    pub(crate) facts: OperandFacts,
    /// True if the next instruction can be reached.
    is_reachable: bool,
    /// The number of blocks that have begun in code that cannot be reached.
    skipped_blocks: u32,
    /// The offset of the current instruction in the module.
    pub(crate) offset: u32,
    pub(crate) options: &'m LowerOptions,
    /// The offsets of the accesses before which the code compares the address.
    pub(crate) checked: &'m mut Vec<u32>,
}

impl<'m, 'a> FunctionLowering<'m, 'a> {
    /// Lowers a function to its text, which has about `text_max` bytes at most. Adds to `checked` the offsets of accesses
    /// before which the code compares the address.
    pub(crate) fn lower(
        module: &'m LoweredModule<'a>,
        index: u32,
        body: &FunctionBody<'_>,
        options: &'m LowerOptions,
        text_max: usize,
        checked: &'m mut Vec<u32>,
    ) -> Result<String, LowerError> {
        let ty = module.function_type(index)?;
        let mut this = Self {
            module,
            index,
            locals: ty.params().to_vec(),
            variables: String::new(),
            code: String::new(),
            next_value: 0,
            next_label: 0,
            next_slot: 0,
            stack: Vec::new(),
            frames: Vec::new(),
            facts: OperandFacts::default(),
            is_reachable: true,
            skipped_blocks: 0,
            offset: 0,
            options,
            checked,
        };
        for local in body.get_locals_reader()? {
            let (count, ty) = local?;
            this.locals.resize(this.locals.len() + count as usize, ty);
        }
        this.declare_locals(ty.params().len())?;
        let result_slots = ty.results().iter().map(|ty| this.slot(*ty)).collect::<Result<Vec<_>, _>>()?;
        if result_slots.len() > 1 {
            return Err(this.unsupported("a function with several results"));
        }
        let end_label = this.label();
        this.frames.push(Frame {
            branch_label: end_label,
            branch_slots: result_slots.clone(),
            end_label,
            result_slots,
            else_label: None,
            parameters: Vec::new(),
            height: 0,
        });
        let mut hints = module.hints.get(&index).into_iter().flatten().peekable();
        let start = body.range().start;
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            let at = operators.original_position();
            let in_body = u32::try_from(at - start).unwrap_or(u32::MAX);
            while hints.next_if(|(offset, _)| *offset < in_body).is_some() {}
            let hint = hints.next_if(|(offset, _)| *offset == in_body).map(|(_, taken)| *taken);
            this.offset = u32::try_from(at).unwrap_or(u32::MAX);
            let operator = operators.read()?;
            let facts = this.is_reachable.then(|| this.result_facts(&operator));
            this.instruction(&operator, hint)?;
            if let Some(facts) = facts {
                this.note_result(facts);
            }
            if this.variables.len() + this.code.len() > text_max {
                return Err(Unsupported::Text.into());
            }
        }
        let mut text = String::new();
        let parameters: Vec<String> = (0..)
            .zip(ty.params())
            .map(|(number, ty): (u32, _)| ir_type(*ty).map(|ty| format!("{ty} %a{number}")))
            .collect::<Result<_, _>>()?;
        let result = result_type(ty.results())?;
        _ = writeln!(
            text,
            "define hidden {result} @f{index}({}) #0 !dbg !{} {{",
            parameters.join(", "),
            subprogram(index)
        );
        text.push_str(&this.variables);
        text.push_str(&this.code);
        text.push_str("}\n");
        Ok(text)
    }

    fn declare_locals(&mut self, parameters: usize) -> Result<(), LowerError> {
        for (number, ty) in self.locals.iter().enumerate() {
            let ty = ir_type(*ty)?;
            _ = writeln!(self.variables, " %l{number} = alloca {ty}");
            if number < parameters {
                _ = writeln!(self.variables, " store {ty} %a{number}, ptr %l{number}");
            } else {
                _ = writeln!(self.variables, " store {ty} zeroinitializer, ptr %l{number}");
            }
        }
        Ok(())
    }

    /// Returns an error for something that the lowering does not support.
    pub(crate) fn unsupported(&self, what: &str) -> LowerError {
        let (function, offset) = (self.index, self.offset);
        Unsupported::Instruction { function, offset, instruction: what.to_owned() }.into()
    }

    fn label(&mut self) -> u32 {
        self.next_label += 1;
        self.next_label
    }

    fn slot(&mut self, ty: ValType) -> Result<Slot, LowerError> {
        let number = self.next_slot;
        self.next_slot += 1;
        _ = writeln!(self.variables, " %s{number} = alloca {}", ir_type(ty)?);
        Ok(Slot { number, ty })
    }

    /// Writes an instruction whose result is a new value of this type. Returns the value.
    pub(crate) fn define(&mut self, ty: ValType, instruction: impl Display) -> StackOperand {
        let number = self.temporary(instruction);
        StackOperand::Value(number, ty)
    }

    /// Writes an instruction with its position, and returns the number of its result, whose type need not be one of
    /// WebAssembly.
    pub(crate) fn temporary(&mut self, instruction: impl Display) -> u32 {
        let number = self.next_value;
        self.next_value += 1;
        let location = self.location();
        _ = writeln!(self.code, " %v{number} = {instruction}, {location}");
        number
    }

    /// Writes an instruction without a result.
    pub(crate) fn line(&mut self, instruction: impl Display) {
        _ = writeln!(self.code, " {instruction}");
    }

    /// Writes an instruction, and pushes its result.
    pub(crate) fn push_new(&mut self, ty: ValType, instruction: impl Display) {
        let value = self.define(ty, instruction);
        self.stack.push(value);
    }

    /// Returns the operand stack.
    pub(crate) fn operands(&self) -> &[StackOperand] {
        &self.stack
    }

    pub(crate) fn push(&mut self, operand: StackOperand) {
        self.stack.push(operand);
    }

    pub(crate) fn pop(&mut self) -> Result<StackOperand, LowerError> {
        self.stack.pop().ok_or_else(invalid)
    }

    /// Returns the reference of an instruction to its offset in the module. Debuggers take the offset for a line.
    pub(crate) fn location(&self) -> String {
        format!("!dbg !DILocation(line: {}, scope: !{})", self.offset, subprogram(self.index))
    }

    /// Writes a trap, and ends the block.
    fn trap(&mut self, code: TrapCode) {
        let (code, location) = (code as u8, self.location());
        _ = writeln!(self.code, " call void @llvm.ubsantrap(i8 {code}) #1, {location}\n unreachable");
    }

    /// Writes a trap that happens if the i1 with this number is true.
    pub(crate) fn trap_if(&mut self, condition: u32, code: TrapCode) {
        let (trap, next) = (self.label(), self.label());
        _ = writeln!(self.code, " br i1 %v{condition}, label %b{trap}, label %b{next}, !prof !0\nb{trap}:");
        self.trap(code);
        _ = writeln!(self.code, "b{next}:");
    }

    fn branch(&mut self, label: u32) {
        let location = self.location();
        _ = writeln!(self.code, " br label %b{label}, {location}");
    }

    /// Begins a block that several branches may lead to.
    fn begin_block(&mut self, label: u32) {
        self.forget_locals();
        self.begin_successor(label);
    }

    /// Begins a block that only the branch before it leads to.
    fn begin_successor(&mut self, label: u32) {
        _ = writeln!(self.code, "b{label}:");
        self.is_reachable = true;
    }

    /// Stores the topmost operands, which stay on the stack.
    fn store_slots(&mut self, slots: &[Slot]) -> Result<(), LowerError> {
        let first = self.stack.len().checked_sub(slots.len()).ok_or_else(invalid)?;
        for (slot, operand) in slots.iter().zip(&self.stack[first..]) {
            _ = writeln!(self.code, " store {} {operand}, ptr %s{}", ir_type(slot.ty)?, slot.number);
        }
        Ok(())
    }

    fn load_slots(&mut self, slots: &[Slot]) -> Result<(), LowerError> {
        for slot in slots {
            self.push_new(slot.ty, format_args!("load {}, ptr %s{}", ir_type(slot.ty)?, slot.number));
        }
        Ok(())
    }

    fn frame(&self, depth: u32) -> Result<&Frame, LowerError> {
        let index = self.frames.len().checked_sub(1 + depth as usize).ok_or_else(invalid)?;
        self.frames.get(index).ok_or_else(invalid)
    }

    /// Stores the operands of a branch. Returns the label that the branch jumps to.
    fn prepare_branch(&mut self, depth: u32) -> Result<u32, LowerError> {
        let frame = self.frame(depth)?;
        let (label, slots) = (frame.branch_label, frame.branch_slots.clone());
        self.store_slots(&slots)?;
        Ok(label)
    }

    /// Writes a conversion of the topmost operand, a condition, to i1. Returns its number.
    fn condition(&mut self) -> Result<u32, LowerError> {
        let condition = self.pop()?;
        Ok(self.temporary(format_args!("icmp ne i32 {condition}, 0")))
    }

    fn block_types(&self, ty: BlockType) -> Result<(Vec<ValType>, Vec<ValType>), LowerError> {
        Ok(match ty {
            BlockType::Empty => (Vec::new(), Vec::new()),
            BlockType::Type(ty) => (Vec::new(), vec![ty]),
            BlockType::FuncType(index) => {
                let ty = self.module.types.get(index as usize).ok_or_else(invalid)?;
                (ty.params().to_vec(), ty.results().to_vec())
            }
        })
    }

    /// Begins a block. `is_loop` is true if branches jump to its beginning.
    fn begin_frame(&mut self, ty: BlockType, is_loop: bool) -> Result<&mut Frame, LowerError> {
        let (parameters, results) = self.block_types(ty)?;
        let height = self.stack.len().checked_sub(parameters.len()).ok_or_else(invalid)?;
        let result_slots = results.iter().map(|ty| self.slot(*ty)).collect::<Result<Vec<_>, _>>()?;
        let end_label = self.label();
        let (branch_label, branch_slots) = if is_loop {
            let slots = parameters.iter().map(|ty| self.slot(*ty)).collect::<Result<Vec<_>, _>>()?;
            let label = self.label();
            self.store_slots(&slots)?;
            self.branch(label);
            self.begin_block(label);
            self.stack.truncate(height);
            self.load_slots(&slots)?;
            (label, slots)
        } else {
            (end_label, result_slots.clone())
        };
        let parameters = self.stack[height..].to_vec();
        let else_label = None;
        self.frames.push(Frame {
            branch_label,
            branch_slots,
            end_label,
            result_slots,
            else_label,
            parameters,
            height,
        });
        self.frames.last_mut().ok_or_else(invalid)
    }

    /// Ends the code of a block's first or second part, which continues after the block.
    fn leave_part(&mut self) -> Result<(), LowerError> {
        let frame = self.frame(0)?;
        let (end, slots) = (frame.end_label, frame.result_slots.clone());
        if self.is_reachable {
            self.store_slots(&slots)?;
            self.branch(end);
        }
        Ok(())
    }

    fn end_frame(&mut self) -> Result<(), LowerError> {
        self.leave_part()?;
        let frame = self.frames.pop().ok_or_else(invalid)?;
        self.stack.truncate(frame.height);
        if let Some(label) = frame.else_label {
            // Without `else`, the parameters are the results.
            self.begin_block(label);
            self.stack.extend(&frame.parameters);
            self.store_slots(&frame.result_slots)?;
            self.stack.truncate(frame.height);
            self.branch(frame.end_label);
        }
        self.begin_block(frame.end_label);
        self.load_slots(&frame.result_slots)?;
        if self.frames.is_empty() {
            match self.stack.pop() {
                Some(result) => _ = writeln!(self.code, " ret {} {result}", ir_type(result.ty())?),
                None => self.code.push_str(" ret void\n"),
            }
        }
        Ok(())
    }

    /// Skips an instruction that cannot be reached. Returns false if the instruction ends the unreachable code.
    fn skip(&mut self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => self.skipped_blocks += 1,
            Operator::Else if self.skipped_blocks == 0 => return false,
            Operator::End => match self.skipped_blocks.checked_sub(1) {
                Some(left) => self.skipped_blocks = left,
                None => return false,
            },
            _ => {}
        }
        true
    }

    /// Lowers an instruction. `hint` is the module's hint for a branch.
    fn instruction(&mut self, operator: &Operator<'_>, hint: Option<bool>) -> Result<(), LowerError> {
        if !self.is_reachable && self.skip(operator) {
            return Ok(());
        }
        match operator {
            Operator::Nop => {}
            Operator::Unreachable => {
                self.trap(TrapCode::Unreachable);
                self.is_reachable = false;
            }
            Operator::Block { blockty } => _ = self.begin_frame(*blockty, false)?,
            Operator::Loop { blockty } => _ = self.begin_frame(*blockty, true)?,
            Operator::If { blockty } => {
                let condition = self.condition()?;
                let (then, other) = (self.label(), self.label());
                self.begin_frame(*blockty, false)?.else_label = Some(other);
                let weights = weights(hint);
                _ = writeln!(self.code, " br i1 %v{condition}, label %b{then}, label %b{other}{weights}");
                self.begin_successor(then);
            }
            Operator::Else => {
                self.leave_part()?;
                let frame = self.frames.last_mut().ok_or_else(invalid)?;
                let label = frame.else_label.take().ok_or_else(invalid)?;
                self.stack.truncate(frame.height);
                self.stack.extend(&frame.parameters);
                self.begin_block(label);
            }
            Operator::End => self.end_frame()?,
            Operator::Br { relative_depth } => {
                let label = self.prepare_branch(*relative_depth)?;
                self.branch(label);
                self.is_reachable = false;
            }
            Operator::BrIf { relative_depth } => {
                let condition = self.condition()?;
                let label = self.prepare_branch(*relative_depth)?;
                let next = self.label();
                let weights = weights(hint);
                _ = writeln!(self.code, " br i1 %v{condition}, label %b{label}, label %b{next}{weights}");
                self.begin_successor(next);
            }
            Operator::BrTable { targets } => self.branch_table(targets)?,
            Operator::Return => {
                let depth = u32::try_from(self.frames.len() - 1).unwrap_or(u32::MAX);
                let label = self.prepare_branch(depth)?;
                self.branch(label);
                self.is_reachable = false;
            }
            Operator::Call { function_index } => self.call(*function_index)?,
            Operator::CallIndirect { type_index, table_index: 0 } => self.call_indirect(*type_index)?,
            Operator::Drop => _ = self.pop()?,
            Operator::Select | Operator::TypedSelect { .. } => {
                let condition = self.condition()?;
                let (b, a) = (self.pop()?, self.pop()?);
                let ty = ir_type(a.ty())?;
                self.push_new(a.ty(), format_args!("select i1 %v{condition}, {ty} {a}, {ty} {b}"));
            }
            Operator::LocalGet { local_index } => {
                let ty = self.local(*local_index)?;
                self.push_new(ty, format_args!("load {}, ptr %l{local_index}", ir_type(ty)?));
            }
            Operator::LocalSet { local_index } => {
                let value = self.pop()?;
                self.set_local(*local_index, value)?;
            }
            Operator::LocalTee { local_index } => {
                let value = self.pop()?;
                self.set_local(*local_index, value)?;
                self.push(value);
            }
            Operator::GlobalGet { global_index } => {
                let global = *self.module.globals.get(*global_index as usize).ok_or_else(invalid)?;
                match global.place {
                    GlobalPlace::Constant(value) => self.push(StackOperand::Constant(value)),
                    GlobalPlace::Below(bytes, _) => {
                        let ty = ir_type(global.ty)?;
                        let place = below(bytes);
                        self.push_new(global.ty, format_args!("load volatile {ty}, {place}, align 8"));
                    }
                }
            }
            Operator::GlobalSet { global_index } => {
                let value = self.pop()?;
                let global = self.module.globals.get(*global_index as usize).ok_or_else(invalid)?;
                let GlobalPlace::Below(bytes, _) = global.place else { return Err(invalid()) };
                let (ty, place) = (ir_type(value.ty())?, below(bytes));
                let location = self.location();
                _ = writeln!(self.code, " store volatile {ty} {value}, {place}, align 8, {location}");
            }
            _ => {
                let is_lowered =
                    self.numeric(operator)? || self.memory(operator)? || self.vector(operator)?;
                if !is_lowered {
                    let text = format!("{operator:?}");
                    let name = text.split([' ', '{', '(']).next().unwrap_or_default();
                    return Err(self.unsupported(name));
                }
            }
        }
        Ok(())
    }

    fn local(&self, index: u32) -> Result<ValType, LowerError> {
        self.locals.get(index as usize).copied().ok_or_else(invalid)
    }

    fn set_local(&mut self, index: u32, value: StackOperand) -> Result<(), LowerError> {
        self.note_local(index, value);
        _ = writeln!(self.code, " store {} {value}, ptr %l{index}", ir_type(value.ty())?);
        Ok(())
    }

    fn branch_table(&mut self, targets: &BrTable<'_>) -> Result<(), LowerError> {
        let index = self.pop()?;
        let depths = targets.targets().collect::<Result<Vec<u32>, _>>()?;
        // A block for each depth, which stores the operands for its target.
        let distinct: BTreeSet<u32> = depths.iter().copied().chain([targets.default()]).collect();
        let blocks: Vec<(u32, u32)> = distinct.iter().map(|depth| (*depth, self.label())).collect();
        let block = |depth: u32| blocks.iter().find(|(at, _)| *at == depth).map_or(0, |(_, label)| *label);
        _ = write!(self.code, " switch i32 {index}, label %b{} [", block(targets.default()));
        for (value, depth) in depths.iter().enumerate() {
            _ = write!(self.code, " i32 {value}, label %b{}", block(*depth));
        }
        self.code.push_str(" ]\n");
        for (depth, label) in &blocks {
            self.begin_block(*label);
            let target = self.prepare_branch(*depth)?;
            self.branch(target);
        }
        self.is_reachable = false;
        Ok(())
    }

    /// Pops the arguments of a function. Returns them with their types.
    fn arguments(&mut self, types: &[ValType]) -> Result<String, LowerError> {
        let first = self.stack.len().checked_sub(types.len()).ok_or_else(invalid)?;
        let arguments = self.stack.split_off(first);
        let texts = arguments.iter().map(|argument| Ok(format!("{} {argument}", ir_type(argument.ty())?)));
        Ok(texts.collect::<Result<Vec<_>, LowerError>>()?.join(", "))
    }

    fn call(&mut self, function: u32) -> Result<(), LowerError> {
        let module = self.module;
        let ty = module.function_type(function)?;
        let arguments = self.arguments(ty.params())?;
        self.call_function(&function_name(module, function), ty.results(), &arguments)
    }

    fn call_function(&mut self, name: &str, results: &[ValType], arguments: &str) -> Result<(), LowerError> {
        let location = self.location();
        match results {
            [] => _ = writeln!(self.code, " call void @{name}({arguments}), {location}"),
            [ty] => self.push_new(*ty, format_args!("call {} @{name}({arguments})", ir_type(*ty)?)),
            _ => return Err(self.unsupported(SEVERAL_RESULTS)),
        }
        Ok(())
    }

    /// Writes a call of a thunk that replaces an instruction, with operands as its arguments.
    pub(crate) fn call_thunk(&mut self, thunk: GuestThunk) -> Result<(), LowerError> {
        let definition = &GUEST_THUNKS[thunk as usize];
        let arguments = self.arguments(&vec![ValType::I32; definition.parameters])?;
        let results: &[ValType] = if definition.has_result { &[ValType::I32] } else { &[] };
        self.call_function(&format!("h{}", self.module.guest_thunk(thunk)), results, &arguments)
    }

    /// Writes an indirect call as comparisons of the index with those of all functions of the type.
    fn call_indirect(&mut self, type_index: u32) -> Result<(), LowerError> {
        let module = self.module;
        let ty = module.types.get(type_index as usize).ok_or_else(invalid)?;
        if ty.results().len() > 1 {
            return Err(self.unsupported(SEVERAL_RESULTS));
        }
        let index = self.pop()?;
        let arguments = self.arguments(ty.params())?;
        let result = ty.results().first().map(|ty| self.slot(*ty)).transpose()?;
        let (trap, end) = (self.label(), self.label());
        // The labels of the functions.
        let mut blocks: BTreeMap<u32, u32> = BTreeMap::new();
        let mut cases = String::new();
        for (element, function) in module.table_functions(ty) {
            let label = *blocks.entry(*function).or_insert_with(|| self.label());
            _ = write!(cases, " i32 {element}, label %b{label}");
        }
        _ = writeln!(self.code, " switch i32 {index}, label %b{trap} [{cases} ]\nb{trap}:");
        self.trap(TrapCode::IndirectCall);
        for (function, label) in blocks {
            self.begin_block(label);
            self.call_function(&function_name(module, function), ty.results(), &arguments)?;
            if let Some(slot) = result {
                self.store_slots(&[slot])?;
                self.pop()?;
            }
            self.branch(end);
        }
        self.begin_block(end);
        self.load_slots(result.as_slice())
    }
}

/// A call that is not lowered.
const SEVERAL_RESULTS: &str = "a call of a function with several results";

/// Returns the metadata for a branch with this hint.
fn weights(hint: Option<bool>) -> &'static str {
    match hint {
        Some(true) => ", !prof !1",
        Some(false) => ", !prof !0",
        None => "",
    }
}

/// Returns the name of a function: `hN` is thunk N, and `fN` the function with index N.
pub(crate) fn function_name(module: &LoweredModule<'_>, function: u32) -> String {
    let kind = if function < module.imported() { 'h' } else { 'f' };
    format!("{kind}{function}")
}

/// Returns the number of the metadata that describes a function to debuggers.
pub(crate) fn subprogram(function: u32) -> u32 {
    function + FIRST_SUBPROGRAM
}

/// The number of the first function's metadata.
pub(crate) const FIRST_SUBPROGRAM: u32 = 8;

/// Returns the LLVM type of a function's result.
pub(crate) fn result_type(results: &[ValType]) -> Result<&'static str, LowerError> {
    match results {
        [] => Ok("void"),
        [ty] => ir_type(*ty),
        _ => Err(Unsupported::Section("a function with several results").into()),
    }
}

/// Returns the pointer to the place of a global.
fn below(bytes: u32) -> String {
    format!("ptr addrspace(256) inttoptr (i64 -{bytes} to ptr addrspace(256))")
}
