//! Shared memory: memory files, and copies of bytes that another process may write at the same time.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// A value at any address, which one instruction loads.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned<T: Copy>(T);

/// Sixteen bytes: one vector.
#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m128i;

/// Copies `len` bytes that another process may change at the same time. Reads each byte exactly once: by volatile reads,
/// which the compiler can neither repeat nor omit.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_once(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    // SAFETY: the bytes of each piece are below `len`; none of the types needs an alignment.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            // Two vectors a step, whose loads the processor executes at the same time.
            while at + 32 <= len {
                let low = from.add(at).cast::<Unaligned<Vector>>().read_volatile();
                let high = from.add(at + 16).cast::<Unaligned<Vector>>().read_volatile();
                to.add(at).cast::<Unaligned<Vector>>().write(low);
                to.add(at + 16).cast::<Unaligned<Vector>>().write(high);
                at += 32;
            }
            if len & 16 != 0 {
                at = copy_piece::<Vector>(from, to, at);
            }
        }
        while at + 8 <= len {
            at = copy_piece::<u64>(from, to, at);
        }
        // At most one piece of each of these sizes is left.
        if len & 4 != 0 {
            at = copy_piece::<u32>(from, to, at);
        }
        if len & 2 != 0 {
            at = copy_piece::<u16>(from, to, at);
        }
        if len & 1 != 0 {
            copy_piece::<u8>(from, to, at);
        }
    }
}

/// Copies one piece of the size of `T` at offset `at`. Returns the offset behind it.
///
/// # Safety
///
/// The piece is readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn copy_piece<T: Copy>(from: *const u8, to: *mut u8, at: usize) -> usize {
    // SAFETY: by the promise of the caller.
    unsafe {
        let piece = from.add(at).cast::<Unaligned<T>>().read_volatile();
        to.add(at).cast::<Unaligned<T>>().write(piece);
    }
    at + size_of::<T>()
}

/// Reads a little-endian number of 64 bits at any address, whose bytes another process may change at the same time. Reads
/// each byte exactly once, as [`copy_once`] does.
///
/// # Safety
///
/// `from` is readable for 8 bytes.
#[inline(always)]
pub unsafe fn read_once(from: *const u8) -> u64 {
    // SAFETY: by the caller's contract; the type needs no alignment.
    u64::from_le(unsafe { from.cast::<Unaligned<u64>>().read_volatile() }.0)
}

/// The size of a page in bytes.
pub fn page_bytes() -> usize {
    /// The size on most processors, should the system not tell it.
    const USUAL: usize = 4096;
    // SAFETY: sysconf accesses no memory of the program.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(USUAL).max(USUAL)
}

/// Creates an empty memory file that can be sealed. The name appears in lists of open or mapped files.
///
/// # Errors
///
/// The system's error if memory or descriptors are exhausted.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name ends with a zero byte; the call touches no other memory of ours.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was just created, and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Prefetches the byte at `address` into the cache. Any address is valid.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it reads nothing and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_every_length_and_alignment_are_exact() {
        let from: Vec<u8> = (1..=100).collect();
        for len in 0..=70 {
            for (start, to) in [(0, 0), (1, 3), (7, 1), (16, 9)] {
                let mut copy = [0; 100];
                // SAFETY: `start + len` and `to + len` are within 100 bytes of each.
                unsafe { copy_once(from.as_ptr().add(start), copy.as_mut_ptr().add(to), len) };
                let mut expected = [0; 100];
                expected[to..to + len].copy_from_slice(&from[start..start + len]);
                assert_eq!(copy, expected, "{len} bytes from {start} to {to}");
            }
        }
    }

    #[test]
    fn a_memory_file_is_empty_and_named() {
        use std::os::fd::AsRawFd;
        let file = memory_file(c"weir-test").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        let named = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert!(named.to_string_lossy().contains("weir-test"), "{named:?}");
    }
}
