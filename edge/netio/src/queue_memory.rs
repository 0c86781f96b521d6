//! The size of a queue's own memory.

use crate::BLOCK_PACKETS;
use crate::arena::{CHUNK_BYTES_MAX, CHUNKS};
use crate::block::Block;
use crate::ring::SLOT_BYTES;

/// Bytes of a packet that waits in the memory of a queue: of the longest in an Ethernet frame.
pub const WAITING_BYTES: usize = 2048;
/// What a queue has of each block beside it: its place among the packets that wait, and the counts of its holders.
const TICKET_BYTES: usize = 64;
/// The shortest chunk of such memory: the longest packet fits.
const WAITING_CHUNK_MIN: usize = 128 << 10;

/// Chunks of the memory of a queue: half of an arena's chunks are enough for its packets.
pub(crate) fn chunk_bytes(packets: u32) -> usize {
    let least = (packets as usize * WAITING_BYTES).div_ceil(CHUNKS / 2);
    least.next_power_of_two().clamp(WAITING_CHUNK_MIN, CHUNK_BYTES_MAX)
}

/// The longest queue that has room for all of its packets: two chunks are left for the first one and the last one in use.
pub const QUEUE_MAX: u32 = 1_000_000;

const _: () = assert!(QUEUE_MAX as usize * WAITING_BYTES <= (CHUNKS - 2) * CHUNK_BYTES_MAX);
const _: () =
    assert!((2 * QUEUE_MAX as usize / BLOCK_PACKETS + 3) * SLOT_BYTES <= weir_abi::DESCRIPTORS_MAX as usize);

/// The heap that the packets of a queue take, each in a block of its own.
pub(crate) fn heap_bytes(packets: u32) -> usize {
    packets as usize * (size_of::<Block>() + TICKET_BYTES)
}

/// Slots for the descriptors of a queue's packets. Blocks that do not fit behind others leave half a slot empty at most, and the first and the last slot in use can be
/// nearly empty.
pub(crate) fn slots(packets: u32) -> usize {
    (2 * packets as usize).div_ceil(BLOCK_PACKETS) + 2
}
