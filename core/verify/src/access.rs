//! The address of a memory operand, and the place that it is in.

use iced_x86::{Instruction, Register};

use crate::decode::{MemoryUse, Step, number};
use crate::image::Surroundings;
use crate::rule::Rule;
use crate::state::State;
use crate::value::{AddressBase, Value, Width};

/// The place of an allowed access. The offset of its first byte is from `lo` to `hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The frame. Offsets are relative to the stack pointer at entry, so they are negative.
    Frame {
        /// The lowest offset.
        lo: i64,
        /// The highest offset.
        hi: i64,
    },
    /// The stack arguments. Offsets are relative to the stack pointer at entry; the first argument is at 8.
    StackArguments {
        /// The lowest offset.
        lo: i64,
        /// The highest offset.
        hi: i64,
    },
    /// The region of the instance. Offsets are relative to the base of the linear memory; globals are below it.
    Region {
        /// The lowest offset.
        lo: i64,
        /// The highest offset.
        hi: i64,
    },
    /// The constants. Offsets are image addresses.
    Constants {
        /// The lowest offset.
        lo: i64,
        /// The highest offset.
        hi: i64,
    },
    /// The return address, which only `ret` reads.
    ReturnAddress,
}

/// The size of the linear memory's address space.
const MEMORY_BYTES: i128 = 1 << 32;

/// Returns true if the address of a memory operand is computed in 32 bits, from registers.
pub(crate) fn has_32_bit_registers(instruction: &Instruction) -> bool {
    instruction.memory_base().is_gpr32() || instruction.memory_index().is_gpr32()
}

/// The address of a memory operand without its segment.
pub(crate) fn address(instruction: &Instruction, state: &State) -> Value {
    if has_32_bit_registers(instruction) {
        // The CPU takes the sum modulo 2^32.
        return Value::any(Width::W32);
    }
    let displacement = instruction.memory_displacement64().cast_signed();
    let base = match instruction.memory_base() {
        // The decoder has added the address of the next instruction.
        Register::RIP => return Value::exact(AddressBase::IMAGE, displacement),
        Register::None => Value::exact(AddressBase::ZERO, 0),
        register => state.register(number(register)),
    };
    let index = match instruction.memory_index() {
        Register::None => Value::exact(AddressBase::ZERO, 0),
        register => {
            let scale = Value::exact(AddressBase::ZERO, instruction.memory_index_scale().into());
            match scale.lo {
                1 => state.register(number(register)),
                _ => state.register(number(register)).mul(scale, Width::W64),
            }
        }
    };
    base.add(index, Width::W64).add(Value::exact(AddressBase::ZERO, displacement), Width::W64)
}

/// Finds the place of the memory operand, or the rule that it breaks.
pub(crate) fn place(
    step: &Step,
    state: &State,
    stack_arguments: u32,
    surroundings: &Surroundings,
) -> Result<Place, Rule> {
    let address = address(&step.instruction, state);
    let size = i64::try_from(step.instruction.memory_size().size()).unwrap_or(i64::MAX);
    if step.instruction.segment_prefix() == Register::GS {
        return if address.base == AddressBase::ZERO {
            region(address, size, surroundings).map(|()| Place::Region { lo: address.lo, hi: address.hi })
        } else {
            Err(Rule::UnknownAddress)
        };
    }
    match address.base {
        AddressBase::STACK => {
            let stack_pointer = state.stack_pointer().ok_or(Rule::StackPointerUnknown)?;
            let end = address.hi.saturating_add(size);
            if address.lo >= stack_pointer && end <= 0 {
                return Ok(Place::Frame { lo: address.lo, hi: address.hi });
            }
            // The return address is between the frame and the stack arguments.
            let is_argument = address.lo >= 8 && end <= 8 + i64::from(stack_arguments);
            if step.memory == MemoryUse::Read && is_argument {
                return Ok(Place::StackArguments { lo: address.lo, hi: address.hi });
            }
            Err(Rule::OutsideFrame { lo: address.lo, hi: end })
        }
        AddressBase::IMAGE => {
            let constants = &surroundings.constants;
            let end = address.hi.saturating_add(size);
            if step.memory == MemoryUse::Read && address.lo >= constants.start && end <= constants.end {
                Ok(Place::Constants { lo: address.lo, hi: address.hi })
            } else {
                Err(Rule::OutsideConstants)
            }
        }
        _ => Err(Rule::UnknownAddress),
    }
}

/// Checks an access relative to the base of the memory. The sum of an address is exact here: a sum that could overflow
/// is any 64-bit value.
fn region(address: Value, size: i64, surroundings: &Surroundings) -> Result<(), Rule> {
    let lo = i128::from(address.lo);
    let hi = i128::from(address.hi) + i128::from(size) - 1;
    let min = -i128::from(surroundings.limits.globals_bytes);
    let max = MEMORY_BYTES + i128::from(surroundings.limits.guard_bytes) - 1;
    if lo >= min && hi <= max { Ok(()) } else { Err(Rule::OutsideRegion { lo, hi, min, max }) }
}
