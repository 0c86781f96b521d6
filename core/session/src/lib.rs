//! The accounts of a session: memory reservation, services, record rate, records and kept packets.

#![forbid(unsafe_code)]

mod keeping;
mod record_rate;
mod records;
mod reservation;
pub mod services;

pub use keeping::{KeptPacket, KeptPackets, KeptState, StillKept};
pub use record_rate::RecordRate;
pub use records::{Record, RecordOrder, Records};
pub use reservation::{HeldMemory, MemoryReservation, MemoryState, NodeMemory, ReservationError};
