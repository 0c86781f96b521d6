//! The bytes of a source, which several packets share.

use bytes::Bytes;
use std::cell::{Cell, OnceCell};

/// Bytes of a source, such as a block of a capture file, which several packets share.
///
/// They can be read later, when an element first looks at them. Elements that look at lengths only cost no copy.
pub struct SourceBlock {
    bytes: OnceCell<SourceBytes>,
    read: Cell<Option<BlockRead>>,
}

/// The bytes of a source.
enum SourceBytes {
    Copied(Vec<u8>),
    /// Bytes in place, with what keeps them.
    Held(Bytes),
}

/// Reads the bytes of a block.
type BlockRead = Box<dyn FnOnce() -> Vec<u8>>;

impl SourceBlock {
    /// Returns a block whose bytes are read when they are first needed. There must be as many as its packets refer to.
    pub fn later(read: impl FnOnce() -> Vec<u8> + 'static) -> Self {
        Self { bytes: OnceCell::new(), read: Cell::new(Some(Box::new(read))) }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self.bytes.get() {
            Some(SourceBytes::Held(bytes)) => bytes,
            Some(SourceBytes::Copied(bytes)) => bytes,
            None => self.read_now(),
        }
    }

    #[cold]
    fn read_now(&self) -> &[u8] {
        let read = || self.read.take().map_or_else(Vec::new, |read| read());
        match self.bytes.get_or_init(|| SourceBytes::Copied(read())) {
            SourceBytes::Held(bytes) => bytes,
            SourceBytes::Copied(bytes) => bytes,
        }
    }

    /// Returns the bytes for use in another block; `None` if they were never read, or are not of this block.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self.bytes.into_inner() {
            Some(SourceBytes::Copied(bytes)) => Some(bytes),
            Some(SourceBytes::Held(_)) | None => None,
        }
    }
}

impl From<Vec<u8>> for SourceBlock {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: OnceCell::from(SourceBytes::Copied(bytes)), read: Cell::new(None) }
    }
}

impl From<Bytes> for SourceBlock {
    fn from(bytes: Bytes) -> Self {
        Self { bytes: OnceCell::from(SourceBytes::Held(bytes)), read: Cell::new(None) }
    }
}
