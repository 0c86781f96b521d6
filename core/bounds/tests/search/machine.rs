//! A small interpreter of WebAssembly's integers and control flow, which counts fuel by a cost table. Each load of
//! packet data returns an invented value, mostly derived from the module's locals, to provoke the worst case.

use std::collections::HashMap;
use wasmparser::{
    BlockType, CompositeInnerType, ElementItems, ExternalKind, FuncType, Operator, Parser, Payload,
};
use weir_bounds::CostTable;

/// The address from which on loads return invented values.
pub const PACKETS: u64 = 0x8000_0000;
/// The address of the descriptor.
pub const DESCRIPTOR: u64 = 0xE000_0000;
/// The address where a module stores a value to show it to the test.
pub const SHOWN: u64 = 61_440;
/// Bytes of memory.
const MEMORY: usize = 65_536;
/// The deepest nesting of calls.
const CALL_DEPTH_MAX: usize = 40;

struct Code<'a> {
    ty: FuncType,
    /// The locals that are no parameters: true for i64.
    locals: Vec<bool>,
    operators: Vec<Operator<'a>>,
    costs: Vec<u32>,
    /// For each `block`, `loop`, `if` and `else`, the index of the matching `end`.
    ends: Vec<usize>,
    /// For each `if`, the index of its `else`, or of its `end` if it has no `else`.
    elses: Vec<usize>,
}

/// A decoded module, ready to run.
pub struct Program<'a> {
    codes: Vec<Code<'a>>,
    types: Vec<FuncType>,
    globals: Vec<u64>,
    table: Vec<u32>,
    imports: usize,
    entry: u32,
}

/// The cause of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    Returned,
    Trapped,
    /// The run used more than its limit.
    Spent,
}

/// One run: its state, and the random choices where the module leaves values open.
pub struct Machine<'a> {
    program: &'a Program<'a>,
    memory: Vec<u8>,
    globals: Vec<u64>,
    /// The fuel used so far.
    pub used: u64,
    pub fuel_max: u64,
    /// The state of the random number generator.
    state: u64,
    /// A random number that chooses which kinds of values the run prefers.
    style: u64,
    /// The values of descriptor fields that were read, by offset and size.
    fields: HashMap<(u64, u32), u64>,
    /// The number of captured bytes of the packet.
    pub captured: u32,
    /// The values that the module stored at [`SHOWN`].
    pub shown_values: Vec<u64>,
    depth: usize,
}

struct Label {
    is_loop: bool,
    begin: usize,
    end: usize,
    height: usize,
    arity: usize,
}

impl<'a> Program<'a> {
    /// Reads a valid module.
    pub fn new(bytes: &'a [u8], costs: &CostTable) -> Self {
        let mut program = Self {
            codes: Vec::new(),
            types: Vec::new(),
            globals: Vec::new(),
            table: Vec::new(),
            imports: 0,
            entry: 0,
        };
        let mut functions = Vec::new();
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.expect("it is valid") {
                Payload::TypeSection(reader) => {
                    for ty in
                        reader.into_iter().flatten().flat_map(|group| group.into_types().collect::<Vec<_>>())
                    {
                        if let CompositeInnerType::Func(ty) = ty.composite_type.inner {
                            program.types.push(ty);
                        }
                    }
                }
                Payload::ImportSection(reader) => program.imports = reader.into_imports().count(),
                Payload::FunctionSection(reader) => functions = reader.into_iter().flatten().collect(),
                Payload::GlobalSection(reader) => {
                    for global in reader.into_iter().flatten() {
                        program.globals.push(match global.init_expr.get_operators_reader().read() {
                            Ok(Operator::I32Const { value }) => u64::from(value.cast_unsigned()),
                            Ok(Operator::I64Const { value }) => value.cast_unsigned(),
                            _ => 0,
                        });
                    }
                }
                Payload::ExportSection(reader) => {
                    for export in reader.into_iter().flatten() {
                        if export.kind == ExternalKind::Func {
                            program.entry = export.index;
                        }
                    }
                }
                Payload::ElementSection(reader) => {
                    for element in reader.into_iter().flatten() {
                        if let ElementItems::Functions(items) = element.items {
                            program.table.extend(items.into_iter().flatten());
                        }
                    }
                }
                Payload::CodeSectionEntry(body) => {
                    let ty = program.types[functions[program.codes.len()] as usize].clone();
                    program.codes.push(decode(&body, ty, costs));
                }
                _ => {}
            }
        }
        program
    }

    /// Creates a run whose invented values follow from this seed.
    pub fn machine(&self, seed: u64, fuel_max: u64) -> Machine<'_> {
        let mut machine = Machine {
            program: self,
            memory: vec![0; MEMORY],
            globals: self.globals.clone(),
            used: 0,
            fuel_max,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            style: 0,
            fields: HashMap::new(),
            captured: 0,
            shown_values: Vec::new(),
            depth: 0,
        };
        machine.style = machine.random();
        machine.captured = match machine.random() % 8 {
            0 => 0,
            1 => 1,
            2 => 4,
            3 => 60,
            4 => 1500,
            5 => 5000,
            6 => u32::try_from(machine.random() % 70_000).unwrap_or(0),
            _ => 16 << 20,
        };
        machine
    }
}

fn decode<'a>(body: &wasmparser::FunctionBody<'a>, ty: FuncType, costs: &CostTable) -> Code<'a> {
    let mut code = Code {
        locals: Vec::new(),
        ty,
        operators: Vec::new(),
        costs: Vec::new(),
        ends: Vec::new(),
        elses: Vec::new(),
    };
    for (count, ty) in body.get_locals_reader().expect("valid").into_iter().flatten() {
        code.locals.extend((0..count).map(|_| ty == wasmparser::ValType::I64));
    }
    let mut open = Vec::new();
    for operator in body.get_operators_reader().expect("valid") {
        let operator = operator.expect("valid");
        let here = code.operators.len();
        code.ends.push(here);
        code.elses.push(0);
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => open.push(here),
            Operator::Else => {
                if let Some(begin) = open.last() {
                    code.elses[*begin] = here;
                }
            }
            Operator::End => {
                if let Some(begin) = open.pop() {
                    code.ends[begin] = here;
                    if code.elses[begin] == 0 {
                        code.elses[begin] = here;
                    } else {
                        let middle = code.elses[begin];
                        code.ends[middle] = here;
                    }
                }
            }
            _ => {}
        }
        code.costs.push(costs.operator(&operator));
        code.operators.push(operator);
    }
    code
}

const fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

fn s32(value: u64) -> i32 {
    u32::try_from(low(value)).unwrap_or(0).cast_signed()
}

fn w32(value: i32) -> u64 {
    value.cast_unsigned().into()
}

impl Machine<'_> {
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// An invented number, near the edges of ranges or derived from a local.
    fn invented_value(&mut self, locals: &[u64]) -> u64 {
        const EDGES: [u64; 16] = [
            0,
            1,
            u64::MAX,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0xffff_fff0,
            0x1_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            255,
            256,
            65_535,
            0x8000_0064,
            0xffff_ffff_8000_0000,
            100,
        ];
        let how = (self.random() % 16, self.style % 4);
        match how {
            (0..=5, 0) | (0..=8, 1) | (0..=2, 2) if !locals.is_empty() => {
                let near = locals[usize::try_from(self.random()).unwrap_or(0) % locals.len()];
                let base = if self.random().is_multiple_of(4) { near.wrapping_neg() } else { near };
                base.wrapping_add(self.random() % 7).wrapping_sub(3)
            }
            (6..=9, 0 | 2) => self.random() % 12,
            (10..=12, _) => {
                EDGES[usize::try_from(self.random() % 16).unwrap_or(0)].wrapping_add(self.random() % 3)
            }
            (13, _) => self.random() >> (self.random() % 64),
            (_, 3) => self.random() % 3,
            _ => self.random() % 300,
        }
    }

    /// Runs the entry point.
    pub fn run(&mut self) -> Halt {
        match self.call(self.program.entry, &[DESCRIPTOR]) {
            Ok(_) => Halt::Returned,
            Err(halt) => halt,
        }
    }

    fn load(&mut self, address: u64, bytes: u32, locals: &[u64]) -> Result<u64, Halt> {
        let mask = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
        if address >= DESCRIPTOR {
            let offset = address - DESCRIPTOR;
            if offset + u64::from(bytes) > weir_abi::DESCRIPTOR_BYTES as u64 {
                return Err(Halt::Trapped);
            }
            if (offset, bytes) == (12, 4) {
                return Ok(self.captured.into());
            }
            if let Some(known) = self.fields.get(&(offset, bytes)) {
                return Ok(*known);
            }
            let value = if offset == 40 {
                self.invented_value(&[]) % (u64::from(self.captured) + 1)
            } else {
                self.invented_value(&[])
            } & mask;
            self.fields.insert((offset, bytes), value);
            return Ok(value);
        }
        if address >= PACKETS {
            return Ok(self.invented_value(locals) & mask);
        }
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let cell = self.memory.get(at..at.saturating_add(bytes as usize)).ok_or(Halt::Trapped)?;
        Ok(cell.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn store(&mut self, address: u64, bytes: u32, value: u64) -> Result<(), Halt> {
        if address == SHOWN {
            self.shown_values.push(value);
        }
        let at = usize::try_from(address).unwrap_or(usize::MAX);
        let cell = self.memory.get_mut(at..at.saturating_add(bytes as usize)).ok_or(Halt::Trapped)?;
        cell.copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        Ok(())
    }

    fn arity(&self, ty: BlockType) -> (usize, usize) {
        match ty {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(index) => {
                let ty = &self.program.types[index as usize];
                (ty.params().len(), ty.results().len())
            }
        }
    }

    fn call(&mut self, function: u32, arguments: &[u64]) -> Result<Vec<u64>, Halt> {
        let program = self.program;
        let code = &program.codes[function as usize - program.imports];
        if self.depth >= CALL_DEPTH_MAX {
            return Err(Halt::Trapped);
        }
        self.depth += 1;
        let mut locals = arguments.to_vec();
        locals.resize(arguments.len() + code.locals.len(), 0);
        let mut stack: Vec<u64> = Vec::new();
        let results = code.ty.results().len();
        let whole = code.operators.len() - 1;
        let mut labels = vec![Label { is_loop: false, begin: 0, end: whole, height: 0, arity: results }];
        let mut at = 0;
        loop {
            self.used += u64::from(code.costs[at]);
            if self.used > self.fuel_max {
                return Err(Halt::Spent);
            }
            let mut branch = None;
            match &code.operators[at] {
                Operator::Block { blockty } => {
                    let (params, arity) = self.arity(*blockty);
                    labels.push(Label {
                        is_loop: false,
                        begin: at,
                        end: code.ends[at],
                        height: stack.len() - params,
                        arity,
                    });
                }
                Operator::Loop { blockty } => {
                    let (params, _) = self.arity(*blockty);
                    let height = stack.len() - params;
                    labels.push(Label {
                        is_loop: true,
                        begin: at,
                        end: code.ends[at],
                        height,
                        arity: params,
                    });
                }
                Operator::If { blockty } => {
                    let (params, arity) = self.arity(*blockty);
                    let condition = stack.pop().expect("valid");
                    let end = code.ends[at];
                    labels.push(Label {
                        is_loop: false,
                        begin: at,
                        end,
                        height: stack.len() - params,
                        arity,
                    });
                    if low(condition) == 0 {
                        let other = code.elses[at];
                        if other == end {
                            labels.pop();
                        }
                        at = other;
                    }
                }
                // Reached from the end of the first branch.
                Operator::Else => {
                    labels.pop();
                    at = code.ends[at];
                }
                Operator::End => {
                    labels.pop();
                    if labels.is_empty() {
                        self.depth -= 1;
                        return Ok(stack);
                    }
                }
                Operator::Br { relative_depth } => branch = Some(*relative_depth),
                Operator::BrIf { relative_depth } => {
                    if low(stack.pop().expect("valid")) != 0 {
                        branch = Some(*relative_depth);
                    }
                }
                Operator::BrTable { targets } => {
                    let index = u32::try_from(low(stack.pop().expect("valid"))).unwrap_or(0);
                    let target = targets.targets().flatten().nth(index as usize);
                    branch = Some(target.unwrap_or(targets.default()));
                }
                Operator::Return => branch = Some(u32::try_from(labels.len() - 1).unwrap_or(0)),
                Operator::Unreachable => return Err(Halt::Trapped),
                Operator::Call { function_index } => {
                    let ty = &program.codes[*function_index as usize - program.imports].ty;
                    let arguments = stack.split_off(stack.len() - ty.params().len());
                    let mut found = self.call(*function_index, &arguments)?;
                    stack.append(&mut found);
                }
                Operator::CallIndirect { type_index, .. } => {
                    let index = usize::try_from(low(stack.pop().expect("valid"))).unwrap_or(0);
                    let Some(function) = program.table.get(index).copied() else { return Err(Halt::Trapped) };
                    let ty = &program.codes[function as usize - program.imports].ty;
                    if *ty != program.types[*type_index as usize] {
                        return Err(Halt::Trapped);
                    }
                    let arguments = stack.split_off(stack.len() - ty.params().len());
                    let mut found = self.call(function, &arguments)?;
                    stack.append(&mut found);
                }
                Operator::LocalGet { local_index } => stack.push(locals[*local_index as usize]),
                Operator::LocalSet { local_index } => {
                    locals[*local_index as usize] = stack.pop().expect("valid")
                }
                Operator::LocalTee { local_index } => {
                    locals[*local_index as usize] = *stack.last().expect("valid");
                }
                Operator::GlobalGet { global_index } => stack.push(self.globals[*global_index as usize]),
                Operator::GlobalSet { global_index } => {
                    self.globals[*global_index as usize] = stack.pop().expect("valid");
                }
                Operator::Drop => {
                    stack.pop();
                }
                Operator::Select | Operator::TypedSelect { .. } => {
                    let (condition, other) = (stack.pop().expect("valid"), stack.pop().expect("valid"));
                    if low(condition) == 0 {
                        *stack.last_mut().expect("valid") = other;
                    }
                }
                operator => self.plain(operator, &mut stack, &locals)?,
            }
            let Some(depth) = branch else {
                at += 1;
                continue;
            };
            let place = labels.len() - 1 - depth as usize;
            let Label { is_loop, begin, end, height, arity } = labels[place];
            let kept = stack.split_off(stack.len() - arity);
            stack.truncate(height);
            stack.extend(kept);
            if is_loop {
                labels.truncate(place + 1);
                at = begin + 1;
            } else {
                labels.truncate(place);
                if labels.is_empty() {
                    self.depth -= 1;
                    return Ok(stack);
                }
                at = end + 1;
            }
        }
    }

    fn plain(&mut self, operator: &Operator<'_>, stack: &mut Vec<u64>, locals: &[u64]) -> Result<(), Halt> {
        use Operator as O;
        let mut loaded = |bytes: u32, memarg: &wasmparser::MemArg, stack: &mut Vec<u64>| {
            let address = low(stack.pop().expect("valid")) + memarg.offset;
            self.load(address, bytes, locals)
        };
        let value = match operator {
            O::I32Const { value } => w32(*value),
            O::I64Const { value } => value.cast_unsigned(),
            O::I32Load { memarg } | O::I64Load32U { memarg } => loaded(4, memarg, stack)?,
            O::I64Load { memarg } => loaded(8, memarg, stack)?,
            O::I32Load8U { memarg } | O::I64Load8U { memarg } => loaded(1, memarg, stack)?,
            O::I32Load16U { memarg } | O::I64Load16U { memarg } => loaded(2, memarg, stack)?,
            O::I32Load8S { memarg } => low(extended(loaded(1, memarg, stack)?, 8)),
            O::I32Load16S { memarg } => low(extended(loaded(2, memarg, stack)?, 16)),
            O::I64Load8S { memarg } => extended(loaded(1, memarg, stack)?, 8),
            O::I64Load16S { memarg } => extended(loaded(2, memarg, stack)?, 16),
            O::I64Load32S { memarg } => extended(loaded(4, memarg, stack)?, 32),
            O::I32Store { memarg } | O::I64Store { memarg } => {
                let value = stack.pop().expect("valid");
                let address = low(stack.pop().expect("valid")) + memarg.offset;
                let bytes = if matches!(operator, O::I64Store { .. }) { 8 } else { 4 };
                return self.store(address, bytes, value);
            }
            _ => {
                let top = stack.pop().expect("valid");
                match unary(operator, top) {
                    Some(value) => value,
                    None => binary(operator, stack.pop().expect("valid"), top).ok_or(Halt::Trapped)?,
                }
            }
        };
        stack.push(value);
        Ok(())
    }
}

/// The lowest `bits`, sign-extended.
fn extended(value: u64, bits: u32) -> u64 {
    let shift = 64 - bits;
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

fn unary(operator: &Operator<'_>, a: u64) -> Option<u64> {
    use Operator as O;
    Some(match operator {
        O::I32Eqz => (low(a) == 0).into(),
        O::I64Eqz => (a == 0).into(),
        O::I32WrapI64 | O::I64ExtendI32U => low(a),
        O::I64ExtendI32S | O::I64Extend32S => extended(a, 32),
        O::I32Extend8S => low(extended(a, 8)),
        O::I32Extend16S => low(extended(a, 16)),
        O::I64Extend8S => extended(a, 8),
        O::I64Extend16S => extended(a, 16),
        O::I32Clz => s32(a).leading_zeros().into(),
        O::I32Ctz => s32(a).trailing_zeros().into(),
        O::I32Popcnt => s32(a).count_ones().into(),
        O::I64Clz => a.leading_zeros().into(),
        O::I64Ctz => a.trailing_zeros().into(),
        O::I64Popcnt => a.count_ones().into(),
        _ => return None,
    })
}

/// `None` where the operation traps.
fn binary(operator: &Operator<'_>, a: u64, b: u64) -> Option<u64> {
    use Operator as O;
    let (x, y) = (s32(a), s32(b));
    let (ux, uy) = (x.cast_unsigned(), y.cast_unsigned());
    let (sa, sb) = (a.cast_signed(), b.cast_signed());
    let shift = u32::try_from(b % 64).unwrap_or(0);
    Some(match operator {
        O::I32Add => w32(x.wrapping_add(y)),
        O::I32Sub => w32(x.wrapping_sub(y)),
        O::I32Mul => w32(x.wrapping_mul(y)),
        O::I32DivU => ux.checked_div(uy)?.into(),
        O::I32DivS => w32(x.checked_div(y)?),
        O::I32RemU => ux.checked_rem(uy)?.into(),
        O::I32RemS if y == 0 => return None,
        O::I32RemS => w32(x.wrapping_rem(y)),
        O::I32And => w32(x & y),
        O::I32Or => w32(x | y),
        O::I32Xor => w32(x ^ y),
        O::I32Shl => w32(x.wrapping_shl(uy)),
        O::I32ShrU => ux.wrapping_shr(uy).into(),
        O::I32ShrS => w32(x.wrapping_shr(uy)),
        O::I32Rotl => ux.rotate_left(uy % 32).into(),
        O::I32Rotr => ux.rotate_right(uy % 32).into(),
        O::I64Add => a.wrapping_add(b),
        O::I64Sub => a.wrapping_sub(b),
        O::I64Mul => a.wrapping_mul(b),
        O::I64DivU => a.checked_div(b)?,
        O::I64DivS => sa.checked_div(sb)?.cast_unsigned(),
        O::I64RemU => a.checked_rem(b)?,
        O::I64RemS if b == 0 => return None,
        O::I64RemS => sa.wrapping_rem(sb).cast_unsigned(),
        O::I64And => a & b,
        O::I64Or => a | b,
        O::I64Xor => a ^ b,
        O::I64Shl => a << shift,
        O::I64ShrU => a >> shift,
        O::I64ShrS => (sa >> shift).cast_unsigned(),
        O::I64Rotl => a.rotate_left(shift),
        O::I64Rotr => a.rotate_right(shift),
        O::I32Eq => (ux == uy).into(),
        O::I32Ne => (ux != uy).into(),
        O::I32LtU => (ux < uy).into(),
        O::I32GtU => (ux > uy).into(),
        O::I32LeU => (ux <= uy).into(),
        O::I32GeU => (ux >= uy).into(),
        O::I32LtS => (x < y).into(),
        O::I32GtS => (x > y).into(),
        O::I32LeS => (x <= y).into(),
        O::I32GeS => (x >= y).into(),
        O::I64Eq => (a == b).into(),
        O::I64Ne => (a != b).into(),
        O::I64LtU => (a < b).into(),
        O::I64GtU => (a > b).into(),
        O::I64LeU => (a <= b).into(),
        O::I64GeU => (a >= b).into(),
        O::I64LtS => (sa < sb).into(),
        O::I64GtS => (sa > sb).into(),
        O::I64LeS => (sa <= sb).into(),
        O::I64GeS => (sa >= sb).into(),
        other => panic!("{other:?}"),
    })
}
