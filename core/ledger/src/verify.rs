//! Whether a ledger is whole, and where it is not.

use super::chain::{LINE_BYTES_MAX, LedgerLine, LedgerLineError, unseal};
use super::{Digest, FORMAT, LedgerEntry, LedgerEvent, LedgerHead, show_time};
use std::fmt;
use weir_units::Timestamp;

/// Where the chain has to begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChainStart {
    /// With the first line of the first segment.
    #[default]
    Beginning,
    /// With the line after this one, whose segments were archived elsewhere.
    After(LedgerHead),
    /// Wherever the first line says. What came before it is not looked at.
    Anywhere,
}

/// What a ledger is held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCheck {
    /// Where it has to begin.
    pub from: ChainStart,
    /// A line that it has to contain, kept elsewhere. Without one, nobody can tell whether lines were cut off at the end.
    pub contains: Option<LedgerHead>,
}

/// A line's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinePosition {
    /// The segment's number; 0 before the first.
    pub segment: u64,
    /// The line in it. The first is 1.
    pub line: u64,
    /// Where the line begins, in bytes from the segment's beginning.
    pub offset: u64,
}

impl fmt::Display for LinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, line {} (byte {})", self.segment, self.line, self.offset)
    }
}

/// The first thing that is wrong with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct LedgerProblem {
    /// Where.
    pub place: LinePosition,
    /// What.
    pub what: Damage,
}

/// What can be wrong with a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The line is not as it was written.
    #[error("the line was changed: {0}")]
    Changed(LedgerLineError),
    /// The line is longer than any that weir writes.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes: weir did not write it")]
    TooLong,
    /// The line has no end, and is not the last one. (At the end of a ledger that is what a crash leaves.)
    #[error("the line is cut off in the middle, though more lines come after it")]
    Cut,
    /// Entries are not there.
    #[error("entries {from} to {to} are missing here")]
    Missing {
        /// The first of them.
        from: u64,
        /// The last of them.
        to: u64,
    },
    /// Entries are in another order.
    #[error("entry {found} stands where entry {expected} should, which comes later")]
    Reordered {
        /// What should be here.
        expected: u64,
        /// What is.
        found: u64,
    },
    /// There is a second entry of a number.
    #[error("a second entry {sequence}: one of the two was inserted or moved")]
    Duplicate {
        /// The number.
        sequence: u64,
    },
    /// Both lines are right by themselves, but do not belong together.
    #[error(
        "the line does not follow the one before it: one of the two was replaced, and its hash computed anew"
    )]
    Unlinked,
    /// An entry ends before the one before it, and none says that the clock was set.
    #[error("time goes backwards, from {} to {}", show_time(*before), show_time(*found))]
    Time {
        /// The end of the entry before.
        before: Timestamp,
        /// The end of this one.
        found: Timestamp,
    },
    /// A segment does not begin as it should.
    #[error("the file does not begin with the first line of segment {expected}")]
    Segment {
        /// The number in its name.
        expected: u64,
    },
    /// The first line of a segment inside another.
    #[error("the first line of a segment stands inside of another")]
    SegmentInside,
    /// Written by a later weir.
    #[error("the segment is written in format {0}; this weir reads formats up to {FORMAT}")]
    Format(u64),
    /// The segment is of an earlier format, which has no such entries.
    #[error("the segment is written in format {0}, which has no such entry")]
    NotInFormat(u64),
    /// The entry that was kept elsewhere is another one here.
    #[error("this entry {} is not the one that was kept: it was {}", .kept.sequence, .kept.hash)]
    OtherHead {
        /// What was kept.
        kept: LedgerHead,
    },
    /// The ledger ends before the entry that was kept elsewhere.
    #[error("the ledger ends with entry {last}, but it had an entry {}: the rest was cut off", .kept.sequence)]
    Truncated {
        /// The last entry; 0 where there is none.
        last: u64,
        /// What was kept.
        kept: LedgerHead,
    },
}

/// A last line that was not written to its end. A crash leaves one, and the node puts it aside when it starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Where it begins.
    pub place: LinePosition,
    /// What there is of it.
    pub bytes: u64,
}

/// What a line was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fed {
    /// A whole one.
    Entry(Box<LedgerEntry>),
    /// The beginning of one, with which the ledger has to end.
    Torn(Torn),
}

/// A ledger in which nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedLedger {
    /// The number of the first entry; 0 where there is none.
    pub first: u64,
    /// The last one, to be kept elsewhere.
    pub head: Option<LedgerHead>,
    /// How many there are.
    pub entries: u64,
    /// How many segments.
    pub segments: u64,
    /// How often a node began after a crash.
    pub recoveries: u64,
    /// What a crash, or a node that is writing just now, left after the last entry.
    pub torn: Option<Torn>,
    /// Whether the last entry says that the node ended in order.
    pub stopped: bool,
}

/// Reads a ledger line by line. Memory and time per line are bounded.
#[derive(Clone, Debug)]
pub struct Verifier {
    check: LedgerCheck,
    /// The hash that the next line has to name, and the number that it has to have; nothing where any will do.
    next: Option<(u64, Digest)>,
    /// Where the next line begins.
    place: LinePosition,
    end: Timestamp,
    /// The format of the present segment; 0 before its first line.
    format: u64,
    found: VerifiedLedger,
    wrong: Option<LedgerProblem>,
}

impl Verifier {
    /// Before the first segment.
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
            wrong: None,
        }
    }

    /// The next lines are those of this segment, by the name of its file.
    pub fn segment(&mut self, number: u64) {
        self.place = LinePosition { segment: number, line: 1, offset: 0 };
        self.format = 0;
        self.found.segments += 1;
    }

    /// Takes the next line: all bytes up to and with the next `\n`, or all to the segment's end. Of a line longer than [`LINE_BYTES_MAX`] the first
    /// `LINE_BYTES_MAX + 1` bytes are enough.
    ///
    /// # Errors
    /// The first thing that is wrong, again for each further line. Lines that follow one are still looked at, for [`Self::finish`] to
    /// say whether entries are missing or stand elsewhere.
    pub fn feed(&mut self, line: &[u8]) -> Result<Fed, LedgerProblem> {
        let place = self.place;
        self.place.line += 1;
        self.place.offset = self.place.offset.saturating_add(line.len() as u64);
        if let Some(wrong) = self.wrong {
            return Err(self.look_for_missing(wrong, line));
        }
        self.judge(place, line).map_err(|(place, what)| {
            let wrong = LedgerProblem { place, what };
            self.wrong = Some(wrong);
            wrong
        })
    }

    /// The last entry so far.
    pub fn head(&self) -> Option<LedgerHead> {
        self.found.head
    }

    /// The end of the last entry so far.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// The format of the last segment; 0 where there is no whole line in it.
    pub fn format(&self) -> u64 {
        self.format
    }

    /// What was found so far. It is not the last word, which is that of [`Self::finish`].
    pub fn found(&self) -> &VerifiedLedger {
        &self.found
    }

    /// After the last line of the last segment.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn finish(&self) -> Result<VerifiedLedger, LedgerProblem> {
        if let Some(wrong) = self.wrong {
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

    fn judge(&mut self, place: LinePosition, line: &[u8]) -> Result<Fed, (LinePosition, Damage)> {
        let here = |what| (place, what);
        if let Some(torn) = self.found.torn {
            return Err((torn.place, Damage::Cut));
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(here(Damage::TooLong));
        }
        let Some(content) = line.strip_suffix(b"\n") else {
            // A whole line with another byte in the place of its end was not cut off.
            if line.split_last().is_some_and(|(_, content)| unseal(content).is_ok()) {
                return Err(here(Damage::Changed(LedgerLineError::NoHash)));
            }
            let torn = Torn { place, bytes: line.len() as u64 };
            self.found.torn = Some(torn);
            return Ok(Fed::Torn(torn));
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
        Ok(Fed::Entry(Box::new(entry)))
    }

    /// Whether the line is the next link of the chain.
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

    /// Whether the entry may stand there.
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

    /// After entries were missing: do they come later?
    fn look_for_missing(&mut self, mut wrong: LedgerProblem, line: &[u8]) -> LedgerProblem {
        if let Damage::Missing { from, to } = wrong.what
            && let Some(content) = line.strip_suffix(b"\n")
            && content.len() < LINE_BYTES_MAX
            && unseal(content).is_ok_and(|line| line.entry.sequence == from)
        {
            wrong.what = Damage::Reordered { expected: from, found: to.saturating_add(1) };
            self.wrong = Some(wrong);
        }
        wrong
    }
}
