//! Edits of a TCP stream: bytes that others took the place of, and the sequence numbers that follow from that.
//!
//! All bytes of an edit but the last one vanish, and the last one becomes the new text. So a stream can be edited although
//! the command in it is split over segments: a part of it is withheld, and sent with the last byte. The sender gets
//! acknowledgements for withheld bytes, since its peer acknowledges everything before them. Segments that are sent again
//! are edited in the same way, also if they are split at other places.

use super::ftp_command::CommandReader;
use std::collections::VecDeque;

/// The most edits of a stream. For more of them, those that come first end: their segments are not sent again any more.
const EDITS_MAX: usize = 8;
/// The bytes behind an edit from which on it ends. Sequence numbers are compared over half of their range.
const EDIT_BYTES_MAX: u32 = 1 << 30;

/// Returns true if a sequence number is another one, or behind it.
#[inline]
fn is_from(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) < 1 << 31
}

/// An edit. Positions are the sequence numbers of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StreamEdit {
    /// The first byte.
    start: u32,
    /// The byte behind the last one.
    end: u32,
    /// The text that takes the place of the last byte; `None` while all bytes are withheld.
    text: Option<Vec<u8>>,
    /// The differences that positions before and behind the edit get.
    before: u32,
    after: u32,
}

/// The edits of one direction of a connection.
#[derive(Clone, Debug, Default)]
pub struct StreamEdits {
    edits: VecDeque<StreamEdit>,
    /// The difference of positions before all edits.
    base: u32,
    /// The reader of commands.
    pub reader: CommandReader,
}

impl StreamEdits {
    /// Returns true if all positions stay.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.base == 0
    }

    /// Returns the difference of positions behind all edits.
    pub fn difference(&self) -> i32 {
        self.edits.back().map_or(self.base, |edit| edit.after).cast_signed()
    }

    /// Replaces bytes by a text, or withholds them without one. An edit that withholds bytes goes on with the next one at
    /// the same start.
    pub fn replace(&mut self, start: u32, end: u32, text: Option<Vec<u8>>) {
        self.edits.pop_back_if(|last| last.text.is_none() && last.start == start);
        let before = self.edits.back().map_or(self.base, |edit| edit.after);
        let length = text.as_ref().map_or(0, |text| u32::try_from(text.len()).unwrap_or(u32::MAX));
        let after = before.wrapping_add(length).wrapping_sub(end.wrapping_sub(start));
        self.edits.push_back(StreamEdit { start, end, text, before, after });
        if self.edits.len() > EDITS_MAX {
            self.end_first();
        }
    }

    fn end_first(&mut self) {
        if let Some(edit) = self.edits.pop_front() {
            self.base = edit.after;
        }
    }

    /// Ends the edits that are far before a position.
    #[inline]
    pub fn end_before(&mut self, position: u32) {
        while self.edits.front().is_some_and(|edit| is_from(position, edit.end.wrapping_add(EDIT_BYTES_MAX)))
        {
            self.end_first();
        }
    }

    /// Returns the sequence number for the receiver.
    pub fn sequence(&self, number: u32) -> u32 {
        for edit in self.edits.iter().rev() {
            if is_from(number, edit.end) {
                return number.wrapping_add(edit.after);
            }
            if is_from(number, edit.start) {
                return edit.start.wrapping_add(edit.before);
            }
        }
        number.wrapping_add(self.base)
    }

    /// Returns the acknowledgement number for the sender.
    pub fn acknowledgement(&self, number: u32) -> u32 {
        for edit in self.edits.iter().rev() {
            if is_from(number, edit.end.wrapping_add(edit.after)) {
                return number.wrapping_sub(edit.after);
            }
            let start = edit.start.wrapping_add(edit.before);
            if number != start && is_from(number, start) {
                // A part of the text has arrived. The last byte stands for all of it.
                return edit.end.wrapping_sub(1);
            }
        }
        number.wrapping_sub(self.base)
    }

    /// Returns the bytes of a segment for the receiver; `None` if they stay.
    pub fn edited(&self, start: u32, data: &[u8]) -> Option<Vec<u8>> {
        let mut edited: Option<Vec<u8>> = None;
        let mut copied = 0;
        for edit in &self.edits {
            // The offsets of the edit from the start of the segment, which can be before it.
            let offset = |position: u32| i64::from(position.wrapping_sub(start).cast_signed());
            let (from, to) = (offset(edit.start), offset(edit.end));
            let bounded = |at: i64| usize::try_from(at.max(0)).unwrap_or(0).min(data.len());
            let (first, behind) = (bounded(from), bounded(to));
            if first >= behind || first < copied {
                continue;
            }
            let edited = edited.get_or_insert_default();
            edited.extend_from_slice(&data[copied..first]);
            if to == i64::try_from(behind).unwrap_or(i64::MAX) {
                edited.extend_from_slice(edit.text.as_deref().unwrap_or_default());
            }
            copied = behind;
        }
        let mut edited = edited?;
        edited.extend_from_slice(&data[copied..]);
        Some(edited)
    }

    /// Returns the start of the bytes that are withheld.
    pub fn withheld(&self) -> Option<u32> {
        self.edits.back().filter(|edit| edit.text.is_none()).map(|edit| edit.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_follow_from_edits() {
        let mut edits = StreamEdits::default();
        edits.replace(105, 110, Some(b"longer text".to_vec()));
        edits.replace(200, 210, Some(b"short".to_vec()));
        let sequences = [100, 105, 107, 109, 110, 150, 200, 205, 210, 1000];
        let expected = [100, 105, 105, 105, 116, 156, 206, 206, 211, 1001];
        assert_eq!(sequences.map(|number| edits.sequence(number)), expected);
        for (own, peer) in
            sequences.into_iter().zip(expected).filter(|(own, _)| ![107, 109, 205].contains(own))
        {
            assert_eq!(edits.acknowledgement(peer), own);
        }
        // Within a new text, its last byte is not acknowledged.
        assert_eq!([106, 115, 207, 210].map(|peer| edits.acknowledgement(peer)), [109, 109, 209, 209]);
    }

    #[test]
    fn withheld_bytes_are_acknowledged() {
        let mut edits = StreamEdits::default();
        edits.replace(105, 107, None);
        assert_eq!((edits.sequence(107), edits.acknowledgement(105)), (105, 107));
        edits.replace(105, 108, None);
        assert_eq!((edits.sequence(108), edits.acknowledgement(105)), (105, 108));
        edits.replace(105, 109, Some(b"whole".to_vec()));
        assert_eq!((edits.sequence(108), edits.sequence(109)), (105, 110));
        assert_eq!(edits.acknowledgement(110), 109);
        assert_eq!(edits.withheld(), None);
    }

    #[test]
    fn any_segments_give_the_same_stream() {
        let stream = b"PORT 10,0,0,2,3,9\r\nLIST\r\nPORT 1,2,3,4,5,6\r\n";
        let start = u32::MAX - 10;
        let mut edits = StreamEdits::default();
        edits.replace(start.wrapping_add(5), start.wrapping_add(18), Some(b"1,0,0,1,35,40\r".to_vec()));
        edits.replace(start.wrapping_add(30), start.wrapping_add(42), Some(b"1,1,1,1,1,1\r".to_vec()));
        let expected = b"PORT 1,0,0,1,35,40\r\nLIST\r\nPORT 1,1,1,1,1,1\r\n";
        for size in 1..stream.len() {
            let mut received = vec![0; expected.len()];
            for (index, data) in stream.chunks(size).enumerate() {
                let at = start.wrapping_add(u32::try_from(index * size).unwrap());
                let edited = edits.edited(at, data).unwrap_or_else(|| data.to_vec());
                let place = usize::try_from(edits.sequence(at).wrapping_sub(start)).unwrap();
                received[place..place + edited.len()].copy_from_slice(&edited);
            }
            assert_eq!(received, expected, "segments of {size}");
        }
    }

    #[test]
    fn edits_end_far_behind_and_when_there_are_many() {
        let mut edits = StreamEdits::default();
        for number in 0..100 {
            edits.replace(number * 10, number * 10 + 1, Some(b"ab".to_vec()));
        }
        assert_eq!((edits.edits.len(), edits.difference()), (EDITS_MAX, 100));
        assert_eq!(edits.sequence(5000), 5100);
        edits.end_before(1000 + EDIT_BYTES_MAX);
        assert!(edits.edits.is_empty() && !edits.is_empty());
        assert_eq!(edits.sequence(5000), 5100);
    }
}
