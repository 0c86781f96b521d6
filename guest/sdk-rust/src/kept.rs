//! Kept packets.

use crate::host::{self, Error};
use crate::Packet;

/// A kept packet: its bytes stay in place, unchanged, until this value is dropped.
///
/// If packets come from a file that is larger than its mapping, weir releases kept packets itself when it maps the next
/// part.
#[derive(Debug)]
pub struct Kept {
    handle: i32,
    data: u32,
    len: u32,
}

impl Packet<'_> {
    /// Keeps a packet of the present call beyond the end of the call. The manifest's `keep` limits the number of
    /// packets kept at once. Their memory is charged to the module.
    ///
    /// # Errors
    /// [`Error::Full`] if no more are kept for now, [`Error::Denied`] if packets of this source cannot be kept,
    /// [`Error::When`] if the packet is not one of the present call.
    pub fn keep(&self) -> Result<Kept, Error> {
        // SAFETY: the host checks that the address is that of a packet of the call.
        let handle = Error::check(unsafe { host::keep(&**self) })?;
        Ok(Kept { handle, data: self.data, len: self.cap_len })
    }
}

impl Kept {
    /// Returns all captured bytes, from the link header on.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: weir keeps the bytes readable and unchanged for as long as this value exists. (`Packet::bytes` states
        // the exception for packets of a file.)
        unsafe { core::slice::from_raw_parts(self.data as usize as *const u8, self.len as usize) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the function takes a number. A number that is no handle of a kept packet changes nothing.
        _ = unsafe { host::release(self.handle) };
    }
}
