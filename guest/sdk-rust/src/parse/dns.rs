//! DNS messages.

use super::{Cursor, ParseError};

/// The most bytes of a name in a message.
const NAME_BYTES: usize = 255;

/// The most pointers that are followed in a name.
const JUMPS: u32 = 16;

/// The case of a name's ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameCase {
    /// As in the message.
    AsIs,
    /// In lower case.
    Lower,
}

/// A name as a text: labels with dots between them, none at the end; the root is empty. Bytes of labels are unchanged,
/// also dots and control characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DnsName {
    /// The length, the text, and zeros.
    pub(crate) bytes: [u8; 1 + NAME_BYTES],
}

impl DnsName {
    /// The name of the root.
    pub const ROOT: DnsName = DnsName { bytes: [0; 1 + NAME_BYTES] };

    /// Returns the text.
    #[inline]
    pub fn text(&self) -> &[u8] {
        let [len, text @ ..] = &self.bytes;
        text.get(..usize::from(*len)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for DnsName {
    fn as_ref(&self) -> &[u8] {
        self.text()
    }
}

impl core::fmt::Debug for DnsName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{}\"", self.text().escape_ascii())
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsHeader {
    /// The identifier.
    pub id: u16,
    /// The flags, with the codes in them.
    pub flags: u16,
    /// The number of questions, as the sender states it.
    pub questions: u16,
    /// The number of answers.
    pub answers: u16,
    /// The number of authority records.
    pub authorities: u16,
    /// The number of additional records.
    pub additionals: u16,
}

impl DnsHeader {
    /// Returns true for a response, and false for a query.
    pub const fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// Returns true if the message was truncated by its sender.
    pub const fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// Returns the response code.
    pub const fn response_code(&self) -> u8 {
        (self.flags & 15) as u8
    }
}

/// A question, or a resource record.
#[derive(Clone, Copy, Debug)]
pub struct DnsRecord<'a> {
    /// The name.
    pub name: DnsName,
    /// The type.
    pub ty: u16,
    /// The class.
    pub class: u16,
    /// The time to live in seconds; 0 for a question.
    pub ttl: u32,
    /// The data, empty for a question. Names in it are read with [`Cursor::dns_name`].
    pub data: Cursor<'a>,
}

impl<'a> Cursor<'a> {
    /// Reads a message's header.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline]
    pub fn dns_header(&mut self) -> Result<DnsHeader, ParseError> {
        Ok(DnsHeader {
            id: self.be16()?,
            flags: self.be16()?,
            questions: self.be16()?,
            answers: self.be16()?,
            authorities: self.be16()?,
            additionals: self.be16()?,
        })
    }

    /// Reads a question: name, type and class. `message` begins at the message's header, and the cursor is in it.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`], and the errors of [`dns_name`](Self::dns_name).
    #[inline]
    pub fn dns_question(&mut self, message: &'a [u8], case: NameCase) -> Result<DnsRecord<'a>, ParseError> {
        let name = self.dns_name(message, case)?;
        Ok(DnsRecord { name, ty: self.be16()?, class: self.be16()?, ttl: 0, data: Cursor::new(&[]) })
    }

    /// Reads a resource record, as [`dns_question`](Self::dns_question) reads a question.
    ///
    /// # Errors
    ///
    /// As for [`dns_question`](Self::dns_question).
    #[inline]
    pub fn dns_record(&mut self, message: &'a [u8], case: NameCase) -> Result<DnsRecord<'a>, ParseError> {
        let question = self.dns_question(message, case)?;
        let ttl = self.be32()?;
        let len = self.be16()?;
        Ok(DnsRecord { ttl, data: self.part(len.into())?, ..question })
    }

    /// Reads a name (RFC 1035, 4.1.4). `message` begins at the message's header, and the cursor is in it. Where a pointer
    /// leads, a name must end before all parts of this name so far; so there are no loops.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`]; [`ParseError::Illegal`] for other pointers, for more than 16 pointers, for names of more
    /// than 255 bytes, and for a cursor that is not in the message.
    #[inline]
    pub fn dns_name(&mut self, message: &'a [u8], case: NameCase) -> Result<DnsName, ParseError> {
        // A cursor has no position of its own. The address tells it, as the cursor's bytes are a part of the message's.
        let start = (self.rest().as_ptr() as usize)
            .checked_sub(message.as_ptr() as usize)
            .filter(|start| *start <= message.len())
            .ok_or(ParseError::Illegal)?;
        let mut name = DnsName::ROOT;
        let mut at = start;
        // The cursor may end before the message.
        let mut part = message.get(..start + self.rest().len()).ok_or(ParseError::Illegal)?;
        let mut lowest = start; // pointers must lead below, and the name there must end below
        let mut behind = None; // the place behind the name
        let mut label = 0u8; // bytes that are left of the current label
        let mut wire_bytes = 1; // of the name without pointers: each label with its length, and the end
        let mut len = 0;
        let mut jumps = 0;
        for _ in 0..NAME_BYTES + 2 * JUMPS as usize {
            let byte = *part.get(at).ok_or(ParseError::Cut)?;
            at += 1;
            if label != 0 {
                label -= 1;
                len += 1;
                let byte = if case == NameCase::Lower { byte.to_ascii_lowercase() } else { byte };
                *name.bytes.get_mut(len).ok_or(ParseError::Illegal)? = byte;
            } else if byte == 0 {
                name.bytes[0] = len as u8;
                self.bytes(behind.unwrap_or(at) - start)?;
                return Ok(name);
            } else if byte < 64 {
                label = byte;
                wire_bytes += 1 + usize::from(label);
                if wire_bytes > NAME_BYTES {
                    return Err(ParseError::Illegal);
                }
                if len != 0 {
                    len += 1;
                    *name.bytes.get_mut(len).ok_or(ParseError::Illegal)? = b'.';
                }
            } else {
                let low = *part.get(at).ok_or(ParseError::Cut)?;
                at += 1;
                behind = behind.or(Some(at));
                jumps += 1;
                let to = usize::from(byte & 63) << 8 | usize::from(low);
                if byte < 0xc0 || jumps > JUMPS || to >= lowest {
                    return Err(ParseError::Illegal);
                }
                part = message.get(..lowest).ok_or(ParseError::Illegal)?;
                (at, lowest) = (to, to);
            }
        }
        Err(ParseError::Illegal)
    }
}
