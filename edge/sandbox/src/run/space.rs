//! The address space of a sandbox: 4 GiB of reserved addresses, and a guard. Only the memory that the sandbox may access
//! is mapped in it.
//!
//! Any 32-bit address plus a small offset lies inside the reservation and its guard, so the compiler omits bounds checks.
//! Accesses to unmapped addresses cause a page fault, which wasmtime turns into a trap.
//!
//! Below the memory are addresses for the globals of machine code (`weir_native::layout`).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};
use weir_abi::{
    ARENA_BASE, ARENA_MAX, DESCRIPTORS_BASE, DESCRIPTORS_MAX, POLL_PAGE, PRIVATE_MAX, STREAMS_BASE,
    STREAMS_WINDOW, TABLES_BASE, TABLES_MAX,
};
use weir_native::layout::BELOW;
use weir_os::memory::page_bytes;

/// The number of addresses that a 32-bit index can form.
pub(crate) const RESERVED: usize = 4 << 30;
/// The size of the guard: inaccessible bytes after the reservation, for constant offsets in instructions. Compiled code
/// checks accesses with larger offsets.
pub(crate) const GUARD: usize = weir_lower::GUARD as usize;

/// Size of the poll page in bytes: the largest page size of any supported processor. The page is at [`POLL_PAGE`]. Checks
/// that the loader adds to a module read it, and the watchdog makes it inaccessible to end a call.
const POLL_BYTES: usize = 65_536;

const _: () = assert!(PRIVATE_MAX <= POLL_PAGE && POLL_PAGE as usize + POLL_BYTES <= ARENA_BASE as usize);
const _: () = assert!(ARENA_BASE as u64 + ARENA_MAX as u64 <= TABLES_BASE as u64);
const _: () = assert!(TABLES_BASE as u64 + TABLES_MAX as u64 <= DESCRIPTORS_BASE as u64);
const _: () = assert!(DESCRIPTORS_BASE as u64 + DESCRIPTORS_MAX as u64 <= STREAMS_BASE as u64);
const _: () = assert!(STREAMS_BASE as u64 + STREAMS_WINDOW as u64 <= RESERVED as u64);

/// A file or memfd, or part of one, that a sandbox maps read-only.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    /// The file. The mapping remains when the descriptor is closed.
    pub fd: BorrowedFd<'a>,
    /// Offset of the area in the file: a multiple of the page size.
    pub offset: u64,
    /// Length in bytes.
    pub len: usize,
    /// True if nothing changes the bytes of a batch's packets during its calls: in a sealed memory file, in blocks of a
    /// ring and in frames that the kernel has handed over. False for a file, which another process can write.
    pub is_fixed: bool,
}

/// The address spaces that exist in an engine.
///
/// In some configurations wasmtime ignores the memory creator without an error. So before an instance maps packets, it
/// checks that its memory is one of these address spaces.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    /// The addresses at which the address spaces begin.
    bases: Mutex<BTreeMap<usize, ()>>,
}

impl Spaces {
    /// Returns true if an address space that [`SpaceCreator`] has created begins at this address.
    pub(crate) fn contains(&self, base: *const u8) -> bool {
        self.bases.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&base.addr())
    }
}

/// The memory creator that wasmtime calls for each sandbox.
pub(crate) struct SpaceCreator(pub(crate) Arc<Spaces>);

// SAFETY: the memory is zeroed (fresh anonymous pages), stays where it is, and spans the reservation and guard that
// wasmtime was configured with. Everything above its size is inaccessible or can only be read: the poll page, and the
// mappings that `map_areas` and `map_shared` put there.
unsafe impl MemoryCreator for SpaceCreator {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        if reserved != Some(RESERVED) || guard != GUARD {
            return Err(format!(
                "wasmtime asked for {reserved:?} bytes and a guard of {guard}, not {RESERVED} and {GUARD}"
            ));
        }
        let space = SandboxSpace::new(minimum, Arc::clone(&self.0)).map_err(|e| e.to_string())?;
        Ok(Box::new(space))
    }
}

/// The address space of one sandbox, owned by its wasmtime memory or by the host's state.
pub(crate) struct SandboxSpace {
    base: *mut u8,
    /// The size of the private memory.
    size: usize,
    spaces: Arc<Spaces>,
}

// SAFETY: the pointer is to a mapping that this value owns; nothing about it is bound to a thread.
unsafe impl Send for SandboxSpace {}
// SAFETY: through a shared reference only the address and the size are read.
unsafe impl Sync for SandboxSpace {}

impl SandboxSpace {
    /// Makes an address space whose private memory has `minimum` bytes.
    pub(crate) fn new(minimum: usize, spaces: Arc<Spaces>) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BELOW + RESERVED + GUARD,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: inside the mapping above.
        let base = unsafe { base.cast::<u8>().add(BELOW) };
        let mut space = Self { base, size: 0, spaces };
        space.enlarge(minimum)?;
        // SAFETY: the space is new, and the poll page inside it.
        unsafe { set_poll_page(space.base, true)? };
        space.spaces.bases.lock().unwrap_or_else(PoisonError::into_inner).insert(space.base.addr(), ());
        Ok(space)
    }

    /// Returns the address of the first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the size of the private memory.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the private memory.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `base..base + size` is readable and writable, and this value owns it. Code of the module, which writes there,
        // does not run while the slice is in use, because the slice borrows this value.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.size) }
    }

    /// Makes the private memory accessible up to this size. A smaller size than the present one has no effect.
    pub(crate) fn enlarge(&mut self, size: usize) -> io::Result<()> {
        if size > PRIVATE_MAX as usize {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "private memory ends where the packets begin",
            ));
        }
        if size > self.size {
            // SAFETY: `self.size..size` lies inside the reservation that this value owns, below the packet arena.
            let done = unsafe {
                libc::mprotect(
                    self.base.add(self.size).cast(),
                    size - self.size,
                    libc::PROT_READ | libc::PROT_WRITE,
                )
            };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
            self.size = size;
        }
        Ok(())
    }
}

impl Drop for SandboxSpace {
    fn drop(&mut self) {
        self.spaces.bases.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.base.addr());
        // SAFETY: the mapping was made in `new`, is owned by this value, and wasmtime drops a memory after its last use.
        unsafe { libc::munmap(self.base.sub(BELOW).cast(), BELOW + RESERVED + GUARD) };
    }
}

// SAFETY: `as_ptr` is valid for reads and writes of `byte_size` bytes, and does not change. The packet arena is NOT
// part of `byte_size`: otherwise bulk operations on it could fault in host code, which would end the process instead of
// trapping.
unsafe impl LinearMemory for SandboxSpace {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        RESERVED
    }

    fn grow_to(&mut self, size: usize) -> wasmtime::Result<()> {
        self.enlarge(size).map_err(wasmtime::Error::from)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base
    }
}

/// Makes the poll page of a space readable or inaccessible. While the page is inaccessible, polls of the module trap.
///
/// # Safety
/// `base` is a live [`SandboxSpace`].
pub(crate) unsafe fn set_poll_page(base: *mut u8, readable: bool) -> io::Result<()> {
    let protection = if readable { libc::PROT_READ } else { libc::PROT_NONE };
    // SAFETY: the page lies inside the reservation, above the private memory and below the packets, and only polls
    // read it.
    let done = unsafe { libc::mprotect(base.add(POLL_PAGE as usize).cast(), POLL_BYTES, protection) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Maps areas read-only from the guest address `guest` on, one behind the other, in place of the previous mapping at this
/// address. On an error, no area is mapped there. Sets `mapped` to the host addresses of the mapping.
///
/// The length of each area but the last must be a multiple of the page size, so that no bytes are between two areas.
///
/// # Safety
/// `base` is a live [`SandboxSpace`], and `guest..guest + capacity` lies inside it above the private memory. `mapped` is the
/// previous mapping of this function at the address, or empty. No slice of the previous mapping is in use.
pub(crate) unsafe fn map_areas(
    base: *mut u8,
    guest: u32,
    capacity: u32,
    areas: &[Area<'_>],
    mapped: &mut Range<usize>,
) -> io::Result<()> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let len = areas.iter().map(|area| area.len).fold(0, usize::saturating_add);
    let is_offset = |area: &Area<'_>| libc::off_t::try_from(area.offset).is_ok();
    if len > capacity as usize || !areas.iter().all(is_offset) {
        return Err(invalid("the area does not fit into the address space"));
    }
    let page = page_bytes();
    if areas.split_last().is_some_and(|(_, before)| before.iter().any(|area| !area.len.is_multiple_of(page)))
    {
        return Err(invalid("an area before another one does not end with a page"));
    }
    // SAFETY: the address is inside the reservation, by this function's contract.
    let at = unsafe { base.add(guest as usize) };
    // A failed mapping must not leave a range that the host believes to be readable.
    let old = std::mem::take(mapped).len();
    let clear = |len: usize| {
        // SAFETY: replaces a mapping of this space, or the hole that a failed one left, by inaccessible pages.
        let cleared = unsafe {
            libc::mmap(
                at.cast(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if cleared != libc::MAP_FAILED {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // mmap(2) fails if the process has as many mappings as it may have; the old mapping is unchanged then. mprotect(2)
        // makes the old mapping inaccessible and needs no further mapping. It fails if a part of the range is not mapped.
        //
        // SAFETY: the range is the one above, inside this space.
        let hidden = unsafe { libc::mprotect(at.cast(), len, libc::PROT_NONE) };
        if hidden == 0 { Ok(()) } else { Err(error) }
    };
    if old > len {
        clear(old)?;
    }
    let mut offset = 0;
    for area in areas.iter().filter(|area| area.len > 0) {
        // SAFETY: the target lies inside the reservation, above the private memory, and holds nothing but an old area.
        let done = unsafe {
            libc::mmap(
                at.add(offset).cast(),
                area.len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                area.fd.as_raw_fd(),
                libc::off_t::try_from(area.offset).unwrap_or(libc::off_t::MAX),
            )
        };
        if done == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // The kernel may have removed the old mapping before it failed. If the hole cannot be filled, the process
            // must end: a later mapping of the host could be placed into the hole, where the module could read it.
            if clear(old.max(len)).is_err() {
                std::process::abort();
            }
            return Err(error);
        }
        offset += area.len;
    }
    *mapped = at.addr()..at.addr() + len;
    Ok(())
}

/// Maps shared memory of this process a second time, read-only and into a space, at a guest address above all areas. The
/// mapping at `memory` stays as it is. Returns the host addresses of the second mapping.
///
/// # Safety
/// `base` is the beginning of a live space, in which nothing is mapped from `guest` on for `len` bytes. `memory` is a
/// shared anonymous mapping of `len` bytes, a multiple of the page size.
pub(crate) unsafe fn map_shared(
    base: *mut u8,
    guest: u32,
    memory: *mut u8,
    len: usize,
) -> io::Result<Range<usize>> {
    // SAFETY: the address is inside the reservation, by this function's contract.
    let at = unsafe { base.add(guest as usize) };
    // SAFETY: an old size of 0 makes a second mapping of the same shared memory (mremap(2)). It replaces a part of the
    // reservation that holds nothing.
    let mapped = unsafe {
        libc::mremap(
            memory.cast(),
            0,
            len,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            at.cast::<libc::c_void>(),
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping above. No code of the sandbox runs before this function returns.
    if unsafe { libc::mprotect(mapped, len, libc::PROT_READ) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(at.addr()..at.addr() + len)
}

/// Gives back the pages of a part of an area that [`map_areas`] mapped. `mapped` is its host addresses, and `part` is in
/// bytes from its beginning, both ends rounded down to pages. The mapping is of a file and read-only, so the next access
/// finds the same bytes.
pub(crate) fn release_pages(mapped: &Range<usize>, part: Range<usize>) {
    let page = page_bytes();
    let [from, to] = [part.start, part.end].map(|at| {
        let at = at.min(mapped.len());
        mapped.start + (at - at % page)
    });
    if from < to {
        // SAFETY: the range is inside a shared, read-only mapping of a file. If the file has lost pages, `weir_netio` has
        // mapped zeros in their place. The advice changes neither the mappings nor the bytes that reads of them return. An
        // error has no effect.
        unsafe { libc::madvise(ptr::without_provenance_mut(from), to - from, libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_grows_to_the_packets_and_no_further() {
        let spaces = Arc::new(Spaces::default());
        let mut space = SandboxSpace::new(65_536, Arc::clone(&spaces)).unwrap();
        assert!(spaces.contains(space.as_ptr()));
        space.grow_to(PRIVATE_MAX as usize).unwrap();
        assert_eq!(space.byte_size(), PRIVATE_MAX as usize);
        assert!(space.grow_to(PRIVATE_MAX as usize + 65_536).is_err());
        let base = space.as_ptr();
        drop(space);
        assert!(!spaces.contains(base));
    }
}
