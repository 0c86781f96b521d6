//! Prefixes. CPUs and decoders disagree about some unusual combinations, so only usual ones are allowed.

use iced_x86::{EncodingKind, Instruction, OpKind, Register};

use crate::access::has_32_bit_registers;
use crate::allow::InstructionClass;

/// The legacy prefixes of an instruction.
#[derive(Clone, Copy)]
pub(crate) struct Prefixes(u8);

impl Prefixes {
    /// `66`
    const OPERAND_SIZE: u8 = 1;
    /// `66`, more than once
    const PADDING: u8 = 2;
    /// `67`
    const ADDRESS_SIZE: u8 = 4;
    /// `65`
    const GS: u8 = 8;
    /// `2e`
    const CS: u8 = 16;
    /// `f2` or `f3`
    const REPEAT: u8 = 32;

    /// Returns None for prefixes that no instruction may have, and for combinations without a use.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let mut found = 0;
        let mut bytes = bytes.iter();
        loop {
            let prefix = match bytes.next()? {
                0x66 if found & Self::OPERAND_SIZE != 0 => Self::PADDING,
                0x66 => Self::OPERAND_SIZE,
                0x67 => Self::ADDRESS_SIZE,
                0x65 => Self::GS,
                0x2e => Self::CS,
                0xf2 | 0xf3 => Self::REPEAT,
                // LOCK, the segments ES, SS, DS and FS.
                0xf0 | 0x26 | 0x36 | 0x3e | 0x64 => return None,
                // A REX prefix counts only directly before the opcode.
                0x40..=0x4f if bytes.next().is_some_and(|next| is_prefix(*next)) => return None,
                _ => return Some(Self(found)),
            };
            if found & prefix != 0 && prefix != Self::PADDING {
                return None;
            }
            found |= prefix;
        }
    }

    /// Returns the address-size prefix if an instruction with an explicit memory operand may have it: relative to GS, with a
    /// general-purpose register. Without a register, the prefix changes the length of some instructions.
    fn address_size(self, instruction: &Instruction) -> u8 {
        if self.0 & Self::GS != 0 && has_32_bit_registers(instruction) { Self::ADDRESS_SIZE } else { 0 }
    }

    /// Returns true if an instruction of this class may have these prefixes.
    pub(crate) fn are_allowed(self, class: InstructionClass, instruction: &Instruction) -> bool {
        // A prefix that is part of the opcode is not reported as a repeat prefix.
        if instruction.has_rep_prefix() || instruction.has_repne_prefix() || instruction.has_lock_prefix() {
            return false;
        }
        let allowed = match class {
            InstructionClass::Nop => Self::OPERAND_SIZE | Self::PADDING | Self::ADDRESS_SIZE | Self::CS,
            // The form of `llvm.ubsantrap`.
            InstructionClass::Trap => Self::ADDRESS_SIZE,
            // Vendors disagree about the operand size of branches.
            InstructionClass::Jump
            | InstructionClass::Branch
            | InstructionClass::Call
            | InstructionClass::Return => 0,
            InstructionClass::Lea => Self::OPERAND_SIZE,
            InstructionClass::Push | InstructionClass::Pop => Self::GS,
            _ if has_memory(instruction) => {
                Self::OPERAND_SIZE | Self::GS | Self::REPEAT | self.address_size(instruction)
            }
            _ => Self::OPERAND_SIZE | Self::REPEAT,
        };
        let both = Self::OPERAND_SIZE | Self::REPEAT;
        self.0 & !allowed == 0 && self.0 & both != both
    }
}

/// Returns false for a VEX prefix that says 256 bits although no operand has them. Its effect depends on the CPU.
pub(crate) fn is_vector_length_used(bytes: &[u8], instruction: &Instruction) -> bool {
    const LENGTH: u8 = 4;
    if instruction.encoding() != EncodingKind::VEX {
        return true;
    }
    let says_256 = match bytes.iter().position(|byte| matches!(byte, 0xc4 | 0xc5)) {
        Some(at) => {
            let length = if bytes[at] == 0xc5 { bytes.get(at + 1) } else { bytes.get(at + 2) };
            length.is_some_and(|byte| byte & LENGTH != 0)
        }
        None => true,
    };
    let has_256 = |operand| match instruction.op_kind(operand) {
        OpKind::Register => (Register::YMM0..=Register::YMM15).contains(&instruction.op_register(operand)),
        OpKind::Memory => instruction.memory_size().size() == 32,
        _ => false,
    };
    !says_256 || (0..instruction.op_count()).any(has_256)
}

fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

fn has_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}
