//! The cost table: what each instruction and each host function counts, in fuel.
//!
//! It is the only one. The analyser sums it up along the worst path, the meter charges it while a module runs, and both are fuzzed against
//! each other: fuel used is never more than the bound. One unit of fuel is about a quarter of a nanosecond of a processor of the 2020s;
//! `weir calibrate` measures what it is on a node.

use wasmparser::Operator;
use weir_abi::host::{self, CallCost, HostFunction};

/// Classes of instructions that cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostClass {
    /// Structure of the code: `block`, `end`, `nop`, `drop`, …
    Free,
    /// Constants and locals, which the compiler mostly keeps in registers.
    Move,
    /// Integer arithmetic, comparisons, `select`.
    Plain,
    /// Globals.
    Global,
    /// Loads and stores of memory.
    Memory,
    /// Integer multiplication.
    Multiply,
    /// Integer division and remainder.
    Divide,
    /// Floating point but for division and square roots.
    Float,
    /// Floating-point division, square roots; of vectors too.
    FloatDivide,
    /// Instructions on vectors.
    Vector,
    /// `br`, `br_if`, `if`, `return`.
    Branch,
    /// `br_table`.
    Table,
    /// A call inside the module, without what is called.
    Call,
    /// An indirect call, without what is called.
    CallIndirect,
    /// `memory.copy`, `memory.fill`, `memory.init`, without their bytes; the same for tables; and what else is a call of the runtime:
    /// `ref.func`, `data.drop`, `elem.drop`.
    Bulk,
    /// `memory.grow`, `table.grow`, without pages and elements.
    Grow,
}

/// Number of classes.
const CLASSES: usize = CostClass::Grow as usize + 1;

/// A cost table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    classes: [u32; CLASSES],
    /// One byte that a bulk instruction copies or fills.
    bulk_byte: u32,
    /// One element of a table that a bulk instruction copies or fills, or that `table.grow` adds.
    element: u32,
    /// One page that `memory.grow` adds, which the kernel has to clear when it is used.
    page: u32,
    /// By the number of the function.
    hosts: [CallCost; host::COUNT],
}

impl CostTable {
    /// The table's version: part of what was admitted, and of a calibration.
    pub const VERSION: u32 = 3;

    /// The table that modules are admitted and metered by.
    ///
    /// Its weights are such that no kind of work takes much more time for its fuel than the others do: `weir calibrate` shows by how much they
    /// differ on a node. An indirect call is looked up, checked for its type, and waited for: on a Zen 4 it takes as long as 30 additions.
    /// `table.init` makes a reference to a function for each element, by a call of the runtime, and so does `ref.func`.
    pub const fn standard() -> Self {
        Self {
            //        Free Move Plain Global Memory Multiply Divide Float FloatDivide Vector Branch Table Call Indirect Bulk Grow
            classes: [0, 1, 2, 3, 4, 4, 40, 8, 40, 4, 2, 8, 8, 60, 100, 20_000],
            bulk_byte: 1,
            element: 40,
            page: 40_000,
            hosts: host_costs(),
        }
    }

    /// A table by which every instruction counts one and the structure of the code nothing, as wasmtime counts its fuel: to check the
    /// analyser against something that does not share the standard table. A call counts two, because wasmtime counts one for each function that
    /// begins; what weir calls itself is one more than this table has.
    pub const fn unit() -> Self {
        Self {
            classes: [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1],
            bulk_byte: 1,
            element: 1,
            page: 1,
            hosts: [CallCost { call: 0, per_byte: 0 }; host::COUNT],
        }
    }

    /// The same table with another cost for a class: for tests that there is but one table.
    #[must_use]
    pub fn with(mut self, class: CostClass, cost: u32) -> Self {
        self.classes[class as usize] = cost;
        self
    }

    /// The cost of a class.
    pub fn class(&self, class: CostClass) -> u32 {
        self.classes[class as usize]
    }

    /// What an instruction costs each time it runs: without the bytes of a bulk instruction, the pages of `memory.grow`, and what is called.
    #[inline]
    pub fn operator(&self, operator: &Operator<'_>) -> u32 {
        self.class(class_of(operator))
    }

    /// What a host function costs, beside the `call` instruction.
    pub const fn host(&self, function: HostFunction) -> CallCost {
        self.hosts[function as usize]
    }

    /// What each byte of a bulk instruction costs.
    pub fn bulk_byte(&self) -> u32 {
        self.bulk_byte
    }

    /// What each element of a table costs that an instruction copies, fills or adds.
    pub fn element(&self) -> u32 {
        self.element
    }

    /// What each page of `memory.grow` costs.
    pub fn page(&self) -> u32 {
        self.page
    }
}

/// The costs of the host functions' records.
const fn host_costs() -> [CallCost; host::COUNT] {
    let mut costs = [CallCost { call: 0, per_byte: 0 }; host::COUNT];
    let mut place = 0;
    while place < host::COUNT {
        costs[place] = host::HOST_FUNCTIONS[place].cost;
        place += 1;
    }
    costs
}

/// The class of an instruction.
pub fn class_of(operator: &Operator<'_>) -> CostClass {
    use Operator as O;
    match operator {
        O::Nop | O::Block { .. } | O::Loop { .. } | O::End | O::Else | O::Unreachable | O::Drop => {
            CostClass::Free
        }
        O::I32Const { .. }
        | O::I64Const { .. }
        | O::F32Const { .. }
        | O::F64Const { .. }
        | O::LocalGet { .. }
        | O::LocalSet { .. }
        | O::LocalTee { .. }
        | O::RefNull { .. }
        | O::I32WrapI64
        | O::I64ExtendI32S
        | O::I64ExtendI32U
        | O::I32ReinterpretF32
        | O::I64ReinterpretF64
        | O::F32ReinterpretI32
        | O::F64ReinterpretI64 => CostClass::Move,
        O::GlobalGet { .. } | O::GlobalSet { .. } | O::MemorySize { .. } | O::TableSize { .. } => {
            CostClass::Global
        }
        O::If { .. } | O::Br { .. } | O::BrIf { .. } | O::Return => CostClass::Branch,
        O::BrTable { .. } => CostClass::Table,
        O::Call { .. } => CostClass::Call,
        O::CallIndirect { .. } => CostClass::CallIndirect,
        O::I32Mul | O::I64Mul => CostClass::Multiply,
        O::I32DivS
        | O::I32DivU
        | O::I32RemS
        | O::I32RemU
        | O::I64DivS
        | O::I64DivU
        | O::I64RemS
        | O::I64RemU => CostClass::Divide,
        O::F32Div | O::F64Div | O::F32Sqrt | O::F64Sqrt => CostClass::FloatDivide,
        O::F32x4Div | O::F64x2Div | O::F32x4Sqrt | O::F64x2Sqrt => CostClass::FloatDivide,
        O::MemoryCopy { .. }
        | O::MemoryFill { .. }
        | O::MemoryInit { .. }
        | O::TableCopy { .. }
        | O::TableFill { .. }
        | O::TableInit { .. }
        | O::RefFunc { .. }
        | O::DataDrop { .. }
        | O::ElemDrop { .. } => CostClass::Bulk,
        O::MemoryGrow { .. } | O::TableGrow { .. } => CostClass::Grow,
        O::I32Load { .. }
        | O::I64Load { .. }
        | O::F32Load { .. }
        | O::F64Load { .. }
        | O::I32Load8S { .. }
        | O::I32Load8U { .. }
        | O::I32Load16S { .. }
        | O::I32Load16U { .. }
        | O::I64Load8S { .. }
        | O::I64Load8U { .. }
        | O::I64Load16S { .. }
        | O::I64Load16U { .. }
        | O::I64Load32S { .. }
        | O::I64Load32U { .. }
        | O::I32Store { .. }
        | O::I64Store { .. }
        | O::F32Store { .. }
        | O::F64Store { .. }
        | O::I32Store8 { .. }
        | O::I32Store16 { .. }
        | O::I64Store8 { .. }
        | O::I64Store16 { .. }
        | O::I64Store32 { .. }
        | O::TableGet { .. }
        | O::TableSet { .. } => CostClass::Memory,
        O::I32Eqz
        | O::I32Eq
        | O::I32Ne
        | O::I32LtS
        | O::I32LtU
        | O::I32GtS
        | O::I32GtU
        | O::I32LeS
        | O::I32LeU
        | O::I32GeS
        | O::I32GeU
        | O::I64Eqz
        | O::I64Eq
        | O::I64Ne
        | O::I64LtS
        | O::I64LtU
        | O::I64GtS
        | O::I64GtU
        | O::I64LeS
        | O::I64LeU
        | O::I64GeS
        | O::I64GeU
        | O::I32Clz
        | O::I32Ctz
        | O::I32Popcnt
        | O::I32Add
        | O::I32Sub
        | O::I32And
        | O::I32Or
        | O::I32Xor
        | O::I32Shl
        | O::I32ShrS
        | O::I32ShrU
        | O::I32Rotl
        | O::I32Rotr
        | O::I64Clz
        | O::I64Ctz
        | O::I64Popcnt
        | O::I64Add
        | O::I64Sub
        | O::I64And
        | O::I64Or
        | O::I64Xor
        | O::I64Shl
        | O::I64ShrS
        | O::I64ShrU
        | O::I64Rotl
        | O::I64Rotr
        | O::I32Extend8S
        | O::I32Extend16S
        | O::I64Extend8S
        | O::I64Extend16S
        | O::I64Extend32S
        | O::RefIsNull
        | O::Select
        | O::TypedSelect { .. } => CostClass::Plain,
        other if is_vector(other) => CostClass::Vector,
        // What is left is floating point.
        _ => CostClass::Float,
    }
}

/// Whether an instruction works on vectors: loads, stores, arithmetic on all lanes.
pub(crate) fn is_vector(operator: &Operator<'_>) -> bool {
    macro_rules! vector {
        ($(@$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
            matches!(operator, $(Operator::$op { .. })|*)
        };
    }
    wasmparser::for_each_visit_simd_operator!(vector)
}
