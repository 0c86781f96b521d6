//! An interpreter for filter programs. It runs the programs that cannot be joined, and is the reference that tests
//! compare the joined filters with.

use crate::machine::LoadWidth;
use crate::packet::{LoadFailure, MoreBytes, Packet};
use crate::program::{DecodedInstruction, FilterProgram, Operand, SCRATCH, Test};

impl FilterProgram {
    /// Returns true if the program accepts a packet. At most [`longest_path`](Self::longest_path) instructions are
    /// executed. Registers and scratch memory are 0 at the start.
    ///
    /// # Errors
    ///
    /// [`MoreBytes`] if the program reads bytes beyond the packet's `head`.
    pub fn accepts(&self, packet: &Packet<'_>) -> Result<bool, MoreBytes> {
        match self.run(packet) {
            Ok(accepted) => Ok(accepted),
            Err(LoadFailure::Reject) => Ok(false),
            Err(LoadFailure::More(more)) => Err(more),
        }
    }

    fn run(&self, packet: &Packet<'_>) -> Result<bool, LoadFailure> {
        let (mut a, mut x, mut scratch, mut at) = (0_u32, 0_u32, [0_u32; SCRATCH], 0);
        // The last instruction returns, and no jump leads beyond it.
        while let Some(step) = self.steps().get(at) {
            at += 1;
            let set =
                |to_x: bool, value: u32, a: &mut u32, x: &mut u32| if to_x { *x = value } else { *a = value };
            match *step {
                DecodedInstruction::Load { width, indexed, k } => {
                    let at = if indexed { x.checked_add(k).ok_or(LoadFailure::Reject)? } else { k };
                    a = packet.load(width, at)?;
                }
                DecodedInstruction::HeaderLength { k } => x = header_length(packet, k)?,
                DecodedInstruction::Constant { to_x, k } => set(to_x, k, &mut a, &mut x),
                DecodedInstruction::Length { to_x } => set(to_x, packet.wire_len, &mut a, &mut x),
                DecodedInstruction::LoadScratch { to_x, word } => set(to_x, scratch[word], &mut a, &mut x),
                DecodedInstruction::Store { from_x, word } => scratch[word] = if from_x { x } else { a },
                DecodedInstruction::Alu(alu, Operand::K(k)) => {
                    a = alu.compute(a, k).ok_or(LoadFailure::Reject)?
                }
                DecodedInstruction::Alu(alu, Operand::X) => {
                    a = alu.compute(a, x).ok_or(LoadFailure::Reject)?
                }
                DecodedInstruction::Negate => a = a.wrapping_neg(),
                DecodedInstruction::Tax => x = a,
                DecodedInstruction::Txa => a = x,
                DecodedInstruction::Jump(to) => at = to,
                DecodedInstruction::Branch { test, operand, yes, no } => {
                    let other = match operand {
                        Operand::K(k) => k,
                        Operand::X => x,
                    };
                    at = if holds(test, a, other) { yes } else { no };
                }
                DecodedInstruction::ReturnConstant(k) => return Ok(k != 0),
                DecodedInstruction::ReturnA => return Ok(a != 0),
            }
        }
        Ok(false)
    }
}

/// Four times the lower half of the byte at `k`: the length of an IPv4 header that begins there.
#[inline(always)]
pub(crate) fn header_length(packet: &Packet<'_>, k: u32) -> Result<u32, LoadFailure> {
    packet.load(LoadWidth::Byte, k).map(|byte| (byte & 0xf) << 2)
}

/// Returns true if a test of `a` against `b` holds.
#[inline(always)]
pub(crate) fn holds(test: Test, a: u32, b: u32) -> bool {
    match test {
        Test::Eq => a == b,
        Test::Gt => a > b,
        Test::Ge => a >= b,
        Test::Set => a & b != 0,
    }
}
