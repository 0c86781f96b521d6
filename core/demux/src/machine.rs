//! The classic BPF machine: its instruction codes and its operations.
//!
//! Compiler, checker and interpreter share these definitions.

/// Instruction codes. A and X are the accumulator and the index register; k is the operand.
pub mod code {
    /// A = k.
    pub const LD_IMM: u16 = 0x00;
    /// X = k.
    pub const LDX_IMM: u16 = 0x01;
    /// A = the packet's length on the link.
    pub const LD_LEN: u16 = 0x80;
    /// X = the packet's length on the link.
    pub const LDX_LEN: u16 = 0x81;
    /// A = a word of scratch memory.
    pub const LD_MEM: u16 = 0x60;
    /// X = a word of scratch memory.
    pub const LDX_MEM: u16 = 0x61;
    /// X = four times the lower half of the byte at k.
    pub const LDX_MSH: u16 = 0xb1;
    /// A = the packet's bytes at k. The code is combined with a width ([`LoadWidth::code`](crate::LoadWidth::code)).
    pub const LD_ABS: u16 = 0x20;
    /// A = the packet's bytes at X + k. The code is combined with a width
    /// ([`LoadWidth::code`](crate::LoadWidth::code)).
    pub const LD_IND: u16 = 0x40;
    /// A word of scratch memory = A.
    pub const ST: u16 = 0x02;
    /// Arithmetic on A. The code is combined with an operation ([`Alu::code`](crate::Alu::code)).
    pub const ALU: u16 = 0x04;
    /// A = -A.
    pub const NEG: u16 = 0x84;
    /// X = A.
    pub const TAX: u16 = 0x07;
    /// A = X.
    pub const TXA: u16 = 0x87;
    /// A jump over k instructions.
    pub const JA: u16 = 0x05;
    /// A test for A = k.
    pub const JEQ: u16 = 0x15;
    /// A test for A > k.
    pub const JGT: u16 = 0x25;
    /// A test for A >= k.
    pub const JGE: u16 = 0x35;
    /// A test for A & k != 0.
    pub const JSET: u16 = 0x45;
    /// The flag in the code of arithmetic and tests whose operand is X instead of k.
    pub const BY_X: u16 = 0x08;
    /// The end of the program: the packet is accepted if k is not 0.
    pub const RET: u16 = 0x06;
}

/// The width of a load from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LoadWidth {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
}

impl LoadWidth {
    /// The number of bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
        }
    }

    /// The greatest number of this width.
    pub const fn max(self) -> u32 {
        match self {
            Self::Byte => 0xff,
            Self::Half => 0xffff,
            Self::Word => u32::MAX,
        }
    }

    /// The bits of the width in the code of a load.
    pub const fn code(self) -> u16 {
        match self {
            Self::Word => 0x00,
            Self::Half => 0x08,
            Self::Byte => 0x10,
        }
    }
}

/// Arithmetic of the machine, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alu {
    /// Addition.
    Add,
    /// Subtraction.
    Sub,
    /// Multiplication.
    Mul,
    /// Division, rounded down.
    Div,
    /// The remainder of a division.
    Mod,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// A shift to the left.
    Lsh,
    /// A shift to the right.
    Rsh,
}

impl Alu {
    /// All operations.
    pub const ALL: [Self; 10] = [
        Self::Add,
        Self::Sub,
        Self::Mul,
        Self::Div,
        Self::Mod,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::Lsh,
        Self::Rsh,
    ];

    /// The bits of the operation in the code of an arithmetic instruction.
    pub const fn code(self) -> u16 {
        match self {
            Self::Add => 0x00,
            Self::Sub => 0x10,
            Self::Mul => 0x20,
            Self::Div => 0x30,
            Self::Or => 0x40,
            Self::And => 0x50,
            Self::Lsh => 0x60,
            Self::Rsh => 0x70,
            Self::Mod => 0x90,
            Self::Xor => 0xa0,
        }
    }

    /// The result for the operands `a` and `b`; `None` for a division by 0. A shift by more than 31 bits gives 0.
    #[inline(always)]
    pub fn compute(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => a.checked_div(b)?,
            Self::Mod => a.checked_rem(b)?,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Lsh => a.checked_shl(b).unwrap_or(0),
            Self::Rsh => a.checked_shr(b).unwrap_or(0),
        })
    }
}
