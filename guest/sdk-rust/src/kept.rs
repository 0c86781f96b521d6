//! Kept packets.

use crate::host::{self, Error};
use crate::Packet;

/// A kept packet: its bytes stay in place, unchanged, until this value is dropped.
///
/// There is one exception: a capture file can be larger than its mapped part. When weir maps the next part, weir
/// releases all kept packets, and [`bytes`](Self::bytes) no longer returns their bytes.
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
    /// [`Error::Full`] if a limit on kept packets or on their memory is reached, [`Error::Denied`] if packets of this
    /// source cannot be kept, [`Error::When`] if the packet is not one of the present call.
    pub fn keep(&self) -> Result<Kept, Error> {
        // SAFETY: the host checks that the address is that of a packet of the call.
        let handle = Error::check(unsafe { host::keep(&**self) })?;
        Ok(Kept { handle, data: self.data, len: self.cap_len })
    }
}

impl Kept {
    /// Returns all captured bytes, from the link header on.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: weir keeps the bytes readable and unchanged for as long as this value exists. (For packets of a file,
        // the documentation of this type and `Packet::bytes` state exceptions. The sandbox contains their effects.)
        unsafe { core::slice::from_raw_parts(self.data as usize as *const u8, self.len as usize) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the function takes a number. A number that is no handle of a kept packet changes nothing.
        _ = unsafe { host::release(self.handle) };
    }
}
