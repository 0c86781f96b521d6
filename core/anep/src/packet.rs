//! Packets: header, options and payload.

use crate::AnepError;
use crate::option::{AnepOption, OptionKind, WORD_BYTES};

/// The length of a header without options.
pub const HEADER_BYTES: usize = 8;
const VERSION: u8 = 1;
/// The flag by which a node discards a packet whose type it does not know.
const DISCARD: u8 = 1 << 7;

/// The fields of a header that a sender chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnepHeader {
    /// The flags. The highest bit makes a node that does not know the type discard the packet; otherwise it forwards the
    /// packet.
    pub flags: u8,
    /// The type identifier.
    pub type_id: u16,
}

impl AnepHeader {
    /// Returns true if a node that does not know the type discards the packet.
    pub fn discards(self) -> bool {
        self.flags & DISCARD != 0
    }

    /// Returns the bytes of a packet with these options and this payload.
    ///
    /// # Errors
    /// Fails if the packet would be too long, or an option has a number of more than 14 bits.
    pub fn write(self, options: &[AnepOption<'_>], payload: &[u8]) -> Result<Vec<u8>, AnepError> {
        let mut packet = vec![VERSION, self.flags, 0, 0, 0, 0, 0, 0];
        for option in options {
            option.write(&mut packet)?;
        }
        let header = packet.len();
        packet.extend(payload);
        let too_long = AnepError::TooLong(packet.len());
        let words = u16::try_from(header / WORD_BYTES).map_err(|_| too_long)?;
        let bytes = u16::try_from(packet.len()).map_err(|_| too_long)?;
        for (at, value) in [(2, self.type_id), (4, words), (6, bytes)] {
            if let Some(field) = packet.get_mut(at..at + 2) {
                field.copy_from_slice(&value.to_be_bytes());
            }
        }
        Ok(packet)
    }
}

/// A packet that was read. Its lengths are right, and its options are within its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnepPacket<'a> {
    header: AnepHeader,
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> AnepPacket<'a> {
    /// Reads a packet, which is the whole content of a datagram.
    ///
    /// # Errors
    /// Fails for other bytes than a packet of version 1.
    pub fn read(bytes: &'a [u8]) -> Result<Self, AnepError> {
        let short = AnepError::Short(bytes.len());
        let ([version, flags, t, u, h, i, l, m], rest) = bytes.split_first_chunk().ok_or(short)?;
        if *version != VERSION {
            return Err(AnepError::Version(*version));
        }
        let stated = u16::from_be_bytes([*l, *m]);
        if usize::from(stated) != bytes.len() {
            return Err(AnepError::Length { stated, found: bytes.len() });
        }
        let words = u16::from_be_bytes([*h, *i]);
        let wrong = AnepError::HeaderLength(words);
        let options = (usize::from(words) * WORD_BYTES).checked_sub(HEADER_BYTES).ok_or(wrong)?;
        let (options, payload) = rest.split_at_checked(options).ok_or(wrong)?;
        let header = AnepHeader { flags: *flags, type_id: u16::from_be_bytes([*t, *u]) };
        let packet = Self { header, options, payload };
        packet.check_options()?;
        Ok(packet)
    }

    /// Returns the header.
    pub fn header(&self) -> AnepHeader {
        self.header
    }

    /// Returns the payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the options in their order.
    pub fn options(&self) -> impl Iterator<Item = AnepOption<'a>> + use<'a> {
        let mut rest = self.options;
        std::iter::from_fn(move || {
            let (option, after) = AnepOption::split(rest, 0).ok()?;
            rest = after;
            Some(option)
        })
    }

    /// Returns the value of an option that weir handles.
    pub fn value(&self, kind: OptionKind) -> Option<&'a [u8]> {
        self.options().find(|option| option.kind() == Some(kind)).map(|option| option.value)
    }

    /// Returns the offset of the value of an option in the packet.
    pub(crate) fn offset(&self, kind: OptionKind) -> Option<usize> {
        let mut end = HEADER_BYTES;
        for option in self.options() {
            let value = end + crate::option::OPTION_HEAD_BYTES;
            if option.kind() == Some(kind) {
                return Some(value);
            }
            end = value + option.value.len();
        }
        None
    }

    /// Checks that all options are within the header, and that those that weir handles have their lengths and occur once.
    fn check_options(&self) -> Result<(), AnepError> {
        let (mut rest, mut at) = (self.options, HEADER_BYTES);
        let mut seen = 0_u32;
        while !rest.is_empty() {
            let (option, after) = AnepOption::split(rest, at)?;
            at += rest.len() - after.len();
            rest = after;
            let Some(kind) = option.kind() else { continue };
            let bit = 1_u32.checked_shl(u32::from(kind.number())).unwrap_or_default();
            if seen & bit != 0 || !has_its_length(kind, option.value.len()) {
                return Err(AnepError::Value(option.number));
            }
            seen |= bit;
        }
        Ok(())
    }
}

/// Returns true if the value of an option can have this length.
fn has_its_length(kind: OptionKind, bytes: usize) -> bool {
    match kind {
        // A scheme, and an address of that scheme.
        OptionKind::Source | OptionKind::Destination => bytes >= 2 * WORD_BYTES,
        OptionKind::Checksum => bytes == WORD_BYTES,
        OptionKind::Authentication | OptionKind::Encryption => bytes == crate::seal::VALUE_BYTES,
        OptionKind::Fragment => bytes == crate::fragments::VALUE_BYTES,
    }
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnepHandling {
    /// The node knows the type, and processes the packet.
    Process,
    /// The node does not know the type, and forwards the packet unchanged.
    Forward,
    /// The node discards the packet: it does not know its type or one of its options.
    Discard,
}

/// Decides about a packet on a node that knows its type or not. `knows` tells which private options of the type it
/// knows.
pub fn handling(packet: &AnepPacket<'_>, knows_type: bool, knows: impl Fn(u16) -> bool) -> AnepHandling {
    let is_unknown = |option: &AnepOption<'_>| {
        if option.is_private { !(knows_type && knows(option.number)) } else { option.kind().is_none() }
    };
    if packet.options().any(|option| option.discards && is_unknown(&option)) {
        AnepHandling::Discard
    } else if knows_type {
        AnepHandling::Process
    } else if packet.header().discards() {
        AnepHandling::Discard
    } else {
        AnepHandling::Forward
    }
}
