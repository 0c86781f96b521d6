//! Lists of types, lengths and values.

use super::{Cursor, ParseError};

/// An element of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    /// The type.
    pub ty: u32,
    /// The value.
    pub value: Cursor<'a>,
}

impl<'a> Cursor<'a> {
    /// Reads a type of `TYPE` bytes and a length of `LEN` bytes in network order, 1, 2 or 4 each, and the value of that
    /// length. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn tlv<const TYPE: usize, const LEN: usize>(&mut self) -> Result<Option<Tlv<'a>>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let ty = self.number::<TYPE>()?;
        let len = self.number::<LEN>()?;
        Ok(Some(Tlv { ty, value: self.part(len as usize)? }))
    }

    /// Returns an iterator over the elements of a list, at most `MAX`. It ends behind the first error:
    /// [`ParseError::Cut`], or [`ParseError::TooMany`] if there are more elements.
    #[inline]
    pub const fn tlvs<const MAX: u32, const TYPE: usize, const LEN: usize>(self) -> Tlvs<'a, MAX, TYPE, LEN> {
        Tlvs { cursor: self, begun: 0 }
    }

    /// Reads an option of TCP or IPv4: types 0, the end, and 1, padding, are a byte alone; the length of others counts
    /// type and length. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`]; [`ParseError::Illegal`] for a length below 2.
    #[inline(always)]
    pub fn option(&mut self) -> Result<Option<Tlv<'a>>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let ty = self.u8()?;
        if ty == 0 {
            return Ok(None);
        }
        let len = if ty == 1 { 2 } else { usize::from(self.u8()?) };
        let value = self.part(len.checked_sub(2).ok_or(ParseError::Illegal)?)?;
        Ok(Some(Tlv { ty: ty.into(), value }))
    }

    /// Returns an iterator over the options of a TCP or IPv4 header, which has at most 40 bytes of them. It ends behind
    /// the first error.
    #[inline]
    pub const fn options(self) -> Options<'a> {
        Options { cursor: self, begun: 0 }
    }
}

/// The iterator of [`Cursor::tlvs`].
#[derive(Clone, Debug)]
pub struct Tlvs<'a, const MAX: u32, const TYPE: usize, const LEN: usize> {
    cursor: Cursor<'a>,
    begun: u32,
}

impl<'a, const MAX: u32, const TYPE: usize, const LEN: usize> Iterator for Tlvs<'a, MAX, TYPE, LEN> {
    type Item = Result<Tlv<'a>, ParseError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        next(&mut self.cursor, &mut self.begun, MAX, Cursor::tlv::<TYPE, LEN>)
    }
}

/// The most bytes of options in a header.
const OPTIONS_MAX: u32 = 40;

/// The iterator of [`Cursor::options`].
#[derive(Clone, Debug)]
pub struct Options<'a> {
    cursor: Cursor<'a>,
    begun: u32,
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<Tlv<'a>, ParseError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        next(&mut self.cursor, &mut self.begun, OPTIONS_MAX, Cursor::option)
    }
}

#[inline(always)]
pub(super) fn next<'a>(
    cursor: &mut Cursor<'a>,
    begun: &mut u32,
    max: u32,
    read: fn(&mut Cursor<'a>) -> Result<Option<Tlv<'a>>, ParseError>,
) -> Option<Result<Tlv<'a>, ParseError>> {
    // One more step than there are elements is that of the error.
    if *begun > max {
        return None;
    }
    let is_past = *begun == max;
    // A fence for the compiler, as in `bounded`, so that the count stays a variable that grows by 1.
    core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    *begun += 1;
    // A copy, so that the iterator's count is not in memory if the read is a call.
    let mut rest = *cursor;
    let item = if is_past && !rest.is_empty() { Err(ParseError::TooMany) } else { read(&mut rest) };
    *cursor = if item.is_err() { Cursor::new(&[]) } else { rest };
    item.transpose()
}
