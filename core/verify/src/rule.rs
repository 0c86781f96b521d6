//! The rules of the verifier, and the report of those that a code image breaks.

use std::fmt;

use thiserror::Error;

/// The most rejections in one report.
pub const REJECTIONS_MAX: usize = 64;

/// A rule that a code image breaks. The message says what is wrong and what would be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Rule {
    /// The code or the constants are too large.
    #[error("the image has {bytes} bytes of code or constants; at most {max} of each are allowed")]
    ImageTooLarge {
        /// The size of the larger one.
        bytes: u64,
        /// The limit for each.
        max: u32,
    },
    /// The image has too many functions.
    #[error("the image has {functions} functions; at most {max} are allowed")]
    TooManyFunctions {
        /// The number of functions.
        functions: u64,
        /// The limit.
        max: u32,
    },
    /// The functions do not divide the code.
    #[error("functions must be sorted by offset, the first at 0, and each must begin inside the code")]
    FunctionOrder,
    /// The size of the stack arguments is not a number of whole slots.
    #[error("{bytes} bytes of stack arguments; the size must be a multiple of 8")]
    StackArgumentSize {
        /// The size in bytes.
        bytes: u32,
    },
    /// The bytes are not an instruction, or the instruction is longer than the function.
    #[error("no whole instruction; every byte of a function must belong to exactly one instruction")]
    Undecodable,
    /// The instruction is not on the allow-list.
    #[error("the instruction is not on the allow-list")]
    Forbidden,
    /// The instruction needs a CPU feature that the limits do not include.
    #[error("the instruction needs a CPU feature outside the level that the code may use")]
    Feature,
    /// A prefix is repeated, has no use, or changes the instruction in a way that is not allowed.
    #[error(
        "a prefix is not allowed here; an instruction may have one operand-size prefix, one GS prefix on a memory operand, and the prefixes of its opcode"
    )]
    Prefix,
    /// An operand has a form that is not allowed, such as a segment register.
    #[error(
        "the form of an operand is not allowed; operands are general-purpose, XMM and YMM registers, immediates and one memory operand"
    )]
    Operand,
    /// The target of a jump or call is in a register or in memory.
    #[error("an indirect jump or call; only direct ones are allowed")]
    Indirect,
    /// The target of a jump is not an instruction of the same function.
    #[error("the jump leads to {target}; a jump must lead to the start of an instruction of its function")]
    JumpTarget {
        /// The target in image coordinates.
        target: i64,
    },
    /// The target of a call is neither a function nor a granted thunk.
    #[error("the call leads to {target}; a call must lead to the start of a function or to a granted thunk")]
    CallTarget {
        /// The target in image coordinates.
        target: i64,
    },
    /// Execution continues after the last instruction of the function.
    #[error("execution can pass the end of the function; its last instruction must jump, return or trap")]
    FallsThrough,
    /// Execution reaches padding.
    #[error("execution can reach `int3`; it is allowed only as padding")]
    PaddingReached,
    /// The stack pointer is not a known distance from its value at entry.
    #[error(
        "the stack pointer is unknown; only push, pop, and adding or subtracting constants may change it"
    )]
    StackPointerUnknown,
    /// The stack pointer differs between the paths to an instruction.
    #[error("the stack pointer depends on the path to this instruction; it must be the same on each")]
    StackPointerDiffers,
    /// The stack pointer is above its value at entry.
    #[error("the stack pointer is {above} bytes above its value at entry; it must not exceed that value")]
    StackPointerAbove {
        /// The distance in bytes.
        above: i64,
    },
    /// The frame is too large.
    #[error("the frame has {bytes} bytes; at most {max} are allowed")]
    FrameTooLarge {
        /// The distance of the stack pointer from its value at entry.
        bytes: u64,
        /// The limit.
        max: u32,
    },
    /// The stack is not aligned at a call.
    #[error("the stack pointer is not a multiple of 16 at this call")]
    CallAlignment,
    /// The caller's frame does not contain the callee's stack arguments.
    #[error("the callee has {bytes} bytes of stack arguments; they must lie in the caller's frame")]
    CallArguments {
        /// The size of the callee's stack arguments.
        bytes: u32,
    },
    /// The stack pointer at a return is not that at entry.
    #[error("the function returns with another stack pointer than at entry")]
    ReturnStackPointer,
    /// A callee-saved register does not have its entry value at a return.
    #[error("{} may not have its entry value at this return; callee-saved registers must be restored", RegisterName(*register))]
    CalleeSaved {
        /// The number of the register.
        register: u8,
    },
    /// An access through GS may leave the region.
    #[error(
        "the access through GS covers {lo} to {hi}, last byte included; allowed are {min} to {max}: use a zero-extended 32-bit index"
    )]
    OutsideRegion {
        /// The lowest possible byte, relative to the base of the memory.
        lo: i128,
        /// The highest possible byte.
        hi: i128,
        /// The lowest byte of the region.
        min: i128,
        /// The highest byte of the region.
        max: i128,
    },
    /// An access through a stack address may leave the frame.
    #[error(
        "the access covers {lo} to {hi} relative to the stack pointer at entry; a function may access its frame and read its stack arguments"
    )]
    OutsideFrame {
        /// The lowest possible byte, relative to the stack pointer at entry.
        lo: i64,
        /// The end of the access.
        hi: i64,
    },
    /// An access through an image address may leave the constants, or writes them.
    #[error("the access is not a read inside the constants")]
    OutsideConstants,
    /// The address of an access is not known to be in the region, the frame or the constants.
    #[error(
        "the address is not known to be in the region, the frame or the constants; memory is accessed through GS"
    )]
    UnknownAddress,
    /// The function needs too much time or memory to verify.
    #[error("verifying the function needs too much time or memory; make it smaller")]
    TooComplex,
}

impl Rule {
    /// Returns true if the rule is about the address of one access, which a compiler can replace by a checked access.
    #[must_use]
    pub fn is_access(self) -> bool {
        matches!(
            self,
            Self::OutsideRegion { .. }
                | Self::OutsideFrame { .. }
                | Self::OutsideConstants
                | Self::UnknownAddress
        )
    }
}

/// The name of a 64-bit register, by its number in machine code.
struct RegisterName(u8);

impl fmt::Display for RegisterName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            3 => formatter.write_str("rbx"),
            5 => formatter.write_str("rbp"),
            number => write!(formatter, "r{number}"),
        }
    }
}

/// A place in the code that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The index of the function.
    pub function: u32,
    /// The offset of the instruction in the code.
    pub offset: u32,
    /// The rule.
    pub rule: Rule,
}

impl fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "function {}, offset {:#x}: {}", self.function, self.offset, self.rule)
    }
}

/// The places at which a code image breaks rules: at least one, at most [`REJECTIONS_MAX`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the machine code is not proved safe in {} {}; the first is in {}", list.len(), if list.len() == 1 { "place" } else { "places" }, list[0])]
pub struct Rejections {
    list: Vec<Rejection>,
}

impl Rejections {
    pub(crate) fn new(first: Rejection) -> Self {
        Self { list: vec![first] }
    }

    pub(crate) fn from_list(list: Vec<Rejection>) -> Option<Self> {
        (!list.is_empty()).then_some(Self { list })
    }

    /// Returns the rejections, sorted by function and offset. If there are [`REJECTIONS_MAX`], the rest of the code may
    /// break rules, too.
    #[must_use]
    pub fn list(&self) -> &[Rejection] {
        &self.list
    }
}

/// The rejections of one function, one for each offset.
#[derive(Default)]
pub(crate) struct Report {
    found: Vec<(u32, Rule)>,
}

impl Report {
    pub(crate) fn clear(&mut self) {
        self.found.clear();
    }

    /// Adds a rejection. The last rejection of an instruction replaces earlier ones, because later visits of the
    /// instruction know all paths to it.
    pub(crate) fn reject(&mut self, offset: u32, rule: Rule) {
        if let Some(known) = self.found.iter_mut().find(|(at, _)| *at == offset) {
            known.1 = rule;
        } else if self.found.len() < REJECTIONS_MAX {
            self.found.push((offset, rule));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Moves the rejections to `list`, up to its limit.
    pub(crate) fn drain_into(&mut self, function: u32, list: &mut Vec<Rejection>) {
        self.found.sort_unstable_by_key(|(offset, _)| *offset);
        let room = REJECTIONS_MAX.saturating_sub(list.len());
        list.extend(self.found.drain(..).take(room).map(|(offset, rule)| Rejection {
            function,
            offset,
            rule,
        }));
    }
}
