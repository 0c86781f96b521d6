//! Shared memory: memory files, and copies of bytes that another process may write at the same time.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Eight bytes at any address.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Word(u64);

/// Sixteen bytes at any address: one vector load.
#[cfg(target_arch = "x86_64")]
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Wide(std::arch::x86_64::__m128i);

/// Copies `len` bytes that another process may change at the same time. Reads each byte exactly once: by volatile reads,
/// which the compiler can neither repeat nor omit.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_once(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    let wide = len / 16;
    #[cfg(not(target_arch = "x86_64"))]
    let wide = 0;
    #[cfg(target_arch = "x86_64")]
    for i in 0..wide {
        // SAFETY: bytes 16i..16i+16 are below `len`; `Wide` needs no alignment.
        unsafe { to.cast::<Wide>().add(i).write(from.cast::<Wide>().add(i).read_volatile()) };
    }
    let words = len / 8;
    for i in wide * 2..words {
        // SAFETY: bytes 8i..8i+8 are below `len`; `Word` needs no alignment.
        unsafe { to.cast::<Word>().add(i).write(from.cast::<Word>().add(i).read_volatile()) };
    }
    for i in words * 8..len {
        // SAFETY: byte i is below `len`.
        unsafe { to.add(i).write(from.add(i).read_volatile()) };
    }
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
