//! Reading lines of bounded length.

use std::io::{self, BufRead, Read as _};
use weir_ledger::LINE_BYTES_MAX;

/// Reads the next line with its line feed into `line`. Of a line longer than [`LINE_BYTES_MAX`], reads
/// `LINE_BYTES_MAX + 1` bytes. Returns false at the end of the source.
pub(crate) fn read_line(source: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let bytes_max = LINE_BYTES_MAX as u64 + 1;
    Ok(source.by_ref().take(bytes_max).read_until(b'\n', line)? > 0)
}
