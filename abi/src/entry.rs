//! The entry points: all functions of a module that weir calls.
//!
//! Each entry point is one record of [`ENTRY_POINTS`]. The record gives admission's check of exports, the analyser's roots and arguments, and the limits on a
//! call. It also gives the exports that the loader adds, the declarations of both SDKs and the reference in docs/MODULES.md.
//!
//! To add an entry point, add a variant of [`EntryPoint`] and its record. One that tells a module something between two other calls then needs a variant of
//! `News` in edge/sandbox, and no more.

use crate::host::{CallPhase, ValueType};
use crate::{BATCH_PACKETS, RESERVED_PREFIX, limit};
use core::fmt;

/// An entry point, in the order in which weir calls them. The number of a variant is the place of its record in [`ENTRY_POINTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryPoint {
    /// The start function of WebAssembly.
    Begin,
    /// `_initialize`.
    Initialize,
    /// `weir_start`.
    Start,
    /// `weir_packet`.
    Packet,
    /// `weir_batch`.
    Batch,
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
}

/// The type of a parameter, with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryType {
    /// Guest address of a packet's descriptor.
    Descriptor,
    /// Guest address of the descriptors of a batch. The [mask](Self::Mask) follows.
    Descriptors,
    /// The packets of a batch that are for the module, a bit each.
    Mask,
    /// Packet time, in ns since 1970.
    Time,
    /// A number of periods, at least 1.
    Periods,
    /// A number of bytes.
    Bytes,
    /// The number of a call of a service.
    Ticket,
    /// A service, by its place in the manifest.
    Service,
    /// Bytes of the message at hand.
    MessageBytes,
    /// A [`lost`](crate::lost) cause.
    Cause,
    /// An [`answer`](crate::answer) status.
    Status,
}

impl EntryType {
    /// The WebAssembly type.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::Descriptor
            | Self::Descriptors
            | Self::Service
            | Self::MessageBytes
            | Self::Cause
            | Self::Status => ValueType::I32,
            Self::Mask | Self::Time | Self::Periods | Self::Bytes | Self::Ticket => ValueType::I64,
        }
    }

    /// The least and the largest value, without a sign. The analyser relies on them.
    pub const fn range(self) -> (u64, u64) {
        match (self, self.value_type()) {
            (Self::Periods, _) => (1, u64::MAX),
            (Self::MessageBytes, _) => (0, limit::MESSAGE_BYTES as u64),
            (_, ValueType::I32) => (0, u32::MAX as u64),
            (_, ValueType::I64 | ValueType::F64) => (0, u64::MAX),
        }
    }
}

/// A parameter of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryParameter {
    /// Its name, for people.
    pub name: &'static str,
    /// Its type.
    pub ty: EntryType,
}

/// The result of an entry point, with its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryResult {
    /// None.
    Nothing,
    /// 0, or a code of the module's own by which it refuses to run.
    Consent,
    /// A [`verdict`](crate::verdict).
    Verdict,
    /// The mask of the packets to drop.
    Drops,
}

impl EntryResult {
    /// The WebAssembly type.
    pub const fn value_type(self) -> Option<ValueType> {
        match self {
            Self::Nothing => None,
            Self::Consent | Self::Verdict => Some(ValueType::I32),
            Self::Drops => Some(ValueType::I64),
        }
    }
}

/// The place of an entry point in a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryLocation {
    /// An export of the record's name.
    Export,
    /// The start section.
    StartSection,
}

/// The entry points that a module must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPresence {
    /// A module may have it.
    Optional,
    /// A module has exactly one of the entry points with this presence.
    Either,
}

/// The limit on the work of a call, which a profile gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkLimit {
    /// The allowance of a call before the first packet.
    Start,
    /// The allowance of a packet, for each packet of the call.
    Packet,
    /// The allowance of a packet without a byte: weir makes the call once for each packet that is lost.
    EmptyPacket,
    /// The allowance of a call between packets.
    Tick,
    /// The allowance of the call after the last packet.
    Stop,
}

/// The record of an entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryDefinition {
    /// The entry point.
    pub entry: EntryPoint,
    /// Its name: that of the export, if it is one.
    pub name: &'static str,
    /// Its name without a prefix. `module!` of the SDK for Rust has it.
    pub key: &'static str,
    /// Its place in a module.
    pub place: EntryLocation,
    /// Its parameters.
    pub parameters: &'static [EntryParameter],
    /// Its result.
    pub result: EntryResult,
    /// The most packets of a call; 0 where the call is for no packet.
    pub packets: u32,
    /// The limit on the work of a call.
    pub allowance: WorkLimit,
    /// The rule on modules without it.
    pub presence: EntryPresence,
    /// The time of a call, in a line.
    pub called: &'static str,
    /// The return value, in a line; empty where there is none.
    pub returns: &'static str,
}

impl EntryPoint {
    /// The entry point's record.
    pub const fn definition(self) -> &'static EntryDefinition {
        &ENTRY_POINTS[self as usize]
    }

    /// The export's name, or that of the start function.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// The entry point that an export of this name is, if it is one.
    pub fn named(name: &str) -> Option<Self> {
        let mut exports = ENTRY_POINTS.iter().filter(|known| matches!(known.place, EntryLocation::Export));
        exports.find(|known| known.name == name).map(|known| known.entry)
    }

    /// The most packets of a call; 0 where the call is for no packet.
    pub const fn packets(self) -> u32 {
        self.definition().packets
    }

    /// The phase of its calls.
    pub const fn phase(self) -> CallPhase {
        match self.definition().allowance {
            WorkLimit::Start => CallPhase::Start,
            WorkLimit::Packet => CallPhase::Packet,
            WorkLimit::EmptyPacket | WorkLimit::Tick | WorkLimit::Stop => CallPhase::Running,
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
    /// The same set with one more.
    #[must_use]
    pub const fn with(self, entry: EntryPoint) -> Self {
        Self(self.0 | 1 << entry as u32)
    }

    /// Returns true if the entry point is in the set.
    pub const fn has(self, entry: EntryPoint) -> bool {
        self.0 >> entry as u32 & 1 == 1
    }

    /// The entry points of the set, in the order in which weir calls them.
    pub fn iter(self) -> impl Iterator<Item = EntryPoint> {
        ENTRY_POINTS.iter().map(|known| known.entry).filter(move |entry| self.has(*entry))
    }
}

const fn parameter(name: &'static str, ty: EntryType) -> EntryParameter {
    EntryParameter { name, ty }
}

const NOW: EntryParameter = parameter("now", EntryType::Time);
const MESSAGE: EntryParameter = parameter("len", EntryType::MessageBytes);

/// The members that most records have.
const PLAIN: EntryDefinition = EntryDefinition {
    entry: EntryPoint::Begin,
    name: "",
    key: "",
    place: EntryLocation::Export,
    parameters: &[],
    result: EntryResult::Nothing,
    packets: 0,
    allowance: WorkLimit::Tick,
    presence: EntryPresence::Optional,
    called: "",
    returns: "",
};

/// The number of entry points.
pub const COUNT: usize = EntryPoint::Stop as usize + 1;

/// The records of all entry points, in the order of [`EntryPoint`].
pub static ENTRY_POINTS: [EntryDefinition; COUNT] = [
    EntryDefinition {
        entry: EntryPoint::Begin,
        name: "(start function)",
        key: "begin",
        place: EntryLocation::StartSection,
        allowance: WorkLimit::Start,
        called: "once, first: the start function of WebAssembly",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Initialize,
        name: "_initialize",
        key: "initialize",
        allowance: WorkLimit::Start,
        called: "once, next: constructors, as a WASI reactor has them",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Start,
        name: "weir_start",
        key: "start",
        result: EntryResult::Consent,
        allowance: WorkLimit::Start,
        called: "once, before the first packet: read parameters, allocate tables, compile patterns",
        returns: "0; anything else (in Rust: `false`) says that the module does not want to run",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Packet,
        name: "weir_packet",
        key: "packet",
        parameters: &[parameter("p", EntryType::Descriptor)],
        result: EntryResult::Verdict,
        packets: 1,
        allowance: WorkLimit::Packet,
        presence: EntryPresence::Either,
        called: "for every packet, in the order of the capture",
        returns: "`PASS`, or `DROP`",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Batch,
        name: "weir_batch",
        key: "batch",
        parameters: &[parameter("p", EntryType::Descriptors), parameter("mask", EntryType::Mask)],
        result: EntryResult::Drops,
        packets: u64::BITS,
        allowance: WorkLimit::Packet,
        presence: EntryPresence::Either,
        called: "instead of `weir_packet`: up to 64 packets at once; bit i of the mask says that `p[i]` is for this module",
        returns: "the mask of the packets to drop",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Tick,
        name: "weir_tick",
        key: "tick",
        parameters: &[NOW, parameter("periods", EntryType::Periods)],
        called: "when packet time has passed the end of a period, `now`; `periods` have ended since the last call",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Lost,
        name: "weir_lost",
        key: "lost",
        parameters: &[parameter("cause", EntryType::Cause)],
        allowance: WorkLimit::EmptyPacket,
        called: "before the next call after one that was [lost](#after-a-lost-call), so that the module can clean up",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::LowMemory,
        name: "weir_low_memory",
        key: "low_memory",
        parameters: &[parameter("left", EntryType::Bytes)],
        called: "between two other calls, when [little is left](#memory-of-a-session) of what its session has reserved",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Serve,
        name: "weir_serve",
        key: "serve",
        parameters: &[
            parameter("call", EntryType::Ticket),
            parameter("service", EntryType::Service),
            MESSAGE,
        ],
        called: "when a module of another session calls one of its [services](#services), with a message of `len` bytes",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Answer,
        name: "weir_answer",
        key: "answer",
        parameters: &[
            parameter("ticket", EntryType::Ticket),
            parameter("status", EntryType::Status),
            MESSAGE,
        ],
        called: "when a call of its own has an answer, a message of `len` bytes, or none will come",
        ..PLAIN
    },
    EntryDefinition {
        entry: EntryPoint::Stop,
        name: "weir_stop",
        key: "stop",
        parameters: &[NOW],
        allowance: WorkLimit::Stop,
        called: "once, after the last packet, whose time stamp is `now`",
        ..PLAIN
    },
];

/// Returns true if a string consists of these two.
const fn is_joined(whole: &str, begin: &str, end: &str) -> bool {
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

/// Refuses to compile a table that does not hold together: a record at another entry point's place, a name or key that is there twice, a limit that does not
/// fit to the packets of a call.
const _: () = {
    assert!(COUNT <= u32::BITS as usize && u64::BITS as usize == BATCH_PACKETS);
    let mut place = 0;
    while place < COUNT {
        let known = &ENTRY_POINTS[place];
        assert!(known.entry as usize == place && !known.key.is_empty() && !known.called.is_empty());
        let is_export = matches!(known.place, EntryLocation::Export);
        let is_ours = is_joined(known.name, RESERVED_PREFIX, known.key);
        assert!(!is_export || is_ours || is_joined(known.name, "_", known.key));
        assert!(matches!(known.allowance, WorkLimit::Packet) == (known.packets > 0));
        assert!(matches!(known.presence, EntryPresence::Either) == (known.packets > 0));
        assert!(matches!(known.result, EntryResult::Nothing) == known.returns.is_empty());
        // Of the functions that are called for no packet only those of the start can refuse something.
        let is_start = matches!(known.allowance, WorkLimit::Start);
        assert!(known.packets > 0 || matches!(known.result, EntryResult::Nothing) || is_start);
        let mut other = 0;
        while other < place {
            let before = &ENTRY_POINTS[other];
            assert!(!is_joined(before.name, known.name, "") && !is_joined(before.key, known.key, ""));
            other += 1;
        }
        place += 1;
    }
};
