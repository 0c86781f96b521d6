//! Checked programs of the classic BPF machine.
//!
//! S. McCanne, V. Jacobson: "The BSD Packet Filter", USENIX Winter 1993. The instruction set is that of libpcap. The
//! extensions of Linux, which are loads from negative offsets, are not supported: such a load counts as a load beyond
//! the packet's end, and rejects the packet.

use crate::machine::{Alu, LoadWidth, code};

/// The most instructions of a program, as in Linux (BPF_MAXINSNS).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// The number of words of scratch memory.
pub const SCRATCH: usize = 16;

/// An encoded instruction, as in `struct bpf_insn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The instruction code: class, width and mode, or class, operation and kind of operand.
    pub code: u16,
    /// The number of instructions to skip if a test holds.
    pub jt: u8,
    /// The number of instructions to skip if a test does not hold.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// The error for an invalid program. Instructions are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The program has no instructions.
    #[error("the program has no instructions")]
    Empty,
    /// More than [`INSTRUCTIONS_MAX`] instructions.
    #[error("the program has {0} instructions, {INSTRUCTIONS_MAX} are the limit")]
    TooLong(usize),
    /// An unknown instruction code.
    #[error("instruction {at}: unknown code {code:#06x}")]
    UnknownCode {
        /// The index of the instruction.
        at: usize,
        /// The code.
        code: u16,
    },
    /// A jump leads out of the program. Backward jumps are included, because they are encoded as very long forward jumps.
    #[error("instruction {at}: the jump leads out of the program, to {to}")]
    JumpOut {
        /// The index of the instruction.
        at: usize,
        /// The target of the jump.
        to: u64,
    },
    /// The program does not end with a return.
    #[error("instruction {at}: the last instruction of a program must be a return")]
    NoReturn {
        /// The index of the last instruction.
        at: usize,
    },
    /// A word of scratch memory that does not exist.
    #[error("instruction {at}: there is no word {k} of scratch memory, only {SCRATCH}")]
    NoScratch {
        /// The index of the instruction.
        at: usize,
        /// The index of the word.
        k: u32,
    },
    /// A division or remainder by the constant 0.
    #[error("instruction {at}: division by 0")]
    DivisionByZero {
        /// The index of the instruction.
        at: usize,
    },
    /// A shift by a constant over 31.
    #[error("instruction {at}: a shift by {k} bits, 31 are the limit")]
    ShiftTooFar {
        /// The index of the instruction.
        at: usize,
        /// The number of bits.
        k: u32,
    },
}

/// The operand of an arithmetic instruction or test, besides the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A constant.
    K(u32),
    /// The index register.
    X,
}

/// A test of the accumulator against an operand, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Test {
    Eq,
    Gt,
    Ge,
    /// Accumulator and operand have a common bit that is 1.
    Set,
}

/// A decoded instruction. The targets of jumps are indices of instructions, and always later than the jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodedInstruction {
    /// A = the packet at k, or at X + k.
    Load {
        width: LoadWidth,
        indexed: bool,
        k: u32,
    },
    /// X = four times the lower half of the byte at k: the length of an IPv4 header.
    HeaderLength {
        k: u32,
    },
    /// A or X = k.
    Constant {
        to_x: bool,
        k: u32,
    },
    /// A or X = the packet's length on the link.
    Length {
        to_x: bool,
    },
    /// A or X = a word of scratch memory.
    LoadScratch {
        to_x: bool,
        word: usize,
    },
    /// A word of scratch memory = A or X.
    Store {
        from_x: bool,
        word: usize,
    },
    /// A = A operation operand.
    Alu(Alu, Operand),
    /// A = -A.
    Negate,
    /// X = A.
    Tax,
    /// A = X.
    Txa,
    Jump(usize),
    /// Jumps to `yes` if the test holds, else to `no`.
    Branch {
        test: Test,
        operand: Operand,
        yes: usize,
        no: usize,
    },
    /// Accepts if k is not 0.
    ReturnConstant(u32),
    /// Accepts if A is not 0.
    ReturnA,
}

/// A checked program. It ends for every packet, and accesses only the packet, the registers and scratch memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterProgram {
    instructions: Box<[Instruction]>,
    steps: Box<[DecodedInstruction]>,
    /// The most instructions that the program executes for a packet.
    longest_path: usize,
}

impl FilterProgram {
    /// Checks a program.
    ///
    /// # Errors
    ///
    /// [`ProgramError`], which names the faulty instruction.
    pub fn new(instructions: &[Instruction]) -> Result<FilterProgram, ProgramError> {
        let Some(last) = instructions.len().checked_sub(1) else { return Err(ProgramError::Empty) };
        if instructions.len() > INSTRUCTIONS_MAX {
            return Err(ProgramError::TooLong(instructions.len()));
        }
        let steps = instructions
            .iter()
            .enumerate()
            .map(|(at, instruction)| decode(at, instruction, instructions.len()))
            .collect::<Result<Box<[DecodedInstruction]>, ProgramError>>()?;
        if !matches!(steps[last], DecodedInstruction::ReturnConstant(_) | DecodedInstruction::ReturnA) {
            return Err(ProgramError::NoReturn { at: last });
        }
        let longest_path = longest_path(&steps);
        Ok(FilterProgram { instructions: instructions.into(), steps, longest_path })
    }

    /// A program that accepts every packet.
    pub fn accept_all() -> FilterProgram {
        let instruction = Instruction { code: code::RET, k: u32::MAX, ..Instruction::default() };
        FilterProgram {
            instructions: [instruction].into(),
            steps: [DecodedInstruction::ReturnConstant(u32::MAX)].into(),
            longest_path: 1,
        }
    }

    /// The instructions, as passed to [`FilterProgram::new`].
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The most instructions that the program executes for a packet.
    pub fn longest_path(&self) -> usize {
        self.longest_path
    }

    /// The decoded instructions.
    pub(crate) fn steps(&self) -> &[DecodedInstruction] {
        &self.steps
    }

    /// A program that accepts exactly the packets that both programs accept. Callers combine programs instead of filter
    /// texts, because a text such as `tcp) or (udp` would change the meaning of the text around it.
    ///
    /// # Errors
    ///
    /// [`ProgramError::TooLong`], if the combined program has too many instructions.
    pub fn and(&self, other: &FilterProgram) -> Result<FilterProgram, ProgramError> {
        let mut combined = self.instructions.to_vec();
        let returns_a = self.steps.contains(&DecodedInstruction::ReturnA);
        let end = combined.len();
        // Each accepting return of the first program becomes a jump behind its end. One instruction replaces one, so
        // all other jumps stay right.
        for (at, step) in self.steps.iter().enumerate() {
            let to = match step {
                DecodedInstruction::ReturnConstant(k) if *k != 0 => end + if returns_a { 2 } else { 0 },
                DecodedInstruction::ReturnA => end,
                _ => continue,
            };
            let k = u32::try_from(to - at - 1).unwrap_or(u32::MAX);
            combined[at] = Instruction { code: code::JA, k, ..Instruction::default() };
        }
        if returns_a {
            combined.push(Instruction { code: code::JEQ, jt: 0, jf: 1, k: 0 });
            combined.push(Instruction { code: code::RET, ..Instruction::default() });
        }
        // The second program begins with cleared registers and scratch memory, as if it ran alone.
        let without_jump = |code, k| Instruction { code, k, ..Instruction::default() };
        combined.push(without_jump(code::LD_IMM, 0));
        combined.push(without_jump(code::TAX, 0));
        let mut written = [false; SCRATCH];
        for step in &self.steps {
            if let DecodedInstruction::Store { word, .. } = step {
                written[*word] = true;
            }
        }
        let mut cleared = [false; SCRATCH];
        for step in &other.steps {
            if let DecodedInstruction::LoadScratch { word, .. } = step
                && written[*word]
                && !std::mem::replace(&mut cleared[*word], true)
            {
                combined.push(without_jump(code::ST, u32::try_from(*word).unwrap_or(0)));
            }
        }
        combined.extend_from_slice(&other.instructions);
        FilterProgram::new(&combined)
    }
}

/// Decodes and checks the instruction with the index `at` of a program with `len` instructions.
fn decode(at: usize, instruction: &Instruction, len: usize) -> Result<DecodedInstruction, ProgramError> {
    let Instruction { code, jt, jf, k } = *instruction;
    let unknown = ProgramError::UnknownCode { at, code };
    // Bits 0 to 2 are the class. For loads and stores, bits 3 and 4 are the width and bits 5 to 7 the mode. For
    // arithmetic and jumps, bit 3 is the kind of operand and bits 4 to 7 are the operation.
    if code > 0xff {
        return Err(unknown);
    }
    let (class, width, mode) = (code & 7, code & 0x18, code & 0xe0);
    let word = || {
        let word = usize::try_from(k).unwrap_or(usize::MAX);
        if word < SCRATCH { Ok(word) } else { Err(ProgramError::NoScratch { at, k }) }
    };
    let to = |skip: u64| {
        let to = skip + 1 + u64::try_from(at).unwrap_or(u64::MAX >> 1);
        usize::try_from(to).ok().filter(|&to| to < len).ok_or(ProgramError::JumpOut { at, to })
    };
    let operand = if code & 8 == 0 { Operand::K(k) } else { Operand::X };
    let to_x = class == 1;
    Ok(match (class, mode, width) {
        (0, 0x20 | 0x40, _) => {
            let widths = [LoadWidth::Byte, LoadWidth::Half, LoadWidth::Word];
            let Some(width) = widths.into_iter().find(|known| known.code() == width) else {
                return Err(unknown);
            };
            DecodedInstruction::Load { width, indexed: mode == 0x40, k }
        }
        (0 | 1, 0, 0) => DecodedInstruction::Constant { to_x, k },
        (0 | 1, 0x60, 0) => DecodedInstruction::LoadScratch { to_x, word: word()? },
        (0 | 1, 0x80, 0) => DecodedInstruction::Length { to_x },
        (1, 0xa0, 0x10) => DecodedInstruction::HeaderLength { k },
        (2 | 3, 0, 0) => DecodedInstruction::Store { from_x: class == 3, word: word()? },
        (4, ..) => {
            if code & 0xf0 == 0x80 && operand == Operand::K(k) {
                return Ok(DecodedInstruction::Negate);
            }
            let Some(operation) = Alu::ALL.into_iter().find(|alu| alu.code() == code & 0xf0) else {
                return Err(unknown);
            };
            match (operation, operand) {
                (Alu::Div | Alu::Mod, Operand::K(0)) => return Err(ProgramError::DivisionByZero { at }),
                (Alu::Lsh | Alu::Rsh, Operand::K(k)) if k > 31 => {
                    return Err(ProgramError::ShiftTooFar { at, k });
                }
                _ => DecodedInstruction::Alu(operation, operand),
            }
        }
        (5, ..) => {
            let test = match code & 0xf0 {
                0x00 if operand == Operand::K(k) => return Ok(DecodedInstruction::Jump(to(u64::from(k))?)),
                0x10 => Test::Eq,
                0x20 => Test::Gt,
                0x30 => Test::Ge,
                0x40 => Test::Set,
                _ => return Err(unknown),
            };
            DecodedInstruction::Branch { test, operand, yes: to(u64::from(jt))?, no: to(u64::from(jf))? }
        }
        (6, ..) => match code {
            0x06 => DecodedInstruction::ReturnConstant(k),
            0x16 => DecodedInstruction::ReturnA,
            _ => return Err(unknown),
        },
        (7, ..) => match code {
            0x07 => DecodedInstruction::Tax,
            0x87 => DecodedInstruction::Txa,
            _ => return Err(unknown),
        },
        _ => return Err(unknown),
    })
}

/// The length of the longest path through a program. All jumps lead forwards.
fn longest_path(steps: &[DecodedInstruction]) -> usize {
    let mut from = vec![0; steps.len() + 1];
    for (at, step) in steps.iter().enumerate().rev() {
        from[at] = 1 + match *step {
            DecodedInstruction::ReturnConstant(_) | DecodedInstruction::ReturnA => 0,
            DecodedInstruction::Jump(to) => from[to],
            DecodedInstruction::Branch { yes, no, .. } => from[yes].max(from[no]),
            _ => from[at + 1],
        };
    }
    from[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;

    fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
        Instruction { code, jt, jf, k }
    }

    fn error(code: u16, jt: u8, jf: u8, k: u32) -> Option<ProgramError> {
        let all = [instruction(0, 0, 0, 0), instruction(code, jt, jf, k), instruction(6, 0, 0, 1)];
        FilterProgram::new(&all).err()
    }

    #[test]
    fn an_error_names_the_faulty_instruction() {
        assert_eq!(FilterProgram::new(&[]), Err(ProgramError::Empty));
        assert_eq!(error(0x05, 0, 0, 0), None);
        assert_eq!(error(0x05, 0, 0, 1), Some(ProgramError::JumpOut { at: 1, to: 3 }));
        // Back by two instructions, as libpcap writes it for `protochain`.
        assert_eq!(error(0x05, 0, 0, u32::MAX - 1), Some(ProgramError::JumpOut { at: 1, to: 0x1_0000_0000 }));
        assert_eq!(error(0x15, 0, 7, 0), Some(ProgramError::JumpOut { at: 1, to: 9 }));
        assert_eq!(error(0x02, 0, 0, 16), Some(ProgramError::NoScratch { at: 1, k: 16 }));
        assert_eq!(error(0x60, 0, 0, 15), None);
        assert_eq!(error(0x34, 0, 0, 0), Some(ProgramError::DivisionByZero { at: 1 }));
        assert_eq!(error(0x94, 0, 0, 0), Some(ProgramError::DivisionByZero { at: 1 }));
        assert_eq!(error(0x64, 0, 0, 32), Some(ProgramError::ShiftTooFar { at: 1, k: 32 }));
        assert_eq!(error(0x108, 0, 0, 0), Some(ProgramError::UnknownCode { at: 1, code: 0x108 }));
        assert_eq!(
            FilterProgram::new(&[instruction(0, 0, 0, 0)]).err(),
            Some(ProgramError::NoReturn { at: 0 }),
            "a program must not run on after its end"
        );
        let long = vec![instruction(6, 0, 0, 0); INSTRUCTIONS_MAX + 1];
        assert_eq!(FilterProgram::new(&long), Err(ProgramError::TooLong(INSTRUCTIONS_MAX + 1)));
        assert!(FilterProgram::new(&long[1..]).is_ok());
    }

    #[test]
    fn every_code_is_known_or_refused() {
        let is_known = |code| !matches!(error(code, 0, 0, 1), Some(ProgramError::UnknownCode { .. }));
        let known = (0..=u16::MAX).filter(|&code| is_known(code)).count();
        // 6 loads from the packet, 2 constants, 2 recalls, 2 lengths, 1 header length, 2 stores, 10 operations on K and
        // X and the negation, 1 jump, 4 tests on K and X, 2 returns, 2 moves.
        assert_eq!(known, 6 + 2 + 2 + 2 + 1 + 2 + 21 + 9 + 2 + 2);
    }

    #[test]
    fn a_conjunction_requires_both_programs_and_clears_the_registers_between_them() {
        let packet = Packet { head: &[5, 7], cap_len: 2, wire_len: 2 };
        let accepts = |program: &FilterProgram| program.accepts(&packet) == Ok(true);
        let byte_is = |at, value| {
            FilterProgram::new(&[
                instruction(0x30, 0, 0, at),
                instruction(0x15, 0, 1, value),
                instruction(6, 0, 0, 1),
                instruction(6, 0, 0, 0),
            ])
            .unwrap()
        };
        for (first, second) in [(5, 7), (5, 8), (6, 7), (6, 8)] {
            let joined = byte_is(0, first).and(&byte_is(1, second)).unwrap();
            assert_eq!(accepts(&joined), first == 5 && second == 7, "{first}, {second}");
        }
        // A = 3, X = 3, M[2] = 3, return A; and: return 1 where A, X and M[2] are 0.
        let dirty = FilterProgram::new(&[
            instruction(0x00, 0, 0, 3),
            instruction(0x07, 0, 0, 0),
            instruction(0x02, 0, 0, 2),
            instruction(0x16, 0, 0, 0),
        ])
        .unwrap();
        let wants_clean = FilterProgram::new(&[
            instruction(0x0c, 0, 0, 0),
            instruction(0x07, 0, 0, 0),
            instruction(0x60, 0, 0, 2),
            instruction(0x0c, 0, 0, 0),
            instruction(0x15, 0, 1, 0),
            instruction(6, 0, 0, 1),
            instruction(6, 0, 0, 0),
        ])
        .unwrap();
        assert!(accepts(&dirty.and(&wants_clean).unwrap()));
        assert!(accepts(&wants_clean.and(&dirty).unwrap()));
        assert!(!accepts(&dirty.and(&byte_is(0, 6)).unwrap()));
        let clean_a = FilterProgram::new(&[instruction(0x16, 0, 0, 0)]).unwrap();
        assert!(!accepts(&clean_a.and(&FilterProgram::accept_all()).unwrap()));
        let long = FilterProgram::new(&vec![instruction(6, 0, 0, 1); INSTRUCTIONS_MAX]).unwrap();
        assert_eq!(long.and(&clean_a), Err(ProgramError::TooLong(INSTRUCTIONS_MAX + 3)));
    }

    #[test]
    fn the_longest_path_is_the_most_instructions_for_a_packet() {
        let program = FilterProgram::new(&[
            instruction(0x15, 2, 0, 1),
            instruction(0x00, 0, 0, 1),
            instruction(0x05, 0, 0, 1),
            instruction(6, 0, 0, 0),
            instruction(6, 0, 0, 1),
        ]);
        assert_eq!(program.unwrap().longest_path(), 4);
    }
}
