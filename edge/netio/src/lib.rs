//! Packet input and output.
//!
//! # Reading
//!
//! [`Capture::open`] takes a pcap or pcapng file, plain or compressed with gzip or zstd, or a stream of either, and
//! [`Capture::next_block`] hands out its packets in [`Block`]s of up to [`BLOCK_PACKETS`]. For each packet a
//! [`weir_abi::Descriptor`] is written once, into a [`DescriptorRing`] that sandboxes map read-only; the packet's bytes lie in
//! the block's [`PacketWindow`], which they map read-only too. Everything that a block refers to stays as it is until the block
//! is dropped; then its room is used again.
//!
//! - A plain file is its own arena: a window is a range of the file, mapped. No packet byte is copied, except that the first
//!   [`weir_wire::PEEK`] bytes of each packet are read once, into trusted memory, for the classifier.
//! - Anything else is decompressed into a sealed memfd, of which blocks hold pieces.
//!
//! Where blocks begin and end depends on the packets alone, and at the borders of a large file's windows on their size;
//! not on how the capture was compressed, nor on timing.
//!
//! ```no_run
//! use weir_netio::{Capture, Input, Next};
//! let mut capture = Capture::open(Input::File("traffic.pcap".into()))?;
//! // Map capture.descriptors() at weir_abi::DESCRIPTORS_BASE, once for each sandbox.
//! while let Next::Block(block) = capture.next_block()? {
//!     // Map block.window() at weir_abi::ARENA_BASE where its id() is another than that of the block before, and `watch` the mapping.
//!     for batch in block.batches() {
//!         // Call the module with (batch.guest_address, batch.mask).
//!     }
//! }
//! println!("{:?}", capture.totals());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`LiveSource::open`] does the same for an interface: blocks of the same kind, from the kernel's own buffers.
//!
//! # Files that change while they are read
//!
//! Mapped bytes can change at any time, and touching a page that a file has lost raises SIGBUS. So trusted code reads
//! each byte that it decides on exactly once, by a volatile copy; and a signal handler puts zeros where the lost page and
//! everything behind it was, and remembers the offset, from which on the capture counts as truncated, also if the file grows
//! again. Whoever maps a window for a sandbox registers that mapping with [`watch`].
//!
//! # Writing and choosing
//!
//! [`PacketWriter`] writes pcap or pcapng. [`CaptureFilter`] is an expression in tcpdump's language; [`compile_filter`] compiles those of strangers.

mod arena;
mod block;
mod capture;
mod decode;
mod descriptors;
mod error;
#[doc(hidden)]
mod faults;
mod file;
mod filter;
mod format;
mod gzip;
mod left;
mod live;
mod memory;
mod open;
mod pcap;
mod pcapng;
mod pin;
mod pipe;
mod reader;
mod ring;
mod room;
mod screen;
mod selection;
mod stream;
mod totals;
mod view;
mod waiting;
mod window;
mod writer;

pub use block::{Block, PacketBatch};
pub use capture::{Capture, CaptureNext, CaptureProgress};
pub use descriptors::{descriptor_limit, raise_descriptor_limit};
pub use error::{CaptureReadError, FirstBytes, OpenError, SourceName};
pub use faults::{WatchError, WatchGuard, make_file_size_limit_an_error, watch};
pub use filter::{CaptureFilter, CaptureFilterError, EXPRESSION_BYTES_MAX, SystemNames, compile_filter};
pub use left::ChecksumStatus;
pub use live::{
    Direction, LiveError, LiveEvent, LiveOptions, LivePoll, LiveSink, LiveSource, LiveTotals, Loss,
    ReceiveDrops, SendResult, SentTotals, SocketKind, link_type_of, try_interface,
};
pub use open::{CaptureInput, CaptureOptions};
pub use pin::{Pin, PinError};
pub use ring::DescriptorRing;
pub use room::PacketBuffers;
pub use screen::ViewStage;
pub use selection::{Added, Portion, Selected, Selection};
pub use totals::{CaptureInterface, EndReason, Totals, Truncation};
pub use waiting::QUEUE_MAX;
pub use window::PacketWindow;
pub use writer::{PacketWriter, WriteError, WriteSummary};

/// The most packets of a block: 16 batches.
pub const BLOCK_PACKETS: usize = 16 * weir_abi::BATCH_PACKETS;
