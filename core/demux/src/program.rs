//! Programs of the classic BPF machine, checked.
//!
//! S. McCanne, V. Jacobson: "The BSD Packet Filter", USENIX Winter 1993. The instruction set is that of libpcap and of Linux without
//! the latter's extensions (loads from negative offsets are loads beyond the packet's end here, and reject it).

use crate::machine::{Alu, LoadWidth, code};

/// Instructions that a program can have: what Linux allows (BPF_MAXINSNS).
pub const INSTRUCTIONS_MAX: usize = 4096;
/// Words of scratch memory.
pub const SCRATCH: usize = 16;

/// An instruction as it is encoded, `struct bpf_insn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// Instructions to skip where a test is true.
    pub jt: u8,
    /// Instructions to skip where it is false.
    pub jf: u8,
    /// Its operand.
    pub k: u32,
}

/// A program that is no program. Instructions are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// There is nothing to run.
    #[error("the program has no instructions")]
    Empty,
    /// More than [`INSTRUCTIONS_MAX`] instructions.
    #[error("the program has {0} instructions, {INSTRUCTIONS_MAX} are the limit")]
    TooLong(usize),
    /// There is no such instruction.
    #[error("instruction {at}: there is no code {code:#06x}")]
    UnknownCode {
        /// Which instruction.
        at: usize,
        /// What it says.
        code: u16,
    },
    /// A jump leads out of the program. Jumps backwards are jumps very far forwards.
    #[error("instruction {at}: the jump leads out of the program, to {to}")]
    JumpOut {
        /// Which instruction.
        at: usize,
        /// To where it jumps.
        to: u64,
    },
    /// The program does not end with a return.
    #[error("instruction {at}: the program goes on after its end; the last instruction must return")]
    NoReturn {
        /// The last instruction.
        at: usize,
    },
    /// A word of scratch memory that does not exist.
    #[error("instruction {at}: there is no word {k} of scratch memory, only {SCRATCH}")]
    NoScratch {
        /// Which instruction.
        at: usize,
        /// The word.
        k: u32,
    },
    /// A division or remainder by the constant 0.
    #[error("instruction {at}: division by 0")]
    DivisionByZero {
        /// Which instruction.
        at: usize,
    },
    /// A shift by a constant over 31.
    #[error("instruction {at}: a shift by {k} bits, 31 are the limit")]
    ShiftTooFar {
        /// Which instruction.
        at: usize,
        /// By how many bits.
        k: u32,
    },
}

/// What an instruction works with, besides the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    K(u32),
    X,
}

/// A test of the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Test {
    Eq,
    Gt,
    Ge,
    Set,
}

/// An instruction that was understood. Jumps say where they lead, which is always further down.
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
    Recall {
        to_x: bool,
        word: usize,
    },
    /// A word of scratch memory = A or X.
    Store {
        from_x: bool,
        word: usize,
    },
    Alu(Alu, Operand),
    Negate,
    Tax,
    Txa,
    Jump(usize),
    Branch {
        test: Test,
        operand: Operand,
        yes: usize,
        no: usize,
    },
    /// Accept, where k is not 0.
    ReturnConstant(u32),
    /// Accept, where A is not 0.
    ReturnA,
}

/// A program that ends for every packet, and touches nothing but the packet and its own registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterProgram {
    instructions: Box<[Instruction]>,
    steps: Box<[DecodedInstruction]>,
    longest: usize,
}

impl FilterProgram {
    /// Checks a program.
    ///
    /// # Errors
    ///
    /// [`ProgramError`], which says which instruction is wrong.
    pub fn new(instructions: &[Instruction]) -> Result<FilterProgram, ProgramError> {
        let Some(last) = instructions.len().checked_sub(1) else { return Err(ProgramError::Empty) };
        if instructions.len() > INSTRUCTIONS_MAX {
            return Err(ProgramError::TooLong(instructions.len()));
        }
        let steps = instructions
            .iter()
            .enumerate()
            .map(|(at, instruction)| understand(at, instruction, instructions.len()))
            .collect::<Result<Box<[DecodedInstruction]>, ProgramError>>()?;
        if !matches!(steps[last], DecodedInstruction::ReturnConstant(_) | DecodedInstruction::ReturnA) {
            return Err(ProgramError::NoReturn { at: last });
        }
        let longest = longest(&steps);
        Ok(FilterProgram { instructions: instructions.into(), steps, longest })
    }

    /// A program that accepts every packet.
    pub fn everything() -> FilterProgram {
        let instruction = Instruction { code: code::RET, k: u32::MAX, ..Instruction::default() };
        FilterProgram {
            instructions: [instruction].into(),
            steps: [DecodedInstruction::ReturnConstant(u32::MAX)].into(),
            longest: 1,
        }
    }

    /// Its instructions, as they were given.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// How many instructions it executes at most.
    pub fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) fn steps(&self) -> &[DecodedInstruction] {
        &self.steps
    }

    /// A program that accepts what both accept. This is how filters are joined: two texts in one can mean something else than both.
    ///
    /// # Errors
    ///
    /// [`ProgramError::TooLong`], where both together have more instructions than a program can have.
    pub fn and(&self, other: &FilterProgram) -> Result<FilterProgram, ProgramError> {
        let mut joined = self.instructions.to_vec();
        let returns_a = self.steps.contains(&DecodedInstruction::ReturnA);
        let end = joined.len();
        // What is written is one instruction for each, so that no jump of the first program changes.
        for (at, step) in self.steps.iter().enumerate() {
            let to = match step {
                DecodedInstruction::ReturnConstant(k) if *k != 0 => end + if returns_a { 2 } else { 0 },
                DecodedInstruction::ReturnA => end,
                _ => continue,
            };
            let k = u32::try_from(to - at - 1).unwrap_or(u32::MAX);
            joined[at] = Instruction { code: code::JA, k, ..Instruction::default() };
        }
        if returns_a {
            joined.push(Instruction { code: code::JEQ, jt: 0, jf: 1, k: 0 });
            joined.push(Instruction { code: code::RET, ..Instruction::default() });
        }
        // The second program starts as if it were the first: with nothing in its registers and its scratch memory.
        let zero = |code, k| Instruction { code, k, ..Instruction::default() };
        joined.push(zero(code::LD_IMM, 0));
        joined.push(zero(code::TAX, 0));
        let mut written = [false; SCRATCH];
        for step in &self.steps {
            if let DecodedInstruction::Store { word, .. } = step {
                written[*word] = true;
            }
        }
        let mut cleared = [false; SCRATCH];
        for step in &other.steps {
            if let DecodedInstruction::Recall { word, .. } = step
                && written[*word]
                && !std::mem::replace(&mut cleared[*word], true)
            {
                joined.push(zero(code::ST, u32::try_from(*word).unwrap_or(0)));
            }
        }
        joined.extend_from_slice(&other.instructions);
        FilterProgram::new(&joined)
    }
}

fn understand(at: usize, instruction: &Instruction, len: usize) -> Result<DecodedInstruction, ProgramError> {
    let Instruction { code, jt, jf, k } = *instruction;
    let unknown = ProgramError::UnknownCode { at, code };
    // Bits 0 to 2: class; 3 and 4: width; 5 to 7: mode. For arithmetic and jumps 3: operand; 4 to 7: operation.
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
        (0 | 1, 0x60, 0) => DecodedInstruction::Recall { to_x, word: word()? },
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

/// The longest way through a program: all jumps lead forwards.
fn longest(steps: &[DecodedInstruction]) -> usize {
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
    fn what_is_wrong_is_said_with_the_instruction_at_which_it_is() {
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
            "it would run on after its end"
        );
        let long = vec![instruction(6, 0, 0, 0); INSTRUCTIONS_MAX + 1];
        assert_eq!(FilterProgram::new(&long), Err(ProgramError::TooLong(INSTRUCTIONS_MAX + 1)));
        assert!(FilterProgram::new(&long[1..]).is_ok());
    }

    #[test]
    fn every_code_is_known_or_refused() {
        let is_known = |code| !matches!(error(code, 0, 0, 1), Some(ProgramError::UnknownCode { .. }));
        let known = (0..=u16::MAX).filter(|&code| is_known(code)).count();
        // 6 loads from the packet, 2 constants, 2 recalls, 2 lengths, 1 header length, 2 stores, 10 operations on K and X and
        // the negation, 1 jump, 4 tests on K and X, 2 returns, 2 moves.
        assert_eq!(known, 6 + 2 + 2 + 2 + 1 + 2 + 21 + 9 + 2 + 2);
    }

    #[test]
    fn both_programs_have_to_accept_and_the_second_starts_from_nothing() {
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
        assert!(!accepts(&clean_a.and(&FilterProgram::everything()).unwrap()));
        let long = FilterProgram::new(&vec![instruction(6, 0, 0, 1); INSTRUCTIONS_MAX]).unwrap();
        assert_eq!(long.and(&clean_a), Err(ProgramError::TooLong(INSTRUCTIONS_MAX + 3)));
    }

    #[test]
    fn the_longest_way_is_known() {
        let program = FilterProgram::new(&[
            instruction(0x15, 2, 0, 1),
            instruction(0x00, 0, 0, 1),
            instruction(0x05, 0, 0, 1),
            instruction(6, 0, 0, 0),
            instruction(6, 0, 0, 1),
        ]);
        assert_eq!(program.unwrap().longest(), 4);
    }
}
