//! Loads, stores, and other instructions on the memory.
//!
//! The memory begins at the base of the segment GS, which is address space 256 of LLVM. All accesses are volatile: so LLVM
//! performs each of them, and in their order, also if a value is not used. An access that traps then leaves the memory as
//! WebAssembly demands. The compiler of the module has already removed accesses that are not needed.

use crate::function::{FunctionLowering, StackOperand, ir_type};
use crate::module::Constant;
use crate::thunk::GuestThunk;
use crate::trap::TrapCode;
use crate::{GUARD, LowerError};
use wasmparser::{MemArg, Operator, ValType};

use ValType::{F32, F64, I32, I64, V128};

/// The largest offset that an access adds to an address. It leaves room in the guard for the access itself.
const OFFSET_MAX: u64 = GUARD as u64 - 64;

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

    /// Pops the address of an access, and writes the computation of the pointer. Returns the pointer with its type.
    pub(crate) fn pointer(&mut self, memarg: &MemArg) -> Result<String, LowerError> {
        const POINTER: &str = "ptr addrspace(256)";
        let address = self.pop()?;
        if let StackOperand::Constant(Constant::I32(address)) = address
            && memarg.offset <= OFFSET_MAX
        {
            let address = u64::from(address.cast_unsigned()) + memarg.offset;
            return Ok(format!("{POINTER} inttoptr (i64 {address} to {POINTER})"));
        }
        let mut wide = self.opaque(address);
        if memarg.offset > 0 {
            wide = self.temporary(format_args!("add nuw nsw i64 %v{wide}, {}", memarg.offset));
        }
        if memarg.offset > OFFSET_MAX {
            let is_outside = self.temporary(format_args!("icmp ugt i64 %v{wide}, {}", u32::MAX));
            self.trap_if(is_outside, TrapCode::OutOfBounds);
            self.checked.push(self.offset);
            // The verifier does not follow the comparison, but the width of the address.
            let low = self.define(I32, format_args!("trunc i64 %v{wide} to i32"));
            wide = self.opaque(low);
        }
        let pointer = self.temporary(format_args!("inttoptr i64 %v{wide} to {POINTER}"));
        Ok(format!("{POINTER} %v{pointer}"))
    }

    /// Writes a conversion of an address to 64 bits in assembler code. To the optimiser the result can be any number, so it
    /// does not compute the address in another way, whose width the verifier would not see.
    fn opaque(&mut self, address: StackOperand) -> u32 {
        self.temporary(format_args!("call i64 asm \"movl $1, ${{0:k}}\", \"=r,r\"(i32 {address}) #3"))
    }

    fn load(&mut self, memarg: &MemArg, ty: ValType) -> Result<(), LowerError> {
        let pointer = self.pointer(memarg)?;
        self.push_new(ty, format_args!("load volatile {}, {pointer}, align 1", ir_type(ty)?));
        Ok(())
    }

    /// Writes a load of an LLVM type. Returns the number of its result.
    pub(crate) fn load_as(&mut self, memarg: &MemArg, ty: &str) -> Result<u32, LowerError> {
        let pointer = self.pointer(memarg)?;
        Ok(self.temporary(format_args!("load volatile {ty}, {pointer}, align 1")))
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
        let (pointer, location) = (self.pointer(memarg)?, self.location());
        self.line(format_args!("store volatile {ty} {value}, {pointer}, align 1, {location}"));
        Ok(())
    }

    fn store_part(&mut self, memarg: &MemArg, part: &str) -> Result<(), LowerError> {
        let value = self.pop()?;
        let low = self.temporary(format_args!("trunc {} {value} to {part}", ir_type(value.ty())?));
        self.store_as(memarg, part, format_args!("%v{low}"))
    }
}
