//! The causes of traps that the machine code itself finds.

/// The cause of a trap that is an instruction of the machine code. The other cause is an access outside the memory, which
/// the processor finds. No number is 0, so that the instruction always has a byte for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TrapCode {
    /// The instruction `unreachable`.
    Unreachable = 1,
    /// A division by zero, or one with overflow, or a conversion of a float without a result.
    Arithmetic = 2,
    /// An indirect call of an empty element, outside the table, or with another type.
    IndirectCall = 3,
    /// An access to memory whose address with its offset is beyond 4 GiB.
    OutOfBounds = 4,
}

impl TrapCode {
    /// The cause with this number, which is an operand of the trapping instruction.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Unreachable,
            2 => Self::Arithmetic,
            3 => Self::IndirectCall,
            4 => Self::OutOfBounds,
            _ => return None,
        })
    }
}
