//! The reason why an access is allowed, and the purpose of an instruction, in words.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};
use weir_abi::POLL_PAGE;
use weir_lower::TrapCode;
use weir_sandbox::{ExplainedCode, ExplainedInstruction};
use weir_verify::{Callee, ObservedAccess, Place, Rule};

/// The place of an access, for counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PlaceKind {
    /// The memory of the module, without a comparison before the access.
    Memory,
    /// The memory of the module, after a comparison of the address.
    CheckedMemory,
    /// A global, below the memory.
    Global,
    /// The frame of the function.
    Frame,
    /// The constants of the code.
    Constants,
    /// The arguments on the stack.
    Arguments,
}

impl PlaceKind {
    /// All kinds, in the order of the output.
    pub(super) const ALL: [Self; 6] =
        [Self::Memory, Self::CheckedMemory, Self::Global, Self::Frame, Self::Constants, Self::Arguments];

    /// Returns the name in JSON.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::CheckedMemory => "checked_memory",
            Self::Global => "globals",
            Self::Frame => "frame",
            Self::Constants => "constants",
            Self::Arguments => "arguments",
        }
    }
}

/// The purpose of an instruction beyond its mnemonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InstructionPurpose {
    /// A value is kept in the frame, because the registers do not suffice.
    Spill,
    /// A value is read from the frame.
    Reload,
    /// Fuel is charged.
    Charge,
    /// The page is read that is inaccessible once a call's time is over.
    Poll,
    /// A function of the module is called.
    Call,
    /// A function of the host is called.
    HostCall,
}

/// An instruction with the reason why it is allowed.
pub(super) struct ReasonedInstruction<'a> {
    pub(super) explained: &'a ExplainedInstruction,
    pub(super) decoded: Instruction,
    /// The kind of place of the memory operand.
    pub(super) kind: Option<PlaceKind>,
    pub(super) purpose: Option<InstructionPurpose>,
    /// The rule that the instruction breaks.
    pub(super) broken: Option<Rule>,
    /// The reason why the access is allowed, if there is one.
    pub(super) reason: Option<String>,
}

impl<'a> ReasonedInstruction<'a> {
    /// Explains an instruction. `callee` returns the name of a called function.
    pub(super) fn new(
        explained: &'a ExplainedInstruction,
        decoded: Instruction,
        code: &ExplainedCode,
        broken: Option<Rule>,
        callee: impl Fn(Callee) -> String,
    ) -> Self {
        let facts = &explained.facts;
        let place = facts.operand.and_then(|access| access.place.ok());
        let kind = place.map(|place| kind(place, explained.is_checked));
        let purpose = purpose(explained, &decoded, place);
        let operand = facts.operand.and_then(|access| operand_reason(access, explained, &decoded, code));
        let stack = facts.stack.and_then(|access| stack_reason(access, &decoded));
        let call = facts.callee.map(|called| match called {
            Callee::Function(_) => format!("calls {}", callee(called)),
            Callee::Thunk(_) => format!("calls `{}` of the host", callee(called)),
        });
        let trap = (decoded.mnemonic() == Mnemonic::Ud1).then(|| trap_reason(&decoded));
        let texts: Vec<String> = [operand, call, stack, trap].into_iter().flatten().collect();
        let reason = (!texts.is_empty()).then(|| match purpose {
            Some(InstructionPurpose::Spill) => format!("spill; {}", texts.join("; ")),
            Some(InstructionPurpose::Reload) => format!("reload; {}", texts.join("; ")),
            _ => texts.join("; "),
        });
        Self { explained, decoded, kind, purpose, broken, reason }
    }
}

fn kind(place: Place, is_checked: bool) -> PlaceKind {
    match place {
        Place::Region { lo, .. } if lo < 0 => PlaceKind::Global,
        Place::Region { .. } if is_checked => PlaceKind::CheckedMemory,
        Place::Region { .. } => PlaceKind::Memory,
        Place::Frame { .. } | Place::ReturnAddress => PlaceKind::Frame,
        Place::Constants { .. } => PlaceKind::Constants,
        Place::StackArguments { .. } => PlaceKind::Arguments,
    }
}

fn purpose(
    explained: &ExplainedInstruction,
    decoded: &Instruction,
    place: Option<Place>,
) -> Option<InstructionPurpose> {
    match explained.facts.callee {
        Some(Callee::Function(_)) => return Some(InstructionPurpose::Call),
        Some(Callee::Thunk(_)) => return Some(InstructionPurpose::HostCall),
        None => {}
    }
    let is_write = explained.facts.operand.is_some_and(|access| access.is_write);
    match place? {
        Place::Frame { .. } if is_write && decoded.mnemonic() != Mnemonic::Push => {
            Some(InstructionPurpose::Spill)
        }
        Place::Frame { .. } => Some(InstructionPurpose::Reload),
        Place::Region { lo, hi } if lo == hi && lo == i64::from(POLL_PAGE) => Some(InstructionPurpose::Poll),
        _ => None,
    }
}

/// Returns the reason why the access of a memory operand is allowed; `None` if it is not.
fn operand_reason(
    access: ObservedAccess,
    explained: &ExplainedInstruction,
    decoded: &Instruction,
    code: &ExplainedCode,
) -> Option<String> {
    let constants = code.code.len().next_multiple_of(weir_verify::CONSTANTS_ALIGNMENT as usize);
    let constants = i64::try_from(constants).unwrap_or(i64::MAX);
    let again = if explained.is_isolated { ", compiled again after a rejection" } else { "" };
    Some(match access.place.ok()? {
        Place::Region { lo, hi } if lo == hi && lo < 0 => match code.globals.get(&lo) {
            Some(global) => global.name.clone(),
            None => "globals of the module".to_owned(),
        },
        Place::Region { lo, hi } if hi < 0 => format!("globals of the module: [{lo}, {hi}]"),
        Place::Region { lo, hi } if lo == hi && lo == i64::from(POLL_PAGE) => {
            "poll: traps once the call's time is over".to_owned()
        }
        Place::Region { lo, hi } if lo == hi => format!("module memory: {lo:#x}"),
        Place::Region { .. } if has_32_bit_address(decoded) => {
            format!("module memory: sum modulo 2^32{again}")
        }
        Place::Region { lo, hi } => {
            let offset = decoded.memory_displacement64().cast_signed();
            let (from, to) = (lo.wrapping_sub(offset), hi.wrapping_sub(offset));
            let plus = match offset {
                0 => String::new(),
                1.. => format!(" + {offset}"),
                _ => format!(" - {}", offset.unsigned_abs()),
            };
            let checked = if explained.is_checked { ", compared with the end before" } else { "" };
            format!("module memory: base + [{from}, {to}]{plus}{checked}{again}")
        }
        Place::Frame { lo, hi } if lo == hi => format!("frame: {} bytes below the return address", -lo),
        Place::Frame { lo, hi } => format!("frame: {} to {} bytes below the return address", -hi, -lo),
        Place::Constants { lo, hi } if lo == hi => format!("constant at {:#x}", lo - constants),
        Place::Constants { lo, hi } => {
            format!("constants: {:#x} to {:#x}", lo - constants, hi - constants)
        }
        Place::StackArguments { lo, hi } if lo == hi => format!("stack argument {}", (lo - 8) / 8 + 1),
        Place::StackArguments { lo, hi } => {
            format!("stack arguments {} to {}", (lo - 8) / 8 + 1, (hi - 8) / 8 + 1)
        }
        Place::ReturnAddress => "return address".to_owned(),
    })
}

/// Returns true if the CPU computes the address of an access in 32 bits.
fn has_32_bit_address(decoded: &Instruction) -> bool {
    decoded.memory_base().is_gpr32() || decoded.memory_index().is_gpr32()
}

/// Returns the reason why an instruction may use the stack.
fn stack_reason(access: ObservedAccess, decoded: &Instruction) -> Option<String> {
    let Place::Frame { lo, .. } = access.place.ok()? else { return None };
    let below = lo.unsigned_abs();
    let operand = match decoded.op0_kind() {
        OpKind::Register if decoded.op0_register() != Register::None => decoded.op0_register(),
        _ => Register::None,
    };
    match decoded.code() {
        Code::Push_r64 => {
            Some(format!("frame: {operand:?} is kept {below} bytes below the return address").to_lowercase())
        }
        Code::Pop_r64 => Some(format!("frame: {operand:?} is restored").to_lowercase()),
        _ if decoded.mnemonic() == Mnemonic::Push => {
            Some(format!("frame: {below} bytes below the return address"))
        }
        _ => None,
    }
}

/// Returns the cause of a trap, which is the displacement of the trapping instruction.
fn trap_reason(decoded: &Instruction) -> String {
    let cause = u8::try_from(decoded.memory_displacement64()).ok().and_then(TrapCode::from_number);
    let cause = match cause {
        Some(TrapCode::Unreachable) => "`unreachable`",
        Some(TrapCode::Arithmetic) => "a division or conversion without a result",
        Some(TrapCode::IndirectCall) => "an indirect call to nothing or to another type",
        Some(TrapCode::OutOfBounds) => "an address outside the memory",
        None => "the code ends here",
    };
    format!("trap: {cause}")
}
