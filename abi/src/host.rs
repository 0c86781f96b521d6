//! The host functions: all that a module can import.
//!
//! Each function is one record of [`HOST_FUNCTIONS`]. The record gives the analyser's rule, the meter's charge, the check of imports and the arguments that the
//! loader adds. It also gives the declarations of both SDKs and the reference in docs/MODULES.md. The functions themselves are in edge/sandbox.
//!
//! To add a function, add a variant of [`HostFunction`] and its record. The compiler then asks for the function in edge/sandbox.

use crate::limit;

/// The import module name of all host functions.
pub const MODULE: &str = "weir";

/// The algorithms of [`digest`](HostFunction::Digest).
pub mod algorithm {
    /// SHA-1 (FIPS 180-4), of 20 bytes.
    pub const SHA1: u32 = 1;
    /// SHA-256 (FIPS 180-4), of 32 bytes.
    pub const SHA256: u32 = 2;
    /// The most bytes that one call digests. Without instructions for it, digesting takes ten times the time of hashing.
    pub const BYTES: u32 = 64 * 1024;
}

/// A host function. The number of a variant is the place of its record in [`HOST_FUNCTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostFunction {
    /// Emits a record.
    Emit,
    /// Changes bytes of a packet.
    Patch,
    /// Sends a frame.
    Send,
    /// Keeps a packet.
    Keep,
    /// Lets go of a kept packet.
    Release,
    /// Compiles patterns.
    FindCompile,
    /// Searches for patterns.
    Find,
    /// Hashes bytes.
    Hash,
    /// Computes a cryptographic digest of bytes.
    Digest,
    /// Logs a line.
    Log,
    /// Reads an integer parameter.
    ParamInt,
    /// Reads a float parameter.
    ParamFloat,
    /// Copies a parameter of bytes.
    ParamBytes,
    /// Changes the session's reservation of memory.
    Reserve,
    /// Calls a service.
    Call,
    /// Copies the message at hand.
    Message,
    /// Answers a call.
    Reply,
    /// Publishes a table.
    Publish,
}

/// A WebAssembly value type of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
    /// 64-bit float.
    F64,
}

/// The type of a parameter or a result, as the SDKs declare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostType {
    /// Unsigned 32-bit integer: an index, an offset or a length.
    U32,
    /// Signed 32-bit integer: a handle or a return code.
    I32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// 64-bit float.
    F64,
    /// Address of bytes that the function reads.
    Bytes,
    /// Address of bytes that the function writes.
    Buffer,
    /// Address of a packet descriptor.
    Descriptor,
}

impl HostType {
    /// The WebAssembly type.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::U32 | Self::I32 | Self::Bytes | Self::Buffer | Self::Descriptor => ValueType::I32,
            Self::U64 | Self::I64 => ValueType::I64,
            Self::F64 => ValueType::F64,
        }
    }
}

/// A parameter of a host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostParameter {
    /// Its name, for people.
    pub name: &'static str,
    /// Its type.
    pub ty: HostType,
}

/// The result of a call, as far as the analyser knows it before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultValue {
    /// Any value of its type.
    Any,
    /// The integer parameter whose index is the first argument.
    Integer,
    /// The float parameter whose index is the first argument.
    Float,
    /// The length of the parameter whose index is the first argument.
    Length,
}

/// The price of a call, in fuel: at least the time of a call with warm caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// For each call.
    pub call: u32,
    /// For each byte of the length argument, and of the strings of a record.
    pub per_byte: u32,
}

/// The largest amount of work for a length argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkMax {
    /// So many bytes.
    Bytes(u32),
    /// The bytes of the parameter whose index is the first argument.
    Parameter,
}

/// The effect of a length argument beyond [`WorkMax`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// The call is refused, or traps, before any byte is read.
    Nothing,
    /// The allowed part is read or written.
    Most,
}

/// The argument that says how many bytes a call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthArgument {
    /// Its place among the arguments. At most one argument follows it.
    pub parameter: usize,
    /// The call never works on more.
    pub most: WorkMax,
    /// The effect of a larger argument.
    pub beyond: Beyond,
}

/// The allowance that a call takes one from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedAllowance {
    /// None.
    Nothing,
    /// A record, with the strings that its row points to.
    Record,
    /// A patch.
    Patch,
    /// A frame.
    Frame,
}

/// The time at which a function can be called. At another time it returns [`code::WHEN`](crate::code::WHEN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPhase {
    /// Always.
    Any,
    /// In `_initialize` and `weir_start`.
    Start,
    /// After `weir_start`.
    Running,
    /// In `weir_packet` and `weir_batch`, for the packet at hand.
    Packet,
}

/// The right that a module's session must have. Without it the function returns [`code::DENIED`](crate::code::DENIED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredRight {
    /// None.
    Nothing,
    /// To write fields of packets.
    Write,
    /// To send frames by an output.
    Send,
    /// To keep packets.
    Keep,
    /// To change the reservation of memory.
    Memory,
    /// To use a service.
    Service,
    /// To publish a table.
    Publish,
}

/// The record of a host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDefinition {
    /// The function.
    pub function: HostFunction,
    /// Its name, in the module [`MODULE`].
    pub name: &'static str,
    /// Its parameters.
    pub parameters: &'static [HostParameter],
    /// The type of its result.
    pub result: HostType,
    /// The result, as far as it is known before the call.
    pub value: ResultValue,
    /// The price of a call.
    pub cost: CallCost,
    /// The argument that says how many bytes a call works on, if there is one.
    pub length: Option<LengthArgument>,
    /// The allowance that a call takes one from.
    pub uses: UsedAllowance,
    /// True where the loader adds an argument: the mask of packets still to do.
    pub is_told_packets: bool,
    /// The time at which it can be called.
    pub phase: CallPhase,
    /// The right that it needs.
    pub right: RequiredRight,
    /// Its effect, in a line.
    pub does: &'static str,
    /// Its return value, in a line.
    pub returns: &'static str,
}

impl HostFunction {
    /// The function's record.
    pub const fn definition(self) -> &'static HostDefinition {
        &HOST_FUNCTIONS[self as usize]
    }

    /// The function's name, in the module [`MODULE`].
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// The function of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        HOST_FUNCTIONS.iter().find(|known| known.name == name).map(|known| known.function)
    }
}

impl HostDefinition {
    /// The WebAssembly types of the parameters.
    pub fn parameter_types(&self) -> impl Iterator<Item = ValueType> + use<> {
        self.parameters.iter().map(|parameter| parameter.ty.value_type())
    }
}

const fn parameter(name: &'static str, ty: HostType) -> HostParameter {
    HostParameter { name, ty }
}

const fn length(parameter: usize, most: u32, beyond: Beyond) -> Option<LengthArgument> {
    Some(LengthArgument { parameter, most: WorkMax::Bytes(most), beyond })
}

const BYTES: HostParameter = parameter("bytes", HostType::Bytes);
const LEN: HostParameter = parameter("len", HostType::U32);
const INDEX: HostParameter = parameter("index", HostType::U32);
const HANDLE: HostParameter = parameter("handle", HostType::I32);
const DESCRIPTOR: HostParameter = parameter("descriptor", HostType::Descriptor);
const DESTINATION: HostParameter = parameter("destination", HostType::Buffer);
const ROOM: HostParameter = parameter("room", HostType::U32);

/// The members that most records have.
const PLAIN: HostDefinition = HostDefinition {
    function: HostFunction::Emit,
    name: "",
    parameters: &[],
    result: HostType::I32,
    value: ResultValue::Any,
    cost: CallCost { call: 0, per_byte: 0 },
    length: None,
    uses: UsedAllowance::Nothing,
    is_told_packets: false,
    phase: CallPhase::Any,
    right: RequiredRight::Nothing,
    does: "",
    returns: "",
};

/// The number of host functions.
pub const COUNT: usize = HostFunction::Publish as usize + 1;

/// The records of all host functions, in the order of [`HostFunction`].
///
/// Bytes that are not wholly inside one of the module's areas (private memory, packets, descriptors, tables) end the call. The module loses that packet, and
/// the summary says why.
pub static HOST_FUNCTIONS: [HostDefinition; COUNT] = [
    HostDefinition {
        function: HostFunction::Emit,
        name: "emit",
        parameters: &[parameter("stream", HostType::U32), parameter("row", HostType::Bytes), LEN],
        cost: CallCost { call: 700, per_byte: 2 },
        length: length(2, limit::HOST_READ_BYTES, Beyond::Nothing),
        uses: UsedAllowance::Record,
        is_told_packets: true,
        does: "one record; `len` must be the row's size",
        returns: "0, `FULL`, or `UNKNOWN` for a stream that is not declared",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Patch,
        name: "patch",
        parameters: &[DESCRIPTOR, parameter("offset", HostType::U32), BYTES, LEN],
        cost: CallCost { call: 600, per_byte: 4 },
        length: length(3, limit::PATCH_BYTES, Beyond::Nothing),
        uses: UsedAllowance::Patch,
        is_told_packets: true,
        phase: CallPhase::Packet,
        right: RequiredRight::Write,
        does: "changes bytes of the packet at hand",
        returns: "0, `RANGE`, `DENIED`, `FULL` or `WHEN`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Send,
        name: "send",
        parameters: &[parameter("output", HostType::U32), BYTES, LEN],
        cost: CallCost { call: 700, per_byte: 1 },
        length: length(2, limit::FRAME_BYTES, Beyond::Nothing),
        uses: UsedAllowance::Frame,
        is_told_packets: true,
        phase: CallPhase::Running,
        right: RequiredRight::Send,
        does: "an Ethernet frame of the module's own to an output",
        returns: "0, `FULL`, `RANGE`, `DENIED`, `WHEN`, or `UNKNOWN` for an output that is not declared",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Keep,
        name: "keep",
        parameters: &[DESCRIPTOR],
        cost: CallCost { call: 1_000, per_byte: 0 },
        is_told_packets: true,
        phase: CallPhase::Packet,
        right: RequiredRight::Keep,
        does: "the bytes of the packet at hand stay where they are",
        returns: "a handle from 0 on, `FULL`, `DENIED` or `WHEN`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Release,
        name: "release",
        parameters: &[HANDLE],
        cost: CallCost { call: 600, per_byte: 0 },
        does: "lets go of a packet that was kept",
        returns: "0 or `UNKNOWN`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::FindCompile,
        name: "find_compile",
        parameters: &[parameter("list", HostType::Bytes), LEN, parameter("flags", HostType::U32)],
        cost: CallCost { call: 40_000, per_byte: 2_000 },
        length: length(1, limit::PATTERN_BYTES + 4 * limit::PATTERNS, Beyond::Nothing),
        phase: CallPhase::Start,
        does: "compiles patterns, each a u32 length and its bytes; flag 1 ignores ASCII case",
        returns: "a handle from 0 on, `FULL`, `WHEN`, or `RANGE` for a list that is empty, cut, or has an empty pattern",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Find,
        name: "find",
        parameters: &[HANDLE, BYTES, LEN],
        result: HostType::I64,
        cost: CallCost { call: 160, per_byte: 4 },
        length: length(2, limit::HOST_READ_BYTES, Beyond::Nothing),
        does: "the leftmost match; of several at one offset the longest",
        returns: "(pattern << 32) + offset, or -1 for none",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Hash,
        name: "hash",
        parameters: &[BYTES, LEN, parameter("seed", HostType::U64)],
        result: HostType::U64,
        cost: CallCost { call: 100, per_byte: 1 },
        length: length(1, limit::HOST_READ_BYTES, Beyond::Nothing),
        does: "XXH3-64",
        returns: "the hash",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Digest,
        name: "digest",
        parameters: &[parameter("algorithm", HostType::U32), BYTES, LEN, DESTINATION],
        cost: CallCost { call: 1_000, per_byte: 11 },
        length: length(2, algorithm::BYTES, Beyond::Nothing),
        does: "SHA-1 (algorithm 1) or SHA-256 (2) of at most 64 KiB; writes 20 or 32 bytes",
        returns: "the bytes that were written, `RANGE`, or `UNKNOWN` for another algorithm",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Log,
        name: "log",
        parameters: &[parameter("level", HostType::U32), parameter("text", HostType::Bytes), LEN],
        cost: CallCost { call: 2_000, per_byte: 4 },
        length: length(2, limit::LOG_BYTES, Beyond::Most),
        does: "a line to the operator; level 0 error, 1 warning, 2 information",
        returns: "0 or `FULL`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::ParamInt,
        name: "param_int",
        parameters: &[INDEX],
        result: HostType::I64,
        value: ResultValue::Integer,
        cost: CallCost { call: 60, per_byte: 0 },
        does: "an integer, bool (0, 1) or duration (ns)",
        returns: "the value; 0 if there is no such parameter",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::ParamFloat,
        name: "param_float",
        parameters: &[INDEX],
        result: HostType::F64,
        value: ResultValue::Float,
        cost: CallCost { call: 60, per_byte: 0 },
        does: "an f64",
        returns: "the value; 0 if there is no such parameter",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::ParamBytes,
        name: "param_bytes",
        parameters: &[INDEX, DESTINATION, ROOM],
        value: ResultValue::Length,
        cost: CallCost { call: 200, per_byte: 1 },
        length: Some(LengthArgument { parameter: 2, most: WorkMax::Parameter, beyond: Beyond::Most }),
        does: "copies a string, prefix or list, as much as there is room",
        returns: "its whole length, or `UNKNOWN`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Reserve,
        name: "reserve",
        parameters: &[parameter("bytes", HostType::I64)],
        result: HostType::I64,
        cost: CallCost { call: 2_000, per_byte: 0 },
        right: RequiredRight::Memory,
        does: "has the session's reservation of memory be so much in all; 0 only asks",
        returns: "what it is now (i64), or `DENIED`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Call,
        name: "call",
        parameters: &[parameter("service", HostType::U32), BYTES, LEN, parameter("deadline", HostType::U64)],
        result: HostType::I64,
        cost: CallCost { call: 8_000, per_byte: 2 },
        length: length(2, limit::MESSAGE_BYTES, Beyond::Nothing),
        right: RequiredRight::Service,
        does: "calls a [service](#services), by its place in the manifest's `calls`; `deadline` is an i64, in ns from now",
        returns: "a ticket above 0 (i64), `DENIED`, `WHEN` (no session offers it now), `FULL`, `RANGE`, or `UNKNOWN`",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Message,
        name: "message",
        parameters: &[DESTINATION, ROOM],
        cost: CallCost { call: 200, per_byte: 1 },
        length: length(1, limit::MESSAGE_BYTES, Beyond::Most),
        does: "copies the message that `weir_serve` or `weir_answer` is about, as much as there is room",
        returns: "its whole length",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Reply,
        name: "reply",
        parameters: &[parameter("call", HostType::U64), BYTES, LEN],
        cost: CallCost { call: 8_000, per_byte: 2 },
        length: length(2, limit::MESSAGE_BYTES, Beyond::Nothing),
        does: "answers a call (an i64) that `weir_serve` was given",
        returns: "0, `RANGE`, or `UNKNOWN` where no caller waits for it",
        ..PLAIN
    },
    HostDefinition {
        function: HostFunction::Publish,
        name: "publish",
        parameters: &[parameter("table", HostType::U32), BYTES, LEN],
        cost: CallCost { call: 60_000, per_byte: 2 },
        length: length(2, limit::PUBLISHED_BYTES, Beyond::Nothing),
        right: RequiredRight::Publish,
        does: "these bytes are the next version of a [table](#tables), by its place in the manifest",
        returns: "0, `FULL`, `RANGE`, `DENIED`, or `UNKNOWN` for a table that is not declared so",
        ..PLAIN
    },
];

/// Refuses to compile a table with a record at another function's place. So it does a record that the analyser could not bound: one without a price, or with
/// an address of bytes but no length.
const _: () = {
    let mut place = 0;
    while place < COUNT {
        let known = &HOST_FUNCTIONS[place];
        assert!(known.function as usize == place && !known.name.is_empty());
        assert!(known.cost.call > 0);
        let count = known.parameters.len();
        let mut index = 0;
        while index < count {
            let is_address = matches!(known.parameters[index].ty, HostType::Bytes | HostType::Buffer);
            assert!(!is_address || known.length.is_some());
            index += 1;
        }
        if let Some(length) = known.length {
            assert!(length.parameter < count && length.parameter + 2 >= count);
            assert!(matches!(known.parameters[length.parameter].ty, HostType::U32));
        }
        place += 1;
    }
};
