//! What the modules of a session may write of packets.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weir_wire::WriteFields;

/// The fields that the modules of a session may write, shared by all of them, and how often one of them wanted to write another one.
#[derive(Debug)]
pub struct WriteRights {
    fields: AtomicU32,
    refused: AtomicU64,
}

impl WriteRights {
    /// These.
    pub fn new(fields: WriteFields) -> Self {
        Self { fields: AtomicU32::new(fields.bits()), refused: AtomicU64::new(0) }
    }

    /// Which they are now.
    pub fn fields(&self) -> WriteFields {
        WriteFields::from_bits(self.fields.load(Ordering::Relaxed))
    }

    /// From now on they are these, for patches that are made after this.
    pub fn change(&self, fields: WriteFields) {
        self.fields.store(fields.bits(), Ordering::Relaxed);
    }

    /// How many patches were refused because of a field that is none of them.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}
