//! The host functions: all that a module can import.
//!
//! Each function has one definition in [`HOST_FUNCTIONS`]. From it follow the analyser's bound, the meter's charge, the
//! check of imports, the arguments that the loader adds, the declarations in both SDKs, and the reference in
//! docs/reference/MODULE.md. The implementations are in edge/sandbox.
//!
//! To add a function, add a variant of [`HostFunction`] and its definition. Edge/sandbox then does not compile until it
//! implements the function.

use crate::{crypto, limit};

/// The import module name of all host functions.
pub const MODULE: &str = "weir";

/// The algorithms of [`digest`](HostFunction::Digest).
pub mod algorithm {
    /// SHA-1 (FIPS 180-4); the digest has 20 bytes.
    pub const SHA1: u32 = 1;
    /// SHA-256 (FIPS 180-4); the digest has 32 bytes.
    pub const SHA256: u32 = 2;
    /// The most bytes that one call digests. On a processor without instructions for SHA, a digest takes ten times the
    /// time of [`hash`](super::HostFunction::Hash).
    pub const BYTES: u32 = 64 * 1024;
}

/// A host function. The number of a variant is its index in [`HOST_FUNCTIONS`].
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
    /// Releases a kept packet.
    Release,
    /// Compiles a set of patterns.
    FindCompile,
    /// Searches bytes for the patterns of a set.
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
    /// Copies the message that came with the call of `weir_serve` or `weir_answer`.
    Message,
    /// Answers a call of a service.
    Reply,
    /// Publishes the next version of a named table.
    Publish,
    /// Computes a keyed hash of bytes.
    Hmac,
    /// Derives a key from another.
    Hkdf,
    /// Decrypts and authenticates bytes.
    AeadOpen,
    /// Encrypts one block.
    AesBlock,
}

/// A WebAssembly value type that occurs in signatures.
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
    /// Address of a [`CryptoRequest`](crate::crypto::CryptoRequest).
    CryptoRequest,
}

impl HostType {
    /// Returns the WebAssembly type.
    pub const fn value_type(self) -> ValueType {
        match self {
            Self::U32 | Self::I32 | Self::Bytes | Self::Buffer | Self::Descriptor | Self::CryptoRequest => {
                ValueType::I32
            }
            Self::U64 | Self::I64 => ValueType::I64,
            Self::F64 => ValueType::F64,
        }
    }

    /// Returns the type as weir.h declares it. A name can follow without a space.
    pub const fn c_type(self) -> &'static str {
        match self {
            Self::U32 => "uint32_t ",
            Self::I32 => "int32_t ",
            Self::U64 => "uint64_t ",
            Self::I64 => "int64_t ",
            Self::F64 => "double ",
            Self::Bytes => "const void *",
            Self::Buffer => "void *",
            Self::Descriptor => "const struct weir_packet *",
            Self::CryptoRequest => "const struct weir_crypto *",
        }
    }
}

/// A parameter of a host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostParameter {
    /// The name in the SDKs and the reference.
    pub name: &'static str,
    /// The type.
    pub ty: HostType,
}

/// The result of a call, as far as the analyser knows it before the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultValue {
    /// Any value of its type.
    Any,
    /// The value of the module's integer parameter whose index is the first argument.
    Integer,
    /// The value of the module's float parameter whose index is the first argument.
    Float,
    /// The length of the module's parameter whose index is the first argument.
    Length,
}

/// The fuel of a call. It stands for at least the time that the call takes with warm caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCost {
    /// Fuel for each call.
    pub call: u32,
    /// Fuel for each byte that the [length argument](LengthArgument) states, and for each byte of a record's strings.
    pub per_byte: u32,
}

/// The most bytes that a call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthMax {
    /// A constant number of bytes.
    Bytes(u32),
    /// The length of the module's parameter whose index is the first argument.
    ModuleParameter,
}

/// The effect of a length argument over its [`LengthMax`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverLength {
    /// The call returns an error, or traps, before it reads or writes a byte.
    Refuse,
    /// The call reads or writes the largest permitted number of bytes.
    Truncate,
}

/// The argument that says how many bytes a call works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthArgument {
    /// The index of the argument. At most one argument may follow: the meter's code has one spare local for it.
    pub index: usize,
    /// The most bytes that a call works on.
    pub max: LengthMax,
    /// The effect of an argument over `max`.
    pub over_length: OverLength,
}

/// The output of a call that counts towards a limit of [`crate::limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitedOutput {
    /// No output that is limited.
    Nothing,
    /// One record, with the strings that its row points to.
    Record,
    /// One patch.
    Patch,
    /// One frame.
    Frame,
}

/// The entry points in which a function can be called. In any other it returns [`code::WHEN`](crate::code::WHEN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPhase {
    /// Always.
    Any,
    /// In the start function, `_initialize` and `weir_start`.
    Start,
    /// After `weir_start`.
    Running,
    /// In `weir_packet` and `weir_batch`, for a packet of the call.
    Packet,
}

/// The right that a module's session must have. Without it the function returns [`code::DENIED`](crate::code::DENIED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredRight {
    /// No right.
    Nothing,
    /// To write fields of packets.
    Write,
    /// To send frames to an output.
    Send,
    /// To keep packets.
    Keep,
    /// To change the reservation of memory.
    Memory,
    /// To call a service.
    Service,
    /// To publish a table.
    Publish,
}

/// The definition of a host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostDefinition {
    /// The function.
    pub function: HostFunction,
    /// The name, in the module [`MODULE`].
    pub name: &'static str,
    /// The parameters.
    pub parameters: &'static [HostParameter],
    /// The type of the result.
    pub result: HostType,
    /// The value of the result, as far as the analyser knows it before the call.
    pub value: ResultValue,
    /// The fuel of a call.
    pub cost: CallCost,
    /// The argument that says how many bytes a call works on; `None` for a function without such an argument.
    pub length: Option<LengthArgument>,
    /// The output of a call that counts towards a limit.
    pub output: LimitedOutput,
    /// True if the loader adds an argument: the mask of the packets that the batch still has to handle.
    pub gets_packet_mask: bool,
    /// The entry points in which the function can be called.
    pub phase: CallPhase,
    /// The right that the function needs.
    pub right: RequiredRight,
    /// The effect, as one line of Markdown.
    pub does: &'static str,
    /// The meaning of the return value, as one line of Markdown.
    pub returns: &'static str,
}

impl HostFunction {
    /// Returns the definition of the function.
    pub const fn definition(self) -> &'static HostDefinition {
        &HOST_FUNCTIONS[self as usize]
    }

    /// Returns the function's name, in the module [`MODULE`].
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// Returns the function with this import name; `None` for an unknown name.
    pub fn from_import_name(name: &str) -> Option<Self> {
        HOST_FUNCTIONS.iter().find(|known| known.name == name).map(|known| known.function)
    }
}

impl HostDefinition {
    /// Returns the WebAssembly types of the parameters.
    pub fn parameter_types(&self) -> impl Iterator<Item = ValueType> + use<> {
        self.parameters.iter().map(|parameter| parameter.ty.value_type())
    }
}

const fn parameter(name: &'static str, ty: HostType) -> HostParameter {
    HostParameter { name, ty }
}

const fn length(index: usize, max: u32, over_length: OverLength) -> Option<LengthArgument> {
    Some(LengthArgument { index, max: LengthMax::Bytes(max), over_length })
}

const BYTES: HostParameter = parameter("bytes", HostType::Bytes);
const LEN: HostParameter = parameter("len", HostType::U32);
const INDEX: HostParameter = parameter("index", HostType::U32);
const HANDLE: HostParameter = parameter("handle", HostType::I32);
const DESCRIPTOR: HostParameter = parameter("descriptor", HostType::Descriptor);
const DESTINATION: HostParameter = parameter("destination", HostType::Buffer);
const ROOM: HostParameter = parameter("room", HostType::U32);
const REQUEST: HostParameter = parameter("request", HostType::CryptoRequest);

/// The field values that most definitions have.
const DEFAULTS: HostDefinition = HostDefinition {
    function: HostFunction::Emit,
    name: "",
    parameters: &[],
    result: HostType::I32,
    value: ResultValue::Any,
    cost: CallCost { call: 0, per_byte: 0 },
    length: None,
    output: LimitedOutput::Nothing,
    gets_packet_mask: false,
    phase: CallPhase::Any,
    right: RequiredRight::Nothing,
    does: "",
    returns: "",
};

/// The number of host functions.
pub const COUNT: usize = HostFunction::AesBlock as usize + 1;

/// The definitions of all host functions, in the order of [`HostFunction`]. An address whose bytes are not wholly inside
/// one of the module's areas (private memory, packets, descriptors, tables) ends the call in progress as a fault.
pub static HOST_FUNCTIONS: [HostDefinition; COUNT] = [
    HostDefinition {
        function: HostFunction::Emit,
        name: "emit",
        parameters: &[parameter("stream", HostType::U32), parameter("row", HostType::Bytes), LEN],
        cost: CallCost { call: 700, per_byte: 2 },
        length: length(2, limit::HOST_READ_BYTES, OverLength::Refuse),
        output: LimitedOutput::Record,
        gets_packet_mask: true,
        does: "emits a record; `len` must be the row's size",
        returns: "0, `FULL`, or `UNKNOWN` for a stream that is not declared",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Patch,
        name: "patch",
        parameters: &[DESCRIPTOR, parameter("offset", HostType::U32), BYTES, LEN],
        cost: CallCost { call: 600, per_byte: 4 },
        length: length(3, limit::PATCH_BYTES, OverLength::Refuse),
        output: LimitedOutput::Patch,
        gets_packet_mask: true,
        phase: CallPhase::Packet,
        right: RequiredRight::Write,
        does: "changes bytes of a packet of the call",
        returns: "0, `RANGE`, `DENIED`, `FULL` or `WHEN`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Send,
        name: "send",
        parameters: &[parameter("output", HostType::U32), BYTES, LEN],
        cost: CallCost { call: 700, per_byte: 1 },
        length: length(2, limit::FRAME_BYTES, OverLength::Refuse),
        output: LimitedOutput::Frame,
        gets_packet_mask: true,
        phase: CallPhase::Running,
        right: RequiredRight::Send,
        does: "sends an Ethernet frame to an output",
        returns: "0, `FULL`, `RANGE`, `DENIED`, `WHEN`, or `UNKNOWN` for an output that is not declared",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Keep,
        name: "keep",
        parameters: &[DESCRIPTOR],
        cost: CallCost { call: 1_000, per_byte: 0 },
        gets_packet_mask: true,
        phase: CallPhase::Packet,
        right: RequiredRight::Keep,
        does: "keeps a packet of the call: its bytes stay in place",
        returns: "a handle from 0 on, `FULL`, `DENIED` or `WHEN`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Release,
        name: "release",
        parameters: &[HANDLE],
        cost: CallCost { call: 600, per_byte: 0 },
        does: "releases a kept packet",
        returns: "0 or `UNKNOWN`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::FindCompile,
        name: "find_compile",
        parameters: &[parameter("list", HostType::Bytes), LEN, parameter("flags", HostType::U32)],
        cost: CallCost { call: 40_000, per_byte: 2_000 },
        length: length(1, limit::PATTERN_BYTES + 4 * limit::PATTERNS, OverLength::Refuse),
        phase: CallPhase::Start,
        does: "compiles patterns, each a u32 length and its bytes; flag 1 ignores ASCII case",
        returns: "a handle from 0 on, `FULL`, `WHEN`, or `RANGE` for a list that is empty, cut, or has an empty pattern",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Find,
        name: "find",
        parameters: &[HANDLE, BYTES, LEN],
        result: HostType::I64,
        cost: CallCost { call: 160, per_byte: 4 },
        length: length(2, limit::HOST_READ_BYTES, OverLength::Refuse),
        gets_packet_mask: true,
        does: "finds the leftmost match; of several at one offset the longest",
        returns: "(pattern << 32) + offset, or -1 for none",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Hash,
        name: "hash",
        parameters: &[BYTES, LEN, parameter("seed", HostType::U64)],
        result: HostType::U64,
        cost: CallCost { call: 100, per_byte: 1 },
        length: length(1, limit::HOST_READ_BYTES, OverLength::Refuse),
        gets_packet_mask: true,
        does: "hashes bytes with XXH3-64",
        returns: "the hash",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Digest,
        name: "digest",
        parameters: &[parameter("algorithm", HostType::U32), BYTES, LEN, DESTINATION],
        cost: CallCost { call: 1_000, per_byte: 11 },
        length: length(2, algorithm::BYTES, OverLength::Refuse),
        gets_packet_mask: true,
        does: "digests at most 64 KiB with SHA-1 (algorithm 1) or SHA-256 (2); writes 20 or 32 bytes",
        returns: "the number of bytes written, `RANGE`, or `UNKNOWN` for another algorithm",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Log,
        name: "log",
        parameters: &[parameter("level", HostType::U32), parameter("text", HostType::Bytes), LEN],
        cost: CallCost { call: 2_000, per_byte: 4 },
        length: length(2, limit::LOG_BYTES, OverLength::Truncate),
        does: "logs a line for the operator; level 0 error, 1 warning, 2 information",
        returns: "0 or `FULL`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::ParamInt,
        name: "param_int",
        parameters: &[INDEX],
        result: HostType::I64,
        value: ResultValue::Integer,
        cost: CallCost { call: 60, per_byte: 0 },
        does: "reads an integer, bool (0, 1) or duration (ns)",
        returns: "the value; 0 if there is no such parameter",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::ParamFloat,
        name: "param_float",
        parameters: &[INDEX],
        result: HostType::F64,
        value: ResultValue::Float,
        cost: CallCost { call: 60, per_byte: 0 },
        does: "reads an f64",
        returns: "the value; 0 if there is no such parameter",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::ParamBytes,
        name: "param_bytes",
        parameters: &[INDEX, DESTINATION, ROOM],
        value: ResultValue::Length,
        cost: CallCost { call: 200, per_byte: 1 },
        length: Some(LengthArgument {
            index: 2,
            max: LengthMax::ModuleParameter,
            over_length: OverLength::Truncate,
        }),
        does: "copies a string, prefix or list, as much as fits",
        returns: "its whole length, or `UNKNOWN`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Reserve,
        name: "reserve",
        parameters: &[parameter("bytes", HostType::I64)],
        result: HostType::I64,
        cost: CallCost { call: 2_000, per_byte: 0 },
        right: RequiredRight::Memory,
        does: "sets the session's memory reservation; 0 only asks",
        returns: "the reservation (i64), or `DENIED`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Call,
        name: "call",
        parameters: &[parameter("service", HostType::U32), BYTES, LEN, parameter("deadline", HostType::U64)],
        result: HostType::I64,
        cost: CallCost { call: 8_000, per_byte: 2 },
        length: length(2, limit::MESSAGE_BYTES, OverLength::Refuse),
        right: RequiredRight::Service,
        does: "calls a [service](#services), by its index in the manifest's `calls`; `deadline` is an i64, in ns from now",
        returns: "a ticket above 0 (i64), `DENIED`, `WHEN` (no session offers it now), `FULL`, `RANGE`, or `UNKNOWN`",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Message,
        name: "message",
        parameters: &[DESTINATION, ROOM],
        cost: CallCost { call: 200, per_byte: 1 },
        length: length(1, limit::MESSAGE_BYTES, OverLength::Truncate),
        does: "copies the message of this `weir_serve` or `weir_answer`, as much as fits",
        returns: "its whole length",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Reply,
        name: "reply",
        parameters: &[parameter("call", HostType::U64), BYTES, LEN],
        cost: CallCost { call: 8_000, per_byte: 2 },
        length: length(2, limit::MESSAGE_BYTES, OverLength::Refuse),
        does: "answers a call (an i64) of `weir_serve`",
        returns: "0, `RANGE`, or `UNKNOWN` where no caller waits for it",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Publish,
        name: "publish",
        parameters: &[parameter("table", HostType::U32), BYTES, LEN],
        cost: CallCost { call: 60_000, per_byte: 2 },
        length: length(2, limit::PUBLISHED_BYTES, OverLength::Refuse),
        right: RequiredRight::Publish,
        does: "publishes the next version of a [table](#tables), by its index in the manifest",
        returns: "0, `FULL`, `RANGE`, `DENIED`, or `UNKNOWN` for a table that is not declared as published",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Hmac,
        name: "hmac",
        parameters: &[REQUEST, LEN],
        cost: CallCost { call: 4_500, per_byte: 11 },
        length: length(1, crypto::BYTES, OverLength::Refuse),
        does: "authenticates the [request](#cryptography)'s input with HMAC-SHA-256; `len` is at least the lengths of key and input",
        returns: "the number of bytes written, `RANGE`, or `UNKNOWN` for another algorithm or kind of key",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::Hkdf,
        name: "hkdf",
        parameters: &[REQUEST, LEN],
        cost: CallCost { call: 4_500, per_byte: 11 },
        length: length(1, crypto::BYTES, OverLength::Refuse),
        does: "extracts a key, with `len` as for `hmac`, or expands one; then `len` is at least the input's length and 192, for each 32 bytes of output",
        returns: "the number of bytes written, `RANGE`, or `UNKNOWN` for another algorithm or kind of key",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::AeadOpen,
        name: "aead_open",
        parameters: &[REQUEST, LEN],
        cost: CallCost { call: 6_000, per_byte: 20 },
        length: length(1, crypto::BYTES, OverLength::Refuse),
        does: "decrypts the [request](#cryptography)'s input with AES-128-GCM, and checks its tag; `len` is at least the lengths of associated data and input",
        returns: "the number of bytes written, `FORGED` (no byte is written), `RANGE`, or `UNKNOWN` for another algorithm or kind of key",
        ..DEFAULTS
    },
    HostDefinition {
        function: HostFunction::AesBlock,
        name: "aes_block",
        parameters: &[REQUEST],
        cost: CallCost { call: 4_000, per_byte: 0 },
        does: "encrypts the [request](#cryptography)'s input, a block of 16 bytes, with AES-128",
        returns: "16, `RANGE`, or `UNKNOWN` for another algorithm or kind of key",
        ..DEFAULTS
    },
];

/// Compilation fails for a definition at the index of another function. It also fails for definitions that the analyser
/// could not bound: without fuel for a call, or with an address of bytes but no length. Descriptors and requests have
/// their size; what a request points to is bounded by the length argument, or is of constant size.
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
            assert!(length.index < count && length.index + 2 >= count);
            assert!(matches!(known.parameters[length.index].ty, HostType::U32));
        }
        place += 1;
    }
};
