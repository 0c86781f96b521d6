//! The linear sweep: the bytes of a function become instructions of the allow-list.

use iced_x86::{
    Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use crate::allow::{InstructionClass, class, has_feature};
use crate::image::CpuFeatures;
use crate::prefix::{Prefixes, is_vector_length_used};
use crate::rule::{Report, Rule};

/// The use of an explicit memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    /// There is no memory operand, or it is not accessed.
    None,
    Read,
    /// A write, or a read and a write.
    Write,
}

/// An instruction, with the effects that the rest of the verifier needs to know.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) instruction: Instruction,
    pub(crate) class: InstructionClass,
    pub(crate) memory: MemoryUse,
    /// The first operand is written.
    pub(crate) writes_first: bool,
    /// The general-purpose registers that are written, explicitly or implicitly: bit n is register n.
    pub(crate) written: u16,
}

impl Default for Step {
    fn default() -> Self {
        Self {
            instruction: Instruction::default(),
            class: InstructionClass::Forbidden,
            memory: MemoryUse::None,
            writes_first: false,
            written: 0,
        }
    }
}

impl Step {
    /// The offset of the instruction in the code.
    pub(crate) fn offset(&self) -> u32 {
        self.instruction.ip32()
    }

    /// The target of a direct jump or call, in image coordinates.
    pub(crate) fn target(&self) -> i64 {
        self.instruction.near_branch64().cast_signed()
    }
}

/// Decodes functions. The tables of the decoder are reused from one function to the next.
pub(crate) struct Sweep {
    features: CpuFeatures,
    factory: InstructionInfoFactory,
}

impl Sweep {
    pub(crate) fn new(features: CpuFeatures) -> Self {
        Self { features, factory: InstructionInfoFactory::new() }
    }

    /// Decodes the function that begins at `offset` and consists of `bytes`, and reports each instruction that is not
    /// allowed. The sweep ends at bytes that are no instruction.
    pub(crate) fn decode(&mut self, bytes: &[u8], offset: u32, steps: &mut Vec<Step>, report: &mut Report) {
        steps.clear();
        let mut decoder = Decoder::with_ip(64, bytes, offset.into(), DecoderOptions::NONE);
        while decoder.can_decode() {
            let from = decoder.position();
            // Decoded in place: a copy of a fresh instruction waits for each of its parts to be written.
            let step = steps.push_mut(Step::default());
            decoder.decode_out(&mut step.instruction);
            if step.instruction.is_invalid() {
                report.reject(step.offset(), Rule::Undecodable);
                return;
            }
            let bytes = bytes.get(from..decoder.position()).unwrap_or_default();
            if let Err(rule) = self.examine(step, bytes) {
                report.reject(step.offset(), rule);
            }
        }
    }

    /// Checks the form of an instruction, and looks up its effects.
    fn examine(&mut self, step: &mut Step, bytes: &[u8]) -> Result<(), Rule> {
        let instruction = &step.instruction;
        step.class = self.class(instruction)?;
        let prefixes = Prefixes::of(bytes).filter(|prefixes| prefixes.are_allowed(step.class, instruction));
        if prefixes.is_none() || !is_vector_length_used(bytes, instruction) {
            return Err(Rule::Prefix);
        }
        check_operands(step.class, instruction)?;
        let info = self.factory.info(instruction);
        step.writes_first = is_write(info.op0_access());
        for operand in 0..instruction.op_count() {
            if instruction.op_kind(operand) == OpKind::Memory {
                step.memory = match info.op_access(operand) {
                    OpAccess::None | OpAccess::NoMemAccess => MemoryUse::None,
                    access if is_write(access) => MemoryUse::Write,
                    _ => MemoryUse::Read,
                };
            }
        }
        match step.class {
            InstructionClass::Nop | InstructionClass::Trap => step.memory = MemoryUse::None,
            InstructionClass::Call
            | InstructionClass::Return
            | InstructionClass::Push
            | InstructionClass::Pop => {}
            _ => {
                // Any other implicit access is a mistake in the allow-list.
                let accessed =
                    info.used_memory().iter().filter(|used| used.access() != OpAccess::NoMemAccess);
                if accessed.count() > usize::from(step.memory != MemoryUse::None) {
                    return Err(Rule::Operand);
                }
            }
        }
        let size_is_known = step.memory == MemoryUse::None || instruction.memory_size().size() != 0;
        let write_is_first = step.memory != MemoryUse::Write || instruction.op0_kind() == OpKind::Memory;
        if !size_is_known || !write_is_first {
            return Err(Rule::Operand);
        }
        for used in info.used_registers() {
            if is_write(used.access()) && used.register().is_gpr() {
                step.written |= 1 << number(used.register());
            }
        }
        Ok(())
    }

    fn class(&self, instruction: &Instruction) -> Result<InstructionClass, Rule> {
        let mnemonic = instruction.mnemonic();
        let class = class(mnemonic);
        if class == InstructionClass::Forbidden {
            return Err(Rule::Forbidden);
        }
        if matches!(class, InstructionClass::Jump | InstructionClass::Call)
            && instruction.op0_kind() != OpKind::NearBranch64
        {
            return Err(Rule::Indirect);
        }
        if !matches!(instruction.encoding(), EncodingKind::Legacy | EncodingKind::VEX) {
            return Err(Rule::Feature);
        }
        if mnemonic == Mnemonic::Tzcnt {
            // CPUs without BMI1 execute `tzcnt` as `bsf`, and compilers use it there where both are the same.
            return Ok(if self.features == CpuFeatures::Baseline {
                InstructionClass::BitScan
            } else {
                InstructionClass::Count
            });
        }
        let has = |feature: &_| has_feature(self.features, *feature);
        if instruction.cpuid_features().iter().all(has) { Ok(class) } else { Err(Rule::Feature) }
    }
}

fn is_write(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// The number of the 64-bit register that a general-purpose register is part of.
pub(crate) fn number(register: Register) -> usize {
    register.full_register().number() & 15
}

/// Checks the operands: none is of a kind that the rest of the verifier does not know.
fn check_operands(class: InstructionClass, instruction: &Instruction) -> Result<(), Rule> {
    let mut memory = false;
    for operand in 0..instruction.op_count() {
        let is_allowed = match instruction.op_kind(operand) {
            OpKind::Register => is_allowed_register(instruction.op_register(operand)),
            OpKind::Memory => {
                memory = true;
                is_allowed_address(instruction)
            }
            OpKind::NearBranch64 => true,
            OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => true,
            _ => false,
        };
        if !is_allowed {
            return Err(Rule::Operand);
        }
    }
    let kind = instruction.op0_kind();
    let size_is_8 = match kind {
        OpKind::Register => instruction.op0_register().size() == 8,
        OpKind::Memory => instruction.memory_size().size() == 8,
        _ => matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64),
    };
    match class {
        // A 16-bit push, or `pop` to memory, which uses the changed stack pointer.
        InstructionClass::Push if !size_is_8 => Err(Rule::Operand),
        InstructionClass::Pop if !size_is_8 || memory => Err(Rule::Operand),
        // It adds a number to the stack pointer.
        InstructionClass::Return if instruction.op_count() != 0 => Err(Rule::Operand),
        // Vendors disagree about the size of the source of a 16-bit `movsxd`.
        InstructionClass::SignExtend
            if instruction.mnemonic() == Mnemonic::Movsxd && instruction.op0_register().size() == 2 =>
        {
            Err(Rule::Operand)
        }
        // An exchange with memory locks the bus.
        InstructionClass::Exchange if memory => Err(Rule::Operand),
        // A bit number in a register selects memory far from the address of the operand.
        InstructionClass::BitTest if memory && instruction.op1_kind() == OpKind::Register => {
            Err(Rule::Operand)
        }
        _ => Ok(()),
    }
}

fn is_allowed_register(register: Register) -> bool {
    register.is_gpr()
        || (Register::XMM0..=Register::XMM15).contains(&register)
        || (Register::YMM0..=Register::YMM15).contains(&register)
}

fn is_allowed_address(instruction: &Instruction) -> bool {
    let base = instruction.memory_base();
    let index = instruction.memory_index();
    // `Prefixes` allows a 32-bit address only with registers, and relative to GS.
    let is_general =
        |register: Register| register == Register::None || register.is_gpr64() || register.is_gpr32();
    (is_general(base) || base == Register::RIP || is_not_accessed(instruction))
        && (is_general(index) || is_not_accessed(instruction))
}

/// Returns true for instructions that may have an address of any form, because they do not access it.
fn is_not_accessed(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Ud1)
}
