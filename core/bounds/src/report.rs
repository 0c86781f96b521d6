//! What an analysis finds.

use crate::Linear;
use crate::reason::UnboundedReason;
use std::fmt;
use weir_abi::entry::EntryPoint;

/// What the work of an entry point grows with (P. Patel, J. Lepreau, "Hybrid resource control of active extensions", OPENARCH 2003, table I).
/// In the order of how hard it is to say beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkClass {
    /// Nothing.
    #[default]
    Constant,
    /// The length of the packet.
    PacketLength,
    /// The length of a protocol header.
    HeaderLength,
    /// The length of a parameter: of a list, of a string.
    ConfigurationLength,
    /// The value of a parameter.
    ConfigurationValue,
    /// A field of a header, or another part of the packet's contents.
    HeaderField,
    /// No bound was found.
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

/// The most that one call of an entry point uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceBound {
    /// Work.
    pub fuel: Linear,
    /// Records: calls of `emit`.
    pub records: Linear,
    /// Output packets that it changes: calls of `patch`.
    pub patches: Linear,
    /// Frames that it sends: calls of `send`.
    pub frames: Linear,
    /// Pages of 64 KiB that it asks for.
    pub pages: Linear,
}

impl ResourceBound {
    /// Nothing at all.
    pub const NOTHING: Self = Self {
        fuel: Linear::ZERO,
        records: Linear::ZERO,
        patches: Linear::ZERO,
        frames: Linear::ZERO,
        pages: Linear::ZERO,
    };

    /// Only work.
    pub const fn fuel(fuel: u64) -> Self {
        Self { fuel: Linear::constant(fuel), ..Self::NOTHING }
    }

    fn zip(self, other: Self, each: impl Fn(Linear, Linear) -> Linear) -> Self {
        Self {
            fuel: each(self.fuel, other.fuel),
            records: each(self.records, other.records),
            patches: each(self.patches, other.patches),
            frames: each(self.frames, other.frames),
            pages: each(self.pages, other.pages),
        }
    }

    /// All of it: fuel, records, patches, frames, pages.
    pub(crate) const fn each(&self) -> [Linear; 5] {
        [self.fuel, self.records, self.patches, self.frames, self.pages]
    }

    /// Both, one after the other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, Linear::plus)
    }

    /// Either.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.zip(other, Linear::or)
    }

    /// So many times.
    #[must_use]
    pub fn times(self, times: Linear, packet_max: u64) -> Self {
        self.zip(Self::NOTHING, |amount, _| amount.times(times, packet_max))
    }
}

/// A place in a module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeLocation {
    /// Index of the function.
    pub function: u32,
    /// Its name, where the module has names.
    pub name: Option<String>,
    /// Offset in the module's bytes.
    pub offset: u64,
    /// Line of the author's source, where the module has DWARF.
    pub line: Option<SourceLine>,
}

/// A line of the author's source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file, as the compiler recorded it.
    pub file: String,
    /// Counted from 1.
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

/// What was found about a loop, in the worst of all places that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopBound {
    /// Where the `loop` instruction is.
    pub place: CodeLocation,
    /// Loops of the same function around it.
    pub depth: u32,
    /// How often its body begins, each time that the loop is entered.
    pub trips: Linear,
    /// What one time through its body costs at most, with the loops and calls in it.
    pub body: Linear,
    /// What the loop costs each time that it is entered.
    pub total: Linear,
    /// What the trips grow with.
    pub class: WorkClass,
    /// Why there is no bound.
    pub reason: Option<UnboundedReason>,
    /// How the number of trips follows from locals when the loop is entered, if that is known.
    pub on_entry: Option<OnEntry>,
}

/// At most `1 + (sum of locals x coefficient + constant) / step` trips, in wrapping arithmetic of `i32`, the sum taken as unsigned, where
/// the loop is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnEntry {
    /// Locals of type `i32`, and how often each counts.
    pub terms: Vec<(u32, i32)>,
    /// Added to them.
    pub constant: i32,
    /// What the loop's counter advances by each time; a power of two.
    pub step: u32,
}

/// A call of a host function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostCall {
    /// Where.
    pub place: CodeLocation,
    /// Which.
    pub name: &'static str,
    /// What it costs at most.
    pub fuel: Linear,
}

/// A call of a function of the module, in the worst of all places that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallBound {
    /// Where.
    pub place: CodeLocation,
    /// Of which function; "a function of the table" where it is looked up.
    pub callee: String,
    /// What the function costs at most, each time that it is called so.
    pub fuel: Linear,
}

/// A step on the way to what contributes most, from the entry point inwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathStep {
    /// Where.
    pub place: CodeLocation,
    /// What is there.
    pub what: What,
    /// How much of the entry point's fuel it makes up, or of what the way is about.
    pub amount: Linear,
}

/// What a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A loop, so many times.
    Loop(Linear),
    /// A call of a function of the module.
    Call(String),
    /// A call of a host function.
    Host(&'static str),
    /// A bulk memory instruction.
    Bulk,
    /// `memory.grow`.
    Grow,
    /// A function's frame.
    Frame,
    /// What a function takes of the shadow stack.
    Locals,
}

/// What contributes most, of all on the way from an entry point to it: a place where work is done, and not only a call on the way there.
pub(crate) fn contributor(way: &[PathStep]) -> Option<&PathStep> {
    way.iter().rev().find(|step| !matches!(step.what, What::Call(_))).or(way.last())
}

/// What contributes most to what an entry point uses beside fuel, where there is any of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopContributor {
    /// To its records.
    pub records: Option<PathStep>,
    /// To the output packets that it changes.
    pub patches: Option<PathStep>,
    /// To the frames that it sends.
    pub frames: Option<PathStep>,
    /// To the pages that it asks for.
    pub pages: Option<PathStep>,
    /// To the stack, in bytes.
    pub stack: Option<PathStep>,
    /// To the shadow stack, in bytes; without a bound where it is moved by an amount that is not known.
    pub shadow_stack: Option<PathStep>,
}

/// What was found about an entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryBound {
    /// Which.
    pub entry: EntryPoint,
    /// What a call uses at most. For a batch: 64 packets of the same length.
    pub usage: ResourceBound,
    /// Bytes of stack: frames as the analyser counts them, from the locals and operands of the functions on the deepest path.
    pub stack: Option<u64>,
    /// Bytes that the module's shadow stack grows by, in its own memory.
    pub shadow_stack: Option<u64>,
    /// What the work grows with.
    pub class: WorkClass,
    /// Why there is no bound; empty if there is one.
    pub unbounded: Vec<UnboundedReason>,
    /// The way to what contributes most.
    pub hottest: Vec<PathStep>,
    /// What contributes most to the rest.
    pub most: TopContributor,
}

impl EntryBound {
    /// What contributes most to its fuel.
    pub fn dearest(&self) -> Option<&PathStep> {
        contributor(&self.hottest)
    }

    /// Whether every resource has a bound.
    pub fn is_bounded(&self) -> bool {
        self.unbounded.is_empty() && self.usage.fuel.is_bounded()
    }
}

/// What an analysis found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The entry points that the module has, in the order in which weir calls them.
    pub entries: Vec<EntryBound>,
    /// All loops that an entry point can reach, by function and offset; but for those that are run again by a function that calls itself, where
    /// nothing is known of them.
    pub loops: Vec<LoopBound>,
    /// All calls of functions of the module that an entry point can reach, by offset; with the same exception, and without those that call a
    /// function that is running.
    pub calls: Vec<CallBound>,
    /// All calls of host functions that an entry point can reach, by offset; with the same exception.
    pub host_calls: Vec<HostCall>,
}

impl Analysis {
    /// What was found about an entry point.
    pub fn entry(&self, entry: EntryPoint) -> Option<&EntryBound> {
        self.entries.iter().find(|found| found.entry == entry)
    }

    /// What was found about the loop whose `loop` instruction is at this offset.
    pub fn loop_at(&self, offset: u64) -> Option<&LoopBound> {
        let index = self.loops.binary_search_by_key(&offset, |found| found.place.offset).ok()?;
        self.loops.get(index)
    }

    /// Whether every entry point has a bound.
    pub fn is_bounded(&self) -> bool {
        self.entries.iter().all(EntryBound::is_bounded)
    }
}
