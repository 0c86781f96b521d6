//! Reading PORT commands of FTP (RFC 959, section 4.1.2) in a TCP stream.

use super::stream_edits::StreamEdits;
use core::net::Ipv4Addr;
use std::fmt::Write as _;

/// The command, and the most bytes of its argument: six numbers with commas.
const COMMAND: &[u8; 4] = b"PORT";
const ARGUMENT_BYTES_MAX: usize = 40;

/// The place in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LineState {
    /// The beginning, of which this number of bytes are those of the command.
    Begin(usize),
    /// The spaces behind the command.
    Spaces,
    /// The argument, from a sequence number on.
    Argument(u32, Vec<u8>),
    /// A line with something else.
    Other,
}

/// The place up to which a stream was read.
#[derive(Clone, Debug)]
pub struct CommandReader {
    /// The sequence number of the next byte.
    next: Option<u32>,
    line: LineState,
}

impl Default for CommandReader {
    fn default() -> Self {
        Self { next: None, line: LineState::Begin(0) }
    }
}

/// A segment that cannot be edited before an earlier one has come. Its sender sends it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooEarly;

/// Returns the address and the port of an argument.
fn address_of(argument: &[u8]) -> Option<(Ipv4Addr, u16)> {
    let mut numbers = [0_u8; 6];
    let mut parts = argument.split(|byte| *byte == b',');
    for number in &mut numbers {
        let digits = parts.next()?;
        // An empty number is 0, as in Click.
        let value = digits.iter().try_fold(0_u16, |value, digit| {
            value.checked_mul(10)?.checked_add(u16::from(digit.wrapping_sub(b'0')))
        });
        *number = u8::try_from(value?).ok()?;
    }
    let [a, b, c, d, high, low] = numbers;
    parts.next().is_none().then_some((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])))
}

fn argument_of(address: Ipv4Addr, port: u16) -> Vec<u8> {
    let mut text = String::new();
    for byte in address.octets().into_iter().chain(port.to_be_bytes()) {
        let comma = if text.is_empty() { "" } else { "," };
        _ = write!(text, "{comma}{byte}");
    }
    text.into_bytes()
}

impl StreamEdits {
    /// Reads a segment of the stream, and edits the commands in it. `map` returns the address and the port that take the
    /// place of those of a command; `None` for a command that stays.
    ///
    /// # Errors
    ///
    /// [`TooEarly`] for a segment behind a gap, if a part of a command before the gap is withheld.
    pub fn read_segment(
        &mut self,
        start: u32,
        data: &[u8],
        is_last: bool,
        mut map: impl FnMut(Ipv4Addr, u16) -> Option<(Ipv4Addr, u16)>,
    ) -> Result<(), TooEarly> {
        let known = self.reader.next.map_or(0, |next| next.wrapping_sub(start).cast_signed());
        if known < 0 {
            if self.withheld().is_some() {
                return Err(TooEarly);
            }
            // As in Click, a command can begin with any segment.
            self.reader.line = LineState::Begin(0);
        }
        let skipped = usize::try_from(known.max(0)).unwrap_or(0);
        let mut line = std::mem::replace(&mut self.reader.line, LineState::Other);
        let mut position = start.wrapping_add(u32::try_from(skipped).unwrap_or(0));
        for byte in data.iter().copied().skip(skipped) {
            line = self.read_byte(line, start, position, byte, &mut map);
            position = position.wrapping_add(1);
        }
        if skipped <= data.len() {
            if let LineState::Argument(from, argument) = &line {
                let is_new = position != *from && !data.is_empty();
                if is_last && is_new {
                    // Nothing follows that could complete the command.
                    let text = argument.clone();
                    self.release(*from, start, position, text);
                    line = LineState::Other;
                } else if is_new {
                    self.replace(*from, position, None);
                }
            }
            self.reader.next = Some(position);
        }
        self.reader.line = line;
        Ok(())
    }

    /// Sets the position of the next byte, at the start of a stream.
    pub fn begin(&mut self, next: u32) {
        self.reader = CommandReader { next: Some(next), ..CommandReader::default() };
    }

    fn read_byte(
        &mut self,
        line: LineState,
        segment: u32,
        position: u32,
        byte: u8,
        map: &mut impl FnMut(Ipv4Addr, u16) -> Option<(Ipv4Addr, u16)>,
    ) -> LineState {
        let other = if byte == b'\n' { LineState::Begin(0) } else { LineState::Other };
        match line {
            LineState::Begin(count) => match COMMAND.get(count) {
                Some(expected) if byte.eq_ignore_ascii_case(expected) => LineState::Begin(count + 1),
                None if byte == b' ' => LineState::Spaces,
                _ => other,
            },
            LineState::Spaces if byte == b' ' => LineState::Spaces,
            LineState::Spaces if byte.is_ascii_digit() || byte == b',' => {
                LineState::Argument(position, vec![byte])
            }
            LineState::Argument(from, mut argument) => {
                let is_long = argument.len() >= ARGUMENT_BYTES_MAX;
                if (byte.is_ascii_digit() || byte == b',') && !is_long {
                    argument.push(byte);
                    return LineState::Argument(from, argument);
                }
                let is_end = byte == b'\r' || byte == b'\n';
                let mapped = address_of(&argument).filter(|_| is_end).and_then(|(a, port)| map(a, port));
                let behind = position.wrapping_add(1);
                match mapped {
                    Some((address, port)) => {
                        let mut text = argument_of(address, port);
                        text.push(byte);
                        self.replace(from, behind, Some(text));
                    }
                    None => {
                        argument.push(byte);
                        self.release(from, segment, behind, argument);
                    }
                }
                other
            }
            LineState::Spaces | LineState::Other => other,
        }
    }

    /// Has an argument stay as it is. Bytes of earlier segments were withheld, so they come with the last one.
    fn release(&mut self, from: u32, segment: u32, behind: u32, text: Vec<u8>) {
        if self.withheld() == Some(from) || from.wrapping_sub(segment).cast_signed() < 0 {
            self.replace(from, behind, Some(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(address: Ipv4Addr, port: u16) -> Option<(Ipv4Addr, u16)> {
        (address == Ipv4Addr::new(10, 0, 0, 2)).then_some((Ipv4Addr::new(192, 0, 2, 111), port + 1))
    }

    /// Sends a stream in segments of a length, and returns what the receiver gets.
    fn received(stream: &[u8], size: usize) -> Vec<u8> {
        let start = u32::MAX - 20;
        let mut edits = StreamEdits::default();
        let mut received = Vec::new();
        for (index, data) in stream.chunks(size).enumerate() {
            let at = start.wrapping_add(u32::try_from(index * size).unwrap());
            let is_last = (index + 1) * size >= stream.len();
            edits.read_segment(at, data, is_last, fixed).unwrap();
            let edited = edits.edited(at, data).unwrap_or_else(|| data.to_vec());
            assert_eq!(edits.sequence(at).wrapping_sub(start) as usize, received.len(), "nothing is missing");
            received.extend(edited);
            let acknowledged = start.wrapping_add(u32::try_from(received.len()).unwrap());
            let behind = at.wrapping_add(u32::try_from(data.len()).unwrap());
            assert_eq!(edits.acknowledgement(acknowledged), behind, "everything is acknowledged");
        }
        received
    }

    #[test]
    fn commands_are_edited_in_any_segments() {
        let stream = b"USER a\r\nPORT 10,0,0,2,3,9\r\nport  10,0,0,2,4,255\nPORT 10,0,0,3,1,1\r\nPORT 1,,x\r\nPORT 10,0,0,2,256,1\r\nPORT 10,0,0,2,1,1,1\r\nPORTS 10,0,0,2,1,1\r\nXPORT 10,0,0,2,1,1\r\nPORT 10";
        let expected = b"USER a\r\nPORT 192,0,2,111,3,10\r\nport  192,0,2,111,5,0\nPORT 10,0,0,3,1,1\r\nPORT 1,,x\r\nPORT 10,0,0,2,256,1\r\nPORT 10,0,0,2,1,1,1\r\nPORTS 10,0,0,2,1,1\r\nXPORT 10,0,0,2,1,1\r\nPORT 10";
        for size in 1..=stream.len() {
            let found = received(stream, size);
            assert_eq!(
                String::from_utf8_lossy(&found),
                String::from_utf8_lossy(expected),
                "segments of {size}"
            );
        }
    }

    #[test]
    fn a_segment_behind_a_gap_waits_for_a_withheld_command_only() {
        let mut edits = StreamEdits::default();
        edits.read_segment(0, b"LIST\r\n", false, fixed).unwrap();
        edits.read_segment(100, b"PORT 10,0", false, fixed).unwrap();
        assert_eq!(edits.read_segment(120, b"LIST\r\n", false, fixed), Err(TooEarly));
        edits.read_segment(109, b",0,2,3,9\r\nx", false, fixed).unwrap();
        edits.read_segment(120, b"LIST\r\n", false, fixed).unwrap();
        assert_eq!(edits.edited(109, b",0,2,3,9\r\nx"), Some(b"192,0,2,111,3,10\r\nx".to_vec()));
    }

    #[test]
    fn an_endless_argument_is_not_withheld_for_long() {
        let stream = [b"PORT ".as_slice(), &[b'1'; 500], b"\r\n"].concat();
        for size in [1, 7, 100] {
            assert_eq!(received(&stream, size), stream);
        }
    }
}
