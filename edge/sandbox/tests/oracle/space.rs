//! An address space like a sandbox's, for modules that run without weir's loader: private memory, and above it
//! packets, a table and descriptors.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};
use weir_abi::{ARENA_BASE, DESCRIPTORS_BASE, POLL_PAGE, TABLES_BASE};

pub const RESERVED: usize = 4 << 30;
pub const GUARD: usize = 32 << 20;
/// Inaccessible bytes below the memory, for machine code.
pub const BELOW: usize = 64 << 10;
/// Bytes of packets.
pub const ARENA: usize = 1 << 16;
/// Bytes of descriptors.
pub const DESCRIPTORS: usize = weir_abi::BATCH_BYTES;
/// Bytes of a table, with its header.
pub const TABLE: usize = 8192;
/// Bytes of the poll page.
const POLL: usize = 65_536;

/// The files visible at the addresses of packets, descriptors and the first table. Writing to them changes what
/// modules see.
#[derive(Clone)]
pub struct Shown {
    pub arena: Arc<File>,
    pub descriptors: Arc<File>,
    pub table: Arc<File>,
}

impl Shown {
    pub fn new() -> Self {
        let new = |len| Arc::new(memfd(len));
        Self { arena: new(ARENA), descriptors: new(DESCRIPTORS), table: new(TABLE) }
    }
}

fn memfd(len: usize) -> File {
    // SAFETY: a C string that outlives the call; the result is checked.
    let fd = unsafe { libc::memfd_create(c"weir-oracle".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just created, and nothing else owns it.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(len as u64).unwrap_or_else(|error| panic!("{error}"));
    file
}

/// Creates memories that map packets, descriptors, a table and the poll page, or nothing.
pub struct Creator {
    pub shown: Option<Shown>,
    /// The most private memory, in bytes.
    pub most: usize,
}

// SAFETY: the memory is zeroed (fresh anonymous pages), stays where it is, spans the reservation and guard that wasmtime was
// configured with, and everything above its size is inaccessible or a read-only mapping.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        if reserved != Some(RESERVED) || guard != GUARD {
            return Err(format!("asked for {reserved:?} bytes and a guard of {guard}"));
        }
        Ok(Box::new(Space::new(minimum, self.most, self.shown.as_ref()).map_err(|error| error.to_string())?))
    }
}

struct Space {
    base: *mut u8,
    size: usize,
    most: usize,
}

// SAFETY: the pointer is to a mapping that this value owns; nothing about it is bound to a thread.
unsafe impl Send for Space {}
// SAFETY: as above; through a shared reference only the address and the size are read.
unsafe impl Sync for Space {}

impl Space {
    fn new(minimum: usize, most: usize, shown: Option<&Shown>) -> io::Result<Self> {
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
        let base = base.cast::<u8>().wrapping_add(BELOW);
        let mut space = Self { base, size: 0, most };
        space.enlarge(minimum)?;
        let Some(shown) = shown else { return Ok(space) };
        // SAFETY: inside the reservation, above the private memory and below the packets.
        if unsafe { libc::mprotect(space.base.add(POLL_PAGE as usize).cast(), POLL, libc::PROT_READ) } != 0 {
            return Err(io::Error::last_os_error());
        }
        for (file, at, len) in [
            (&shown.arena, ARENA_BASE, ARENA),
            (&shown.descriptors, DESCRIPTORS_BASE, DESCRIPTORS),
            (&shown.table, TABLES_BASE, TABLE),
        ] {
            // SAFETY: the target lies inside the reservation, above the private memory.
            let done = unsafe {
                libc::mmap(
                    space.base.add(at as usize).cast(),
                    len,
                    libc::PROT_READ,
                    libc::MAP_SHARED | libc::MAP_FIXED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if done == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(space)
    }

    fn enlarge(&mut self, size: usize) -> io::Result<()> {
        if size > self.most {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // SAFETY: inside the reservation that this value owns, below the packets.
        let done = unsafe { libc::mprotect(self.base.cast(), size, libc::PROT_READ | libc::PROT_WRITE) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        self.size = self.size.max(size);
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and is owned by this value; wasmtime drops a memory after its last use.
        unsafe { libc::munmap(self.base.wrapping_sub(BELOW).cast(), BELOW + RESERVED + GUARD) };
    }
}

// SAFETY: `as_ptr` is valid for `byte_size` bytes, read and write, and does not change; what is shown is not part of `byte_size`.
unsafe impl LinearMemory for Space {
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
