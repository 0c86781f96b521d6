//! Verification of a ledger: finds the first damage, or shows that there is none.

use super::chain::{LINE_BYTES_MAX, LedgerLine, LedgerLineError, unseal};
use super::{Digest, FORMAT, LedgerEntry, LedgerEvent, LedgerHead, show_time};
use std::fmt;
use weir_units::Timestamp;

/// The required first line of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainStart {
    /// The first line of the first segment.
    #[default]
    Beginning,
    /// The line after this head, which is the last line of earlier segments that are archived elsewhere.
    After(LedgerHead),
    /// Any line. Lines before it are not checked.
    Anywhere,
}

/// The conditions of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCheck {
    /// The required beginning.
    pub from: ChainStart,
    /// A head that was kept elsewhere: the ledger has to contain this line. With `None`, missing lines at the end of the
    /// ledger are not detected.
    pub contains: Option<LedgerHead>,
}

/// The position of a line in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition {
    /// The segment's number; 0 before the first segment.
    pub segment: u64,
    /// The number of the line in the segment, from 1.
    pub line: u64,
    /// The offset of the line in the segment, in bytes.
    pub offset: u64,
}

impl fmt::Display for LinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, line {} (byte {})", self.segment, self.line, self.offset)
    }
}

/// The first damage in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct LedgerProblem {
    /// The position of the damaged line.
    pub place: LinePosition,
    /// The damage.
    pub what: Damage,
}

/// A kind of damage to a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The line is not as weir wrote it.
    #[error("the line was changed: {0}")]
    Changed(LedgerLineError),
    /// The line is longer than every line that weir writes.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes: weir did not write it")]
    TooLong,
    /// The line has no line feed and is not the last one. (A crash leaves such a line at the end of a ledger.)
    #[error("the line is cut off in the middle, though more lines come after it")]
    Cut,
    /// Entries are missing.
    #[error("entries {from} to {to} are missing here")]
    Missing {
        /// The first missing entry.
        from: u64,
        /// The last missing entry.
        to: u64,
    },
    /// Entries are in another order.
    #[error("entry {found} stands where entry {expected} should, which comes later")]
    Reordered {
        /// The sequence number that the entry should have.
        expected: u64,
        /// The sequence number that the entry has.
        found: u64,
    },
    /// Two entries have the same sequence number.
    #[error("a second entry {sequence}: one of the two was inserted or moved")]
    Duplicate {
        /// The sequence number.
        sequence: u64,
    },
    /// The line and the line before it have right hashes, but the line does not contain the hash of the line before it.
    #[error(
        "the line does not follow the one before it: one of the two was replaced, and its hash computed anew"
    )]
    Unlinked,
    /// An entry ends earlier than the entry before it, and no entry says that the clock was set back.
    #[error("time goes backwards, from {} to {}", show_time(*before), show_time(*found))]
    Time {
        /// The end of the entry before.
        before: Timestamp,
        /// The end of this entry.
        found: Timestamp,
    },
    /// The first line of a segment does not state the segment's number.
    #[error("the file does not begin with the first line of segment {expected}")]
    Segment {
        /// The number in the file's name.
        expected: u64,
    },
    /// The first line of a segment stands inside another segment.
    #[error("the first line of a segment stands inside another segment")]
    SegmentInside,
    /// The segment was written by a later version of weir.
    #[error("the segment is written in format {0}; this weir reads formats up to {FORMAT}")]
    Format(u64),
    /// The segment is of an earlier format, which has no such entry.
    #[error("the segment is written in format {0}, which has no such entry")]
    NotInFormat(u64),
    /// The entry differs from the head that was kept elsewhere.
    #[error("this entry {} is not the one that was kept: it was {}", .kept.sequence, .kept.hash)]
    OtherHead {
        /// The head that was kept.
        kept: LedgerHead,
    },
    /// The ledger ends before the entry that was kept elsewhere.
    #[error("the ledger ends with entry {last}, but it had an entry {}: the rest was cut off", .kept.sequence)]
    Truncated {
        /// The last entry; 0 if there is none.
        last: u64,
        /// The head that was kept.
        kept: LedgerHead,
    },
}

/// An incomplete last line, as a crash leaves it. When the node starts again, it saves the line beside the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The position of the line.
    pub place: LinePosition,
    /// The number of bytes of the line that were written.
    pub bytes: u64,
}

/// The result of reading one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineResult {
    /// A whole line.
    Entry(Box<LedgerEntry>),
    /// An incomplete line, which has to be the last one.
    Torn(Torn),
}

/// A summary of a ledger without damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedLedger {
    /// The number of the first entry; 0 if there is none.
    pub first: u64,
    /// The last entry; an operator can keep it elsewhere. `None` for a ledger without entries.
    pub head: Option<LedgerHead>,
    /// The number of entries.
    pub entries: u64,
    /// The number of segments.
    pub segments: u64,
    /// The number of starts after a crash.
    pub recoveries: u64,
    /// An incomplete line after the last entry, left by a crash, or by a node that is writing.
    pub torn: Option<Torn>,
    /// True if the last entry is [`LedgerEvent::NodeStop`].
    pub stopped: bool,
}

/// Verifies a ledger line by line, with bounded memory and a bounded time per line.
#[derive(Clone, Debug)]
pub struct Verifier {
    check: LedgerCheck,
    /// The sequence number and the previous hash that the next line has to have; `None` if any line may follow.
    next: Option<(u64, Digest)>,
    /// The position of the next line.
    place: LinePosition,
    /// The end of the last entry.
    end: Timestamp,
    /// The format of the present segment; 0 before its first line.
    format: u64,
    found: VerifiedLedger,
    /// The first damage.
    first_damage: Option<LedgerProblem>,
}

impl Verifier {
    /// Makes a verifier that has read nothing.
    pub fn new(check: LedgerCheck) -> Self {
        let next = match check.from {
            ChainStart::Beginning => Some((1, Digest::NONE)),
            ChainStart::After(head) => Some((head.sequence.saturating_add(1), head.hash)),
            ChainStart::Anywhere => None,
        };
        Self {
            check,
            next,
            place: LinePosition { segment: 0, line: 1, offset: 0 },
            end: Timestamp(0),
            format: 0,
            found: VerifiedLedger {
                first: 0,
                head: None,
                entries: 0,
                segments: 0,
                recoveries: 0,
                torn: None,
                stopped: false,
            },
            first_damage: None,
        }
    }

    /// Begins a segment. `number` is the number in the name of its file.
    pub fn segment(&mut self, number: u64) {
        self.place = LinePosition { segment: number, line: 1, offset: 0 };
        self.format = 0;
        self.found.segments += 1;
    }

    /// Verifies the next line: all bytes up to and including the next `\n`, or up to the segment's end. Of a line longer
    /// than [`LINE_BYTES_MAX`], its first `LINE_BYTES_MAX + 1` bytes are enough.
    ///
    /// # Errors
    /// Fails with the first damage, again for each line after it. These lines still matter: they show whether entries are
    /// missing or only in another order.
    pub fn feed(&mut self, line: &[u8]) -> Result<LineResult, LedgerProblem> {
        let place = self.place;
        self.place.line += 1;
        self.place.offset = self.place.offset.saturating_add(line.len() as u64);
        if let Some(wrong) = self.first_damage {
            return Err(self.look_for_missing(wrong, line));
        }
        self.check_line(place, line).map_err(|(place, what)| {
            let wrong = LedgerProblem { place, what };
            self.first_damage = Some(wrong);
            wrong
        })
    }

    /// Returns the last entry so far.
    pub fn head(&self) -> Option<LedgerHead> {
        self.found.head
    }

    /// Returns the end of the last entry so far.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// Returns the format of the last segment; 0 if it has no whole line.
    pub fn format(&self) -> u64 {
        self.format
    }

    /// Returns the summary so far. Only [`Self::finish`] says whether the ledger is undamaged.
    pub fn found(&self) -> &VerifiedLedger {
        &self.found
    }

    /// Ends the verification after the last line of the last segment.
    ///
    /// # Errors
    /// The first damage.
    pub fn finish(&self) -> Result<VerifiedLedger, LedgerProblem> {
        if let Some(wrong) = self.first_damage {
            return Err(wrong);
        }
        if let Some(kept) = self.check.contains {
            let last = match (self.found.head, self.check.from) {
                (Some(head), _) | (None, ChainStart::After(head)) => head.sequence,
                (None, _) => 0,
            };
            if last < kept.sequence {
                return Err(LedgerProblem { place: self.place, what: Damage::Truncated { last, kept } });
            }
        }
        Ok(self.found)
    }

    /// Checks the line at `place`. Fails with the position of the damage, which can be an earlier line.
    fn check_line(&mut self, place: LinePosition, line: &[u8]) -> Result<LineResult, (LinePosition, Damage)> {
        let here = |what| (place, what);
        if let Some(torn) = self.found.torn {
            return Err((torn.place, Damage::Cut));
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(here(Damage::TooLong));
        }
        let Some(content) = line.strip_suffix(b"\n") else {
            // A whole line that has another byte in place of its line feed was changed, not cut off.
            if line.split_last().is_some_and(|(_, content)| unseal(content).is_ok()) {
                return Err(here(Damage::Changed(LedgerLineError::NoHash)));
            }
            let torn = Torn { place, bytes: line.len() as u64 };
            self.found.torn = Some(torn);
            return Ok(LineResult::Torn(torn));
        };
        let line = unseal(content).map_err(|error| here(Damage::Changed(error)))?;
        self.follows(&line).and_then(|()| self.fits(place, &line)).map_err(here)?;
        let (LedgerLine { entry, hash, .. }, found) = (line, &mut self.found);
        self.next = Some((entry.sequence.saturating_add(1), hash));
        self.end = entry.end;
        if let LedgerEvent::Segment { format, .. } = entry.event {
            self.format = format;
        }
        if found.entries == 0 {
            found.first = entry.sequence;
        }
        found.entries += 1;
        found.head = Some(LedgerHead { sequence: entry.sequence, hash });
        found.recoveries += u64::from(matches!(entry.event, LedgerEvent::Recovered { .. }));
        found.stopped = entry.event == LedgerEvent::NodeStop;
        Ok(LineResult::Entry(Box::new(entry)))
    }

    /// Checks that the line is the next line of the hash chain.
    fn follows(&self, line: &LedgerLine) -> Result<(), Damage> {
        let found = line.entry.sequence;
        if let Some((expected, prev)) = self.next {
            if found > expected {
                return Err(Damage::Missing { from: expected, to: found - 1 });
            }
            if found < expected {
                return Err(Damage::Duplicate { sequence: found });
            }
            if line.prev != prev {
                return Err(Damage::Unlinked);
            }
        }
        match self.check.contains {
            Some(kept) if kept.sequence == found && kept.hash != line.hash => Err(Damage::OtherHead { kept }),
            _ => Ok(()),
        }
    }

    /// Checks that the entry is allowed at this position.
    fn fits(&self, place: LinePosition, line: &LedgerLine) -> Result<(), Damage> {
        match line.entry.event {
            LedgerEvent::Segment { format, .. } if !(1..=FORMAT).contains(&format) => {
                return Err(Damage::Format(format));
            }
            LedgerEvent::Segment { .. } if place.line > 1 => return Err(Damage::SegmentInside),
            LedgerEvent::Segment { segment, .. } if segment == place.segment => {}
            _ if place.line == 1 => return Err(Damage::Segment { expected: place.segment }),
            ref event if self.format < event.format() => return Err(Damage::NotInFormat(self.format)),
            _ => {}
        }
        let backwards = line.entry.end < self.end;
        match line.entry.event {
            LedgerEvent::ClockSet { before } if before == self.end => Ok(()),
            _ if backwards => Err(Damage::Time { before: self.end, found: line.entry.end }),
            _ => Ok(()),
        }
    }

    /// Corrects a report of missing entries: if the first missing entry comes later, entries are only in another order.
    fn look_for_missing(&mut self, mut wrong: LedgerProblem, line: &[u8]) -> LedgerProblem {
        if let Damage::Missing { from, to } = wrong.what
            && let Some(content) = line.strip_suffix(b"\n")
            && content.len() < LINE_BYTES_MAX
            && unseal(content).is_ok_and(|line| line.entry.sequence == from)
        {
            wrong.what = Damage::Reordered { expected: from, found: to.saturating_add(1) };
            self.first_damage = Some(wrong);
        }
        wrong
    }
}
