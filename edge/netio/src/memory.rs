//! Mapped memory, and memory files that others can only read.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use weir_os::memory::memory_file;

/// How many bytes a page has.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: sysconf reads no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096).max(4096)
}

/// A range of a file in our address space, for as long as this value lives.
///
/// It hands out addresses only: whether the bytes behind them can change, or be written, its owners have to know.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread, and this type itself never reads or writes it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives an address and a length and nothing else.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` (a multiple of the page size), shared with everybody who maps them.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let offset =
            libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: with a null address the kernel chooses free room, so no existing mapping is replaced.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len })
    }

    /// `len` bytes of memory that nobody else sees, all zero.
    fn private(len: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: with a null address the kernel chooses free room, so no existing mapping is replaced.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len })
    }

    /// Shows the first `len` bytes of `file` in place of what is at the begin of this mapping, whose addresses nobody else knows yet.
    fn replace_begin(&self, file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
        if len > self.len {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: replaces a part of this mapping only, by the check above, which nobody has used so far.
        let at =
            unsafe { libc::mmap(self.base.as_ptr().cast(), len, protection, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Where it begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Tells the kernel what comes. It is advice: what the kernel answers changes nothing.
    pub(crate) fn advise(&self, from: usize, len: usize, advice: libc::c_int) {
        let from = from.min(self.len);
        let len = len.min(self.len - from);
        // SAFETY: [from, from + len) is inside this mapping, and only advice is passed that leaves its contents as they are.
        unsafe {
            libc::madvise(self.base.as_ptr().add(from).cast(), len, advice);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave us, and whoever used its addresses borrowed this value or owned it.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), self.len);
        }
    }
}

/// A memory file with these bytes.
pub(crate) fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = memory_file(c"weir-capture")?;
    io::Write::write_all(&mut file, bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

/// A memory file of `len` bytes, and the only writable mapping of it that there will ever be: after it the file
/// is sealed against growing, shrinking and further writable mappings.
pub(crate) fn sealed(name: &std::ffi::CStr, len: usize) -> io::Result<(File, Mapping)> {
    sealed_and_more(name, len, 0)
}

/// The same, with `more` bytes of private memory right behind it in the mapping, which are in no file.
pub(crate) fn sealed_and_more(name: &std::ffi::CStr, len: usize, more: usize) -> io::Result<(File, Mapping)> {
    let file = memory_file(name)?;
    file.set_len(u64::try_from(len).unwrap_or(u64::MAX))?;
    let mapping = if more == 0 {
        Mapping::shared(file.as_fd(), 0, len, true)?
    } else {
        let mapping = Mapping::private(len.saturating_add(more))?;
        mapping.replace_begin(file.as_fd(), len)?;
        mapping
    };
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: fcntl with integer arguments touches no memory.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((file, mapping))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_can_write_a_sealed_file_or_change_its_length() {
        let (file, mapping) = sealed(c"weir-test", 8192).unwrap();
        assert_eq!(mapping.len(), 8192);
        assert!(Mapping::shared(file.as_fd(), 0, 8192, true).is_err());
        assert!(Mapping::shared(file.as_fd(), 0, 8192, false).is_ok());
        assert!(file.set_len(4096).is_err());
        assert!(file.set_len(16_384).is_err());
        assert!(std::os::unix::fs::FileExt::write_at(&file, b"x", 0).is_err());
    }
}
