//! Mapped memory, and memory files that sandboxes can only read.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use weir_os::memory::{memory_file, page_bytes};

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
    fn private(len: usize, protection: libc::c_int) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: with a null address the kernel chooses a free range, so no existing mapping is replaced.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { base, len })
    }

    /// Maps the first `part_len` bytes of each of these files, a multiple of the page size, writable and shared with other
    /// mappings. The parts follow each other without a gap.
    pub(crate) fn in_parts(files: &[BorrowedFd<'_>], part_len: usize) -> io::Result<Self> {
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if let [file] = files {
            return Self::shared(*file, 0, part_len, true);
        }
        let page = page_bytes();
        let len = part_len.checked_mul(files.len()).filter(|len| *len > 0 && part_len.is_multiple_of(page));
        let len = len.ok_or_else(invalid)?;
        for file in files {
            // The kernel maps a file also beyond its end, but an access there ends the process.
            let found = File::from(file.try_clone_to_owned()?).metadata()?;
            if found.is_file() && found.len() < u64::try_from(part_len).unwrap_or(u64::MAX) {
                return Err(invalid());
            }
            // Files that cannot be mapped are found here: a mapping at a fixed address that fails can leave a hole there.
            Self::shared(*file, 0, part_len, true)?;
        }
        let mapping = Self::private(len, libc::PROT_NONE)?;
        for (part, file) in files.iter().enumerate() {
            if let Err(error) = mapping.replace(part * part_len, *file, part_len) {
                mapping.release_except(part * part_len, part_len);
                return Err(error);
            }
        }
        Ok(mapping)
    }

    /// Replaces `len` bytes of this mapping from `at` on by the first bytes of `file`. These bytes must not be in use yet.
    fn replace(&self, at: usize, file: BorrowedFd<'_>, len: usize) -> io::Result<()> {
        if at.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        // SAFETY: by the check above this replaces only a part of this mapping, which is not in use yet.
        let done = unsafe {
            libc::mmap(self.base.as_ptr().add(at).cast(), len, protection, flags, file.as_raw_fd(), 0)
        };
        if done == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Unmaps all but `len` bytes from `at` on, for which [`replace`](Self::replace) has failed: they can be a hole, and
    /// another thread can have mapped memory there since. If they are still reserved, the addresses stay unused.
    fn release_except(self, at: usize, len: usize) {
        let this = std::mem::ManuallyDrop::new(self);
        let end = at.saturating_add(len).min(this.len);
        // SAFETY: both ranges are inside the mapping, which has no users, and outside the possible hole.
        unsafe {
            libc::munmap(this.base.as_ptr().cast(), at.min(end));
            libc::munmap(this.base.as_ptr().add(end).cast(), this.len - end);
        }
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
        let mapping = Mapping::private(len.saturating_add(extra), libc::PROT_READ | libc::PROT_WRITE)?;
        mapping.replace(0, file.as_fd(), len)?;
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

    /// Returns true if this process maps a memory file of this name.
    fn is_mapped(name: &str) -> bool {
        std::fs::read_to_string("/proc/self/maps").unwrap().contains(name)
    }

    fn filled(name: &std::ffi::CStr, byte: u8, pages: usize) -> File {
        let mut file = memory_file(name).unwrap();
        io::Write::write_all(&mut file, &vec![byte; pages * 4096]).unwrap();
        file
    }

    #[test]
    fn parts_follow_each_other_without_a_gap() {
        let files = [1, 2, 3].map(|byte| filled(c"weir-parts", byte, 2));
        let mapping = Mapping::in_parts(&files.each_ref().map(AsFd::as_fd), 8192).unwrap();
        assert_eq!(mapping.len(), 3 * 8192);
        for (at, byte) in [(0, 1), (8191, 1), (8192, 2), (16_383, 2), (16_384, 3), (24_575, 3)] {
            // SAFETY: inside the mapping, and no other code writes these files.
            assert_eq!(unsafe { mapping.base().as_ptr().add(at).read() }, byte, "{at}");
        }
        assert!(is_mapped("weir-parts"));
        drop(mapping);
        assert!(!is_mapped("weir-parts"));
    }

    #[test]
    fn nothing_stays_mapped_if_a_part_cannot_be_mapped() {
        let long = filled(c"weir-failing-parts", 1, 2);
        let short = filled(c"weir-failing-parts", 2, 1);
        let unreadable = std::fs::OpenOptions::new()
            .write(true)
            .open(format!("/proc/self/fd/{}", long.as_raw_fd()))
            .unwrap();
        for other in [&short, &unreadable] {
            assert!(Mapping::in_parts(&[long.as_fd(), other.as_fd()], 8192).is_err());
            assert!(!is_mapped("weir-failing-parts"));
        }
        // Parts that are no whole pages would leave a gap, and no part is no window.
        assert!(Mapping::in_parts(&[long.as_fd(), long.as_fd()], 5000).is_err());
        assert!(Mapping::in_parts(&[], 8192).is_err());
        // If the mapping at the fixed address fails, the parts before and behind it are unmapped.
        let reserved = Mapping::private(3 * 8192, libc::PROT_NONE).unwrap();
        reserved.replace(0, long.as_fd(), 8192).unwrap();
        reserved.replace(2 * 8192, long.as_fd(), 8192).unwrap();
        assert!(reserved.replace(8192, unreadable.as_fd(), 8192).is_err());
        assert!(reserved.replace(2 * 8192, long.as_fd(), 8193).is_err(), "beyond the reservation");
        reserved.release_except(8192, 8192);
        assert!(!is_mapped("weir-failing-parts"));
    }
}
