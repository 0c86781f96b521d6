//! Recovery of a ledger at a node's start: finds the end of the complete lines, and removes the bytes that a crash left
//! after them.

use crate::{LedgerError, SegmentStorage, lines};
use std::io::{self, BufReader};
use weir_ledger::{
    ChainStart, Damage, FORMAT, LINE_BYTES_MAX, LedgerHead, LedgerProblem, LineResult, VerifiedLedger,
    Verifier, VerifyOptions, parse_line,
};
use weir_units::Timestamp;

/// The most bytes after the complete lines that are put aside as the rest of a crash. A crash leaves at most the entries
/// of an interval, so more bytes count as damage.
pub(crate) const TORN_BYTES_MAX: usize = 64 << 20;

/// The end of an existing ledger, at which writing continues.
#[derive(Debug, Default)]
pub(crate) struct RecoveredEnd {
    /// The number of the last segment; 0 if there is none.
    pub(crate) segment: u64,
    /// True if the segment is in an earlier format, which lacks kinds of entries.
    pub(crate) has_earlier_format: bool,
    /// The number of bytes in the segment's complete lines.
    pub(crate) len: u64,
    /// The bytes after the complete lines.
    pub(crate) torn: Vec<u8>,
    /// The last complete line.
    pub(crate) head: Option<LedgerHead>,
    /// The end time of the last complete line's entry.
    pub(crate) end: Timestamp,
    /// True if the last complete line records an orderly stop of the node.
    pub(crate) stopped: bool,
}

impl RecoveredEnd {
    /// Checks that there is a number for the next segment.
    pub(crate) fn check_number(&self) -> Result<(), LedgerError> {
        if self.segment == u64::MAX { Err(LedgerError::Exhausted) } else { Ok(()) }
    }
}

/// Examines the last segment and the one before it. The first line of the last segment must have the hash of the last
/// line of the segment before.
pub(crate) fn find(storage: &impl SegmentStorage) -> Result<RecoveredEnd, LedgerError> {
    find_in(&storage.segments().map_err(LedgerError::Io)?, &|segment| storage.read(segment))
}

/// A function that opens a segment for reading.
type Read<'a> = dyn Fn(u64) -> io::Result<Box<dyn io::Read + 'a>> + 'a;

/// Examines the last two of the segments with these numbers. `read` opens a segment.
pub(crate) fn find_in(numbers: &[u64], read: &Read<'_>) -> Result<RecoveredEnd, LedgerError> {
    let Some((&last, former)) = numbers.split_last() else { return Ok(RecoveredEnd::default()) };
    let mut verifier = Verifier::new(VerifyOptions {
        start: if last == 1 { ChainStart::Beginning } else { ChainStart::Anywhere },
        kept_head: None,
    });
    if let Some(&former) = former.last() {
        let tail = scan(read, former, &mut verifier)?;
        if let Some(problem) = tail.problem {
            return Err(LedgerError::Damaged(problem));
        }
        // The writer begins a segment only after complete lines, so no crash leaves torn bytes in an earlier segment.
        if let Some(torn) = verifier.summary().torn {
            return Err(LedgerError::Damaged(LedgerProblem { position: torn.position, damage: Damage::Cut }));
        }
    }
    let Tail { len, torn, problem } = scan(read, last, &mut verifier)?;
    if let Some(problem) = problem
        && !is_crash(&problem, &torn)
    {
        return Err(LedgerError::Damaged(problem));
    }
    let VerifiedLedger { head, stopped, .. } = *verifier.summary();
    let has_earlier_format = len > 0 && verifier.format() != FORMAT;
    Ok(RecoveredEnd { segment: last, has_earlier_format, len, torn, head, end: verifier.end(), stopped })
}

/// The end of a segment.
struct Tail {
    /// The number of bytes in complete lines.
    len: u64,
    /// The bytes after the complete lines.
    torn: Vec<u8>,
    /// The last problem in `torn`, if there is more than an incomplete line.
    problem: Option<LedgerProblem>,
}

/// Reads a segment to its end, and feeds its lines to the verifier.
fn scan(read: &Read<'_>, segment: u64, verifier: &mut Verifier) -> Result<Tail, LedgerError> {
    let mut source = BufReader::new(read(segment).map_err(LedgerError::Io)?);
    let (mut tail, mut line) = (Tail { len: 0, torn: Vec::new(), problem: None }, Vec::new());
    verifier.begin_segment(segment);
    while lines::read_line(&mut source, &mut line).map_err(LedgerError::Io)? {
        match verifier.feed(&line) {
            Ok(LineResult::Entry(_)) => tail.len += line.len() as u64,
            Ok(LineResult::Torn(_)) => tail.torn.extend_from_slice(&line),
            Err(problem) => {
                tail.problem = Some(problem);
                tail.torn.extend_from_slice(&line);
                if tail.torn.len() > TORN_BYTES_MAX {
                    break;
                }
            }
        }
    }
    Ok(tail)
}

/// Returns true if a power loss can have left these bytes: if they contain no valid line. (The blocks of a write reach
/// the disk in any order, and a missing block is read as zeros.)
fn is_crash(problem: &LedgerProblem, torn: &[u8]) -> bool {
    let is_line = |line: &[u8]| line.len() <= LINE_BYTES_MAX && parse_line(line).is_ok();
    matches!(problem.damage, Damage::Changed(_) | Damage::TooLong)
        && torn.len() <= TORN_BYTES_MAX
        && !torn.split(|byte| *byte == b'\n').any(is_line)
}

/// Repairs the current segment after a crash: copies the torn bytes to a separate file, and truncates the segment to
/// `len` bytes.
pub(crate) fn repair(storage: &mut impl SegmentStorage, len: u64, torn: &[u8]) -> io::Result<()> {
    storage.put_aside(torn)?;
    storage.truncate(len)?;
    storage.sync()
}
