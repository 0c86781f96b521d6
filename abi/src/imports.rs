//! The functions that a module may import. There are no others: a module that asks for more is refused by name.

/// The import module name of all of them.
pub const MODULE: &str = "weir";

/// WebAssembly value types that appear in the signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 32-bit integer; also a guest address or a length.
    I32,
    /// 64-bit integer.
    I64,
    /// 64-bit float.
    F64,
}

/// One host function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// Its name, in the module [`MODULE`].
    pub name: &'static str,
    /// Its parameters.
    pub params: &'static [Type],
    /// Its result, if it has one.
    pub result: Option<Type>,
    /// What it does, in a line.
    pub summary: &'static str,
}

use Type::{F64, I32, I64};

/// Every function that a module may import.
///
/// A guest address and length that are not wholly inside one of the module's own areas (private memory, packets, descriptors)
/// end the call: the module loses that packet, and the summary says why.
pub const ALL: &[Import] = &[
    Import {
        name: "emit",
        params: &[I32, I32, I32],
        result: Some(I32),
        summary: "emit(stream, row, len): one record into a declared stream; the row is laid out as in `row`. 0, FULL or UNKNOWN",
    },
    Import {
        name: "patch",
        params: &[I32, I32, I32, I32],
        result: Some(I32),
        summary: "patch(descriptor, offset, bytes, len): change bytes in the packet's private copy. 0, RANGE, DENIED, FULL or WHEN",
    },
    Import {
        name: "send",
        params: &[I32, I32, I32],
        result: Some(I32),
        summary: "send(output, bytes, len): an Ethernet frame of the module's own to a declared output. 0, FULL, RANGE, DENIED, WHEN or UNKNOWN",
    },
    Import {
        name: "keep",
        params: &[I32],
        result: Some(I32),
        summary: "keep(descriptor): the bytes of the packet at hand stay where they are, and as they are. A handle, FULL, DENIED or WHEN",
    },
    Import {
        name: "release",
        params: &[I32],
        result: Some(I32),
        summary: "release(handle): lets go of a packet that was kept. 0 or UNKNOWN",
    },
    Import {
        name: "find_compile",
        params: &[I32, I32, I32],
        result: Some(I32),
        summary: "find_compile(list, len, flags): compile patterns (each u32 length, bytes); flag 1 ignores ASCII case. At start only. A handle, FULL, WHEN or RANGE",
    },
    Import {
        name: "find",
        params: &[I32, I32, I32],
        result: Some(I64),
        summary: "find(handle, bytes, len): the leftmost match as (pattern << 32 | offset), or -1; of several at one offset the longest",
    },
    Import {
        name: "hash",
        params: &[I32, I32, I64],
        result: Some(I64),
        summary: "hash(bytes, len, seed): XXH3-64",
    },
    Import {
        name: "log",
        params: &[I32, I32, I32],
        result: Some(I32),
        summary: "log(level, text, len): a line to the operator; level 0 error, 1 warning, 2 information. 0 or FULL",
    },
    Import {
        name: "param_int",
        params: &[I32],
        result: Some(I64),
        summary: "param_int(index): an integer, bool (0, 1) or duration (ns) parameter",
    },
    Import {
        name: "param_float",
        params: &[I32],
        result: Some(F64),
        summary: "param_float(index): an f64 parameter",
    },
    Import {
        name: "param_bytes",
        params: &[I32, I32, I32],
        result: Some(I32),
        summary: "param_bytes(index, destination, room): copies up to `room` bytes of a string, prefix or list; returns its whole length",
    },
    Import {
        name: "reserve",
        params: &[I64],
        result: Some(I64),
        summary: "reserve(bytes): the memory that the module's session has reserved is to be so much in all; 0 changes nothing. What it is now, or DENIED",
    },
    Import {
        name: "call",
        params: &[I32, I32, I32, I64],
        result: Some(I64),
        summary: "call(service, bytes, len, deadline): call a service, by its place in the manifest's `calls`, to be answered within `deadline` ns. A ticket for `weir_answer`, FULL, DENIED, RANGE, WHEN or UNKNOWN",
    },
    Import {
        name: "message",
        params: &[I32, I32],
        result: Some(I32),
        summary: "message(destination, room): copies up to `room` bytes of the message that the module is being told of; returns its whole length",
    },
    Import {
        name: "reply",
        params: &[I64, I32, I32],
        result: Some(I32),
        summary: "reply(call, bytes, len): answer a call that `weir_serve` was given. 0, RANGE, or UNKNOWN for one that nobody waits for any more",
    },
    Import {
        name: "publish",
        params: &[I32, I32, I32],
        result: Some(I32),
        summary: "publish(table, bytes, len): these bytes are the next version of a table, by its place in the manifest. 0, FULL, RANGE, DENIED or UNKNOWN",
    },
];
