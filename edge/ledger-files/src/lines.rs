//! Bytes as lines of bounded length.

use std::io::{self, BufRead, Read as _};
use weir_ledger::LINE_BYTES_MAX;

/// Reads the next line with its end into `line`: at most one byte more than a line may have. Returns whether there was one.
pub(crate) fn next(source: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let most = LINE_BYTES_MAX as u64 + 1;
    Ok(source.by_ref().take(most).read_until(b'\n', line)? > 0)
}
