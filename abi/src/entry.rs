//! The entry points: all functions of a module that weir calls.
//!
//! Each entry point has one definition in [`ENTRY_POINTS`]. Admission checks a module's exports by it, the analyser takes
//! from it the functions to bound and the ranges of their arguments, and the host the limits of a call. The loader's own
//! exports, the declarations in both SDKs, and the table in docs/reference/MODULE.md follow from it, too.
//!
//! To add an entry point, add a variant of [`EntryPoint`] and its definition. An entry point for an event between two
//! other calls also needs a variant of `ModuleEvent` in edge/sandbox.

use crate::host::{CallPhase, ValueType};
use crate::{BATCH_PACKETS, RESERVED_PREFIX, limit};
use core::fmt;

/// An entry point. The variants are in the order in which weir calls them; the number of a variant is its index in
/// [`ENTRY_POINTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryPoint {
    /// The start function of WebAssembly.
    StartFunction,
    /// `_initialize`.
    Initialize,
    /// `weir_start`.
    Start,
    /// `weir_packet`.
    Packet,
    /// `weir_batch`.
    Batch,
    /// `weir_stream`.
    Stream,
    /// `weir_tick`.
    Tick,
    /// `weir_lost`.
    Lost,
    /// `weir_low_memory`.
    LowMemory,
    /// `weir_serve`.
    Serve,
    /// `weir_answer`.
    Answer,
    /// `weir_stop`.
    Stop,
    /// `weir_rest`.
    Rest,
}

/// The type and meaning of a parameter of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// Guest address of a packet's descriptor.
    Descriptor,
    /// Guest address of the descriptors of a batch. The [mask](Self::Mask) follows.
    Descriptors,
    /// The packets of a batch that are for the module: bit i stands for packet i.
    Mask,
    /// Guest address of an event of a TCP stream.
    StreamEvent,
    /// Packet time, in ns since 1970.
    Time,
    /// A number of tick periods, at least 1.
    Periods,
    /// A number of bytes of memory.
    Bytes,
    /// The number of a call of a service: `call` for the called module, the ticket that `call` returned for the caller.
    CallNumber,
    /// A service, by its index in the manifest.
    Service,
    /// The length in bytes of the message that comes with the call.
    MessageLength,
    /// The cause of a lost call, a constant of [`lost`](crate::lost).
    Cause,
    /// The outcome of a call of a service, a constant of [`answer`](crate::answer).
    Status,
}

impl EntryType {
    /// Returns the WebAssembly type.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::Descriptor
            | Self::Descriptors
            | Self::StreamEvent
            | Self::Service
            | Self::MessageLength
            | Self::Cause
            | Self::Status => ValueType::I32,
            Self::Mask | Self::Time | Self::Periods | Self::Bytes | Self::CallNumber => ValueType::I64,
        }
    }

    /// Returns the least and the largest value, as unsigned numbers. The analyser assumes that no argument is outside.
    pub const fn range(self) -> (u64, u64) {
        match (self, self.value_type()) {
            (Self::Periods, _) => (1, u64::MAX),
            (Self::MessageLength, _) => (0, limit::MESSAGE_BYTES as u64),
            (_, ValueType::I32) => (0, u32::MAX as u64),
            (_, ValueType::I64 | ValueType::F64) => (0, u64::MAX),
        }
    }
}

/// A parameter of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryParameter {
    /// The name in the SDKs and the reference.
    pub name: &'static str,
    /// The type.
    pub ty: EntryType,
}

/// The type and meaning of an entry point's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryResult {
    /// No result.
    Nothing,
    /// 0 if the module agrees to run; any other number is a refusal.
    Consent,
    /// A [`verdict`](crate::verdict).
    Verdict,
    /// A set of [`stream::reply`](crate::stream::reply).
    StreamReply,
    /// The mask of the packets to drop.
    Drops,
    /// 0 if nothing is left; any other number asks for another call.
    IsUnfinished,
}

impl EntryResult {
    /// Returns the WebAssembly type; `None` without a result.
    pub const fn value_type(self) -> Option<ValueType> {
        match self {
            Self::Nothing => None,
            Self::Consent | Self::Verdict | Self::StreamReply | Self::IsUnfinished => Some(ValueType::I32),
            Self::Drops => Some(ValueType::I64),
        }
    }
}

/// The place of an entry point in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryLocation {
    /// An export with the entry point's name.
    Export,
    /// The start section.
    StartSection,
}

/// The rule on whether a module must have an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPresence {
    /// A module may have the entry point.
    Optional,
    /// A module has exactly one of the entry points with this rule, or [`Packet`](EntryPoint::Packet) and
    /// [`Stream`](EntryPoint::Stream).
    ExactlyOne,
}

/// The limit of a profile that applies to the fuel of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkLimit {
    /// The profile's limit `start`, for a call before the first packet.
    Start,
    /// The profile's limits `packet` and `per-byte`, for each packet of the call.
    Packet,
    /// The profile's limit `packet` without `per-byte`, for a call of `weir_lost`, which gets no bytes of the lost packets.
    LostPacket,
    /// The profile's limit `tick`, for a call between packets.
    Tick,
    /// The profile's limit `stop`, for a call after the last packet.
    Stop,
}

/// The definition of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryDefinition {
    /// The entry point.
    pub entry: EntryPoint,
    /// The name of the export; for the start function, words in brackets.
    pub name: &'static str,
    /// The name without `weir_` or `_`: the name in `module!` of the SDK for Rust, and in exports that the loader adds.
    pub key: &'static str,
    /// The location in a module.
    pub location: EntryLocation,
    /// The parameters.
    pub parameters: &'static [EntryParameter],
    /// The result.
    pub result: EntryResult,
    /// The most packets of a call; 0 where the call is for no packet.
    pub packets: u32,
    /// The profile's limit on the fuel of a call.
    pub work_limit: WorkLimit,
    /// The rule on whether a module must have the entry point.
    pub presence: EntryPresence,
    /// The occasion of a call, as one line of Markdown that follows the word "called".
    pub called: &'static str,
    /// The meaning of the return value, as one line of Markdown; empty without a result.
    pub returns: &'static str,
}

impl EntryPoint {
    /// Returns the definition of the entry point.
    pub const fn definition(self) -> &'static EntryDefinition {
        &ENTRY_POINTS[self as usize]
    }

    /// Returns the name of the export; for the start function, words in brackets.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// Returns the entry point with this export name; `None` for a name of no entry point.
    pub fn from_export_name(name: &str) -> Option<Self> {
        let mut exports = ENTRY_POINTS.iter().filter(|known| matches!(known.location, EntryLocation::Export));
        exports.find(|known| known.name == name).map(|known| known.entry)
    }

    /// Returns the most packets of a call; 0 where the call is for no packet.
    pub const fn packets(self) -> u32 {
        self.definition().packets
    }

    /// Returns the phase of a call. The phase decides which host functions the module can use in the call.
    pub const fn phase(self) -> CallPhase {
        match self.definition().work_limit {
            WorkLimit::Start => CallPhase::Start,
            WorkLimit::Packet => CallPhase::Packet,
            WorkLimit::LostPacket | WorkLimit::Tick | WorkLimit::Stop => CallPhase::Running,
        }
    }
}

impl fmt::Display for EntryPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of entry points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryPoints(u32);

impl EntryPoints {
    /// Returns the set with one more entry point.
    #[must_use]
    pub const fn with(self, entry: EntryPoint) -> Self {
        Self(self.0 | 1 << entry as u32)
    }

    /// Returns true if the entry point is in the set.
    pub const fn has(self, entry: EntryPoint) -> bool {
        self.0 >> entry as u32 & 1 == 1
    }

    /// Returns the entry points of the set, in the order in which weir calls them.
    pub fn iter(self) -> impl Iterator<Item = EntryPoint> {
        ENTRY_POINTS.iter().map(|known| known.entry).filter(move |entry| self.has(*entry))
    }
}

const fn parameter(name: &'static str, ty: EntryType) -> EntryParameter {
    EntryParameter { name, ty }
}

const NOW: EntryParameter = parameter("now", EntryType::Time);
const MESSAGE_LENGTH: EntryParameter = parameter("len", EntryType::MessageLength);

/// The field values that most definitions have.
const DEFAULTS: EntryDefinition = EntryDefinition {
    entry: EntryPoint::StartFunction,
    name: "",
    key: "",
    location: EntryLocation::Export,
    parameters: &[],
    result: EntryResult::Nothing,
    packets: 0,
    work_limit: WorkLimit::Tick,
    presence: EntryPresence::Optional,
    called: "",
    returns: "",
};

/// The number of entry points.
pub const COUNT: usize = EntryPoint::Rest as usize + 1;

/// The definitions of all entry points, in the order of [`EntryPoint`].
pub static ENTRY_POINTS: [EntryDefinition; COUNT] = [
    EntryDefinition {
        entry: EntryPoint::StartFunction,
        name: "(start function)",
        key: "begin",
        location: EntryLocation::StartSection,
        work_limit: WorkLimit::Start,
        called: "once, first: the start function of WebAssembly",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Initialize,
        name: "_initialize",
        key: "initialize",
        work_limit: WorkLimit::Start,
        called: "once, next: constructors, as a WASI reactor has them",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Start,
        name: "weir_start",
        key: "start",
        result: EntryResult::Consent,
        work_limit: WorkLimit::Start,
        called: "once, before the first packet: read parameters, allocate tables, compile patterns",
        returns: "0; anything else (in Rust: `false`) refuses to run",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Packet,
        name: "weir_packet",
        key: "packet",
        parameters: &[parameter("p", EntryType::Descriptor)],
        result: EntryResult::Verdict,
        packets: 1,
        work_limit: WorkLimit::Packet,
        presence: EntryPresence::ExactlyOne,
        called: "for every packet, in the order of the capture",
        returns: "`PASS`, or `DROP`",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Batch,
        name: "weir_batch",
        key: "batch",
        parameters: &[parameter("p", EntryType::Descriptors), parameter("mask", EntryType::Mask)],
        result: EntryResult::Drops,
        packets: u64::BITS,
        work_limit: WorkLimit::Packet,
        presence: EntryPresence::ExactlyOne,
        called: "instead of `weir_packet`: up to 64 packets at once; bit i of the mask says that `p[i]` is for this module",
        returns: "the mask of the packets to drop",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Stream,
        name: "weir_stream",
        key: "stream",
        parameters: &[parameter("event", EntryType::StreamEvent)],
        result: EntryResult::StreamReply,
        packets: 1,
        work_limit: WorkLimit::Packet,
        presence: EntryPresence::ExactlyOne,
        called: "for every event of a [TCP stream](#tcp-streams), after `weir_packet` for the packet that caused the event",
        returns: "`STREAM_CONTINUE`, or a set of `STREAM_DROP`, `STREAM_SKIP` and `STREAM_IGNORE`",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Tick,
        name: "weir_tick",
        key: "tick",
        parameters: &[NOW, parameter("periods", EntryType::Periods)],
        called: "when packet time has passed the end of a period; `now` is that end, and `periods` have ended since the last call",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Lost,
        name: "weir_lost",
        key: "lost",
        parameters: &[parameter("cause", EntryType::Cause)],
        work_limit: WorkLimit::LostPacket,
        called: "before the next call after one that was [lost](#after-a-lost-call), so that the module can clean up",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::LowMemory,
        name: "weir_low_memory",
        key: "low_memory",
        parameters: &[parameter("left", EntryType::Bytes)],
        called: "between two other calls, when [little memory is left](#memory-of-a-session) of its session's reservation",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Serve,
        name: "weir_serve",
        key: "serve",
        parameters: &[
            parameter("call", EntryType::CallNumber),
            parameter("service", EntryType::Service),
            MESSAGE_LENGTH,
        ],
        called: "when a module of another session calls a [service](#services) of this module, with a message of `len` bytes",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Answer,
        name: "weir_answer",
        key: "answer",
        parameters: &[
            parameter("ticket", EntryType::CallNumber),
            parameter("status", EntryType::Status),
            MESSAGE_LENGTH,
        ],
        called: "when a service that this module called has answered, with a message of `len` bytes, or the call has failed",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Stop,
        name: "weir_stop",
        key: "stop",
        parameters: &[NOW],
        work_limit: WorkLimit::Stop,
        called: "once, after the last packet, whose time stamp is `now`",
        ..DEFAULTS
    },
    EntryDefinition {
        entry: EntryPoint::Rest,
        name: "weir_rest",
        key: "rest",
        parameters: &[NOW],
        result: EntryResult::IsUnfinished,
        called: "after `weir_stop`, for rows that are too many for one call: again and again, at most 512 times",
        returns: "0 if no row is left; anything else (in Rust: `true`) asks for another call",
        ..DEFAULTS
    },
];

/// Returns true if `whole` is `begin` followed by `end`.
const fn is_concatenation(whole: &str, begin: &str, end: &str) -> bool {
    let (whole, begin, end) = (whole.as_bytes(), begin.as_bytes(), end.as_bytes());
    let mut at = 0;
    while at < whole.len() && whole.len() == begin.len() + end.len() {
        let wanted = if at < begin.len() { begin[at] } else { end[at - begin.len()] };
        if whole[at] != wanted {
            return false;
        }
        at += 1;
    }
    whole.len() == begin.len() + end.len()
}

/// Compilation fails for an inconsistent table: a definition at the index of another entry point, a duplicate name or
/// key, or a limit that does not fit the packets of a call.
const _: () = {
    assert!(COUNT <= u32::BITS as usize && u64::BITS as usize == BATCH_PACKETS);
    let mut index = 0;
    while index < COUNT {
        let known = &ENTRY_POINTS[index];
        assert!(known.entry as usize == index && !known.key.is_empty() && !known.called.is_empty());
        let is_export = matches!(known.location, EntryLocation::Export);
        let has_prefix = is_concatenation(known.name, RESERVED_PREFIX, known.key);
        assert!(!is_export || has_prefix || is_concatenation(known.name, "_", known.key));
        assert!(matches!(known.work_limit, WorkLimit::Packet) == (known.packets > 0));
        assert!(matches!(known.presence, EntryPresence::ExactlyOne) == (known.packets > 0));
        assert!(matches!(known.result, EntryResult::Nothing) == known.returns.is_empty());
        let is_verdict =
            matches!(known.result, EntryResult::Verdict | EntryResult::StreamReply | EntryResult::Drops);
        assert!(is_verdict == (known.packets > 0));
        let mut other = 0;
        while other < index {
            let before = &ENTRY_POINTS[other];
            assert!(
                !is_concatenation(before.name, known.name, "")
                    && !is_concatenation(before.key, known.key, "")
            );
            other += 1;
        }
        index += 1;
    }
};
