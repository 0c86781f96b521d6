//! A cursor over bytes.

/// The reason for which bytes cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// There are fewer bytes than the read needs.
    Cut,
    /// A value is not legal in this format.
    Illegal,
    /// There are more elements than the caller's limit.
    TooMany,
}

/// A position in bytes. Reads move it over what they return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the first byte.
    #[inline(always)]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that are left.
    #[inline(always)]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns true if no bytes are left.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Moves over `len` bytes, and returns them.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`], as for all reads of a fixed length.
    #[inline(always)]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], ParseError> {
        let (read, rest) = self.rest.split_at_checked(len).ok_or(ParseError::Cut)?;
        self.rest = rest;
        Ok(read)
    }

    /// Moves over `len` bytes, and returns a cursor over them.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn part(&mut self, len: usize) -> Result<Cursor<'a>, ParseError> {
        self.bytes(len).map(Cursor::new)
    }

    /// Moves over `len` bytes, or over all that are left, and returns a cursor over them: for messages of which a packet
    /// has the beginning.
    #[inline(always)]
    pub fn most(&mut self, len: usize) -> Cursor<'a> {
        let (read, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, &[]));
        self.rest = rest;
        Cursor::new(read)
    }

    /// Moves over `N` bytes, and returns a copy of them.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (read, rest) = self.rest.split_first_chunk::<N>().ok_or(ParseError::Cut)?;
        self.rest = rest;
        Ok(*read)
    }

    /// Reads a byte.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn u8(&mut self) -> Result<u8, ParseError> {
        self.array().map(u8::from_be_bytes)
    }

    /// Reads 16 bits in network order.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn be16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads 24 bits in network order.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn be24(&mut self) -> Result<u32, ParseError> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Reads 32 bits in network order.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn be32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 64 bits in network order.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn be64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads 16 bits, the lowest byte first.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn le16(&mut self) -> Result<u16, ParseError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Reads 32 bits, the lowest byte first.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn le32(&mut self) -> Result<u32, ParseError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads 64 bits, the lowest byte first.
    ///
    /// # Errors
    ///
    /// [`ParseError::Cut`].
    #[inline(always)]
    pub fn le64(&mut self) -> Result<u64, ParseError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a number of `N` bytes in network order, 1, 2 or 4.
    #[inline(always)]
    pub(super) fn number<const N: usize>(&mut self) -> Result<u32, ParseError> {
        const { assert!(N == 1 || N == 2 || N == 4, "a width is 1, 2 or 4 bytes") };
        let bytes: [u8; N] = self.array()?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}
