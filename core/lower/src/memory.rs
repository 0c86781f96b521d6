//! Loads, stores, and other instructions on the memory.
//!
//! The memory begins at the base of the segment GS, which is address space 256 of LLVM. All accesses are volatile: so LLVM
//! performs each of them, and in their order, also if a value is not used. An access that traps then leaves the memory as
//! WebAssembly demands. The compiler of the module has already removed accesses that are not needed.
//!
//! An address is widened to 64 bits in one of four ways, because LLVM, left alone, computes addresses in loops in 64 bits,
//! where the verifier does not find a bound:
//!
//! - a bounded address by `zext`: the verifier can follow the address in any form;
//! - a sum without an offset by the access itself, with the address-size prefix;
//! - any other address by one instruction of assembler code, which several accesses can share;
//! - the address of an isolated access by assembler code of which the access is a part.

use crate::function::{FunctionLowering, StackOperand, ir_type};
use crate::module::Constant;
use crate::operand::Sum;
use crate::thunk::GuestThunk;
use crate::trap::TrapCode;
use crate::{GUARD, LowerError};
use wasmparser::{MemArg, Operator, ValType};

use ValType::{F32, F64, I32, I64, V128};

/// The largest offset that an access adds to an address. It leaves room in the guard for the access itself.
const OFFSET_MAX: u64 = GUARD as u64 - 64;

/// The type of pointers to the memory of the module.
const POINTER: &str = "ptr addrspace(256)";

/// The memory operand of an access.
enum MemoryOperand {
    /// A pointer with its type. LLVM chooses the form of the operand.
    Pointer(String),
    /// An operand that is written here.
    Assembler(AssemblerOperand),
}

/// A memory operand in assembler code. Operand 0 of the code is the value.
struct AssemblerOperand {
    /// The instructions before the access.
    before: &'static str,
    memory: String,
    /// The constraints behind that of the value.
    constraints: String,
    arguments: Vec<String>,
}

impl AssemblerOperand {
    /// A sum, which the access computes in 32 bits by the address-size prefix.
    fn sum(Sum { base, index, displacement }: Sum) -> Self {
        let mut arguments = Vec::new();
        let mut register = |operand: StackOperand| {
            arguments.push(format!("i32 {operand}"));
            format!("${{{}:k}}", arguments.len())
        };
        let base = base.map(&mut register).unwrap_or_default();
        let index = index.map(|(index, scale)| format!(",{},{scale}", register(index))).unwrap_or_default();
        Self {
            before: "",
            memory: format!("%gs:{displacement}({base}{index})"),
            constraints: ",r".repeat(arguments.len()),
            arguments,
        }
    }

    /// An address, which is widened directly before the access, and an offset.
    fn isolated(address: StackOperand, offset: u64) -> Self {
        Self {
            before: "movl ${1:k}, %eax; ",
            memory: format!("%gs:{offset}(%rax)"),
            constraints: ",r,~{rax}".to_owned(),
            arguments: vec![format!("i32 {address}")],
        }
    }
}

/// Assembler code of an access to a value of one LLVM type. `MEMORY` stands for the memory operand.
struct AssemblerAccess {
    load: &'static str,
    store: &'static str,
    /// The class of the value's register.
    class: char,
    /// The LLVM type of the register's value.
    loaded: &'static str,
}

fn assembler_access(ty: &str) -> AssemblerAccess {
    let (load, store, class, loaded) = match ty {
        "i8" => ("movzbl MEMORY, ${0:k}", "movb ${0:b}, MEMORY", 'r', "i32"),
        "i16" => ("movzwl MEMORY, ${0:k}", "movw ${0:w}, MEMORY", 'r', "i32"),
        "i32" => ("movl MEMORY, ${0:k}", "movl ${0:k}, MEMORY", 'r', "i32"),
        "float" => ("movss MEMORY, $0", "movss $0, MEMORY", 'x', "float"),
        "double" => ("movsd MEMORY, $0", "movsd $0, MEMORY", 'x', "double"),
        "<2 x i64>" => ("movdqu MEMORY, $0", "movdqu $0, MEMORY", 'x', "<2 x i64>"),
        // An i64, or half a vector.
        _ => ("movq MEMORY, ${0:q}", "movq ${0:q}, MEMORY", 'r', "i64"),
    };
    AssemblerAccess { load, store, class, loaded }
}

impl FunctionLowering<'_, '_> {
    /// Lowers an instruction on the memory. Returns false if the instruction is not one of these.
    pub(crate) fn memory(&mut self, operator: &Operator<'_>) -> Result<bool, LowerError> {
        match operator {
            Operator::I32Load { memarg } => self.load(memarg, I32)?,
            Operator::I64Load { memarg } => self.load(memarg, I64)?,
            Operator::F32Load { memarg } => self.load(memarg, F32)?,
            Operator::F64Load { memarg } => self.load(memarg, F64)?,
            Operator::V128Load { memarg } => self.load(memarg, V128)?,
            Operator::I32Load8U { memarg } | Operator::I32AtomicLoad8U { memarg } => {
                self.load_part(memarg, "i8", "zext", I32)?;
            }
            Operator::I32Load8S { memarg } => self.load_part(memarg, "i8", "sext", I32)?,
            Operator::I32Load16U { memarg } => self.load_part(memarg, "i16", "zext", I32)?,
            Operator::I32Load16S { memarg } => self.load_part(memarg, "i16", "sext", I32)?,
            Operator::I64Load8U { memarg } => self.load_part(memarg, "i8", "zext", I64)?,
            Operator::I64Load8S { memarg } => self.load_part(memarg, "i8", "sext", I64)?,
            Operator::I64Load16U { memarg } => self.load_part(memarg, "i16", "zext", I64)?,
            Operator::I64Load16S { memarg } => self.load_part(memarg, "i16", "sext", I64)?,
            Operator::I64Load32U { memarg } => self.load_part(memarg, "i32", "zext", I64)?,
            Operator::I64Load32S { memarg } => self.load_part(memarg, "i32", "sext", I64)?,
            Operator::I32Store { memarg } => self.store(memarg, I32)?,
            Operator::I64Store { memarg } => self.store(memarg, I64)?,
            Operator::F32Store { memarg } => self.store(memarg, F32)?,
            Operator::F64Store { memarg } => self.store(memarg, F64)?,
            Operator::V128Store { memarg } => self.store(memarg, V128)?,
            Operator::I32Store8 { memarg } | Operator::I64Store8 { memarg } => {
                self.store_part(memarg, "i8")?
            }
            Operator::I32Store16 { memarg } | Operator::I64Store16 { memarg } => {
                self.store_part(memarg, "i16")?;
            }
            Operator::I64Store32 { memarg } => self.store_part(memarg, "i32")?,
            Operator::MemorySize { .. } => self.call_thunk(GuestThunk::MemorySize)?,
            Operator::MemoryGrow { .. } => self.call_thunk(GuestThunk::MemoryGrow)?,
            Operator::MemoryFill { .. } => self.call_thunk(GuestThunk::MemoryFill)?,
            Operator::MemoryCopy { .. } => self.call_thunk(GuestThunk::MemoryCopy)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Pops the address of an access, and writes what has to be computed before the access. Returns its memory operand.
    fn memory_operand(&mut self, memarg: &MemArg) -> Result<MemoryOperand, LowerError> {
        let address = self.pop()?;
        if let StackOperand::Constant(Constant::I32(address)) = address
            && memarg.offset <= OFFSET_MAX
        {
            let address = u64::from(address.cast_unsigned()) + memarg.offset;
            return Ok(MemoryOperand::Pointer(format!("{POINTER} inttoptr (i64 {address} to {POINTER})")));
        }
        if memarg.offset > OFFSET_MAX {
            let wide = self.opaque(address);
            let sum = self.temporary(format_args!("add nuw nsw i64 %v{wide}, {}", memarg.offset));
            let is_outside = self.temporary(format_args!("icmp ugt i64 %v{sum}, {}", u32::MAX));
            self.trap_if(is_outside, TrapCode::OutOfBounds);
            self.checked.push(self.offset);
            // The verifier does not follow the comparison, but the width of the address.
            let low = self.define(I32, format_args!("trunc i64 %v{sum} to i32"));
            return Ok(self.operand_at(low, 0));
        }
        Ok(self.operand_at(address, memarg.offset))
    }

    /// Returns the memory operand for an address and an offset within the guard.
    fn operand_at(&mut self, address: StackOperand, offset: u64) -> MemoryOperand {
        if self.options.isolated.contains(self.offset) {
            return MemoryOperand::Assembler(AssemblerOperand::isolated(address, offset));
        }
        let is_bounded = self.max_of(address) < u64::from(u32::MAX);
        if !is_bounded
            && !self.options.plain_addresses
            && offset == 0
            && let Some(sum) = self.sum_of(address)
        {
            return MemoryOperand::Assembler(AssemblerOperand::sum(sum));
        }
        let mut wide = if is_bounded || self.options.plain_addresses {
            self.temporary(format_args!("zext i32 {address} to i64"))
        } else {
            self.opaque(address)
        };
        if offset > 0 {
            wide = self.temporary(format_args!("add nuw nsw i64 %v{wide}, {offset}"));
        }
        let pointer = self.temporary(format_args!("inttoptr i64 %v{wide} to {POINTER}"));
        MemoryOperand::Pointer(format!("{POINTER} %v{pointer}"))
    }

    /// Writes a conversion of an address to 64 bits in assembler code. To the optimiser the result can be any number, so it
    /// does not compute the address in another way, whose width the verifier would not see.
    fn opaque(&mut self, address: StackOperand) -> u32 {
        self.temporary(format_args!("call i64 asm \"movl $1, ${{0:k}}\", \"=r,r\"(i32 {address}) #3"))
    }

    fn load(&mut self, memarg: &MemArg, ty: ValType) -> Result<(), LowerError> {
        let value = self.load_as(memarg, ir_type(ty)?)?;
        self.push(StackOperand::Value(value, ty));
        Ok(())
    }

    /// Writes a load of an LLVM type. Returns the number of its result.
    pub(crate) fn load_as(&mut self, memarg: &MemArg, ty: &str) -> Result<u32, LowerError> {
        let AssemblerOperand { before, memory, constraints, arguments } = match self.memory_operand(memarg)? {
            MemoryOperand::Pointer(pointer) => {
                return Ok(self.temporary(format_args!("load volatile {ty}, {pointer}, align 1")));
            }
            MemoryOperand::Assembler(operand) => operand,
        };
        let AssemblerAccess { load, class, loaded, .. } = assembler_access(ty);
        let load = load.replace("MEMORY", &memory);
        let value = self.temporary(format_args!(
            "call {loaded} asm sideeffect \"{before}{load}\", \"={class}{constraints}\"({})",
            arguments.join(", ")
        ));
        Ok(match loaded {
            _ if loaded == ty => value,
            "i32" => self.temporary(format_args!("trunc i32 %v{value} to {ty}")),
            _ => self.temporary(format_args!("bitcast {loaded} %v{value} to {ty}")),
        })
    }

    fn load_part(
        &mut self,
        memarg: &MemArg,
        part: &str,
        extension: &str,
        ty: ValType,
    ) -> Result<(), LowerError> {
        let value = self.load_as(memarg, part)?;
        self.push_new(ty, format_args!("{extension} {part} %v{value} to {}", ir_type(ty)?));
        Ok(())
    }

    fn store(&mut self, memarg: &MemArg, ty: ValType) -> Result<(), LowerError> {
        let value = self.pop()?;
        self.store_as(memarg, ir_type(ty)?, value)
    }

    /// Writes a store of a value of an LLVM type.
    pub(crate) fn store_as(
        &mut self,
        memarg: &MemArg,
        ty: &str,
        value: impl std::fmt::Display,
    ) -> Result<(), LowerError> {
        let operand = self.memory_operand(memarg)?;
        let location = self.location();
        let AssemblerOperand { before, memory, constraints, mut arguments } = match operand {
            MemoryOperand::Pointer(pointer) => {
                self.line(format_args!("store volatile {ty} {value}, {pointer}, align 1, {location}"));
                return Ok(());
            }
            MemoryOperand::Assembler(operand) => operand,
        };
        let AssemblerAccess { store, class, loaded: stored, .. } = assembler_access(ty);
        let value = match stored {
            _ if stored == ty => value.to_string(),
            "i32" => format!("%v{}", self.temporary(format_args!("zext {ty} {value} to i32"))),
            _ => format!("%v{}", self.temporary(format_args!("bitcast {ty} {value} to {stored}"))),
        };
        arguments.insert(0, format!("{stored} {value}"));
        let store = store.replace("MEMORY", &memory);
        self.line(format_args!(
            "call void asm sideeffect \"{before}{store}\", \"{class}{constraints}\"({}), {location}",
            arguments.join(", ")
        ));
        Ok(())
    }

    fn store_part(&mut self, memarg: &MemArg, part: &str) -> Result<(), LowerError> {
        let value = self.pop()?;
        let low = self.temporary(format_args!("trunc {} {value} to {part}", ir_type(value.ty())?));
        self.store_as(memarg, part, format_args!("%v{low}"))
    }
}
