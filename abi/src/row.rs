//! The layout of a record in a module's memory, called a row: a C struct of the stream's fields in their declared order.
//! Each field is naturally aligned, and the size is rounded up to the largest alignment. A `string` or `bytes` field is a
//! (guest address, length) pair of u32; the host copies the bytes at that address.

/// The type of a field of a record stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Float, 32 bits.
    F32,
    /// Float, 64 bits.
    F64,
    /// One byte, 0 or 1.
    Bool,
    /// u64, ns since 1970 UTC.
    Timestamp,
    /// i64, ns.
    Duration,
    /// 16 bytes: an IPv6 address, or an IPv4 address as ::ffff:a.b.c.d. Byte-aligned.
    Ip,
    /// (address, length): UTF-8 text; bytes that are not UTF-8 are replaced.
    String,
    /// (address, length): bytes.
    Bytes,
}

impl FieldType {
    /// All types, in the order of their names in a manifest.
    pub const ALL: &'static [FieldType] = &[
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I32,
        Self::I64,
        Self::F32,
        Self::F64,
        Self::Bool,
        Self::Timestamp,
        Self::Duration,
        Self::Ip,
        Self::String,
        Self::Bytes,
    ];

    /// Returns the name that a manifest uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Ip => "ip",
            Self::String => "string",
            Self::Bytes => "bytes",
        }
    }

    /// Returns the size in the row, in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::Bool => 1,
            Self::U16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Timestamp | Self::Duration => 8,
            Self::Ip => 16,
            Self::String | Self::Bytes => 8,
        }
    }

    /// Returns the alignment in the row, in bytes.
    pub const fn align(self) -> usize {
        match self {
            Self::Ip => 1,
            Self::String | Self::Bytes => 4,
            _ => self.size(),
        }
    }

    /// Returns true if the row holds an address and a length instead of the value.
    pub const fn is_indirect(self) -> bool {
        matches!(self, Self::String | Self::Bytes)
    }
}
