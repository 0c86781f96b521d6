//! The packet fields that the modules of a session may write.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use weir_wire::WriteFields;

/// The fields that all modules of a session may write, and the number of refused writes to other fields. A session can
/// change the fields while its modules run.
#[derive(Debug)]
pub struct WriteRights {
    fields: AtomicU32,
    refused: AtomicU64,
}

impl WriteRights {
    /// Creates rights to write `fields`.
    pub fn new(fields: WriteFields) -> Self {
        Self { fields: AtomicU32::new(fields.bits()), refused: AtomicU64::new(0) }
    }

    /// Returns the fields that may be written now.
    pub fn fields(&self) -> WriteFields {
        WriteFields::from_bits(self.fields.load(Ordering::Relaxed))
    }

    /// Replaces the fields, for patches that are made from now on.
    pub fn change(&self, fields: WriteFields) {
        self.fields.store(fields.bits(), Ordering::Relaxed);
    }

    /// Returns the number of patches refused because they touched another field.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}
