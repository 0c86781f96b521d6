//! Named tables: bytes that an operator or another session shares.

use crate::host::{self, Error};

/// The header before a table's bytes.
#[repr(C)]
struct Header {
    version: u64,
    len: u32,
    _zero: [u32; 13],
}

/// A table that the module reads, of at most `BYTES` bytes. `module.rs`, which `weir build` makes from the manifest,
/// has a constant for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<const BYTES: u32> {
    window: u32,
}

/// A table that the module publishes. `module.rs` has a constant for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published(u32);

/// Makes the table whose header is at the address `window`; for `module.rs`.
pub const fn table<const BYTES: u32>(window: u32) -> Table<BYTES> {
    Table { window }
}

/// Makes the table with the number `number` in the manifest, from 0; for `module.rs`.
pub const fn published(number: u32) -> Published {
    Published(number)
}

impl<const BYTES: u32> Table<BYTES> {
    /// Reads the table's bytes; empty if there is no table. The next call may find another version, or none, so the
    /// bytes cannot be held beyond the closure.
    #[inline(always)]
    pub fn read<R>(self, act: impl FnOnce(&[u8]) -> R) -> R {
        act(self.bytes())
    }

    /// Returns the version: 0 without a table, and another number for other bytes.
    #[inline(always)]
    pub fn version(self) -> u64 {
        // SAFETY: weir keeps the header of each declared table readable.
        self.header().map_or(0, |header| unsafe { (*header).version })
    }

    #[inline(always)]
    fn bytes<'a>(self) -> &'a [u8] {
        let Some(header) = self.header() else { return &[] };
        // SAFETY: weir keeps the header readable, and behind it as many bytes as it states, which do not change while
        // the module runs.
        unsafe {
            let len = (*header).len;
            // The length is never more than `BYTES`; the check gives a loop over it a limit that weir knows.
            let len = if len < BYTES { len } else { BYTES };
            core::slice::from_raw_parts(header.add(1).cast::<u8>(), len as usize)
        }
    }

    /// Returns the address of the header; `None` outside of the sandbox.
    #[inline(always)]
    fn header(self) -> Option<*const Header> {
        cfg!(any(target_arch = "wasm32", weir_native)).then_some(self.window as usize as *const Header)
    }
}

impl Published {
    /// Publishes `bytes` as the table's next version, for all readers. weir copies the bytes at once. The version stays
    /// published even if the call is lost.
    ///
    /// # Errors
    /// [`Error::Range`] for more bytes than the manifest declares, [`Error::Full`] if there is no memory for them,
    /// [`Error::Denied`] if there are no readers, because there is no session.
    #[inline(always)]
    pub fn publish<B: AsRef<[u8]> + ?Sized>(self, bytes: &B) -> Result<(), Error> {
        let bytes = bytes.as_ref();
        // SAFETY: the address and length are those of the slice, and the host only reads it.
        Error::check(unsafe { host::publish(self.0, bytes.as_ptr(), bytes.len() as u32) }).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_host_a_table_is_empty_and_publishing_is_denied() {
        let table: Table<100> = table(0xC000_0000);
        assert_eq!((table.read(<[u8]>::len), table.version()), (0, 0));
        assert_eq!(published(0).publish("text"), Err(Error::Denied));
    }
}
