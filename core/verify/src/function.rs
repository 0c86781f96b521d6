//! The verification of one function: a fixpoint over its control-flow graph.

use crate::access::{Place, place};
use crate::allow::InstructionClass;
use crate::decode::{MemoryUse, Step, Sweep, number};
use crate::flow::{BasicBlock, Division};
use crate::image::{Callee, CpuFeatures, FunctionFacts, ImageFunction, Surroundings};
use crate::rule::{Report, Rule};
use crate::state::{CALLEE_SAVED, RSP, State};
use crate::transfer::{apply, pushed};
use crate::value::{AddressBase, Value, Width};

/// The work allowed for each instruction of a function. The unit is a value that is copied or joined, about a
/// nanosecond. Compiled code needs less than a tenth.
const WORK_PER_STEP: u64 = 1024;

/// The work of one visit of an instruction.
const WORK_OF_VISIT: u64 = 8;

/// The most values in the states of all blocks of a function, which bounds memory: 80 MiB.
const CELLS_MAX: u64 = 2 << 20;

/// The most states of a function that are kept, so that the next function uses their allocations again. Each can have room for
/// many slots.
const STATES_KEPT: usize = 1024;

/// The number of visits of a loop's first block before its values are widened.
const VISITS_BEFORE_WIDENING: u8 = 2;

/// Tables for the verification of one function after the other.
pub(crate) struct FunctionVerifier {
    sweep: Sweep,
    pub(crate) steps: Vec<Step>,
    division: Division,
    pub(crate) blocks: Vec<BasicBlock>,
    /// The index in `states` for each block that a path leads to.
    pub(crate) entries: Vec<Option<u32>>,
    /// The states at the starts of blocks. The first `states_used` are those of this function; their allocations, and the
    /// further states, are left from earlier functions.
    pub(crate) states: Vec<State>,
    states_used: usize,
    /// The number of visits of each block.
    visits: Vec<u8>,
    /// The blocks to visit.
    pending: Pending,
    /// The state inside the block that is being visited.
    pub(crate) state: State,
    /// True if the states of the last function cover all its executions, apart from those after a rejected instruction.
    pub(crate) is_analysed: bool,
    pub(crate) report: Report,
}

/// A function of an image with the facts about the image.
#[derive(Clone, Copy)]
pub(crate) struct FunctionSubject<'a> {
    pub(crate) function: ImageFunction,
    pub(crate) code: &'a [u8],
    pub(crate) surroundings: &'a Surroundings<'a>,
}

/// The path cannot be followed beyond this instruction. A rejection is in the report. Other paths of the function are still
/// analysed.
pub(crate) struct Abandoned;

/// The rest of the work and memory that the function may take.
struct Budget {
    work: u64,
    cells: u64,
}

impl Budget {
    fn spend(&mut self, work: u64) -> Result<(), Rule> {
        self.work = self.work.checked_sub(work).ok_or(Rule::TooComplex)?;
        Ok(())
    }
}

impl FunctionVerifier {
    pub(crate) fn new(features: CpuFeatures) -> Self {
        Self {
            sweep: Sweep::new(features),
            steps: Vec::new(),
            division: Division::default(),
            blocks: Vec::new(),
            entries: Vec::new(),
            states: Vec::new(),
            states_used: 0,
            visits: Vec::new(),
            pending: Pending::default(),
            state: State::at_entry(),
            is_analysed: false,
            report: Report::default(),
        }
    }

    /// Verifies a function. Its facts are valid only if the report is empty.
    pub(crate) fn verify(&mut self, subject: FunctionSubject) -> FunctionFacts {
        let mut facts = FunctionFacts::default();
        self.report.clear();
        self.sweep.decode(subject.code, subject.function.offset, &mut self.steps, &mut self.report);
        if self.report.is_empty() {
            self.division.divide(&self.steps, &mut self.blocks, &mut self.report);
            facts.callees = self.callees(subject.surroundings);
        }
        self.is_analysed = false;
        // The paths through a function with refused instructions are not known.
        if self.report.is_empty() {
            match self.run(subject, &mut facts) {
                Ok(()) => self.is_analysed = true,
                Err(rule) => self.report.reject(subject.function.offset, rule),
            }
        }
        facts
    }

    /// Returns the targets of all calls, and reports those that are not allowed.
    fn callees(&mut self, surroundings: &Surroundings) -> Vec<Callee> {
        let mut callees = Vec::new();
        for step in self.steps.iter().filter(|step| step.class == InstructionClass::Call) {
            let target = step.target();
            match surroundings.callee(target) {
                Some((callee, _)) => callees.push(callee),
                None => self.report.reject(step.offset(), Rule::CallTarget { target }),
            }
        }
        callees.sort_unstable();
        callees.dedup();
        callees
    }

    /// Visits blocks until no state at the start of a block changes. The last visit of a block uses its final state, so
    /// every instruction is checked in the state that covers all executions.
    fn run(&mut self, subject: FunctionSubject, facts: &mut FunctionFacts) -> Result<(), Rule> {
        let count = self.blocks.len();
        let work = WORK_PER_STEP * (self.steps.len() as u64 + 64);
        let mut budget = Budget { work, cells: CELLS_MAX };
        self.entries.clear();
        self.entries.resize(count, None);
        self.states.truncate(STATES_KEPT);
        self.states_used = 0;
        self.visits.clear();
        self.visits.resize(count, 0);
        self.pending.clear(count);
        self.state = State::at_entry();
        self.enter(0, &mut budget)?;
        while let Some(index) = self.pending.take_first() {
            let Some(entry) = self.entries[index] else {
                continue;
            };
            let block = self.blocks[index];
            self.state.copy_from(&self.states[entry as usize]);
            self.visits[index] = self.visits[index].saturating_add(1);
            budget.spend(WORK_OF_VISIT * u64::from(block.end - block.first) + self.state.cells())?;
            if self.visit(block, subject, facts).is_err() {
                continue;
            }
            if let Some(target) = block.target {
                self.enter(target as usize, &mut budget)?;
            }
            if block.ends_path {
                continue;
            }
            if index + 1 < count {
                self.enter(index + 1, &mut budget)?;
            } else {
                let last = &self.steps[block.end as usize - 1];
                self.report.reject(last.offset(), Rule::FallsThrough);
            }
        }
        Ok(())
    }

    /// Joins the current state into the entry of a block, and marks the block for a visit if it has changed.
    fn enter(&mut self, index: usize, budget: &mut Budget) -> Result<(), Rule> {
        budget.spend(self.state.cells())?;
        let Some(block) = self.blocks.get(index) else {
            return Ok(());
        };
        let Some(known) = self.entries[index] else {
            budget.cells = budget.cells.checked_sub(self.state.cells()).ok_or(Rule::TooComplex)?;
            self.entries[index] = Some(u32::try_from(self.states_used).map_err(|_| Rule::TooComplex)?);
            match self.states.get_mut(self.states_used) {
                Some(reused) => reused.copy_from(&self.state),
                None => self.states.push(self.state.clone()),
            }
            self.states_used += 1;
            self.pending.add(index);
            return Ok(());
        };
        let entry = &mut self.states[known as usize];
        if entry.stack_pointer() != self.state.stack_pointer() {
            let first = &self.steps[block.first as usize];
            if first.class == InstructionClass::Trap {
                // The path ends here, and a trap uses no stack.
                return Ok(());
            }
            self.report.reject(first.offset(), Rule::StackPointerDiffers);
            return Ok(());
        }
        let widen = block.is_loop_head && self.visits[index] >= VISITS_BEFORE_WIDENING;
        if entry.join(&self.state, widen) {
            self.pending.add(index);
        }
        Ok(())
    }

    /// Interprets a block, and checks each of its instructions. The state before the block becomes the one after it.
    fn visit(
        &mut self,
        block: BasicBlock,
        subject: FunctionSubject,
        facts: &mut FunctionFacts,
    ) -> Result<(), Abandoned> {
        let Self { steps, state, report, .. } = self;
        let mut visit = Visit { subject, state, report, facts };
        for step in &steps[block.first as usize..block.end as usize] {
            visit.step(step)?;
        }
        Ok(())
    }
}

/// A visit of one block.
pub(crate) struct Visit<'a> {
    pub(crate) subject: FunctionSubject<'a>,
    pub(crate) state: &'a mut State,
    pub(crate) report: &'a mut Report,
    pub(crate) facts: &'a mut FunctionFacts,
}

impl Visit<'_> {
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), Abandoned> {
        match step.class {
            InstructionClass::Nop
            | InstructionClass::Trap
            | InstructionClass::Jump
            | InstructionClass::Branch => Ok(()),
            InstructionClass::Padding => {
                self.report.reject(step.offset(), Rule::PaddingReached);
                Err(Abandoned)
            }
            InstructionClass::Call => {
                if let Err(rule) = self.call(step) {
                    self.report.reject(step.offset(), rule);
                }
                Ok(())
            }
            InstructionClass::Return => {
                if let Err(rule) = self.check_return() {
                    self.report.reject(step.offset(), rule);
                }
                Ok(())
            }
            InstructionClass::Push => {
                let place = self.place(step);
                let value = pushed(step, place, self.state);
                let pointer = self.move_stack_pointer(step, -8)?;
                self.state.store(pointer, Width::W64, value);
                Ok(())
            }
            InstructionClass::Pop => {
                let pointer = self.state.stack_pointer().unwrap_or(0);
                let value = self.state.load(pointer, Width::W64);
                self.move_stack_pointer(step, 8)?;
                self.state.set_register(number(step.instruction.op0_register()), value);
                self.check_stack_pointer(step)
            }
            _ => {
                let place = self.place(step);
                apply(step, place, self.state);
                if step.written & (1 << RSP) == 0 { Ok(()) } else { self.check_stack_pointer(step) }
            }
        }
    }

    /// The place of the memory operand. None if there is none or it is not allowed.
    fn place(&mut self, step: &Step) -> Option<Place> {
        if step.memory == MemoryUse::None {
            return None;
        }
        let found = place(step, self.state, self.subject.function.stack_arguments, self.subject.surroundings);
        found.map_err(|rule| self.report.reject(step.offset(), rule)).ok()
    }

    /// Moves the stack pointer, and returns its new distance from the entry value.
    fn move_stack_pointer(&mut self, step: &Step, bytes: i64) -> Result<i64, Abandoned> {
        let moved = self.state.register(RSP).add(Value::exact(AddressBase::ZERO, bytes), Width::W64);
        self.state.set_register(RSP, moved);
        self.check_stack_pointer(step)?;
        self.state.stack_pointer().ok_or(Abandoned)
    }

    /// Checks the stack pointer after it is written. An unknown one makes all further checks of the path useless.
    fn check_stack_pointer(&mut self, step: &Step) -> Result<(), Abandoned> {
        let checked = match self.state.stack_pointer() {
            None => Err(Rule::StackPointerUnknown),
            Some(above @ 1..) => Err(Rule::StackPointerAbove { above }),
            Some(pointer) => self.use_frame(pointer).map(|()| pointer),
        };
        match checked {
            Ok(pointer) => {
                self.state.forget_below(pointer);
                Ok(())
            }
            Err(rule) => {
                self.report.reject(step.offset(), rule);
                Err(Abandoned)
            }
        }
    }

    /// Records that the frame extends down to `pointer`.
    fn use_frame(&mut self, pointer: i64) -> Result<(), Rule> {
        let max = self.subject.surroundings.limits.frame_max;
        match u32::try_from(pointer.saturating_neg()) {
            Ok(bytes) if bytes <= max => {
                self.facts.frame_bytes = self.facts.frame_bytes.max(bytes);
                Ok(())
            }
            _ => Err(Rule::FrameTooLarge { bytes: pointer.unsigned_abs(), max }),
        }
    }

    fn call(&mut self, step: &Step) -> Result<(), Rule> {
        let target = step.target();
        let called = self.subject.surroundings.callee(target);
        let (_, arguments) = called.ok_or(Rule::CallTarget { target })?;
        let pointer = self.state.stack_pointer().ok_or(Rule::StackPointerUnknown)?;
        // At entry the stack pointer is 8 above a multiple of 16.
        if pointer.rem_euclid(16) != 8 {
            return Err(Rule::CallAlignment);
        }
        let arguments_end = pointer + i64::from(arguments);
        if arguments_end > 0 {
            return Err(Rule::CallArguments { bytes: arguments });
        }
        // The call writes its return address.
        self.use_frame(pointer - 8)?;
        self.state.forget_caller_saved();
        self.state.forget_below(arguments_end);
        Ok(())
    }

    fn check_return(&self) -> Result<(), Rule> {
        if self.state.stack_pointer() != Some(0) {
            return Err(Rule::ReturnStackPointer);
        }
        let is_restored = |register: u8| {
            self.state.register(register.into()).offset_from(AddressBase::entry(register)) == Some(0)
        };
        match CALLEE_SAVED.into_iter().find(|register| !is_restored(*register)) {
            Some(register) => Err(Rule::CalleeSaved { register }),
            None => Ok(()),
        }
    }
}

/// Blocks to visit, lowest first: a loop is stable before the code behind it is visited.
#[derive(Default)]
struct Pending {
    words: Vec<u64>,
    /// No word before this one has a bit.
    first: usize,
}

impl Pending {
    fn clear(&mut self, count: usize) {
        self.words.clear();
        self.words.resize(count.div_ceil(64), 0);
        self.first = 0;
    }

    fn add(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word |= 1 << (index % 64);
            self.first = self.first.min(index / 64);
        }
    }

    fn take_first(&mut self) -> Option<usize> {
        loop {
            let word = self.words.get_mut(self.first)?;
            if *word == 0 {
                self.first += 1;
                continue;
            }
            let bit = word.trailing_zeros() as usize;
            *word &= *word - 1;
            return Some(self.first * 64 + bit);
        }
    }
}
