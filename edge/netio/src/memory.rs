//! Mapped memory, and memory files that sandboxes can only read.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use weir_os::memory::memory_file;

/// The size of a page in bytes.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf accesses no memory of the program.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096).max(4096)
}

/// A range of a file or of private memory that is mapped while this value lives.
///
/// The type provides only addresses. Its owners have to know whether the bytes can change or be written.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this type itself never accesses its bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` provides only an address and a length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` (a multiple of the page size), shared with other mappings of the
    /// file.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset =
            libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: with a null address the kernel chooses a free range, so no existing mapping is replaced.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len })
    }

    /// Maps `len` bytes of private memory, all zero.
    fn private(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: with a null address the kernel chooses a free range, so no existing mapping is replaced.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len })
    }

    /// Replaces the beginning of this mapping by the first `len` bytes of `file`. The mapping must not be in use yet.
    fn replace_begin(&self, file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
        if len > self.len {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: by the check above this replaces only a part of this mapping, which is not in use yet.
        let at =
            unsafe { libc::mmap(self.base.as_ptr().cast(), len, protection, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The address of the first mapped byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length of the mapping in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Advises the kernel about the use of a part. Errors are ignored, as advice changes no contents.
    pub(crate) fn advise(&self, from: usize, len: usize, advice: libc::c_int) {
        let from = from.min(self.len);
        let len = len.min(self.len - from);
        // SAFETY: the range is inside this mapping, and the advice leaves its contents unchanged.
        unsafe {
            libc::madvise(self.base.as_ptr().add(from).cast(), len, advice);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the range that mmap returned. Users of its addresses borrow or own this value, so
        // none is left.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.len);
        }
    }
}

/// Creates a memory file with these bytes.
pub(crate) fn memory_file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = memory_file(c"weir-capture")?;
    io::Write::write_all(&mut file, bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

/// Creates a memory file of `len` bytes and its only writable mapping. The file is then sealed against growing,
/// shrinking and further writable mappings.
pub(crate) fn sealed_file(name: &std::ffi::CStr, len: usize) -> io::Result<(File, Mapping)> {
    sealed_file_with_extra(name, len, 0)
}

/// As [`sealed_file`], with `extra` bytes of private memory right behind the file in the mapping.
pub(crate) fn sealed_file_with_extra(
    name: &std::ffi::CStr,
    len: usize,
    extra: usize,
) -> io::Result<(File, Mapping)> {
    let file = memory_file(name)?;
    file.set_len(u64::try_from(len).unwrap_or(u64::MAX))?;
    let mapping = if extra == 0 {
        Mapping::shared(file.as_fd(), 0, len, true)?
    } else {
        let mapping = Mapping::private(len.saturating_add(extra))?;
        mapping.replace_begin(file.as_fd(), len)?;
        mapping
    };
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: fcntl with integer arguments accesses no memory.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((file, mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_file_cannot_be_written_or_resized_by_others() {
        let (file, mapping) = sealed_file(c"weir-test", 8192).unwrap();
        assert_eq!(mapping.len(), 8192);
        assert!(Mapping::shared(file.as_fd(), 0, 8192, true).is_err());
        assert!(Mapping::shared(file.as_fd(), 0, 8192, false).is_ok());
        assert!(file.set_len(4096).is_err());
        assert!(file.set_len(16_384).is_err());
        assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err());
    }
}
