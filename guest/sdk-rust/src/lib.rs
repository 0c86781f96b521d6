//! The SDK for weir modules in Rust: the counterpart of `weir.h` for C, with a safe interface.
//!
//! A module is a state, functions that weir calls with it, and a manifest (`weir.toml`), from which `weir build` makes
//! `module.rs`: a struct for each stream, a function for each parameter.
//!
//! ```ignore
//! #![cfg_attr(target_arch = "wasm32", no_std)]
//! #![forbid(unsafe_code)]
//!
//! #[path = "../.weir/module.rs"]
//! mod module;
//!
//! use weir_guest::{Packet, Verdict};
//!
//! struct Openings {
//!     seen: u64,
//! }
//!
//! impl Openings {
//!     fn packet(&mut self, p: &Packet) -> Verdict {
//!         self.seen += u64::from(p.tcp_flags & weir_guest::tcp::SYN != 0);
//!         Verdict::Pass
//!     }
//!
//!     fn stop(&mut self, now: u64) {
//!         weir_guest::emit(&module::Totals { time: now, openings: self.seen });
//!     }
//! }
//!
//! weir_guest::module! {
//!     state: Openings = Openings { seen: 0 };
//!     packet: Openings::packet;
//!     stop: Openings::stop;
//! }
//! ```
//!
//! Packets and descriptors are read in place. Safe code cannot read past a packet's end: all access is through slices. A panic ends the
//! call and is logged with its place in the source: the module loses that packet, keeps its state, and goes on with
//! the next. All time is packet time; there is no clock.
//!
//! This crate states the same interface as the crate `weir-abi`; a test compares the two.

#![no_std]
// `weir_native` is set in the native builds of `weir test`.
#![allow(unknown_lints, unexpected_cfgs)]

#[cfg(test)]
extern crate std;

mod bounded;
mod bytes;
mod community_id;
pub mod containers;
mod crypto;
mod descriptor;
mod entry;
mod find;
mod finding;
mod hash;
mod heap;
mod host;
mod ip;
mod kept;
mod log;
mod log_format;
mod mac;
mod packet;
mod parameter;
pub mod parse;
mod record;
mod scratch;
mod send;
pub mod service;
pub mod stream;
mod stream_event;
mod table;

pub use bounded::{AtMost, Bounded, BoundedIterator};
pub use bytes::{be16, be32, be64};
pub use community_id::{community_id, CommunityId};
pub use crypto::{aes128_block, aes128_gcm_open, hkdf_expand, hkdf_expand_label, hkdf_extract, hmac_sha256};
pub use descriptor::{flag, tcp, tunnel, Descriptor};
pub use entry::{Lost, Verdict};
pub use find::{find_short, Case, Found, Patterns};
pub use finding::severity;
pub use hash::*;
pub use heap::{alloc, reserve};
pub use host::Error;
pub use ip::{Ip, Prefix};
pub use kept::Kept;
pub use log::{log, Level, Line, LogValue};
pub use mac::Mac;
pub use packet::{Batch, Drops, Packet};
pub use parameter::{List, PrefixList, TooLong};
pub use record::{emit, Row, Str};
pub use scratch::{Free, Scratch};
pub use send::Output;
pub use stream::StreamEvent;
pub use stream_event::{StreamEventFields, StreamReply};
pub use table::{Published, Table};

/// The version of the contract between weir and its modules that this crate was written for.
pub const ABI_VERSION: u32 = 2;

/// Support for [`module!`] and the generated `module.rs`; not part of the interface.
#[doc(hidden)]
pub mod generated {
    pub use crate::entry::{batch, packet, stream_event, State};
    pub use crate::log_format::{log_check, log_is_hex, log_plain_text, log_text, log_text_len};
    pub use crate::parameter::{bytes, float, int, list, prefix, prefixes, words};
    pub use crate::record::emit_layout as emit;
    pub use crate::table::{published, table};
}

/// Limits of the host. Anything beyond them is dropped and counted, or answered with [`Error::Full`].
pub mod limit {
    /// Packets of one call of a batch function.
    pub const BATCH_PACKETS: usize = 64;
    /// Records that one packet may cause.
    pub const RECORDS_PER_PACKET: u32 = 64;
    /// Bytes of records that one packet may cause.
    pub const RECORD_BYTES_PER_PACKET: u32 = 16 * 1024;
    /// Records that one call of start, tick, stop or rest may emit.
    pub const RECORDS_PER_CALL: u32 = 65_536;
    /// Bytes of records that one call of start, tick, stop or rest may emit.
    pub const RECORD_BYTES_PER_CALL: u32 = 8 * 1024 * 1024;
    /// Calls of the function `rest`.
    pub const REST_CALLS: u32 = 512;
    /// Bytes of all strings of one record.
    pub const RECORD_STRING_BYTES: u32 = 4096;
    /// Patches of one packet.
    pub const PATCHES_PER_PACKET: u32 = 32;
    /// Bytes that one patch writes.
    pub const PATCH_BYTES: u32 = 256;
    /// Bytes of the longest frame that a module sends.
    pub const FRAME_BYTES: u32 = 9_216;
    /// Bytes of the shortest frame that a module sends: an Ethernet header.
    pub const FRAME_BYTES_MIN: u32 = 14;
    /// Frames that one packet may cause.
    pub const FRAMES_PER_PACKET: u32 = 64;
    /// Bytes of frames that one packet may cause.
    pub const FRAME_BYTES_PER_PACKET: u32 = 128 * 1024;
    /// Frames that the stop, or the ticks between some packets together, may send.
    pub const FRAMES_PER_CALL: u32 = 4_096;
    /// Bytes of frames that the stop, or the ticks between some packets together, may send.
    pub const FRAME_BYTES_PER_CALL: u32 = 4 * 1024 * 1024;
    /// Packets that an instance of a module keeps at once.
    pub const KEPT_PACKETS: u32 = 1024;
    /// Pattern sets of a module.
    pub const PATTERN_SETS: u32 = 16;
    /// Patterns of a set.
    pub const PATTERNS: u32 = 1024;
    /// Bytes of all patterns of a set.
    pub const PATTERN_BYTES: u32 = 64 * 1024;
    /// Bytes that one call of a host function reads.
    pub const HOST_READ_BYTES: u32 = 1 << 20;
    /// The most captured bytes of one packet.
    pub const PACKET_BYTES: u32 = 16 << 20;
    /// Bytes of one log message; the rest is cut.
    pub const LOG_BYTES: u32 = 512;
    /// Log messages in a run.
    pub const LOG_MESSAGES: u32 = 100;
    /// Bytes of a message between sessions.
    pub const MESSAGE_BYTES: u32 = 64 * 1024;
    /// Calls of services whose answers the module has not got.
    pub const CALLS: u32 = 64;
    /// The longest deadline of a call, in ns.
    pub const DEADLINE_NS: u64 = 60_000_000_000;
    /// The shortest deadline of a call, in ns.
    pub const DEADLINE_MIN_NS: u64 = 100_000;
    /// Named tables that a module reads and publishes.
    pub const TABLES: u32 = 8;
    /// Bytes of a named table.
    pub const TABLE_BYTES: u32 = 64 << 20;
    /// Blocks of state of a module.
    pub const STATES: u32 = 8;
    /// Bytes of a block of state.
    pub const STATE_BYTES: u32 = 16 << 20;
    /// Bytes of a named table that a module publishes.
    pub const PUBLISHED_BYTES: u32 = 1 << 20;
}

// The folder of the module that `weir build` builds. All modules share a target folder, in which cargo takes crates of one
// name in several folders for the same one, and compiles it anew only if a file is newer. It also does so if the value of
// such a variable is another one. Nothing of the value is in the module.
const _: Option<&str> = option_env!("WEIR_MODULE_FOLDER");
