//! Variable-length integers.

use super::{Cursor, ParseError};

impl Cursor<'_> {
    /// Reads a varint of protobuf, which is LEB128: seven bits in each byte, the lowest first.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`]; [`ParseError::Illegal`] for more than 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, ParseError> {
        let mut number = 0;
        for index in 0..10 {
            let byte = self.u8()?;
            if index == 9 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 127) << (7 * index);
            if byte < 128 {
                return Ok(number);
            }
        }
        Err(ParseError::Illegal)
    }

    /// Reads a signed number in LEB128, as in DWARF and WebAssembly.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`]; [`ParseError::Illegal`] for more than 64 bits.
    #[inline]
    pub fn signed_varint(&mut self) -> Result<i64, ParseError> {
        let mut number = 0;
        for index in 0..10 {
            let byte = self.u8()?;
            if index == 9 && byte != 0 && byte != 127 {
                break;
            }
            number |= i64::from(byte & 127) << (7 * index);
            if byte < 128 {
                let is_negative = byte & 64 != 0 && index < 9;
                return Ok(if is_negative { number | -1 << (7 * index + 7) } else { number });
            }
        }
        Err(ParseError::Illegal)
    }

    /// Reads a variable-length integer of QUIC (RFC 9000, 16): the first two bits say how many bytes there are, 1, 2, 4
    /// or 8.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline]
    pub fn quic_varint(&mut self) -> Result<u64, ParseError> {
        match self.rest().first().ok_or(ParseError::Cut)? >> 6 {
            0 => self.u8().map(u64::from),
            1 => self.be16().map(|number| u64::from(number & 0x3fff)),
            2 => self.be32().map(|number| u64::from(number & 0x3fff_ffff)),
            _ => self.be64().map(|number| number & 0x3fff_ffff_ffff_ffff),
        }
    }
}

/// Converts a number of protobuf's types sint32 and sint64.
#[inline(always)]
pub const fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
