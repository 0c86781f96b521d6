//! The contract between weir and the modules it runs.
//!
//! Both sides agree on what is in this crate and on nothing else: where a module finds packets, how a packet
//! descriptor is laid out, which functions a module may export and import, how the rows that it emits look, and
//! what the return codes mean. `guest/sdk-c/weir.h` says the same in C, and a test holds one against the other.
//!
//! # A module's address space
//!
//! ```text
//! 0x0000_0000 .. memory size   private memory, read and write, at most PRIVATE_MAX
//! POLL_PAGE   .. + a page      zeros, which weir's own checks read; taken away when a call's time is over
//! ARENA_BASE  .. + window      packet bytes, read only: a store here ends the call
//! TABLES_BASE .. + windows     named tables that the module reads, read only, in the order in which its manifest declares them
//! DESCRIPTORS_BASE .. + ring   descriptors of the batches in flight, read only
//! everywhere else              nothing: any access ends the call
//! ```
//!
//! All integers are little-endian, as WebAssembly's are; packet bytes are as they were on the link.

#![no_std]
#![forbid(unsafe_code)]

mod descriptor;
pub mod entry;
pub mod host;
pub mod row;

pub use descriptor::{Descriptor, flag, tunnel};

/// The version of this contract. A manifest names the version that its module was built for.
pub const ABI_VERSION: u32 = 2;

/// The most packets that one call handles: one bit each in a 64-bit mask.
pub const BATCH_PACKETS: usize = 64;

/// Bytes of one packet descriptor: two cache lines, of which most modules read the first alone. A power of two, so that an address says which descriptor
/// of a batch it is.
pub const DESCRIPTOR_BYTES: usize = 128;
const _: () = assert!(DESCRIPTOR_BYTES.is_power_of_two());

/// Bytes of the descriptors of one batch: two pages, so that a batch begins on a page.
pub const BATCH_BYTES: usize = BATCH_PACKETS * DESCRIPTOR_BYTES;

/// The most private memory that a module can have, in bytes: 1023 MiB.
pub const PRIVATE_MAX: u32 = 0x3FF0_0000;

/// Guest address of a page that the loader's checks read in every loop. Below 2 GiB, so that its address fits into the instruction.
pub const POLL_PAGE: u32 = 0x3FFF_0000;

/// Guest address at which the window on the packet arena begins.
pub const ARENA_BASE: u32 = 0x4000_0000;

/// The largest window on the packet arena, in bytes.
pub const ARENA_MAX: u32 = 0x8000_0000;

/// Guest address at which the windows on named tables begin. Each begins with a [header](table), and at a multiple of [`table::WINDOW_STEP`].
pub const TABLES_BASE: u32 = 0xC000_0000;

/// The most bytes of all windows on named tables.
pub const TABLES_MAX: u32 = 0x2000_0000;

/// Guest address at which the descriptors begin.
pub const DESCRIPTORS_BASE: u32 = 0xE000_0000;

/// The most bytes of descriptors that are mapped.
pub const DESCRIPTORS_MAX: u32 = 0x1000_0000;

/// Name of the custom section that holds the manifest (TOML, UTF-8).
pub const MANIFEST_SECTION: &str = "weir.manifest";

/// Exported names that begin with this belong to weir.
pub const RESERVED_PREFIX: &str = "weir_";

/// Exports of a module beside its [entry points](entry).
pub mod export {
    /// The module's linear memory.
    pub const MEMORY: &str = "memory";
    /// The shadow stack pointer that LLVM's WebAssembly targets use; put back where it was after a lost call.
    pub const STACK_POINTER: &str = "__stack_pointer";
}

/// What a module answers for a packet.
pub mod verdict {
    /// The packet goes on.
    pub const PASS: i32 = 0;
    /// The packet is not written to the output. Anything but [`PASS`] means this.
    pub const DROP: i32 = 1;
}

/// Why a call was lost.
pub mod lost {
    /// It trapped: a bad access, a division by 0, a bounded loop past its bound, or any other fault.
    pub const TRAP: i32 = 1;
    /// It used more than it may: fuel, or time.
    pub const LIMIT: i32 = 2;
}

/// How a call of a service was answered.
pub mod answer {
    /// By the module that serves it.
    pub const ANSWERED: i32 = 0;
    /// Not before its deadline. What is answered after that is discarded.
    pub const LATE: i32 = 1;
    /// The module that serves it is there no longer.
    pub const GONE: i32 = 2;
    /// The module that serves it lost its own call.
    pub const FAILED: i32 = 3;
}

/// What is in front of the bytes of a named table, in its window. It is there also where the table is empty, or not there: then it has the length 0. What
/// lies behind the table's bytes in its last page is zero; further pages of the window are nothing, and an access ends the call.
pub mod table {
    /// Offset of the table's version, a u64: 0 where there is none, and another one whenever the bytes are others. What is taken back shows the earlier
    /// one again, with the earlier bytes.
    pub const VERSION: usize = 0;
    /// Offset of the number of bytes that the table has, a u32.
    pub const LEN: usize = 8;
    /// Bytes of the header. The table's own bytes follow.
    pub const HEADER_BYTES: u32 = 64;
    /// Windows begin at multiples of this: the largest page of any processor that weir runs on.
    pub const WINDOW_STEP: u32 = 65_536;

    /// How much of the address space the window on a table of at most so many bytes takes; of one that is longer than a table can be, as much as of
    /// one that is not.
    pub const fn window(bytes: u32) -> u32 {
        let bytes = if bytes < super::limit::TABLE_BYTES { bytes } else { super::limit::TABLE_BYTES };
        (bytes + HEADER_BYTES).next_multiple_of(WINDOW_STEP)
    }
}

/// What host functions return when they do not do what was asked. Anything at or above 0 is a success.
pub mod code {
    /// Done.
    pub const OK: i32 = 0;
    /// A limit is reached: the record, frame or message is dropped and counted. There is no memory for a table.
    pub const FULL: i32 = -1;
    /// Outside the packet, or outside what a patch can reach; a frame that is longer or shorter than one can be; a table that is longer than
    /// was declared.
    pub const RANGE: i32 = -2;
    /// Not allowed: a field that says how the packet is parsed, or a checksum; what the module's session may not have or use; an output that leads
    /// nowhere; a packet that cannot be kept; a table that nobody could read.
    pub const DENIED: i32 = -3;
    /// Not possible at this time: for instance compiling a pattern after start, or sending before its end.
    pub const WHEN: i32 = -4;
    /// No such thing: an unknown parameter, stream, output, table, pattern or kept packet.
    pub const UNKNOWN: i32 = -5;
}

/// Limits on what one call can ask of the host. They do not depend on how many threads run, so neither does the output.
pub mod limit {
    /// Records that one packet may cause. More are dropped and counted.
    pub const RECORDS_PER_PACKET: u32 = 64;
    /// Bytes of records that one packet may cause.
    pub const RECORD_BYTES_PER_PACKET: u32 = 16 * 1024;
    /// Records that start, stop, or all ticks of a block of packets together may emit.
    pub const RECORDS_PER_CALL: u32 = 65_536;
    /// Bytes of records that start, stop, or all ticks of a block of packets together may emit.
    pub const RECORD_BYTES_PER_CALL: u32 = 8 * 1024 * 1024;
    /// Bytes of all strings of one record.
    pub const RECORD_STRING_BYTES: u32 = 4096;
    /// Patches of one packet by one module.
    pub const PATCHES_PER_PACKET: u32 = 32;
    /// Bytes that one patch writes.
    pub const PATCH_BYTES: u32 = 256;
    /// Bytes of the longest frame that a module sends: a jumbo frame, with its header and tags.
    pub const FRAME_BYTES: u32 = 9_216;
    /// Bytes of the shortest: an Ethernet header.
    pub const FRAME_BYTES_MIN: u32 = 14;
    /// Frames that one packet may cause. More are refused and counted.
    pub const FRAMES_PER_PACKET: u32 = 64;
    /// Bytes of frames that one packet may cause.
    pub const FRAME_BYTES_PER_PACKET: u32 = 128 * 1024;
    /// Frames that the stop, or all ticks of a block of packets together, may send.
    pub const FRAMES_PER_CALL: u32 = 4_096;
    /// Bytes of frames that the stop, or all ticks of a block of packets together, may send.
    pub const FRAME_BYTES_PER_CALL: u32 = 4 * 1024 * 1024;
    /// Packets that an instance of a module keeps at once.
    pub const KEPT_PACKETS: u32 = 1024;
    /// Pattern sets of a module.
    pub const PATTERN_SETS: u32 = 16;
    /// Patterns of a set.
    pub const PATTERNS: u32 = 1024;
    /// Bytes of all patterns of a set.
    pub const PATTERN_BYTES: u32 = 64 * 1024;
    /// Bytes that one call of a host function reads: more is done in pieces.
    pub const HOST_READ_BYTES: u32 = 1 << 20;
    /// Captured bytes of one packet: no capture is believed that states more.
    pub const PACKET_BYTES: u32 = 16 << 20;
    /// Bytes of one log message; the rest is cut.
    pub const LOG_BYTES: u32 = 512;
    /// Log messages of one module in a run.
    pub const LOG_MESSAGES: u32 = 100;
    /// Bytes of a message between sessions.
    pub const MESSAGE_BYTES: u32 = 64 * 1024;
    /// Calls of services that one module has made and that it has not been told the answers of.
    pub const CALLS: u32 = 64;
    /// Nanoseconds that an answer can be waited for: a minute.
    pub const DEADLINE_NS: u64 = 60_000_000_000;
    /// Nanoseconds that an answer is waited for at least: with less, a callee would be woken for what is late before it runs.
    pub const DEADLINE_MIN_NS: u64 = 100_000;
    /// Named tables that one module reads and publishes.
    pub const TABLES: u32 = 8;
    /// Bytes of a named table.
    pub const TABLE_BYTES: u32 = 64 << 20;
    /// Bytes of a named table that a module publishes: it is read by one call of the host.
    pub const PUBLISHED_BYTES: u32 = 1 << 20;
}
