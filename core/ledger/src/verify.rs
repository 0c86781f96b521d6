//! Verification of a ledger: finds the first damage, or shows that there is none.

use super::chain::{LINE_BYTES_MAX, LedgerLine, LedgerLineError, parse_line};
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

/// The options of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyOptions {
    /// The required beginning.
    pub start: ChainStart,
    /// A head that was kept elsewhere: the ledger has to contain this line. With `None`, missing lines at the end of the
    /// ledger are not detected.
    pub kept_head: Option<LedgerHead>,
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

/// The finding of a verification: the first damage in a ledger, with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {damage}")]
pub struct LedgerProblem {
    /// The position of the damaged line.
    pub position: LinePosition,
    /// The damage.
    pub damage: Damage,
}

/// A kind of damage to a ledger, with its details and without its position. A [`LedgerProblem`] adds the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The line differs from what weir wrote.
    #[error("the line was changed: {0}")]
    Changed(LedgerLineError),
    /// The line is longer than every line that weir writes.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes: weir did not write it")]
    TooLong,
    /// The line has no line feed and is not the last one. (A crash leaves such a line at the end of a ledger.)
    #[error("the line is cut off in the middle, and more lines follow")]
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
    #[error("entry {found} stands in the place of entry {expected}, which comes later")]
    Reordered {
        /// The sequence number that the entry should have.
        expected: u64,
        /// The sequence number that the entry has.
        found: u64,
    },
    /// Two entries have the same sequence number.
    #[error("there are two entries {sequence}: one of them was inserted or moved")]
    Duplicate {
        /// The sequence number.
        sequence: u64,
    },
    /// The line and the line before it have right hashes, but the line does not contain the hash of the line before it.
    #[error(
        "the line does not contain the hash of the line before it: one of the two lines was replaced, and its hash computed anew"
    )]
    Unlinked,
    /// An entry ends earlier than the entry before it, and no [`LedgerEvent::ClockSet`] stands between them.
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
    /// The entry is of a kind that the segment's format does not have.
    #[error("the segment is written in format {0}, in which this entry cannot occur")]
    NotInFormat(u64),
    /// The entry differs from the head that was kept elsewhere.
    #[error("entry {} differs from the head that was kept elsewhere, whose hash is {}", .kept.sequence, .kept.hash)]
    OtherHead {
        /// The head that was kept.
        kept: LedgerHead,
    },
    /// The ledger ends before the entry that was kept elsewhere.
    #[error("the ledger ends with entry {last}, but had an entry {}: its end was cut off", .kept.sequence)]
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
    pub position: LinePosition,
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
    options: VerifyOptions,
    /// The sequence number and the previous hash that the next line has to have; `None` if any line may follow.
    next: Option<(u64, Digest)>,
    /// The position of the next line.
    position: LinePosition,
    /// The end of the last entry.
    end: Timestamp,
    /// The format of the present segment; 0 before its first line.
    format: u64,
    summary: VerifiedLedger,
    /// The first damage.
    first_damage: Option<LedgerProblem>,
}

impl Verifier {
    /// Makes a verifier that has read nothing.
    pub fn new(options: VerifyOptions) -> Self {
        let next = match options.start {
            ChainStart::Beginning => Some((1, Digest::NONE)),
            ChainStart::After(head) => Some((head.sequence.saturating_add(1), head.hash)),
            ChainStart::Anywhere => None,
        };
        Self {
            options,
            next,
            position: LinePosition { segment: 0, line: 1, offset: 0 },
            end: Timestamp(0),
            format: 0,
            summary: VerifiedLedger {
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
    pub fn begin_segment(&mut self, number: u64) {
        self.position = LinePosition { segment: number, line: 1, offset: 0 };
        self.format = 0;
        self.summary.segments += 1;
    }

    /// Verifies the next line: all bytes up to and including the next `\n`, or up to the segment's end. Of a line longer
    /// than [`LINE_BYTES_MAX`], its first `LINE_BYTES_MAX + 1` bytes are enough.
    ///
    /// # Errors
    /// Fails with the first damage, and again for each line after it. The lines after the damage show whether entries
    /// are missing or only in another order.
    pub fn feed(&mut self, line: &[u8]) -> Result<LineResult, LedgerProblem> {
        let position = self.position;
        self.position.line += 1;
        self.position.offset = self.position.offset.saturating_add(line.len() as u64);
        if let Some(problem) = self.first_damage {
            return Err(self.correct_missing(problem, line));
        }
        self.check_line(position, line).map_err(|(position, damage)| {
            let problem = LedgerProblem { position, damage };
            self.first_damage = Some(problem);
            problem
        })
    }

    /// Returns the last entry so far.
    pub fn head(&self) -> Option<LedgerHead> {
        self.summary.head
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
    pub fn summary(&self) -> &VerifiedLedger {
        &self.summary
    }

    /// Ends the verification after the last line of the last segment.
    ///
    /// # Errors
    /// The first damage.
    pub fn finish(&self) -> Result<VerifiedLedger, LedgerProblem> {
        if let Some(problem) = self.first_damage {
            return Err(problem);
        }
        if let Some(kept) = self.options.kept_head {
            let last = match (self.summary.head, self.options.start) {
                (Some(head), _) | (None, ChainStart::After(head)) => head.sequence,
                (None, _) => 0,
            };
            if last < kept.sequence {
                return Err(LedgerProblem {
                    position: self.position,
                    damage: Damage::Truncated { last, kept },
                });
            }
        }
        Ok(self.summary)
    }

    /// Checks the line at `position`. Fails with the position of the damage, which can be an earlier line.
    fn check_line(
        &mut self,
        position: LinePosition,
        line: &[u8],
    ) -> Result<LineResult, (LinePosition, Damage)> {
        let at_line = |damage| (position, damage);
        if let Some(torn) = self.summary.torn {
            return Err((torn.position, Damage::Cut));
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(at_line(Damage::TooLong));
        }
        let Some(content) = line.strip_suffix(b"\n") else {
            // A whole line that has another byte in place of its line feed was changed, not cut off.
            if line.split_last().is_some_and(|(_, content)| parse_line(content).is_ok()) {
                return Err(at_line(Damage::Changed(LedgerLineError::NoHash)));
            }
            let torn = Torn { position, bytes: line.len() as u64 };
            self.summary.torn = Some(torn);
            return Ok(LineResult::Torn(torn));
        };
        let line = parse_line(content).map_err(|error| at_line(Damage::Changed(error)))?;
        self.check_chain(&line).and_then(|()| self.check_position(position, &line)).map_err(at_line)?;
        let (LedgerLine { entry, hash, .. }, summary) = (line, &mut self.summary);
        self.next = Some((entry.sequence.saturating_add(1), hash));
        self.end = entry.end;
        if let LedgerEvent::Segment { format, .. } = entry.event {
            self.format = format;
        }
        if summary.entries == 0 {
            summary.first = entry.sequence;
        }
        summary.entries += 1;
        summary.head = Some(LedgerHead { sequence: entry.sequence, hash });
        summary.recoveries += u64::from(matches!(entry.event, LedgerEvent::Recovered { .. }));
        summary.stopped = entry.event == LedgerEvent::NodeStop;
        Ok(LineResult::Entry(Box::new(entry)))
    }

    /// Checks that the line is the next line of the hash chain.
    fn check_chain(&self, line: &LedgerLine) -> Result<(), Damage> {
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
        match self.options.kept_head {
            Some(kept) if kept.sequence == found && kept.hash != line.hash => Err(Damage::OtherHead { kept }),
            _ => Ok(()),
        }
    }

    /// Checks that the entry is allowed at this position.
    fn check_position(&self, position: LinePosition, line: &LedgerLine) -> Result<(), Damage> {
        match line.entry.event {
            LedgerEvent::Segment { format, .. } if !(1..=FORMAT).contains(&format) => {
                return Err(Damage::Format(format));
            }
            LedgerEvent::Segment { .. } if position.line > 1 => return Err(Damage::SegmentInside),
            LedgerEvent::Segment { segment, .. } if segment == position.segment => {}
            _ if position.line == 1 => return Err(Damage::Segment { expected: position.segment }),
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

    /// Returns the problem, corrected if `line` is the first missing entry: then entries are only in another order.
    fn correct_missing(&mut self, mut problem: LedgerProblem, line: &[u8]) -> LedgerProblem {
        if let Damage::Missing { from, to } = problem.damage
            && let Some(content) = line.strip_suffix(b"\n")
            && content.len() < LINE_BYTES_MAX
            && parse_line(content).is_ok_and(|line| line.entry.sequence == from)
        {
            problem.damage = Damage::Reordered { expected: from, found: to.saturating_add(1) };
            self.first_damage = Some(problem);
        }
        problem
    }
}
