//! Named tables: bytes that an operator or another session shares.

use crate::host::{self, Error};

/// What stands in front of a table's bytes.
#[repr(C)]
struct Header {
    version: u64,
    len: u32,
    _zero: [u32; 13],
}

/// A table that the module reads, of at most so many bytes. `module.rs`, which `weir build` makes from the manifest, has a constant for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table<const BYTES: u32> {
    window: u32,
}

/// A table that the module publishes. `module.rs` has a constant for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published(u32);

/// The table with this window.
pub const fn table<const BYTES: u32>(window: u32) -> Table<BYTES> {
    Table { window }
}

/// The table with this number in the manifest, from 0.
pub const fn published(number: u32) -> Published {
    Published(number)
}

impl<const BYTES: u32> Table<BYTES> {
    /// Reads the table: its bytes, of which there are none where there is no table. The next call may find others, whole, or none; so they cannot be
    /// held beyond the closure.
    #[inline(always)]
    pub fn read<R>(self, act: impl FnOnce(&[u8]) -> R) -> R {
        act(self.bytes())
    }

    /// Which version it is: 0 where there is none, another one whenever the bytes are others.
    #[inline(always)]
    pub fn version(self) -> u64 {
        // SAFETY: weir keeps the header of each declared table readable.
        self.header().map_or(0, |header| unsafe { (*header).version })
    }

    #[inline(always)]
    fn bytes<'a>(self) -> &'a [u8] {
        let Some(header) = self.header() else { return &[] };
        // SAFETY: weir keeps the header readable, and behind it as many bytes as it says, which nobody changes while the module runs.
        unsafe {
            let len = (*header).len;
            // It is never more than that; said so that a loop over it has a limit that weir knows.
            let len = if len < BYTES { len } else { BYTES };
            core::slice::from_raw_parts(header.add(1).cast::<u8>(), len as usize)
        }
    }

    /// Where its header is; nowhere outside of the sandbox.
    #[inline(always)]
    fn header(self) -> Option<*const Header> {
        cfg!(target_arch = "wasm32").then_some(self.window as usize as *const Header)
    }
}

impl Published {
    /// These bytes are the table's next version, for whoever may read it. weir has its own copy when this returns; it stays also where the call is lost.
    ///
    /// # Errors
    /// [`Error::Range`] for more bytes than the manifest says, [`Error::Full`] where there is no memory for them, [`Error::Denied`] where nobody could
    /// read it: there is no session.
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
    fn without_a_host_a_table_is_empty_and_nobody_reads_what_is_published() {
        let table: Table<100> = table(0xC000_0000);
        assert_eq!((table.read(<[u8]>::len), table.version()), (0, 0));
        assert_eq!(published(0).publish("text"), Err(Error::Denied));
    }
}
