//! Packets that somebody keeps, where they lie, after their block is gone.

use crate::arena::{CHUNK_BYTES, CHUNKS, Hold, Holders};
use crate::live::{FramePin, Returned};
use std::ops::Range;
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_units::Bytes;

/// Chunks of an arena that packets can be kept in: the lower half, which is used first. The other half is always there for what comes next,
/// in one piece, however much is kept.
const CHUNKS_KEPT: usize = CHUNKS / 2;

/// What of a window's memory can be kept.
#[derive(Clone, Debug)]
pub(crate) enum Keeping {
    /// All of it: a file's bytes are there without anybody keeping them.
    Everything,
    /// None. A packet socket's ring is filled in turn: one block that is kept would in the end keep all others waiting.
    Nothing,
    /// Chunks of an arena.
    Chunks(Arc<Holders>),
    /// Frames of an XDP socket.
    Frames(Arc<Returned>),
}

/// Why a packet cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// Not in this memory.
    #[error("packets cannot be kept in this memory: it is filled in turn")]
    Never,
    /// So much of the memory is kept that the rest is needed for packets to come.
    #[error("as much of this memory is kept as can be")]
    Full,
}

/// Keeps a packet's memory as it is, until it is dropped: its bytes stay readable where they are, and nothing else is written there.
///
/// Memory is kept in pieces: in a window all have one length, and the pieces of two packets can be the same.
#[derive(Debug)]
pub struct Pin {
    _hold: Held,
    pieces: Range<u32>,
    piece: Bytes,
    most: u32,
}

#[derive(Debug)]
enum Held {
    Nothing,
    Chunks { _hold: Hold },
    Frame { _pin: FramePin },
}

impl Pin {
    /// Numbers of the pieces of the window that it keeps. None where nothing had to be kept.
    pub fn pieces(&self) -> Range<u32> {
        self.pieces.clone()
    }

    /// How long a piece is.
    pub fn piece(&self) -> Bytes {
        self.piece
    }

    /// How many pieces of the window can be kept in all, by everybody.
    pub fn most(&self) -> u32 {
        self.most
    }
}

impl Keeping {
    /// Keeps `len` bytes at a guest address, which are of a block that is there now.
    pub(crate) fn pin(&self, address: u32, len: u32) -> Result<Pin, PinError> {
        let from = address.saturating_sub(ARENA_BASE) as usize;
        let last = from.saturating_add((len as usize).saturating_sub(1));
        let number = |piece: usize| u32::try_from(piece).unwrap_or(u32::MAX);
        match self {
            Self::Everything => {
                Ok(Pin { _hold: Held::Nothing, pieces: 0..0, piece: Bytes(0), most: u32::MAX })
            }
            Self::Nothing => Err(PinError::Never),
            Self::Chunks(holders) => {
                let chunks = from / CHUNK_BYTES..last / CHUNK_BYTES + 1;
                if chunks.end > CHUNKS_KEPT {
                    return Err(PinError::Full);
                }
                let pieces = number(chunks.start)..number(chunks.end);
                let hold = Held::Chunks { _hold: Hold::of(holders, chunks) };
                Ok(Pin { _hold: hold, pieces, piece: Bytes(CHUNK_BYTES as u64), most: number(CHUNKS_KEPT) })
            }
            Self::Frames(returned) => {
                let pin = Returned::pin(returned, from as u64).ok_or(PinError::Full)?;
                let frame = number(usize::try_from(pin.number()).unwrap_or(usize::MAX));
                let (piece, most) = (Bytes(returned.frame_bytes()), returned.most());
                Ok(Pin { _hold: Held::Frame { _pin: pin }, pieces: frame..frame + 1, piece, most })
            }
        }
    }
}
