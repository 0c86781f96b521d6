//! Records.

use crate::host;
use core::marker::PhantomData;

/// A row of a stream. `module.rs`, which `weir build` makes from the manifest, has one struct for each stream.
pub trait Row {
    /// The stream's number in the manifest.
    const STREAM: u32;

    /// Emits the row, as [`fn@emit`] does. A struct with optional fields has a method of its own, which makes the row that
    /// weir reads.
    #[doc(hidden)]
    #[inline(always)]
    fn emit(&self) -> bool
    where
        Self: Sized,
    {
        emit_layout(Self::STREAM, self)
    }
}

/// Emits a record into its stream. Returns true if weir accepted the record. Records beyond [`limit`](crate::limit) are
/// dropped and counted.
#[inline(always)]
pub fn emit<R: Row>(row: &R) -> bool {
    row.emit()
}

/// Emits a struct that has the layout of the stream's rows.
#[inline(always)]
pub fn emit_layout<L>(stream: u32, row: &L) -> bool {
    // SAFETY: the address and length are those of the row. The host only reads the row, checks the length
    // against the manifest, and checks every address in the row.
    unsafe { host::emit(stream, core::ptr::from_ref(row).cast(), core::mem::size_of::<L>() as u32) >= 0 }
}

/// Returns the address of bytes, as rows have it.
#[cfg(not(weir_native))]
#[inline(always)]
fn address_of(bytes: &[u8]) -> u32 {
    bytes.as_ptr() as usize as u32
}

/// Returns the address of a copy of bytes: those of a native build have addresses of 64 bits.
#[cfg(weir_native)]
fn address_of(bytes: &[u8]) -> u32 {
    extern "C" {
        fn weir_host_address(bytes: *const u8, len: u32) -> u32;
    }
    // SAFETY: the address and length are those of a slice, which the function only reads.
    unsafe { weir_host_address(bytes.as_ptr(), bytes.len() as u32) }
}

/// A field of type `string` or `bytes`: weir copies its bytes while the record is emitted.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Str<'a> {
    address: u32,
    len: u32,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Str<'a> {
    /// A field with this text or these bytes: `Str::new("text")`, `Str::new(packet.payload())`.
    #[inline(always)]
    pub fn new<B: AsRef<[u8]> + ?Sized>(bytes: &'a B) -> Self {
        let bytes = bytes.as_ref();
        Self { address: address_of(bytes), len: bytes.len() as u32, borrowed: PhantomData }
    }
}
