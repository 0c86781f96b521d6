//! The facts that the proof rests on, instruction by instruction, for engineers who read the machine code.
//!
//! This file is no part of the argument for safety: it reads the result of the analysis once more, and decides nothing.

use crate::access::{Place, place};
use crate::allow::InstructionClass;
use crate::decode::{MemoryUse, Step};
use crate::function::{FunctionSubject, FunctionVerifier, Visit};
use crate::image::{Callee, FunctionFacts};
use crate::rule::{Report, Rule};

/// An instruction of an image, with the facts that the verifier has found about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedInstruction {
    /// The index of the function.
    pub function: u32,
    /// The offset of the first byte in the code.
    pub offset: u32,
    /// The length in bytes.
    pub bytes: u32,
    /// True if the analysis has a path to the instruction. False in padding, and in a function that was rejected before it
    /// was analysed to its end.
    pub is_reached: bool,
    /// The access through the memory operand.
    pub operand: Option<ObservedAccess>,
    /// The access to the stack of an instruction that pushes, pops, calls or returns.
    pub stack: Option<ObservedAccess>,
    /// The function or thunk that the instruction calls.
    pub callee: Option<Callee>,
}

/// An access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedAccess {
    /// True if the access writes, or reads and writes.
    pub is_write: bool,
    /// The number of bytes.
    pub bytes: u32,
    /// The place that is proved, or the rule that the access breaks.
    pub place: Result<Place, Rule>,
}

impl FunctionVerifier {
    /// Calls `observe` for each decoded instruction of the function that was verified last.
    pub(crate) fn observe(
        &mut self,
        function: u32,
        subject: FunctionSubject,
        observe: &mut impl FnMut(ObservedInstruction),
    ) {
        let plain = |step: &Step| ObservedInstruction {
            function,
            offset: step.offset(),
            bytes: u32::try_from(step.instruction.len()).unwrap_or(u32::MAX),
            is_reached: false,
            operand: None,
            stack: None,
            callee: match step.class {
                InstructionClass::Call => {
                    subject.surroundings.callee(step.target()).map(|(callee, _)| callee)
                }
                _ => None,
            },
        };
        if !self.is_analysed {
            self.steps.iter().for_each(|step| observe(plain(step)));
            return;
        }
        let (mut report, mut facts) = (Report::default(), FunctionFacts::default());
        for (block, entry) in self.blocks.iter().zip(&self.entries) {
            let entry = entry.and_then(|entry| self.states.get(entry as usize));
            if let Some(entry) = entry {
                self.state.copy_from(entry);
            }
            let mut visit = Visit { subject, state: &mut self.state, report: &mut report, facts: &mut facts };
            let mut is_reached = entry.is_some();
            let steps = self.steps.get(block.first as usize..block.end as usize).unwrap_or_default();
            for step in steps {
                let mut observed = plain(step);
                if is_reached {
                    observed.is_reached = true;
                    observed.operand = visit.operand(step);
                    observed.stack = visit.stack(step);
                    is_reached = visit.step(step).is_ok();
                }
                observe(observed);
            }
        }
    }
}

impl Visit<'_> {
    fn operand(&self, step: &Step) -> Option<ObservedAccess> {
        (step.memory != MemoryUse::None).then(|| ObservedAccess {
            is_write: step.memory == MemoryUse::Write,
            bytes: u32::try_from(step.instruction.memory_size().size()).unwrap_or(u32::MAX),
            place: place(step, self.state, self.subject.function.stack_arguments, self.subject.surroundings),
        })
    }

    fn stack(&self, step: &Step) -> Option<ObservedAccess> {
        let pointer = self.state.stack_pointer().ok_or(Rule::StackPointerUnknown);
        let frame =
            |below: i64| pointer.map(|pointer| Place::Frame { lo: pointer - below, hi: pointer - below });
        let (is_write, place) = match step.class {
            InstructionClass::Push | InstructionClass::Call => (true, frame(8)),
            InstructionClass::Pop => (false, frame(0)),
            InstructionClass::Return => (false, Ok(Place::ReturnAddress)),
            _ => return None,
        };
        Some(ObservedAccess { is_write, bytes: 8, place })
    }
}
