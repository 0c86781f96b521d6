//! The memory for natively built modules: packets and descriptors at the same offsets from a base address as in a sandbox.

use crate::error::{Context, LabError};
use crate::packets::Packets;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use weir_abi::{ARENA_BASE, DESCRIPTORS_BASE, TABLES_BASE, TABLES_MAX, table};
use weir_sandbox::Area;

/// The number of bytes that an offset of 32 bits can address.
const RESERVED: usize = 4 << 30;
/// The offset of the area for strings that rows point to.
const STRINGS: usize = 1 << 20;
/// The size of this area.
const STRINGS_BYTES: usize = 1 << 20;

/// 4 GiB of addresses with the capture, its descriptors, and the area for strings.
#[derive(Debug)]
pub struct Space {
    base: *mut u8,
}

impl Space {
    /// Maps the packets and their descriptors.
    pub fn map(packets: &Packets) -> Result<Self, LabError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe { libc::mmap(ptr::null_mut(), RESERVED, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mapping packets");
        }
        let this = Self { base: base.cast() };
        this.map_area(ARENA_BASE as usize, packets.capture()).context("mapping packets")?;
        this.map_area(DESCRIPTORS_BASE as usize, packets.descriptors()).context("mapping packets")?;
        // SAFETY: inside the reservation of `this`, below the packets.
        let result = unsafe {
            libc::mprotect(this.base.add(STRINGS).cast(), STRINGS_BYTES, libc::PROT_READ | libc::PROT_WRITE)
        };
        if result != 0 {
            return Err(io::Error::last_os_error()).context("mapping packets");
        }
        // The area for tables is all zero, so no table has a version.
        this.protect_tables(libc::PROT_READ).context("mapping packets")?;
        Ok(this)
    }

    fn protect_tables(&self, protection: libc::c_int) -> io::Result<()> {
        // SAFETY: inside the reservation that this value owns, where tables are and nothing else.
        let result = unsafe {
            libc::mprotect(self.base.add(TABLES_BASE as usize).cast(), TABLES_MAX as usize, protection)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Writes the first version of a table into the window at this address, as in a sandbox. No module may run meanwhile.
    pub(crate) fn map_table(&self, window: u32, bytes: &[u8]) -> io::Result<()> {
        let (at, end) = (window as usize, (TABLES_BASE + TABLES_MAX) as usize);
        let header = table::HEADER_BYTES as usize;
        let len = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        if window < TABLES_BASE || at + header + bytes.len() > end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut all = vec![0; header];
        all[table::VERSION..][..8].copy_from_slice(&1u64.to_le_bytes());
        all[table::LEN..][..4].copy_from_slice(&len.to_le_bytes());
        all.extend_from_slice(bytes);
        self.protect_tables(libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: by the check above inside the area for tables, which has just been made writable and has no other writer.
        unsafe { ptr::copy_nonoverlapping(all.as_ptr(), self.base.add(at), all.len()) };
        self.protect_tables(libc::PROT_READ)
    }

    /// Maps an area at an offset.
    fn map_area(&self, at: usize, area: Area<'_>) -> io::Result<()> {
        if at.checked_add(area.len).is_none_or(|end| end > RESERVED) {
            return Err(io::Error::from_raw_os_error(libc::EOVERFLOW));
        }
        let offset =
            libc::off_t::try_from(area.offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: by the check above the range lies inside the reservation that this value owns.
        let done = unsafe {
            libc::mmap(
                self.base.add(at).cast(),
                area.len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                area.fd.as_raw_fd(),
                offset,
            )
        };
        if done == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The base of the addresses in descriptors.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Copies `bytes` into the area for strings, at offset `used`. Returns the 32-bit address, or `None` if the area is full.
    pub(crate) fn store_string(&self, bytes: &[u8], used: usize) -> Option<u32> {
        if used.checked_add(bytes.len())? > STRINGS_BYTES {
            return None;
        }
        // SAFETY: by the check above inside the area for strings, which is writable. Only one `Host` at a time writes there, through this
        // function.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.add(STRINGS + used), bytes.len()) };
        u32::try_from(STRINGS + used).ok()
    }

    /// A copy of the string of an indirect field, or `None` if it is not inside the area for strings.
    pub(crate) fn copy_string(&self, address: u32, len: u32) -> Option<Vec<u8>> {
        let (start, len) = (address as usize, len as usize);
        (STRINGS <= start && start + len <= STRINGS + STRINGS_BYTES).then(|| {
            // SAFETY: inside the area for strings, which is readable and has no writer meanwhile.
            unsafe { std::slice::from_raw_parts(self.base.add(start), len) }.to_vec()
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: exactly the result of mmap in `map`; users of its addresses borrow this value.
        unsafe { libc::munmap(self.base.cast(), RESERVED) };
    }
}
