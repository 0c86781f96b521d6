//! The results of an analysis.

use crate::Linear;
use crate::reason::UnboundedReason;
use std::fmt;
use weir_abi::entry::EntryPoint;

/// The quantity that the work of an entry point grows with (P. Patel, J. Lepreau, "Hybrid resource control of active
/// extensions", OPENARCH 2003, table I). Ordered by how hard the quantity is to predict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkClass {
    /// No quantity: the work does not depend on the input.
    #[default]
    Constant,
    /// The length of the packet.
    PacketLength,
    /// The length of a protocol header.
    HeaderLength,
    /// The length of a parameter that is a list or a string.
    ConfigurationLength,
    /// The value of a parameter.
    ConfigurationValue,
    /// A field of a header, or another part of the packet's contents.
    HeaderField,
    /// Any quantity: the work has no bound.
    Unbounded,
}

impl fmt::Display for WorkClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::PacketLength => "packet length",
            Self::HeaderLength => "header length",
            Self::ConfigurationLength => "configuration length",
            Self::ConfigurationValue => "configuration value",
            Self::HeaderField => "header field",
            Self::Unbounded => "unbounded",
        })
    }
}

/// The most of each resource that one call of an entry point uses. Each bound is linear in the captured length of the
/// packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceBound {
    /// The fuel of the executed instructions and host calls.
    pub fuel: Linear,
    /// Records: calls of `emit`.
    pub records: Linear,
    /// Patches of packets: calls of `patch`.
    pub patches: Linear,
    /// Frames that the call sends: calls of `send`.
    pub frames: Linear,
    /// Pages of 64 KiB that the call requests by `memory.grow`.
    pub pages: Linear,
}

impl ResourceBound {
    /// No usage.
    pub const NOTHING: Self = Self {
        fuel: Linear::ZERO,
        records: Linear::ZERO,
        patches: Linear::ZERO,
        frames: Linear::ZERO,
        pages: Linear::ZERO,
    };

    /// A usage of fuel alone.
    pub const fn fuel(fuel: u64) -> Self {
        Self { fuel: Linear::constant(fuel), ..Self::NOTHING }
    }

    /// Combines the bounds of each resource.
    fn zip(self, other: Self, combine: impl Fn(Linear, Linear) -> Linear) -> Self {
        Self {
            fuel: combine(self.fuel, other.fuel),
            records: combine(self.records, other.records),
            patches: combine(self.patches, other.patches),
            frames: combine(self.frames, other.frames),
            pages: combine(self.pages, other.pages),
        }
    }

    /// The bounds of all resources in a fixed order: fuel, records, patches, frames, pages.
    pub(crate) const fn as_array(&self) -> [Linear; 5] {
        [self.fuel, self.records, self.patches, self.frames, self.pages]
    }

    /// The usage of two parts of the code that run one after the other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, Linear::plus)
    }

    /// The larger bound of each resource.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        self.zip(other, Linear::join)
    }

    /// The usage of `times` repetitions. `packet_max` is the longest packet, in bytes.
    #[must_use]
    pub fn times(self, times: Linear, packet_max: u64) -> Self {
        self.zip(Self::NOTHING, |amount, _| amount.times(times, packet_max))
    }
}

/// A place in a module's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeLocation {
    /// Index of the function.
    pub function: u32,
    /// Name of the function, where the module has names.
    pub name: Option<String>,
    /// Offset of the instruction in the module's bytes.
    pub offset: u64,
    /// Line of the author's source, if the module has DWARF.
    pub line: Option<SourceLine>,
}

/// A line of the author's source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file, as the compiler recorded it.
    pub file: String,
    /// The line number, counted from 1.
    pub line: u32,
}

impl fmt::Display for CodeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}")?,
            None => write!(f, "function {}", self.function)?,
        }
        match &self.line {
            Some(SourceLine { file, line }) => write!(f, " ({file}:{line})"),
            None => write!(f, " (byte {})", self.offset),
        }
    }
}

/// The bounds of a loop. A loop is analysed once for each abstract value of its function's arguments, and again each
/// time that the analyser goes through the loops around it. Each bound is the largest of all these analyses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopBound {
    /// The location of the `loop` instruction.
    pub place: CodeLocation,
    /// The number of loops of the same function that contain this loop.
    pub depth: u32,
    /// The most iterations each time the loop is entered.
    pub trips: Linear,
    /// The most fuel of one iteration, including inner loops and callees.
    pub body: Linear,
    /// The most fuel of all iterations each time the loop is entered.
    pub total: Linear,
    /// The quantity that the trip count grows with.
    pub class: WorkClass,
    /// The cause, if the loop has no bound.
    pub reason: Option<UnboundedReason>,
    /// A formula for the trip count over locals at the loop's entry, if one is known.
    pub trip_formula: Option<TripCountFormula>,
}

/// A formula for an upper bound on a loop's trip count: `1 + (sum of locals x coefficient + constant) / step`. The sum
/// is evaluated where the loop is entered, in wrapping `i32` arithmetic, and read as unsigned. The meter charges a loop
/// with such a formula before the loop begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TripCountFormula {
    /// The locals in the sum, by index, and their coefficients. All have the type `i32`.
    pub terms: Vec<(u32, i32)>,
    /// The constant of the sum.
    pub constant: i32,
    /// The step of the loop's induction variable; a power of two.
    pub step: u32,
}

/// The bound of a call of a host function, for all abstract values of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// The location of the `call` instruction.
    pub place: CodeLocation,
    /// The name of the host function.
    pub name: &'static str,
    /// The most fuel of one call.
    pub fuel: Linear,
}

/// The bound of a call of a function of the module, for all abstract values of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBound {
    /// The location of the call instruction.
    pub place: CodeLocation,
    /// The name of the called function; "a function of the table" for an indirect call.
    pub callee: String,
    /// The most fuel that the callee uses in one call from this location.
    pub fuel: Linear,
}

/// A step of the path from an entry point to the location that contributes most to a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// The code location.
    pub place: CodeLocation,
    /// The kind of code at the location.
    pub kind: StepKind,
    /// The amount of the path's resource that one call of the entry point uses at this step.
    pub amount: Linear,
}

/// The kind of a path step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A loop with this trip count.
    Loop(Linear),
    /// A call of the module's function of this name.
    Call(String),
    /// A call of the host function of this name.
    Host(&'static str),
    /// A bulk memory or table instruction.
    Bulk,
    /// `memory.grow`.
    Grow,
    /// A function's stack frame.
    StackFrame,
    /// A function's part of the shadow stack, which holds the locals that have addresses.
    ShadowStackFrame,
}

/// The step of a path that a report names as the largest contributor: the innermost step that is not a call of a
/// function of the module.
pub(crate) fn contributor(path: &[PathStep]) -> Option<&PathStep> {
    path.iter().rev().find(|step| !matches!(step.kind, StepKind::Call(_))).or(path.last())
}

/// The locations that contribute most to the resources of an entry point other than fuel; `None` where a resource is
/// not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopContributors {
    /// The location that emits most records.
    pub records: Option<PathStep>,
    /// The location that patches most packets.
    pub patches: Option<PathStep>,
    /// The location that sends most frames.
    pub frames: Option<PathStep>,
    /// The location that requests most pages.
    pub pages: Option<PathStep>,
    /// The function with the largest stack frame, in bytes.
    pub stack: Option<PathStep>,
    /// The location that takes the largest part of the shadow stack, in bytes; unbounded if it moves the shadow stack
    /// pointer by an unknown amount.
    pub shadow_stack: Option<PathStep>,
}

/// The bounds of an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBound {
    /// The entry point.
    pub entry: EntryPoint,
    /// The most of each resource that one call uses. For an entry point that receives a batch, a bound at a packet length
    /// is that of 64 packets of this length.
    pub usage: ResourceBound,
    /// The most bytes of stack: the sum of the frames on the deepest call path. The size of a frame is computed from
    /// the function's locals and operands. `None` if there is no bound.
    pub stack: Option<u64>,
    /// The most bytes by which the module's shadow stack grows: LLVM's stack in the module's memory, for locals that
    /// have addresses. `None` if there is no bound.
    pub shadow_stack: Option<u64>,
    /// The quantity that the work grows with.
    pub class: WorkClass,
    /// The code locations without a bound, with causes; empty if there is a bound.
    pub unbounded: Vec<UnboundedReason>,
    /// The path to the location that contributes most to the fuel.
    pub hottest: Vec<PathStep>,
    /// The largest contributors to the other resources.
    pub top: TopContributors,
}

impl EntryBound {
    /// The location that contributes most to the fuel.
    pub fn top_contributor(&self) -> Option<&PathStep> {
        contributor(&self.hottest)
    }

    /// Returns true if the fuel has a bound and no code location lacks one.
    pub fn is_bounded(&self) -> bool {
        self.unbounded.is_empty() && self.usage.fuel.is_bounded()
    }
}

/// The results of an analysis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The entry points that the module has, in the order in which weir calls them.
    pub entries: Vec<EntryBound>,
    /// All loops that an entry point can reach, sorted by offset. Loops in recursive functions, and in functions that
    /// recursive ones call, are left out, because the arguments of these functions are unknown.
    pub loops: Vec<LoopBound>,
    /// All calls of functions of the module that an entry point can reach, sorted by offset. Recursive calls are left
    /// out, as are calls in recursive functions and in functions that recursive ones call.
    pub calls: Vec<CallBound>,
    /// All calls of host functions that an entry point can reach, sorted by offset. Calls in recursive functions, and
    /// in functions that recursive ones call, are left out.
    pub host_calls: Vec<HostCall>,
}

impl Analysis {
    /// The bounds of an entry point, if the module has it.
    pub fn entry(&self, entry: EntryPoint) -> Option<&EntryBound> {
        self.entries.iter().find(|found| found.entry == entry)
    }

    /// The bounds of the loop whose `loop` instruction is at this offset in the module's bytes.
    pub fn loop_at(&self, offset: u64) -> Option<&LoopBound> {
        let index = self.loops.binary_search_by_key(&offset, |found| found.place.offset).ok()?;
        self.loops.get(index)
    }

    /// Returns true if every entry point has a bound.
    pub fn is_bounded(&self) -> bool {
        self.entries.iter().all(EntryBound::is_bounded)
    }
}
