//! The contract between weir and the modules it runs.
//!
//! This crate is the whole contract: the addresses of packets, the layout of packet descriptors and of records, the
//! functions that a module may export and import, and the meaning of return codes. `guest/sdk-c/weir.h` states the
//! contract in C, and a test compares the two.
//!
//! # A module's address space
//!
//! ```text
//! 0x0000_0000 .. memory size   private memory, read and write, at most PRIVATE_MAX
//! POLL_PAGE   .. + a page      zeros, which weir's own checks read; inaccessible once a call's time is over
//! ARENA_BASE  .. + window      packet bytes, read only: a store here ends the call
//! TABLES_BASE .. + windows     named tables that the module reads, read only, in the order in which its manifest declares them
//! DESCRIPTORS_BASE .. + ring   descriptors of the batches in flight, read only
//! STREAMS_BASE .. + window     the event of a TCP stream and its bytes, read only, if the module follows streams
//! everywhere else              nothing: any access ends the call
//! ```
//!
//! All integers are little-endian, as WebAssembly's are; packet bytes are as they were on the link.

#![no_std]
#![forbid(unsafe_code)]

pub mod crypto;
mod descriptor;
pub mod entry;
pub mod finding;
pub mod host;
pub mod row;
pub mod stream;

pub use descriptor::{Descriptor, flag, tunnel};

/// The version of this contract. A manifest names the version that its module was built for.
pub const ABI_VERSION: u32 = 2;

/// The most packets that one call handles: one bit each in a 64-bit mask.
pub const BATCH_PACKETS: usize = 64;

/// The size of one packet descriptor in bytes: two cache lines, of which most modules read only the first. A power of
/// two, so that an address identifies the descriptor of a batch.
pub const DESCRIPTOR_BYTES: usize = 128;
const _: () = assert!(DESCRIPTOR_BYTES.is_power_of_two());

/// Bytes of the descriptors of one batch: two pages, so that a batch begins on a page.
pub const BATCH_BYTES: usize = BATCH_PACKETS * DESCRIPTOR_BYTES;

/// The most private memory that a module can have, in bytes: 1023 MiB.
pub const PRIVATE_MAX: u32 = 0x3FF0_0000;

/// Guest address of a page that is read in every loop, by instructions that the loader adds. Below 2 GiB, so that its address fits into the instruction.
pub const POLL_PAGE: u32 = 0x3FFF_0000;

/// Guest address at which the window on the packet arena begins.
pub const ARENA_BASE: u32 = 0x4000_0000;

/// The largest window on the packet arena, in bytes.
pub const ARENA_MAX: u32 = 0x8000_0000;

/// Guest address at which the windows on named tables begin. Each begins with a [header](table), and at a multiple of
/// [`table::WINDOW_STEP`].
pub const TABLES_BASE: u32 = 0xC000_0000;

/// The most bytes that all windows on named tables take together.
pub const TABLES_MAX: u32 = 0x2000_0000;

/// Guest address at which the descriptors begin.
pub const DESCRIPTORS_BASE: u32 = 0xE000_0000;

/// The most bytes of descriptors that are mapped.
pub const DESCRIPTORS_MAX: u32 = 0x1000_0000;

/// Guest address of the present event of a TCP stream.
pub const STREAMS_BASE: u32 = 0xF000_0000;

/// Bytes from [`STREAMS_BASE`] on: the event, and from half of them on the bytes that are not in a packet.
pub const STREAMS_WINDOW: u32 = 128 * 1024;

/// Name of the custom section that holds the manifest (TOML, UTF-8).
pub const MANIFEST_SECTION: &str = "weir.manifest";

/// The prefix of exported names that are reserved for weir.
pub const RESERVED_PREFIX: &str = "weir_";

/// Exports of a module beside its [entry points](entry).
pub mod export {
    /// The module's linear memory.
    pub const MEMORY: &str = "memory";
    /// The shadow stack pointer of LLVM's WebAssembly targets; reset after a lost call.
    pub const STACK_POINTER: &str = "__stack_pointer";
    /// The beginning of the name of a global that has the address of a block of state, as the manifest's `[[state]]` names
    /// it: `weir_state_hosts`.
    pub const STATE_PREFIX: &str = "weir_state_";
}

/// Verdicts of a module on a packet.
pub mod verdict {
    /// The packet goes on to its egress.
    pub const PASS: i32 = 0;
    /// The packet is dropped. Every value but [`PASS`] drops the packet.
    pub const DROP: i32 = 1;
}

/// Causes of a lost call.
pub mod lost {
    /// The call trapped: a bad access, a division by 0, a bounded loop past its bound, or any other fault.
    pub const TRAP: i32 = 1;
    /// The call exceeded its limit of fuel or of time.
    pub const LIMIT: i32 = 2;
}

/// Outcomes of a call of a service.
pub mod answer {
    /// The serving module answered.
    pub const ANSWERED: i32 = 0;
    /// The deadline passed before an answer. A later answer is discarded.
    pub const LATE: i32 = 1;
    /// The serving module no longer exists.
    pub const GONE: i32 = 2;
    /// The serving module lost the call in which it was to answer.
    pub const FAILED: i32 = 3;
}

/// The header before the bytes of a named table, in its window. An empty or missing table has a header, too, with a
/// length of 0. The rest of the table's last page is zero. Further pages of the window are unmapped, and an access
/// ends the call.
pub mod table {
    /// Offset of the table's version, a u64: 0 without a table, and a different number for each content. If a version is
    /// taken back, the previous number and the previous bytes return.
    pub const VERSION: usize = 0;
    /// Offset of the table's length in bytes, a u32.
    pub const LEN: usize = 8;
    /// The size of the header in bytes. The table's own bytes follow.
    pub const HEADER_BYTES: u32 = 64;
    /// The alignment of windows: the largest page of any processor that weir supports.
    pub const WINDOW_STEP: u32 = 65_536;

    /// Returns the size of the window on a table of at most `bytes` bytes. A size above
    /// [`TABLE_BYTES`](super::limit::TABLE_BYTES) counts as `TABLE_BYTES`.
    pub const fn window(bytes: u32) -> u32 {
        let bytes = if bytes < super::limit::TABLE_BYTES { bytes } else { super::limit::TABLE_BYTES };
        (bytes + HEADER_BYTES).next_multiple_of(WINDOW_STEP)
    }
}

/// Codes that host functions return. Anything at or above 0 is a success.
pub mod code {
    /// Success.
    pub const OK: i32 = 0;
    /// A limit is reached: the record, frame or message is dropped and counted. There is no memory for a table.
    pub const FULL: i32 = -1;
    /// A patch that is too long or not inside the packet; a frame that is too long or too short; a table that is longer
    /// than declared.
    pub const RANGE: i32 = -2;
    /// Not allowed: a field that affects parsing, or a checksum; a right that the module's session lacks; an output
    /// that leads nowhere; a packet that cannot be kept; a table without readers.
    pub const DENIED: i32 = -3;
    /// Not possible now: the function cannot be called in this entry point, or no session offers the called service.
    pub const WHEN: i32 = -4;
    /// No such thing: an unknown parameter, stream, output, table, pattern or kept packet.
    pub const UNKNOWN: i32 = -5;
    /// The authentication tag does not match: the bytes, the nonce, the key or the associated data are not the sender's.
    pub const FORGED: i32 = -6;
}

/// Limits on one call's requests to the host. They do not depend on the number of threads, so neither does the output.
pub mod limit {
    /// Records that one packet may cause. More are dropped and counted.
    pub const RECORDS_PER_PACKET: u32 = 64;
    /// Bytes of records that one packet may cause.
    pub const RECORD_BYTES_PER_PACKET: u32 = 16 * 1024;
    /// Records that `weir_start`, `weir_stop`, a call of `weir_rest`, or all ticks of a block of packets together may emit.
    pub const RECORDS_PER_CALL: u32 = 65_536;
    /// Bytes of records that `weir_start`, `weir_stop`, a call of `weir_rest`, or all ticks of a block of packets together may emit.
    pub const RECORD_BYTES_PER_CALL: u32 = 8 * 1024 * 1024;
    /// Calls of `weir_rest`.
    pub const REST_CALLS: u32 = 512;
    /// Bytes of all strings of one record.
    pub const RECORD_STRING_BYTES: u32 = 4096;
    /// Patches of one packet by one module.
    pub const PATCHES_PER_PACKET: u32 = 32;
    /// Bytes that one patch writes.
    pub const PATCH_BYTES: u32 = 256;
    /// Bytes of the longest frame that a module sends: a jumbo frame, with its header and tags.
    pub const FRAME_BYTES: u32 = 9_216;
    /// Bytes of the shortest frame that a module sends: an Ethernet header.
    pub const FRAME_BYTES_MIN: u32 = 14;
    /// Frames that one packet may cause. More are refused and counted.
    pub const FRAMES_PER_PACKET: u32 = 64;
    /// Bytes of frames that one packet may cause.
    pub const FRAME_BYTES_PER_PACKET: u32 = 128 * 1024;
    /// Frames that `weir_stop`, a call of `weir_rest`, or all ticks of a block of packets together, may send.
    pub const FRAMES_PER_CALL: u32 = 4_096;
    /// Bytes of frames that `weir_stop`, a call of `weir_rest`, or all ticks of a block of packets together, may send.
    pub const FRAME_BYTES_PER_CALL: u32 = 4 * 1024 * 1024;
    /// Packets that an instance of a module keeps at once.
    pub const KEPT_PACKETS: u32 = 1024;
    /// Pattern sets of a module.
    pub const PATTERN_SETS: u32 = 16;
    /// Patterns of a set.
    pub const PATTERNS: u32 = 1024;
    /// Bytes of all patterns of a set.
    pub const PATTERN_BYTES: u32 = 64 * 1024;
    /// Bytes that one call of a host function reads. More bytes take several calls.
    pub const HOST_READ_BYTES: u32 = 1 << 20;
    /// The most captured bytes of one packet. A capture that states more is invalid.
    pub const PACKET_BYTES: u32 = 16 << 20;
    /// Bytes of one log message; the rest is cut.
    pub const LOG_BYTES: u32 = 512;
    /// Log messages of one module in a run.
    pub const LOG_MESSAGES: u32 = 100;
    /// Bytes of a message between sessions.
    pub const MESSAGE_BYTES: u32 = 64 * 1024;
    /// Unanswered calls of services that one module has made.
    pub const CALLS: u32 = 64;
    /// The longest deadline of a call in ns: a minute.
    pub const DEADLINE_NS: u64 = 60_000_000_000;
    /// The shortest deadline of a call in ns. With a shorter one, a callee would be woken for calls that are late
    /// before it runs.
    pub const DEADLINE_MIN_NS: u64 = 100_000;
    /// Named tables that one module reads and publishes.
    pub const TABLES: u32 = 8;
    /// Bytes of a named table.
    pub const TABLE_BYTES: u32 = 64 << 20;
    /// The most blocks of state of a module.
    pub const STATES: u32 = 8;
    /// The largest block of state, in bytes.
    pub const STATE_BYTES: u32 = 16 << 20;
    /// Bytes of a named table that a module publishes: one host call copies it.
    pub const PUBLISHED_BYTES: u32 = 1 << 20;
}
