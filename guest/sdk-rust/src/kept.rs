//! Packets that stay where they are.

use crate::host::{self, Error};
use crate::Packet;

/// A packet that is kept: its bytes stay where they are, as they were, until this is dropped.
///
/// Where packets come from a file that is larger than what is mapped of it at once, weir lets go by itself when it maps the next part.
#[derive(Debug)]
pub struct Kept {
    handle: i32,
    data: u32,
    len: u32,
}

impl Packet<'_> {
    /// Keeps the packet at hand beyond this call. The manifest's `keep` says how many at once; their memory counts as the module's.
    ///
    /// # Errors
    /// [`Error::Full`] where no more are kept for now, [`Error::Denied`] where none of this source are, [`Error::When`] where it is not the packet
    /// at hand.
    pub fn keep(&self) -> Result<Kept, Error> {
        // SAFETY: the host checks whether the address is that of the packet at hand.
        let handle = Error::check(unsafe { host::keep(&**self) })?;
        Ok(Kept { handle, data: self.data, len: self.cap_len })
    }
}

impl Kept {
    /// All captured bytes, from the link header on.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: weir keeps them readable and as they are for as long as this exists. (Where they are a file's, see `Packet::bytes`.)
        unsafe { core::slice::from_raw_parts(self.data as usize as *const u8, self.len as usize) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: it takes a number. One that is no handle any more changes nothing.
        _ = unsafe { host::release(self.handle) };
    }
}
