//! Parameters, as the operator set them. `module.rs`, which `weir build` makes from the manifest, has a function for
//! each.

use crate::{host, Prefix};

/// The error for a value that does not fit into the given buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The length of the value, in bytes or items.
    pub len: usize,
}

/// Returns a parameter of type `u64`, `i64`, `bool` or `duration` (ns).
pub fn int(index: u32) -> i64 {
    // SAFETY: the function takes and returns numbers only.
    unsafe { host::param_int(index) }
}

/// Returns a parameter of type `float`.
pub fn float(index: u32) -> f64 {
    // SAFETY: the function takes and returns numbers only.
    unsafe { host::param_float(index) }
}

fn copy(index: u32, destination: *mut u8, room: usize) -> usize {
    // SAFETY: callers pass the address and the length of a slice that they hold exclusively and in which any bytes are
    // valid. The host writes no more than the slice's length.
    let len = unsafe { host::param_bytes(index, destination, u32::try_from(room).unwrap_or(u32::MAX)) };
    usize::try_from(len).unwrap_or(0)
}

/// Copies a parameter of type `string` into `room`.
pub fn bytes(index: u32, room: &mut [u8]) -> Result<&[u8], TooLong> {
    let len = copy(index, room.as_mut_ptr(), room.len());
    room.get(..len).ok_or(TooLong { len })
}

/// Copies a parameter of type `u64-list` into `room`.
pub fn words(index: u32, room: &mut [u64]) -> Result<&[u64], TooLong> {
    let len = copy(index, room.as_mut_ptr().cast(), core::mem::size_of_val(room)) / 8;
    room.get(..len).ok_or(TooLong { len })
}

/// Returns a parameter of type `prefix`.
pub fn prefix(index: u32) -> Prefix {
    let mut value = [0; 17];
    copy(index, value.as_mut_ptr(), value.len());
    Prefix::from_value(&value)
}

/// Copies a parameter of type `prefix-list` into `room`, where each prefix takes 17 bytes.
pub fn prefixes(index: u32, room: &mut [u8]) -> Result<PrefixList<'_>, TooLong> {
    bytes(index, room).map(PrefixList)
}

/// The prefixes of a parameter. [`Lpm::load`](crate::containers::Lpm::load) takes them.
#[derive(Clone, Copy, Debug)]
pub struct PrefixList<'a>(&'a [u8]);

impl<'a> PrefixList<'a> {
    /// Returns the prefixes in order.
    pub fn iter(&self) -> impl Iterator<Item = Prefix> + 'a {
        self.0.as_chunks::<17>().0.iter().map(Prefix::from_value)
    }
}

/// Copies a parameter of type `string-list` into `room`, where each string takes 4 bytes more than its length.
pub fn list(index: u32, room: &mut [u8]) -> Result<List<'_>, TooLong> {
    bytes(index, room).map(List)
}

/// Several byte strings, as [`Patterns::compile`](crate::Patterns::compile) takes them.
#[derive(Clone, Copy, Debug)]
pub struct List<'a>(pub(crate) &'a [u8]);

impl<'a> List<'a> {
    /// Returns the strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        // Each string takes at least 4 bytes, which bounds their number.
        (0..self.0.len() / 4).map_while(move |_| {
            let len = crate::bytes::at(rest, 0).map(u32::from_le_bytes)?;
            let item = rest.get(4..)?.get(..len as usize)?;
            rest = rest.get(4 + item.len()..)?;
            Some(item)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_ends_where_its_bytes_end() {
        let items = |bytes: &'static [u8]| List(bytes).iter().collect::<std::vec::Vec<_>>();
        assert_eq!(items(b"\x02\0\0\0ab\0\0\0\0\x01\0\0\0c"), [b"ab".as_slice(), b"", b"c"]);
        assert_eq!(items(b"\x01\0\0\0a\x09\0\0\0b"), [b"a".as_slice()]);
        assert!(items(b"").is_empty() && items(b"\xff\xff\xff\xff").is_empty());
    }
}
