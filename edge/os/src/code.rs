//! Code in memory: no page is writable and executable at the same time, and code pages cannot be made writable again.
//!
//! Seccomp refuses what would break the first rule ([`calls`](crate::calls)). For the second the kernel seals the pages: mseal(2), Linux 6.10 and later.

use std::io;
use std::ops::Range;

/// The number is the same on all architectures.
const SYS_MSEAL: libc::c_long = 462;
/// prctl(2), Linux 6.3 and later.
const PR_SET_MDWE: libc::c_int = 65;
const PR_MDWE_REFUSE_EXEC_GAIN: libc::c_ulong = 1;
const PAGE: usize = 4096;

/// Seals the pages of a range: their rights cannot be changed any more, and nothing can be mapped in their place.
fn seal(range: &Range<usize>) -> io::Result<()> {
    let page = match page_size() {
        0 => PAGE,
        size => size,
    };
    let begin = range.start / page * page;
    let len = range.end.saturating_sub(begin).div_ceil(page) * page;
    // SAFETY: takes an address that is not looked through. What is mapped there stays as it is.
    match unsafe { libc::syscall(SYS_MSEAL, begin, len, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn page_size() -> usize {
    // SAFETY: takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(PAGE)
}

/// Returns true if the kernel can seal memory.
pub(crate) fn can_seal() -> bool {
    // An empty range is sealed at once.
    // SAFETY: takes no pointers that are looked at; no page is concerned.
    unsafe { libc::syscall(SYS_MSEAL, 0, 0, 0) == 0 }
}

/// Seals code that was loaded at `range`.
///
/// # Errors
/// The kernel can seal, and does not.
pub(crate) fn seal_loaded(range: &Range<usize>) -> io::Result<()> {
    if range.is_empty() || !can_seal() { Ok(()) } else { seal(range) }
}

/// Seals the code of this program and its libraries: each mapping of a file that is executable.
///
/// # Errors
/// The kernel can seal, and does not; or there is no list of mappings.
pub(crate) fn seal_program() -> io::Result<()> {
    if !can_seal() {
        return Ok(());
    }
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    maps.lines().filter_map(code_of_file).try_for_each(|range| seal(&range))
}

/// The range of a line of proc_pid_maps(5), if it is code of a file.
fn code_of_file(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let file = words.nth(3)?;
    if rights.as_bytes().get(2) != Some(&b'x') || !file.starts_with('/') {
        return None;
    }
    let (begin, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(begin)?..number(end)?)
}

/// Refuses code for the whole process from now on: no memory can become executable. Kernels before 6.3 cannot; seccomp refuses it as well.
pub(crate) fn no_more() {
    // SAFETY: takes no pointers.
    unsafe { libc::prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) };
}

/// The numbers that seccomp compares prctl(2)'s first argument with.
pub(crate) const NO_MORE: u64 = PR_SET_MDWE as u64;
/// The call that seals.
pub(crate) const SEAL: libc::c_long = SYS_MSEAL;

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
