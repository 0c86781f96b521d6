//! The cost table: the fuel of each instruction and each host function.
//!
//! Bound and meter share this one table. The analyser adds the costs along the most expensive path, and the meter
//! charges them while a module runs. A fuzz target checks that the charged fuel never exceeds the bound. One unit of
//! fuel is about a quarter of a nanosecond on a processor of the 2020s; `weir calibrate` measures it on a node.

use crate::Linear;
use wasmparser::Operator;
use weir_abi::host::{self, CallCost, HostFunction};

/// A class of instructions that cost the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostClass {
    /// Control structure without work: `block`, `loop`, `end`, `else`, `nop`, `drop`, `unreachable`.
    Free,
    /// Constants and locals, which the compiler mostly keeps in registers.
    Move,
    /// Integer arithmetic, comparisons, `select`.
    Plain,
    /// Reads and writes of globals.
    Global,
    /// Loads and stores of memory.
    Memory,
    /// Integer multiplication.
    Multiply,
    /// Integer division and remainder.
    Divide,
    /// Floating point, except division and square roots.
    Float,
    /// Division and square roots of floats and of vectors of floats.
    FloatDivide,
    /// Instructions on vectors, except division and square roots.
    Vector,
    /// `br`, `br_if`, `if`, `return`.
    Branch,
    /// `br_table`.
    Table,
    /// A direct call, without the callee.
    Call,
    /// An indirect call, without the callee.
    CallIndirect,
    /// `memory.copy`, `memory.fill`, `memory.init`, `table.copy`, `table.fill` and `table.init`, without the cost of
    /// each byte or element; also `ref.func`, `data.drop` and `elem.drop`, which call the runtime, too.
    Bulk,
    /// `memory.grow` and `table.grow`, without the cost of each page or element.
    Grow,
}

/// Number of classes.
const CLASSES: usize = CostClass::Grow as usize + 1;

/// The fuel of instruction classes, of variable lengths, and of host functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostTable {
    classes: [u32; CLASSES],
    /// The cost of one byte that a bulk instruction copies or fills.
    bulk_byte: u32,
    /// The cost of one table element that a bulk instruction copies or fills, or that `table.grow` adds.
    element: u32,
    /// The cost of one page that `memory.grow` adds. The kernel clears the page on first use.
    page: u32,
    /// The cost of each host function, indexed by [`HostFunction`].
    hosts: [CallCost; host::COUNT],
    /// The host's work for an event of a TCP stream: for the segment, and for each byte of it.
    stream_event: CallCost,
}

impl CostTable {
    /// The table's version. Admitted modules and calibrations record it.
    pub const VERSION: u32 = 3;

    /// The table for admission and metering.
    ///
    /// The weights keep the time per unit of fuel similar for all kinds of work; `weir calibrate` shows the differences
    /// on a node. An indirect call loads the table entry, checks the type of the function, and waits for the branch to be
    /// resolved: on a Zen 4 that takes as long as 30 additions. `table.init` and `ref.func` call the runtime to make each
    /// function reference.
    pub const fn standard() -> Self {
        Self {
            // Free, Move, Plain, Global, Memory, Multiply, Divide, Float, FloatDivide, Vector, Branch, Table, Call,
            // CallIndirect, Bulk, Grow.
            classes: [0, 1, 2, 3, 4, 4, 40, 8, 40, 4, 2, 8, 8, 60, 100, 20_000],
            bulk_byte: 1,
            element: 40,
            page: 40_000,
            hosts: host_costs(),
            stream_event: CallCost { call: 600, per_byte: 2 },
        }
    }

    /// A table that counts fuel as wasmtime does: 1 for an instruction, 0 for control structure. With it, tests compare
    /// the analyser's bound with wasmtime's own count. A call counts 2 here, because wasmtime counts 1 for the
    /// instruction and 1 for the function that begins. The entry point is not called by an instruction, so wasmtime
    /// counts 1 more in total.
    pub const fn unit() -> Self {
        Self {
            classes: [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 1, 1],
            bulk_byte: 1,
            element: 1,
            page: 1,
            hosts: [CallCost { call: 0, per_byte: 0 }; host::COUNT],
            stream_event: CallCost { call: 0, per_byte: 0 },
        }
    }

    /// Returns the table with another cost for one class. Tests use such tables to show that bound and meter share one
    /// table.
    #[must_use]
    pub fn with_class_cost(mut self, class: CostClass, cost: u32) -> Self {
        self.classes[class as usize] = cost;
        self
    }

    /// The cost of a class.
    pub fn class(&self, class: CostClass) -> u32 {
        self.classes[class as usize]
    }

    /// The host's work for an event of a TCP stream: finding the stream, ordering and keeping bytes. The length is that of
    /// the event's bytes.
    pub const fn stream_event(&self) -> CallCost {
        self.stream_event
    }

    /// The bound on the host's work for an event, by the length of its bytes.
    pub const fn stream_event_bound(&self) -> Linear {
        let CallCost { call, per_byte } = self.stream_event;
        Linear { constant: call as u64, per_kib: per_byte as u64 * 1024 }
    }

    /// The cost of one execution of an instruction. Not included are the bytes or elements of a bulk instruction, the
    /// pages or elements that `memory.grow` or `table.grow` adds, and the callee of a call.
    #[inline]
    pub fn operator(&self, operator: &Operator<'_>) -> u32 {
        self.class(class_of(operator))
    }

    /// The cost of a host function, without that of the `call` instruction.
    pub const fn host(&self, function: HostFunction) -> CallCost {
        self.hosts[function as usize]
    }

    /// The cost of each byte of a bulk instruction.
    pub fn bulk_byte(&self) -> u32 {
        self.bulk_byte
    }

    /// The cost of each table element that an instruction copies, fills or adds.
    pub fn element(&self) -> u32 {
        self.element
    }

    /// The cost of each page that `memory.grow` adds.
    pub fn page(&self) -> u32 {
        self.page
    }
}

/// The costs from the table of host functions.
const fn host_costs() -> [CallCost; host::COUNT] {
    let mut costs = [CallCost { call: 0, per_byte: 0 }; host::COUNT];
    let mut index = 0;
    while index < host::COUNT {
        costs[index] = host::HOST_FUNCTIONS[index].cost;
        index += 1;
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
        // All other instructions of valid modules are on floats.
        _ => CostClass::Float,
    }
}

/// Returns true for an instruction on vectors: loads, stores, arithmetic on all lanes.
pub(crate) fn is_vector(operator: &Operator<'_>) -> bool {
    macro_rules! vector {
        ($(@$proposal:ident $op:ident $({ $($arg:ident: $argty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
            matches!(operator, $(Operator::$op { .. })|*)
        };
    }
    wasmparser::for_each_visit_simd_operator!(vector)
}
