//! Options of a header.

use crate::AnepError;

/// The bit of an option's first two bytes that makes its type private to the packet's type.
const PRIVATE: u16 = 1 << 15;
/// The bit of an option's first two bytes that makes a node discard the packet if it does not know the option.
const DISCARD: u16 = 1 << 14;
/// The length of the part of an option before its value.
pub(crate) const OPTION_HEAD_BYTES: usize = 4;
/// The length of a word, in which lengths of headers and options are stated.
pub(crate) const WORD_BYTES: usize = 4;

/// An option that weir handles. docs/WIRE.md lists the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// The identifier of the source.
    Source,
    /// The identifier of the destination.
    Destination,
    /// The checksum of the packet.
    Checksum,
    /// The authentication header: index, counter and authenticator.
    Authentication,
    /// The same, for a packet whose payload is encrypted.
    Encryption,
    /// The place of a fragment in its packet.
    Fragment,
}

impl OptionKind {
    const ALL: [Self; 6] = [
        Self::Source,
        Self::Destination,
        Self::Checksum,
        Self::Authentication,
        Self::Encryption,
        Self::Fragment,
    ];

    /// Returns the number of the option.
    pub fn number(self) -> u16 {
        match self {
            Self::Source => 1,
            Self::Destination => 2,
            Self::Checksum => 3,
            Self::Authentication => 16,
            Self::Encryption => 17,
            Self::Fragment => 18,
        }
    }

    /// Returns the option with this number; `None` for one that weir does not handle.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnepOption<'a> {
    /// True if the number is private to the packet's type.
    pub is_private: bool,
    /// True if a node that does not know the option discards the packet.
    pub discards: bool,
    /// The number of the option: 14 bits.
    pub number: u16,
    /// The value: a multiple of four bytes.
    pub value: &'a [u8],
}

impl<'a> AnepOption<'a> {
    /// Returns an option that weir handles. A node that does not know it discards the packet.
    pub fn known(kind: OptionKind, value: &'a [u8]) -> Self {
        Self { is_private: false, discards: true, number: kind.number(), value }
    }

    /// Returns the option's kind, if weir handles it.
    pub fn kind(&self) -> Option<OptionKind> {
        OptionKind::from_number(self.number).filter(|_| !self.is_private)
    }

    /// Splits the first option off. `at` is its offset in the packet, for the error.
    pub(crate) fn split(bytes: &'a [u8], at: usize) -> Result<(Self, &'a [u8]), AnepError> {
        let wrong = AnepError::Option(at);
        let ([a, b, c, d], rest) = bytes.split_first_chunk().ok_or(wrong)?;
        let kind = u16::from_be_bytes([*a, *b]);
        let bytes = usize::from(u16::from_be_bytes([*c, *d])) * WORD_BYTES;
        let value = bytes.checked_sub(OPTION_HEAD_BYTES).ok_or(wrong)?;
        let (value, rest) = rest.split_at_checked(value).ok_or(wrong)?;
        let option = Self {
            is_private: kind & PRIVATE != 0,
            discards: kind & DISCARD != 0,
            number: kind & !(PRIVATE | DISCARD),
            value,
        };
        Ok((option, rest))
    }

    /// Appends the option's bytes. The value is padded with zeros to a multiple of four bytes.
    pub(crate) fn write(&self, into: &mut Vec<u8>) -> Result<(), AnepError> {
        let words = 1 + self.value.len().div_ceil(WORD_BYTES);
        let words_as_u16 = u16::try_from(words).map_err(|_| AnepError::TooLong(self.value.len()))?;
        if self.number & (PRIVATE | DISCARD) != 0 {
            return Err(AnepError::Value(self.number));
        }
        let flags = if self.is_private { PRIVATE } else { 0 } | if self.discards { DISCARD } else { 0 };
        into.extend((flags | self.number).to_be_bytes());
        into.extend(words_as_u16.to_be_bytes());
        let end = into.len() + (words - 1) * WORD_BYTES;
        into.extend(self.value);
        into.resize(end, 0);
        Ok(())
    }
}
