//! Limits on the complexity of modules, so that each admitted module compiles within the limits of the compiler process.
//!
//! A compiler's time and memory grow not only with the size of a module. They also grow with the product of a function's
//! values and branches, with the targets of `br_table`, and with repeated inlining. Each of these is counted during
//! validation.

use crate::ModuleRefusal;
use std::collections::HashSet;
use wasmparser::{
    BlockType, CompositeInnerType, FuncValidator, FunctionBody, Operator, OperatorsReader, SubType,
    WasmFeatures, WasmModuleResources,
};

/// A limit on the complexity of a module. The variants are the quantities that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComplexityLimit {
    /// Types.
    Types,
    /// Parameters and results of one type.
    Signature,
    /// Functions, imported ones included.
    Functions,
    /// Globals.
    Globals,
    /// Exports.
    Exports,
    /// Tables.
    Tables,
    /// Elements of all element segments.
    Elements,
    /// Data segments.
    DataSegments,
    /// Bytes of one function's body.
    Body,
    /// Parameters and locals of one function.
    Locals,
    /// Targets of one `br_table`.
    Targets,
    /// The depth of nested loops.
    Loops,
    /// The depth of nested blocks.
    Blocks,
    /// Instructions of all functions.
    Instructions,
    /// The sum over the branches of all functions of the values that may be alive at the branch.
    Flow,
    /// For each block of a function, the number of locals that are set in the block, times the number of branches to the
    /// block; summed over the blocks of one function.
    Joins,
    /// The sum of [`Joins`](Self::Joins) over all functions.
    AllJoins,
    /// The sum of the squares of [`Joins`](Self::Joins) over all functions.
    SquaredJoins,
}

impl ComplexityLimit {
    /// All limits, in the order of the table in docs/reference/MODULE.md.
    pub const ALL: [Self; 18] = [
        Self::Types,
        Self::Signature,
        Self::Functions,
        Self::Globals,
        Self::Exports,
        Self::Tables,
        Self::Elements,
        Self::DataSegments,
        Self::Body,
        Self::Locals,
        Self::Targets,
        Self::Loops,
        Self::Blocks,
        Self::Instructions,
        Self::Flow,
        Self::Joins,
        Self::AllJoins,
        Self::SquaredJoins,
    ];

    /// Returns the highest legal count.
    ///
    /// A module at a limit compiles in far less than the time and memory that the compiler process may use. The test
    /// `a_module_within_the_complexity_limits_compiles_and_one_beyond_is_refused` of apps/weir/tests/hostile.rs prints
    /// the processor time for each limit.
    pub const fn maximum(self) -> u64 {
        match self {
            Self::Types | Self::Globals | Self::Exports | Self::DataSegments => 10_000,
            Self::Signature => 64,
            Self::Functions => 4_000,
            Self::Tables => 16,
            Self::Elements => 65_536,
            Self::Body => 1 << 20,
            Self::Locals | Self::Targets => 10_000,
            Self::Loops => 64,
            Self::Blocks => 10_000,
            Self::Instructions => 2_000_000,
            Self::Flow => 8_000_000,
            Self::Joins => 50_000,
            Self::AllJoins => 200_000,
            Self::SquaredJoins => 3_000_000_000,
        }
    }

    /// Returns the name of the counted quantity, in the plural.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Types => "types",
            Self::Signature => "parameters and results of a type",
            Self::Functions => "functions, imported ones included",
            Self::Globals => "globals",
            Self::Exports => "exports",
            Self::Tables => "tables",
            Self::Elements => "elements of element segments",
            Self::DataSegments => "data segments",
            Self::Body => "bytes of a function's body",
            Self::Locals => "parameters and locals of a function",
            Self::Targets => "targets of a `br_table`",
            Self::Loops => "loops inside each other",
            Self::Blocks => "blocks inside each other",
            Self::Instructions => "instructions",
            Self::Flow => "branches, each times the locals and operands there",
            Self::Joins => "locals set in blocks of one function, each times the branches to its block",
            Self::AllJoins => "locals set in blocks, each times the branches to its block",
            Self::SquaredJoins => {
                "locals set in blocks, each times the branches to its block, squared for each function"
            }
        }
    }

    /// Compares a count with the limit. `at` is the offset in the module's bytes that the counting has reached.
    ///
    /// # Errors
    /// [`ModuleRefusal::Complexity`] if the count exceeds the limit.
    pub(crate) fn check(self, count: u64, at: u64) -> Result<(), ModuleRefusal> {
        if count > self.maximum() {
            Err(ModuleRefusal::Complexity { limit: self, count, at })
        } else {
            Ok(())
        }
    }
}

/// The counts of a function that determine the compiler's work.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    instructions: u64,
    /// Branches; each target of a `br_table` counts.
    branches: u64,
    /// The sum over all blocks of the values that are joined at the block's end (a loop's begin), times the branches to
    /// the block.
    joins: u64,
    /// The most values that may be alive at the same time: all locals, and the most operands.
    width: u64,
}

impl Counts {
    /// Adds the counts of a called function that is inlined. The width is left to the caller, as it is no sum.
    fn add(&mut self, callee: Self) {
        self.instructions = self.instructions.saturating_add(callee.instructions);
        self.branches = self.branches.saturating_add(callee.branches);
        self.joins = self.joins.saturating_add(callee.joins);
    }
}

/// The counts of all functions together.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    instructions: u64,
    joins: u64,
    /// The sum of the squares of each function's joins, as the compiler compares each join of a function with all
    /// others.
    squared_joins: u64,
    /// The sum over all branches of the values that may be alive at the branch.
    flow: u64,
}

impl Sum {
    /// The largest counts after inlining for which the compiler may inline. Modules with larger counts are compiled
    /// without inlining.
    const INLINED_MAX: Self =
        Self { instructions: 400_000, joins: 100_000, squared_joins: 1_000_000_000, flow: 4_000_000 };

    fn add(&mut self, function: &Counts, flow: u64) {
        self.instructions = self.instructions.saturating_add(function.instructions);
        self.joins = self.joins.saturating_add(function.joins);
        self.squared_joins = self.squared_joins.saturating_add(function.joins.saturating_mul(function.joins));
        self.flow = self.flow.saturating_add(flow);
    }

    /// Returns true if every count is at most that of `maximum`.
    const fn is_within(&self, maximum: &Self) -> bool {
        self.instructions <= maximum.instructions
            && self.joins <= maximum.joins
            && self.squared_joins <= maximum.squared_joins
            && self.flow <= maximum.flow
    }
}

/// A validated function.
#[derive(Clone, Debug, Default)]
struct Function {
    counts: Counts,
    /// The index of the called function for each direct call.
    calls: Vec<u32>,
}

/// Counts the complexity of a module's functions while they are validated.
#[derive(Debug, Default)]
pub(crate) struct Complexity {
    functions: Vec<Function>,
    all: Sum,
}

impl Complexity {
    /// Validates and counts the next function.
    ///
    /// # Errors
    /// [`ModuleRefusal::Invalid`], or [`ModuleRefusal::Complexity`] for the first limit that is exceeded.
    pub(crate) fn count_function<R: WasmModuleResources>(
        &mut self,
        validator: &mut FuncValidator<R>,
        body: &FunctionBody<'_>,
        features: WasmFeatures,
    ) -> Result<(), ModuleRefusal> {
        let range = body.range();
        ComplexityLimit::Body.check(range.end.saturating_sub(range.start), range.start)?;
        let mut reader = body.get_binary_reader();
        reader.set_features(features);
        validator.read_locals(&mut reader)?;
        ComplexityLimit::Locals.check(validator.len_locals().into(), range.start)?;
        let mut walk = Walk::default();
        let mut reader = OperatorsReader::new(reader);
        while !reader.eof() {
            let (operator, at) = reader.read_with_offset()?;
            let before = validator.operand_stack_height();
            validator.op(at, &operator)?;
            let alive = before.max(validator.operand_stack_height());
            walk.count_operator(&operator, validator, alive, at)?;
        }
        reader.finish()?;
        let width = walk.operands + u64::from(validator.len_locals());
        let counts = Counts { width, ..walk.counts };
        self.all.add(&counts, walk.flow);
        for (limit, count) in [
            (ComplexityLimit::Instructions, self.all.instructions),
            (ComplexityLimit::Flow, self.all.flow),
            (ComplexityLimit::AllJoins, self.all.joins),
            (ComplexityLimit::SquaredJoins, self.all.squared_joins),
        ] {
            limit.check(count, range.start)?;
        }
        self.functions.push(Function { counts, calls: walk.calls });
        Ok(())
    }

    /// Returns true if the compiler may inline functions: if the result would not be too large, even with every call
    /// inlined. `imported` is the number of imported functions.
    ///
    /// The compiler's own limit on inlining counts values only, so it leaves branches, calls and stores unbounded.
    pub(crate) fn may_be_inlined(&self, imported: u32) -> bool {
        let mut inlined: Vec<Option<Counts>> = vec![None; self.functions.len()];
        let mut all = Sum::default();
        (0..self.functions.len()).all(|index| {
            let counts = self.with_inlined_calls(index, imported, &mut inlined);
            all.add(&counts, counts.branches.saturating_mul(counts.width));
            all.is_within(&Sum::INLINED_MAX)
        })
    }

    /// Returns the counts of a function after inlining every call in it, and every call in the inlined functions. Calls
    /// that close a cycle of calls are not inlined.
    fn with_inlined_calls(&self, function: usize, imported: u32, inlined: &mut [Option<Counts>]) -> Counts {
        /// A function on the path of calls whose counts are not complete.
        struct Open {
            index: usize,
            /// The index of the next call to handle.
            next: usize,
            counts: Counts,
            /// The largest width of the functions that it calls.
            callee_width: u64,
        }
        if let Some(Some(counts)) = inlined.get(function) {
            return *counts;
        }
        let open = |index: usize, inlined: &mut [Option<Counts>]| {
            let counts = self.functions.get(index)?.counts;
            // A call that finds this placeholder closes a cycle: it is not inlined.
            *inlined.get_mut(index)? = Some(Counts::default());
            Some(Open { index, next: 0, counts, callee_width: 0 })
        };
        let mut path: Vec<Open> = open(function, inlined).into_iter().collect();
        let mut last = Counts::default();
        while let Some(top) = path.last_mut() {
            let calls = self.functions.get(top.index).map_or(&[][..], |function| &function.calls);
            let Some(call) = calls.get(top.next) else {
                // Values that are alive in a caller stay alive in an inlined callee, so their widths add up.
                last = Counts { width: top.counts.width.saturating_add(top.callee_width), ..top.counts };
                if let Some(slot) = inlined.get_mut(top.index) {
                    *slot = Some(last);
                }
                path.pop();
                continue;
            };
            let callee = call.checked_sub(imported).and_then(|index| usize::try_from(index).ok());
            match callee.and_then(|callee| Some((callee, *inlined.get(callee)?))) {
                Some((callee, None)) => {
                    path.extend(open(callee, inlined));
                    continue;
                }
                Some((_, Some(callee))) => {
                    top.counts.add(callee);
                    top.callee_width = top.callee_width.max(callee.width);
                }
                None => {}
            }
            top.next += 1;
        }
        last
    }
}

/// A block that has begun and not ended.
#[derive(Debug, Default)]
struct Block {
    is_loop: bool,
    /// The number of the block's parameters and results, which branches to it join.
    operands: u64,
    /// The number of branches to the block.
    branches: u64,
    /// The locals that are set in the block.
    set_locals: HashSet<u32>,
}

/// A walk over the instructions of one function.
#[derive(Debug, Default)]
struct Walk {
    counts: Counts,
    /// The most operands that are alive at once.
    operands: u64,
    /// The sum over the branches of the values that may be alive at the branch.
    flow: u64,
    calls: Vec<u32>,
    /// The open blocks, innermost last.
    open: Vec<Block>,
    /// The number of loops among the open blocks.
    loops: u64,
    /// The number of pairs of a block and a local that is set in it.
    pairs: u64,
}

impl Walk {
    /// Counts an instruction. `operands` is the number of operands that are alive at it.
    fn count_operator<R: WasmModuleResources>(
        &mut self,
        operator: &Operator<'_>,
        validator: &FuncValidator<R>,
        operands: u32,
        at: u64,
    ) -> Result<(), ModuleRefusal> {
        self.operands = self.operands.max(operands.into());
        self.counts.instructions += 1;
        let resources = validator.resources();
        let branches = match operator {
            Operator::Block { blockty } | Operator::If { blockty } => {
                self.enter(false, arity(resources, *blockty), at)?
            }
            Operator::Loop { blockty } => self.enter(true, arity(resources, *blockty), at)?,
            Operator::End => self.leave(at)?,
            Operator::Else => self.branch(0),
            Operator::Br { relative_depth } | Operator::BrIf { relative_depth } => {
                self.branch(*relative_depth)
            }
            Operator::BrTable { targets } => {
                let count = u64::from(targets.len());
                ComplexityLimit::Targets.check(count, at)?;
                self.counts.instructions += count;
                for target in targets.targets() {
                    self.branch(target?);
                }
                self.branch(targets.default()) + count
            }
            Operator::Call { function_index } => {
                self.calls.push(*function_index);
                let ty = resources.type_id_of_function(*function_index);
                self.counts.instructions += value_count(ty.map(|ty| resources.sub_type_at_id(ty)));
                1
            }
            Operator::CallIndirect { type_index, .. } => {
                self.counts.instructions += value_count(resources.sub_type_at(*type_index));
                1
            }
            Operator::Return | Operator::TableGet { .. } => 1,
            Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
                return self.count_local_set(*local_index, at);
            }
            _ => return Ok(()),
        };
        self.counts.branches += branches;
        let alive = u64::from(validator.len_locals()) + u64::from(operands);
        self.flow = self.flow.saturating_add(branches.saturating_mul(alive));
        ComplexityLimit::Flow.check(self.flow, at)
    }

    fn enter(&mut self, is_loop: bool, operands: u64, at: u64) -> Result<u64, ModuleRefusal> {
        self.open.push(Block { is_loop, operands, ..Block::default() });
        self.loops += u64::from(is_loop);
        ComplexityLimit::Blocks.check(self.open.len() as u64, at)?;
        ComplexityLimit::Loops.check(self.loops, at)?;
        Ok(1)
    }

    fn leave(&mut self, at: u64) -> Result<u64, ModuleRefusal> {
        // The end of the function has no block.
        let Some(block) = self.open.pop() else { return Ok(1) };
        self.loops -= u64::from(block.is_loop);
        let values = block.set_locals.len() as u64 + block.operands;
        let joins = values.saturating_mul(1 + block.branches);
        self.counts.joins = self.counts.joins.saturating_add(joins);
        ComplexityLimit::Joins.check(self.counts.joins, at)?;
        Ok(1)
    }

    /// Counts a branch to the block at a relative depth, as `br` has it. Returns the number of branches: 1.
    fn branch(&mut self, depth: u32) -> u64 {
        let index = self.open.len().checked_sub(1 + depth as usize);
        if let Some(block) = index.and_then(|index| self.open.get_mut(index)) {
            block.branches += 1;
        }
        1
    }

    /// Counts a local as set in all open blocks: its values are joined where these blocks end, or begin again.
    fn count_local_set(&mut self, local: u32, at: u64) -> Result<(), ModuleRefusal> {
        // If the local is in the set of a block, it is in the sets of all blocks around it, too.
        for block in self.open.iter_mut().rev() {
            if !block.set_locals.insert(local) {
                break;
            }
            self.pairs += 1;
        }
        // The limit on pairs also bounds the time that the loop above takes.
        ComplexityLimit::Joins.check(self.pairs, at)
    }
}

/// Returns the number of parameters and results of a block.
fn arity<R: WasmModuleResources>(resources: &R, ty: BlockType) -> u64 {
    match ty {
        BlockType::Empty => 0,
        BlockType::Type(_) => 1,
        BlockType::FuncType(index) => value_count(resources.sub_type_at(index)),
    }
}

/// Returns the number of parameters and results of a function type.
fn value_count(ty: Option<&SubType>) -> u64 {
    match ty.map(|ty| &ty.composite_type.inner) {
        Some(CompositeInnerType::Func(ty)) => (ty.params().len() + ty.results().len()) as u64,
        _ => 0,
    }
}
