//! A plain interpreter: for programs that cannot be joined with others, and what joined programs are tested against.

use crate::machine::Width;
use crate::packet::{Lack, MoreBytes, Packet};
use crate::program::{Operand, Program, SCRATCH, Step, Test};

impl Program {
    /// Whether it accepts a packet. It executes at most [`longest`](Self::longest) instructions. Scratch memory is 0 in the beginning.
    ///
    /// # Errors
    ///
    /// [`MoreBytes`], where it looks at bytes that are not at hand.
    pub fn accepts(&self, packet: &Packet<'_>) -> Result<bool, MoreBytes> {
        match self.run(packet) {
            Ok(accepted) => Ok(accepted),
            Err(Lack::Reject) => Ok(false),
            Err(Lack::More(more)) => Err(more),
        }
    }

    fn run(&self, packet: &Packet<'_>) -> Result<bool, Lack> {
        let (mut a, mut x, mut scratch, mut at) = (0_u32, 0_u32, [0_u32; SCRATCH], 0);
        // The last instruction returns, and none leads beyond it.
        while let Some(step) = self.steps().get(at) {
            at += 1;
            let put =
                |to_x: bool, value: u32, a: &mut u32, x: &mut u32| if to_x { *x = value } else { *a = value };
            match *step {
                Step::Load { width, indexed, k } => {
                    let at = if indexed { x.checked_add(k).ok_or(Lack::Reject)? } else { k };
                    a = packet.load(width, at)?;
                }
                Step::HeaderLength { k } => x = header_length(packet, k)?,
                Step::Constant { to_x, k } => put(to_x, k, &mut a, &mut x),
                Step::Length { to_x } => put(to_x, packet.wire_len, &mut a, &mut x),
                Step::Recall { to_x, word } => put(to_x, scratch[word], &mut a, &mut x),
                Step::Store { from_x, word } => scratch[word] = if from_x { x } else { a },
                Step::Alu(alu, Operand::K(k)) => a = alu.compute(a, k).ok_or(Lack::Reject)?,
                Step::Alu(alu, Operand::X) => a = alu.compute(a, x).ok_or(Lack::Reject)?,
                Step::Negate => a = a.wrapping_neg(),
                Step::Tax => x = a,
                Step::Txa => a = x,
                Step::Jump(to) => at = to,
                Step::Branch { test, operand, yes, no } => {
                    let other = match operand {
                        Operand::K(k) => k,
                        Operand::X => x,
                    };
                    at = if holds(test, a, other) { yes } else { no };
                }
                Step::ReturnConstant(k) => return Ok(k != 0),
                Step::ReturnA => return Ok(a != 0),
            }
        }
        Ok(false)
    }
}

/// Four times the lower half of the byte at `k`.
#[inline(always)]
pub(crate) fn header_length(packet: &Packet<'_>, k: u32) -> Result<u32, Lack> {
    packet.load(Width::Byte, k).map(|byte| (byte & 0xf) << 2)
}

#[inline(always)]
pub(crate) fn holds(test: Test, a: u32, b: u32) -> bool {
    match test {
        Test::Eq => a == b,
        Test::Gt => a > b,
        Test::Ge => a >= b,
        Test::Set => a & b != 0,
    }
}
