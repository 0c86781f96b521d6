//! The control-flow graph of a function.

use crate::allow::InstructionClass;
use crate::decode::Step;
use crate::rule::{Report, Rule};

/// A sequence of instructions that is entered only at its first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BasicBlock {
    /// The index of the first instruction.
    pub(crate) first: u32,
    /// The index after the last instruction.
    pub(crate) end: u32,
    /// The block that a jump at the end leads to.
    pub(crate) target: Option<u32>,
    /// The end of the block is the end of a path, or a jump that is always taken.
    pub(crate) ends_path: bool,
    /// A block at the same or a later place jumps to this one. Every cycle contains such a block.
    pub(crate) is_loop_head: bool,
}

/// Tables for the division of one function after the other.
#[derive(Default)]
pub(crate) struct Division {
    /// The offset of each instruction.
    offsets: Vec<u32>,
    /// The number of blocks that begin at or before each instruction. Before blocks are counted: 1 if one begins there.
    begun: Vec<u32>,
    /// The index of the instruction that each jump leads to.
    targets: Vec<u32>,
}

impl Division {
    /// Divides the instructions of a function into blocks, and checks the target of each jump, reachable or not.
    pub(crate) fn divide(&mut self, steps: &[Step], blocks: &mut Vec<BasicBlock>, report: &mut Report) {
        blocks.clear();
        self.find_leaders(steps, report);
        let mut begun = 0;
        for leaders in &mut self.begun {
            begun += *leaders;
            *leaders = begun;
        }
        let block_at = |step: u32| self.begun.get(step as usize).and_then(|begun| begun.checked_sub(1));
        let mut targets = self.targets.iter().map(|target| block_at(*target));
        let mut first = 0;
        for (index, step) in (0..).zip(steps) {
            if block_at(index) == block_at(index + 1) {
                continue;
            }
            blocks.push(BasicBlock {
                first,
                end: index + 1,
                target: if jumps(step.class) { targets.next().flatten() } else { None },
                ends_path: ends_block(step.class) && step.class != InstructionClass::Branch,
                is_loop_head: false,
            });
            first = index + 1;
        }
        for index in 0..blocks.len() {
            if let Some(target) =
                blocks[index].target.map(|target| target as usize).filter(|target| *target <= index)
            {
                blocks[target].is_loop_head = true;
            }
        }
    }

    /// Marks the first instruction of each block.
    fn find_leaders(&mut self, steps: &[Step], report: &mut Report) {
        self.offsets.clear();
        self.offsets.extend(steps.iter().map(Step::offset));
        self.targets.clear();
        self.begun.clear();
        self.begun.resize(steps.len(), 0);
        let mut mark = |index: usize| self.begun.get_mut(index).map(|begun| *begun = 1);
        mark(0);
        for (index, step) in steps.iter().enumerate() {
            if ends_block(step.class) {
                mark(index + 1);
            }
            if !jumps(step.class) {
                continue;
            }
            let target = step.target();
            match u32::try_from(target).ok().and_then(|target| self.offsets.binary_search(&target).ok()) {
                Some(found) => {
                    mark(found);
                    self.targets.push(u32::try_from(found).unwrap_or(u32::MAX));
                }
                None => report.reject(step.offset(), Rule::JumpTarget { target }),
            }
        }
    }
}

fn jumps(class: InstructionClass) -> bool {
    matches!(class, InstructionClass::Jump | InstructionClass::Branch)
}

fn ends_block(class: InstructionClass) -> bool {
    matches!(
        class,
        InstructionClass::Jump | InstructionClass::Branch | InstructionClass::Return | InstructionClass::Trap
    )
}
