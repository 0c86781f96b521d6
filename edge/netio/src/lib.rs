//! Packet input and output.
//!
//! # Reading
//!
//! [`Capture::open`] opens a pcap or pcapng file, plain or compressed with gzip or zstd, or a stream of either.
//! [`Capture::next_block`] returns its packets in [`Block`]s of up to [`BLOCK_PACKETS`]. A [`weir_abi::Descriptor`]
//! of each packet is written once, into a [`DescriptorRing`] that sandboxes map read-only. The packet's bytes are in
//! the block's [`PacketWindow`], which sandboxes map read-only too. The memory of a block stays unchanged until the
//! block is dropped; then it is reused.
//!
//! - A plain file needs no arena: a window is a mapped range of the file. Packets are not copied, except that the
//!   classifier reads the first [`weir_wire::PEEK`] bytes of each packet once, into trusted memory.
//! - Other captures are read or decompressed into an *arena*, a sealed memory file. Each block holds some of its
//!   chunks. So is a plain file with [`CaptureOptions::copy`].
//!
//! The boundaries of blocks depend only on the packets and, in a large file, on the size of its windows. They do not
//! depend on compression or timing.
//!
//! ```no_run
//! use weir_netio::{Capture, CaptureInput, CaptureNext};
//! let mut capture = Capture::open(CaptureInput::File("traffic.pcap".into()))?;
//! // Map capture.descriptors() at weir_abi::DESCRIPTORS_BASE, once for each sandbox.
//! while let CaptureNext::Block(block) = capture.next_block()? {
//!     // Map block.window() at weir_abi::ARENA_BASE if its id() is a new one, and `watch` the mapping.
//!     for batch in block.batches() {
//!         // Call the module with (batch.guest_address, batch.mask).
//!     }
//! }
//! println!("{:?}", capture.totals());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`LiveSource::open`] opens an interface. It returns blocks of the same kind, whose packets are in the kernel's
//! buffers.
//!
//! # Files that change while they are read
//!
//! Mapped bytes can change at any time, and accessing a page that a file has lost raises SIGBUS. So trusted code
//! reads each byte that it decides on exactly once, by a volatile copy. A signal handler maps zeros over the lost
//! page and everything behind it, and records the offset. From there on the capture counts as truncated, even if the
//! file grows again. Code that maps a window for a sandbox must register that mapping with [`watch`].
//!
//! # Writing and filtering
//!
//! [`PacketWriter`] writes pcap or pcapng. [`CaptureFilter`] is an expression in tcpdump's language;
//! [`compile_filter`] compiles untrusted expressions, without name lookup.

mod arena;
mod arrival;
mod block;
mod capture;
mod checksum;
mod decode;
mod error;
#[doc(hidden)]
mod faults;
mod file;
mod file_descriptors;
mod filter;
mod format;
mod gzip;
mod held;
mod live;
mod mapped_bytes;
mod memory;
mod merge;
mod offload;
mod open;
mod pcap;
mod pcapng;
mod pcapng_blocks;
mod pin;
mod pipe;
mod queue_memory;
mod quota;
mod read_ahead;
mod reader;
mod ring;
mod selection;
mod stream;
mod totals;
mod view_stage;
mod window;
mod writer;

pub use arrival::{PacketArrival, PacketReceiver};
pub use block::{Block, PacketBatch};
pub use capture::{Capture, CaptureNext, CaptureProgress};
pub use checksum::ChecksumStatus;
pub use error::{CaptureReadError, FirstBytes, OpenError, SourceName};
pub use faults::{WatchError, WatchGuard, make_file_size_limit_an_error, watch};
pub use file_descriptors::{file_descriptor_limit, raise_file_descriptor_limit};
pub use filter::{CaptureFilter, CaptureFilterError, EXPRESSION_BYTES_MAX, SystemNames, compile_filter};
pub use held::HeldBytes;
pub use live::{
    Direction, InterfaceSettings, LinkAddresses, LiveError, LiveEvent, LiveOptions, LivePoll, LiveSink,
    LiveSource, LiveTotals, Loss, QueueSet, ReceiveDrops, SendResult, SentTotals, SocketKind,
    interface_names, link_addresses, link_type_of, set_up_interface, try_interface,
};
pub use offload::finish_checksum;
pub use open::{CaptureInput, CaptureOptions, ReadAheadMode};
pub use pcapng_blocks::{InterfaceStatistics, InterfaceTexts, PacketRecord};
pub use pin::{Pin, PinError};
pub use queue_memory::QUEUE_MAX;
pub use quota::MemoryQuota;
pub use read_ahead::AheadReader;
pub use ring::DescriptorRing;
pub use selection::{Added, BlockBuilder, Selected, Selection};
pub use totals::{CaptureInterface, EndReason, Totals, Truncation};
pub use view_stage::ViewStage;
pub use window::{PacketWindow, WindowPart};
pub use writer::{PacketWriter, WriteError, WriteOutcome, WriteSummary, open_pipe};

/// The most packets of a block: 16 batches.
pub const BLOCK_PACKETS: usize = 16 * weir_abi::BATCH_PACKETS;
