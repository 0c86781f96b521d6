//! Pins: packets whose memory stays unchanged after their block is dropped.

use crate::arena::{CHUNK_BYTES, CHUNKS, Hold, HoldCounts};
use crate::live::{FramePin, FramePools};
use std::ops::Range;
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_units::Bytes;

/// The chunks of an arena that can be pinned: the lower half, which is used first. The other half stays available for
/// new packets as one piece, however much is pinned.
const CHUNKS_PINNED_MAX: usize = CHUNKS / 2;

/// The pinning that a window's memory allows.
#[derive(Clone, Debug)]
pub(crate) enum PinPolicy {
    /// Packets need no pin, because a file's bytes stay.
    Free,
    /// Packets cannot be pinned. The kernel fills a packet socket's ring in order, so one pinned block would stop
    /// reception.
    Never,
    /// Chunks of an arena can be pinned.
    Chunks(Arc<HoldCounts>),
    /// Frames of XDP sockets can be pinned.
    Frames(Arc<FramePools>),
}

/// The reason why a packet cannot be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// This kind of memory cannot be pinned.
    #[error("packets in this memory cannot be kept: the kernel reuses it in order")]
    Never,
    /// The limit of pinned memory is reached; the rest is needed for new packets.
    #[error("the limit of packets kept in this memory is reached")]
    Full,
}

/// A pin of a packet's memory: until it is dropped, the bytes stay readable where they are, and are not overwritten.
///
/// Memory is pinned in pieces. All pieces of a window have one length, and two packets can share a piece.
#[derive(Debug)]
pub struct Pin {
    _hold: PinHold,
    pieces: Range<u32>,
    /// The length of a piece.
    piece: Bytes,
    /// The most pieces of the window that can be pinned.
    pieces_max: u32,
}

/// The hold that keeps pinned memory unchanged.
#[derive(Debug)]
enum PinHold {
    Unneeded,
    Chunks { _hold: Hold },
    Frame { _pin: FramePin },
}

impl Pin {
    /// The numbers of the window's pieces that are pinned; empty if no pin was needed.
    pub fn pieces(&self) -> Range<u32> {
        self.pieces.clone()
    }

    /// The length of a piece.
    pub fn piece(&self) -> Bytes {
        self.piece
    }

    /// The most pieces of the window that all pins together can hold.
    pub fn pieces_max(&self) -> u32 {
        self.pieces_max
    }
}

impl PinPolicy {
    /// Pins `len` bytes at a guest address. They must belong to a block that exists now.
    pub(crate) fn pin(&self, address: u32, len: u32) -> Result<Pin, PinError> {
        let from = address.saturating_sub(ARENA_BASE) as usize;
        let last = from.saturating_add((len as usize).saturating_sub(1));
        let number = |piece: usize| u32::try_from(piece).unwrap_or(u32::MAX);
        match self {
            Self::Free => {
                Ok(Pin { _hold: PinHold::Unneeded, pieces: 0..0, piece: Bytes(0), pieces_max: u32::MAX })
            }
            Self::Never => Err(PinError::Never),
            Self::Chunks(hold_counts) => {
                let chunks = from / CHUNK_BYTES..last / CHUNK_BYTES + 1;
                if chunks.end > CHUNKS_PINNED_MAX {
                    return Err(PinError::Full);
                }
                let pieces = number(chunks.start)..number(chunks.end);
                let hold = PinHold::Chunks { _hold: Hold::new(hold_counts, chunks) };
                Ok(Pin {
                    _hold: hold,
                    pieces,
                    piece: Bytes(CHUNK_BYTES as u64),
                    pieces_max: number(CHUNKS_PINNED_MAX),
                })
            }
            Self::Frames(pools) => {
                let pin = pools.pin(from as u64).ok_or(PinError::Full)?;
                let frame = number(usize::try_from(pin.number()).unwrap_or(usize::MAX));
                let (piece, pieces_max) = (Bytes(pools.frame_bytes()), pools.pins_max());
                Ok(Pin { _hold: PinHold::Frame { _pin: pin }, pieces: frame..frame + 1, piece, pieces_max })
            }
        }
    }
}
