//! The size of a queue's own memory.

use crate::BLOCK_PACKETS;
use crate::arena::{CHUNK_BYTES_MAX, CHUNKS};
use crate::block::Block;
use crate::ring::SLOT_BYTES;

/// The memory for a waiting packet in bytes. An Ethernet frame of the usual length fits.
pub const WAITING_BYTES: usize = 2048;
/// The memory for each block of a queue in addition to the block, in bytes: its queue entry and reference counts.
const ENTRY_BYTES: usize = 64;
/// The shortest chunk of a queue's memory in bytes; the longest packet fits.
const WAITING_CHUNK_MIN: usize = 128 << 10;

/// The length in bytes of a chunk of a queue's memory. It is chosen so that half of an arena's chunks hold all packets.
pub(crate) fn chunk_bytes(packets: u32) -> usize {
    let least = (packets as usize * WAITING_BYTES).div_ceil(CHUNKS / 2);
    least.next_power_of_two().clamp(WAITING_CHUNK_MIN, CHUNK_BYTES_MAX)
}

/// The greatest length of a queue in packets, so that its packets fit into an arena. Two chunks are in reserve, because
/// the first and the last chunk in use can be partly empty.
pub const QUEUE_MAX: u32 = 1_000_000;

const _: () = assert!(QUEUE_MAX as usize * WAITING_BYTES <= (CHUNKS - 2) * CHUNK_BYTES_MAX);
const _: () =
    assert!((2 * QUEUE_MAX as usize / BLOCK_PACKETS + 3) * SLOT_BYTES <= weir_abi::DESCRIPTORS_MAX as usize);

/// The heap memory for a queue's packets, each in a block of its own, in bytes.
pub(crate) fn heap_bytes(packets: u32) -> usize {
    packets as usize * (size_of::<Block>() + ENTRY_BYTES)
}

/// The descriptor slots for a queue's packets. Blocks that do not fit behind others leave at most half a slot empty,
/// and the first and the last slot in use can be nearly empty.
pub(crate) fn slots(packets: u32) -> usize {
    (2 * packets as usize).div_ceil(BLOCK_PACKETS) + 2
}
