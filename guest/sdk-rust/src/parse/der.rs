//! Elements of ASN.1.

use super::{Cursor, ParseError};

/// The class of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DerClass {
    /// A type of ASN.1 itself.
    Universal = 0,
    /// A type of an application.
    Application = 1,
    /// A type that the context defines.
    Context = 2,
    /// A private type.
    Private = 3,
}

/// An element of DER, or of BER with definite lengths (X.690).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerElement<'a> {
    /// The tag's class.
    pub class: DerClass,
    /// True if the value is a list of elements.
    pub is_constructed: bool,
    /// The tag's number, below 2^28.
    pub tag: u32,
    /// The value.
    pub value: Cursor<'a>,
}

/// The most bytes of a tag's number and of a length.
const NUMBER_BYTES: usize = 4;

impl<'a> Cursor<'a> {
    /// Reads an element's tag, length and value. Returns `None` at the end. A length may be longer than DER allows, as
    /// SNMP agents send it.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`]; [`ParseError::Illegal`] for indefinite lengths, and for tags and lengths of more than four
    /// bytes.
    #[inline]
    pub fn der(&mut self) -> Result<Option<DerElement<'a>>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let first = self.u8()?;
        let class = match first >> 6 {
            0 => DerClass::Universal,
            1 => DerClass::Application,
            2 => DerClass::Context,
            _ => DerClass::Private,
        };
        let tag = match first & 31 {
            31 => self.der_tag()?,
            tag => tag.into(),
        };
        let len = self.der_len()?;
        Ok(Some(DerElement { class, is_constructed: first & 0x20 != 0, tag, value: self.part(len)? }))
    }

    #[inline]
    fn der_tag(&mut self) -> Result<u32, ParseError> {
        let mut tag = 0;
        for index in 0..NUMBER_BYTES {
            let byte = self.u8()?;
            // No number begins with zeros.
            if index == 0 && byte == 0x80 {
                return Err(ParseError::Illegal);
            }
            tag = tag << 7 | u32::from(byte & 127);
            if byte < 128 {
                return Ok(tag);
            }
        }
        Err(ParseError::Illegal)
    }

    #[inline]
    fn der_len(&mut self) -> Result<usize, ParseError> {
        let first = self.u8()?;
        if first < 128 {
            return Ok(first.into());
        }
        let bytes = usize::from(first & 127);
        if bytes == 0 || bytes > NUMBER_BYTES {
            return Err(ParseError::Illegal);
        }
        let mut len = 0u32;
        for index in 0..NUMBER_BYTES {
            if index < bytes {
                len = len << 8 | u32::from(self.u8()?);
            }
        }
        Ok(len as usize)
    }
}
