//! The stack of a sandbox.

use crate::layout::STACK_GUARD;
use std::ops::Range;
use std::{io, ptr};

/// A stack with inaccessible bytes below it. Only pages that are touched take memory.
#[derive(Debug)]
pub(crate) struct GuestStack {
    mapping: *mut u8,
    /// The bytes of the whole mapping.
    bytes: usize,
}

impl GuestStack {
    /// Creates a stack of at least this size.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = STACK_GUARD + bytes.next_multiple_of(4096);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let this = Self { mapping: mapping.cast(), bytes };
        // SAFETY: the part of the new mapping above the guard.
        let done = unsafe {
            libc::mprotect(
                this.mapping.add(STACK_GUARD).cast(),
                bytes - STACK_GUARD,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if done == 0 { Ok(this) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the address of the upper end.
    pub(crate) fn top(&self) -> usize {
        self.mapping.addr() + self.bytes
    }

    /// Returns the inaccessible addresses.
    pub(crate) fn guard(&self) -> Range<usize> {
        self.mapping.addr()..self.mapping.addr() + STACK_GUARD
    }
}

impl Drop for GuestStack {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and belongs to this value; the sandbox does not run.
        unsafe { libc::munmap(self.mapping.cast(), self.bytes) };
    }
}
