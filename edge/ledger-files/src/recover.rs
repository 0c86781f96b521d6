//! What a node finds of its ledger when it starts.

use crate::{LedgerError, SegmentStorage, lines};
use std::io::{self, BufReader};
use weir_ledger::{
    ChainStart, Damage, FORMAT, Fed, LINE_BYTES_MAX, LedgerCheck, LedgerHead, LedgerProblem, VerifiedLedger,
    Verifier, unseal,
};
use weir_units::Timestamp;

/// Bytes that are put aside after a crash, at the most. A crash leaves less than an interval; more than this is damage.
pub(crate) const TORN_BYTES_MAX: usize = 64 << 20;

/// Where the ledger goes on.
#[derive(Debug, Default)]
pub(crate) struct RecoveredEnd {
    /// The last segment; 0 where there is none.
    pub(crate) segment: u64,
    /// Whether it is written in an earlier format, in which not all can be said.
    pub(crate) is_early: bool,
    /// The bytes of its whole lines.
    pub(crate) len: u64,
    /// What is behind them.
    pub(crate) torn: Vec<u8>,
    /// The last whole line.
    pub(crate) head: Option<LedgerHead>,
    /// Its end.
    pub(crate) end: Timestamp,
    /// Whether it says that the node ended in order.
    pub(crate) stopped: bool,
}

impl RecoveredEnd {
    /// Checks that there is a number for the next segment.
    pub(crate) fn check_number(&self) -> Result<(), LedgerError> {
        if self.segment == u64::MAX { Err(LedgerError::Exhausted) } else { Ok(()) }
    }
}

/// Looks at the last segment, and at the one before it, whose last line the first one of the last segment has to name.
pub(crate) fn find(storage: &impl SegmentStorage) -> Result<RecoveredEnd, LedgerError> {
    find_in(&storage.segments().map_err(LedgerError::Io)?, &|segment| storage.read(segment))
}

/// Reads a segment.
type Read<'a> = dyn Fn(u64) -> io::Result<Box<dyn io::Read + 'a>> + 'a;

/// The same for these segments.
pub(crate) fn find_in(numbers: &[u64], read: &Read<'_>) -> Result<RecoveredEnd, LedgerError> {
    let Some((&last, former)) = numbers.split_last() else { return Ok(RecoveredEnd::default()) };
    let mut verifier = Verifier::new(LedgerCheck {
        from: if last == 1 { ChainStart::Beginning } else { ChainStart::Anywhere },
        contains: None,
    });
    if let Some(&former) = former.last() {
        let tail = scan(read, former, &mut verifier)?;
        if let Some(wrong) = tail.why {
            return Err(LedgerError::Damaged(wrong));
        }
        // A segment is begun only behind a whole line.
        if let Some(torn) = verifier.found().torn {
            return Err(LedgerError::Damaged(LedgerProblem { place: torn.place, what: Damage::Cut }));
        }
    }
    let Tail { len, torn, why } = scan(read, last, &mut verifier)?;
    if let Some(wrong) = why
        && !is_crash(&wrong, &torn)
    {
        return Err(LedgerError::Damaged(wrong));
    }
    let VerifiedLedger { head, stopped, .. } = *verifier.found();
    let is_early = len > 0 && verifier.format() != FORMAT;
    Ok(RecoveredEnd { segment: last, is_early, len, torn, head, end: verifier.end(), stopped })
}

/// A segment's whole lines, and what comes after the last of them.
struct Tail {
    len: u64,
    torn: Vec<u8>,
    why: Option<LedgerProblem>,
}

fn scan(read: &Read<'_>, segment: u64, verifier: &mut Verifier) -> Result<Tail, LedgerError> {
    let mut source = BufReader::new(read(segment).map_err(LedgerError::Io)?);
    let (mut tail, mut line) = (Tail { len: 0, torn: Vec::new(), why: None }, Vec::new());
    verifier.segment(segment);
    while lines::next(&mut source, &mut line).map_err(LedgerError::Io)? {
        match verifier.feed(&line) {
            Ok(Fed::Entry(_)) => tail.len += line.len() as u64,
            Ok(Fed::Torn(_)) => tail.torn.extend_from_slice(&line),
            Err(wrong) => {
                tail.why = Some(wrong);
                tail.torn.extend_from_slice(&line);
                if tail.torn.len() > TORN_BYTES_MAX {
                    break;
                }
            }
        }
    }
    Ok(tail)
}

/// Whether a system that lost its power can have left this: nothing of it is a whole line. (Blocks of a write reach the disk in any order, and those
/// that did not are zeros.)
fn is_crash(wrong: &LedgerProblem, torn: &[u8]) -> bool {
    let is_line = |line: &[u8]| line.len() <= LINE_BYTES_MAX && unseal(line).is_ok();
    matches!(wrong.what, Damage::Changed(_) | Damage::TooLong)
        && torn.len() <= TORN_BYTES_MAX
        && !torn.split(|byte| *byte == b'\n').any(is_line)
}

/// The first steps of a node after a crash: what is torn is put aside, and then cut off.
pub(crate) fn repair(storage: &mut impl SegmentStorage, len: u64, torn: &[u8]) -> io::Result<()> {
    storage.put_aside(torn)?;
    storage.truncate(len)?;
    storage.sync()
}
