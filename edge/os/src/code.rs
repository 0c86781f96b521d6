//! Protection of code in memory: no page is writable and executable at the same time, and code pages cannot be made
//! writable again.
//!
//! Seccomp refuses calls that would make a page writable and executable ([`calls`](crate::calls)). mseal(2) seals code
//! pages on Linux 6.10 and later; older kernels cannot seal them.

use crate::memory::page_bytes;
use std::io;
use std::ops::Range;

/// The number of mseal(2), the same on all architectures.
const SYS_MSEAL: libc::c_long = 462;
/// The option of prctl(2) that refuses executable memory, Linux 6.3 and later.
const PR_SET_MDWE: libc::c_int = 65;
const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;

/// Seals the pages of a range: their rights cannot be changed any more, and nothing can be mapped in their place.
fn seal(range: &Range<usize>) -> io::Result<()> {
    let page = page_bytes();
    let begin = range.start / page * page;
    let len = range.end.saturating_sub(begin).div_ceil(page) * page;
    // SAFETY: the kernel does not access the memory at the address, and leaves the mapping as it is.
    match unsafe { libc::syscall(SYS_MSEAL, begin, len, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns true if the kernel can seal memory.
pub(crate) fn can_seal() -> bool {
    // Sealing an empty range has no effect.
    // SAFETY: the range is empty, so the kernel accesses no memory and seals no page.
    unsafe { libc::syscall(SYS_MSEAL, 0, 0, 0) == 0 }
}

/// Seals code that was loaded at `range`, if the kernel supports sealing.
///
/// # Errors
/// The kernel supports sealing, but refuses to seal this range.
pub(crate) fn seal_loaded(range: &Range<usize>) -> io::Result<()> {
    if range.is_empty() || !can_seal() { Ok(()) } else { seal(range) }
}

/// Seals the code of this program and its libraries, if the kernel supports sealing: each executable mapping of a file.
///
/// # Errors
/// The kernel supports sealing, but refuses to seal a mapping; or /proc/self/maps cannot be read.
pub(crate) fn seal_program() -> io::Result<()> {
    if !can_seal() {
        return Ok(());
    }
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    maps.lines().filter_map(code_of_file).try_for_each(|range| seal(&range))
}

/// Returns the address range of a line of /proc/self/maps (proc_pid_maps(5)), if it is an executable mapping of a file.
fn code_of_file(line: &str) -> Option<Range<usize>> {
    let mut columns = line.split_whitespace();
    let (range, rights) = (columns.next()?, columns.next()?);
    let file = columns.nth(3)?;
    if rights.as_bytes().get(2) != Some(&b'x') || !file.starts_with('/') {
        return None;
    }
    let (begin, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(begin)?..number(end)?)
}

/// Makes the kernel refuse further executable memory in the whole process from now on. Kernels before 6.3 lack this
/// option; there only the seccomp filter refuses executable memory.
pub(crate) fn refuse_executable_memory() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) };
}

/// The first argument of the only prctl(2) call that the seccomp filter of a sandbox process allows.
pub(crate) const PRCTL_MDWE: u64 = PR_SET_MDWE as u64;
/// The system call that seals memory.
pub(crate) const MSEAL_CALL: libc::c_long = SYS_MSEAL;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files_is_found_in_the_list_of_mappings() {
        let code = "7f00-7f10 r-xp 00000000 08:01 12345    /usr/lib/libc.so.6";
        assert_eq!(code_of_file(code), Some(0x7f00..0x7f10));
        for other in [
            "7f00-7f10 r--p 00000000 08:01 12345    /usr/lib/libc.so.6",
            "7f00-7f10 r-xp 00000000 00:00 0    [vdso]",
            "7f00-7f10 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code_of_file(other), None, "{other}");
        }
    }
}
